"""To another library's geometry and back."""

from dataclasses import replace

import numpy as np
import pytest

from ct_dip.convert.astra import from_astra, to_astra
from ct_dip.convert.odl import from_odl, to_odl
from ct_dip.convert.tomosipo import from_tomosipo, to_tomosipo
from ct_dip.errors import GeometryError
from tests import geometries
from tests.geometries import FAN, PARALLEL, ray_lines

every_geometry = pytest.mark.parametrize("geometry", geometries.ALL.values(), ids=geometries.ALL.keys())


def assert_same_rays(first, second):
    """The same lines through the same pixels: parametrisations may differ, as offset for axis shift."""
    assert first.volume.shape == second.volume.shape
    assert first.volume.pixel_size == pytest.approx(second.volume.pixel_size)
    for ours, theirs in zip(ray_lines(first), ray_lines(second), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-9)


@every_geometry
def test_astra(geometry):
    assert_same_rays(from_astra(*to_astra(geometry)), geometry)


@pytest.mark.parametrize("geometry", [PARALLEL, FAN], ids=["parallel", "fan"])
def test_astra_without_offsets_is_exact_and_named(geometry):
    projection, volume = to_astra(geometry)
    assert projection["type"] in ("parallel", "fanflat")
    assert from_astra(projection, volume) == geometry


@every_geometry
def test_odl(geometry):
    ordered = geometry.select_views(np.argsort(geometry.angles))
    assert_same_rays(from_odl(*to_odl(ordered)), ordered)


def test_odl_refuses_unsorted_views():
    with pytest.raises(GeometryError, match="increasing"):
        to_odl(PARALLEL)


@every_geometry
def test_tomosipo(geometry):
    pytest.importorskip("tomosipo", reason="tomosipo is not on PyPI; see the extra 'tomosipo'")
    assert_same_rays(from_tomosipo(*to_tomosipo(geometry)), geometry)


@every_geometry
def test_tomosipo_sees_a_pixel_in_the_same_bin(geometry):
    """Project a pixel's centre in tomosipo's own coordinates, and in ours."""
    pytest.importorskip("tomosipo", reason="tomosipo is not on PyPI; see the extra 'tomosipo'")
    volume, projection = to_tomosipo(geometry)
    row, column = 2, 11
    grid = volume.to_vec()
    center = (np.array(volume.shape) - 1) / 2
    steps = np.array([0, row, column]) - center
    pixel = grid.pos[0] + steps @ np.concatenate([grid.w, grid.v, grid.u])
    vec = projection.to_vec()
    rays = vec.ray_dir if vec.is_parallel else pixel - vec.src_pos
    bins = []
    for ray, position, u in zip(rays, vec.det_pos, vec.det_u, strict=True):
        # pixel + t · ray = position + s · u, in the plane (y, x)
        system = np.stack([u[1:], -ray[1:]], axis=1)
        bins.append(np.linalg.solve(system, (pixel - position)[1:])[0])

    x, y = geometry.volume.pixel_centers()
    points, directions = ray_lines(geometry)
    target = np.array([x[column], y[row]])
    offsets = target - points
    miss = offsets[..., 0] * directions[..., 1] - offsets[..., 1] * directions[..., 0]
    middle = (geometry.detectors - 1) / 2
    for number, ours in zip(bins, miss, strict=True):
        nearest = int(np.argmin(np.abs(ours)))
        assert abs(number - (nearest - middle)) <= 0.75


def test_geometries_that_we_cannot_hold_are_refused():
    import astra

    projection, volume = to_astra(PARALLEL)
    with pytest.raises(GeometryError, match="square"):
        from_astra(projection, astra.create_vol_geom(4, 4, -2, 2, -4, 4))
    with pytest.raises(GeometryError, match="centred"):
        from_astra(projection, astra.create_vol_geom(4, 4, 0, 4, -2, 2))
    three = astra.create_proj_geom("parallel3d", 1, 1, 4, 4, [0.0]) | {"DetectorCount": 4}
    with pytest.raises(GeometryError, match="parallel3d"):
        from_astra(three, volume)
    vectors = to_astra(geometries.FAN_SHIFTED)[0]
    vectors["Vectors"][2, 0] += 3
    with pytest.raises(GeometryError, match="changes between views"):
        from_astra(vectors, volume)
    skew = to_astra(geometries.PARALLEL_SHIFTED)[0]
    skew["Vectors"][:, :2] = [1.0, 1.0]
    with pytest.raises(GeometryError, match="perpendicular"):
        from_astra(skew, volume)


def test_a_curved_odl_detector_is_refused():
    from odl.applications import tomo

    space, geometry = to_odl(replace(FAN, angles=[0.0, 1.0]))
    curved = tomo.FanBeamGeometry(
        geometry.motion_partition, geometry.det_partition, 30, 15, det_curvature_radius=45
    )
    with pytest.raises(GeometryError, match="flat"):
        from_odl(space, curved)
