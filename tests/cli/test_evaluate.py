"""``ct-dip evaluate`` and the page of what it left, at any moment."""

import dataclasses
import json

import pytest

from ct_dip.batch.table import Row, Table, read_rows
from ct_dip.cli import main
from ct_dip.cli.evaluate import summary
from ct_dip.data.scan_file import write_scan
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.geometry import Volume
from ct_dip.scanners import scanner

GEOMETRY = scanner(Volume(shape=(16, 16)), views=10)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for i in range(3):
        scan = simulate("ellipses", GEOMETRY, noise=NoiseLevel(relative=0.05), seed=i)
        write_scan(scan, tmp_path / f"scans/s{i}.h5")
    return tmp_path


def test_a_dataset_is_evaluated_and_shown(folder, capsys):
    command = ["evaluate", "scans", "--methods", "fbp,tv", "--set", "tv.strength=0.5", "--workers", "0"]
    (folder / "scans/s1.h5").write_bytes(b"broken")
    assert main([*command, "--out", "out"]) == 0
    told = capsys.readouterr()
    assert "2 done, 1 failed; PSNR, dB " in told.out
    assert "first failure: s1 with fbp: " in told.err
    assert sorted(path.name for path in (folder / "out/items").iterdir()) == ["s0", "s2"]
    assert main([*command, "--out", "out", "--retry-failed"]) == 0
    assert main(["report", "out"]) == 0
    page = (folder / "out/evaluation.html").read_text()
    assert "3 scan files" in page
    assert "s1" in page


def test_items_without_a_truth_are_scored_by_views_when_asked(folder, capsys):
    scan = simulate("ellipses", GEOMETRY, noise=NoiseLevel(relative=0.05), seed=9)
    write_scan(dataclasses.replace(scan, ground_truth=None), folder / "measured/m.h5")
    command = ["evaluate", "measured", "--method", "fbp", "--workers", "0"]
    assert main([*command, "--out", "plain"]) == 0
    found, told = (" ".join(part.split()) for part in capsys.readouterr())
    assert "1 item " in found
    assert "fbp: no truth or reference, and no error bars. To score on held-out views, run again with" in told
    assert main([*command, "--out", "scored", "--heldout"]) == 0
    assert "no truth or reference" not in capsys.readouterr().err
    (row,) = read_rows(folder / "scored")
    assert row.scores["heldout_misfit"] > 0


def test_a_mean_tells_how_many_items_have_the_figure():
    def row(item, **scores):
        return Row(item=item, method="tv", label=str(item), state="done", seconds=2.0, scores=scores)

    some = [row(0, psnr=30.0, ssim=0.5), row(1, psnr=32.0), row(2)]
    rows = [*some, Row(item=3, method="tv", label="3", state="failed")]
    assert summary(rows) == {
        "tv": "3 done, 1 failed; PSNR, dB 31.00 (2 of 3 items); SSIM 0.500 (1 of 3 items); Time 2.0 s"
    }


def test_a_trial_of_a_submission_is_not_for_the_challenge(folder, capsys):
    words = "simulate --dataset lodopab --phantom ellipses --items 1 --size 16 --views 8 --out small"
    assert main(words.split()) == 0
    assert main("evaluate small --methods fbp --workers 0 --submission --out out".split()) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert "out/submission-fbp.zip is for a trial" in told
    assert "can be uploaded" not in told


def test_info_says_what_a_folder_is_and_what_to_run(folder, capsys):
    for part in ("test", "challenge"):
        words = "simulate --dataset lodopab --phantom ellipses --items 2 --size 16 --views 8 --out small"
        assert main([*words.split(), "--part", part]) == 0
    assert main("evaluate small --part test --methods fbp --workers 0 --items 0 --out out".split()) == 0
    capsys.readouterr()
    assert main(["info", "small"]) == 0
    found = capsys.readouterr().out
    assert "part test: 2 scans of 8 views" in found
    assert "part challenge: 2 scans of 8 views" in found
    assert "ct-dip evaluate small --methods" in found
    assert main(["info", "out", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert "part test: 2 scans" in facts["evaluation of"]
    assert facts["fbp"].startswith("1 done; PSNR")
    assert facts["page"] == "ct-dip report out"
    (folder / "slices/slice00007").mkdir(parents=True)
    assert main(["info", "slices"]) == 0
    assert "2DeteCT, mode2: 1 measured slice" in capsys.readouterr().out
    assert main(["info", "scans"]) == 2  # neither: formats of imports look at it


def test_a_run_that_has_hardly_begun_has_a_page(folder, capsys):
    with Table(folder / "out") as table:
        table.begin({"dataset": "two scans"}, {0: "a", 1: "b"}, ["fbp"])
        assert main(["report", "out"]) == 0
    assert "two scans" in (folder / "out/evaluation.html").read_text()
    assert "pending" in (folder / "out/scores.csv").read_text()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            "evaluate scans --methods fbp --out out --items 0:9",
            "--items 0:9: the dataset has 3 items",
        ),
        ("evaluate nowhere --methods fbp --out out", "nowhere does not exist; expected a LoDoPaB folder"),
        ("evaluate scans --methods fpb --out out", "method 'fpb' is not known"),
        ("evaluate scans --methods fbp --out out --slurm jobs=2", "--slurm needs a partition"),
        ("evaluate scans --methods fbp --out out --submission", "--submission is for LoDoPaB's challenge"),
        ("evaluate scans --methods fbp --out out --views 99 --workers 0", "99 were asked for"),
        ("evaluate scans --methods fbp --out out --size 64", "images of its own size, but 64 pixels a side"),
        ("evaluate scans/s0.h5 scans/s1.h5 --methods fbp --out out --size 64", "side belong to a folder"),
        ("evaluate scans --methods tv --out out --set tv.strenth=1", "did you mean 'strength'?"),
        ("report scans", "scans holds no evaluation"),
        ("report out --out page.html", "written into the folder"),
        ("report nowhere", "nowhere does not exist"),
        ("report scans/s0.h5", "is a ct_dip scan file; a result file is needed"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(folder, capsys, arguments, text):
    (folder / "out").mkdir()
    assert main(arguments.split()) == 2
    assert text in " ".join(capsys.readouterr().err.split())


def test_an_evaluation_where_everything_fails_is_an_error(folder, capsys):
    command = ["evaluate", "scans", "--methods", "dip", "--out", "out", "--workers", "0", "--items", "0:2"]
    flat = simulate("ellipses", GEOMETRY, seed=5)
    empty = dataclasses.replace(flat, sinogram=0 * flat.sinogram, noise=None)
    for i in range(2):
        write_scan(dataclasses.replace(empty, source=str(i)), folder / f"scans/s{i}.h5")
    assert main(command) == 1
    assert "everything failed" in capsys.readouterr().err
