"""Structure of residuals: white noise has none, correlated and drifting noise has what was put in."""

import numpy as np
import pytest

from ct_dip.evaluation.structure import residual_structure

VIEWS, DETECTORS = 60, 80


def white(seed=0):
    return np.random.default_rng(seed).standard_normal((VIEWS, DETECTORS))


def correlated(amount, seed=0):
    """A stationary first-order process along the detectors."""
    z = white(seed)
    for d in range(1, DETECTORS):
        z[:, d] = amount * z[:, d - 1] + np.sqrt(1 - amount**2) * z[:, d]
    return z


def test_white_noise_has_no_structure_of_any_size():
    found = [residual_structure(scale * white(seed)) for seed, scale in enumerate([1e-3, 1, 50] * 30)]
    z = np.array([s.correlation / s.correlation_error for s in found])
    assert abs(z.mean()) < 4 / np.sqrt(90)
    assert z.std() == pytest.approx(1, abs=4 / np.sqrt(2 * 90))
    beyond = [s.drift**2 > 3 * s.drift_error**2 for s in found]
    assert sum(beyond) <= 3  # chi-square has a heavier tail than the 1 of 700 of a Gaussian


@pytest.mark.parametrize("amount", [0.2, 0.41, 0.6])
def test_correlated_neighbours_are_found_and_are_no_drift(amount):
    found = residual_structure(correlated(amount))
    assert found.correlation == pytest.approx(amount, abs=4 * found.correlation_error)
    assert found.drift < np.sqrt(3) * found.drift_error


@pytest.mark.parametrize("ends", [0.8, 2.0])
def test_a_drift_of_the_views_is_found(ends):
    drift = np.linspace(-ends, ends, VIEWS)[:, None]
    found = residual_structure(white() + drift)
    expected = np.sqrt(np.mean(drift**2) / (1 + np.mean(drift**2)))  # relative to all residuals
    assert found.drift == pytest.approx(expected, rel=0.15)
    assert found.drift > 2 * found.drift_error


def test_a_stripe_is_found_and_white_noise_has_none():
    found = [residual_structure(white(seed)) for seed in range(90)]
    assert sum(s.stripe > s.stripe_chance for s in found) <= 1  # 0.09 are expected
    striped = white()
    striped[:, 30] += 1.3
    found = residual_structure(striped)
    assert found.stripe == pytest.approx(1.3, abs=4 / np.sqrt(VIEWS))
    assert found.stripe > 2 * found.stripe_chance
    assert found.stripe_detector == 30
    assert found.drift < np.sqrt(3) * found.drift_error


def test_too_little_to_tell():
    assert residual_structure(np.ones((5, 1))) is None
    assert residual_structure(np.zeros((5, 4))) is None
