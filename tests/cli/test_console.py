"""Progress where standard error is not a terminal."""

import sys
import time

import pytest

from ct_dip.cli.console import ConsoleProgress

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
    assert all(line.startswith("fit: ") and line.endswith(", 300 of 2000, loss 0.125") for line in between)
    with progress.stage("silent"):
        time.sleep(0.1)
    assert len(capsys.readouterr().err.splitlines()) > 2
    monkeypatch.setattr(MODULE, "FIRST_SECONDS", 60.0)
    with progress.stage("short", 2000) as stage:
        stage.update(2000)
    assert capsys.readouterr().err == ""


def test_a_stage_that_fails_says_nothing_more(monkeypatch, capsys):
    monkeypatch.setattr(MODULE, "FIRST_SECONDS", 0.02)

    def fail():
        time.sleep(0.1)
        return 1 / 0

    with pytest.raises(ZeroDivisionError), ConsoleProgress().stage("fit"):
        fail()
    time.sleep(0.1)
    assert capsys.readouterr().err.splitlines() == ["fit: started"]
