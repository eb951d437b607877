"""Line integrals of readings, and what readings in air say about the noise."""

import numpy as np
import pytest

from ct_dip.importers.intensity import line_integrals, photon_noise


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


def test_a_ray_without_light_leaves_the_others_as_they_are():
    truth = np.random.default_rng(2).uniform(0, 3, (10, 40))
    air = np.linspace(100, 200, 40)
    readings = air * np.exp(-truth)
    readings[4, 7] = 0
    found, starved = line_integrals(readings, air)
    assert starved == 1
    seen = readings > 0
    np.testing.assert_allclose(found[seen], truth[seen])
    assert found[4, 7] == pytest.approx(truth[seen].max())
