"""The compressed regime: the weights are seen through ``Q``, the rest of the sinogram is noise.

``K = Q F Σ Fᵀ Qᵀ + s² N``. With ``Qᵀ N⁻¹ Q = L Lᵀ`` and ``M = Lᵀ F Σ Fᵀ L``, by Woodbury's formula,

    rᵀ K⁻¹ r = zᵀ (M + s² I)⁻¹ z + (rᵀ N⁻¹ r − zᵀ z)/s²,              z = L⁻¹ Qᵀ N⁻¹ r
    log|K|   = log|M + s² I| + (measurements − rank) log s² + log|N|
    K⁻¹ r    = N⁻¹ (r − Q L⁻ᵀ M (M + s² I)⁻¹ z)/s²,                   Qᵀ K⁻¹ r = L (M + s² I)⁻¹ z

so evidence and posterior need matrices of the rank alone. M is a sum of constants, as in exact inference.
``N⁻¹ Q`` is as large as Q and is not kept: a solve with N, which is cheap, takes its place.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ct_dip.evidence.marginal import CovarianceSum, factorise, solve_factored, whiten
from ct_dip.evidence.model import EvidenceModel, NoiseOnlySubspace
from ct_dip.posterior.compression import Compression
from ct_dip.posterior.conditional import WeightConditional
from ct_dip.posterior.measurement_noise import FreedPixelNoise, MeasurementNoise
from ct_dip.posterior.problem import Problem
from ct_dip.posterior.row_blocks import BLOCK, RowBlocks
from ct_dip.priors.covariance import WeightCovariance
from ct_dip.priors.weights import BlockPrior
from ct_dip.progress import Stage
from ct_dip.tangent.grams import add_lower_gram, mirror_
from ct_dip.tangent.statistics import row_statistics


def basis_factor(
    basis: RowBlocks,
    noise: MeasurementNoise,
    leading_factor: Tensor | None = None,
    stage: Stage | None = None,
) -> Tensor:
    """Compute L, the Cholesky factor of ``Qᵀ N⁻¹ Q``, (rank, rank), float64.

    Args:
        basis: Q as rows.
        leading_factor: the same of the first columns of Q, which need not be solved for again.
        stage: told how many columns are done.
    """
    stage = stage or Stage()
    old = 0 if leading_factor is None else len(leading_factor)
    matrix = torch.zeros(len(basis), len(basis), dtype=torch.float64, device=basis.device)
    if leading_factor is not None:
        matrix[:old, :old] = leading_factor @ leading_factor.T
    done = old
    for rows in basis.chunks(BLOCK, first=old):
        # Where N is factorised digits cost nothing; elsewhere float32 has those that are asked for.
        solved = noise.solve(rows.double() if noise.factorised else rows)
        matrix[done : done + len(rows)] = basis.inner(solved.double())
        done += len(rows)
        stage.update(done)
    new = matrix[old:, old:]
    new.add_(new.T.clone()).mul_(0.5)
    return factorise(matrix).lower  # which reads the lower triangle alone


class _Split(NamedTuple):
    """Sinograms r, (n, measurements), in the basis and outside of it.

    Signals are a thousand times the noise. They are in Q a, of which everything is known; what is
    solved for with N, to some relative accuracy, is of the size of the noise.
    """

    rest: Tensor  # r − Q a with a = Qᵀ r, (n, measurements)
    solved: Tensor  # N⁻¹ (r − Q a), (n, measurements)
    seen: Tensor  # L⁻¹ Qᵀ N⁻¹ (r − Q a), (n, rank), float64
    z: Tensor  # L⁻¹ Qᵀ N⁻¹ r = Lᵀ a + seen


def _split(basis: RowBlocks, noise: MeasurementNoise, lower: Tensor, residuals: Tensor) -> _Split:
    inside = basis.inner(residuals)
    rest = residuals - basis.combine(inside)
    solved = noise.solve(rest)
    seen = whiten(lower, basis.inner(solved).double())
    return _Split(rest, solved, seen, inside.double() @ lower + seen)


def projected_evidence(
    problem: Problem,
    compression: Compression,
    noise: MeasurementNoise,
    lower: Tensor,
    signals: Tensor,
    difference_variances: Tensor | None = None,
) -> EvidenceModel:
    """Make the evidence as in exact inference, with matrices of the rank.

    Args:
        lower: L; see `basis_factor`.
        signals: of the compression; see `feature_signals`.
        difference_variances: T of TV-PredCP, where it is the hyperprior.
    """
    split = _split(compression.basis, noise, lower, problem.residual[None])
    # rᵀ N⁻¹ r − zᵀ z, of which what is in the basis cancels.
    misfit = float((split.rest * split.solved).sum() - split.seen.square().sum())
    rank = compression.rank

    def matrices() -> Iterator[Tensor]:
        for signal in signals:
            yield lower.T @ signal @ lower
        yield torch.eye(rank, dtype=torch.float64, device=lower.device)

    return problem.evidence_model(  # the complement is in N
        CovarianceSum(rank, matrices(), len(signals) + 1, lower.device),
        split.z[0],
        noise_only=NoiseOnlySubspace(
            problem.measurements - rank, max(0.0, misfit), float(noise.log_det.value)
        ),
        difference_variances=difference_variances,
    )


def feature_signals(problem: Problem, compression: Compression, before: Tensor | None = None) -> Tensor:
    """Compute ``F C_t Fᵀ`` of every term of the prior, ``Σ = Σ_t c_t C_t``; (terms, rank, rank), float64.

    Args:
        before: the same for the first rows of F, if it is known.
    """
    if isinstance(problem.prior, BlockPrior):
        return row_statistics(compression.features.columns, problem.jacobian)
    grams = [
        signal_gram(compression.features, term, None if before is None else before[i])
        for i, term in enumerate(problem.prior.terms())
    ]
    return torch.stack(grams)


def signal_gram(
    features: RowBlocks, covariance: WeightCovariance, leading_gram: Tensor | None = None
) -> Tensor:
    """Compute ``F Σ Fᵀ``, (rank, rank), float64.

    Args:
        leading_gram: the same for the first rows of F.
    """
    size, device = len(features), features.device
    total = torch.zeros(size, size, dtype=torch.float64, device=device)
    old = 0 if leading_gram is None else len(leading_gram)
    if leading_gram is not None:
        total[:old, :old] = leading_gram
    for weighted in covariance.root_adjoint_parts(features.columns):
        part = weighted.double()
        total[old:, :old].addmm_(part[old:], part[:old].T)
        add_lower_gram(total[old:, old:], part[old:])
    return mirror_(total)


class Compressed(WeightConditional):
    """The posterior of the compressed model.

    Args:
        lower: L; see `basis_factor`. ``measurement_noise`` holds ``D/s²``.
        shifted: ``M + s² I``, (rank, rank), float64, if it is known; its lower triangle is enough.

    Attributes:
        factor: its Cholesky factor.
    """

    def __init__(
        self,
        problem: Problem,
        compression: Compression,
        measurement_noise: MeasurementNoise,
        lower: Tensor,
        covariance: WeightCovariance,
        pixel_variance: Tensor | None,
        noise: float,
        shifted: Tensor | None = None,
    ) -> None:
        super().__init__(problem, covariance, pixel_variance, noise)
        self.compression, self.measurement_noise, self.lower = compression, measurement_noise, lower
        if shifted is None:
            shifted = lower.T @ signal_gram(compression.features, covariance) @ lower
            shifted.diagonal().add_(noise)
        self.factor, self.jitter = factorise(shifted)

    def _shifted(self, factor: float = 1.0, change: Tensor | None = None) -> Tensor:
        """Compute ``c Xᵀ M X + s² I``; M is as large as its factor, and not kept."""
        shifted = self.factor @ self.factor.T
        shifted.diagonal().sub_(self.noise + self.jitter)
        if change is not None:
            shifted = change.T @ (shifted @ change)
        shifted.mul_(factor).diagonal().add_(self.noise)
        return shifted

    def with_pixel_variance(self, extra: Tensor) -> "Compressed":
        """Return a copy with independent variances of some pixels added, (pixels,), mostly zero."""
        index = extra.nonzero()[:, 0]
        noise = FreedPixelNoise(self.measurement_noise, index, extra[index] / self.noise)
        lower = noise.correct_factor(self.compression.basis, self.lower)
        change = torch.linalg.solve_triangular(self.lower, lower, upper=False)
        return Compressed(
            self.problem,
            self.compression,
            noise,
            lower,
            self.covariance,
            self._added(extra),
            self.noise,
            self._shifted(change=change),
        )

    def tempered(self, factor: float) -> "Compressed":
        """Return a copy with ``factor · Σ``."""
        return Compressed(
            self.problem,
            self.compression,
            self.measurement_noise,
            self.lower,
            self.covariance.scaled(factor),
            self.pixel_variance,
            self.noise,
            self._shifted(factor),
        )

    def measure(self, weights: Tensor) -> Tensor:
        """Compute ``Q F w``."""
        return self.compression.basis.combine(self.compression.features.inner(weights))

    def _split(self, residuals: Tensor) -> _Split:
        return _split(self.compression.basis, self.measurement_noise, self.lower, residuals)

    def solve(self, residuals: Tensor) -> Tensor:
        """Compute ``K⁻¹ r``, (n, measurements) → the same."""
        split = self._split(residuals)
        return self._solve(split, solve_factored(self.factor, split.z))

    def _solve(self, split: _Split, inner: Tensor) -> Tensor:
        """``N⁻¹ Q (a − L⁻ᵀ M (M + s² I)⁻¹ z)/s² + N⁻¹ (r − Q a)/s²``, without a difference of large numbers.

        The bracket is ``s² L⁻ᵀ ((M + s² I)⁻¹ z − L⁻¹ Qᵀ N⁻¹ (r − Q a)/s²)``, since
        ``Lᵀ a = z − L⁻¹ Qᵀ N⁻¹ (r − Q a)``.

        Args:
            inner: ``(M + s² I)⁻¹ z``.
        """
        there = inner - split.seen / self.noise
        back = torch.linalg.solve_triangular(self.lower, there, upper=False, left=False).to(split.rest)
        inside = self.compression.basis.combine(back)
        return self.measurement_noise.solve(inside) + split.solved / self.noise

    def update(self, residuals: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return ``Δw`` and ``Δu``, see `WeightConditional.update`; needs no pass of the network."""
        split = self._split(residuals)
        inner = solve_factored(self.factor, split.z)
        projected = (inner @ self.lower.T).to(residuals)  # Qᵀ K⁻¹ r
        weights = self.covariance(self.compression.features.combine(projected))
        if self.pixel_variance is None:
            return weights, None
        back = self.problem.back_project(self._solve(split, inner))
        return weights, self.pixel_variance.to(back) * back

    def pixel_covariance(self, index: Tensor) -> Tensor:
        """Compute the posterior covariance of some pixels, (n, n), float64; a pass of Jᵀ for each.

        ``J Σ Jᵀ + D − C K⁻¹ Cᵀ`` with ``C = J Σ Fᵀ Qᵀ + D Bᵀ``, rows of the pixels asked for.
        """
        lower, features = self.lower, self.compression.features
        units = self.problem.unit_images(index)
        # In float64, since what is left is a small difference.
        rows = self.problem.jacobian.T(units.reshape(-1, *self.problem.jacobian.range_shape)).double()
        weighted = self.covariance(rows)
        across = features.inner(weighted) @ lower  # J Σ Fᵀ L, (n, rank)
        prior = rows @ weighted.T
        prior = 0.5 * (prior + prior.T)
        if self.pixel_variance is None:
            white = whiten(self.factor, across)
            return prior - white @ white.T
        # With T = (M + s² I)⁻¹ and X = L⁻¹ Qᵀ N⁻¹ B D: Qᵀ K⁻¹ Q = L T Lᵀ, Qᵀ K⁻¹ B D = L T X, and
        # D Bᵀ K⁻¹ B D = (D Bᵀ N⁻¹ B D − Xᵀ M T X)/s², where M T = I − s² T.
        variance = self.pixel_variance[index].double()
        seen = self.problem.project(units)
        solved = self.measurement_noise.solve(seen)
        x = whiten(lower, self.compression.basis.inner(solved).double() * variance[:, None])
        own = (seen.double() @ solved.double().T) * variance[:, None] * variance
        white = whiten(self.factor, across + x)
        return prior + torch.diag(variance) - (own - x @ x.T) / self.noise - white @ white.T
