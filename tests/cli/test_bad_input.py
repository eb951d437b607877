"""Whatever is wrong: exit code 2, one line that names it and the way out, and no file left behind."""

import os
import re
import subprocess
import sys

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ct_dip.cli import main
from ct_dip.cli.options import parse_angle
from ct_dip.data.prediction import Prediction
from ct_dip.data.result_file import write_result
from ct_dip.errors import InputError

SMALL = "simulate --size 16 --views 5 --out {out}"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def without_progress(text):
    """Lines other than notes, and those that say that a stage started or is done."""
    return [line for line in text.splitlines() if not re.search(r"^note: |: (started|done after .*)$", line)]


def fails(capsys, arguments, *words, code=2):
    """Run, and return the one line of the error."""
    assert main(arguments.split() if isinstance(arguments, str) else arguments) == code
    output = capsys.readouterr()
    assert output.out == ""
    lines = without_progress(output.err)
    assert len(lines) == 1, output.err
    assert lines[0].startswith("ct-dip: ")
    for word in words:
        assert word in lines[0]
    return lines[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--vews 3", ("--vews", "--views")),
        ("--views three", ("--views",)),
        ("--views 0", ("views", "at least 1")),
        ("--size 1", ("--size 1",)),
        ("--size 200000 --views 60", ("memory budget", "smaller size")),
        ("--size -5", ("--size -5",)),
        ("--phantom apple", ("apple", "shepp-logan")),
        ("--phantom walnut --images x.png", ("--phantom", "--images")),
        ("--images nowhere.png", ("nowhere.png", "does not exist")),
        ("--index 3", ("--index", "--images")),
        ("--noise 0.1 --photons 100", ("--noise", "--photons")),
        ("--noise -0.1", ("-0.1", "0.05 for 5 %")),
        ("--noise 5", ("500 %", "0.05 for 5 %")),
        ("--out scan.png", (".h5",)),
        ("--photons 0", ("photons", "positive")),
        ("--photons 1e30", ("photons", "at most")),
        ("--views 3000000000", ("views", "at most")),
        ("--pixel-size 1e-320", ("pixel_size", "positive")),
        ("--arc 1000", ("--arc", "turn", "360 (degrees) or 6.2832rad")),
        ("--arc 6.29rad", ("--arc", "turn")),
        ("--photons 10 --attenuation 50", ("opaque", "--attenuation")),
        ("--attenuation 0", ("--attenuation", "positive")),
        ("--pixel-size 0", ("pixel_size", "positive")),
        ("--detectors 3", ("misses part of the object", "--allow-truncation")),
        ("--detector-offset 500", ("misses the object", "detector_offset")),
        ("--detector-pitch -1", ("detector_pitch", "positive")),
        ("--arc 3.14159", ("--arc", "3.14159rad")),
        ("--arc round", ("--arc", "180")),
        ("--arc 0", ("arc",)),
        ("--source-origin 100", ("both", "origin_detector")),
        ("--source-origin 5 --origin-detector 5", ("inside the volume",)),
        ("--seed -1", ("--seed",)),
    ],
)
def test_simulate(folder, capsys, options, words):
    fails(capsys, f"{SMALL.format(out='scan.h5')} {options}", *words)
    assert not list(folder.iterdir())


def test_unknown_verbs_and_missing_options(folder, capsys):
    fails(capsys, "simulat --out x.h5", "simulat")
    fails(capsys, "simulate", "--out")
    fails(capsys, "info", "file")
    fails(capsys, "demo --preset huge", "huge", "fast")


@pytest.fixture
def scan(folder, capsys):
    assert main(SMALL.format(out="scan.h5").split()) == 0
    capsys.readouterr()
    return folder / "scan.h5"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--method magic", ("magic", "choose one of", "fbp")),
        ("--backend gpu", ("gpu",)),
        ("--backend tomosipo", ("tomosipo", "sparse")),
        ("--kernel cubic", ("cubic",)),
        ("--device abacus", ("abacus",)),
        ("--method tv --set tv.strenght=1", ("strenght", "strength")),
        ("--set cgls.tolerance=1", ("no effect",)),
        ("--config nowhere.yaml", ("nowhere.yaml",)),
        ("--budget-memory lots", ("lots", "4G")),
        ("--budget-memory 1k", ("KiB", "1 KiB", "smaller image")),
        ("--method tv --backend sparse --budget-memory 200k", ("KiB", "200 KiB", "astra")),
        ("--method tv --set strength=1", ("did you mean 'tv.strength'",)),
    ],
)
def test_reconstruct(scan, folder, capsys, options, words, monkeypatch):
    monkeypatch.delenv("CT_DIP_MEMORY", raising=False)
    fails(capsys, f"reconstruct scan.h5 --out r.h5 {options}", *words)
    assert [path.name for path in folder.iterdir()] == ["scan.h5"]


