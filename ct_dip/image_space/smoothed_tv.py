"""The posterior of total variation and nonnegativity, smoothed so that its gradient is Lipschitz."""

import torch
from torch import Tensor

from ct_dip.image_space.problem import PixelProblem
from ct_dip.operators.differences import FiniteDifferences

_POWER_STEPS = 30


class SmoothedTv:
    """``U(u) = ½ ‖B u − r‖² + λ Σ h_δ(|D u|) + min(u, 0)²/2ρ``, the negative log-density up to a constant.

    ``h_δ`` is Huber's function, the Moreau envelope of the absolute value: ``t²/2δ`` up to δ, ``t − δ/2``
    beyond; the last term is that of the constraint u ≥ 0. As ``‖D‖² ≤ 8``, ∇U has the Lipschitz constant
    ``‖B‖² + 8λ/δ + 1/ρ``. Both envelopes are as sharp as the data are stiff, ``8λ/δ = 1/ρ = ‖B‖²``:
    sharper ones would cost steps, smoother ones would be another prior (Durmus, Moulines, Pereyra 2018).

    Args:
        strength: λ.
        isotropic: as in `ct_dip.classical.tv.tv`.
        nonnegative: whether the constraint counts.

    Attributes:
        lipschitz: of the gradient.
        smoothing: δ.
    """

    def __init__(
        self,
        problem: PixelProblem,
        strength: float,
        *,
        isotropic: bool = True,
        nonnegative: bool = True,
        seed: int = 0,
    ) -> None:
        self.problem, self.strength = problem, strength
        self.isotropic, self.nonnegative = isotropic, nonnegative
        self.differences = FiniteDifferences(problem.shape)
        self.norm = squared_norm(problem, seed=seed)
        self.smoothing = 8 * strength / self.norm
        self.lipschitz = (3 if nonnegative else 2) * self.norm

    def gradient(self, u: Tensor) -> Tensor:
        """Return ``∇U``, (chains, rows, columns) → the same."""
        whitened = self.problem.whitened
        field = self.differences(u)
        magnitude = self._magnitude(field)
        pull = whitened.T(whitened(u) - self.problem.data)
        pull += self.differences.T(field * (self.strength / magnitude.clamp(min=self.smoothing)))
        return pull + self.norm * u.clamp(max=0) if self.nonnegative else pull

    def potential(self, u: Tensor) -> Tensor:
        """Return U, (chains, rows, columns) → (chains,)."""
        misfit = (self.problem.whitened(u) - self.problem.data).square().sum(dim=-1) / 2
        t = self._magnitude(self.differences(u))
        huber = torch.where(t < self.smoothing, t**2 / (2 * self.smoothing), t - self.smoothing / 2)
        found = misfit + self.strength * huber.sum(dim=(-3, -2, -1))
        if self.nonnegative:
            found = found + self.norm / 2 * u.clamp(max=0).square().sum(dim=(-2, -1))
        return found

    def _magnitude(self, field: Tensor) -> Tensor:
        """Return ``|D u|`` of every pixel, or of every difference if anisotropic."""
        return torch.linalg.vector_norm(field, dim=-3, keepdim=True) if self.isotropic else field.abs()


def squared_norm(problem: PixelProblem, *, seed: int = 0) -> float:
    """Estimate ``‖B‖²`` by power iteration, a hundredth more than found: it is a lower bound."""
    generator = torch.Generator().manual_seed(seed)
    u = torch.rand(1, problem.pixels, generator=generator).to(problem.data)  # near the first singular vector
    size = 0.0
    for _ in range(_POWER_STEPS):
        u = problem.whitened.back_project(problem.whitened.project(u / torch.linalg.vector_norm(u)))
        size = float(torch.linalg.vector_norm(u))
    return 1.01 * size
