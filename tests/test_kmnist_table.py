"""The table of the papers: what is finished is not measured again; published sinograms fit our rays."""

import numpy as np
import pytest
import torch

import experiments.kmnist.__main__ as kmnist
from benchmarks.kmnist import data_folder
from ct_dip.errors import InputError
from ct_dip.operators import ray_transform
from experiments.kmnist.published import published_cases, published_matrix


def table(monkeypatch, capsys, *words):
    monkeypatch.setattr("sys.argv", ["kmnist", *words])
    kmnist.main()
    lines = capsys.readouterr().out.splitlines()
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_a_second_run_goes_on_where_the_first_one_ended(real_data, monkeypatch, capsys, tmp_path):
    words = ("--views", "5", "--methods", "tv", "--out", str(tmp_path / "rows.jsonl"))
    monkeypatch.setitem(kmnist.SETTINGS, "tv", ["tv.strength=0.1"])
    (one,) = table(monkeypatch, capsys, "--images", "7", *words)
    assert one["images"] == "1"
    assert one["log-lik."] == "–"  # total variation has no error bars
    measured, measure = [], kmnist.measure
    monkeypatch.setattr(kmnist, "measure", lambda case, *rest: measured.append(case) or measure(case, *rest))
    (two,) = table(monkeypatch, capsys, "--images", "7:9", *words)
    assert measured == ["5 views, 5 % noise, image 8: tv"]
    first, (mean, error) = float(one["PSNR, dB"]), map(float, two["PSNR, dB"].split(" ± "))
    assert abs(mean - first) == pytest.approx(error, abs=0.011)  # of two
    words = ("--images", "7", *words, "--set", "tv.strength=0.2")
    (other,) = table(monkeypatch, capsys, *words)  # a row of its own
    assert measured[1:] == ["5 views, 5 % noise, image 7: tv, tv.strength=0.2"]
    assert other["method"] == "tv, tv.strength=0.2"
    assert other["PSNR, dB"] != one["PSNR, dB"]


def test_settings_go_to_the_methods_that_have_them():
    runs = list(kmnist.runs_of(["tv", "dip"], ["dip.jitter=0", "tv.strength=0.2"]))
    assert [run.name for run in runs] == ["tv, tv.strength=0.2", "dip, dip.jitter=0"]
    with pytest.raises(InputError, match=r"tv\.strength=0\.2: none of the methods"):
        list(kmnist.runs_of(["dip"], ["tv.strength=0.2"]))
    with pytest.raises(InputError, match="stength"):
        list(kmnist.runs_of(["tv"], ["tv.stength=0.2"]))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "--set inference.prior=g",
            "method lin-dip-paper cannot run with --set inference.prior=g (inference: ",
        ),
        ("--methods lindip", "method 'lindip' is not known; did you mean 'lin-dip'?"),
        ("--published --views 10", "--published has images 0 to 2 at 20 views and image 0 at 5 views"),
        ("--published --noise 10", "with 5 % noise"),
    ],
)
def test_what_cannot_run_is_said_without_a_traceback(monkeypatch, capsys, tmp_path, words, said):
    with pytest.raises(SystemExit):
        table(monkeypatch, capsys, *words.split(), "--out", str(tmp_path / "rows.jsonl"))
    assert said in " ".join(capsys.readouterr().err.split())


def test_published_sinograms_can_be_chosen(real_data, monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(kmnist.SETTINGS, "tv", ["tv.strength=0.1"])
    words = ("--published", "--methods", "tv", "--out", str(tmp_path / "rows.jsonl"))
    (*theirs, ours) = table(monkeypatch, capsys, *words, "--views", "5")
    assert {row["views"] for row in (*theirs, ours)} == {"5"}
    (*_, two) = table(monkeypatch, capsys, *words, "--images", "1:3")
    assert (two["views"], two["images"]) == ("20", "2")


def test_an_image_has_a_likelihood_only_of_enough_samples(real_data, monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(kmnist.SETTINGS, "tv-gauss", ["tv.strength=0.1", "tv_gauss.samples=3920"])
    words = ("--images", "7", "--views", "5", "--methods", "tv-gauss", "--out")
    (enough,) = table(monkeypatch, capsys, *words, str(tmp_path / "enough.jsonl"))
    assert float(enough["log-lik."]) == pytest.approx(float(enough["1×1"]), abs=1)
    monkeypatch.setitem(kmnist.SETTINGS, "tv-gauss", ["tv.strength=0.1", "tv_gauss.samples=3919"])
    (few,) = table(monkeypatch, capsys, *words, str(tmp_path / "few.jsonl"))
    assert few["log-lik."] == "–"
    assert few["1×1"] == enough["1×1"]


def test_our_rays_are_those_of_the_published_sinograms(real_data):
    """Columns of the stored matrices, and noise of 5 % in what they leave of the sinograms."""
    arrays = np.load(data_folder() / "published_kmnist.npz", allow_pickle=False)
    for views, _, scan, figures in published_cases():
        theirs = published_matrix(arrays, views)
        image = torch.rand(28, 28, generator=torch.Generator().manual_seed(0))
        expected = torch.as_tensor(theirs @ image.flatten().numpy()).reshape(views, 41)
        torch.testing.assert_close(ray_transform(scan.geometry)(image), expected, rtol=1e-4, atol=1e-4)
        residual = scan.sinogram.ravel() - theirs @ scan.ground_truth.ravel()
        z = residual / scan.noise.std
        assert abs(z.std() - 1) < 3 / np.sqrt(2 * z.size)
        assert figures["published MLL"]["psnr"] > (28 if views == 20 else 15)
