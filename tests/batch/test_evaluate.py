"""Whole evaluations with two real worker processes, and what happens when something is killed."""

import contextlib
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import dask
import h5py
import numpy as np
import psutil
import pyarrow.parquet
import pytest

import ct_dip
import ct_dip.batch.evaluate as batch
from ct_dip.batch import clusters, engine
from ct_dip.batch.shares import PROCESS_BYTES
from ct_dip.batch.table import read_facts, read_rows
from ct_dip.batch.tasks import Task
from ct_dip.data.scan_file import write_scan
from ct_dip.errors import CtDipError, InputError, MemoryBudgetError
from ct_dip.progress import Progress, Stage
from tests.batch.gated import Gated

ITEMS, OPEN = 12, 5  # scans, and those before the gate
EARLY = 4  # rows that are finished before any task can reach beyond the gate
CORRUPT, NAN = 2, 7
BAD = {CORRUPT: "s02", NAN: "s07"}
METHODS = ["fbp", "tv", "dip"]  # of which the last one takes three items at once
SETTINGS = ["tv.strength=0.5", "dip.strength=0.5", "dip.max_steps=12", "dip.cooldown_steps=6"]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    """Twelve scans of 16², of which one has a corrupted chunk and one a value that is not a number."""
    folder = tmp_path_factory.mktemp("scans")
    geometry = ct_dip.scanner(ct_dip.Volume(shape=(16, 16)), views=10)
    for i in range(ITEMS):
        scan = ct_dip.simulate("ellipses", geometry, noise=ct_dip.NoiseLevel(relative=0.05), seed=i)
        write_scan(scan, folder / f"s{i:02d}.h5")
    with h5py.File(folder / "s02.h5") as file:
        place = file["sinogram"].id.get_chunk_info(0).byte_offset
    content = bytearray((folder / "s02.h5").read_bytes())
    content[place : place + 40] = b"\xff" * 40
    (folder / "s02.h5").write_bytes(content)
    with h5py.File(folder / "s07.h5", "r+") as file:
        file["sinogram"][3, 3] = np.nan
    return folder


@pytest.fixture(scope="module")
def serial(scans, tmp_path_factory):
    """The same evaluation in this process, one item after the other."""
    out = tmp_path_factory.mktemp("serial")
    ct_dip.evaluate(Gated(scans), METHODS, settings=SETTINGS, out=out, workers=0, memory_budget="3G")
    return out


def run(scans, out, gate=None, **options):
    dataset = Gated(scans, gate, OPEN)
    usual = {"settings": SETTINGS, "workers": 2, "memory_budget": "3G"}
    return ct_dip.evaluate(dataset, METHODS, out=out, **usual | options)


def at_the_gate(out, do, gate=None):
    """Do something, in a thread, when the first items are finished; then open the gate."""

    def wait_and_do():
        try:
            wait_for(lambda: len(finished(out)) >= EARLY)
            do()
        finally:
            if gate is not None:
                gate.touch()

    thread = threading.Thread(target=wait_and_do)
    thread.start()
    return thread


def finished(out):
    try:
        return [row for row in read_rows(out) if row.state in ("done", "failed")]
    except InputError:  # not begun
        return []


def wait_for(condition, seconds=90):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)


def contents(path):
    """All that a result file holds but times and memory."""
    with h5py.File(path) as file:
        arrays = {}
        file.visititems(
            lambda name, node: arrays.update({name: node[()].tobytes()}) if hasattr(node, "dtype") else None
        )
        facts = {name: value for name, value in file.attrs.items() if name not in ("seconds", "metrics")}
        metrics = json.loads(file.attrs["metrics"])
    metrics.pop("peak_memory_mb")
    return arrays, facts, metrics


def check_whole(out, serial):
    """All good items are done exactly once, bad ones are reported, and bits are those of the serial run."""
    rows, expected = read_rows(out), read_rows(serial)
    assert [(r.item, r.method) for r in rows] == [(i, m) for i in range(ITEMS) for m in METHODS]
    assert [r.finished for r in rows] == [1] * len(rows)
    for row, same in zip(rows, expected, strict=True):
        assert (row.state, row.error, row.scores) == (same.state, same.error, same.scores)
        assert row.state == ("failed" if row.item in BAD else "done")
        if row.state == "done":
            assert contents(out / row.result) == contents(serial / same.result)
            assert row.seconds > 0


