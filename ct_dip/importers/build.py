"""Scans of a recording: its line integrals, geometry and grid, one scan per row of the detector.

All rows of a detector see the object with the same geometry, so that their scans share one ray transform.
"""

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ct_dip import memory
from ct_dip.data.plain_hdf5 import check_size
from ct_dip.data.plausibility import refuse_impossible
from ct_dip.data.scan import Scan
from ct_dip.errors import ScanError
from ct_dip.geometry import FanBeam, Geometry, ParallelBeam
from ct_dip.importers.grid import ANY_VOLUME, check_bin, on_grid
from ct_dip.importers.noise import find_noise, stated_noise
from ct_dip.importers.options import Options
from ct_dip.importers.preprocess import integrals_of
from ct_dip.importers.recording import MissingError, Readings, Recording
from ct_dip.importers.repairs import make_repair
from ct_dip.preprocess.doubts import doubts, find_slip
from ct_dip.preprocess.offset import axis_column, find_detector_offset

_BLOCK_SHARE = 8  # of the memory budget, one over, for the rows that are read at once


def build_scans(
    recording: Recording,
    rows: range,
    options: Options,
    *,
    bin: int = 1,
    size: int | None = None,
    width: float | None = None,
    offset_error: float | None = None,
) -> Iterator[tuple[int, Scan]]:
    """Yield rows and their scans, read from the disk a few at a time.

    Args:
        rows: which ones; the rotation axis is searched in the middle one of them.
        options: repairs and noise, those that are `ct_dip.importers.options.SHARED`.
        bin: neighbouring detectors whose counts are averaged.
        size, width: of the grid, see `ct_dip.importers.grid.on_grid`.
        offset_error: of the detector offset or the axis's shadow, mm; by default that of the search, or 0.

    Raises:
        ScanError: a part is missing or cannot be.
    """
    views, _, columns = recording.shape
    check_bin(columns, bin)
    check_size("a row of the detector", (views, columns), np.float64)
    axis = with_axis(recording, rows[len(rows) // 2], options)
    recording = axis.recording
    single = _geometry(recording)
    repair, geometry = make_repair(options, single), single.bin_detectors(bin)
    stated = stated_noise(options) or recording.noise
    stated = None if stated is None else stated.binned(bin)
    own_grid = recording.volume is not None and size is None and width is None
    are_slices = recording.shape[1] > 1 and recording.volume is None  # not items of a dataset
    if own_grid and recording.volume is not None:
        geometry = geometry.with_volume(recording.volume)
    else:
        geometry = on_grid(geometry, size=size, width=width)
    for block in _blocks(rows, views * columns * 8):
        readings = recording.read(block.start, block.stop)
        _refuse_second_air(readings, options)
        for row in block:
            with _named_row(row, several=len(rows) > 1):
                integrals = integrals_of(
                    readings.row(row - block.start), counts=recording.counts, bin=bin, repair=repair
                )
                scan = Scan(
                    sinogram=integrals.sinogram,
                    geometry=geometry,
                    offset_error=axis.error if offset_error is None else offset_error,
                    detector_row=row if are_slices else None,
                    row_spacing=single.origin_pitch if are_slices else None,
                    ground_truth=recording.truth(row) if own_grid and recording.truth is not None else None,
                    source=_source(recording, row),
                )
                noise = find_noise(
                    np.asarray(scan.sinogram, dtype=np.float64),
                    geometry,
                    choice=options.noise,
                    counts=recording.counts,
                    stated=stated,
                    air=integrals.noise,
                )
                scan = dataclasses.replace(
                    scan,
                    noise=noise.model,
                    steps=(
                        *recording.steps,
                        *integrals.steps,
                        *axis.steps,
                        *_magnified(geometry),
                        *(_distance(single) if are_slices else ()),
                        *noise.steps,
                    ),
                    warnings=(
                        *integrals.warnings,
                        *axis.warnings,
                        *_tilt(recording, geometry, row),
                        *noise.warnings,
                    ),
                )
                scan = dataclasses.replace(scan, warnings=(*scan.warnings, *doubts(scan, bin)))
            yield row, scan


@contextlib.contextmanager
def _named_row(row: int, *, several: bool) -> Iterator[None]:
    """Say which of several rows an error is about."""
    try:
        yield
    except ScanError as error:
        if not several:
            raise
        raise type(error)(f"row {row}: {error}") from error


def pick_rows(wanted: str | None, rows: int) -> range:
    """Rows by ``12``, ``10:20`` (the last one not included) or ``all``; the only one if nothing is said.

    Raises:
        ScanError: there are no such rows, or several to choose from.
    """
    if wanted is None:
        if rows > 1:
            raise MissingError(
                f"there are {rows} rows; choose one with --row 0…{rows - 1} ({rows // 2} is in the middle), "
                f"or several with --rows 0:{rows} or --rows all"
            )
        return range(1)
    if wanted == "all":
        return range(rows)
    first, colon, last = wanted.partition(":")
    try:
        start = int(first or 0)
        stop = (int(last) if last else rows) if colon else start + 1
    except ValueError as error:
        raise ScanError(f"--rows {wanted!r} is not understood; write 12, 10:20 or all") from error
    if not 0 <= start < stop <= rows:
        option = "--rows" if colon else "--row"
        raise ScanError(f"{option} {wanted} is outside of the rows, 0…{rows - 1}")
    return range(start, stop)


@dataclass(frozen=True, kw_only=True)
class FoundAxis:
    """A recording with its rotation axis, and how it was found.

    Args:
        error: standard error of the axis's shadow on the detector, mm; 0 where the axis was not searched or
            not found.
    """

    recording: Recording
    error: float = 0.0
    steps: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def with_axis(recording: Recording, row: int, options: Options) -> FoundAxis:
    """Find the rotation axis, or the detector offset of a fan beam, where it is not stated.

    Raises:
        ScanError: a parallel beam's views do not determine it; the axis of a fan beam is then taken to be in
            the middle.
    """
    if recording.center_of_rotation is not None:
        return FoundAxis(recording=recording)
    readings = recording.read(row, row + 1)
    _refuse_second_air(readings, options)
    repair = make_repair(options, None)
    integrals = integrals_of(readings.row(0), counts=recording.counts, repair=repair)
    refuse_impossible(integrals.sinogram)  # of which no axis can be found
    geometry = _geometry(recording)
    try:
        offset = find_detector_offset(integrals.sinogram, geometry)
    except ScanError as error:
        reason = str(error).removesuffix("; state it")
        if not recording.is_fan:
            slip = find_slip(integrals.sinogram, geometry)
            if slip:
                raise ScanError(f"{reason}: {slip} If that is not it, give --center COLUMN") from error
            raise ScanError(f"{reason}; give --center COLUMN") from error
        return FoundAxis(
            recording=dataclasses.replace(recording, center_of_rotation=0.0),
            warnings=(
                "The detector offset could not be found and counts as exactly "
                f"{recording.detector_offset:g} mm: {reason}. State --detector-offset MM and --offset-error "
                "MM.",
            ),
        )
    if recording.is_fan:
        found = dataclasses.replace(recording, detector_offset=offset.value, center_of_rotation=0.0)
        steps = (f"detector offset found: {offset} mm",)
    else:
        column = axis_column(offset, geometry)
        found = dataclasses.replace(recording, center_of_rotation=recording.axis_at(column.value))
        steps = (f"rotation axis found at column {column} of row {row}",)
    return FoundAxis(recording=found, error=offset.standard_error, steps=steps)


def _refuse_second_air(readings: Readings, options: Options) -> None:
    if options.normalise_air and readings.air:
        raise ScanError(
            f"--normalise-air has no effect together with the air of {readings.air} columns at either end, "
            "which every view is divided by already; drop it"
        )


def _geometry(recording: Recording) -> Geometry:
    lengths = {
        "detector_pitch": 1.0 if recording.detector_pitch is None else recording.detector_pitch,
        "detector_offset": recording.detector_offset,
        "center_of_rotation": recording.center_of_rotation or 0.0,
    }
    assert recording.angles is not None
    angles, detectors = recording.angles, recording.shape[2]
    if recording.source_origin is None or recording.origin_detector is None:
        return ParallelBeam(volume=ANY_VOLUME, angles=angles, detectors=detectors, **lengths)
    return FanBeam(
        volume=ANY_VOLUME,
        angles=angles,
        detectors=detectors,
        source_origin=recording.source_origin,
        origin_detector=recording.origin_detector,
        **lengths,
    )


def _source(recording: Recording, row: int) -> str:
    """Return the recording's own words, with what is special before a licence."""
    words, semicolon, licence = recording.source.partition(";")
    if recording.shape[1] > 1:
        words += f", row {row}"
    if recording.detector_pitch is None:
        words += ", pitch not stated: 1 mm stands for a column"
    return words + semicolon + licence


def _distance(single: Geometry) -> tuple[str, ...]:
    return (f"rows are {single.origin_pitch:.4g} mm apart at the rotation axis if the pixels are square",)


def _magnified(geometry: Geometry) -> tuple[str, ...]:
    """What a user can compare with the object: no data show that the distances of a fan are exchanged."""
    if not isinstance(geometry, FanBeam):
        return ()
    width = geometry.volume.size[0]
    return (f"the fan beam magnifies {geometry.magnification:.4g} times; the image is {width:.4g} mm wide",)


def _tilt(recording: Recording, geometry: Geometry, row: int) -> tuple[str, ...]:
    """A warning if rays of a cone beam leave the slice; pixels of the detector are taken to be square."""
    if not isinstance(geometry, FanBeam):
        return ()
    pitch, length = recording.detector_pitch or 1.0, geometry.source_origin + geometry.origin_detector
    height = abs(row - (recording.shape[1] - 1) / 2) * pitch
    crossed = height / length * 2 * geometry.field_of_view * geometry.magnification / pitch
    if crossed <= 1:
        return ()
    return (
        f"Row {row} is {height:.3g} mm off the middle of the detector: rays of the cone beam are tilted by "
        f"{math.degrees(math.atan(height / length)):.2g}° and cross {crossed:.1f} rows within the field of "
        "view, which a 2D slice ignores.",
    )


def _blocks(rows: range, row_bytes: int) -> Iterator[range]:
    """Yield the rows, as many at a time as a part of the memory budget holds."""
    count = max(1, memory.memory_budget() // (_BLOCK_SHARE * row_bytes))
    for first in range(rows.start, rows.stop, count):
        yield range(first, min(first + count, rows.stop))
