"""What a compression leaves out, measured against the model itself.

The trace of the signal outside of Q bounds what it adds to log|K|: for the part ``E`` outside and white
noise, ``0 ≤ log|K| − log|K_c| ≤ tr(E)/s²``; with a strong complement the sign can be either, as Q is not
orthogonal in the metric of N, so the trace counts both ways. Everything else is solved for with the products
of K itself, with the compressed inverse as preconditioner: that takes a few steps if the compression is good.
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


class CompressionCheck(NamedTuple):
    """How far the compressed posterior is from that of the whole model.

    Args:
        evidence_error: largest change of the evidence that is compatible with what was measured, in nats.
        mean_error: rms change of the posterior mean, in posterior standard deviations.
        sample_error: rms change of samples made from the same random numbers, relative to their own size.
        residual: worst true relative residual of the solves behind these numbers.
        converged: whether those solves converged.
        passes: products with J and Jᵀ.
    """

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
    quadratic = float((problem.residual @ (exact - compressed)[:, 0].double()) / 2)
    outside = at_mean.compression.discarded / at_mean.noise / 2
    change = problem.prior_mean + whole.image(*whole.explain(exact))[0].double() - at_mean.mean()

    samples = _whole(of_samples, problem, stage)
    own = of_samples.deviations(_SAMPLES, torch.Generator().manual_seed(seed)).double()
    better = samples.deviations(_SAMPLES, torch.Generator().manual_seed(seed)).double()
    spread = better.square().mean().sqrt()
    return CompressionCheck(
        evidence_error=abs(quadratic) + outside,
        mean_error=float(change.square().mean().sqrt() / spread),
        sample_error=float((own - better).square().mean().sqrt() / spread),
        residual=max(whole.worst_residual, samples.worst_residual),
        converged=whole.unconverged + samples.unconverged == 0,
        passes=2 * (whole.products + samples.products) + 6 * _SAMPLES,
    )


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