def test_bad_items_are_reported_and_stop_nothing(serial):
    rows = {(row.item, row.method): row for row in read_rows(serial)}
    assert "s02.h5" in rows[CORRUPT, "tv"].error
    assert "sinogram[3, 3] is nan" in rows[NAN, "fbp"].error
    assert sum(row.state == "done" for row in rows.values()) == len(METHODS) * (ITEMS - len(BAD))


def test_scores_are_those_of_reconstruct(scans, serial):
    config = ct_dip.load_config(method="tv", settings=SETTINGS[:1])
    alone = ct_dip.reconstruct(scans / "s04.h5", config)
    row = next(row for row in read_rows(serial) if (row.item, row.method) == (4, "tv"))
    assert row.scores["psnr"] == alone.scores.psnr.value
    np.testing.assert_array_equal(ct_dip.read_result(serial / row.result).mean, alone.mean)


def test_a_killed_worker_loses_what_was_under_way_alone(scans, serial, tmp_path):
    def kill_a_worker():
        started = [p for p in psutil.Process().children() if "spawn_main" in " ".join(p.cmdline())]
        started[0].kill()

    saboteur = at_the_gate(tmp_path, kill_a_worker, tmp_path / "gate")
    run(scans, tmp_path, tmp_path / "gate")
    saboteur.join()
    check_whole(tmp_path, serial)


def test_a_killed_client_goes_on(scans, serial, tmp_path):
    script = (
        "import sys; from tests.batch.test_evaluate import run; from pathlib import Path\n"
        "if __name__ == '__main__': run(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[2]) / 'gate')"
    )
    client = subprocess.Popen([sys.executable, "-c", script, scans, tmp_path], cwd=ROOT)
    wait_for(lambda: len(finished(tmp_path)) >= EARLY)
    family = psutil.Process(client.pid).children(recursive=True)
    with pytest.raises(InputError, match=f"process {client.pid} on .* works on this evaluation"):
        run(scans, tmp_path)
    client.kill()
    client.wait()
    before = {row.result: (tmp_path / row.result).stat().st_mtime_ns for row in done_of(tmp_path)}
    assert any(row.state == "running" for row in read_rows(tmp_path))
    assert len(family) >= 4  # two workers, each with a child
    assert psutil.wait_procs(family, timeout=30)[1] == []  # nobody works on for nobody
    (tmp_path / "gate").touch()
    run(scans, tmp_path, tmp_path / "gate", workers=0)
    check_whole(tmp_path, serial)
    after = {row.result: (tmp_path / row.result).stat().st_mtime_ns for row in done_of(tmp_path)}
    assert before.items() <= after.items()  # nothing is done twice


def done_of(out):
    return [row for row in finished(out) if row.result is not None]


@pytest.fixture
def cluster(tmp_path):
    """A scheduler and two workers of their own, as somebody would start them."""
    place = tmp_path / "scheduler.json"
    own = {"cwd": ROOT, "stderr": subprocess.DEVNULL}
    parts = [
        subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard"]
            + ["--host", "127.0.0.1", "--scheduler-file", place],
            **own,
        )
    ]
    wait_for(place.exists)
    parts.append(
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "distributed.cli.dask_worker",
                "--scheduler-file",
                place,
                "--nworkers",
                "2",
            ]
            + ["--nthreads", "1", "--memory-limit", "0", "--no-dashboard"],
            **own,
        )
    )
    yield json.loads(place.read_text())["address"], *parts
    for part in parts:
        for process in [*psutil.Process(part.pid).children(recursive=True), part]:
            process.kill()
        part.wait()


def test_a_killed_scheduler_ends_the_run_and_it_goes_on(scans, serial, tmp_path, cluster):
    address, scheduler, _ = cluster
    elsewhere = {"scheduler": address, "workers": None, "threads": 1}
    saboteur = at_the_gate(tmp_path / "out", lambda: scheduler.send_signal(signal.SIGKILL))
    quick = dask.config.set({"distributed.comm.timeouts.connect": "2s"})
    with quick, pytest.raises(CtDipError, match=r"scheduler is gone .* the same command goes on"):
        run(scans, tmp_path / "out", tmp_path / "gate", **elsewhere)
    saboteur.join()
    assert EARLY <= len(finished(tmp_path / "out")) <= len(METHODS) * OPEN
    (tmp_path / "gate").touch()
    run(scans, tmp_path / "out", tmp_path / "gate", workers=0)
    check_whole(tmp_path / "out", serial)


