"""Repairs of line integrals that a user asks for, with a line of words for each.

Single readings first, then the air of every view: neither needs the rotation axis, which is found after them.
Then single detectors, and the beam hardening of what is left. All of it is done before detectors are binned:
a bad one would hide among its neighbours.
"""

from collections.abc import Callable

from ct_dip.arrays import Floats
from ct_dip.errors import ScanError
from ct_dip.geometry import Geometry
from ct_dip.importers.options import Options
from ct_dip.preprocess.air import normalise_air
from ct_dip.preprocess.beam_hardening import correct_hardening
from ct_dip.preprocess.outliers import remove_outliers
from ct_dip.preprocess.stripes import remove_stripes

Repair = Callable[[Floats], tuple[Floats, tuple[str, ...]]]


def make_repair(options: Options, geometry: Geometry | None) -> Repair | None:
    """Return what repairs line integrals (views, detectors) and says how; ``None`` if nothing is asked for.

    Args:
        geometry: of single detectors; without it only that is done which needs none.
    """
    chosen: list[Callable[[Floats], tuple[Floats, str]]] = []
    if options.remove_outliers:
        chosen.append(remove_outliers)
    if options.normalise_air:
        chosen.append(_normalise_air)
    if geometry is not None and options.remove_stripes:
        chosen.append(lambda sinogram: remove_stripes(sinogram, geometry))
    if geometry is not None and options.linearise:
        chosen.append(lambda sinogram: correct_hardening(sinogram, geometry))
    if not chosen:
        return None

    def repair(sinogram: Floats) -> tuple[Floats, tuple[str, ...]]:
        steps = []
        for change in chosen:
            sinogram, words = change(sinogram)
            steps.append(words)
        return sinogram, tuple(steps)

    return repair


def _normalise_air(sinogram: Floats) -> tuple[Floats, str]:
    try:
        return normalise_air(sinogram)
    except ScanError as error:
        raise ScanError(f"--normalise-air: {error}") from error
