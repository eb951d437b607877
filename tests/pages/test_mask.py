"""Pixels outside of a scan's mask are in no comparison of the page or of its figures."""

import dataclasses

import numpy as np
import pytest

from ct_dip.data.comparison import Comparison
from ct_dip.data.prediction import Prediction
from ct_dip.evaluation.score import scores_of
from ct_dip.pages.all_figures import result_panel
from ct_dip.pages.calibration_figures import calibration_figure
from ct_dip.pages.certainty import certainty
from ct_dip.pages.inference_figures import panel_figure, samples_figure
from ct_dip.pages.report_page import payload
from ct_dip.pages.verdicts import coverage_verdict


@pytest.fixture
def result():
    generator = np.random.default_rng(0)
    mean = np.zeros((20, 20), dtype=np.float32)
    mean[5:15, 5:15] = 0.02
    std = np.full_like(mean, 1e-3)
    reference = mean + std * generator.standard_normal(mean.shape).astype(np.float32)
    reference[:, :4] = 0.01  # what no view saw
    mask = np.ones(mean.shape, dtype=bool)
    mask[:, :4] = False
    return Prediction(
        method="lin-dip",
        mean=mean,
        std=std,
        comparison=Comparison(name="reference", image=reference),
        mask=mask,
    )


def test_verdicts_look_inside_of_the_mask(result):
    assert scores_of(result).coverage(0.95).value > 0.92
    assert scores_of(dataclasses.replace(result, mask=None)).coverage(0.95).value < 0.8


def test_figures_do(result):
    labels = [text.get_text() for text in calibration_figure(result).legends[0].get_texts()]
    assert any("(320)" in label for label in labels)


def test_differences_are_shown_inside_of_the_mask(result):
    result.images["fbp"] = result.images["dip"] = result.mean
    for figure, name in ((panel_figure, "posterior mean − reference"), (result_panel, "LIN-DIP − reference")):
        (axis,) = (axis for axis in figure(result).axes if axis.get_title() == name)
        shown = np.asarray(axis.images[0].get_array())
        assert np.isnan(np.asarray(shown, dtype=float)[:, :4]).all()
        assert shown[:, 4:].all()
        assert max(axis.get_facecolor()[:3]) < 0.3  # what no view saw must not look dense
        assert axis.images[0].norm.vmax < 5e-3  # the scale follows what is shown
    (page,) = (image for image in payload(result)["images"] if image["name"] == "difference")
    assert page["high"] < 5e-3


def test_the_picture_says_whose_image_it_shows(result):
    def titles():
        return [axis.get_title() for axis in result_panel(result).axes]

    assert any(title.startswith("LIN-DIP") for title in titles())
    result.settings["inference"] = {"image": "tv"}
    assert any(title.startswith("TV image of LIN-DIP") for title in titles())


def test_what_no_view_saw_sets_no_scale(result):
    """Not of the pictures, not of the page, and not of what the page says about certainty."""
    result.mean[:, :4], result.std[:, :4] = 5.0, 1.0
    assert certainty(result)["range"] < 0.03
    assert certainty(result)["wide"] < 0.01
    result.images["fbp"] = result.images["dip"] = result.mean
    samples = np.stack([result.mean + result.std, result.mean - result.std])
    result = dataclasses.replace(result, samples=samples)
    for figure in (panel_figure, result_panel, samples_figure):
        for axis in figure(result).axes:
            assert all(image.norm.vmax < 0.1 for image in axis.images)
    page = payload(result)
    assert all(image["high"] < 0.1 for image in page["images"])
    assert page["mask"] is not None


def test_the_noise_of_a_reference_in_the_background_decides_nothing(result):
    """Unless it was stated: then it is part of the error bars there."""
    noise = 5e-3 * np.random.default_rng(1).standard_normal(result.mean.shape)
    background = np.ones((20, 20), dtype=bool)
    background[4:16, 4:16] = False  # the object, and what is next to it
    reference = result.comparison.image + np.where(background, noise, 0.0).astype(np.float32)
    noisy = dataclasses.replace(result, comparison=Comparison(name="reference", image=reference))
    found = scores_of(noisy)
    assert found.coverage(0.95).value < 0.8 < 0.85 < found.coverage(0.95, "near").value
    assert coverage_verdict(found).level != "poor"
    stated = dataclasses.replace(found, noise_std=1e-6)
    assert coverage_verdict(stated).level == "poor"
