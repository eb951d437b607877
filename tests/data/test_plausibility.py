"""What looks wrong with a scan is said, what cannot be line integrals is refused, and good scans pass."""

import math
from dataclasses import replace

import numpy as np
import pytest

from ct_dip.data.noise import WhiteNoise, third_difference_ratio
from ct_dip.data.phantoms import PHANTOMS
from ct_dip.data.plausibility import implausible
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.errors import ScanError
from ct_dip.geometry import Volume
from ct_dip.methods import load_config
from ct_dip.pipeline import reconstruct
from ct_dip.scanners import scanner


def measured(phantom="ellipses", noise=0.05, size=40, seed=0, photons=None):
    """A scan whose truth nobody knows."""
    geometry = scanner(Volume(shape=(size, size)), views=30)
    level = NoiseLevel(photons=photons) if photons else NoiseLevel(relative=noise)
    scan = simulate(phantom, geometry, noise=level, seed=seed)
    return replace(scan, ground_truth=None)


@pytest.mark.parametrize("phantom", PHANTOMS)
@pytest.mark.parametrize("size", [28, 96])
def test_good_scans_pass(phantom, size):
    for noise in (0.01, 0.1):
        assert implausible(measured(phantom, noise, size)) == []
    assert implausible(measured(phantom, size=size, photons=500)) == []
    assert implausible(replace(measured(phantom, size=size), noise=None)) == []


def test_counts_are_not_line_integrals():
    scan = measured()
    counts = 60_000 * np.exp(-scan.sinogram)
    with pytest.raises(ScanError, match=r"6\.\d+e\+04.*look like counts.*--counts"):
        implausible(replace(scan, sinogram=counts, noise=None))
    (warning,) = implausible(replace(scan, sinogram=60 * scan.sinogram, noise=None))
    assert "Are these counts" in warning


def test_published_problems_without_light_are_not_questioned():
    """KMNIST characters of 1 /mm are simulated: nobody expects light to get through."""
    scan = measured()
    opaque = replace(
        scan,
        sinogram=200 * scan.sinogram,
        noise=WhiteNoise(std=200 * scan.noise.std),
        ground_truth=np.zeros((40, 40)),
    )
    assert implausible(opaque) == []


def test_a_sinogram_of_the_wrong_sign_is_refused():
    scan = measured()
    with pytest.raises(ScanError, match="negative mass"):
        implausible(replace(scan, sinogram=-scan.sinogram))


def test_negative_line_integrals_beyond_the_noise_are_said():
    scan = measured()
    sinogram = scan.sinogram.copy()
    sinogram[:6, 5:15] = -0.5
    (warning,) = implausible(replace(scan, sinogram=sinogram))
    assert "% of the line integrals are negative" in warning


@pytest.mark.parametrize(
    ("factor", "words"), [(1e-3, "as much as the stated noise"), (10, "of what the stated")]
)
def test_a_stated_noise_that_the_data_do_not_have_is_said(factor, words):
    scan = measured(noise=0.05, size=96)
    (warning,) = implausible(replace(scan, noise=WhiteNoise(std=factor * scan.noise.std)))
    assert words in warning


def test_signal_in_few_wide_bins_is_not_taken_for_noise():
    """Views are close enough to tell that the noise is as stated, and that a smaller one is not."""
    volume = Volume(shape=(40, 40))
    geometry = scanner(volume, views=720, detectors=15, detector_pitch=4.0)
    scan = simulate("ellipses", geometry, noise=NoiseLevel(relative=0.002), seed=0)
    scan = replace(scan, ground_truth=None)
    assert third_difference_ratio(scan.sinogram, scan.variance) > 20
    shuffled = np.random.default_rng(0).permutation(720)
    for some in (scan, scan.select_views(shuffled)):
        assert implausible(some) == []
        (warning,) = implausible(replace(some, noise=WhiteNoise(std=1e-2 * scan.noise.std)))
        assert "as much as the stated noise" in warning


def test_lengths_in_other_units_are_said():
    scan = measured()
    for pixel_size in (1e-6, 1e7):
        volume = Volume(shape=(40, 40), pixel_size=pixel_size)
        geometry = replace(scan.geometry, volume=volume, detector_pitch=pixel_size)
        (warning,) = implausible(replace(scan, geometry=geometry))
        assert "are lengths in mm?" in warning


@pytest.mark.parametrize(("attenuation", "findings"), [(290.0, 0), (310.0, 1)])
def test_no_material_attenuates_more_than_300_per_mm(attenuation, findings):
    """In the mean along the grid's diagonal, of which no ray is longer."""
    scan, pixel_size = measured(), 1e-3
    geometry = replace(
        scan.geometry, volume=Volume(shape=(40, 40), pixel_size=pixel_size), detector_pitch=pixel_size
    )
    factor = attenuation * math.hypot(40, 40) * pixel_size / scan.sinogram.max()
    noise = WhiteNoise(std=factor * scan.noise.std)
    found = implausible(replace(scan, geometry=geometry, sinogram=factor * scan.sinogram, noise=noise))
    assert len(found) == findings
    assert all("more than any material has" in warning for warning in found)


def test_noise_is_not_taken_for_lost_signs_although_it_is_understated():
    scan = measured(noise=0.5)
    assert (scan.sinogram < -0.1 * scan.sinogram.max()).mean() > 0.05
    warnings = implausible(replace(scan, noise=WhiteNoise(std=1e-3 * scan.noise.std)))
    assert any("as much as the stated noise" in warning for warning in warnings)
    assert not any("negative" in warning for warning in warnings)


def test_an_object_that_the_detector_cuts_off_is_said():
    geometry = scanner(Volume(shape=(40, 40)), views=30, detectors=24)
    scan = simulate("ellipses", geometry, noise=NoiseLevel(relative=0.02), allow_truncation=True)
    (warning,) = implausible(scan)
    assert "the object reaches the end of the detector" in warning


def test_a_detector_that_is_short_on_one_side_is_meant_to_cut():
    geometry = scanner(Volume(shape=(40, 40)), views=60, arc=2 * np.pi, detectors=38, detector_offset=12.0)
    assert geometry.sees_one_side
    scan = simulate("ellipses", geometry, noise=NoiseLevel(relative=0.02), allow_truncation=True)
    assert implausible(scan) == []


def test_views_from_one_side_only_are_said():
    geometry = replace(scanner(Volume(shape=(40, 40)), views=12), angles=[0.5] * 12)
    scan = simulate("ellipses", geometry, noise=NoiseLevel(relative=0.05))
    (warning,) = implausible(scan)
    assert "All 12 views have the same angle" in warning


def test_a_result_keeps_the_warnings():
    scan = measured(size=24)
    wrong = replace(scan, sinogram=90 * scan.sinogram, noise=None)
    result = reconstruct(wrong, load_config(method="fbp"))
    assert result.warnings == tuple(implausible(wrong)) != ()
    assert reconstruct(scan, load_config(method="fbp")).warnings == ()


def test_noise_at_the_detectors_end_is_no_object():
    """Also if a scan of much noise states far too little of it: then that is what is wrong."""
    scan = measured(noise=0.5, size=96)
    assert implausible(scan) == []
    (warning,) = implausible(replace(scan, noise=WhiteNoise(std=1e-3 * scan.noise.std)))
    assert "as much as the stated noise" in warning
