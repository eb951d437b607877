"""Where standard error is no terminal: progress, and being terminated."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from ct_dip.cli.console import ConsoleProgress
from ct_dip.data.scan_file import write_scan
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.geometry import Volume
from ct_dip.scanners import scanner

MODULE = sys.modules[ConsoleProgress.__module__]  # its name is shadowed by the console in it


def test_a_log_has_plain_lines(monkeypatch, capsys):
    monkeypatch.setattr(MODULE, "LINE_SECONDS", 0.02)
    monkeypatch.setattr(MODULE, "FIRST_SECONDS", 0.02)
    progress = ConsoleProgress()
    with progress.stage("fit", 2000) as stage:
        stage.update(300, loss=0.125)
        time.sleep(0.2)
    first, *between, last = capsys.readouterr().err.splitlines()
    assert first == "fit: started"
    assert last.startswith("fit: done after 0.")
    assert between
    # There is no pace yet: a fit may go on from a checkpoint.
    assert all(line.startswith("fit: ") and line.endswith(", 300 of 2000, loss 0.125") for line in between)
    with progress.stage("silent"):
        time.sleep(0.1)
    assert len(capsys.readouterr().err.splitlines()) > 2
    monkeypatch.setattr(MODULE, "FIRST_SECONDS", 60.0)
    with progress.stage("short", 2000) as stage:
        stage.update(2000)
    assert capsys.readouterr().err == ""


def test_a_log_tells_the_time_left_at_the_pace_so_far(monkeypatch, capsys):
    monkeypatch.setattr(MODULE, "LINE_SECONDS", 0.02)
    monkeypatch.setattr(MODULE, "FIRST_SECONDS", 0.02)
    with ConsoleProgress().stage("evaluate", 100) as stage:
        stage.update(90)
        time.sleep(0.1)
        stage.update(91, failed=1, per_hour=65.0)
        time.sleep(0.1)
        stage.update(100)
        time.sleep(0.1)
    lines = capsys.readouterr().err.splitlines()
    told = [re.search(r"91 of 100, about (.*) s left, failed 1, 65 per hour$", line) for line in lines]
    # 9 items at 0.1 s each, or more on a busy machine; and nothing is left in the end.
    assert max(float(match[1]) for match in told if match) >= 0.8
    assert any(line.endswith(", 100 of 100") for line in lines)


def test_a_stage_that_fails_says_nothing_more(monkeypatch, capsys):
    monkeypatch.setattr(MODULE, "FIRST_SECONDS", 0.02)

    def fail():
        time.sleep(0.1)
        return 1 / 0

    with pytest.raises(ZeroDivisionError), ConsoleProgress().stage("fit"):
        fail()
    time.sleep(0.1)
    assert capsys.readouterr().err.splitlines() == ["fit: started"]


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_job_in_the_background_can_be_terminated(tmp_path):
    """A shell that is no terminal has its jobs in the background ignore SIGINT."""
    scan = simulate("ellipses", scanner(Volume(shape=(64, 64)), views=20), noise=NoiseLevel(relative=0.05))
    write_scan(scan, tmp_path / "scan.h5")
    options = "scan.h5 --method dip --set dip.strength=0.8 --out r.h5"
    job = subprocess.Popen(
        ["sh", "-c", f"{sys.executable} -m ct_dip reconstruct {options} & echo $!; wait $!"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with job:
        pid = int(job.stdout.readline())
        while "deep image prior: started" not in job.stderr.readline():
            assert job.poll() is None
        os.kill(pid, signal.SIGTERM)
        try:
            assert job.wait(30) == 130
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert [path.name for path in tmp_path.glob("r.*")] == []
