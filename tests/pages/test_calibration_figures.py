import dataclasses

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from ct_dip.data.comparison import Comparison
from ct_dip.data.prediction import Prediction
from ct_dip.errors import InputError
from ct_dip.evaluation.coverage import CURVE_LEVELS, coverage
from ct_dip.evaluation.near import near_object
from ct_dip.evaluation.sparsification import sparsification
from ct_dip.pages.calibration_figures import (
    calibration_figure,
    quantile_figure,
    residual_figure,
    sparsification_figure,
    std_error_figure,
)
from ct_dip.pages.figures import png_bytes

FIGURES = [calibration_figure, std_error_figure, residual_figure, quantile_figure, sparsification_figure]


def make_result(samples=60):
    """A disc, with errors that are as the standard deviations say."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:24, :30] - 12
    truth = np.where(np.hypot(rows, columns) < 7, 0.02, 0.0)
    std = 1e-5 + 1e-3 * gaussian_filter((truth > 0).astype(float), 1)
    mean = truth - std * rng.normal(size=truth.shape)
    drawn = mean + std * rng.normal(size=(samples, *truth.shape))
    return Prediction(
        method="lin-dip",
        mean=mean,
        std=std,
        samples=drawn if samples else None,
        pixel_size=0.5,
        comparison=Comparison(name="truth", image=truth),
    )


RESULT = make_result()
IMAGES = RESULT.comparison.image, RESULT.mean, RESULT.std
NEAR = near_object(RESULT.comparison.image)


def lines(axis):
    return {line.get_label().partition(" (")[0]: line for line in axis.lines}


def legend(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


@pytest.mark.parametrize("make", FIGURES)
def test_axes_are_labelled_and_pictures_reproducible(make):
    figure = make(RESULT)
    assert all(axis.get_xlabel() or axis.get_ylabel() for axis in figure.axes)
    assert figure.axes[0].get_xlabel()
    assert figure.axes[0].get_ylabel()
    assert legend(figure)
    assert figure.get_size_inches()[0] <= 8
    assert png_bytes(figure, dpi=50) == png_bytes(make(RESULT), dpi=50)


@pytest.mark.parametrize("make", FIGURES)
def test_a_truth_and_error_bars_are_needed(make):
    with pytest.raises(InputError, match="no truth"):
        make(dataclasses.replace(RESULT, comparison=None))
    with pytest.raises(InputError, match="no standard deviations"):
        make(dataclasses.replace(RESULT, std=None))


@pytest.mark.parametrize("make", FIGURES)
def test_an_object_that_is_everywhere_or_nowhere_is_no_region(make):
    flat = Comparison(name="truth", image=np.full_like(RESULT.mean, 0.01))
    figure = make(dataclasses.replace(RESULT, comparison=flat))
    assert not any("near" in text for text in legend(figure))


def test_calibration_shows_the_coverage_of_both_regions():
    (axis,) = calibration_figure(RESULT).axes
    curves = lines(axis)
    np.testing.assert_array_equal(curves["all pixels"].get_xdata(), CURVE_LEVELS)
    np.testing.assert_array_equal(curves["all pixels"].get_ydata(), coverage(*IMAGES))
    near = curves["inside or near the object"]
    np.testing.assert_array_equal(near.get_ydata(), coverage(*IMAGES, mask=NEAR))
    assert f"({NEAR.sum()})" in near.get_label()
    assert len(axis.collections) == 2  # a band for each


@pytest.mark.parametrize("make", [calibration_figure, quantile_figure])
def test_the_legend_says_where_a_band_comes_from(make):
    def bands(samples):
        return [text for text in legend(make(make_result(samples))) if text.startswith("shaded")]

    assert bands(60) == ["shaded: 95 % of calibrated models, from posterior samples"]
    assert bands(0) == bands(10) == ["shaded: 95 % of calibrated models, as if pixels were independent"]


def test_errors_that_fit_lie_near_the_calibrated_line():
    axis, bar = std_error_figure(RESULT).axes
    assert axis.get_xlabel() == "standard deviation (1/mm)"
    assert axis.get_ylabel() == "absolute error (1/mm)"
    assert bar.get_ylabel() == "pixels"
    line = next(line for line in axis.lines if "0.80" in line.get_label())
    np.testing.assert_allclose(line.get_ydata() / line.get_xdata(), np.sqrt(2 / np.pi))
    binned = axis.containers[0].lines[0]
    # 60 pixels a bin: a mean absolute error is known to 0.76/√60, about a tenth
    np.testing.assert_allclose(binned.get_ydata() / binned.get_xdata(), np.sqrt(2 / np.pi), rtol=0.45)


@pytest.mark.parametrize("make", FIGURES)
def test_pixels_may_be_certain_but_not_all(make):
    std = RESULT.std.copy()
    std[:3] = 0
    png_bytes(make(dataclasses.replace(RESULT, std=std)), dpi=50)
    with pytest.raises(InputError, match="every standard deviation is 0"):
        make(dataclasses.replace(RESULT, std=np.zeros_like(RESULT.mean)))


def test_residuals_have_a_bulk_and_tails():
    linear, logarithmic = residual_figure(RESULT).axes
    assert linear.get_yscale() == "linear"
    assert logarithmic.get_yscale() == "log"
    for axis in (linear, logarithmic):
        for stairs in axis.patches:
            density, edges, _ = stairs.get_data()
            assert (density * np.diff(edges)).sum() == pytest.approx(1, abs=0.01)
        assert "N(0, 1)" in lines(axis)


def test_quantiles_are_in_order_and_close_to_normal():
    (axis,) = quantile_figure(RESULT).axes
    points = lines(axis)["all pixels"]
    assert np.all(np.diff(points.get_ydata()) >= 0)
    middle = np.abs(points.get_xdata()) < 1
    np.testing.assert_allclose(points.get_ydata()[middle], points.get_xdata()[middle], atol=0.2)


def test_sparsification_shows_both_regions_with_their_oracles():
    figure = sparsification_figure(RESULT)
    for axis, mask in zip(figure.axes, [None, NEAR], strict=True):
        expected = sparsification(*IMAGES, mask=mask)
        curves = lines(axis)
        np.testing.assert_array_equal(curves["most uncertain first"].get_ydata(), expected.error)
        np.testing.assert_array_equal(curves["oracle: largest error first"].get_ydata(), expected.oracle)
        assert f"AUSE {expected.ause:.2f}" in axis.get_title()
