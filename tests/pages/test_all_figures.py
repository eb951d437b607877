"""All figures of a result: those that it allows, and none that fails."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from ct_dip.data.comparison import Comparison
from ct_dip.data.prediction import Prediction
from ct_dip.errors import ResultError
from ct_dip.evaluation.near import near_object
from ct_dip.evaluation.score import scores_of
from ct_dip.pages import report_page
from ct_dip.pages.all_figures import FIGURES, figures
from ct_dip.pages.verdicts import coverage_verdict
from tests.pages.test_report_page import embedded, synthetic_result


def whole_result():
    """With everything that any figure asks for."""
    result = synthetic_result()
    diagnostics = result.diagnostics | {
        "evidence_starts": [12.0, None],  # a start that failed
        "hyperparameters": {
            "log_scale": 0.5,
            "log_noise": -0.1,
            "log_variance.in": 1.0,
            "log_length.in": 0.1,
        },
    }
    return replace(result, diagnostics=diagnostics, traces={"evidence": np.array([1.0, 12.0])})


def against_reference(noise_std=0.0, seed=1):
    """The same with a noisy reference for the truth."""
    result = whole_result()
    noise = noise_std * np.random.default_rng(seed).standard_normal(result.mean.shape)
    image = (result.comparison.image + noise).astype(np.float32)
    return replace(result, comparison=Comparison(name="reference", image=image, noise_std=noise_std))


def texts(figure):
    figure.draw_without_rendering()
    return " | ".join(text.get_text() for text in figure.findobj(lambda part: hasattr(part, "get_text")))


def test_a_whole_result_has_all_of_them(tmp_path):
    assert list(figures(whole_result(), tmp_path / "figures")) == list(FIGURES)
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == sorted(
        f"{name}.png" for name in FIGURES
    )
    for path in (tmp_path / "figures").iterdir():
        with Image.open(path) as picture:
            assert picture.size[0] >= 640


@pytest.mark.parametrize(
    ("lacking", "names"),
    [
        ({"samples": None}, set(FIGURES) - {"samples"}),
        ({"comparison": None}, {"image", "panel", "samples", "sinogram", "evidence", "hyperparameters"}),
        ({"images": {"dip": whole_result().images["dip"]}}, set(FIGURES) - {"panel"}),
    ],
)
def test_what_is_lacking_is_left_out(lacking, names):
    assert set(figures(replace(whole_result(), **lacking))) == names


def test_an_image_alone_has_one_figure():
    image = np.linspace(0, 0.02, 30, dtype=np.float32).reshape(5, 6)
    assert list(figures(Prediction(method="tv", mean=image, pixel_size=0.5, scan_digest=""))) == ["image"]


@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_a_reference_is_never_called_truth_in_figures(noise):
    drawn = figures(against_reference(noise))
    assert list(drawn) == list(FIGURES)
    named = 0
    for name, figure in drawn.items():
        text = texts(figure)
        assert "truth" not in text, name
        named += "reference" in text
    assert named >= 7
    assert ("√(std² + noise²)" in texts(drawn["quantiles"])) == (noise > 0)


@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_a_reference_is_never_called_truth_on_the_page(noise):
    text = report_page.render_report(against_reference(noise))
    assert "truth" not in text.split('<script type="application/json"')[0]
    assert "The true object is known" not in text
    assert "reference image stands in" in text
    assert ("which is added to the error bars" in text) == (noise > 0)
    assert ("were not stated" in text) == (noise == 0)
    images = {image["name"]: image for image in embedded(text)["images"]}
    assert {"reference", "difference"} <= set(images)
    assert not {"truth", "error"} & set(images)


def test_the_verdict_counts_the_noise_of_the_reference():
    """Error bars that are right are called so against a noisy reference only if its noise is stated."""
    right = against_reference(2e-3)
    assert coverage_verdict(scores_of(right)).level == "good"
    silent = replace(right, comparison=replace(right.comparison, noise_std=0.0))
    assert coverage_verdict(scores_of(silent)).level == "poor"


def test_the_object_is_found_where_the_image_shows_it():
    """The reference is noise where nothing is; a posterior mean is smooth there."""
    noisy, disc = against_reference(2e-3), whole_result().comparison.image
    assert near_object(noisy.comparison.image).all()
    assert scores_of(replace(noisy, mean=disc)).parts["near"].pixels == near_object(disc).sum()


def test_a_reference_of_another_shape_is_refused():
    result = against_reference()
    small = replace(result.comparison, image=np.zeros((3, 3), np.float32))
    with pytest.raises(ResultError, match="reference has shape"):
        report_page.render_report(replace(result, comparison=small))
