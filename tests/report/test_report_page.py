"""The page of one result: its verdicts, its data, and what it must never hold."""

import base64
import json
import re
from dataclasses import replace
from importlib.metadata import version
from importlib.resources import files

import numpy as np
import pytest

from ct_dip.cli.report import report
from ct_dip.data.comparison import Comparison
from ct_dip.data.prediction import Prediction, SinogramPredictive
from ct_dip.data.result_file import write_result
from ct_dip.errors import InputError, OutputError, ResultError
from ct_dip.evaluation.structure import Structure
from ct_dip.report import report_page as page
from ct_dip.report import verdicts


def synthetic_result(shape=(24, 24), *, truth=True, seed=3):
    """A disc whose error bars are right by construction: wide on the object, narrow beside it.

    Errors are independent draws of N(0, std²); the samples share a part of theirs, as neighbours do.
    """
    rng = np.random.default_rng(seed)
    rows, columns = shape
    y, x = np.mgrid[:rows, :columns]
    radius = np.hypot(y - (rows - 1) / 2, x - (columns - 1) / 2)
    disc = 0.02 * (radius < 0.3 * min(shape))
    edge = np.exp(-((radius - 0.3 * min(shape)) ** 2) / 2)
    std = (2e-4 + 2e-3 * edge).astype(np.float32)
    mean = (disc + std * rng.standard_normal(shape)).astype(np.float32)
    common, own = rng.standard_normal((50, 1, 1)), rng.standard_normal((50, *shape))
    fbp = (disc + 0.003 * rng.standard_normal(shape)).astype(np.float32)
    return Prediction(
        method="lin-dip",
        mean=mean,
        std=std,
        samples=(mean + std * (0.6 * common + 0.8 * own)).astype(np.float32),
        images={"fbp": fbp, "dip": mean + np.float32(1e-4)},
        sinogram=predictive(rng.standard_normal((8, 12))),
        comparison=Comparison(name="truth", image=disc.astype(np.float32)) if truth else None,
        pixel_size=0.5,
        scan_digest="0123456789abcdef" * 4,
        settings={"method": "lin-dip", "dip": {"channels": [32, 32], "max_steps": 2000}},
        diagnostics={
            "sinogram_chi2": 0.9,
            "effective_dimension": 10.0,
            "sigma_y": 0.1,
            "sigma_y_stated": 0.1,
            "seeds": {"run": 7},
        },
        seconds={"posterior": 0.5},
        versions={"numpy": np.__version__},
    )


def predictive(standardised):
    z = standardised.astype(np.float32)
    return SinogramPredictive(mean=np.zeros_like(z), std=np.ones_like(z), standardised=z)


def embedded(text):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])


def decoded(data, shape):
    return np.frombuffer(base64.b64decode(data), "<f4").reshape(shape)


# Verdicts

SILENT = np.zeros((20, 25))  # 500 measurements whose residuals have no structure that could be judged


def findings(diagnostics, residuals=None):
    sinogram = None if residuals is None else predictive(residuals)
    return verdicts.data_findings(
        Prediction(mean=np.zeros((4, 5)), sinogram=sinogram, diagnostics=diagnostics)
    )


def calibrated(covered, near=()):
    levels = (0.95,)
    return verdicts.Calibration(levels, [covered], list(near), 100, [(0.9, 1.0)], [(1.0, 1.0)], 4.0, 4.0)


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
    found = verdicts.coverage_verdict(calibrated(everywhere, [near]))
    assert (found.level, word in found.title) == (level, True)
    assert verdicts.percent(near) in found.text


def test_coverage_verdict_without_an_object_uses_all_pixels():
    assert verdicts.coverage_verdict(calibrated(0.7)).level == "poor"
    assert "near" not in verdicts.coverage_verdict(calibrated(0.7)).text


@pytest.mark.parametrize(
    ("leftover", "level"),
    [(1.0, "good"), (0.61, "good"), (0.59, "caution"), (1.29, "good"), (1.31, "caution"), (2.01, "poor")],
)
def test_sinogram_verdict(leftover, level):
    (found,) = findings({"sinogram_chi2": leftover}, SILENT)
    assert found.level == level
    # a fit of 100 directions of 500 measurements takes a fifth of the noise away
    (found,) = findings({"sinogram_chi2": 0.8 * leftover, "effective_dimension": 100.0}, SILENT)
    assert found.level == level


