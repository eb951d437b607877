"""The detector's ends see air, unless the object reaches beyond them."""

import numpy as np
import pytest

from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.geometry import Volume
from ct_dip.preprocess.truncation import is_truncated, truncated_views
from ct_dip.scanners import scanner

VOLUME = Volume(shape=(40, 40))


@pytest.mark.parametrize("noise", [0.02, 0.5])
def test_noise_at_the_ends_is_no_object(noise):
    scan = simulate("ellipses", scanner(VOLUME, views=30), noise=NoiseLevel(relative=noise))
    assert not is_truncated(scan.sinogram)


def test_the_side_that_is_cut_off_is_told():
    geometry = scanner(VOLUME, views=60, arc=2 * np.pi, detectors=38, detector_offset=12.0)
    scan = simulate("ellipses", geometry, noise=NoiseLevel(relative=0.02), allow_truncation=True)
    first, last = truncated_views(scan.sinogram)
    assert first == 1
    assert last == 0
    assert is_truncated(scan.sinogram)
