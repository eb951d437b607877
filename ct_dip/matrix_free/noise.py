"""What is noise to the weights: ``N = I + B D Bᵀ``, the measurements' own and that of independent pixels.

N has no small eigenvalues, hardly large ones, and its products need no network: solving with it is cheap.
What is factorised or decomposed has the size of the measurements or of the pixels, whichever are fewer: with
``P = I + D^½ Bᵀ B D^½``, ``|N| = |P|`` and ``N⁻¹ = I − B D^½ P⁻¹ D^½ Bᵀ``.
"""

import math
from functools import cached_property

import torch
from torch import Tensor

from ct_dip.evidence.marginal import factorise, solve_factored
from ct_dip.matrix_free.row_blocks import Basis
from ct_dip.operators.whitened import Whitened
from ct_dip.solvers.conjugate_gradients import conjugate_gradients
from ct_dip.solvers.lanczos import Estimate, spectral_density

DENSE = 6000  # measurements or pixels up to which a matrix of them is factorised: 0.3 GB, a few seconds
CHUNK = 16  # columns that are solved for together; with 256 the caches overflow and each takes twice as long
_TOLERANCE = 1e-5  # of a solve, relative
_PROBES, _STEPS = 64, 40  # of the log-determinant


class MeasurementNoise:
    """``N`` in units of s²; see the module.

    Args:
        whitened: B, (rows, columns) → (measurements,).
        variance: diagonal of D in units of s², (pixels,); ``None`` for N = I.

    Attributes:
        worst_residual: the largest true relative residual of any solve so far.
        converged: whether all of them met their tolerance.
    """

    def __init__(self, whitened: Whitened, variance: Tensor | None) -> None:
        self.whitened, self.variance = whitened, variance
        pixels = math.prod(whitened.domain_shape)
        (measurements,) = whitened.range_shape
        self.by_pixels, self.size = pixels < measurements, min(pixels, measurements)
        self.worst_residual, self.converged = 0.0, True

    @property
    def dense(self) -> bool:
        """Whether a matrix is factorised, so that solves are exact."""
        return self.variance is None or self.size <= DENSE

    def __call__(self, v: Tensor) -> Tensor:
        """``N v``, (measurements, n) → the same."""
        return v if self.variance is None else v + self._pixels(v)

    @property
    def _diagonal(self) -> Tensor:
        """Of D."""
        assert self.variance is not None
        return self.variance

    def _back_project(self, v: Tensor, factor: Tensor) -> Tensor:
        """``F Bᵀ v``, (measurements, n) → (n, pixels), with a factor of every pixel."""
        images = self.whitened.back_project(v)
        return images * factor.to(images)

    def _pixels(self, v: Tensor) -> Tensor:
        """``B D Bᵀ v``."""
        return self.whitened.project(self._back_project(v, self._diagonal))

    def _smaller(self, v: Tensor) -> Tensor:
        """``B D Bᵀ v`` or ``D^½ Bᵀ B D^½ v``, (size, n) → the same."""
        if not self.by_pixels:
            return self._pixels(v)
        root = self._diagonal.sqrt()
        return self._back_project(self.whitened.project(v.T * root.to(v)), root).T

    @cached_property
    def _lower(self) -> Tensor:
        """Cholesky factor of N or P, float64."""
        device = self._diagonal.device
        matrix = torch.eye(self.size, dtype=torch.float64, device=device)
        for first in range(0, self.size, CHUNK):
            count = min(CHUNK, self.size - first)
            units = torch.zeros(self.size, count, dtype=torch.float64, device=device)
            units[first + torch.arange(count), torch.arange(count)] = 1
            matrix[:, first : first + count] += self._smaller(units)
        return torch.linalg.cholesky(matrix)  # which reads the lower triangle alone

    def solve(self, v: Tensor) -> Tensor:
        """``N⁻¹ v``, (measurements, n) → the same."""
        if self.variance is None:
            return v
        if self.dense:
            return self._solve_dense(v.double()).to(v.dtype)
        found = []
        for part in torch.split(v, CHUNK, dim=1):
            solution = conjugate_gradients(self, part, tolerance=_TOLERANCE, max_iterations=300)
            self._remember(float(solution.residuals.max()), bool(solution.converged.all()))
            found.append(solution.x)
        return torch.cat(found, dim=1)

    def _solve_dense(self, v: Tensor) -> Tensor:
        if self.by_pixels:
            root = self._diagonal.sqrt()
            solved = solve_factored(self._lower, self._back_project(v, root).T)
            x = v - self.whitened.project(solved.T * root)
        else:
            x = solve_factored(self._lower, v)
        if not self.worst_residual:  # of the first solve, for all: they have the same factor
            first, size = v[:, :CHUNK], torch.linalg.vector_norm(v[:, :CHUNK], dim=0)
            left = torch.linalg.vector_norm(self(x[:, :CHUNK]) - first, dim=0) / size.clamp_min(1e-300)
            self._remember(float(left.max()), float(left.max()) <= _TOLERANCE)
        return x

    def _remember(self, residual: float, converged: bool) -> None:
        self.worst_residual = max(self.worst_residual, residual)
        self.converged &= converged

    @cached_property
    def log_det(self) -> Estimate:
        """``log|N|``, with its standard error where it is estimated by probes."""
        zero = torch.zeros((), dtype=torch.float64)
        if self.variance is None:
            return Estimate(zero, zero)
        if self.dense:
            return Estimate(2 * self._lower.diagonal().log().sum(), zero)
        density = spectral_density(
            self._smaller,
            self.size,
            steps=_STEPS,
            probes=_PROBES,
            dtype=torch.float32,
            device=self.variance.device,
        )
        return density.log_det(1.0)


