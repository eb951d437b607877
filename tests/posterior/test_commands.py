"""The regimes from the command line: what is written, said, refused and repeated."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from ct_dip.cli import main
from ct_dip.data.result_file import read_result
from tests.cli.test_bad_input import fails

QUICK = [
    *("--method", "lin-dip", "--set", "dip.channels=[4,4]", "--set", "dip.max_steps=30"),
    *("--set", "dip.cooldown_steps=10", "--set", "inference.starts=1", "--no-report"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "scan.h5"
    assert main(f"simulate --phantom ellipses --size 12 --views 8 --out {path}".split()) == 0
    return path


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    (tmp_path / "scan.h5").write_bytes(made.read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def job(*options, out="r.h5"):
    return ["reconstruct", "scan.h5", "--out", out, *QUICK, *options]


def test_a_compressed_run_is_certified_and_repeats_itself(folder, capsys):
    options = ("--regime", "compressed", "--set", "inference.deviations=samples")
    assert main(job(*options, "--set", "inference.samples=30")) == 0
    result = read_result("r.h5")
    assert result.diagnostics["regime"] == "compressed"
    assert result.std_error.shape == (12, 12)
    np.testing.assert_allclose(result.std_error, result.std / 60**0.5, rtol=1e-5)
    assert len(result.samples) == 30
    capsys.readouterr()
    assert main(["info", "r.h5", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["certificate"]["converged"] is True
    assert facts["certificate"]["rank"] > 0
    assert facts["certificate"]["samples"] == 30
    assert facts["settings"]["inference"]["regime"] == "compressed"
    # The settings beside it repeat it, bit for bit.
    assert main("reconstruct scan.h5 --config r.yaml --out again.h5 --no-report".split()) == 0
    again = read_result("again.h5")
    for one, other in ((result.mean, again.mean), (result.std, again.std)):
        assert np.array_equal(one, other)
    assert np.array_equal(result.samples, again.samples)
    assert again.diagnostics["hyperparameters"] == result.diagnostics["hyperparameters"]


def test_exact_deviations_have_no_error_of_their_own(folder):
    assert main(job("--regime", "compressed", "--set", "inference.samples=0")) == 0
    result = read_result("r.h5")
    assert result.diagnostics["certificate"]["closed_form"] is True
    assert result.std_error is None
    assert result.samples is None


def test_an_automatic_regime_is_resolved_in_what_is_written(folder):
    assert main(job()) == 0
    first = read_result("r.h5")
    assert first.settings["inference"]["regime"] == first.diagnostics["regime"] == "exact"
    assert first.diagnostics["certificate"] == {}
    assert main("reconstruct scan.h5 --config r.yaml --out again.h5 --no-report".split()) == 0
    assert np.array_equal(read_result("again.h5").std, first.std)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--regime nonsense", ("inference.regime", "nonsense", "compressed")),
        ("--regime iterative --hyperprior tv-predcp", ("iterative", "tv-predcp", "use regime 'compressed'")),
        ("--regime compressed --set inference.integrate=laplace", ("laplace", "regime 'exact'")),
        ("--budget-minutes 0", ("0 minutes", "positive", "leave it out")),
        ("--budget-minutes -3", ("-3 minutes", "positive")),
        ("--budget-minutes nan", ("nan minutes", "positive")),
        ("--method tv --budget-minutes 3", ("budget_minutes", "'tv'")),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(folder, capsys, monkeypatch, options, words):
    def refuse(*_, **__):
        raise AssertionError("the network was fitted first")

    monkeypatch.setattr("ct_dip.methods.dip.fit_many", refuse)
    quick = QUICK if "--method" not in options else []
    line = fails(capsys, ["reconstruct", "scan.h5", "--out", "r.h5", *quick, *options.split()], *words)
    assert "Traceback" not in line
    assert sorted(path.name for path in folder.iterdir()) == ["scan.h5"]


def test_the_plan_of_a_regime_that_cannot_be_is_refused_too(folder, capsys):
    settings = "--set inference.regime=iterative --set inference.hyperprior=tv-predcp"
    fails(capsys, f"plan scan.h5 {settings}", "use regime 'compressed'")


def test_a_tiny_time_budget_is_said_on_screen(folder, capsys):
    options = ("--regime", "compressed", "--budget-minutes", "1e-9")
    assert main(job(*options, "--set", "inference.deviations=samples")) == 0
    said = capsys.readouterr().err
    assert "20 of 100 samples" in said
    assert read_result("r.h5").diagnostics["certificate"]["samples"] == 20


def test_a_time_budget_without_effect_is_said_on_screen(folder, capsys):
    for regime, said in (("exact", True), ("compressed", False)):
        assert main(job("--regime", regime, "--budget-minutes", "5")) == 0
        assert ("no effect on exact inference" in " ".join(capsys.readouterr().err.split())) is said


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_killed_run_keeps_its_stages_and_goes_on_to_the_same_bits(folder):
    options = [*job("--regime", "compressed", "--run", "run", "--set", "inference.deviations=samples")]
    options += ["--set", "inference.samples=1000", "--threads", "1"]
    child = subprocess.Popen([sys.executable, "-m", "ct_dip", *options], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (folder / "run" / "samples-002.npz").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
        assert child.poll() is None
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    kept = {path.name for path in (folder / "run").glob("*.npz")}
    assert {"dip.npz", "compression-0.npz", "compression-1.npz", "samples-000.npz", "samples-002.npz"} <= kept
    assert not (folder / "r.h5").exists()
    again = [folder / "run" / name for name in ("compression-1.npz", "samples-001.npz")]
    before = [path.stat().st_mtime_ns for path in again]
    assert main(options) == 0
    assert [path.stat().st_mtime_ns for path in again] == before
    fresh = [option.replace("run", "fresh") if option == "run" else option for option in options]
    fresh[fresh.index("r.h5")] = "whole.h5"
    assert main(fresh) == 0
    one, other = read_result("r.h5"), read_result("whole.h5")
    assert np.array_equal(one.std, other.std)
    assert np.array_equal(one.samples, other.samples)
