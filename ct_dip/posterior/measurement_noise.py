"""The noise that the weights see: ``N = I + B D Bᵀ``, of the measurements and of independent pixels.

N has no small eigenvalues, hardly large ones, and its products need no network: solving with it is cheap.
What is factorised or decomposed has the size of the measurements or of the pixels, whichever are fewer: with
``P = I + D^½ Bᵀ B D^½``, ``|N| = |P|`` and ``N⁻¹ = I − B D^½ P⁻¹ D^½ Bᵀ``.
"""

import math
from functools import cached_property

import torch
from torch import Tensor

from ct_dip.evidence.marginal import factorise, solve_factored
from ct_dip.operators.linear_map import LinearMap
from ct_dip.operators.whitened import Whitened
from ct_dip.posterior.row_blocks import RowBlocks
from ct_dip.solvers.conjugate_gradients import conjugate_gradients
from ct_dip.solvers.lanczos import Estimate, spectral_density

DENSE = 6000  # measurements or pixels up to which a matrix of them is factorised: 0.3 GB, a few seconds
CHUNK = 16  # sinograms that are solved for together; with 256 caches overflow and each takes twice as long
_TOLERANCE = 1e-5  # of a solve, relative
_PROBES, _STEPS = 64, 40  # of the log-determinant


class MeasurementNoise(LinearMap):
    """``N`` in units of s², (measurements,) → (measurements,); see the module.

    Args:
        whitened: B, (rows, columns) → (measurements,).
        variance: diagonal of D in units of s², (pixels,); ``None`` for N = I.

    Attributes:
        worst_residual: the largest true relative residual of any solve so far.
        converged: whether all of them met their tolerance.
    """

    def __init__(self, whitened: Whitened, variance: Tensor | None) -> None:
        self.whitened, self.variance = whitened, variance
        self.domain_shape = self.range_shape = whitened.range_shape
        pixels = math.prod(whitened.domain_shape)
        (measurements,) = whitened.range_shape
        self.by_pixels, self.size = pixels < measurements, min(pixels, measurements)
        self.worst_residual, self.converged = 0.0, True

    @property
    def factorised(self) -> bool:
        """Whether a matrix is factorised, so that solves are exact."""
        return self.variance is None or self.size <= DENSE

    def _forward(self, x: Tensor) -> Tensor:
        return x.clone() if self.variance is None else x + self._pixels(x)

    def _adjoint(self, y: Tensor) -> Tensor:
        return self._forward(y)

    @property
    def _diagonal(self) -> Tensor:
        """Return the diagonal of D."""
        assert self.variance is not None
        return self.variance

    def _back_project(self, v: Tensor, factor: Tensor) -> Tensor:
        """Compute ``F Bᵀ v``, (n, measurements) → (n, pixels), with a factor of every pixel."""
        images = self.whitened.back_project(v)
        return images * factor.to(images)

    def _pixels(self, v: Tensor) -> Tensor:
        """Compute ``B D Bᵀ v``."""
        return self.whitened.project(self._back_project(v, self._diagonal))

    def _smaller(self, v: Tensor) -> Tensor:
        """Compute ``B D Bᵀ v`` or ``D^½ Bᵀ B D^½ v``, (n, size) → the same."""
        if not self.by_pixels:
            return self._pixels(v)
        root = self._diagonal.sqrt()
        return self._back_project(self.whitened.project(v * root.to(v)), root)

    @cached_property
    def _lower(self) -> Tensor:
        """Cholesky factor of N or P, float64."""
        device = self._diagonal.device
        matrix = torch.eye(self.size, dtype=torch.float64, device=device)
        for first in range(0, self.size, CHUNK):
            units = torch.zeros(min(CHUNK, self.size - first), self.size, dtype=torch.float64, device=device)
            units.diagonal(first).fill_(1)
            matrix[first : first + len(units)] += self._smaller(units)
        return torch.linalg.cholesky(matrix)  # which reads the lower triangle alone

    def solve(self, v: Tensor) -> Tensor:
        """Compute ``N⁻¹ v``, (n, measurements) → the same."""
        if self.variance is None:
            return v
        if self.factorised:
            return self._solve_dense(v.double()).to(v.dtype)
        solved = []
        for part in torch.split(v, CHUNK):
            solution = conjugate_gradients(self, part, tolerance=_TOLERANCE, max_iterations=300)
            self._remember(float(solution.residuals.max()), bool(solution.converged.all()))
            solved.append(solution.x)
        return torch.cat(solved)

    def _solve_dense(self, v: Tensor) -> Tensor:
        if self.by_pixels:
            root = self._diagonal.sqrt()
            x = v - self.whitened.project(solve_factored(self._lower, self._back_project(v, root)) * root)
        else:
            x = solve_factored(self._lower, v)
        if not self.worst_residual:  # of the first solve, for all: they have the same factor
            first, size = v[:CHUNK], torch.linalg.vector_norm(v[:CHUNK], dim=1)
            left = torch.linalg.vector_norm(self(x[:CHUNK]) - first, dim=1) / size.clamp_min(1e-300)
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
        if self.factorised:
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


class FreedPixelNoise(MeasurementNoise):
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
        units[torch.arange(len(index), device=index.device), index] = variance.double().sqrt()
        seen = self.whitened.project(units)  # Eᵀ, (n, measurements)
        self.solved = base.solve(seen)  # (N⁻¹ E)ᵀ
        inner = seen @ self.solved.T
        inner.diagonal().add_(1.0)
        self.inner = torch.linalg.cholesky(0.5 * (inner + inner.T))  # of I + Eᵀ N⁻¹ E

    def correct_factor(self, basis: RowBlocks, lower: Tensor) -> Tensor:
        """Update the Cholesky factor of ``Qᵀ N⁻¹ Q`` to ``Qᵀ (N + E Eᵀ)⁻¹ Q``; ``basis`` has Q as rows."""
        less = torch.linalg.solve_triangular(self.inner, basis.inner(self.solved), upper=False)
        return factorise((lower @ lower.T).addmm_(less.T, less, alpha=-1)).lower

    def solve(self, v: Tensor) -> Tensor:
        """Return ``(N + E Eᵀ)⁻¹ v``, (n, measurements) → the same."""
        solved = self.base.solve(v)
        weights = solve_factored(self.inner, (v @ self.solved.to(v).T).double())
        self.worst_residual, self.converged = self.base.worst_residual, self.base.converged
        return solved - weights.to(v) @ self.solved.to(v)

    @cached_property
    def log_det(self) -> Estimate:
        """Return ``log|N + E Eᵀ|``, with its standard error."""
        value, error = self.base.log_det
        return Estimate(value + 2 * self.inner.diagonal().log().sum(), error)
