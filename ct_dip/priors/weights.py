"""Gaussian priors ``w ~ N(0, Σ(θ))`` whose image covariance ``J Σ Jᵀ`` is a sum of weighted constants.

A prior maps its log-parameters θ to the weights c_t of that sum, and says how large w̃ is under it. θ and all
that has its size stay on the CPU, where the search for it runs; Σ lives where the weights do.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ct_dip.dip.unet import WeightBlock
from ct_dip.errors import CtDipError
from ct_dip.priors.covariance import WeightCovariance
from ct_dip.tangent.taps import tap_pairs

# Log-parameters may move this far from where the fitted weights put them: factors of 10⁶ in a variance.
_REACH = math.log(1e6)
_LENGTHS = (0.1, 30.0)  # of tap correlations: from none to nearly equal taps
# Deviation of the weak log-normal hyperpriors: a variance is within e^±6 of that of the fitted weights.
_VARIANCE_DEVIATION = 3.0
_LENGTH_DEVIATION = 2.0


class WeightPrior(ABC):
    """``Σ(θ)`` by its log-parameters.

    Attributes:
        names: of the log-parameters.
        start: where the fitted weights put them, (n,); ``lower`` and ``upper``: how far they may go.
    """

    names: tuple[str, ...]
    start: Tensor
    lower: Tensor
    upper: Tensor

    @abstractmethod
    def coefficients(self, theta: Tensor) -> Tensor:
        """c_t of every constant matrix, (terms,)."""

    @abstractmethod
    def covariance(self, theta: Tensor) -> WeightCovariance:
        """``Σ(θ)``."""

    @abstractmethod
    def weight_norm(self, theta: Tensor) -> Tensor:
        """``w̃ᵀ Σ⁻¹ w̃``, which the evidence at w̃ pays for."""

    def terms(self) -> list[WeightCovariance]:
        """``C_t`` of ``Σ(θ) = Σ_t c_t(θ) C_t``; a prior with several coefficients says which they are."""
        coefficients = self.coefficients(self.start)
        if len(coefficients) > 1:
            raise NotImplementedError(f"{type(self).__name__} must say what its terms are: terms()")
        return [self.covariance(self.start).scaled(1 / float(coefficients[0]))]

    def log_hyperprior(self, theta: Tensor) -> Tensor:
        """Weak, log-normal, up to a constant; flat unless a prior says otherwise."""
        return theta.new_zeros(())


class BlockPrior(WeightPrior):
    """One variance σ_b² and, for 3×3 filters, one tap correlation length ℓ_b per block.

    The taps p, q of a filter have covariance ``σ_b² exp(−‖p − q‖/ℓ_b)`` (Matérn-½), filters are
    independent. θ holds every log σ_b², then every log ℓ_b.

    Args:
        blocks: of the weights.
        weights: w̃, (P,).
        slices: where every block is in them, by its name.

    Raises:
        CtDipError: the fitted weights of a block are all zero, so that they put its variance nowhere.
    """

    def __init__(self, blocks: Sequence[WeightBlock], weights: Tensor, slices: Mapping[str, slice]) -> None:
        self.blocks, self.slices, self.device = tuple(blocks), slices, weights.device
        self.moments = []  # Σ_filters w wᵀ of every block, (taps, taps)
        variances, lengths = [], []
        for block in self.blocks:
            filters = weights[slices[block.name]].double().reshape(-1, block.kernel**2)
            moments = (filters.T @ filters).cpu()
            # A variance of zero would be a block that is certain, and error bars that are too small.
            if not moments.any():
                raise CtDipError(
                    f"the fitted weights of the network's block {block.name!r} are all zero, which gives its "
                    "prior no scale; fit the network again (another seed, another learning rate), or use "
                    "inference.prior=isotropic: one variance for all weights"
                )
            self.moments.append(moments)
            variance, length = _fit_taps(block, moments, len(filters))
            variances.append(variance)
            if block.kernel > 1:
                lengths.append(length)
        self.wide = [i for i, block in enumerate(self.blocks) if block.kernel > 1]
        self.names = tuple(
            [f"log_variance.{block.name}" for block in self.blocks]
            + [f"log_length.{self.blocks[i].name}" for i in self.wide]
        )
        self.start = torch.tensor(variances + lengths, dtype=torch.float64).log()
        reach = torch.full((len(variances),), _REACH, dtype=torch.float64)
        shortest, longest = (
            torch.full((len(lengths),), math.log(length), dtype=torch.float64) for length in _LENGTHS
        )
        self.lower = torch.cat([self.start[: len(variances)] - reach, shortest])
        self.upper = torch.cat([self.start[: len(variances)] + reach, longest])

    def split(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """(log variances, log lengths)."""
        return theta[: len(self.blocks)], theta[len(self.blocks) :]

    def coefficients(self, theta: Tensor) -> Tensor:
        """``σ_b² exp(−d/ℓ_b)`` by block, then distance."""
        return torch.cat([self.block_coefficients(theta, i) for i in range(len(self.blocks))])

    def block_coefficients(self, theta: Tensor, block: int) -> Tensor:
        """Those of one block, by distance."""
        variances, lengths = self.split(theta)
        distances = tap_pairs(self.blocks[block].kernel).distances
        if block not in self.wide:
            return variances[block].exp() * torch.ones_like(distances)
        return variances[block].exp() * _correlation(distances, lengths[self.wide.index(block)].exp())

    def tap_covariance(self, theta: Tensor, block: int) -> Tensor:
        """``σ_b² exp(−‖p − q‖/ℓ_b)``, (taps, taps)."""
        pairs = tap_pairs(self.blocks[block].kernel).pairs
        return torch.tensordot(self.block_coefficients(theta, block), pairs, 1)

    def covariance(self, theta: Tensor) -> WeightCovariance:
        """Return ``Σ(θ)``."""
        return WeightCovariance(
            [
                (
                    self.slices[block.name],
                    torch.linalg.cholesky(self.tap_covariance(theta, i)).to(self.device),
                )
                for i, block in enumerate(self.blocks)
            ]
        )

    def weight_norm(self, theta: Tensor) -> Tensor:
        """``Σ_filters wᵀ C(ℓ_b)⁻¹ w / σ_b²``."""
        total = theta.new_zeros(())
        for i, moments in enumerate(self.moments):
            total = total + torch.trace(torch.linalg.solve(self.tap_covariance(theta, i), moments))
        return total

    def log_hyperprior(self, theta: Tensor) -> Tensor:
        """Variances near those of the fitted weights, lengths near one tap; keeps a block from vanishing."""
        variances, lengths = self.split(theta)
        centre, _ = self.split(self.start)
        return -0.5 * (
            ((variances - centre) / _VARIANCE_DEVIATION).square().sum()
            + (lengths / _LENGTH_DEVIATION).square().sum()
        )


class OneVariancePrior(WeightPrior):
    """``Σ = e^θ Σ₀`` with a known Σ₀, whose image covariance is the only matrix.

    The block prior as the fitted weights put it with one free scale, the isotropic prior (Σ₀ = I), and the
    neural g-prior (Σ₀ = S²) are of this kind.

    Args:
        base: Σ₀.
        norm: ``w̃ᵀ Σ₀⁻¹ w̃``.
        count: of the weights; the fitted ones are most likely under the variance ``norm / count``.

    Raises:
        CtDipError: the norm is zero, and so is no start.
    """

    def __init__(self, name: str, base: WeightCovariance, norm: float, count: int) -> None:
        if norm == 0:
            raise CtDipError(
                "the fitted weights that the image depends on are all zero, which gives their prior no "
                "scale; fit the network again (another seed, another learning rate)"
            )
        self.names, self.base, self.norm = (name,), base, norm
        self.start = torch.tensor([math.log(norm / count)], dtype=torch.float64)
        self.lower, self.upper = self.start - _REACH, self.start + _REACH

    def coefficients(self, theta: Tensor) -> Tensor:
        """The variance."""
        return theta.exp()

    def terms(self) -> list[WeightCovariance]:
        """Return Σ₀."""
        return [self.base]

    def covariance(self, theta: Tensor) -> WeightCovariance:
        """Return ``Σ(θ)``."""
        return self.base.scaled(float(theta[0].exp()))

    def weight_norm(self, theta: Tensor) -> Tensor:
        """Return ``w̃ᵀ Σ⁻¹ w̃``."""
        return self.norm / theta[0].exp()


def _correlation(distances: Tensor, length: Tensor) -> Tensor:
    return torch.exp(-distances / length)


def _fit_taps(block: WeightBlock, moments: Tensor, count: int) -> tuple[float, float]:
    """(σ², ℓ) under which the fitted filters are most likely, as draws from their prior.

    For a correlation C(ℓ) the best variance is ``mean wᵀC⁻¹w / taps``; ℓ is found on a grid, since a
    prior of thousands of weights needs no third digit.

    Args:
        moments: ``Σ_filters w wᵀ``, (taps, taps), and the ``count`` of the filters.
    """
    taps = tap_pairs(block.kernel)
    size = len(moments)
    best = (-math.inf, 1.0, 1.0)
    grid = torch.logspace(math.log10(_LENGTHS[0]), math.log10(_LENGTHS[1]), 60, dtype=torch.float64)
    for length in grid if size > 1 else grid[:1]:
        correlation = torch.tensordot(_correlation(taps.distances, length), taps.pairs, 1)
        variance = float(torch.trace(torch.linalg.solve(correlation, moments))) / (count * size)
        likelihood = -0.5 * count * (size * math.log(variance) + float(torch.logdet(correlation)))
        best = max(best, (likelihood, variance, float(length)))
    return best[1], best[2]
