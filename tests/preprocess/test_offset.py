"""Detector offsets found in sinograms, and whether their standard errors can be believed."""

import math
from dataclasses import replace

import numpy as np
import pytest

from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.errors import ScanError
from ct_dip.geometry import Volume
from ct_dip.importers.run import import_scan
from ct_dip.preprocess.offset import Estimate, axis_column, find_detector_offset
from ct_dip.scanners import scanner
from tests.preprocess.measured import neutron, walnut

VOLUME = Volume(shape=(40, 40))
BEAMS = {
    "half turn": {"arc": math.pi, "detectors": 64},
    "full turn": {"arc": 2 * math.pi, "detectors": 64},
    "fan": {"source_origin": 120.0, "origin_detector": 80.0, "detectors": 64},
}
NOISES = ({"relative": 0.05}, {"relative": 0.01}, {"std": 0.02}, {"photons": 3e4})


def standardised_errors(name, count=24):
    rng, errors = np.random.default_rng(7), []
    for index in range(count):
        geometry = scanner(VOLUME, views=48, detector_offset=rng.uniform(-4, 4), **BEAMS[name])
        kind = ("ellipses", "rectangles", "walnut", "grains")[index % 4]
        noise = NoiseLevel(**NOISES[index // 4 % 4])
        scan = simulate(kind, geometry, noise=noise, attenuation=0.05, seed=300 + index)
        found = find_detector_offset(scan.sinogram, replace(geometry, detector_offset=0.0))
        assert found.standard_error < 0.15 * geometry.detector_pitch
        errors.append((found.value - geometry.detector_offset) / found.standard_error)
    return np.array(errors)


@pytest.mark.parametrize("name", BEAMS)
def test_standard_errors_are_calibrated(name):
    """24 simulated offsets a beam, 72 in all: four kinds of objects, four levels and kinds of noise."""
    z = standardised_errors(name)
    assert abs(z.mean()) < 3 / math.sqrt(len(z))
    assert 0.7 < np.sqrt(np.mean(z**2)) < 1.4
    assert np.abs(z).max() < 4


@pytest.mark.parametrize("detectors", [640, 641, 959])
def test_columns_that_wider_bins_leave_over_do_not_move_the_axis(detectors):
    """Without a correction 641 and 959 columns were half a column off."""
    geometry = scanner(VOLUME, views=60, detectors=detectors, detector_pitch=60 / detectors)
    scan = simulate("ellipses", geometry, noise=NoiseLevel(relative=0.01), seed=3)
    found = find_detector_offset(scan.sinogram, geometry)
    assert abs(found.value) < 4 * found.standard_error < 0.25 * geometry.detector_pitch


@pytest.mark.parametrize("row", [0, 1])
def test_the_axis_of_the_tooth(real_data, row):
    scan = import_scan(real_data / "tooth.h5", row=row, center=319.5)
    found = axis_column(find_detector_offset(scan.sinogram, scan.geometry), scan.geometry)
    assert found.value == pytest.approx(296.5, abs=1.0)
    assert found.standard_error < 0.1


@pytest.mark.parametrize("views", [1200, 120])
def test_the_offset_of_the_walnut(real_data, views):
    scan = walnut(real_data, views, bin=8)
    found = find_detector_offset(scan.sinogram, replace(scan.geometry, detector_offset=0.0))
    assert found.value == pytest.approx(0.28, abs=0.1)
    # A tenth of the views says the same, within both standard errors.
    few = scan.select_views(slice(0, None, views // 40))
    again = find_detector_offset(few.sinogram, few.geometry)
    assert abs(again.value - found.value) < 3 * math.hypot(again.standard_error, found.standard_error)


def test_half_of_the_neutron_scan_has_the_axis_of_the_whole(real_data):
    sinogram, geometry = neutron(real_data)
    whole = find_detector_offset(sinogram, geometry)
    half = find_detector_offset(sinogram[:230], geometry.select_views(slice(0, 230)))
    assert abs(whole.value - half.value) < 3 * math.hypot(whole.standard_error, half.standard_error)
    column = axis_column(whole, geometry)  # low and high orders disagree, and the standard error knows it
    assert column.value == pytest.approx(245.1, abs=3 * column.standard_error)  # algotom: 245.1
    assert column.standard_error < 0.2


def test_htc_is_corrected_already(real_data):
    scan = import_scan(real_data / "htc2022" / "htc2022_02b_full.mat", bin=2)
    found = find_detector_offset(scan.sinogram, replace(scan.geometry, detector_offset=3.0))
    assert abs(found.value) < 0.5 * 0.2  # half of one of its detectors


def test_views_that_do_not_determine_it_are_refused():
    geometry = scanner(VOLUME, views=30)
    noise = np.random.default_rng(0).standard_normal(geometry.range_shape)
    with pytest.raises(ScanError, match="do not determine the detector offset"):
        find_detector_offset(noise, geometry)
    with pytest.raises(ScanError, match="too few"):
        find_detector_offset(noise[:3], geometry.select_views(slice(0, 3)))


@pytest.mark.parametrize("name", BEAMS)
def test_views_that_are_all_the_same_are_refused(name):
    """A disc in the middle, or one view that was stored again and again."""
    geometry = scanner(VOLUME, views=40, **BEAMS[name])
    chord = np.sqrt(np.clip(100 - (np.arange(geometry.detectors) - 31.5) ** 2, 0, None))
    with pytest.raises(ScanError, match="all the same"):
        find_detector_offset(np.tile(chord, (geometry.views, 1)), geometry)


def test_an_estimate_is_written_with_the_digits_that_it_has():
    assert str(Estimate(0.28061, 0.00099)) == "0.28061 ± 0.00099"
    assert str(Estimate(296.5, 1.5)) == "296.5 ± 1.5"
