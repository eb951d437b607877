"""Slips in stated geometries are found in the data, and right ones are never doubted."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.object_list import CHOOSE, make_scan
from ct_dip.data.scan import Scan
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.errors import GeometryError
from ct_dip.geometry import FanBeam, ParallelBeam, Volume
from ct_dip.importers.run import import_scan
from ct_dip.preprocess.doubts import doubts
from ct_dip.scanners import scanner, view_angles
from tests.preprocess.measured import walnut

VOLUME = Volume(shape=(40, 40))
FAN = {"source_origin": 90.0, "origin_detector": 60.0}
BEAMS = {
    "half turn": {"views": 30},
    "full turn": {"views": 48, "arc": 2 * math.pi},
    "fan": {"views": 48, **FAN},
    "half fan": {"views": 36, "arc": math.pi, **FAN},
}
OBJECTS = ("ellipses", "rectangles", "walnut", "grains", "cracks", "shepp-logan", "character")


def character():
    """Strokes, as of KMNIST: a thick bent line and a dot."""
    x, y = Volume(shape=(120, 120), pixel_size=1 / 60).pixel_centers()
    y = y[:, None]
    bent = (np.abs(y - 0.8 * x**2 + 0.2) < 0.09) & (np.abs(x + 0.1) < 0.5)
    return (bent | (np.hypot(x - 0.35, y + 0.4) < 0.12)).astype(float)


def scanned(beam, kind, noise=0.05, **changes):
    geometry = scanner(VOLUME, **{**BEAMS[beam], **changes})
    image = character() if kind == "character" else kind
    return simulate(image, geometry, noise=NoiseLevel(relative=noise), seed=OBJECTS.index(kind))


def stated(scan, sinogram=None, **changes):
    sinogram = scan.sinogram if sinogram is None else sinogram
    return Scan(sinogram=sinogram, geometry=replace(scan.geometry, **changes))


@pytest.mark.parametrize("kind", OBJECTS)
@pytest.mark.parametrize("beam", BEAMS)
def test_right_geometries_are_not_doubted(beam, kind):
    assert doubts(scanned(beam, kind)) == []


@pytest.mark.parametrize("kind", OBJECTS)
def test_half_a_turn_and_a_full_one_are_told_apart(kind):
    for beam in BEAMS:
        scan = scanned(beam, kind)
        half = beam.startswith("half")
        angles = view_angles(scan.geometry.views, 2 * math.pi if half else math.pi)
        (doubt,) = doubts(stated(scan, angles=angles))
        assert ("look like half a turn" if half else "look like a full turn") in doubt, beam
        assert ("Use --arc 180." if half else "Use --arc 360.") in doubt
        if "fan" not in beam:
            (doubt,) = doubts(stated(scan, angles=-angles))
            assert ("Use --arc -180." if half else "Use --arc -360.") in doubt


@pytest.mark.parametrize("degrees", [90, 165, 200, 320])
def test_right_arcs_other_than_turns_are_not_doubted(degrees):
    """Whatever else is wrong with the readings."""
    generator = np.random.default_rng(degrees)
    disk = np.hypot(*np.meshgrid(*Volume(shape=(120, 120), pixel_size=1 / 3).pixel_centers())) < 10
    for image in ("walnut", character(), disk.astype(float)):
        geometry = scanner(VOLUME, views=int(generator.choice([20, 40, 80])), arc=math.radians(degrees))
        scan = simulate(image, geometry, noise=NoiseLevel(relative=0.03), seed=degrees)
        y = scan.sinogram.astype(float)
        stripes = 0.03 * y.mean() * generator.standard_normal(geometry.detectors)
        drift = 1 + 0.04 * np.linspace(0, 1, geometry.views)[:, None]
        for spoilt in (y, y * drift, y + stripes, y - 0.12 * y**2 / y.max()):
            assert [doubt for doubt in doubts(stated(scan, spoilt)) if "angles cover" in doubt] == []


@pytest.mark.parametrize(("true", "wrong"), [(180, 90), (180, 120), (180, 200), (360, 90), (360, 270)])
def test_a_wrong_arc_is_found_if_the_object_is_not_round_and_in_the_middle(true, wrong):
    x, y = Volume(shape=(120, 120), pixel_size=1 / 3).pixel_centers()
    x, y = x - 3, y[:, None] + 4
    image = 1.0 * ((x / 10) ** 2 + (y / 7) ** 2 < 1) - 0.5 * (np.hypot(x - 3, y - 2) < 2)
    geometry = scanner(VOLUME, views=60, arc=math.radians(true))
    for seed in range(3):
        scan = simulate(image, geometry, noise=NoiseLevel(relative=0.03), seed=seed)
        (doubt,) = doubts(stated(scan, angles=view_angles(60, math.radians(wrong))))
        assert f"angles cover {wrong}°" in doubt
        assert f"Use --arc {true}." in doubt


@pytest.mark.parametrize("kind", OBJECTS)
@pytest.mark.parametrize("beam", ["half turn", "full turn", "fan"])
def test_transposed_sinograms_and_radians_for_degrees_are_found(beam, kind):
    scan = scanned(beam, kind)
    views, detectors = scan.sinogram.shape
    arc = math.pi if beam == "half turn" else 2 * math.pi
    turned = stated(scan, scan.sinogram.T, angles=view_angles(detectors, arc), detectors=views)
    (doubt,) = doubts(turned)
    assert f"{detectors} views of {views} detectors, but looks transposed" in doubt
    (doubt,) = doubts(stated(scan, angles=np.deg2rad(scan.geometry.angles)))
    assert "look like radians that were taken for degrees" in doubt


def test_degrees_for_radians_are_refused_by_their_size():
    with pytest.raises(GeometryError, match="convert degrees"):
        replace(scanner(VOLUME, views=30), angles=np.arange(0, 180, 6))


@pytest.mark.parametrize("kind", OBJECTS)
def test_a_fan_that_turns_the_other_way_is_found(kind):
    scan = scanned("fan", kind)
    (doubt,) = doubts(stated(scan, angles=-scan.geometry.angles))
    assert "look clockwise" in doubt
    assert "(--arc 360)" in doubt
    (mirrored,) = doubts(stated(scan, scan.sinogram[:, ::-1]))
    assert "look clockwise, or the detector is mirrored" in mirrored


def test_parallel_views_in_the_other_direction_are_those_of_the_mirror_image():
    """Which is as good an object as any: no data can tell."""
    scan = scanned("half turn", "character")
    mirrored = simulate(character()[::-1], scan.geometry, noise=NoiseLevel(relative=0.05))
    backwards = replace(scan.geometry, angles=-scan.geometry.angles)
    ideal = simulate(character(), backwards).sinogram
    np.testing.assert_allclose(ideal, simulate(character()[::-1], scan.geometry).sinogram, atol=2e-3)
    assert doubts(stated(scan, angles=backwards.angles)) == doubts(mirrored) == []


def test_exchanged_distances_are_a_larger_object():
    """The rays' lines only change their scale; it shows where the object outgrows the grid."""
    geometry = scanner(VOLUME, views=48, source_origin=200.0, origin_detector=500.0)
    swapped = replace(geometry, source_origin=500.0, origin_detector=200.0)
    s = geometry.detector_positions
    np.testing.assert_allclose(swapped.axis_distances(s), 500 / 200 * geometry.axis_distances(s))
    scan = simulate("grains", geometry, noise=NoiseLevel(relative=0.05))
    (doubt,) = doubts(stated(scan, source_origin=500.0, origin_detector=200.0))
    assert "are --source-origin and --origin-detector exchanged?" in doubt


