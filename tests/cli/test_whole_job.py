"""From a scan to the page that explains it with one command, whatever happens on the way."""

import errno
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from ct_dip.cli import main
from ct_dip.data.result_file import read_result
from ct_dip.data.scan_file import read_scan, write_scan
from ct_dip.pages.all_figures import FIGURES
from tests.cli.test_bad_input import fails

QUICK = [
    *("--method", "lin-dip", "--set", "dip.channels=[4,4]", "--set", "dip.max_steps=30"),
    *("--set", "dip.cooldown_steps=10", "--set", "inference.starts=1", "--no-holdout"),
]
STAGES = ("dip.npz", "features.npz", "evidence.npz")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A scan with a truth, the same without, and a finished run of it to start from."""
    folder = tmp_path_factory.mktemp("made")
    scan = str(folder / "scan.h5")
    assert main(f"simulate --phantom ellipses --size 12 --views 8 --out {scan}".split()) == 0
    write_scan(replace(read_scan(scan), ground_truth=None), folder / "blind.h5")
    np.save(folder / "reference.npy", read_scan(scan).ground_truth)
    assert main(["reconstruct", scan, "--out", str(folder / "whole.h5"), *QUICK]) == 0
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    for path in made.iterdir():
        if path.name in ("scan.h5", "blind.h5", "reference.npy"):
            (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def job(*options, scan="scan.h5"):
    return ["reconstruct", scan, "--out", "r.h5", *QUICK, *options]


def written(folder):
    return sorted(path.name for path in folder.glob("r.*"))


def stages(folder):
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


# What one run leaves


def test_a_warning_about_the_data_is_told_once(folder, capsys):
    assert main("reconstruct scan.h5 --method fbp --out plain.h5".split()) == 0
    assert "line integrals are negative" not in capsys.readouterr().err
    scan = read_scan("scan.h5")
    write_scan(replace(scan, sinogram=scan.sinogram - scan.sinogram.max() / 2), "dark.h5")
    assert main("reconstruct dark.h5 --method fbp --out r.h5 --report".split()) == 0
    assert capsys.readouterr().err.count("line integrals are negative") == 1
    assert "line integrals are negative" in Path("r.html").read_text(encoding="utf-8")
    assert main("info r.h5".split()) == 0
    assert "line integrals are negative" in capsys.readouterr().out


def test_one_run_ends_with_figures_and_a_page(folder, capsys):
    assert main(job("--figures", "figures")) == 0
    assert written(folder) == ["r.h5", "r.html", "r.png", "r.yaml"]
    # 100 samples are enough for every figure
    assert {path.stem for path in (folder / "figures").iterdir()} == set(FIGURES)
    said = capsys.readouterr().out
    assert "r.html: open it in a browser; it shows the image, its error bars, and whether to believe" in said
    assert "figures: 11 figures" in said
    assert "phantom ellipses" in (folder / "r.html").read_text(encoding="utf-8")


def test_the_page_can_be_had_or_not(folder, capsys):
    assert main(job("--no-report")) == 0
    assert written(folder) == ["r.h5", "r.png", "r.yaml"]
    assert "r.html" not in capsys.readouterr().out
    for name, option in (("a", ""), ("b", "--report")):
        command = f"reconstruct scan.h5 --method fbp --out {name}.h5 --figures {name} {option}"
        assert main(command.split()) == 0
        assert (folder / f"{name}.html").exists() == bool(option)  # no error bars: only if it is asked for
        assert [path.name for path in (folder / name).iterdir()] == ["image.png"]
    said = capsys.readouterr().out
    assert "b.html: open it in a browser; it shows the image; fbp has no error bars\n" in said


def test_a_page_of_somebody_else_is_not_replaced(folder, capsys):
    (folder / "r.html").write_text("mine")
    fails(capsys, job(), "r.html", "belongs to no result")
    assert (folder / "r.html").read_text() == "mine"
    assert main(job("--no-report")) == 0  # which does not touch it


# References


def test_a_measured_scan_is_compared_with_a_reference(folder, capsys):
    options = ["--reference", "reference.npy", "--reference-noise", "0.002", "--figures", "figures"]
    assert main(job(*options, scan="blind.h5")) == 0
    assert "dB against the reference" in capsys.readouterr().out
    result = read_result("r.h5")
    assert result.comparison.name == "reference"
    assert result.comparison.noise_std == 0.002
    np.testing.assert_array_equal(result.comparison.image, np.load("reference.npy"))
    with h5py.File("r.h5") as file:
        assert "truth" not in file["arrays"]
    assert result.scores.compared_with == "reference"
    assert result.scores.noise_std == 0.002
    assert result.scores.coverage(0.95) is not None
    assert "compare with the reference" in result.seconds
    page = (folder / "r.html").read_text(encoding="utf-8")
    assert "reference image stands in" in page
    assert "The true object is known" not in page
    assert (folder / "figures" / "coverage.png").exists()
    assert main(["report", "r.h5"]) == 2
    assert "the page needs a name; give --out, for example --out report.html" in capsys.readouterr().err
    # A result is a reference, too.
    again = "reconstruct blind.h5 --method fbp --out again.h5 --reference r.h5"
    assert main(again.split()) == 0
    np.testing.assert_array_equal(read_result("again.h5").comparison.image, result.mean)


@pytest.mark.parametrize(
    ("scan", "options", "words"),
    [
        ("scan.h5", "--reference reference.npy", ("ground truth", "drop the reference")),
        ("blind.h5", "--reference small.npy", ("shape (11, 12)", "(12, 12)", "resample")),
        ("blind.h5", "--reference nan.npy", ("reference[3, 4] is nan",)),
        ("blind.h5", "--reference int.npy", ("int64", "1/mm")),
        ("blind.h5", "--reference reference.png", (".png", ".npy")),
        ("blind.h5", "--reference nowhere.npy", ("nowhere.npy", "does not exist")),
        ("blind.h5", "--reference scan.h5", ("reference scan.h5 is a ct_dip scan file", ".npy, .tif")),
        ("blind.h5", "--reference-noise 0.1", ("--reference-noise 0.1", "--reference")),
        ("blind.h5", "--reference reference.npy --reference-noise -1", ("-1", "positive")),
        ("scan.h5", "--preset quick", ("preset", "quick", "'fast'")),
        ("scan.h5", "--figures scan.h5", ("scan.h5 is not a folder",)),
        ("scan.h5", "--run scan.h5", ("scan.h5 is not a folder",)),
        ("scan.h5", "--run /proc/nowhere", ("cannot write", "/proc/nowhere")),
        ("other-truth.h5", "", ("ground_truth has shape (5, 5)", "(12, 12)")),
    ],
)
def test_what_cannot_be_done_is_said_before_the_work(folder, capsys, scan, options, words):
    image = np.load("reference.npy")
    np.save("small.npy", image[1:])
    np.save("int.npy", image.astype(int))
    image[3, 4] = np.nan
    np.save("nan.npy", image)
    (folder / "reference.png").write_bytes(b"a picture")
    (folder / "other-truth.h5").write_bytes((folder / "scan.h5").read_bytes())
    with h5py.File("other-truth.h5", "r+") as file:
        del file["ground_truth"]
        file["ground_truth"] = np.zeros((5, 5), np.float32)
    before = sorted(path.name for path in folder.iterdir())
    fails(capsys, job(*options.split(), scan=scan), *words)
    assert sorted(path.name for path in folder.iterdir()) == before


def test_options_that_contradict(folder, capsys):
    fails(capsys, "reconstruct scan.h5 --out r.h5 --method tv --run here", "--run here", "'tv'")
    assert main("reconstruct scan.h5 --out old.h5 --method fbp".split()) == 0
    capsys.readouterr()
    before = (folder / "old.h5").read_bytes()
    words = "reconstruct blind.h5 --out old.h5 --method fbp --reference old.h5"
    fails(capsys, words, "would replace the reference old.h5")
    assert (folder / "old.h5").read_bytes() == before
    assert not (folder / "here").exists()


@pytest.mark.parametrize("verb", ["info {}", "report {} --out p.html", "query {} --roi=0,0,3,3"])
def test_results_of_another_version(made, folder, capsys, verb):
    (folder / "new.h5").write_bytes((made / "whole.h5").read_bytes())
    with h5py.File("new.h5", "r+") as file:
        file.attrs["version"] = 99
    fails(capsys, verb.format("new.h5"), "new.h5", "version 99", "write it again")
    reference = "reconstruct blind.h5 --method fbp --out r.h5 --reference new.h5"
    fails(capsys, reference, "new.h5", "version 99")


# Faults on the way


def full_for(monkeypatch, name):
    """A disk that is full when the file of that name is written: half of it fits."""
    real = Path.open

    class Full:
        def __init__(self, file):
            self.file = file

        def __getattr__(self, attribute):
            return getattr(self.file, attribute)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()

        def write(self, content):
            self.file.write(bytes(content)[: len(content) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")

    def opened(path, mode="r", *rest, **options):
        file = real(path, mode, *rest, **options)
        return Full(file) if "w" in mode and path.name.startswith(f".{name}.") else file

    monkeypatch.setattr(Path, "open", opened)

    def write(path, content):
        with opened(path, "wb") as file:
            file.write(content)

    monkeypatch.setattr(Path, "write_bytes", write)


@pytest.mark.parametrize("name", [*STAGES, "r.h5", "r.png", "r.yaml", "r.html", "coverage.png"])
def test_a_full_disk(made, folder, capsys, monkeypatch, name):
    options = ["--run", "run", *(["--figures", "figures"] if name == "coverage.png" else [])]
    with monkeypatch.context() as patch:
        full_for(patch, name)
        line = fails(capsys, job(*options), name, "No space left on device", "make room")
    assert not list(folder.rglob("*.part"))
    assert not list(folder.rglob(name))
    kept = {stage for stage in STAGES if (folder / "run" / stage).exists()}
    assert kept == set(STAGES[: STAGES.index(name)] if name in STAGES else STAGES)
    assert ("continue from it with --run run" in line) == bool(kept)
    # With room, the same command gives what an undisturbed run gives.
    assert main(job(*options)) == 0
    assert np.array_equal(read_result("r.h5").std, read_result(made / "whole.h5").std)


@pytest.mark.parametrize("name", STAGES)
def test_a_run_folder_that_became_read_only(folder, capsys, monkeypatch, name):
    """As root may write anywhere, the system's refusal is simulated."""
    real = Path.open

    def refuse(path, mode="r", *rest, **options):
        if "w" in mode and path.name.startswith(f".{name}."):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, mode, *rest, **options)

    monkeypatch.setattr(Path, "open", refuse)
    fails(capsys, job(), f"cannot write r.run/{name}: Permission denied", "--run")
    assert written(folder) in ([], ["r.run"])


