import dataclasses
import math

import numpy as np
import pytest

from ct_dip.data.comparison import Comparison
from ct_dip.data.prediction import Prediction, SinogramPredictive
from ct_dip.errors import InputError
from ct_dip.pages.figures import png_bytes
from ct_dip.pages.inference_figures import (
    evidence_figure,
    hyperparameters_figure,
    panel_figure,
    samples_figure,
    sinogram_figure,
)

RNG = np.random.default_rng(0)
TRUTH = 0.02 * RNG.random((12, 16))
NOISY = {name: TRUTH + 1e-3 * RNG.normal(size=TRUTH.shape) for name in ("fbp", "dip", "mean")}
BLOCKS = {
    "log_variance.down0": -2.0,
    "log_variance.in": -4.0,
    "log_variance.out": -3.0,
    "log_variance.skip0": -1.0,
    "log_variance.up0": 0.0,
    "log_length.down0": 0.5,
    "log_length.in": 0.1,
    "log_length.up0": -0.3,
    "log_noise": 0.2,
}
RESULT = Prediction(
    method="lin-dip",
    mean=NOISY["mean"],
    std=np.full(TRUTH.shape, 1e-3),
    pixel_size=0.5,
    scan_digest="",
    diagnostics={"hyperparameters": {"log_noise": 0.02, "log_scale": 2.0}, "evidence_starts": [-9.0, -8.0]},
    traces={"evidence": np.array([-20.0, -11.0, -9.0, -8.0])},
    images={"fbp": NOISY["fbp"], "dip": NOISY["dip"]},
    comparison=Comparison(name="truth", image=TRUTH),
    samples=NOISY["mean"] + 1e-3 * RNG.normal(size=(6, *TRUTH.shape)),
    sinogram=SinogramPredictive(
        mean=np.zeros((9, 20)), std=np.ones((9, 20)), standardised=RNG.normal(size=(9, 20))
    ),
)
FIGURES = [panel_figure, samples_figure, evidence_figure, hyperparameters_figure, sinogram_figure]


def images(figure):
    """Axes that show an image, by title; colour bars have no title."""
    return {axis.get_title(): axis for axis in figure.axes if axis.images and axis.get_title()}


def labels(figure):
    return {axis.get_xlabel() for axis in figure.axes} | {axis.get_ylabel() for axis in figure.axes}


@pytest.mark.parametrize("make", FIGURES)
def test_figures_are_labelled_and_reproducible(make):
    figure = make(RESULT)
    assert labels(figure) - {""}
    assert figure.get_size_inches()[0] <= 8
    assert png_bytes(figure, dpi=50) == png_bytes(make(RESULT), dpi=50)


@pytest.mark.parametrize("make", FIGURES)
def test_a_result_without_inference_says_so(make):
    bare = Prediction(method="fbp", mean=TRUTH, pixel_size=1.0, scan_digest="")
    with pytest.raises(InputError, match=r"this fbp result has no .*; reconstruct with lin-dip"):
        make(bare)


def test_the_panel_shows_six_images_with_units():
    figure = panel_figure(RESULT)
    shown = images(figure)
    names = [title.partition(",")[0] for title in shown]
    assert names == ["FBP", "DIP", "posterior mean", "truth", "posterior mean − truth", "standard deviation"]
    grey = [axis.images[0].get_clim() for axis in list(shown.values())[:4]]
    assert set(grey) == {(TRUTH.min(), TRUTH.max())}
    np.testing.assert_array_equal(shown["posterior mean − truth"].images[0].get_array(), RESULT.mean - TRUTH)
    low, high = shown["posterior mean − truth"].images[0].get_clim()
    assert low == -high
    assert shown["truth"].images[0].get_extent() == [-4, 4, -3, 3]
    units = {"attenuation (1/mm)", "error (1/mm)", "standard deviation (1/mm)", "x (mm)", "y (mm)"}
    assert units <= labels(figure)