def test_a_distance_from_the_source_that_should_be_from_the_axis_is_found():
    scan = scanned("fan", "character", noise=0.02)
    (doubt,) = doubts(stated(scan, origin_detector=150.0))
    assert "origin_detector is 150 mm, but looks like the distance from source" in doubt
    assert "Use --origin-detector 60." in doubt


def test_parallel_rays_that_are_stated_as_a_fan_are_found():
    scan = scanned("full turn", "character")
    fan = FanBeam(**vars(scan.geometry), **FAN)
    (doubt,) = doubts(Scan(sinogram=scan.sinogram, geometry=replace(fan, detector_pitch=fan.magnification)))
    assert "the rays look parallel" in doubt


@pytest.mark.parametrize("kind", OBJECTS)
def test_a_fan_that_is_stated_as_parallel_is_found(kind):
    scan = scanned("fan", kind, noise=0.02)
    lengths = {name: value for name, value in vars(scan.geometry).items() if name not in FAN}
    (doubt,) = doubts(Scan(sinogram=scan.sinogram, geometry=ParallelBeam(**lengths)))
    assert "the rays look like a fan" in doubt
    assert "State --source-origin and --origin-detector." in doubt


@pytest.mark.parametrize("kind", OBJECTS)
def test_parallel_beams_are_not_taken_for_fans_whatever_else_is_wrong(kind):
    scan = scanned("full turn", kind)
    y, rng = scan.sinogram.astype(float), np.random.default_rng(0)
    stripes = 0.03 * y.mean() * rng.standard_normal(y.shape[1])
    drift = 1 + 0.04 * np.linspace(0, 1, len(y))[:, None]
    for spoilt in (y * drift, y + stripes, y - 0.12 * y**2 / y.max()):
        assert not any("fan" in doubt for doubt in doubts(stated(scan, spoilt)))


