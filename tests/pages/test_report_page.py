"""The page of one result: its data, its tables, and what it must never hold."""

import base64
import json
import re
import zlib
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
from ct_dip.pages import report_page as page


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
    planes = np.frombuffer(zlib.decompress(base64.b64decode(data)), np.uint8).reshape(4, -1)
    return np.ascontiguousarray(planes.T).view("<f4").reshape(shape)


def decoded_steps(packed, shape):
    return packed["step"] * np.frombuffer(zlib.decompress(base64.b64decode(packed["data"])), np.int8).reshape(
        shape
    )


# The page


def test_the_page_shows_residuals_that_are_not_noise():
    result = synthetic_result(truth=False)
    white = np.random.default_rng(0).standard_normal((40, 60))
    smooth = (white[:, 1:] + white[:, :-1]) / np.sqrt(2)  # neighbours correlate at 0.5
    for residuals, title in ((white, "Nothing speaks against it"), (smooth, "With care")):
        text = page.render_report(replace(result, sinogram=predictive(residuals)))
        assert title in text
        shown = embedded(text)["sinogram"]
        packed = decoded_steps(shown["residuals"], shown["shape"])
        np.testing.assert_allclose(packed, residuals, atol=0.51 * shown["residuals"]["step"])
        assert shown["residuals"]["step"] == 1 / 16
        assert 'id="residuals"' in text
    assert 'id="residuals"' not in page.render_report(replace(result, sinogram=None))


def test_the_page_holds_the_results_floats_bit_for_bit():
    result = synthetic_result((9, 12))
    data = embedded(page.render_report(result))
    assert data["shape"] == [9, 12]
    assert data["pixelSize"] == result.pixel_size
    assert [image["name"] for image in data["images"]] == ["mean", "dip", "fbp", "truth", "std", "error"]
    assert data["images"][-1]["data"] is None  # the script subtracts the truth from the mean
    images = {image["name"]: decoded(image["data"], (9, 12)) for image in data["images"][:-1]}
    for name in ("dip", "fbp"):
        assert np.array_equal(images[name], result.images[name])
    assert np.array_equal(images["truth"], result.comparison.image)
    assert np.array_equal(images["mean"], result.mean)
    assert np.array_equal(images["std"], result.std)
    samples = result.samples
    assert data["samples"]["count"] == data["samples"]["of"] == len(samples)
    z = decoded_steps(data["samples"], samples.shape)
    step = data["samples"]["step"]
    assert step == 1 / 16
    assert np.abs((samples - result.mean) / result.std - z).max() <= 0.51 * step


def test_a_page_of_256_pixels_and_100_samples_is_below_8_mb():
    result = synthetic_result((256, 256))
    drawn = np.random.default_rng(0).standard_normal(
        (100, 256, 256), dtype=np.float32
    )  # the hardest to deflate
    images = dict.fromkeys(("fbp", "dip", "tv", "linear"), result.images["fbp"])
    text = page.render_report(
        replace(
            result,
            samples=result.mean + result.std * drawn,
            images=images,
            sinogram=predictive(drawn[:3].reshape(384, -1)),
        )
    )
    assert len(text.encode()) < 8e6
    assert embedded(text)["samples"]["count"] == 64


def test_samples_of_large_images_are_thinned_and_the_page_says_so(monkeypatch):
    result = synthetic_result((9, 12))
    monkeypatch.setattr(page, "SAMPLE_PIXELS", 9 * 12 * 7 + 5)
    data = page.payload(result)
    assert (data["samples"]["count"], data["samples"]["of"]) == (7, 50)
    assert decoded_steps(data["samples"], (7, 9, 12)).shape == (7, 9, 12)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_regions_with_an_interval_have_its_caveat(count):
    result = synthetic_result()
    text = page.render_report(replace(result, samples=result.samples[:count]))
    assert ("can be too narrow" in text) == (embedded(text)["samples"] is not None) == (count > 1)


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
        text = files("ct_dip.pages").joinpath(name).read_text(encoding="utf-8")
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


# The verb


def test_report_writes_a_page(tmp_path, capsys):
    write_result(synthetic_result(), tmp_path / "r.h5")
    report(tmp_path / "r.h5", tmp_path / "deep" / "r.html")
    text = (tmp_path / "deep" / "r.html").read_text(encoding="utf-8")
    assert "r.h5" in text
    assert embedded(text) == embedded(page.render_report(synthetic_result()))
    assert "r.html" in capsys.readouterr().out
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["r.html"]


def test_the_same_result_gives_the_same_page(tmp_path):
    for name in "ab":
        page.write_report(tmp_path / name, synthetic_result(), source="x")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_bad_input_is_an_error_for_people(tmp_path):
    write_result(synthetic_result(), tmp_path / "r.h5")
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


def test_the_page_says_what_total_variation_has_to_do_with_it():
    result = synthetic_result()
    truth = result.comparison.image
    better = replace(
        result, images={**result.images, "tv": (0.9 * truth + 0.1 * result.mean).astype(np.float32)}
    )
    assert "Total variation comes closer to the truth here" in page.render_report(better)
    worse = replace(result, images={**result.images, "tv": np.zeros_like(truth)})
    assert "comes closer" not in page.render_report(worse)
    shown = replace(better, settings={"inference": {"image": "tv"}})
    assert "The image shown is the total-variation one" in page.render_report(shown)
    assert (
        "total-variation reconstruction; its error bars come from a deep image prior."
        in page.render_report(shown)
    )
    assert "total-variation reconstruction" not in page.render_report(better)
    assert "comes closer" not in page.render_report(shown)


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        ("mean", "the average of the image that the fitted network draws"),
        ("dip", "fitted network draws. The"),
    ],
)
def test_the_best_estimate_says_what_it_is(shown, words):
    result = replace(synthetic_result(), settings={"inference": {"image": shown}})
    assert words in embedded(page.render_report(result))["images"][0]["about"]
    other = embedded(page.render_report(replace(synthetic_result(), method="gmrf")))["images"][0]["about"]
    assert "the mean of what" in other


def test_a_verdict_that_is_not_good_says_what_to_do_next():
    result = synthetic_result()
    assert "What to do next" not in page.render_report(result)
    narrow = page.render_report(replace(result, std=0.4 * result.std))
    assert "What to do next:" in narrow
    assert "Do not quote these error bars" in narrow


def test_freed_pixels_are_named_beside_the_error_bars():
    """They are bright blocks, perhaps in empty air, that nothing else on the page explains."""
    result = synthetic_result()
    freed = replace(result, diagnostics=result.diagnostics | {"freed_pixels": 9})
    words = "9 pixels have wider error bars than the network alone gives"
    assert page.render_report(freed).count(words) == 2  # how sure are we, and below the picture
    assert "wider error bars than the network" not in page.render_report(result)
