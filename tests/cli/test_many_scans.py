"""Several scans in one command, and views that are held out."""

import json
from dataclasses import replace

import pytest

import ct_dip
from ct_dip.cli import main
from ct_dip.cli.info import result_summary
from ct_dip.data.result_file import read_result
from ct_dip.data.scan_file import write_scan
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.geometry import Volume
from ct_dip.scanners import scanner

QUICK = ["dip.channels=[4,4]", "dip.max_steps=40", "dip.cooldown_steps=20", "inference.starts=1"]


def make(seed):
    geometry = scanner(Volume(shape=(14, 14)), views=12)
    return simulate("ellipses", geometry, noise=NoiseLevel(relative=0.05), seed=seed)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed in (101, 102):
        write_scan(make(seed), f"scan{seed}.h5")


@pytest.mark.usefixtures("folder")
def test_every_scan_has_a_result_of_its_name(capsys):
    assert main("reconstruct scan101.h5 scan102.h5 --method tv --out results".split()) == 0
    assert main("reconstruct scan102.h5 --method tv --out alone.h5".split()) == 0
    together, alone = read_result("results/scan102.h5"), read_result("alone.h5")
    assert (together.mean == alone.mean).all()
    assert together.scan_digest != read_result("results/scan101.h5").scan_digest
    capsys.readouterr()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--out one.h5", "--out one.h5 must be a folder for the results of 2 scans"),
        ("--out all --figures pictures", "--figures pictures belongs to one scan"),
        ("--out all --reference r.npy", "--reference r.npy belongs to one scan"),
    ],
)
def test_what_belongs_to_one_scan_is_refused(capsys, words, said):
    assert main(f"reconstruct scan101.h5 scan102.h5 --method tv {words}".split()) == 2
    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_a_scan_that_cannot_be_read_is_refused_before_the_others_are_done(tmp_path, capsys):
    assert main("reconstruct scan101.h5 nowhere.h5 --method tv --out all".split()) == 2
    assert "nowhere.h5 does not exist" in capsys.readouterr().err
    assert not list(tmp_path.glob("all/*"))
    (tmp_path / "copies").mkdir()
    write_scan(make(101), "copies/scan101.h5")
    assert main("reconstruct scan101.h5 copies/scan101.h5 --method tv --out all".split()) == 2
    assert "same name" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_views_are_held_out_where_nothing_else_is_known(capsys):
    write_scan(replace(make(101), ground_truth=None), "blind.h5")
    job = ["--method", "lin-dip", "--out", "r.h5", "--no-report", "--no-holdout"]
    job += [word for setting in QUICK for word in ("--set", setting)]
    assert main(["reconstruct", "blind.h5", *job]) == 0
    assert "measurements that the reconstruction did not see" in capsys.readouterr().out
    checked = read_result("r.h5")
    assert checked.heldout.error_bars
    assert checked.heldout.measurements == 2 * make(101).sinogram.shape[1]
    assert "compare with held-out views" in checked.seconds
    assert main("info r.h5 --json".split()) == 0
    assert json.loads(capsys.readouterr().out)["heldout"]["held"] == 1
    assert "inside their 95 % intervals" in result_summary(checked)["held-out views"]
    assert main(["reconstruct", "blind.h5", *job, "--check", "none"]) == 0
    without = read_result("r.h5")
    assert without.heldout is None
    assert (without.std == checked.std).all()
    assert main(["reconstruct", "scan101.h5", *job]) == 0
    assert read_result("r.h5").heldout is None  # the truth is known


def test_any_method_can_be_checked():
    image_only = ct_dip.reconstruct(make(101), method="tv", check="views").heldout
    assert not image_only.error_bars
    assert image_only.misfit.value > 0