def test_a_scheduler_may_go_while_a_result_is_fetched():
    class Lost:
        def exception(self):
            raise ConnectionResetError("by peer")

    with pytest.raises(CtDipError, match=r"scheduler is gone \(ConnectionResetError\)"):
        list(engine._rows(Lost(), Task("tv", ((0,),)), None, {0: "s00"}))


def test_scores_are_written_as_csv_and_parquet(serial):
    with (serial / "scores.csv").open() as file:
        lines = list(csv.DictReader(file))
    with (serial / "scores_columns.csv").open() as file:
        assert [line["column"] for line in csv.DictReader(file)] == list(lines[0])
    table = pyarrow.parquet.read_table(serial / "scores.parquet").to_pylist()
    assert len(lines) == len(table) == len(METHODS) * ITEMS
    for line, cells, row in zip(lines, table, read_rows(serial), strict=True):
        assert (int(line["item"]), line["state"]) == (row.item, row.state) == (cells["item"], cells["state"])
        assert cells["psnr"] == row.scores.get("psnr")
        assert line["psnr"] == ("" if cells["psnr"] is None else str(cells["psnr"]))


def test_other_settings_are_refused_with_the_difference(scans, serial):
    with pytest.raises(InputError, match=r"begun with methods\.tv\.tv\.strength 0\.5, not 0\.7"):
        run(scans, serial, settings=["tv.strength=0.7", *SETTINGS[1:]], workers=0)
    with pytest.raises(InputError, match=r"begun with fbp on item 3, s03, too; give all items and methods"):
        run(scans, serial, items="0:3", workers=0)
    assert set(read_facts(serial)) >= {"dataset", "methods", "versions", "threads"}
    assert read_facts(serial)["units"] == {"fbp": 1, "tv": 1, "dip": 3}


def test_items_and_methods_can_be_added(scans, tmp_path):
    usual = {"settings": SETTINGS[1:], "workers": 0, "light": True, "memory_budget": "3G", "out": tmp_path}
    ct_dip.evaluate(Gated(scans), ["dip"], items="0:2", **usual)
    rows = ct_dip.evaluate(Gated(scans), ["dip", "fbp"], items="0:12", **usual)
    assert len(rows) == 2 * ITEMS
    assert {row.finished for row in rows} == {1}
    assert read_facts(tmp_path)["units"] == {"dip": 1, "fbp": 1}  # as it was begun with
    with pytest.raises(InputError, match=r"begun with fbp on item 0"):
        ct_dip.evaluate(Gated(scans), ["dip"], items="0:12", **usual)


def test_a_method_that_does_not_fit_what_an_item_may_take_is_not_added(scans, tmp_path):
    usual = {"workers": 0, "light": True, "out": tmp_path, "items": [0]}
    ct_dip.evaluate(Gated(scans), ["fbp"], memory_budget=PROCESS_BYTES + 2**18, **usual)
    with pytest.raises(
        MemoryBudgetError, match=r"method dip needs .*, and .* was begun with .* another --out"
    ):
        ct_dip.evaluate(Gated(scans), ["fbp", "dip"], memory_budget="3G", **usual)


def test_other_data_under_the_same_names_are_refused(scans, tmp_path):
    data, light = shutil.copytree(scans, tmp_path / "data"), {"workers": 0, "light": True}
    run(data, tmp_path / "out", items=[0, 1], **light)
    run(data, tmp_path / "out", items=[0, 1], **light)
    shutil.copy(data / "s05.h5", data / "s00.h5")
    with pytest.raises(InputError, match=r"item 0, s00, has changed since .* give another --out"):
        run(data, tmp_path / "out", items=[0, 1], **light)


def test_a_scheduler_that_does_not_answer_leaves_nothing_that_binds(scans, tmp_path, monkeypatch):
    monkeypatch.setattr(clusters, "_CONNECT_SECONDS", 0.3)
    light = {"light": True, "items": [0]}
    with pytest.raises(InputError, match="no Dask scheduler"):
        run(scans, tmp_path, scheduler="tcp://127.0.0.1:1", workers=None, threads=2, **light)
    assert not (tmp_path / "scores.csv").exists()
    assert {row.state for row in run(scans, tmp_path, workers=0, threads=1, **light)} == {"done"}


def test_what_failed_is_tried_again_when_it_is_asked_for(scans, tmp_path):
    light = {"workers": 0, "light": True, "items": [1, CORRUPT, NAN]}
    with pytest.raises(CtDipError, match="more than --max-failures 1"):
        run(scans, tmp_path, max_failures=1, **light)
    run(scans, tmp_path, **light)
    rows = run(scans, tmp_path, **light)
    assert [row.finished for row in rows] == [1] * 9
    rows = run(scans, tmp_path, retry_failed=True, **light)
    assert [row.finished for row in rows] == [1] * 3 + [2] * 6
    assert not (tmp_path / "items").exists()


