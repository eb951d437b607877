"""Should I believe it? By what is known of the object, by held-out views, by the worst check."""

from dataclasses import replace

import numpy as np
import pytest

from ct_dip.data.scores import LEVELS, HeldoutScores, Mean, PartScores, Scores, WidthScore
from ct_dip.evaluation.score import scores_of
from ct_dip.pages import report_page as page
from ct_dip.pages import verdicts
from ct_dip.pages.finding import percent
from ct_dip.pages.findings import data_findings
from tests.pages.test_report_page import synthetic_result


def known(everywhere, near=None, *, announced=4.0, found=4.0, compared_with="truth", noise_std=0.0):
    """Scores with a coverage of 95 % intervals; without ``near`` no pixel is near the object."""
    shares = {"all": everywhere} | ({} if near is None else {"near": near})
    parts = {
        name: PartScores(
            pixels=100,
            mae=Mean(1.0, None, 100),
            rmse=Mean(1.0, None, 100),
            coverage={0.95: Mean(share, None, 100)},
            narrowest=WidthScore(1.0, 1.0 if np.isfinite(found) else 0.0),
            widest=WidthScore(announced, found if np.isfinite(found) else 1.0),
        )
        for name, share in shares.items()
    }
    return Scores(compared_with=compared_with, noise_std=noise_std, value_range=1.0, parts=parts)


def kept_back(rms_z, error=0.01, *, covered=0.95, error_bars=True, misfit=1.3):
    return HeldoutScores(
        folds=5,
        held=1,
        views=6,
        measurements=342,
        error_bars=error_bars,
        log_density=Mean(1.5, 0.1, 342),
        coverage={level: Mean(covered, 0.01, 342) for level in LEVELS},
        rms_z=Mean(rms_z, error, 342),
        rms_z_smoothed=Mean(1.0, 0.1, 300),
        misfit=Mean(misfit, 0.2, 342),
    )


@pytest.mark.parametrize(
    ("everywhere", "near", "level", "word"),
    [
        (0.95, 0.95, "good", "hold"),
        (0.96, 0.90, "good", "hold"),
        (0.97, 0.899, "caution", "somewhat too narrow"),
        (0.899, 0.95, "caution", "somewhat too narrow"),
        (0.97, 0.80, "caution", "somewhat too narrow"),
        (0.97, 0.799, "poor", "much too narrow"),
        (0.995, 0.991, "good", "wider than needed"),
        (0.999, 0.95, "good", "hold"),  # the background does not make it too wide
    ],
)
def test_coverage_verdict(everywhere, near, level, word):
    found = verdicts.coverage_verdict(known(everywhere, near))
    assert (found.level, word in found.title) == (level, True)
    assert percent(near) in found.text


def test_coverage_verdict_without_an_object_uses_all_pixels():
    assert verdicts.coverage_verdict(known(0.7)).level == "poor"
    assert "near" not in verdicts.coverage_verdict(known(0.7)).text


@pytest.mark.parametrize("pixels", [19, 20])
def test_too_few_pixels_near_the_object_decide_nothing(pixels):
    scores = known(0.95, 0.5)
    scores = replace(scores, parts=scores.parts | {"near": replace(scores.parts["near"], pixels=pixels)})
    assert verdicts.coverage_verdict(scores).level == ("good" if pixels < 20 else "poor")


@pytest.mark.parametrize(
    ("announced", "found", "levels"),
    [
        (4.0, 4.0, ["good"]),
        (4.0, 2.01, ["good"]),
        (4.0, 1.99, ["caution"]),  # half of the way from 1, where errors ignore the error bars, to 4
        (1.5, 1.3, ["good"]),
        (100.0, 2.0, ["caution"]),
        (4.0, float("inf"), ["good"]),
        (1.19, 1.0, []),  # error bars that are the same everywhere promise no place
    ],
)
def test_verdict_on_the_place_of_errors(announced, found, levels):
    checked = known(0.95, announced=announced, found=found)
    assert [finding.level for finding in verdicts.place_findings(checked)] == levels


