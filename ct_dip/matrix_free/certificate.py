"""What a compression leaves out, measured against the model itself.

The quadratic form, the mean and samples are solved for with the products of K itself, with the compressed
inverse as preconditioner: that takes a few steps if the compression is good. The log-determinant is estimated
with weights from the compressed posterior, see `log_det_beyond`. So the evidence of the whole model is known,
to within the error of that estimate.
"""

from typing import NamedTuple

import torch

from ct_dip import memory
from ct_dip.matrix_free.compressed import Compressed
from ct_dip.matrix_free.iterative import Iterative
from ct_dip.matrix_free.problem import Problem
from ct_dip.progress import Stage

# Of a mean that is off by a quarter of a deviation, 95 % intervals cover 94.3 %; those of deviations that are
# off by a tenth, 92 to 97 %.
MEAN_LIMIT, SAMPLE_LIMIT = 0.25, 0.1
_SAMPLES = 4
_TOLERANCE = 1e-5  # relative to residuals that are mostly signal, a thousand times the noise
_MAX_ITERATIONS = 50
_PROBES = 32  # of the log-determinant


class CompressionCheck(NamedTuple):
    """How far the compressed posterior is from that of the whole model.

    Args:
        evidence_change: what the evidence of the whole model has beyond that of the compressed one, in nats.
        evidence_error: how far the former may be off: a standard error, and the last term that is counted.
        mean_error: rms change of the posterior mean, in posterior standard deviations.
        sample_error: rms change of samples made from the same random numbers, relative to their own size.
        residual: worst true relative residual of the solves behind these numbers.
        converged: whether those solves converged.
        passes: products with J and Jᵀ.
    """

    evidence_change: float
    evidence_error: float
    mean_error: float
    sample_error: float
    residual: float
    converged: bool
    passes: int

    @property
    def accurate(self) -> bool:
        """Whether intervals cover what they would without the compression, nearly."""
        return self.mean_error <= MEAN_LIMIT and self.sample_error <= SAMPLE_LIMIT


def check_compression(
    at_mean: Compressed, of_samples: Compressed, seed: int = 0, stage: Stage | None = None
) -> CompressionCheck:
    """Compare with the whole model.

    Args:
        at_mean: the posterior of the image.
        of_samples: that of the error bars, which may belong to a tempered prior.
        stage: told how far the solves are.
    """
    problem = at_mean.problem.in_float64()
    memory.give_back()  # of the network that ran for it
    residual = problem.residual[:, None]
    whole = _whole(at_mean, problem, stage)
    compressed = at_mean.solve(residual)
    exact = whole.solve(residual, compressed)
    quadratic = float(problem.residual @ (exact - compressed)[:, 0].double())
    log_det, log_det_error = log_det_beyond(at_mean, seed)
    change = problem.prior_mean + whole.image(*whole.explain(exact))[0].double() - at_mean.mean()

    samples = _whole(of_samples, problem, stage)
    own = of_samples.deviations(_SAMPLES, torch.Generator().manual_seed(seed)).double()
    better = samples.deviations(_SAMPLES, torch.Generator().manual_seed(seed)).double()
    spread = better.square().mean().sqrt()
    return CompressionCheck(
        evidence_change=-(quadratic + log_det) / 2,
        evidence_error=log_det_error / 2,
        mean_error=float(change.square().mean().sqrt() / spread),
        sample_error=float((own - better).square().mean().sqrt() / spread),
        residual=max(whole.worst_residual, samples.worst_residual),
        converged=whole.unconverged + samples.unconverged == 0,
        passes=2 * (whole.products + samples.products) + 6 * _SAMPLES + _PROBES,
    )


def log_det_beyond(compressed: Compressed, seed: int = 0) -> tuple[float, float]:
    """``log|K| − log|K_c|`` to second order in what is outside of Q, and how far it may be off.

    With ``Φ = B J Σ^½`` and ``H = Φᵀ N⁻¹ Φ/s²``, and ``H_c`` the same of ``Q Qᵀ Φ``, it is ``log|I + X|`` for
    ``X = (I + H_c)⁻¹ (H − H_c)``, which is ``tr X − ½ tr X²`` up to higher powers. Weights w from the
    compressed posterior have the covariance ``Σ^½ (I + H_c)⁻¹ Σ^½``; so for independent ones, with
    ``⟨a, b⟩ = aᵀ N⁻¹ b``,

        d_ij = (⟨B J w_i, B J w_j⟩ − ⟨Q F w_i, Q F w_j⟩)/s²,    E d_ii = tr X,    E d_ij² = tr X².
    """
    weights = compressed.weight_deviations(_PROBES, torch.Generator().manual_seed(seed))
    whole, inside = compressed.problem.measure(weights), compressed.measure(weights)
    solved = compressed.measurement_noise.solve(whole + inside)
    products = (whole - inside).double().T @ solved.double() / compressed.noise
    products = 0.5 * (products + products.T)  # without a difference of large numbers
    own = products.diagonal()
    squares = (products.square().sum() - own.square().sum()) / (_PROBES * (_PROBES - 1))
    error = own.std() / _PROBES**0.5 + squares / 2
    return float(own.mean() - squares / 2), float(error)


def _whole(compressed: Compressed, problem: Problem, stage: Stage | None) -> Iterative:
    told = stage or Stage()
    return Iterative(
        problem,
        compressed.covariance,
        compressed.pixel_variance,
        compressed.noise,
        preconditioner=compressed.solve,
        tolerance=_TOLERANCE,
        max_iterations=_MAX_ITERATIONS,
        report=lambda step, residual: told.update(step, residual=residual),
    )