def test_outputs_that_cannot_be(scan, folder, capsys):
    (folder / "file").write_text("in the way")
    before = scan.read_bytes()
    fails(capsys, SMALL.format(out="file/scan.h5"), "cannot write")
    fails(capsys, SMALL.format(out="/proc/nowhere/scan.h5"), "cannot write")
    (folder / "folder.h5").mkdir()
    fails(capsys, SMALL.format(out="folder.h5"), "folder")
    fails(capsys, "reconstruct folder.h5 --out r.h5", "is a folder", "run ct-dip import folder.h5")
    (folder / "folder.h5").rmdir()
    fails(capsys, "reconstruct scan.h5 --out file/r.h5", "cannot write")
    fails(capsys, "reconstruct scan.h5 --out r.png", ".h5")
    fails(capsys, "reconstruct scan.h5 --out scan.h5", "scan itself")
    (folder / "mine.png").write_text("a picture")
    fails(capsys, "reconstruct scan.h5 --out mine.h5", "mine.png", "belongs to no result")
    (folder / "mine.png").unlink()
    np.save("image.h5", np.ones((4, 4)))
    (folder / "image.h5.npy").rename("image.h5")
    fails(capsys, "simulate --images image.h5 --out image.h5", "image itself")
    (folder / "image.h5").unlink()
    fails(capsys, "demo --out file", "cannot write")
    assert scan.read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == ["file", "scan.h5"]


