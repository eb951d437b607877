"""Where the pixels are and where the rays go: `Volume`, `ParallelBeam`, `FanBeam`.

Vocabulary: a *shape* is a count, a *size* is a length. Lengths are millimetres, angles radians.

The frame is ASTRA's. The rotation axis is the origin, x points right, y points up, and row 0 of an
image is its top. At view angle θ (counter-clockwise)::

    u = ( cos θ, sin θ)     along the detector, towards growing detector index
    v = (−sin θ, cos θ)     from the source to the detector

    detector bin j is centred at   (s_j − c) u + origin_detector v
    s_j = (j − (detectors − 1)/2) · detector_pitch + detector_offset
    the source of a fan is at      −c u − source_origin v

``c`` is ``center_of_rotation``: how far the rotation axis lies from the line through the source that
is perpendicular to the detector, along u. For a parallel beam only ``detector_offset − c`` matters;
for a fan the two are different things.
"""

import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ct_dip.arrays import Bools, Floats
from ct_dip.checks import check_angles, check_count, check_finite, check_positive
from ct_dip.errors import GeometryError

_FULL_TURN = 1.5 * math.pi  # views that span more than this are taken to go all the way round

ViewIndex = slice | Sequence[int] | NDArray[np.integer[Any]] | Bools


@dataclass(frozen=True)
class Volume:
    """The image grid: square pixels, centred on the rotation axis.

    Args:
        shape: (rows, columns).
        pixel_size: edge of a pixel, mm.
    """

    shape: tuple[int, int]
    pixel_size: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.shape, tuple | list) or len(self.shape) != 2:
            raise GeometryError(f"volume shape {self.shape} must be (rows, columns)")
        shape = tuple(check_count(n, "volume shape") for n in self.shape)
        object.__setattr__(self, "shape", shape)
        if np.ndim(self.pixel_size):
            raise GeometryError(
                f"pixel_size {self.pixel_size} must be one number: pixels are square, "
                "resample an image with anisotropic pixels first"
            )
        object.__setattr__(self, "pixel_size", check_positive(self.pixel_size, "pixel_size", "mm"))

    @property
    def size(self) -> tuple[float, float]:
        """(height, width) in mm."""
        return self.shape[0] * self.pixel_size, self.shape[1] * self.pixel_size

    @property
    def radius(self) -> float:
        """Radius of the circle around the whole grid, mm."""
        return math.hypot(*self.size) / 2

    @property
    def inner_radius(self) -> float:
        """Radius of the largest centred disk inside the grid, mm."""
        return min(self.size) / 2

    def __str__(self) -> str:
        return f"{self.shape[0]} × {self.shape[1]} pixels of {self.pixel_size:.4g} mm"

    def pixel_centers(self) -> tuple[Floats, Floats]:
        """x of every column and y of every row, mm; y falls with the row index."""
        rows, columns = self.shape
        x = (np.arange(columns) - (columns - 1) / 2) * self.pixel_size
        y = ((rows - 1) / 2 - np.arange(rows)) * self.pixel_size
        return x, y

    def refine(self, factor: int) -> "Volume":
        """The same square of space with ``factor`` × ``factor`` pixels in place of one."""
        factor = check_count(factor, "refinement factor")
        rows, columns = self.shape
        return Volume(shape=(rows * factor, columns * factor), pixel_size=self.pixel_size / factor)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Beam:
    """What both beams share: views, a flat detector, and a volume to look at."""

    volume: Volume
    angles: Floats  # any list of numbers is taken
    detectors: int
    detector_pitch: float = 1.0
    detector_offset: float = 0.0
    center_of_rotation: float = 0.0

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        if not isinstance(self.volume, Volume):
            raise GeometryError(f"volume must be a Volume, got {type(self.volume).__name__}")
        object.__setattr__(self, "angles", check_angles(self.angles))
        object.__setattr__(self, "detectors", check_count(self.detectors, "detectors"))
        pitch = check_positive(self.detector_pitch, "detector_pitch", "mm")
        object.__setattr__(self, "detector_pitch", pitch)
        for name in ("detector_offset", "center_of_rotation"):
            object.__setattr__(self, name, check_finite(getattr(self, name), name, "mm"))

    def _refuse_a_miss(self) -> None:
        low, high = self.reach
        if low > self.volume.radius or high < -self.volume.radius:
            raise GeometryError(
                f"the detector misses the object: its rays pass the rotation axis between {low:.4g} "
                f"and {high:.4g} mm, the volume ends at {self.volume.radius:.4g} mm; "
                "check detector_offset, center_of_rotation and detector_pitch (all mm)"
            )

    @property
    def views(self) -> int:
        """Number of views."""
        return len(self.angles)

    @property
    def domain_shape(self) -> tuple[int, int]:
        """(rows, columns) of the images."""
        return self.volume.shape

    @property
    def range_shape(self) -> tuple[int, int]:
        """(views, detectors) of the sinograms."""
        return self.views, self.detectors

    @property
    def detector_axes(self) -> Floats:
        """u of every view, (views, 2)."""
        return np.stack([np.cos(self.angles), np.sin(self.angles)], axis=1)

    @property
    def beam_axes(self) -> Floats:
        """v of every view, (views, 2)."""
        return np.stack([-np.sin(self.angles), np.cos(self.angles)], axis=1)

    @property
    def detector_positions(self) -> Floats:
        """s_j of every bin, mm, detector offset included, (detectors,)."""
        index = np.arange(self.detectors) - (self.detectors - 1) / 2
        return index * self.detector_pitch + self.detector_offset

    def axis_distances(self, positions: Floats) -> Floats:
        """Signed distance from the rotation axis of the rays to detector positions s, mm."""
        raise NotImplementedError

    @property
    def reach(self) -> tuple[float, float]:
        """Signed distances from the rotation axis of the rays to the detector's two ends, mm."""
        half = self.detectors * self.detector_pitch / 2
        ends = np.array([self.detector_offset - half, self.detector_offset + half])
        low, high = self.axis_distances(ends)
        return float(low), float(high)

    @property
    def field_of_view(self) -> float:
        """Radius of the largest centred disk that every view sees whole, mm; 0 if there is none."""
        low, high = self.reach
        return max(0.0, min(-low, high))

    @property
    def sees_one_side(self) -> bool:
        """Whether the detector reaches far beyond the axis on one side only, as in half-fan scans."""
        low, high = self.reach
        short, long = sorted((max(0.0, -low), max(0.0, high)))
        return short < 0.9 * min(long, self.volume.inner_radius)

    def field_of_view_mask(self) -> Bools:
        """Pixels whose centres lie in the field of view, (rows, columns); all where there is none.

        On a full turn a detector that is short on one side sees as far as its long side: opposite views
        complete each other.
        """
        radius = self.field_of_view
        if self.sees_one_side and float(np.ptp(self.angles)) > _FULL_TURN:
            radius = max(abs(end) for end in self.reach)
        x, y = self.volume.pixel_centers()
        inside = np.hypot(x, y[:, None]) <= radius
        return inside if inside.any() else np.ones(self.volume.shape, dtype=bool)

    @property
    def origin_pitch(self) -> float:
        """Distance of neighbouring rays where they pass the rotation axis, mm."""
        return self.detector_pitch

    def select_views(self, index: ViewIndex) -> Self:
        """The same scanner with some of the views: a slice, a list of indices or a mask."""
        if not isinstance(index, slice):
            index = np.asarray(index)
            if index.dtype.kind not in "iub" and index.size:
                raise GeometryError("views are selected by a slice, whole numbers or a mask")
            if index.dtype == bool:
                fits = index.shape == self.angles.shape and index.any()
            else:
                fits = index.size > 0 and -self.views <= index.min() and index.max() < self.views
            if not fits:
                raise GeometryError(f"view selection does not fit {self.views} views")
        return dataclasses.replace(self, angles=self.angles[index])

    def bin_detectors(self, factor: int) -> Self:
        """``factor`` neighbouring bins as one; the detector keeps its place and its width."""
        factor = check_count(factor, "binning factor")
        if self.detectors % factor:
            raise GeometryError(
                f"{self.detectors} detectors cannot be binned by {factor}; "
                f"choose a divisor of {self.detectors}"
            )
        return dataclasses.replace(
            self, detectors=self.detectors // factor, detector_pitch=self.detector_pitch * factor
        )

    def split_detectors(self, factor: int) -> Self:
        """Every bin as ``factor`` narrower ones: the inverse of `bin_detectors`."""
        factor = check_count(factor, "splitting factor")
        return dataclasses.replace(
            self, detectors=self.detectors * factor, detector_pitch=self.detector_pitch / factor
        )

    def with_volume(self, volume: Volume) -> Self:
        """The same rays through another grid."""
        return dataclasses.replace(self, volume=volume)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for files; `geometry_from_dict` reads them back exactly."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        volume = fields.pop("volume")
        fields["angles"] = self.angles.tolist()
        return {
            "kind": self.kind,
            "shape": list(volume.shape),
            "pixel_size": volume.pixel_size,
            **fields,
        }

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of everything that matters; equal exactly when the geometries are equal."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    def __repr__(self) -> str:
        low, high = math.degrees(self.angles.min()), math.degrees(self.angles.max())
        return (
            f"<{type(self).__name__}: {self.views} views from {low:.4g}° to {high:.4g}°, {self.detectors} "
            f"detectors of {self.detector_pitch:.4g} mm, {self.volume}>"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Beam) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ParallelBeam(_Beam):
    """Parallel rays along v, one per detector bin.

    Args:
        volume: the image grid.
        angles: view angles θ, rad; any list: limited, irregular, unsorted.
        detectors: number of bins.
        detector_pitch: distance of neighbouring bins, mm.
        detector_offset: position of the detector's centre along u, mm.
        center_of_rotation: position of the rotation axis along u, mm (see the module's frame).
    """

    kind: ClassVar[str] = "parallel"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._refuse_a_miss()

    def axis_distances(self, positions: Floats) -> Floats:
        """s − c."""
        return positions - self.center_of_rotation


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FanBeam(_Beam):
    """Rays from a point source to a flat detector.

    Args:
        source_origin: distance from the source to the rotation axis, mm.
        origin_detector: distance from the rotation axis to the detector, mm; 0 for a virtual
            detector through the axis.
        volume, angles, detectors, detector_pitch, detector_offset, center_of_rotation: as for
            `ParallelBeam`; pitch and offset are measured on the detector.
    """

    source_origin: float
    origin_detector: float

    kind: ClassVar[str] = "fan"

    def __post_init__(self) -> None:
        super().__post_init__()
        source = check_positive(self.source_origin, "source_origin", "mm")
        object.__setattr__(self, "source_origin", source)
        detector = check_finite(self.origin_detector, "origin_detector", "mm")
        if detector < 0:
            raise GeometryError(
                f"origin_detector {detector:g} mm is negative; it is a distance (0: virtual detector)"
            )
        object.__setattr__(self, "origin_detector", detector)
        if math.hypot(source, self.center_of_rotation) <= self.volume.radius:
            raise GeometryError(
                f"source_origin {source:g} mm puts the source inside the volume, which reaches "
                f"{self.volume.radius:.4g} mm from the axis; check units (mm) and pixel_size"
            )
        self._refuse_a_miss()

    @property
    def magnification(self) -> float:
        """Size on the detector over size at the rotation axis."""
        return (self.source_origin + self.origin_detector) / self.source_origin

    @property
    def origin_pitch(self) -> float:
        """Distance of neighbouring rays where they pass the rotation axis, mm."""
        return self.detector_pitch / self.magnification

    def axis_distances(self, positions: Floats) -> Floats:
        """(s/magnification − c) cos γ, where tan γ = s / source-detector distance."""
        length = self.source_origin + self.origin_detector
        cosine = length / np.hypot(length, positions)
        return (positions / self.magnification - self.center_of_rotation) * cosine


Geometry = ParallelBeam | FanBeam


def geometry_from_dict(fields: dict[str, Any]) -> Geometry:
    """Read back what ``to_dict`` gave.

    Raises:
        GeometryError: a field is missing, unknown or impossible.
    """
    fields = dict(fields)
    kinds: dict[str, type[ParallelBeam] | type[FanBeam]] = {"parallel": ParallelBeam, "fan": FanBeam}
    kind = fields.pop("kind", None)
    if not isinstance(kind, str) or kind not in kinds:
        raise GeometryError(f"geometry kind {kind!r} is not known; expected one of {list(kinds)}")
    try:
        # What has a default in Python must be stated in a file: nothing of a scan is assumed.
        for field in dataclasses.fields(kinds[kind]):
            if field.name != "volume" and field.name not in fields:
                raise KeyError(field.name)
        volume = Volume(shape=tuple(fields.pop("shape")), pixel_size=fields.pop("pixel_size"))
        return kinds[kind](volume=volume, **fields)
    except KeyError as error:
        raise GeometryError(f"geometry has no field {error.args[0]!r}; add it") from error
    except TypeError as error:
        raise GeometryError(f"{kind} geometry: {error}") from error
