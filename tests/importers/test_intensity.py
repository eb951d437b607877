"""What readings in air say about the noise."""

import numpy as np
import pytest

from ct_dip.importers.intensity import photon_noise


@pytest.mark.parametrize("repetitions", [2, 3, 20])
def test_photons_are_those_that_were_drawn_however_few_repetitions(repetitions):
    bins, photons = 20_000, 1e4
    pattern = np.random.default_rng(0).uniform(0.5, 2.0, bins)  # the detector's own, which is no noise
    counts = np.random.default_rng(1).poisson(photons, (repetitions, bins))
    found = photon_noise(pattern * counts)
    # A variance from so many degrees of freedom; four standard errors.
    error = 4 * np.sqrt(2 / (bins * (repetitions - 1)))
    assert found.photons == pytest.approx(photons, rel=error)


def test_air_that_does_not_vary_has_no_noise():
    assert photon_noise(np.ones((5, 3))) is None