@pytest.mark.parametrize(
    ("correlation", "drift", "level", "word"),
    [
        (0.0, 0.0, "good", "Neither neighbouring"),
        (-0.3, 0.0, "good", "Neither neighbouring"),  # a fit leaves neighbours that alternate
        (0.19, 0.24, "good", "Neither neighbouring"),  # beyond chance, but small
        (0.41, 0.0, "caution", "correlate at 0.41, where noise alone gives 0 ± 0.02"),
        (0.7, 0.0, "poor", "correlate at 0.70"),
        (0.0, 0.5, "caution", "stray by 0.50 of the noise"),
        (0.0, 1.2, "poor", "stray by 1.20 of the noise"),
    ],
)
def test_structure_counts_as_well_as_size(monkeypatch, correlation, drift, level, word):
    structure = Structure(correlation, 0.02, drift, 0.1)
    monkeypatch.setattr(verdicts, "residual_structure", lambda _: structure)
    (found,) = findings({"sinogram_chi2": 1.0}, SILENT)
    assert found.level == level
    assert word in found.text
    assert (found.title == "The image explains the measurements") == (level == "good")
    (found,) = findings({"sinogram_chi2": 3.0}, SILENT)
    assert found.level == "poor"


def test_structure_within_chance_does_not_count(monkeypatch):
    """A tiny scan: 3 standard errors are more than what would matter."""
    monkeypatch.setattr(verdicts, "residual_structure", lambda _: Structure(0.29, 0.1, 0.34, 0.2))
    (found,) = findings({"sinogram_chi2": 1.0}, np.zeros((5, 10)))
    assert found.level == "good"


def test_the_page_shows_residuals_that_are_not_noise():
    result = synthetic_result(truth=False)
    white = np.random.default_rng(0).standard_normal((40, 60))
    smooth = (white[:, 1:] + white[:, :-1]) / np.sqrt(2)  # neighbours correlate at 0.5
    for residuals, title in ((white, "Nothing speaks against it"), (smooth, "With care")):
        text = page.render_report(replace(result, sinogram=predictive(residuals)))
        assert title in text
        shown = embedded(text)["residuals"]
        assert np.array_equal(decoded(shown["data"], shown["shape"]), residuals.astype(np.float32))
        assert 'id="residuals"' in text
    assert 'id="residuals"' not in page.render_report(replace(result, sinogram=None))


@pytest.mark.parametrize(
    ("stopped_by", "misfit", "said"),
    [("budget", 5.93, True), ("budget", 1.1, False), ("discrepancy", 5.93, False)],
)
def test_a_network_that_ran_out_of_steps_is_said(stopped_by, misfit, said):
    found = findings({"stopped_by": stopped_by, "misfit": misfit, "steps": 500})
    assert [finding.level for finding in found] == ["caution"] * said
    for finding in found:
        assert "was stopped by its budget of 500 steps at a misfit of 5.9" in finding.text
        assert "--preset thorough" in finding.text


def test_warnings_about_the_data_are_shown_and_make_the_verdict_careful():
    warnings = ["The sinogram has <b>negative</b> values.", "The object is cut by the field of view."]
    result = replace(synthetic_result(truth=False), warnings=tuple(warnings))
    told = verdicts.data_findings(result)
    shown = [f for f in told if f.title == "The data look implausible"]
    assert [f.text for f in shown] == warnings
    assert {f.level for f in shown} == {"caution"}
    found = verdicts.verdict(result, None, told)
    assert found.level == "caution"
    assert found.text.count("The data look implausible") == 1
    held = replace(
        calibrated(0.95), name="reference"
    )  # a reference may have the same flaw, the truth has not
    assert verdicts.verdict(result, held, told).level == "caution"
    assert verdicts.verdict(result, replace(held, name="truth"), told).level == "good"
    text = page.render_report(result)
    assert "negative&lt;/b&gt; values" in text
    assert "With care" in text


@pytest.mark.parametrize(
    ("ratio", "level"),
    [(1.0, "good"), (0.81, "good"), (0.79, "caution"), (1.24, "good"), (1.26, "caution"), (2.01, "poor")],
)
def test_noise_verdict(ratio, level):
    (found,) = findings({"sigma_y": ratio * 0.2, "sigma_y_stated": 0.2})
    assert found.level == level
    assert "states" in found.text
    diagnostics = {"sigma_y": ratio * 0.2, "sigma_y_stated": 0.2, "noise_estimated": True}
    assert "estimated from the data" in findings(diagnostics)[0].text


def test_missing_or_odd_numbers_are_not_judged():
    assert findings({}) == []
    odd = {"sinogram_chi2": float("nan"), "sigma_y": "a lot", "sigma_y_stated": 0.0}
    assert findings(odd, SILENT) == []
    assert findings({"sigma_y": 1.0, "sigma_y_stated": 0.0}, SILENT) == []


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
    checked = replace(calibrated(0.95), announced=announced, found=found)
    assert [finding.level for finding in verdicts.place_findings(checked)] == levels


