"""Error bars that are too narrow by a known factor are widened by that factor."""

import numpy as np
import pytest

from ct_dip.evaluation.heldout import ViewResiduals, heldout_scores, predicts_better
from ct_dip.evaluation.widening import fit_widening

VIEWS, DETECTORS, SAMPLES = 40, 50, 400


def residuals(factor, seed=0, noise=0.3):
    """Errors of variance ``factor · s² + noise²`` around samples of variance s²."""
    rng = np.random.default_rng(seed)
    signal = rng.uniform(0.2, 2, (VIEWS, DETECTORS))
    error = np.sqrt(factor * signal**2 + noise**2) * rng.standard_normal((VIEWS, DETECTORS))
    variance = np.full((VIEWS, DETECTORS), noise**2)
    return ViewResiduals(
        error=error,
        spread=signal * rng.standard_normal((SAMPLES, VIEWS, DETECTORS)),
        noise=variance,
        fitted_noise=variance,
        views=np.arange(VIEWS),
        error_bars=True,
    )


@pytest.mark.parametrize("factor", [0.6, 1.0, 4.0, 60.0])
def test_the_factor_is_found(factor):
    """2,000 rays know it within about √(2/2000), 3 %; 10 % is more than three standard errors."""
    found = fit_widening([residuals(factor)])
    assert found == pytest.approx(factor, rel=0.1)
    widened = residuals(factor).widened(found)
    assert heldout_scores([widened]).rms_z.value == pytest.approx(1, abs=0.05)
    assert fit_widening([widened]) == pytest.approx(1, rel=1e-3)


def test_the_factor_stays_in_its_range():
    assert fit_widening([residuals(0.01)]) == pytest.approx(np.exp(-1), rel=1e-3)
    assert fit_widening([residuals(1e5)]) == pytest.approx(np.exp(6), rel=1e-3)


def test_parts_are_taken_together():
    parts = [residuals(4.0, seed) for seed in range(3)]
    each = [fit_widening([part]) for part in parts]
    assert min(each) < fit_widening(parts) < max(each)


def test_the_better_image_is_known_by_more_than_chance():
    first = residuals(1.0)
    assert predicts_better(first, first._replace(error=1.5 * first.error))
    assert not predicts_better(first._replace(error=1.5 * first.error), first)
    assert not predicts_better(first, first)
    # An error that all detectors share is hardly an error of the image.
    coarse = first._replace(error=first.error + 3.0)
    assert heldout_scores([coarse]).misfit.value > 5 * heldout_scores([first]).misfit.value
    fine = first._replace(error=first.error + 3.0 * (-1.0) ** np.arange(DETECTORS))
    assert predicts_better(coarse, fine)
