"""tomosipo geometries: ours as one slice of a 3D scan.

tomosipo's vectors are (z, y, x) and its second image axis grows with y, whereas our rows go down:
y changes its sign on the way.
"""

from typing import Any

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.convert.vectors import ViewVectors, geometry_from_vectors, view_vectors
from ct_dip.errors import GeometryError
from ct_dip.geometry import Geometry, Volume


def to_tomosipo(geometry: Geometry) -> tuple[Any, Any]:
    """(volume, projection geometry) for ``tomosipo.operator``: one slice, one detector row."""
    import tomosipo as ts

    rows, columns = geometry.volume.shape
    height, width = geometry.volume.size
    # The slice and the detector row are one pixel high; a fan stays in the plane z = 0.
    volume = ts.volume(shape=(1, rows, columns), size=(geometry.volume.pixel_size, height, width))
    source, detector, step = view_vectors(geometry)
    shape = (1, geometry.detectors)
    up = np.tile([geometry.detector_pitch, 0.0, 0.0], (geometry.views, 1))
    flat = {"shape": shape, "det_pos": _lift(detector), "det_v": up, "det_u": _lift(step)}
    if source is None:
        return volume, ts.parallel_vec(ray_dir=_lift(geometry.beam_axes), **flat)
    return volume, ts.cone_vec(src_pos=_lift(source), **flat)


def from_tomosipo(volume: Any, projection: Any) -> Geometry:
    """Our geometry of one tomosipo slice and a detector of one row."""
    projection, grid = projection.to_vec(), volume.to_vec()
    if volume.shape[0] != 1 or projection.det_shape[0] != 1:
        raise GeometryError("only one slice and one detector row are supported; pick them first")
    pixels = np.concatenate([grid.v, grid.u])
    if not np.allclose(pixels, pixels[0, 1] * np.array([[0, 1, 0], [0, 0, 1]])):
        raise GeometryError("the tomosipo volume must have square pixels along y and x")
    if not np.allclose(grid.pos, 0):
        raise GeometryError("the tomosipo volume is not centred on the rotation axis")
    plane = [projection.det_pos, projection.det_u]
    if not projection.is_parallel:
        plane.append(projection.src_pos)
    if not np.allclose([np.abs(p[:, 0]).max() for p in plane], 0):
        raise GeometryError("the tomosipo scan leaves the plane z = 0; only flat scans are supported")
    source = None if projection.is_parallel else _drop(projection.src_pos)
    vectors = ViewVectors(source, _drop(projection.det_pos), _drop(projection.det_u))
    volume_2d = Volume(shape=tuple(volume.shape[1:]), pixel_size=float(pixels[0, 1]))
    return geometry_from_vectors(vectors, int(projection.det_shape[1]), volume_2d)


def _lift(vectors: Floats) -> Floats:
    """(x, y) → (0, −y, x)."""
    return np.stack([np.zeros(len(vectors)), -vectors[:, 1], vectors[:, 0]], axis=1)


def _drop(vectors: Floats) -> Floats:
    """(0, −y, x) → (x, y)."""
    return np.stack([vectors[:, 2], -vectors[:, 1]], axis=1)
