"""What a reconstruction is compared with: the truth of a simulation, or a reference of a measured scan.

A reference is no truth. It is an image with noise of its own, ``r = x + ε``, ``ε ~ N(0, ν²)`` in every pixel.
Error bars σ that are right therefore give ``r − mean ~ N(0, σ² + ν²)``: where ν is known, deviations are
widened by it before errors are compared with them.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.data.scan import Scan
from ct_dip.errors import InputError


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """An image of the same object.

    Args:
        name: how it is called wherever a user reads of it.
        image: 1/mm, (rows, columns).
        noise_std: ν of a reference, 1/mm; 0 if it is not known.
    """

    name: Literal["truth", "reference"]
    image: Floats
    noise_std: float = 0.0

    def widened(self, std: Floats) -> Floats:
        """Return ``√(σ² + ν²)``, the expected size of errors against this image, of any shape."""
        return np.sqrt(np.square(std, dtype=np.float64) + self.noise_std**2) if self.noise_std else std

    def in_its_place(self, samples: Floats) -> Floats:
        """Posterior samples with this image's noise, (n, rows, columns): it could be one of them."""
        if not self.noise_std:
            return samples
        return samples + self.noise_std * np.random.default_rng(0).standard_normal(samples.shape)


def comparison_of_scan(
    scan: Scan, reference: Floats | None = None, reference_std: float | None = None
) -> Comparison | None:
    """Check and return the scan's truth, or the reference given for it; ``None`` without either."""
    if reference is None:
        if reference_std is not None:
            raise InputError(f"reference_std {reference_std:g} has no effect without a reference; drop it")
        if scan.ground_truth is None:
            return None
        return Comparison(name="truth", image=scan.ground_truth)
    if scan.ground_truth is not None:
        raise InputError(
            "the scan has a ground truth and a reference was given, but a result is compared with one of "
            "them; drop the reference"
        )
    if reference_std is not None and not 0 < reference_std < math.inf:
        raise InputError(
            f"the reference's noise {reference_std:g} (reference_std) must be a positive number, in 1/mm"
        )
    image = np.asarray(reference)
    shape = scan.geometry.domain_shape
    if image.shape != shape:
        hint = "transpose it?" if image.shape == shape[::-1] else "resample it to the scan's grid"
        raise InputError(f"the reference has shape {image.shape}, the scan's image {shape}; {hint}")
    if image.dtype.kind != "f":
        raise InputError(
            f"the reference holds {image.dtype}, which is not an attenuation; give floating-point numbers "
            "in 1/mm"
        )
    finite = np.isfinite(image)
    if not finite.all():
        row, column = (int(i) for i in np.argwhere(~finite)[0])
        raise InputError(f"reference[{row}, {column}] is {image[row, column]}; replace what is not finite")
    return Comparison(name="reference", image=image.astype(np.float32), noise_std=reference_std or 0.0)