def test_without_truth_the_worst_check_decides():
    result = synthetic_result(truth=False)

    def changed(**diagnostics):
        return verdicts.data_findings(replace(result, diagnostics=result.diagnostics | diagnostics))

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
    found = verdicts.calibration(result)
    # 3 standard errors of a share of 4096 independent pixels
    for level, share in zip(found.levels, found.everywhere, strict=True):
        assert share == pytest.approx(level, abs=3 * np.sqrt(level * (1 - level) / 4096) + 1e-9)
    assert verdicts.coverage_verdict(found).level == "good"
    assert found.announced > 2  # wide on the object's edge
    # a ratio of two root mean squares, each of a quarter of the pixels near the object
    assert found.found == pytest.approx(found.announced, rel=3 / np.sqrt(found.near_pixels / 4))
    shuffled = np.random.default_rng(0).permuted(result.std, axis=None).reshape(64, 64)
    assert verdicts.place_findings(verdicts.calibration(replace(result, std=shuffled)))[0].level == "caution"
    for std, error in found.error_bins:
        assert error == pytest.approx(std, rel=0.25)
    narrow = verdicts.calibration(replace(result, std=result.std / 2))
    assert verdicts.coverage_verdict(narrow).level == "poor"  # 67 % for a promise of 95 %
    assert narrow.at(0.95)[0] == pytest.approx(0.673, abs=0.03)


# The page


def test_the_page_holds_the_results_floats_bit_for_bit():
    result = synthetic_result((9, 12))
    data = embedded(page.render_report(result))
    assert data["shape"] == [9, 12]
    assert data["pixelSize"] == result.pixel_size
    images = {image["name"]: decoded(image["data"], (9, 12)) for image in data["images"]}
    assert list(images) == ["mean", "dip", "fbp", "truth", "std", "error"]
    for name in ("dip", "fbp"):
        assert np.array_equal(images[name], result.images[name])
    assert np.array_equal(images["truth"], result.comparison.image)
    assert np.array_equal(images["mean"], result.mean)
    assert np.array_equal(images["std"], result.std)
    np.testing.assert_allclose(images["error"], result.mean - result.comparison.image)
    samples = result.samples
    assert data["samples"]["count"] == data["samples"]["of"] == len(samples)
    assert np.array_equal(decoded(data["samples"]["data"], samples.shape), samples)


def test_samples_of_large_images_are_thinned_and_the_page_says_so(monkeypatch):
    result = synthetic_result((9, 12))
    monkeypatch.setattr(page, "SAMPLE_BYTES", 4 * 9 * 12 * 7 + 5)
    data = page.payload(result)
    assert (data["samples"]["count"], data["samples"]["of"]) == (7, 50)
    assert np.array_equal(decoded(data["samples"]["data"], (7, 9, 12)), result.samples[:7])


@pytest.mark.parametrize("count", [0, 1, 2])
def test_regions_with_an_interval_have_its_caveat(count):
    result = synthetic_result()
    text = page.render_report(replace(result, samples=result.samples[:count]))
    assert ("tend to be too narrow" in text) == (embedded(text)["samples"] is not None) == (count > 1)


def test_the_page_loads_nothing():
    text = page.render_report(synthetic_result(), source="scan.h5")
    # Not just "http": base64 may spell it.
    assert "http:" not in text
    assert "https:" not in text
    assert not re.search(r"<(img|iframe|object|embed|audio|video|base)\b", text)
    assert re.findall(r"<link [^>]*>", text) == ['<link rel="icon" href="data:,">']
    assert not re.search(r"<script[^>]*\bsrc=", text)
    assert not re.search(r"@import|url\(|\beval\(|new Function|fetch\(|XMLHttpRequest|innerHTML", text)
    assert "default-src 'none'" in text


def test_text_of_files_is_escaped():
    hostile = "</script><script>alert(1)</script><img src=x onerror='alert(2)'>\"&"
    result = replace(
        synthetic_result(),
        method=hostile,
        scan_digest=hostile,
        settings={hostile: {"a": hostile}, "list": [hostile]},
        diagnostics=synthetic_result().diagnostics | {"stopped_by": hostile, hostile: 1},
        warnings=(hostile,),
        seconds={hostile: 1.0},
        versions={hostile: hostile},
    )
    text = page.render_report(result, source=hostile)
    assert "alert(1)" in text  # shown as text
    assert "<script>alert" not in text
    assert "<img" not in text
    assert text.count("<script") == 2 == text.count("</script>")