def test_a_read_only_folder_is_found_before_the_work(folder, capsys, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    def no_work(*_, **__):
        raise AssertionError("worked for nothing")

    monkeypatch.setattr(Path, "touch", refuse)
    monkeypatch.setattr("ct_dip.pipeline.reconstruct", no_work)
    fails(capsys, job(), "cannot write r.h5: Permission denied", "another place")
    assert not written(folder)


INTERRUPTED = {
    "ray transform": 0,
    "strength of total variation": 0,
    "deep image prior": 0,
    "total variation": 1,
    "linearisation": 1,
    "prior covariances": 1,
    "projected covariances": 2,
    "hyperparameters": 2,
    "posterior": 3,
    "samples": 3,
    "compare with the truth": 3,
}


@pytest.mark.parametrize("stage", INTERRUPTED)
def test_an_interrupt_in_every_stage(made, folder, capsys, monkeypatch, stage):
    from ct_dip.cli.console import ConsoleProgress

    real = ConsoleProgress.stage

    def stop(self, name, total=None):
        if name == stage:
            raise KeyboardInterrupt
        return real(self, name, total)

    with monkeypatch.context() as patch:
        patch.setattr(ConsoleProgress, "stage", stop)
        line = fails(capsys, job(), "interrupted", code=130)
    done = STAGES[: INTERRUPTED[stage]]
    assert stages(folder / "r.run") == set(done)
    assert ("run the same command to continue from r.run" in line) == bool(done)
    assert not list(folder.glob("r.[!r]*"))  # nothing but the run folder
    assert main(job()) == 0
    assert np.array_equal(read_result("r.h5").std, read_result(made / "whole.h5").std)
    assert not (folder / "r.run").exists()


def test_the_stages_above_are_all_that_there_are(made):
    assert list(read_result(made / "whole.h5").seconds) == list(INTERRUPTED)


@pytest.mark.parametrize("writer", ["write_result", "write_report"])
def test_an_interrupt_while_the_results_are_written(folder, capsys, monkeypatch, writer):
    home = {"write_result": "ct_dip.data.result_file", "write_report": "ct_dip.pages.report_page"}[writer]

    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"{home}.{writer}", stop)
        fails(capsys, job(), "interrupted", "run the same command to continue from r.run", code=130)
    assert main(job()) == 0
    assert written(folder) == ["r.h5", "r.html", "r.png", "r.yaml"]
