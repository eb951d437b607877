"""The objective of a fit: misfit to the sinogram plus total variation.

``L(w) = (1 − ρ) misfit(A x) + ρ ramp(A x) + (2 λ / d_y) TV(x)``, with ``x = scale · f(w)`` and isotropic TV,
which has no preferred direction. Both data terms are means over the d_y measurements whose expected value at
the truth is 1. The first is that of the noise model. The gradient of such a misfit is a back-projection,
which is blurred: edges would come last, after thousands of steps. The second filters the residuals by the
ramp of FBP, so that its gradient is a filtered back-projection and fine detail is learned as early as coarse.
But it hardly sees low frequencies, and alone it would leave them wrong. So the ramp has a floor, and ρ falls
to zero with the cool-down: a fit begins with the filter and ends with the noise model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ct_dip.arrays import Floats
from ct_dip.data.noise import PhotonNoise
from ct_dip.data.scan import Scan
from ct_dip.errors import ScanError
from ct_dip.operators.differences import total_variation
from ct_dip.operators.linear_map import LinearMap
from ct_dip.operators.norm import rms_column_norm

DataTerm = Literal["gaussian", "poisson"]
# Gain of the ramp at low frequencies, over that at the highest. Without it their errors grow unseen until the
# filter comes off, and then throw the fit far off. Of 0, 0.1 and 0.2, see experiments/README.md.
_FLOOR = 0.1


@dataclass(frozen=True, kw_only=True)
class Targets:
    """The data of N scans of one geometry, as tensors."""

    sinogram: Tensor  # (N, views, detectors)
    precision: Tensor  # (N, views, detectors): 1/σ² (gaussian) or counts (poisson)
    photons: Tensor  # (N,): per bin in air (poisson), else 1
    penalty: Tensor  # (N,): (2 λ / d_y) · scale, so that it multiplies TV of the O(1) image
    scale: Tensor  # (N,): 1/mm per unit of the network's output


def make_targets(
    scans: Sequence[Scan],
    variances: Sequence[np.ndarray],
    scales: Sequence[float],
    transform: LinearMap,
    *,
    strengths: Sequence[float],
    data_term: DataTerm,
    device: torch.device,
) -> Targets:
    """Make the tensors for `objective`.

    Args:
        strengths: of TV relative to the noise, as in `ct_dip.classical.tv.tv`: λ is the strength of a scan
            times the rms column norm of A/σ. A pure number: it changes neither with the image size, nor the
            number of views, nor the units of length or attenuation.
    """
    sinograms, precisions, photons, penalties = [], [], [], []
    for scan, variance, scale, strength in zip(scans, variances, scales, strengths, strict=True):
        y = torch.as_tensor(scan.sinogram.copy(), device=device)
        inverse = torch.as_tensor(1 / variance, dtype=torch.float32, device=device)
        penalty = strength * rms_column_norm(transform, inverse.sqrt())
        penalties.append(2 / y.numel() * penalty * scale)
        sinograms.append(y)
        precision, air = precision_of(scan, variance, data_term)
        precisions.append(torch.as_tensor(precision, dtype=torch.float32, device=device))
        photons.append(air)
    return Targets(
        sinogram=torch.stack(sinograms),
        precision=torch.stack(precisions),
        photons=torch.tensor(photons, device=device),
        penalty=torch.tensor(penalties, device=device),
        scale=torch.tensor(scales, dtype=torch.float32, device=device),
    )


def precision_of(scan: Scan, variance: Floats, kind: DataTerm) -> tuple[Floats, float]:
    """Return what `misfit` needs of a scan: 1/σ² and 1, or counts and photons in air.

    Raises:
        ScanError: there are no photons to count.
    """
    if kind == "gaussian":
        return 1 / variance, 1.0
    if not isinstance(scan.noise, PhotonNoise):
        raise ScanError(
            "data term 'poisson' needs a scan with photon counts; this one's noise is "
            f"{scan.noise.kind if scan.noise else 'not known'}: use dip.data_term=gaussian"
        )
    counts = scan.noise.counts(scan.sinogram)
    return np.where(counts < 0.5, 0.0, counts), scan.noise.photons  # 0: bins that saw no photon


def misfit(projected: Tensor, sinogram: Tensor, precision: Tensor, photons: Tensor, kind: DataTerm) -> Tensor:
    """Average the squared standardised residual, or the Poisson deviance, over measurements.

    Gaussian: ``r²/σ²`` with ``r = p − y``. Poisson, for counts N and ``n = photons · exp(−p) = N exp(−r)``:
    ``2 (n − N + N log(N/n)) = 2N (exp(−r) − 1 + r)``, without a difference of large numbers, which is ``2n``
    where N = 0. Both have mean 1 under their noise model.
    """
    residual = projected - sinogram
    if kind == "gaussian":
        return (residual**2 * precision).mean()
    seen = precision * (torch.expm1(-residual) + residual)
    return 2 * torch.where(precision > 0, seen, photons * torch.exp(-projected)).mean()


def ramp_gains(detectors: int) -> Tensor:
    """Return the ramp as gains of power in a real FFT of twice the detectors; white noise keeps its size."""
    frequencies = torch.fft.rfftfreq(2 * detectors)
    gains = frequencies.clamp_min(_FLOOR * float(frequencies[-1]))
    gains[1:-1] *= 2  # a frequency and its negative; zero and the highest have none
    return 2 * detectors * gains / gains.sum()


def ramp_misfit(residual: Tensor, gains: Tensor) -> Tensor:
    """Average squares of standardised residuals (views, detectors) after the root of the ramp filter."""
    size = 2 * residual.shape[-1]
    spectrum = torch.fft.rfft(residual, n=size, dim=-1)
    power = spectrum.real.square() + spectrum.imag.square()
    return (power * gains).sum() / (size * residual.numel())


def objective(
    transform: LinearMap, kind: DataTerm, device: torch.device | None = None
) -> Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return a function of (O(1) image, ρ, and one row of every field of `Targets`) → (L, misfit)."""
    gains = ramp_gains(transform.range_shape[-1]).to(device)

    def value(
        image: Tensor,
        ramp: Tensor,
        sinogram: Tensor,
        precision: Tensor,
        photons: Tensor,
        penalty: Tensor,
        scale: Tensor,
    ) -> tuple[Tensor, Tensor]:
        projected = transform(scale * image)
        fit = misfit(projected, sinogram, precision, photons, kind)
        standardised = (projected - sinogram) * precision.sqrt()
        data = (1 - ramp) * fit + ramp * ramp_misfit(standardised, gains.to(image))
        return data + penalty * total_variation(image, isotropic=True), fit

    return value
