"""ODL geometries. ODL's images are indexed [x, y]; see `to_odl_image` for the change of axes."""

from typing import Any

import numpy as np
from torch import Tensor

from ct_dip.errors import GeometryError
from ct_dip.geometry import FanBeam, Geometry, ParallelBeam, Volume


def to_odl(geometry: Geometry, *, dtype: str = "float32") -> tuple[Any, Any]:
    """(image space, geometry) for ``odl.applications.tomo.RayTransform``.

    ODL wants the angles strictly increasing.
    """
    import odl
    from odl.applications import tomo

    if np.any(np.diff(geometry.angles) <= 0):
        raise GeometryError(
            "ODL needs strictly increasing angles; reorder and deduplicate the views (select_views)"
        )
    (rows, columns), (height, width) = geometry.volume.shape, geometry.volume.size
    space = odl.uniform_discr(
        [-width / 2, -height / 2], [width / 2, height / 2], (columns, rows), dtype=dtype
    )
    views = odl.nonuniform_partition(geometry.angles)
    half = geometry.detectors * geometry.detector_pitch / 2
    middle, c = geometry.detector_offset - geometry.center_of_rotation, geometry.center_of_rotation
    bins = odl.uniform_partition(middle - half, middle + half, geometry.detectors)
    if isinstance(geometry, ParallelBeam):
        return space, tomo.Parallel2dGeometry(views, bins)
    return space, tomo.FanBeamGeometry(
        views,
        bins,
        src_radius=geometry.source_origin,
        det_radius=geometry.origin_detector,
        # [towards the source, along the detector] for every angle
        src_shift_func=lambda angle: np.stack([0 * np.atleast_1d(angle)] * 2, -1) - [0.0, c],
    )


def from_odl(space: Any, geometry: Any) -> Geometry:
    """Our geometry of an ODL image space and 2D geometry in ODL's default orientation."""
    from odl.applications import tomo

    if not isinstance(geometry, tomo.Parallel2dGeometry | tomo.FanBeamGeometry):
        raise GeometryError(f"ODL geometry {type(geometry).__name__} is not a 2D parallel or fan beam")
    if not np.allclose(geometry.det_axis_init, (1, 0)) or not np.allclose(geometry.translation, 0):
        raise GeometryError("only ODL's default detector axis (1, 0) without translation is supported")
    if np.ptp(space.cell_sides) > 1e-6 * space.cell_sides[0]:
        raise GeometryError(f"pixels of {space.cell_sides} mm are not square: resample first")
    if not np.allclose(space.min_pt + space.max_pt, 0, atol=1e-6 * space.cell_sides[0]):
        raise GeometryError("the ODL image space is not centred on the rotation axis")
    columns, rows = space.shape
    lateral = float(geometry.det_partition.mid_pt.item())
    volume = Volume(shape=(rows, columns), pixel_size=float(space.cell_sides[0]))
    angles = np.atleast_1d(geometry.angles)
    detectors, pitch = geometry.det_partition.size, float(geometry.det_partition.cell_sides[0])
    if isinstance(geometry, tomo.Parallel2dGeometry):
        return ParallelBeam(
            volume=volume,
            angles=angles,
            detectors=detectors,
            detector_pitch=pitch,
            detector_offset=lateral,
        )
    if geometry.det_curvature_radius is not None:
        raise GeometryError("curved detectors are not supported; the detector must be flat")
    # Each (views, 2) or (1, 2): along the beam, along the detector.
    source, detector = (np.atleast_2d(f(angles)) for f in (geometry.src_shift_func, geometry.det_shift_func))
    if any(np.ptp(s, axis=0).max() > 1e-6 or np.abs(s[:, 0]).max() > 1e-6 for s in (source, detector)):
        raise GeometryError("shifts along the beam, or that change between views, are not supported")
    c = -float(source[0, 1])
    return FanBeam(
        volume=volume,
        angles=angles,
        detectors=detectors,
        detector_pitch=pitch,
        detector_offset=lateral + float(detector[0, 1]) + c,
        center_of_rotation=c,
        source_origin=float(geometry.src_radius),
        origin_detector=float(geometry.det_radius),
    )


def to_odl_image(image: Tensor) -> Tensor:
    """(..., rows, columns), first row on top → (..., x, y), y upwards."""
    return image.flip(-2).transpose(-2, -1)


def from_odl_image(image: Tensor) -> Tensor:
    """The inverse of `to_odl_image`."""
    return image.transpose(-2, -1).flip(-2)