def test_our_own_script_and_style_can_be_inlined():
    for name in ("report.js", "report.css"):
        text = files("ct_dip.report").joinpath(name).read_text(encoding="utf-8")
        assert "</s" not in text.lower()  # neither script nor style may end early
        assert "<!--" not in text


def test_settings_versions_seconds_and_digest_are_there():
    result = synthetic_result()
    text = page.render_report(result)
    for fact in (
        "dip.max_steps",
        "2000",
        "seeds.run",
        "7",
        "posterior",
        result.scan_digest,
        version("numpy"),
    ):
        assert fact in text
    assert "32, 32" in text
    long = page.render_report(replace(result, seconds={"posterior": 89160.0}))
    assert "24 h 46 min" in long
    assert "8.92e+04" not in long


def test_without_truth_there_is_no_calibration_section():
    text = page.render_report(synthetic_result(truth=False))
    assert "calibration-section" not in text
    assert "Nothing speaks against it" in text
    names = [image["name"] for image in embedded(text)["images"]]
    assert names == ["mean", "dip", "fbp", "std"]


def test_an_image_without_error_bars_has_a_page_too():
    image = np.linspace(0, 0.02, 30, dtype=np.float32).reshape(5, 6)
    text = page.render_report(Prediction(method="tv", mean=image, pixel_size=0.5, scan_digest="ab"))
    assert "total variation" in text
    assert "no error bars" in text
    assert 'id="threshold"' not in text
    assert embedded(text)["samples"] is None


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (5, 3)])
def test_constant_and_tiny_images(shape):
    zeros = np.zeros(shape, np.float32)
    truth = Comparison(name="truth", image=zeros)
    result = Prediction(method="lin-dip", mean=zeros, std=zeros, comparison=truth)
    data = embedded(page.render_report(result))
    assert data["threshold"]["low"] < data["threshold"]["start"] < data["threshold"]["high"]
    for image in data["images"]:
        assert image["low"] < image["high"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pixel_size": 0.0}, "pixel size"),
        ({"images": {"fbp": np.zeros((3, 3), np.float32)}}, "fbp has shape"),
        ({"samples": np.zeros((5, 3, 3), np.float32)}, "samples have shape"),
        ({"mean": np.full((24, 24), np.nan, np.float32)}, "not finite"),
        ({"std": np.full((24, 24), -1, np.float32)}, "negative"),
    ],
)
def test_a_result_that_does_not_fit_together_is_refused(tmp_path, change, words):
    with pytest.raises(ResultError, match=words):
        page.write_report(tmp_path / "r.html", replace(synthetic_result(), **change))
    assert list(tmp_path.iterdir()) == []


def test_percent_is_never_all_unless_it_is():
    shares = (0, 1e-4, 0.957, 0.99999, 1)
    shown = [verdicts.percent(share).replace("\N{NO-BREAK SPACE}", " ") for share in shares]
    assert shown == ["0 %", "under 0.1 %", "95.7 %", "over 99.9 %", "100 %"]


# The verb


def test_report_writes_a_page(tmp_path, capsys):
    write_result(tmp_path / "r.h5", synthetic_result())
    report(tmp_path / "r.h5", tmp_path / "deep" / "r.html")
    text = (tmp_path / "deep" / "r.html").read_text(encoding="utf-8")
    assert "r.h5" in text
    assert embedded(text) == embedded(page.render_report(synthetic_result()))
    assert "r.html" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["r.html"]


def test_the_same_result_gives_the_same_page(tmp_path):
    for name in "ab":
        page.write_report(tmp_path / name, synthetic_result(), source="x")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_bad_input_is_an_error_for_people(tmp_path):
    write_result(tmp_path / "r.h5", synthetic_result())
    whole = (tmp_path / "r.h5").read_bytes()
    (tmp_path / "damaged.h5").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.h5").write_text("no result")
    out = tmp_path / "r.html"
    for bad in ("damaged.h5", "text.h5", "absent.h5"):
        with pytest.raises(ResultError, match=bad):
            report(tmp_path / bad, out)
    with pytest.raises(InputError, match=r"ending \.html"):
        report(tmp_path / "r.h5", tmp_path / "r.h5")
    with pytest.raises(OutputError, match="cannot write"):
        report(tmp_path / "r.h5", tmp_path / "text.h5" / "r.html")
    (tmp_path / "same.html").write_bytes(whole)
    with pytest.raises(InputError, match="the result itself"):
        report(tmp_path / "same.html", tmp_path / "same.html")
    assert not out.exists()
    assert (tmp_path / "same.html").read_bytes() == (tmp_path / "r.h5").read_bytes() == whole