@pytest.mark.parametrize(
    ("rms_z", "error", "level", "words"),
    [
        (1.0, 0.02, "good", "hold"),
        (1.2, 0.02, "good", "hold"),
        (1.25, 0.02, "caution", "somewhat too narrow"),
        (1.25, 0.03, "good", "hold"),  # 1.2 is within two standard errors
        (1.25, None, "caution", "somewhat too narrow"),  # of one view there is none
        (1.35, 0.02, "caution", "somewhat too narrow"),
        (1.36, 0.02, "poor", "are too narrow"),
        (1.6, 0.25, "caution", "somewhat too narrow"),  # chance forgives one level, not two
        (0.71, 0.02, "good", "hold"),
        (0.69, 0.02, "good", "wider than needed"),
    ],
)
def test_views_that_were_kept_back_decide_without_a_truth(rms_z, error, level, words):
    heldout = kept_back(rms_z, error, covered=0.944)
    found = verdicts.heldout_finding(heldout)
    assert (found.level, words in found.title) == (level, True)
    assert "342 measurements from 6 views were held out" in found.text
    assert f"{percent(0.944)} (± {percent(0.01)}) of them lie inside their 95 % intervals" in found.text
    assert ("±" in found.text.split("predict are")[1]) == (error is not None)
    result = replace(synthetic_result(truth=False), heldout=heldout)
    told = verdicts.verdict(result, None, data_findings(result))
    assert (told.level, words in told.title) == (level, True)
    assert found.text in told.text
    assert "What no view shows cannot be checked" in told.text


def test_levels_of_held_out_views_are_those_of_the_pixels_of_the_prototypes():
    """Held-out residuals say of five runs what coverage near the object says, or one level less."""
    order = ["good", "caution", "poor"]
    for near, rms_z in ((0.97, 0.96), (0.944, 1.03), (0.933, 1.15), (0.933, 1.21), (0.822, 1.44)):
        by_pixels = order.index(verdicts.coverage_verdict(known(near, near)).level)
        assert order.index(verdicts.heldout_finding(kept_back(rms_z)).level) - by_pixels in (0, 1)


def test_only_grave_doubts_make_a_good_verdict_of_held_out_views_careful():
    result = replace(synthetic_result(truth=False), heldout=kept_back(1.0), warnings=("Odd.",))
    told = verdicts.verdict(result, None, data_findings(result))
    assert (told.level, told.title) == ("caution", "With care")
    assert told.text.startswith("The data look implausible. But the error bars hold for held-out views")
    noisy = replace(result, warnings=(), diagnostics=result.diagnostics | {"sinogram_chi2": 3.0})
    assert max(finding.level == "poor" for finding in data_findings(noisy))
    assert verdicts.verdict(noisy, None, data_findings(noisy)).level == "caution"
    odd = replace(result, warnings=(), diagnostics=result.diagnostics | {"sinogram_chi2": 1.5})
    assert "caution" in {finding.level for finding in data_findings(odd)}
    told = verdicts.verdict(odd, None, data_findings(odd))
    assert told.level == "good"
    assert "Also noticed: the image explains the measurements only partly. That affects" in told.text
    arc = replace(result, warnings=(), diagnostics=result.diagnostics | {"misses_directions": True})
    told = verdicts.verdict(arc, None, data_findings(arc))
    assert told.level == "caution"
    assert told.text.startswith("Some directions were not measured. But the error bars hold for held-out")
    poor = replace(noisy, heldout=kept_back(1.6))
    told = verdicts.verdict(poor, None, data_findings(poor))
    assert (told.level, told.title) == (
        "poor",
        "No: the error bars are too narrow for held-out views",
    )


def test_the_truth_outranks_held_out_views():
    result = replace(synthetic_result(), heldout=kept_back(1.6))
    assert verdicts.verdict(result, known(0.95, 0.95), []).level == "good"
    text = page.render_report(result)
    assert text.count("342 measurements from 6 views were held out") == 1  # among the checks
    blind = page.render_report(replace(result, comparison=None))
    assert blind.count("342 measurements from 6 views were held out") == 2  # and in the verdict