@pytest.mark.parametrize("beam", ["half turn", "full turn", "fan"])
def test_a_wrong_offset_is_found_with_its_standard_error(beam):
    scan = scanned(beam, "ellipses")
    pitch = scan.geometry.detector_pitch
    (doubt,) = doubts(stated(scan, detector_offset=2.5 * pitch))
    assert f"detector offset is {2.5 * pitch:.4g} mm, but the views say" in doubt
    assert "±" in doubt
    assert "--detector-offset" in doubt if beam == "fan" else "Use --center" in doubt


@pytest.mark.parametrize(("detectors", "bin"), [(643, 1), (644, 2), (64, 1)])
def test_a_wrong_axis_of_a_parallel_beam_is_told_as_a_column_of_the_detector(detectors, bin):
    """Also where the comparison averages bins and leaves one over, or where the import did."""
    geometry = scanner(VOLUME, views=60, detectors=detectors, detector_pitch=60 / detectors)
    scan = simulate("ellipses", geometry, noise=NoiseLevel(relative=0.01), attenuation=0.05, seed=3)
    shift = 0.1 * detectors
    wrong = stated(scan, center_of_rotation=-shift * geometry.detector_pitch)
    (doubt,) = doubts(wrong.bin_detectors(bin), bin)
    middle = (detectors - 1) / 2
    column, width = map(float, re.search(r"at column (\S+) ± (\S+) rather", doubt).groups())
    assert abs(column - middle) < 4 * width < 2
    assert f"rather than {middle - shift:.5g}. Use --center {column:.5g}," in doubt


@pytest.mark.parametrize(
    "changes",
    [
        {"views": 60, "arc": 2 * math.pi, "detectors": 38, "detector_offset": 12.0},
        {"views": 60, "detectors": 24},
        {"views": 60, "detectors": 30, **FAN},
        {"views": 60, "detectors": 38, "detector_offset": 18.0, **FAN},
    ],
)
def test_detectors_that_see_a_part_of_the_object_are_not_doubted(changes):
    for seed, kind in enumerate(OBJECTS[:4]):
        geometry = scanner(VOLUME, **changes)
        scan = simulate(kind, geometry, noise=NoiseLevel(relative=0.02), allow_truncation=True, seed=seed)
        assert doubts(scan) == []


def test_a_disk_fits_every_reading_and_is_not_doubted():
    x, y = Volume(shape=(120, 120), pixel_size=1 / 3).pixel_centers()
    disk = (np.hypot(x, y[:, None]) < 12).astype(float)
    for changes in BEAMS.values():
        for noise in (None, NoiseLevel(relative=0.1)):
            assert doubts(simulate(disk, scanner(VOLUME, **changes), noise=noise)) == []


@pytest.mark.parametrize("item", [item for item in CHOOSE if item.quick or item.fan], ids=lambda i: i.label)
def test_scans_of_the_benchmarks_are_not_doubted(item, real_data):
    assert doubts(make_scan(item)[0]) == []


def test_measured_scans_are_not_doubted(real_data):
    folder = real_data / "htc2022"
    scans = [import_scan(folder / f"htc2022_{name}_full.mat", bin=8) for name in ("01a", "02b")]
    scans += [import_scan(folder / f"htc2022_{name}_limited.mat", bin=8) for name in ("01a", "02b")]
    scans += [scan.select_views(slice(0, None, 24)) for scan in scans[:2]]
    scans += [walnut(real_data, 120, bin=8), import_scan(real_data / "tooth.h5", row=0, width=640.0)]
    readings = {"arc": 2 * math.pi, "counts": True, "air": 30}
    scans += [import_scan(real_data / "neutron_sinogram_360.tif", **readings)]
    assert [doubts(scan) for scan in scans] == [[]] * len(scans)


def test_slips_are_found_in_measured_scans(real_data):
    scan = walnut(real_data, 120, bin=8)
    for words, changes in {
        "look clockwise": {"angles": -scan.geometry.angles},
        "a full turn": {"angles": scan.geometry.angles / 2},
        "distance from source": {"origin_detector": 300.0},
        "exchanged?": {"source_origin": 190.0, "origin_detector": 110.0},
    }.items():
        (doubt,) = doubts(stated(scan, **changes))
        assert words in doubt
    lengths = {name: value for name, value in vars(scan.geometry).items() if name not in FAN}
    (doubt,) = doubts(Scan(sinogram=scan.sinogram, geometry=ParallelBeam(**lengths)))
    assert "look like a fan" in doubt
