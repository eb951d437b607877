"""ASTRA geometries: plain dictionaries, for ``parallel``, ``fanflat`` and their ``_vec`` forms."""

from typing import Any

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.convert.vectors import ViewVectors, geometry_from_vectors, view_vectors
from ct_dip.errors import GeometryError
from ct_dip.geometry import FanBeam, Geometry, ParallelBeam, Volume

AstraGeometry = dict[str, Any]


def to_astra(geometry: Geometry) -> tuple[AstraGeometry, AstraGeometry]:
    """(projection geometry, volume geometry).

    Without offsets these are ASTRA's named geometries, otherwise their ``_vec`` forms.
    """
    import astra

    height, width = geometry.volume.size
    volume = astra.create_vol_geom(*geometry.volume.shape, -width / 2, width / 2, -height / 2, height / 2)
    pitch, detectors, angles = geometry.detector_pitch, geometry.detectors, geometry.angles
    if geometry.detector_offset == 0 and geometry.center_of_rotation == 0:
        if isinstance(geometry, ParallelBeam):
            return astra.create_proj_geom("parallel", pitch, detectors, angles), volume
        distances = geometry.source_origin, geometry.origin_detector
        return astra.create_proj_geom("fanflat", pitch, detectors, angles, *distances), volume
    source, detector, step = view_vectors(geometry)
    if source is None:
        vectors = np.concatenate([-geometry.beam_axes, detector, step], axis=1)
        return astra.create_proj_geom("parallel_vec", detectors, vectors), volume
    vectors = np.concatenate([source, detector, step], axis=1)
    return astra.create_proj_geom("fanflat_vec", detectors, vectors), volume


def from_astra(projection: AstraGeometry, volume: AstraGeometry) -> Geometry:
    """Our geometry of an ASTRA pair."""
    grid = _volume(volume)
    kind, detectors = projection["type"], int(projection["DetectorCount"])
    if kind == "parallel":
        return ParallelBeam(
            volume=grid,
            angles=projection["ProjectionAngles"],
            detectors=detectors,
            detector_pitch=projection["DetectorWidth"],
        )
    if kind == "fanflat":
        return FanBeam(
            volume=grid,
            angles=projection["ProjectionAngles"],
            detectors=detectors,
            detector_pitch=projection["DetectorWidth"],
            source_origin=projection["DistanceOriginSource"],
            origin_detector=projection["DistanceOriginDetector"],
        )
    if kind not in ("parallel_vec", "fanflat_vec"):
        raise GeometryError(f"ASTRA geometry {kind!r} is not supported; use a 2D parallel or fanflat")
    first, detector, step = np.split(np.asarray(projection["Vectors"], dtype=float), 3, axis=1)
    source = None if kind == "parallel_vec" else first
    if source is None:
        _check_perpendicular(first, step)
    return geometry_from_vectors(ViewVectors(source, detector, step), detectors, grid)


def _volume(volume: AstraGeometry) -> Volume:
    rows, columns, window = volume["GridRowCount"], volume["GridColCount"], volume["option"]
    x0, x1 = window["WindowMinX"], window["WindowMaxX"]
    y0, y1 = window["WindowMinY"], window["WindowMaxY"]
    width, height = (x1 - x0) / columns, (y1 - y0) / rows
    if not np.isclose(width, height, rtol=1e-6):
        raise GeometryError(f"pixels of {width:g} × {height:g} mm are not square: resample first")
    if not np.allclose([x0 + x1, y0 + y1], 0, atol=1e-6 * (x1 - x0)):
        raise GeometryError("the ASTRA volume is not centred on the rotation axis")
    return Volume(shape=(rows, columns), pixel_size=width)


def _check_perpendicular(rays: Floats, steps: Floats) -> None:
    cosine = np.sum(rays * steps, axis=1) / (np.hypot(*rays.T) * np.hypot(*steps.T))
    if np.abs(cosine).max() > 1e-6:
        raise GeometryError("parallel rays must be perpendicular to the detector")