def test_without_a_truth_the_panel_has_neither_error_nor_psnr():
    assert list(images(panel_figure(dataclasses.replace(RESULT, comparison=None)))) == [
        "FBP",
        "DIP",
        "posterior mean",
        "standard deviation",
    ]


@pytest.mark.parametrize(
    ("pixel_size", "length"), [(0.5, 2), (1.0, 5), (10.0, 50), (0.013, 0.05), (0.1875, 1)]
)
def test_the_scale_bar_is_as_long_as_it_says(pixel_size, length):
    """At most a third of 16 pixels."""
    axis = panel_figure(dataclasses.replace(RESULT, pixel_size=pixel_size)).axes[0]
    assert np.ptp(axis.lines[0].get_xdata()) == pytest.approx(length)
    assert axis.texts[0].get_text() == f"{length:g} mm"
    assert axis.get_xlim() == pytest.approx((-8 * pixel_size, 8 * pixel_size))


def test_samples_stand_above_their_difference_from_the_mean():
    figure = samples_figure(RESULT, count=3)
    shown = [axis for axis in figure.axes if axis.images and axis.get_title()]
    assert [axis.get_title() for axis in shown] == ["sample 1", "sample 2", "sample 3"] + [
        "minus the mean"
    ] * 3
    samples = RESULT.samples
    np.testing.assert_array_equal(shown[1].images[0].get_array(), samples[1])
    np.testing.assert_array_equal(shown[4].images[0].get_array(), samples[1] - RESULT.mean)
    assert len({axis.images[0].get_clim() for axis in shown[3:]}) == 1
    assert len(samples_figure(RESULT, count=50).axes) == 2 * 6 + 2


def test_the_trace_of_the_evidence_counts_from_one():
    (axis,) = evidence_figure(RESULT).axes
    assert axis.lines[0].get_xdata().tolist() == [1, 2, 3, 4]
    assert axis.lines[0].get_ydata().tolist() == [-20, -11, -9, -8]
    assert [line.get_ydata()[0] for line in axis.lines[1:]] == [-9, -8]
    assert "differ by 1 nats" in axis.get_title()
    assert "nats" in axis.get_ylabel()


def dots(axis):
    names = [label.get_text() for label in axis.get_yticklabels()]
    return {
        names[int(line.get_ydata()[0])].partition("\n")[0]: float(line.get_xdata()[0])
        for line in axis.lines
        if line.get_marker() == "o"
    }


def test_variances_are_shown_by_their_roots():
    (axis,) = hyperparameters_figure(RESULT).axes
    assert dots(axis) == pytest.approx({"prior of the weights": math.exp(1), "noise": math.exp(0.01)})


def test_blocks_are_in_the_order_of_the_network():
    figure = hyperparameters_figure(dataclasses.replace(RESULT, diagnostics={"hyperparameters": BLOCKS}))
    variances, lengths, model = figure.axes
    order = [label.get_text() for label in variances.get_yticklabels()]
    assert order == ["in", "down0", "up0", "skip0", "out"]
    assert dots(variances)["skip0"] == pytest.approx(math.exp(-0.5))
    assert list(dots(model)) == ["noise"]
    assert lengths.get_xlabel() == "length (taps)"
    found = {int(line.get_ydata()[0]): float(line.get_xdata()[0]) for line in lengths.lines}
    assert found == pytest.approx({0: math.exp(0.1), 1: math.exp(0.5), 2: math.exp(-0.3)})


def test_residuals_of_the_sinogram_are_on_a_scale_around_zero():
    figure = sinogram_figure(RESULT)
    image, histogram, bar = figure.axes
    residuals = RESULT.sinogram.standardised
    np.testing.assert_array_equal(image.images[0].get_array(), residuals)
    assert image.images[0].get_clim() == (-4, 4)
    assert (image.get_xlabel(), image.get_ylabel()) == ("detector", "view")
    assert bar.get_ylabel() == histogram.get_xlabel() == "(measured − mean) / noise"
    assert f"{np.mean(residuals**2):.2f}" in histogram.get_title()