class SpottedNoise(MeasurementNoise):
    """``N + E Eᵀ``: a few pixels more, by Woodbury's formula, without solving anything but for them.

    Args:
        base: N.
        index: the pixels, (n,), and their ``variance`` in units of s².
    """

    def __init__(self, base: MeasurementNoise, index: Tensor, variance: Tensor) -> None:
        extra = torch.zeros(math.prod(base.whitened.domain_shape), dtype=torch.float64, device=index.device)
        extra[index] = variance.double()
        super().__init__(base.whitened, extra if base.variance is None else base.variance + extra)
        self.base = base
        units = torch.zeros_like(extra).repeat(len(index), 1)
        units[torch.arange(len(index)), index] = variance.double().sqrt()
        columns = self.whitened.project(units)  # E
        self.solved = base.solve(columns)  # N⁻¹ E
        inner = columns.T @ self.solved
        inner.diagonal().add_(1.0)
        self.inner = torch.linalg.cholesky(0.5 * (inner + inner.T))  # of I + Eᵀ N⁻¹ E

    def correct_factor(self, basis: Basis, lower: Tensor) -> Tensor:
        """The Cholesky factor of ``Qᵀ (N + E Eᵀ)⁻¹ Q`` from that of ``Qᵀ N⁻¹ Q``."""
        less = torch.linalg.solve_triangular(self.inner, basis.inner(self.solved).T, upper=False)
        return factorise((lower @ lower.T).addmm_(less.T, less, alpha=-1)).lower

    def solve(self, v: Tensor) -> Tensor:
        """See `MeasurementNoise.solve`."""
        solved = self.base.solve(v)
        weights = solve_factored(self.inner, (self.solved.to(v).T @ v).double())
        self.worst_residual, self.converged = self.base.worst_residual, self.base.converged
        return solved - self.solved.to(v) @ weights.to(v)

    @cached_property
    def log_det(self) -> Estimate:
        """See `MeasurementNoise.log_det`."""
        value, error = self.base.log_det
        return Estimate(value + 2 * self.inner.diagonal().log().sum(), error)
