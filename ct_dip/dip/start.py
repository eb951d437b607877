"""The start of a fit: total variation of the scan, with the scale, strength and misfit taken from it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ct_dip.arrays import Bools, Floats
from ct_dip.classical.tv import DEFAULT_STRENGTH, TvSolver
from ct_dip.classical.tv_strength import choose_tv_strengths
from ct_dip.config import Strength
from ct_dip.data.scan import Scan
from ct_dip.dip.config import ResolvedDipConfig
from ct_dip.dip.objective import misfit, precision_of
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
        tv_misfit: of plain TV of that strength, by the fit's data term.
    """

    sinogram: Tensor
    variance: Floats
    noise_known: bool
    image: Tensor
    scale: float
    strength: float
    tv_misfit: float


def make_starts(
    scans: Sequence[Scan],
    config: ResolvedDipConfig,
    transform: LinearMap,
    device: torch.device,
    strengths: Sequence[Strength] | None = None,
) -> list[Start]:
    """Reconstruct scans of one geometry by total variation, all of them together.

    Args:
        strengths: one per scan, in place of the configuration's.

    Raises:
        ScanError: there is nothing in one of them.
    """
    sinograms = torch.stack([torch.as_tensor(scan.sinogram.copy(), device=device) for scan in scans])
    for sinogram in sinograms:
        if float(sinogram.max()) == float(sinogram.min()):
            raise ScanError(
                f"the sinogram is {float(sinogram.max()):g} everywhere: there is nothing to reconstruct"
            )
    stated = [scan.variance_or_estimate() for scan in scans]
    variances = torch.stack([torch.as_tensor(variance, dtype=torch.float64) for variance, _ in stated])
    on_device = variances.to(device)

    def reconstruct(strength: float | Tensor) -> Tensor:
        solver = TvSolver(transform, sinograms, on_device)
        solver.solve(strength, tolerance=_TV_TOLERANCE)
        return solver.images

    images = reconstruct(DEFAULT_STRENGTH)
    scales = [network_scale(image, scan.evaluated) for image, scan in zip(images, scans, strict=True)]
    chosen = list(strengths or [config.strength] * len(scans))
    if unknown := [i for i, strength in enumerate(chosen) if strength == "auto"]:
        choices = choose_tv_strengths(transform, sinograms[unknown], on_device[unknown], scans[0].geometry)
        for i, choice in zip(unknown, choices, strict=True):
            chosen[i] = choice.recommended
    own = reconstruct(sinograms.new_tensor(chosen)[:, None, None])
    projected = transform(own).cpu().double()
    misfits = []
    for scan, (variance, _), shown, y in zip(scans, stated, projected, sinograms.cpu().double(), strict=True):
        precision, photons = precision_of(scan, variance, config.data_term)
        target = y, torch.as_tensor(precision), shown.new_tensor(photons)
        misfits.append(misfit(shown, *target, config.data_term))
    return [
        Start(
            sinogram=sinograms[i],
            variance=stated[i][0],
            noise_known=stated[i][1],
            image=images[i],
            scale=scales[i],
            strength=float(chosen[i]),
            tv_misfit=float(misfits[i]),
        )
        for i in range(len(scans))
    ]


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
