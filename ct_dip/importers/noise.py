"""The noise model of an imported scan, and what its views say of it.

The first that is there counts: what the user states, what the file states, the spread of readings in air, and
for counts what the views themselves say (`ct_dip.preprocess.noise_level`). All views are there at an import,
also those that are not kept, so that noise is told from the object better here than ever after.

The noise of line integrals is left open, for a reconstruction to estimate with what the pixel grid cannot
show; the level by the views is told. Photon weights of them, which trust the rays that miss the object, lost
0.3 to 2.0 dB of TV on three HTC scans (64², 30 views).
"""

import math
from dataclasses import dataclass

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.data.noise import NoiseModel, PhotonNoise, WhiteNoise
from ct_dip.data.plausibility import refuse_impossible
from ct_dip.errors import ScanError
from ct_dip.geometry import Geometry
from ct_dip.importers.options import Options
from ct_dip.preprocess.noise_level import NoiseEstimate, estimate_noise

_RESOLUTION = 1e-6  # of the largest line integral, in float32: less is no noise


@dataclass(frozen=True, kw_only=True)
class FoundNoise:
    """A noise model, or ``None``, with how it was found and what was noticed."""

    model: NoiseModel | None
    steps: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def stated_noise(options: Options) -> NoiseModel | None:
    """Return the noise of single detectors that the user states."""
    if options.noise_std is not None:
        return WhiteNoise(std=options.noise_std)
    return None if options.photons is None else PhotonNoise(photons=options.photons)


def find_noise(
    sinogram: Floats,
    geometry: Geometry,
    *,
    choice: str,
    counts: bool,
    stated: NoiseModel | None,
    air: NoiseModel | None,
) -> FoundNoise:
    """Choose a model and compare it with the views.

    Args:
        choice: ``auto``, ``none``, or ``white`` or ``photons`` by the views, whatever else there is.
        counts: the line integrals are of counts.
        stated, air: models of these detectors.

    Raises:
        ScanError: the views are asked, and cannot tell.
    """
    known = None if choice != "auto" else stated or air
    source = "stated" if stated else "measured in air"
    words = f"noise {source}: {_short(known)}" if known else ""
    try:
        refuse_impossible(sinogram)
        found = estimate_noise(sinogram, geometry)
    except ScanError as error:
        if choice in ("white", "photons"):
            raise ScanError(f"--noise {choice}: {error}; use --noise auto or none") from error
        return FoundNoise(model=known, steps=(words,) if words else ())
    clear = found.std.value > _RESOLUTION * float(np.abs(sinogram).max())
    model = known
    if known is not None and clear:
        words += f"; by the views, {_level(found, known)}"
    elif choice != "none" and clear:
        photons = choice == "photons" or (choice == "auto" and counts and found.like_photons is not False)
        level = found.photons if photons else found.std
        shown = PhotonNoise(photons=level.value) if photons else WhiteNoise(std=level.value)
        if counts or choice != "auto":
            model, words = shown, f"noise estimated from the views: {_level(found, shown)}"
        else:
            words = f"noise left open; by the views, {_level(found, shown)}"
    first = found.correlation[0]
    if words and clear:
        words += f"; neighbouring detectors correlate by {first}"
    warnings = (_shared_noise(found),) if choice != "none" and clear and found.correlated else ()
    return FoundNoise(model=model, steps=(words,) if words else (), warnings=warnings)


def _short(model: NoiseModel) -> str:
    if isinstance(model, PhotonNoise):
        return f"{model.photons:.3g} photons per bin"
    return f"white, {model.std:.3g}"


def _level(found: NoiseEstimate, model: NoiseModel) -> str:
    """Return the level that the views show, in the terms of a model."""
    if isinstance(model, PhotonNoise):
        share = found.photons.standard_error / found.photons.value
        return f"{found.photons.value:.3g} ± {share:.1%} photons per bin"
    share = found.std.standard_error / found.std.value
    return f"white, {found.std.value:.3g} ± {share:.1%}"


def _shared_noise(found: NoiseEstimate) -> str:
    widened = math.sqrt(1 + 2 * sum(max(one.value, 0.0) for one in found.correlation))
    return (
        f"Neighbouring detectors share noise: they correlate by {found.correlation[0]}. Error bars take rays "
        "to be independent; those of means over several pixels may be too narrow by up to "
        f"{widened:.2g} times. Binning (--bin) reduces this correlation."
    )
