"""What a file of others holds, in a few lines: for ``ct-dip info``."""

import math
from pathlib import Path

import numpy as np

from ct_dip.importers.build import pick_rows
from ct_dip.importers.content import look_into
from ct_dip.importers.formats import find_format
from ct_dip.importers.intensity import count_saturated
from ct_dip.importers.options import Options
from ct_dip.importers.preprocess import integrals_of
from ct_dip.importers.recording import MissingError, Readings, Recording
from ct_dip.importers.run import open_recording


def describe(path: str | Path, format: str = "auto") -> dict[str, str]:
    """Format, shape, geometry, the readings of the middle row, and what an import would have to be told.

    Raises:
        ScanError: no format knows it, or it is damaged.
    """
    kind = find_format(look_into(path)) if format == "auto" else None
    name = kind.name if kind else format
    lines = {"format": f"{name}: {kind.about}" if kind else name}
    try:
        with open_recording(path, name, Options()) as (kind, recording):
            middle = recording.shape[1] // 2
            readings = recording.read(middle, middle + 1).row(0)
            lines |= _geometry(recording) | _readings(recording, readings)
            missing = [*recording.missing(kind.options), *_missing(recording, readings)]
    except MissingError as error:
        missing = [str(error).removeprefix(f"{path}: ")]
    lines["to import"] = "; ".join(missing) or "ct-dip import FILE --out SCAN.h5 needs no further options"
    return lines


def _geometry(recording: Recording) -> dict[str, str]:
    views, rows, columns = recording.shape
    beam = "parallel beam"
    if recording.is_fan:
        source, detector = _mm(recording.source_origin), _mm(recording.origin_detector)
        beam = f"fan beam, {source} to the axis, {detector} to the detector"
    axis = "not stated: it will be found"
    if recording.is_fan:
        axis = "not stated: the detector offset will be found if the views go round evenly, else 0"
    if recording.center_of_rotation is not None:
        axis = f"{recording.center_of_rotation:g} mm from the central ray"
        if not recording.is_fan:
            away = recording.center_of_rotation - recording.detector_offset
            axis = f"{away:g} mm from the detector's centre"
    angles = "angles not stated"
    if recording.angles is not None:
        low, high = np.rad2deg([recording.angles.min(), recording.angles.max()])
        angles = f"from {low:.4g}° to {high:.4g}°"
    pitch = "not stated: a column counts as 1 mm, unless --detector-pitch MM is given"
    if recording.detector_pitch is not None:
        pitch = f"{recording.detector_pitch:g} mm"
    return {
        "scan of": recording.source or "–",
        "geometry": beam,
        "views": f"{views}, {angles}",
        "detector": f"{rows} row{'s' * (rows > 1)} × {columns} columns",
        "detector pitch": pitch,
        "rotation axis": axis,
    }


def _readings(recording: Recording, readings: Readings) -> dict[str, str]:
    name = "counts" if recording.counts else "line integrals"
    data = np.asarray(readings.data)
    lines = {name: f"{data.min():.5g} to {data.max():.5g} in row {recording.shape[1] // 2}, {data.dtype}"}
    if recording.counts:
        for what, frames in (("flats", readings.flats), ("darks", readings.darks)):
            lines[what] = "none" if frames is None else f"{len(frames)}, mean {np.mean(frames):.5g}"
        zero, saturated = int(np.count_nonzero(data <= 0)), count_saturated(data)
        lines["zero, saturated"] = f"{zero}, {saturated} of {data.size} counts"
    elif math.isfinite(data.max()) and data.max() > 100:
        lines[name] += "; counts rather than line integrals? Then give --counts"
    return lines


def _missing(recording: Recording, readings: Readings) -> list[str]:
    """Return what rows and air are lacking."""
    problems = []
    try:
        pick_rows(None, recording.shape[1])
    except MissingError as error:
        problems.append(str(error))
    try:
        if recording.counts and readings.flats is None:
            integrals_of(readings, counts=True)
    except MissingError as error:
        problems.append(str(error))
    return problems


def _mm(length: float | None) -> str:
    return "? mm" if length is None else f"{length:g} mm"