def test_without_error_bars_only_the_misfit_of_held_out_views_is_said():
    heldout = kept_back(1.9, error_bars=False)
    found = verdicts.heldout_finding(heldout)
    assert found.level == "unknown"
    assert "1.30 ± 0.20 times" in found.text
    assert "interval" not in found.text
    result = replace(
        synthetic_result(truth=False), heldout=heldout
    )  # deviations, and no samples to predict with
    assert verdicts.verdict(result, None, data_findings(result)).title == "Nothing speaks against it"
    image = replace(result, std=None, samples=None)
    assert verdicts.verdict(image, None, data_findings(image)).level == "unknown"
    assert found.text in page.render_report(image)


def test_warnings_about_the_data_are_shown_and_make_the_verdict_careful():
    warnings = ["The sinogram has <b>negative</b> values.", "The object is cut by the field of view."]
    result = replace(synthetic_result(truth=False), warnings=tuple(warnings))
    told = data_findings(result)
    shown = [f for f in told if f.title == "The data look implausible"]
    assert [f.text for f in shown] == warnings
    assert {f.level for f in shown} == {"caution"}
    found = verdicts.verdict(result, None, told)
    assert found.level == "caution"
    assert found.text.count("The data look implausible") == 1
    # a reference may have the same flaw, the truth has not
    assert verdicts.verdict(result, known(0.95, compared_with="reference"), told).level == "caution"
    assert verdicts.verdict(result, known(0.95), told).level == "good"
    text = page.render_report(result)
    assert "negative&lt;/b&gt; values" in text
    assert "With care" in text


def test_without_truth_the_worst_check_decides():
    result = synthetic_result(truth=False)

    def changed(**diagnostics):
        return data_findings(replace(result, diagnostics=result.diagnostics | diagnostics))

    found = {
        word: verdicts.verdict(result, None, changed(**change))
        for word, change in {
            "Nothing speaks against it": {},
            "With care": {"sigma_y": 0.15},
            "No": {"sigma_y": 0.15, "sinogram_chi2": 3.0},
        }.items()
    }
    assert [finding.title for finding in found.values()] == list(found)
    assert [finding.level for finding in found.values()] == ["good", "caution", "poor"]
    assert "does not explain" in found["No"].text
    assert "true object is not known" in found["Nothing speaks against it"].text
    assert verdicts.verdict(result, None, []).level == "unknown"
    unconverged = changed(evidence_converged=False)
    assert verdicts.verdict(result, None, unconverged).level == "caution"


def test_error_bars_of_the_right_size_are_found_right_and_half_as_wide_are_not():
    result = synthetic_result((64, 64))
    found = scores_of(result)
    # 3 standard errors of a share of 4096 independent pixels
    for level in LEVELS:
        error = 3 * np.sqrt(level * (1 - level) / 4096)
        assert found.coverage(level).value == pytest.approx(level, abs=error)
    assert verdicts.coverage_verdict(found).level == "good"
    near = found.parts["near"]
    announced, actual = (
        widest / narrowest for widest, narrowest in zip(near.widest, near.narrowest, strict=True)
    )
    assert announced > 2  # wide on the object's edge
    # a ratio of two root mean squares, each of a quarter of the pixels near the object
    assert actual == pytest.approx(announced, rel=3 / np.sqrt(near.pixels / 4))
    assert verdicts.place_findings(found)[0].level == "good"
    shuffled = np.random.default_rng(0).permuted(result.std, axis=None).reshape(64, 64)
    assert verdicts.place_findings(scores_of(replace(result, std=shuffled)))[0].level == "caution"
    narrow = scores_of(replace(result, std=result.std / 2))
    assert verdicts.coverage_verdict(narrow).level == "poor"  # 67 % for a promise of 95 %
    assert narrow.coverage(0.95).value == pytest.approx(0.673, abs=0.03)
