"""The start of a fit: total variation of the scan, with the scale, strength and misfit taken from it."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ct_dip.arrays import Bools, Floats
from ct_dip.classical.tv import tv
from ct_dip.classical.tv_strength import choose_tv_strength
from ct_dip.data.scan import Scan
from ct_dip.dip.config import ResolvedDipConfig
from ct_dip.errors import ScanError
from ct_dip.operators.linear_map import LinearMap

_ROOM, _LITTLE_ROOM = 1.25, 1.05  # range of the output over the largest value of a TV image
_TOP, _PLATEAU = 0.9, 0.05  # values above this part of the largest, in so many pixels, are a plateau
_TV_TOLERANCE = 1e-2  # relative duality gap


@dataclass(frozen=True, kw_only=True)
class Start:
    """One scan before its fit.

    Args:
        sinogram: (views, detectors), on the device of the fit.
        variance: of the measurements, (views, detectors); ``noise_known`` whether the scan states it.
        image: total variation of the default strength, 1/mm, (rows, columns).
        scale: 1/mm per unit of the network's output; see `network_scale`.
        strength: of the fit's TV relative to the noise, as given or chosen from the data.
        tv_misfit: mean squared standardised residual of plain TV of that strength.
    """

    sinogram: Tensor
    variance: Floats
    noise_known: bool
    image: Tensor
    scale: float
    strength: float
    tv_misfit: float


def make_start(scan: Scan, config: ResolvedDipConfig, transform: LinearMap, device: torch.device) -> Start:
    """Reconstruct a scan by total variation.

    Raises:
        ScanError: there is nothing in it.
    """
    sinogram = torch.as_tensor(scan.sinogram.copy(), device=device)
    if float(sinogram.max()) == float(sinogram.min()):
        raise ScanError(
            f"the sinogram is {float(sinogram.max()):g} everywhere: there is nothing to reconstruct"
        )
    stated, noise_known = scan.variance_or_estimate()
    variance = torch.as_tensor(stated)
    image = tv(transform, sinogram, variance=variance, tolerance=_TV_TOLERANCE).image
    scale = network_scale(image, scan.evaluated)
    strength = config.strength
    if strength == "auto":
        strength = choose_tv_strength(transform, sinogram, variance, scan.geometry).recommended
    own = tv(transform, sinogram, variance=variance, strength=strength, tolerance=_TV_TOLERANCE).image
    residual = (transform(own) - sinogram).cpu().double()
    return Start(
        sinogram=sinogram,
        variance=stated,
        noise_known=noise_known,
        image=image,
        scale=scale,
        strength=strength,
        tv_misfit=float((residual**2 / variance).mean()),
    )


def network_scale(reconstruction: Tensor, seen: Bools) -> float:
    """Choose 1/mm per unit of the network's output, with room above the largest plausible attenuation.

    A sigmoid cannot exceed 1, so whatever is denser than the scale would be lost. It comes from the data
    alone: what a scan says of its object is often true of its soft parts only. TV takes contrast from dense
    parts that are small, hence the room; where many pixels share the largest value it takes little, and a
    plateau is fitted best where the output saturates.

    Args:
        reconstruction: a total-variation image, whose largest values are no noise, (rows, columns), 1/mm.
        seen: pixels in the field of view; what is outside can take any value.
    """
    values = reconstruction.cpu().numpy()[seen]
    largest = float(values.max())
    if largest <= 0:
        raise ScanError("the sinogram holds no object: its reconstruction is nowhere positive")
    plateau = float(np.mean(values > _TOP * largest)) >= _PLATEAU
    return (_LITTLE_ROOM if plateau else _ROOM) * largest
