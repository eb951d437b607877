"""From the readings of one detector row to line integrals, with a record of every step.

Counts first: the dark current is subtracted, neighbouring detectors are averaged, and only then the logarithm
of their share of the air is taken. The mean of logarithms would be another number, larger at every edge.
Repairs (`ct_dip.importers.repairs`) are made before detectors are averaged.
"""

from dataclasses import dataclass

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.data.noise import PhotonNoise, mean_intensity
from ct_dip.errors import ScanError
from ct_dip.importers.grid import bin_columns, check_bin
from ct_dip.importers.intensity import (
    check_air,
    check_readings,
    count_saturated,
    flat_noise,
    line_integrals,
    photon_noise,
)
from ct_dip.importers.recording import MissingError, Readings
from ct_dip.importers.repairs import Repair


@dataclass(frozen=True, kw_only=True)
class Integrals:
    """Line integrals (views, detectors), what air says about their noise, and how they were made."""

    sinogram: Floats
    noise: PhotonNoise | None
    steps: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def integrals_of(
    readings: Readings, *, counts: bool, bin: int = 1, repair: Repair | None = None
) -> Integrals:
    """Return line integrals of one row.

    Args:
        readings: of one row, as `Readings.row` gives them.
        counts: they are intensities; line integrals otherwise.
        bin: neighbouring detectors whose counts are averaged.
        repair: of line integrals of single detectors, before these are averaged.

    Raises:
        ScanError: with the reading that cannot be, or the option that gives what is missing.
    """
    check_bin(readings.data.shape[1], bin)
    binned = (f"counts of {bin} neighbouring detectors averaged",) if bin > 1 else ()
    if counts:
        return _from_counts(readings, bin, binned, repair)
    if readings.flats is not None or readings.darks is not None or readings.air:
        raise ScanError("flats, darks and air belong to readings of the detector; import them with --counts")
    sinogram, repairs = (readings.data, ()) if repair is None else repair(readings.data)
    if bin > 1:
        views, columns = sinogram.shape
        sinogram = mean_intensity(np.asarray(sinogram, dtype=np.float64).reshape(views, columns // bin, bin))
    return Integrals(sinogram=sinogram, noise=None, steps=(*repairs, *binned))


def _from_counts(readings: Readings, bin: int, binned: tuple[str, ...], repair: Repair | None) -> Integrals:
    if readings.flats is not None and readings.air:
        raise ScanError(f"--air {readings.air} has no effect together with {readings.names[1]}; drop one")
    data, flats, darks = (
        None if values is None else check_readings(values, name)
        for values, name in zip((readings.data, readings.flats, readings.darks), readings.names, strict=True)
    )
    assert data is not None
    steps, warnings = [], []
    brighter = (
        flats is not None and len(flats) > 1 and flats.max() > data.max()
    )  # the detector does read more
    if not brighter and (saturated := count_saturated(data)):
        warnings.append(
            f"{saturated} of {data.size} readings are {data.max():g}, where the detector saturates: "
            "line integrals there are too large."
        )
    dark: Floats | float = 0.0
    if darks is not None:
        dark = darks.mean(axis=0)
        steps.append(f"dark current subtracted, mean of {_count(len(darks), 'frame')}")
    light, lit = data - dark, None
    if flats is None:
        steps.append(f"divided by the air of each view, median of {readings.air} columns at either end")
    else:
        if len(flats) > 1:
            check_air(flats, readings.names[1])
        lit = _lit(flats, dark, data.shape[1])
        steps.append(f"divided by the air, mean of {_count(len(flats), 'flat frame')}")
    steps.append("negative logarithm taken")
    air, noise = _air(readings, light, lit, bin)
    sinogram, starved = line_integrals(bin_columns(light, bin), air)
    if repair is None:
        steps[-2:-2] = binned
    else:
        single, _ = _air(readings, light, lit, 1)
        repaired, repairs = repair(line_integrals(light, single)[0])
        sinogram = -np.log(bin_columns(single * np.exp(-repaired), bin) / air)
        steps += [*repairs, *binned]
    if starved:
        warnings.append(
            f"{starved} of {sinogram.size} rays have no light above the dark current; they count as dark as "
            "the darkest of the others, and may be darker."
        )
    return Integrals(sinogram=sinogram, noise=noise, steps=tuple(steps), warnings=tuple(warnings))


def _air(
    readings: Readings, light: Floats, lit: Floats | None, bin: int
) -> tuple[Floats, PhotonNoise | None]:
    """Return the air of bins, of a shape that broadcasts to (views, bins), and the noise there.

    Args:
        light: readings without the dark current, (views, columns).
        lit: flats without it, (repetitions, columns); without them, the ends of every view are the air.
    """
    if lit is None:
        return _air_at_the_ends(readings, light, bin)
    binned = bin_columns(lit, bin)
    return binned.mean(axis=0), flat_noise(binned)


def _lit(flats: Floats, dark: Floats | float, columns: int) -> Floats:
    """Flats without the dark current, (repetitions, columns)."""
    lit = np.broadcast_to(flats - dark, (len(flats), columns))
    mean = lit.mean(axis=0)
    if not mean.min() > 0:
        column = int(mean.argmin())
        raise ScanError(
            f"column {column} reads {mean[column]:g} above the dark current in air: a dead detector; "
            "interpolate it first, or choose another row"
        )
    return lit


def _air_at_the_ends(readings: Readings, light: Floats, bin: int) -> tuple[Floats, PhotonNoise | None]:
    """Air of every view by the detector's ends, (views, 1), as a tube drifts; and the noise there."""
    if not readings.air:
        raise MissingError(
            "the readings in air are not known: give --flat NAME or --flat NUMBER, or --air COLUMNS if so "
            "many at either end of the detector see air in every view"
        )
    columns = light.shape[1]
    if not 0 < 2 * readings.air < columns:
        raise ScanError(f"--air {readings.air} must be from 1 to less than half of {columns} columns")
    raw = np.concatenate([readings.data[:, : readings.air], readings.data[:, -readings.air :]], axis=1)
    check_air(raw, readings.names[0])
    counts, edge = bin_columns(light, bin), max(1, readings.air // bin)
    ends = np.concatenate([counts[:, :edge], counts[:, -edge:]], axis=1)
    air = np.median(ends, axis=1, keepdims=True)
    if not air.min() > 0:
        view = int(air.argmin())
        raise ScanError(
            f"{readings.names[0]}: view {view} reads {air[view, 0]:g} at the detector's ends, which should "
            "see air; drop that view"
        )
    return air, photon_noise(ends / air)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