def test_processes_of_a_slurm_job_share_its_memory_and_cores(scans, tmp_path, monkeypatch):
    """Whatever the memory of the machine is that sends the jobs off."""
    places = []

    def connect(place):
        places.append(place)
        raise CtDipError("there is no SLURM here")

    monkeypatch.setattr(batch, "check_place", lambda place: None)
    monkeypatch.setattr(batch, "connect", connect)
    monkeypatch.setattr("ct_dip.memory.available_bytes", lambda: 2**45)
    for memory, cores in (("3GB", 4), ("3GB", 40), ("30GB", 4)):
        slurm, out = f"partition=main,jobs=2,cores={cores},memory={memory}", tmp_path / f"{memory} {cores}"
        with pytest.raises(CtDipError, match="no SLURM here"):
            ct_dip.evaluate(Gated(scans), ["fbp", "dip"], out=out, slurm=slurm)
        facts, workers = read_facts(out), places[-1].workers
        assert workers * facts["threads"] <= cores
        assert workers * (facts["item_bytes"] + PROCESS_BYTES) <= places[-1].slurm.memory_bytes
        assert workers == (4 if cores == 4 else 6)
    with pytest.raises(InputError, match=r"no effect with --slurm; write memory=…"):
        ct_dip.evaluate(Gated(scans), ["fbp"], out=tmp_path, slurm=slurm, memory_budget="3G")


def test_a_machine_without_slurm_leaves_nothing_behind(scans, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="--slurm: the command sbatch is not on PATH"):
        ct_dip.evaluate(Gated(scans), ["fbp"], out=tmp_path / "out", slurm="partition=main")
    assert not (tmp_path / "out").exists()


def test_the_pace_counts_from_before_the_first_item(scans, tmp_path):
    class Told(Progress, Stage):
        @contextlib.contextmanager
        def _show(self, name, total):
            yield self if name == "evaluate" else Stage()

        def update(self, done, **figures):
            told.append(done)

    told = []
    ct_dip.evaluate(Gated(scans), ["fbp"], out=tmp_path, items="0:2", workers=0, progress=Told())
    assert (told[0], told[-1]) == (0, 2)


@pytest.mark.parametrize("bokeh", [None, "installed"])
def test_a_dashboard_is_named_where_there_is_one(scans, tmp_path, monkeypatch, bokeh):
    @contextlib.contextmanager
    def connect(place):
        scheduler = SimpleNamespace(address="tcp://127.0.0.1:8786")
        yield SimpleNamespace(scheduler=scheduler, dashboard_link="http://127.0.0.1:8787/status")

    class Notes(Progress):
        def note(self, message):
            told.append(message)

    told = []
    monkeypatch.setattr(batch, "connect", connect)
    monkeypatch.setattr(batch.importlib.util, "find_spec", lambda name: bokeh)
    with pytest.raises(AttributeError, match="submit"):  # this client can do nothing
        run(scans, tmp_path, progress=Notes())
    dashboard = ", dashboard at http://127.0.0.1:8787/status" if bokeh else ""
    assert told == [f"2 workers of tcp://127.0.0.1:8786{dashboard}"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"items": "0:99"}, "the dataset has 12 items"),
        ({"workers": -1}, "--workers -1 must be at least 0"),
        ({"item_minutes": 0.0, "workers": 1}, "--item-minutes 0 must be positive"),
        ({"item_minutes": 1.0, "workers": 0}, "needs a worker that can be stopped"),
        ({"scheduler": "tcp://127.0.0.1:1", "slurm": "partition=a"}, "give one of them"),
        ({"scheduler": "tcp://127.0.0.1:1"}, "drop it, or --scheduler"),
        ({"workers": 500}, "give at most"),
        ({"methods": ["fbp", "nothing"]}, "'nothing' is not known"),
    ],
)
def test_bad_options_are_refused(scans, tmp_path, options, text):
    options = {"methods": ["fbp"], "workers": 2, "memory_budget": "3G"} | options
    with pytest.raises(InputError, match=text):
        ct_dip.evaluate(Gated(scans), options.pop("methods"), out=tmp_path, **options)


def test_the_process_is_left_as_it_was():
    assert [p for p in psutil.Process(os.getpid()).children() if "spawn_main" in " ".join(p.cmdline())] == []
