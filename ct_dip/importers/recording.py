"""`Recording`: what a file of others holds; `Readings`: a part of it; `Format`: how to get there."""

import dataclasses
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.data.noise import NoiseModel
from ct_dip.errors import ScanError
from ct_dip.geometry import FanBeam, Geometry, Volume
from ct_dip.importers.content import Content
from ct_dip.importers.options import Options, spelled
from ct_dip.preprocess.consistency import angles_go_round
from ct_dip.scanners import view_angles

_FAN = {
    "source_origin": "distance from the source to the axis",
    "origin_detector": "distance from the axis to the detector",
    "detector_pitch": "width of a detector column",
}

_FEWEST_VIEWS = 4  # of a full turn and the view that repeats its first
_SAME_ANGLE = 0.02  # of a step between views


class MissingError(ScanError):
    """A file does not say something that is needed; the message names the option that gives it."""


@dataclass(frozen=True, kw_only=True)
class Readings:
    """Some rows of the detector.

    Args:
        data: (views, rows, columns).
        flats, darks: with the light on and no object, and without light, (repetitions, rows, columns).
        air: columns at either end of the detector that see air in every view.
        names: of data, flats and darks, for messages.
    """

    data: Floats
    flats: Floats | None = None
    darks: Floats | None = None
    air: int = 0
    names: tuple[str, str, str] = ("sinogram", "flat", "dark")

    def row(self, index: int) -> "Readings":
        """One of the rows: (views, columns) and (repetitions, columns)."""
        flats, darks = (None if values is None else values[:, index] for values in (self.flats, self.darks))
        return dataclasses.replace(self, data=self.data[:, index], flats=flats, darks=darks)


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What a file holds, before anything is computed from it; ``None`` where it does not say.

    Args:
        shape: (views, rows, columns).
        read: gives the rows from a first to before a last one; nothing else is read from the disk.
        counts: the readings are intensities; line integrals otherwise.
        angles: of the views, rad, (views,).
        detector_pitch, source_origin, origin_detector, detector_offset: mm, see `ct_dip.geometry`; a fan beam
            has both distances, a parallel beam has none.
        center_of_rotation: mm; if ``None``, the axis or the detector's offset is searched in the data.
        noise: what the file states of it.
        source: where it comes from, in words.
        steps: what was done to the readings already.
        volume: the grid that the file has images on; it is used unless the user asks for another.
        truth: gives the true image of a row on that grid, 1/mm, (rows, columns), of simulated data.
    """

    shape: tuple[int, int, int]
    read: Callable[[int, int], Readings]
    counts: bool
    source: str
    angles: Floats | None = None
    detector_pitch: float | None = None
    source_origin: float | None = None
    origin_detector: float | None = None
    detector_offset: float = 0.0
    center_of_rotation: float | None = None
    noise: NoiseModel | None = None
    steps: tuple[str, ...] = ()
    volume: Volume | None = None
    truth: Callable[[int], Floats | None] | None = None

    @property
    def is_fan(self) -> bool:
        """Whether at least one of the distances of a fan beam is known."""
        return self.source_origin is not None or self.origin_detector is not None

    def with_options(self, options: Options) -> "Recording":
        """Replace what the file says by what the user says."""
        names = ("detector_pitch", "source_origin", "origin_detector", "detector_offset")
        changes = {name: value for name in names if (value := getattr(options, name)) is not None}
        views, _, columns = self.shape
        if options.arc is not None:
            changes["angles"] = view_angles(views, options.arc)
        if options.detector_offset is not None and self.center_of_rotation is None:
            changes["center_of_rotation"] = 0.0  # the user has measured it: it is not searched
        changed = dataclasses.replace(self, **changes)
        if options.center is None:
            return changed
        if not 0 <= options.center <= columns - 1:
            raise ScanError(f"--center {options.center:g} is outside of the columns, 0…{columns - 1}")
        return dataclasses.replace(changed, center_of_rotation=changed.axis_at(options.center))

    def without_repeated_view(self) -> "Recording":
        """Drop a last view that closes a full turn: it repeats the first, which would count twice."""
        angles = self.angles
        if angles is None or len(angles) < _FEWEST_VIEWS or not np.isfinite(angles).all():
            return self
        views = len(angles) - 1
        step, beyond = 2 * math.pi / views, math.remainder(angles[-1] - angles[0], 2 * math.pi)
        if abs(beyond) > _SAME_ANGLE * step or not angles_go_round(angles[:views]):
            return self

        def read(first: int, last: int) -> Readings:
            readings = self.read(first, last)
            return dataclasses.replace(readings, data=readings.data[:views])

        return dataclasses.replace(
            self,
            shape=(views, *self.shape[1:]),
            angles=angles[:views],
            read=read,
            steps=(*self.steps, f"view {views} dropped: it repeats view 0 after a full turn"),
        )

    def axis_at(self, column: float) -> float:
        """Return the centre of rotation, mm, of an axis whose shadow falls on a column."""
        position = (column - (self.shape[2] - 1) / 2) * (self.detector_pitch or 1.0) + self.detector_offset
        if self.source_origin is None or self.origin_detector is None:
            return position
        return position * self.source_origin / (self.source_origin + self.origin_detector)

    def missing(self, known: tuple[str, ...]) -> list[str]:
        """Return what is needed and not known, one sentence each with the option that gives it.

        Args:
            known: options that the format reads.
        """
        wanted = []
        if self.angles is None:
            names = ", or --angles NAME" if "angles" in known else ""
            wanted.append(
                "the angles of the views are not stated: give --arc DEGREES, over which they are evenly "
                f"spread (negative if clockwise){names}"
            )
        for name, what in _FAN.items():
            if self.is_fan and getattr(self, name) is None:
                wanted.append(f"a fan beam needs the {what}: give {spelled(name)} MM")
        return wanted


def fields_of_geometry(geometry: Geometry) -> dict[str, Any]:
    """Return what a geometry says, as arguments of `Recording`."""
    names = ("angles", "detector_pitch", "detector_offset", "center_of_rotation", "volume")
    fan = ("source_origin", "origin_detector") if isinstance(geometry, FanBeam) else ()
    return {name: getattr(geometry, name) for name in (*names, *fan)}


@dataclass(frozen=True, kw_only=True)
class Format:
    """A kind of file: one module of `ct_dip.importers.formats`.

    Args:
        name: that ``--format`` takes.
        about: what it is, in a few words.
        options: of `Options`, those that it reads; others are refused.
        recognises: whether a file or folder is one, by what is in it.
        open: gives the recording while the file is open; takes the file and the user's options.
    """

    name: str
    about: str
    options: tuple[str, ...]
    recognises: Callable[[Content], bool]
    open: Callable[[Path, Options], AbstractContextManager[Recording]]
