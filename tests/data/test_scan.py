from dataclasses import replace

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ct_dip.data.noise import PhotonNoise, WhiteNoise
from ct_dip.data.prediction import Prediction
from ct_dip.data.result_file import read_result, write_result
from ct_dip.data.scan import Scan
from ct_dip.errors import ResultError, ScanError
from tests.geometries import FAN, PARALLEL


def make(geometry=PARALLEL, **changes):
    rng = np.random.default_rng(0)
    fields = {
        "sinogram": rng.uniform(0, 1, geometry.range_shape),
        "geometry": geometry,
        "noise": WhiteNoise(std=0.1),
    }
    return Scan(**(fields | changes))


@given(
    st.integers(0, PARALLEL.views - 1),
    st.integers(0, PARALLEL.detectors - 1),
    st.sampled_from([np.nan, np.inf, -np.inf]),
)
def test_any_value_that_is_not_finite_is_found(view, detector, value):
    sinogram = np.zeros(PARALLEL.range_shape)
    sinogram[view, detector] = value
    with pytest.raises(ScanError, match=rf"sinogram\[{view}, {detector}\] is"):
        make(sinogram=sinogram)


@given(st.tuples(st.integers(1, 40), st.integers(1, 40)).filter(lambda s: s != PARALLEL.range_shape))
def test_any_other_shape_is_refused(shape):
    with pytest.raises(ScanError, match=r"expected \(5, 23\): 5 views × 23 detectors"):
        make(sinogram=np.zeros(shape))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sinogram": np.zeros((23, 5))}, "transpose"),
        ({"sinogram": np.zeros((5, 23), dtype=complex)}, "real numbers"),
        ({"sinogram": np.full((5, 23), "x")}, "real numbers"),
        ({"sinogram": np.full((5, 23), 1e300)}, "not finite in float32"),
        ({"ground_truth": np.zeros((3, 3))}, "ground_truth has shape"),
        ({"ground_truth": np.full((13, 17), np.nan)}, "ground_truth"),
        ({"mask": np.zeros((17, 13), dtype=bool)}, "mask has shape"),
        ({"attenuation_scale": 0.0}, "attenuation_scale"),
        ({"attenuation_scale": "one"}, "attenuation_scale"),
        ({"offset_error": -0.1}, "offset_error -0.1 must be a standard error in mm"),
        ({"offset_error": np.nan}, "offset_error"),
    ],
)
def test_parts_that_do_not_fit_are_named(changes, words):
    with pytest.raises(ScanError, match=words):
        make(**changes)


def test_a_name_is_not_a_geometry():
    with pytest.raises(ScanError, match="geometry"):
        Scan(sinogram=np.zeros((5, 23)), geometry="parallel")


def test_scans_cannot_be_changed_behind_their_back():
    values = np.zeros(PARALLEL.range_shape, dtype=np.float32)
    scan = make(sinogram=values)
    values[0, 0] = 7
    assert scan.sinogram[0, 0] == 0
    with pytest.raises(ValueError, match="read-only"):
        scan.sinogram[0, 0] = 1


def test_the_digest_covers_what_a_reconstruction_depends_on():
    scan = make()
    others = [
        make(sinogram=scan.sinogram * 2),
        make(noise=None),
        make(noise=PhotonNoise(photons=10)),
        make(geometry=replace(PARALLEL, detector_offset=0.1)),
        make(offset_error=0.1),
    ]
    assert len({scan.digest, *(other.digest for other in others)}) == 6
    same = make(source="elsewhere", ground_truth=np.zeros((13, 17)), attenuation_scale=0.02)
    assert same.digest == scan.digest


def test_an_evaluation_counts_the_field_of_view_unless_a_mask_says_otherwise():
    scan = make(replace(PARALLEL, detectors=8, detector_pitch=1.0, detector_offset=0.0))
    inside = scan.geometry.field_of_view_mask()
    assert 0 < inside.sum() < inside.size
    assert np.array_equal(scan.evaluated, inside)
    everything = np.ones((13, 17), dtype=bool)
    assert replace(scan, mask=everything).evaluated.all()


def test_views_and_bins_are_reduced_together():
    scan = make(replace(FAN, detectors=30), noise=WhiteNoise(std=0.2))
    scan = replace(scan, offset_error=0.02)
    few = scan.select_views([0, 3])
    assert few.offset_error == scan.bin_detectors(3).offset_error == 0.02
    assert np.array_equal(few.sinogram, scan.sinogram[[0, 3]])
    assert few.geometry.views == 2
    binned = scan.bin_detectors(3)
    np.testing.assert_allclose(binned.sinogram, scan.sinogram.reshape(5, 10, 3).mean(-1), rtol=1e-6)
    assert binned.noise.std == pytest.approx(0.2 / np.sqrt(3))
    unknown = replace(scan, noise=None).bin_detectors(3)
    np.testing.assert_allclose(unknown.sinogram, binned.sinogram, rtol=1e-6)
    assert unknown.noise is None
    counted = replace(scan, noise=PhotonNoise(photons=100)).bin_detectors(3)
    expected = -np.log(np.exp(-scan.sinogram.reshape(5, 10, 3)).mean(-1))
    np.testing.assert_allclose(counted.sinogram, expected, rtol=1e-5)
    assert counted.noise.photons == 300


@pytest.mark.parametrize("value", [0, np.nan])
def test_a_mask_without_a_pixel_or_of_nan_is_refused(tmp_path, value):
    mask = np.full(PARALLEL.domain_shape, float(value))
    with pytest.raises(ScanError, match="mask must be true for at least one pixel"):
        make(mask=mask)
    with pytest.raises(ResultError, match="mask must be boolean, and true for at least one pixel"):
        Prediction(mean=np.ones(mask.shape), mask=mask)
    with pytest.raises(ResultError, match="mask must be boolean, and true for at least one pixel"):
        Prediction(mean=np.ones(mask.shape), mask=mask > 0)
    write_result(
        Prediction(mean=np.ones(mask.shape), mask=np.ones(mask.shape, dtype=bool)), tmp_path / "r.h5"
    )
    with h5py.File(tmp_path / "r.h5", "r+") as file:
        file["arrays/mask"][...] = mask
    with pytest.raises(ResultError, match=r"r\.h5: mask must be .*; reconstruct again"):
        read_result(tmp_path / "r.h5")