def test_files_that_are_not_scans(scan, folder, capsys):
    content = scan.read_bytes()
    (folder / "cut.h5").write_bytes(content[: len(content) // 2])
    (folder / "text.h5").write_text("hello")
    with h5py.File("foreign.h5", "w") as file:
        file["data"] = np.zeros(3)
    with h5py.File("nan.h5", "w") as file, h5py.File(scan) as original:
        for name in original:
            original.copy(name, file)
        file.attrs.update(original.attrs)
        file["sinogram"][2, 3] = np.nan
    for verb in ("info {}", "reconstruct {} --out r.h5"):
        fails(capsys, verb.format("cut.h5"), "cut.h5", "truncated")
        fails(capsys, verb.format("text.h5"), "text.h5")
        fails(capsys, verb.format("nan.h5"), "sinogram[2, 3] is nan")
        fails(capsys, verb.format("nowhere.h5"), "does not exist")
    (folder / "view.tif").write_bytes(b"II*\0" + bytes(100))
    fails(capsys, "reconstruct view.tif --out r.h5", "run ct-dip import view.tif --out scan.h5 first")
    fails(capsys, "reconstruct foreign.h5 --out r.h5", "foreign.h5", "ct-dip import")
    assert main(["info", "foreign.h5"]) == 0
    assert "--sinogram NAME; the file has data (3,)" in capsys.readouterr().out
    assert main("reconstruct scan.h5 --method fbp --out r.h5".split()) == 0
    capsys.readouterr()
    fails(capsys, "reconstruct r.h5 --out s.h5", "is a ct_dip result file", "a scan file is needed")


def test_a_cache_that_cannot_be_written(scan, folder, capsys, monkeypatch):
    (folder / "file").write_text("in the way")
    monkeypatch.setenv("CT_DIP_CACHE", str(folder / "file" / "cache"))
    fails(capsys, "reconstruct scan.h5 --method tv --out r.h5", "CT_DIP_CACHE", "'off'")
    assert sorted(path.name for path in folder.iterdir()) == ["file", "scan.h5"]


_FULL_DISK = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond the limit fails, as on a full disk
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
from ct_dip.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("simulate --size 64 --views 90 --out scan64.h5", "cannot write scan64.h5"),
        ("reconstruct scan.h5 --method tv --out r.h5", "CT_DIP_CACHE"),
    ],
)
def test_a_disk_that_is_full(scan, folder, arguments, words):
    environment = os.environ | {"CT_DIP_CACHE": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run(
        [sys.executable, "-c", _FULL_DISK, *arguments.split()],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert run.returncode == 2, run.stderr
    assert words in run.stderr
    assert len(without_progress(run.stderr)) == 1
    files = [path.name for path in folder.rglob("*") if path.is_file()]
    assert files == ["scan.h5"]


def test_a_full_pipe_is_one_line(scan, folder):
    command = f"{sys.executable} -m ct_dip info scan.h5 --json > /dev/full"
    run = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert run.returncode != 0
    assert "Traceback" not in run.stderr.splitlines()[0]


def test_names_are_shown_as_they_are(scan, folder, capsys):
    scan.rename(folder / "scan[final].h5")
    assert main(["info", "scan[final].h5"]) == 0
    assert "scan[final].h5" in capsys.readouterr().out


def test_verbose_shows_where_an_error_came_from(folder, capsys):
    assert main(["info", "nowhere.h5", "--verbose"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_is_130(folder, capsys, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("ct_dip.data.simulate.simulate", interrupt)
    assert main(SMALL.format(out="scan.h5").split()) == 130
    assert not list(folder.iterdir())


@given(
    options=st.lists(
        st.tuples(
            st.sampled_from(
                ["--views", "--size", "--detectors", "--noise", "--photons", "--arc", "--pixel-size"]
                + ["--detector-pitch", "--detector-offset", "--attenuation", "--index", "--seed"]
            ),
            st.one_of(
                st.integers(-3, 12).map(str),
                st.floats(allow_nan=True, allow_infinity=True, width=16).map(str),
                st.sampled_from(["", "x", "1e9", "-0", "nan"]),
            ),
        ),
        min_size=1,
        max_size=3,
    )
)
@example(options=[("--seed", "1e9")])
@example(options=[("--photons", "5"), ("--attenuation", "1e9")])
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_words_end_in_a_file_or_a_line(folder, capsys, options):
    """0 with a scan, or 2 with one line and no file; never a traceback."""
    out = folder / "any.h5"
    out.unlink(missing_ok=True)
    words = [word for option in options for word in option]
    code = main(["simulate", "--size", "8", "--views", "3", "--out", str(out), *words])
    said = capsys.readouterr()
    assert code in (0, 2), said.err
    assert len((said.err if code else said.out).splitlines()) == 1, said
    assert out.exists() == (code == 0)
    assert [path.name for path in folder.iterdir()] == (["any.h5"] if code == 0 else [])


@pytest.mark.parametrize(
    ("text", "radians"), [("180", np.pi), ("90deg", np.pi / 2), ("2rad", 2), ("-90", -np.pi / 2)]
)
def test_angles_are_read(text, radians):
    assert parse_angle(text, "--arc") == pytest.approx(radians)


@pytest.mark.parametrize("text", ["6.2832rad", "6.283rad", "-6.2832rad", "360.01"])
def test_a_turn_that_is_rounded_is_one_exactly(text):
    """As views that go round have to be even to a fiftieth of a step."""
    assert abs(parse_angle(text, "--arc")) == 2 * np.pi


@pytest.mark.parametrize("text", ["6.28", "1", "x", "", "1e", "nan", "inf", "3 turns"])
def test_ambiguous_angles_are_refused(text):
    with pytest.raises(InputError, match="--arc"):
        parse_angle(text, "--arc")


def test_inference_settings_that_contradict(folder, capsys):
    main(SMALL.format(out="s.h5").split())
    capsys.readouterr()
    start = "reconstruct s.h5 --out r.h5 --method lin-dip"
    fails(capsys, f"{start} --hyperprior tv-predcp --set inference.objective=scale", "tap lengths")
    fails(capsys, f"{start} --hyperprior tv-predpc", "inference.hyperprior", "tv-predpc")
    fails(capsys, f"{start} --set inference.temper=0", "inference.temper")
    fails(capsys, f"{start} --set inference.patch=11", "inference.patch")
    fails(capsys, f"{start} --set inference.predcp_strength=-1", "inference.predcp_strength")
    fails(capsys, f"{start} --set inference.objectiv=fit", "did you mean 'objective'")
    fails(capsys, f"{start} --budget-memory 50M", "lin-dip needs", "MiB")
    fails(capsys, "reconstruct s.h5 --out r.h5 --method tv --hyperprior none", "no effect with method 'tv'")
    assert not list(folder.glob("r.*"))


def test_files_that_are_missing_where_others_are_there(scan, folder, capsys):
    before = scan.read_bytes()
    fails(capsys, "simulate --images nowhere.png --out scan.h5", "nowhere.png", "does not exist")
    fails(capsys, "simulate --images . --out new.h5", ". is a folder", "--dataset lodopab")
    fails(capsys, "reconstruct nowhere.h5 --out scan.h5", "nowhere.h5", "does not exist")
    assert scan.read_bytes() == before


def test_a_certificate_without_its_fields(folder, capsys):
    diagnostics = {"certificate": {"converged": True, "rank": 3}}
    write_result(Prediction(method="lin-dip", mean=np.ones((4, 4)), diagnostics=diagnostics), "r.h5")
    fails(capsys, "info r.h5", "metrics.certificate has no field 'discarded_trace'", "reconstruct again")


def test_a_scan_of_raw_storage_elsewhere_is_not_reconstructed(scan, folder, capsys):
    with h5py.File(scan, "r+") as file:
        shape = file["sinogram"].shape
        del file["sinogram"]
        file.create_dataset("sinogram", shape, "f4", external=[(sys.executable, 0, 4 * shape[0] * shape[1])])
    fails(capsys, "reconstruct scan.h5 --method fbp --out r.h5", "scan.h5: sinogram", "stored outside")
    assert [path.name for path in folder.iterdir()] == ["scan.h5"]
