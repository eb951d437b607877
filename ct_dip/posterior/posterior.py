"""`Posterior`: an image with error bars, and everything that can be asked of it."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ct_dip.arrays import Bools, Floats
from ct_dip.checks import check_count
from ct_dip.data.prediction import Patch, SinogramPredictive, tiles
from ct_dip.errors import CtDipError, InputError
from ct_dip.evidence.fit import EvidenceFit
from ct_dip.posterior.certificate import Certificate
from ct_dip.posterior.deviations import Deviations
from ct_dip.posterior.problem import Problem

_SAMPLES_PER_PIXEL = 5  # that a patch's covariance is made from, at least


@dataclass(frozen=True, kw_only=True, eq=False)
class Posterior:
    """The posterior of the image, given the sinogram. Images in 1/mm, (rows, columns).

    Args:
        problem: the problem that was solved: the network's Jacobian, the prior, the data.
        mean: the image to show: one of the next two or their average, as ``inference.image`` says.
        dip: ``f(w̃)``, the network's own image.
        linear: ``x*``, the posterior mean of the linear model.
        scale: 1/mm per unit of the network's image.
        deviations: of the pixels from ``mean``, in the network's units.
        sinogram: the posterior predictive check.
        evidence: the fit of the hyperparameters; ``hyperparameters`` by name.
        noise_std: fitted standard deviation of a typical line integral; ``stated_noise_std`` what the scan
            states, or an estimate.
        effective_dimension: how many directions of the sinogram the prior explains.
        freed_pixels: how many pixels were freed because the sinogram contradicted the model there.
        jitter: the largest number that had to be added to the diagonal of a whitened covariance; 0 as a rule.
        regime: exact, compressed or iterative; ``certificate`` what the latter two approximated, and whether
            they converged.
    """

    problem: Problem
    mean: Floats
    dip: Floats
    linear: Floats
    scale: float
    deviations: Deviations
    sinogram: SinogramPredictive
    evidence: EvidenceFit
    hyperparameters: dict[str, float]
    noise_std: float
    stated_noise_std: float
    effective_dimension: float
    freed_pixels: int
    jitter: float
    regime: str
    shown: str  # which image ``mean`` is: linear, dip, or the mean of them
    certificate: Certificate | None

    def __repr__(self) -> str:
        rows, columns = self.mean.shape
        return (
            f"<Posterior: {rows} × {columns} pixels, {self.regime} inference, evidence "
            f"{self.evidence.evidence:.6g} nats, effective dimension {self.effective_dimension:.4g}, noise "
            f"{self.noise_std / self.stated_noise_std:.3g} times the stated>"
        )

    @cached_property
    def std(self) -> Floats:
        """Standard deviation of every pixel, 1/mm."""
        return self._image(self.deviations.std)

    @property
    def std_error(self) -> Floats | None:
        """Monte-Carlo standard error of ``std``, 1/mm; ``None`` where that is exact."""
        error = self.deviations.std_error
        return None if error is None else self._image(error)

    def _image(self, values: Tensor) -> Floats:
        images: Floats = self.scale * values.double().cpu().numpy().reshape(-1, *self.mean.shape)
        return images[0] if values.ndim == 1 else images

    def covariance(self, patch: int | None = None) -> list[Patch]:
        """Return covariances of the patches that tile the image, ``patch`` pixels wide; one if ``None``."""
        rows, columns = self.mean.shape
        index = torch.arange(rows * columns).reshape(rows, columns)
        patches = []
        for where in tiles((rows, columns), max(rows, columns) if patch is None else patch):
            part = self.deviations.covariance(index[where].flatten())
            patches.append(Patch(*where, self.scale**2 * part.cpu().numpy()))
        return patches

    @property
    def widest_patch(self) -> int | None:
        """Widest patch whose covariance is exact, or made from many more samples than it has pixels."""
        if self.regime == "exact":
            return None
        if not self.deviations.samples:
            return 10
        return max(1, math.isqrt(self.deviations.samples // _SAMPLES_PER_PIXEL))

    def sample(self, count: int, seed: int = 0) -> Floats:
        """Draw images that are as likely as the true one, (count, rows, columns), around ``mean``.

        What had to be added to variances for that is ``sampling_jitter``, in units of the O(1) image.
        """
        count = check_count(count, "count", InputError)
        return self.mean + self._image(self.deviations.draw(count, seed))

    @property
    def sampling_jitter(self) -> float:
        """Jitter of `sample`; 0 unless the covariance is singular, as without a complement."""
        return self.deviations.jitter

    def log_likelihood(
        self,
        truth: Floats,
        patch: int | None = None,
        *,
        noise_std: float = 0.0,
        mask: Bools | None = None,
    ) -> float:
        """Average ``log p(truth | y)`` over pixels, a density in (1/mm)⁻¹.

        Args:
            truth: (rows, columns), 1/mm.
            patch: with correlations inside patches of this width only; the whole image if ``None``,
                single pixels if 1.
            noise_std: of an image that is not the truth but a reference with noise of its own, 1/mm.
            mask: the pixels that count, (rows, columns); all if ``None``.

        Raises:
            CtDipError: the covariance is singular, so that there is no density: use a complement.
        """
        if truth.shape != self.mean.shape:
            raise InputError(f"truth has shape {truth.shape}, the posterior {self.mean.shape}")
        error = torch.as_tensor(np.asarray(truth, dtype=np.float64) - self.mean)
        where = np.ones(truth.shape, dtype=bool) if mask is None else mask
        if patch == 1:
            variance = (self.std**2 + noise_std**2)[where]
            if not variance.min() > 0:
                raise CtDipError("a pixel's posterior is singular; use a complement other than 'none'")
            each = error.numpy()[where] ** 2 / variance + np.log(variance)
            return float(-0.5 * (each.mean() + math.log(2 * math.pi)))
        total = 0.0
        for rows, columns, covariance in self.covariance(patch):
            covariance[np.diag_indices(len(covariance))] += noise_std**2
            counted = np.flatnonzero(where[rows, columns])
            lower, failed = torch.linalg.cholesky_ex(torch.as_tensor(covariance[np.ix_(counted, counted)]))
            if failed or not bool((lower.diagonal() > 0).all()):
                raise CtDipError(
                    f"the posterior of pixels {rows.start}:{rows.stop}, {columns.start}:{columns.stop} is "
                    "singular and has no density; use a complement other than 'none'"
                )
            inside = error[rows, columns].reshape(-1, 1)[torch.as_tensor(counted)]
            white = torch.linalg.solve_triangular(lower, inside, upper=False)
            total -= 0.5 * float(white.square().sum()) + float(lower.diagonal().log().sum())
        return total / np.count_nonzero(where) - 0.5 * math.log(2 * math.pi)
