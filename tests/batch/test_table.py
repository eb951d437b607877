"""The table of record: states, what is done stays done, and another evaluation is refused."""

import json
import socket
import sqlite3
import subprocess
import sys
import time

import pytest

from ct_dip.batch.table import FILE, Row, Table, read_facts, read_rows
from ct_dip.errors import InputError

FACTS = {"dataset": "three scans", "methods": {"tv": {"strength": 0.5}}}
ITEMS = {4: "four", 7: "seven", 9: "nine"}


def begin(folder, **changes):
    table = Table(folder)
    table.begin(FACTS | changes, ITEMS, ["fbp", "tv"])
    return table


def row(item, method, state="done", **others):
    return Row(item=item, method=method, label=ITEMS[item], state=state, **others)


def test_rows_go_from_pending_to_done_or_failed(tmp_path):
    with begin(tmp_path) as table:
        assert table.pairs("pending") == [(i, m) for i in ITEMS for m in ("fbp", "tv")]
        table.mark([(4, "fbp"), (7, "tv")], "running")
        good = row(4, "fbp", seconds=1.5, peak_memory_mb=3.0, scores={"psnr": 30.5}, result="a/b.h5")
        table.record([good, row(7, "tv", "failed", error="broken")])
        assert {r.state for r in read_rows(tmp_path)} == {"pending", "done", "failed"}  # while it is open
    rows = {(r.item, r.method): r for r in read_rows(tmp_path)}
    assert list(rows) == [(i, m) for i in ITEMS for m in ("fbp", "tv")]
    assert rows[4, "fbp"] == row(
        4,
        "fbp",
        finished=1,
        **{
            k: getattr(good, k)
            for k in good.__dict__
            if k in ("seconds", "peak_memory_mb", "scores", "result")
        },
    )
    assert rows[7, "tv"].error == "broken"
    assert read_facts(tmp_path) == FACTS


def test_what_was_under_way_is_pending_again_and_done_stays_done(tmp_path):
    with begin(tmp_path) as table:
        table.mark([(4, "fbp"), (7, "fbp")], "running")
        table.record([row(4, "fbp", scores={"psnr": 1.0}), row(9, "tv", "failed", error="no")])
    with begin(tmp_path) as table:
        assert (7, "fbp") in table.pairs("pending")
        table.record([row(4, "fbp", scores={"psnr": 2.0})])  # by a worker that nobody waits for any more
        assert (9, "tv") not in table.pairs("pending")
        table.retry_failed()
        assert (9, "tv") in table.pairs("pending")
    first = read_rows(tmp_path)[0]
    assert (first.scores, first.finished) == ({"psnr": 1.0}, 1)


def test_another_evaluation_is_refused_with_the_first_difference(tmp_path):
    with begin(tmp_path) as table:
        table.record([row(4, "fbp", "failed", error="no")])
    with Table(tmp_path) as table:
        with pytest.raises(InputError, match=r'begun with dataset "three scans", not "four"'):
            table.begin(FACTS | {"dataset": "four"}, ITEMS, ["fbp", "tv"])
        with pytest.raises(InputError, match=r"begun with methods\.tv\.strength 0\.5, not null"):
            table.begin(FACTS | {"methods": {"tv": {}}}, ITEMS, ["fbp", "tv"])
        with pytest.raises(InputError, match="begun with light null, not true"):
            table.begin(FACTS | {"light": True}, ITEMS, ["fbp", "tv"])
        with pytest.raises(InputError, match="begun with fbp on item 4, four, too; give all"):
            table.begin(FACTS, ITEMS, ["tv"])
        with pytest.raises(InputError, match="begun with fbp on item 9, nine, too; give all"):
            table.begin(FACTS, {4: "four", 7: "seven"}, ["fbp", "tv"])
        with pytest.raises(InputError, match='begun with the label of item 9 "nine", not "neun"'):
            table.begin(FACTS, ITEMS | {9: "neun"}, ["fbp", "tv"])


def test_items_and_methods_can_be_added(tmp_path):
    with begin(tmp_path) as table:
        table.record([row(4, "fbp")])
    facts = {"dataset": "three scans", "methods": {"tv": {"strength": 0.5}, "cgls": {}}}
    with Table(tmp_path) as table:
        table.begin(facts, ITEMS | {5: "five"}, ["fbp", "tv", "cgls"])
        assert len(table.pairs("pending")) == 4 * 3 - 1
    assert read_facts(tmp_path) == facts


def test_a_table_without_a_finished_row_binds_nobody(tmp_path):
    with begin(tmp_path, threads=3) as table:
        table.mark([(4, "fbp")], "running")
    with Table(tmp_path) as table:
        assert table.fact("threads") is None
        table.begin(FACTS | {"threads": 1}, {4: "four"}, ["tv"])
        assert table.pairs("pending") == [(4, "tv")]
    assert read_facts(tmp_path) == FACTS | {"threads": 1}


@pytest.mark.parametrize(
    ("process", "start", "host", "age", "refused"),
    [
        (1, None, None, 1e6, True),  # runs, whenever it last said so
        (1, "another boot 7", None, 0, False),  # its number is that of another process by now
        (2**22 + 1, None, None, 0, False),  # there is no such process
        (1, None, "elsewhere", 5, True),
        (1, None, "elsewhere", 1000, False),
    ],
)
def test_one_client_at_a_time(tmp_path, process, start, host, age, refused):
    begin(tmp_path).__exit__()
    client = {"host": host or socket.gethostname(), "process": process, "time": time.time() - age}
    if start is not None:
        client["start"] = start
    with sqlite3.connect(tmp_path / FILE) as file:
        file.execute("INSERT OR REPLACE INTO facts VALUES ('client', ?)", [json.dumps(client)])
    file.close()
    if refused:
        with pytest.raises(InputError, match=f"process {process} on {client['host']} works on"):
            Table(tmp_path)
    else:
        begin(tmp_path).__exit__()


def test_a_client_that_runs_is_known_by_its_start(tmp_path):
    script = (
        "import sys; from pathlib import Path; from ct_dip.batch.table import Table\n"
        "with Table(Path(sys.argv[1])): print('claimed', flush=True); sys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script, tmp_path], **pipes) as client:
        assert client.stdout.readline() == b"claimed\n"
        with pytest.raises(InputError, match=f"process {client.pid} on .* works on"):
            Table(tmp_path)
        client.stdin.close()
        client.wait()
    begin(tmp_path).__exit__()


def test_a_folder_without_a_table_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no evaluation"):
        read_rows(tmp_path)
    (tmp_path / FILE).write_bytes(b"something else" * 100)
    with pytest.raises(InputError, match="is it a table of ct-dip evaluate"):
        read_rows(tmp_path)
    with pytest.raises(InputError, match="cannot be written"):
        Table(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
