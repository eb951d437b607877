"""Scores survive JSON, and damaged ones are refused with the name of what is wrong."""

import copy
import json

import pytest

from ct_dip.data.scores import LEVELS, HeldoutScores, Mean, MeanScores, PartScores, RegionScore, Scores
from ct_dip.errors import ResultError

COVERAGE = {level: Mean(level - 0.02, 0.01, 900) for level in LEVELS}
SCORES = Scores(
    compared_with="reference",
    noise_std=0.001,
    value_range=0.5,
    psnr=Mean(30.5, 0.25, 4096),
    ssim=Mean(0.9, 0.01, 3600),
    parts={
        "all": PartScores(pixels=4096, mae=Mean(0.01, 0.001, 4096), rmse=Mean(0.02, 0.002, 4096)),
        "near": PartScores(
            pixels=900,
            mae=Mean(0.01, None, 900),
            rmse=Mean(0.02, None, 900),
            coverage=COVERAGE,
            log_likelihood=Mean(2.5, 0.1, 900),
            crps=Mean(0.005, 1e-4, 900),
            rms_z=Mean(1.5, 0.1, 900),
            largest_z=7.5,
            ence=0.25,
        ),
    },
    log_likelihood={1: Mean(3.5, 0.2, 4096), 10: Mean(4.5, 0.2, 4096), 0: Mean(5.5, None, 4096)},
    means={"blocks_4": MeanScores(count=30, coverage=COVERAGE)},
    regions={"left ventricle": RegionScore(40, -0.01, 0.02, 0.38), "scar": RegionScore(4, 0.5)},
)
HELDOUT = HeldoutScores(
    folds=5,
    held=2,
    views=12,
    measurements=360,
    error_bars=True,
    log_density=Mean(1.5, 0.1, 360),
    coverage=COVERAGE,
    rms_z=Mean(1.1, 0.1, 360),
    rms_z_smoothed=Mean(1.2, 0.1, 288),
    misfit=Mean(1.3, 0.2, 360),
)


@pytest.mark.parametrize("scores", [SCORES, HELDOUT], ids=["scores", "heldout"])
def test_round_trip_through_json(scores):
    text = json.dumps(scores.to_dict(), allow_nan=False)
    assert "null" not in text  # what is absent is left out
    assert type(scores).from_dict(json.loads(text)) == scores


def test_rows_name_every_figure():
    row = SCORES.row()
    expected = {
        "psnr": 30.5,
        "ssim": 0.9,
        "psnr_fixed": None,
        "log_likelihood_1": 3.5,
        "log_likelihood_2": None,
        "log_likelihood_image": 5.5,
        "log_likelihood_1_near": 2.5,
        "coverage_95": None,
        "coverage_95_near": 0.93,
        "coverage_95_flat": None,
        "coverage_95_edges": None,
        "coverage_95_background": None,
        "coverage_95_blocks_4": 0.93,
        "coverage_95_blocks_8": None,
        "coverage_95_regions": None,
        "rmse": 0.02,
        "crps": None,
        "crps_near": 0.005,
        "rms_z_near": 1.5,
        "largest_z_near": 7.5,
        "ence_near": 0.25,
        "ause": None,
    }
    assert {name: row[name] for name in expected} == pytest.approx(expected)
    assert SCORES.row(standard_errors=True)["psnr_se"] == 0.25
    assert SCORES.coverage(0.95, "near") == COVERAGE[0.95]
    assert SCORES.coverage(0.95, "blocks_4") == COVERAGE[0.95]
    assert SCORES.coverage(0.95) is None
    assert SCORES.coverage(0.95, "regions") is None
    heldout = HELDOUT.row(standard_errors=True)
    assert heldout["heldout_coverage_95"] == pytest.approx(0.93)
    assert heldout["heldout_misfit_se"] == 0.2


def changed(path, value):
    plain = copy.deepcopy(SCORES.to_dict())
    *parents, last = path.split("/")
    inner = plain
    for name in parents:
        inner = inner[name]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return plain


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("compared_with", "a guess", r"scores\.compared_with is 'a guess', expected one of"),
        ("compared_with", ["truth"], r"compared_with"),
        ("noise_std", "0.1", r"noise_std is '0.1', expected a finite number"),
        ("noise_std", True, r"noise_std is True"),
        ("noise_std", float("nan"), r"noise_std is nan"),
        ("value_range", 10**400, r"value_range is 1000.*finite"),
        ("value_range", None, r"scores has no value_range; reconstruct again"),
        ("psnr", 30.5, r"scores\.psnr is 30\.5, expected a mapping"),
        ("psnr/value", None, r"scores\.psnr has no value"),
        ("psnr/value", float("inf"), r"scores\.psnr\.value is inf"),
        ("psnr/count", -3, r"scores\.psnr\.count is -3, expected a count"),
        ("psnr/count", 1.5, r"scores\.psnr\.count is 1\.5"),
        ("psnr/mood", 1, r"scores\.psnr has a field 'mood'"),
        ("parts", [], r"scores\.parts is \[\]"),
        ("parts/nowhere", {}, r"a name in scores\.parts is 'nowhere'"),
        ("parts/near/coverage/often", {}, r"a name in scores\.parts\.near\.coverage is 'often'"),
        ("parts/near/coverage/nan", {}, r"a name in scores\.parts\.near\.coverage is nan"),
        ("parts/near/coverage/0.9", None, r"scores of near has no coverage at the level 0\.9"),
        ("means/blocks_4/coverage/0.9", None, r"scores of blocks_4 has no coverage"),
        ("parts/all", None, r"no figures of all pixels"),
        ("log_likelihood/1.5", {}, r"a name in scores\.log_likelihood is '1\.5'"),
        ("regions/scar", {"pixels": 4}, r"scores\.regions\.scar has no error"),
        ("regions/scar/pixels", "x" * 10**4, r"scores\.regions\.scar\.pixels is .{0,80}, expected a count"),
        ("x" * 10**4, 1, r"^.{0,120}$"),
    ],
)
def test_damaged_values_are_refused(path, value, message):
    with pytest.raises(ResultError, match=message):
        Scores.from_dict(changed(path, value))


def test_held_out_views_have_a_coverage_at_every_level():
    plain = HELDOUT.to_dict()
    del plain["coverage"]["0.95"]
    with pytest.raises(ResultError, match=r"heldout has no coverage at the level 0\.95"):
        HeldoutScores.from_dict(plain)


@pytest.mark.parametrize("plain", [None, 3, "scores", [], {}])
def test_something_else_is_refused(plain):
    for kind in (Scores, HeldoutScores):
        with pytest.raises(ResultError):
            kind.from_dict(plain)
