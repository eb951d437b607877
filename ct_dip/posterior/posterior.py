"""`Posterior`: an image with error bars, and everything that can be asked of it."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ct_dip.arrays import Floats
from ct_dip.errors import CtDipError, InputError
from ct_dip.evidence.fit import EvidenceFit
from ct_dip.evidence.marginal import Factor, factorise


class Patch(NamedTuple):
    """A rectangle of pixels and its posterior covariance."""

    rows: slice
    columns: slice
    covariance: Floats  # (pixels, pixels), 1/mm², row-major inside the patch


class SinogramCheck(NamedTuple):
    """Posterior predictive of the sinogram, (views, detectors)."""

    mean: Floats  # of the line integrals under the posterior
    std: Floats  # of a repeated measurement
    standardised: Floats  # (y − mean) / noise: what the model leaves unexplained, about 1 in size


@dataclass(frozen=True, kw_only=True, eq=False)
class Posterior:
    """What the sinogram says about the image. Images in 1/mm, (rows, columns).

    Args:
        mean: the image to show: one of the next two or their average, as ``posterior.image`` says.
        dip: ``f(w̃)``, the network's own image.
        linear: ``x*``, the posterior mean of the linear model.
        scale: 1/mm per unit of the network's image.
        unit_covariance: of the pixels in the network's units, (pixels, pixels), float64.
        sinogram: the posterior predictive check.
        evidence: the fit of the hyperparameters; ``hyperparameters`` by name.
        noise_std: fitted standard deviation of a typical line integral; ``stated_noise_std`` what the scan
            states, or an estimate.
        effective_dimension: how many directions of the sinogram the prior explains.
        spots: pixels that were freed because the sinogram contradicted the model there.
        jitter: the largest that had to be added to the diagonal of a whitened covariance; 0 as a rule.
    """

    mean: Floats
    dip: Floats
    linear: Floats
    scale: float
    unit_covariance: Tensor
    sinogram: SinogramCheck
    evidence: EvidenceFit
    hyperparameters: dict[str, float]
    noise_std: float
    stated_noise_std: float
    effective_dimension: float
    spots: int
    jitter: float

    @cached_property
    def std(self) -> Floats:
        """Standard deviation of every pixel, 1/mm."""
        variance = self.unit_covariance.diagonal().clamp_min(0)
        return self.scale * variance.sqrt().numpy().reshape(self.mean.shape)

    def covariance(self, patch: int | None = None) -> list[Patch]:
        """Covariances of the patches that tile the image, at most ``patch`` pixels wide; one if ``None``."""
        rows, columns = self.mean.shape
        side = max(rows, columns) if patch is None else patch
        if side < 1:
            raise InputError(f"patch {patch} must be at least 1 pixel wide")
        index = torch.arange(rows * columns).reshape(rows, columns)
        patches = []
        for top in range(0, rows, side):
            for left in range(0, columns, side):
                where = slice(top, min(top + side, rows)), slice(left, min(left + side, columns))
                inside = index[where].flatten()
                part = self.unit_covariance[inside[:, None], inside]
                patches.append(Patch(*where, self.scale**2 * part.numpy()))
        return patches

    def sample(self, count: int, seed: int = 0) -> Floats:
        """Images that are as likely as the true one, (count, rows, columns), around ``mean``.

        What had to be added to variances for that is ``sampling_jitter``, in units of the O(1) image.
        """
        generator = torch.Generator().manual_seed(seed)
        draws = torch.randn(count, len(self.unit_covariance), generator=generator, dtype=torch.float64)
        images = self.scale * (draws @ self._factor.lower.T).numpy()
        return self.mean + images.reshape(count, *self.mean.shape)

    @cached_property
    def _factor(self) -> Factor:
        return factorise(self.unit_covariance)

    @property
    def sampling_jitter(self) -> float:
        """See `sample`; 0 unless the covariance is singular, as without a complement."""
        return self._factor.jitter

    def log_likelihood(self, truth: Floats, patch: int | None = None, *, noise_std: float = 0.0) -> float:
        """Mean over pixels of ``log p(truth | y)``, a density in (1/mm)⁻¹.

        Args:
            truth: (rows, columns), 1/mm.
            patch: with correlations inside patches of this width only; the whole image if ``None``,
                single pixels if 1.
            noise_std: of an image that is not the truth but a reference with noise of its own, 1/mm.

        Raises:
            CtDipError: the covariance is singular, so that there is no density: use a complement.
        """
        if truth.shape != self.mean.shape:
            raise InputError(f"truth has shape {truth.shape}, the posterior {self.mean.shape}")
        error = torch.as_tensor(np.asarray(truth, dtype=np.float64) - self.mean)
        total = 0.0
        for rows, columns, covariance in self.covariance(patch):
            covariance[np.diag_indices(len(covariance))] += noise_std**2
            lower, failed = torch.linalg.cholesky_ex(torch.as_tensor(covariance))
            if failed or not bool((lower.diagonal() > 0).all()):
                raise CtDipError(
                    f"the posterior of pixels {rows.start}:{rows.stop}, {columns.start}:{columns.stop} is "
                    "singular and has no density; use a complement other than 'none'"
                )
            white = torch.linalg.solve_triangular(lower, error[rows, columns].reshape(-1, 1), upper=False)
            total -= 0.5 * float(white.square().sum()) + float(lower.diagonal().log().sum())
        return total / truth.size - 0.5 * math.log(2 * math.pi)
