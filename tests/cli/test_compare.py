"""``ct-dip compare``: files that say the same, and one line about what cannot be done."""

import csv
from dataclasses import replace

import numpy as np
import pytest

from ct_dip.cli import main
from ct_dip.data.result_file import read_result, write_result
from ct_dip.data.scan_file import write_scan
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.geometry import Volume
from ct_dip.scanners import scanner
from tests.predictions import heldout, prediction

GEOMETRY = scanner(Volume(shape=(16, 16)), views=10)
SCAN = simulate("ellipses", GEOMETRY, noise=NoiseLevel(relative=0.05))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_scan(SCAN, "scan.h5")
    write_scan(replace(SCAN, sinogram=SCAN.sinogram + 1e-3, ground_truth=None), "blind.h5")
    write_result(prediction("tv", std=0.001, heldout=heldout(1.25)), "a.h5")
    write_result(prediction("fbp"), "b.h5")
    return tmp_path


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_scans_are_reconstructed_and_compared(folder, capsys):
    assert main(["compare", "scan.h5", "blind.h5", "--methods", "fbp, tv", "--out", "out"]) == 0
    rows = table(folder / "out/comparison.csv")
    assert [(row["scan"], row["method"]) for row in rows] == [
        *[("scan", "fbp"), ("scan", "tv"), ("blind", "fbp"), ("blind", "tv")]
    ]
    assert [bool(row["heldout_log_density"]) for row in rows] == [False, False, True, True]
    assert "ranked by held-out views" in (folder / "out/comparison.html").read_text()
    shown = capsys.readouterr().out
    assert "ranked by held-out views" in shown
    assert main(["compare", "scan.h5", "blind.h5", "--methods", "fbp,tv", "--out", "out"]) == 0
    assert capsys.readouterr().err.count("taken from") == 4
    assert table(folder / "out/comparison.csv") == rows


def test_results_are_compared(folder, capsys):
    assert main(["compare", "a.h5", "b.h5"]) == 0
    rows = table(folder / "comparison/comparison.csv")
    assert [row["method"] for row in rows] == ["tv", "fbp"]
    assert float(rows[0]["heldout_log_density"]) == 1.25  # from the file
    assert "Images are ranked by PSNR against the truth" in capsys.readouterr().out
    assert sorted(path.name for path in (folder / "comparison").iterdir()) == [
        *("comparison.csv", "comparison.html", "comparison.tex", "comparison_columns.csv")
    ]


def test_held_out_scores_are_kept_in_results(folder):
    assert read_result("a.h5").heldout == prediction(heldout=heldout(1.25)).heldout
    assert read_result("b.h5").heldout is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("scan.h5 --methods fbp,nonsense", "method 'nonsense' is not known; choose one of"),
        ("scan.h5 --methods ,", "list of names"),
        ("scan.h5 --methods fbp,fbp", "given twice"),
        ("", "Missing argument 'files'"),
        ("absent.h5", "absent.h5"),
        ("scan.h5 scan.h5", "the same scan"),
        ("scan.h5 a.h5", "scan.h5 is a scan and a.h5 a result"),
        ("a.h5 b.h5 --methods fbp", "--methods: no effect"),
        ("a.h5 b.h5 --no-heldout --seed 3", "--seed, --heldout: no effect"),
        ("scan.h5 --methods fbp --set tv.strength=1", "no effect with fbp"),
        ("scan.h5 blind.h5 --methods fbp --reference r.npy", "one scan"),
        ("scan.h5 --methods fbp --reference-noise 1", "no effect without a reference"),
        ("blind.h5 --methods fbp --reference r.npy", "shape"),
        ("scan.h5 --out scan.h5", "not a folder"),
    ],
)
def test_bad_input_is_one_line(folder, capsys, arguments, words):
    np.save("r.npy", np.zeros((3, 3)))
    assert main(["compare", *arguments.split()]) == 2
    shown = capsys.readouterr().err
    assert words in shown
    assert shown.count("\n") == 1


@pytest.mark.parametrize("name", [f"comparison{end}" for end in (".html", ".csv", ".tex", "_columns.csv")])
def test_files_of_others_are_not_replaced(folder, capsys, name):
    (folder / "out").mkdir()
    (folder / "out" / name).write_text("mine")
    assert main(["compare", "a.h5", "--out", "out"]) == 2
    assert f"{name} was not written by ct-dip compare" in capsys.readouterr().err
    assert (folder / "out" / name).read_text() == "mine"
    (folder / "out" / name).unlink()
    (folder / "out/notes.txt").write_text("mine")
    for _ in range(2):  # its own files it replaces
        assert main(["compare", "a.h5", "--out", "out"]) == 0
    assert (folder / "out/notes.txt").read_text() == "mine"


def test_failures(folder, capsys, monkeypatch):
    from ct_dip.methods.fbp import Fbp
    from ct_dip.methods.tv import Tv

    def fail(self, job):
        raise RuntimeError("out of luck")

    monkeypatch.setattr(Tv, "run", fail)
    assert main(["compare", "scan.h5", "--method", "fbp,tv", "--out", "out"]) == 0
    assert "failed: out of luck" in capsys.readouterr().out
    assert [row["error"] for row in table(folder / "out/comparison.csv")] == ["", "out of luck"]
    monkeypatch.setattr(Fbp, "run", fail)
    assert main(["compare", "scan.h5", "--methods", "fbp,tv", "--out", "other"]) == 1
    assert "no run finished: out of luck" in capsys.readouterr().err
    monkeypatch.setattr(Fbp, "run", lambda self, job: (_ for _ in ()).throw(KeyboardInterrupt))
    assert main(["compare", "scan.h5", "--methods", "fbp,tv", "--out", "third"]) == 130
    assert "continue from third" in capsys.readouterr().err
