"""Explain the numbers that methods report about themselves, in `ct-dip info` and on pages."""

MEANINGS = {
    "at_bound": "hyperparameters at the end of their range",
    "chains": "Markov chains",
    "certificate.closed_form": "whether error bars are exact rather than made from samples",
    "certificate.converged": "whether the approximation reached what it was asked for",
    "certificate.discarded_trace": "share of the signal that the compression left out, over the noise",
    "certificate.evidence_error": "how far the evidence may be off, in nats",
    "certificate.mean_error": "how far the image may be off, in standard deviations",
    "certificate.passes": "products with the network's Jacobian",
    "certificate.rank": "directions of the sinogram that were kept",
    "certificate.residual": "worst relative residual of the linear solves",
    "certificate.sample_error": "how far samples may be off, in standard deviations",
    "device": "where the run computed",
    "draws": "states of the Markov chains that were kept",
    "duality_gap": "distance from the optimum, at most, over the objective",
    "effective_dimension": "how many numbers the data determine",
    "effective_samples": "independent samples that the draws are worth, in a typical pixel",
    "effective_samples_low": "the same in the worst pixel",
    "evidence": "log marginal likelihood of the sinogram, in nats; larger is better",
    "evidence_converged": "whether the search for hyperparameters converged",
    "evidence_evaluations": "evaluations of the evidence in that search",
    "evidence_objective": "evidence plus log hyperprior",
    "evidence_starts": "best objective of every start of the search",
    "freed_pixels": "pixels that got an extra variance, as the data contradicted the model there",
    "heldout_rms_z_before": "errors of held-out views over the predicted ones, before widening",
    "iterations": "steps of the solver",
    "jitter": "what a covariance needed on its diagonal to be factorised; 0 is best",
    "log_complement": "log variance of what the network cannot draw, relative to its own scale",
    "log_g": "log of the factor g of the g-prior",
    "log_length": "log distance over which the taps of a filter are correlated, in taps",
    "log_marginal_likelihood": "log marginal likelihood given the weights without error bars, in nats",
    "log_noise": "log noise variance relative to the stated one; 0 is as stated",
    "log_scale": "log factor on all prior variances of the weights; 0 is the size of the fitted weights",
    "log_variance": "log prior variance of the weights",
    "loss": "what the fit of the network minimises, at its end",
    "misfit": "mean squared residual over the noise; 1 is the noise",
    "noise_estimated": "whether the scan states no noise, so that it was estimated",
    "misses_directions": "whether the views leave out more than 20° of all directions",
    "noise_precision": "precision of the noise relative to the stated one",
    "noise_scale": "noise relative to the stated one",
    "noise_std": "standard deviation of the noise",
    "offset_error": "error of the detector offset, in mm, that the error bars know of; 0 is none",
    "peak_memory_mb": "memory that the run took at its peak",
    "prior_precision": "factor on the prior's energy",
    "prior_scale": "factor on the prior's standard deviation",
    "regime": "how the posterior was computed: exact, compressed or iterative",
    "residual": "relative residual at the end",
    "sampling_jitter": "the same jitter, for the samples",
    "seeds": "seed of the random numbers",
    "sigma_y": "noise of a typical measurement as fitted",
    "sigma_y_stated": "noise of a typical measurement as stated or estimated before the fit",
    "sinogram_chi2": "mean squared residual over the fitted noise; about 1 is good",
    "steps": "steps of the network's fit",
    "stopped_by": "rule that ended the fit",
    "tv_strength_at_bound": "which of all strengths of total variation was chosen, if it is an extreme one",
    "widening": "factor on the covariance that held-out views asked for",
}


def meaning(name: str) -> str:
    """Explain a number by its name, as ``evidence`` or ``hyperparameters.log_scale``; empty if unknown."""
    name = name.removeprefix("hyperparameters.")
    kind, _, block = name.partition(".")
    if name in MEANINGS or not block:
        return MEANINGS.get(name, "")
    known = MEANINGS.get(kind, "")
    return f"{known} of the network's block {block}" if known and kind.startswith("log_") else known
