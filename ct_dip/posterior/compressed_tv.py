"""Compressed inference with the fit's TV as pseudo-measurements: another basis, of longer columns.

What the weights move of sinogram and differences together is compressed anew, ``Q = (Q_y, Q_0)``. The
pseudo-measurements alone need no basis of their own: ``Q_0 F`` is what the same model has of them.
"""

from typing import NamedTuple

from torch import Tensor

from ct_dip.evidence.conditional import ConditionalEvidence
from ct_dip.evidence.fit import EvidenceFit, fit_evidence
from ct_dip.evidence.model import EvidenceModel
from ct_dip.posterior.compressed import Compressed, basis_factor, feature_signals, projected_evidence
from ct_dip.posterior.compression import Compression, empty_compression, extend
from ct_dip.posterior.given_tv import GivenTv
from ct_dip.posterior.measurement_noise import MeasurementNoise
from ct_dip.posterior.problem import Problem
from ct_dip.posterior.row_blocks import RowBlocks
from ct_dip.progress import Progress

_ROUNDS = 4  # of extending the basis and fitting again


class CompressedGivenTv(NamedTuple):
    """Posteriors at the prior's parameters that the evidence found.

    Args:
        joint: given sinogram and pseudo-measurements.
        alone: given the latter.
        evidence: ``p(y | 0)``.
        rounds: how often the basis had to be extended.
    """

    joint: Compressed
    alone: Compressed
    evidence: EvidenceFit
    rounds: int


def fit_compressed_given_tv(
    plain: Compressed,
    theta: Tensor,
    given: GivenTv,
    *,
    tolerance: float,
    max_rank: int,
    features_on_host: bool = False,
    seed: int = 0,
    deadline: float | None = None,
    progress: Progress | None = None,
) -> CompressedGivenTv:
    """Fit the prior's parameters by ``p(y | 0, θ)``, with a basis that holds at the optimum.

    Args:
        plain: the posterior given the sinogram at its own ``theta``; its noise and complement stay.
        tolerance: see `ct_dip.posterior.compressed_fit.fit_compressed`, and for the others.
    """
    progress, joint = progress or Progress(), given.joint
    covariance, pixels = plain.covariance, plain.measurement_noise.variance
    compression, signals = empty_compression(joint, features_on_host=features_on_host), None
    rounds = -1
    for number in range(_ROUNDS):
        grown = extend(
            joint,
            covariance,
            compression,
            trace=tolerance * joint.dimensions * plain.noise,
            max_rank=max_rank,
            seed=seed + number,
            deadline=deadline,
            progress=progress,
        )
        unchanged, compression = grown.rank == compression.rank, grown
        if unchanged and signals is not None:
            break
        rounds += 1
        signals = feature_signals(joint, compression, signals)
        with progress.stage("measurement noise"):
            whole = _project(joint, compression, pixels, signals)
            part = _project(given.alone, _below(compression, joint, given.alone), pixels, signals)
        conditional = ConditionalEvidence(joint=whole.model, alone=part.model, start=theta)
        evidence = fit_evidence(conditional, starts=1, progress=progress)
        theta = evidence.theta
        covariance = joint.prior.covariance(whole.model.split(theta)[0])

    def posterior(problem: Problem, basis: Compression, projected: _Projected) -> Compressed:
        shifted = projected.model.matrices.lower(projected.model.coefficients(theta)).to(projected.lower)
        known = covariance, plain.pixel_variance, plain.noise, shifted
        return Compressed(problem, basis, projected.noise, projected.lower, *known)

    return CompressedGivenTv(
        joint=posterior(joint, compression, whole),
        alone=posterior(given.alone, _below(compression, joint, given.alone), part),
        evidence=evidence,
        rounds=rounds,
    )


class _Projected(NamedTuple):
    """A model of the rank, and what its posterior needs; see `ct_dip.posterior.compressed`."""

    noise: MeasurementNoise
    lower: Tensor
    model: EvidenceModel


def _project(
    problem: Problem, compression: Compression, pixels: Tensor | None, signals: Tensor
) -> _Projected:
    noise = MeasurementNoise(problem.whitened, pixels)
    lower = basis_factor(compression.basis, noise)
    return _Projected(noise, lower, projected_evidence(problem, compression, noise, lower, signals))


def _below(compression: Compression, joint: Problem, alone: Problem) -> Compression:
    """Return the rows of Q that belong to the pseudo-measurements."""
    first, basis = joint.measurements - alone.measurements, compression.basis
    rows = RowBlocks(tuple(block[:, first:] for block in basis.blocks), basis.used_on)
    return compression._replace(basis=rows)
