"""The table of record of an evaluation: every (item, method) with its state and what came of it.

It is a SQLite file, written by one process alone, the client; workers hand their rows to it. So nothing is
locked by many machines over a network file system, a kill at any moment leaves the last whole transaction,
and any program that reads SQLite can look at it while it grows.
"""

import contextlib
import json
import os
import socket
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from ct_dip.errors import InputError
from ct_dip.text import shortened

FILE = "run.sqlite"
_BY_METHOD = ("methods", "units")  # facts that have a value for every method
State = Literal["pending", "running", "done", "failed"]
_BEAT_SECONDS = 10.0  # between two signs of life
_DEAD_SECONDS = 90.0  # without one, after which a client on another machine is taken for gone
_TABLES = """
    CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS rows (
        item INTEGER, method TEXT, label TEXT NOT NULL, state TEXT NOT NULL, error TEXT NOT NULL DEFAULT '',
        seconds REAL, peak_memory_mb REAL, scores TEXT NOT NULL DEFAULT '{}',
        scan_digest TEXT NOT NULL DEFAULT '', result TEXT, finished INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (item, method)
    );
"""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One method on one item.

    Args:
        item: number in the dataset; ``label`` its name.
        seconds: of the run without the scores; ``peak_memory_mb`` of the process that made it.
        scores: every figure that there is, by the flat names of `ct_dip.data.scores.Scores.row`.
        result: path of the result file below the evaluation's folder; ``None`` if none was kept.
        finished: how often a worker handed in this row; never above 1 but after ``--retry-failed``.
    """

    item: int
    method: str
    label: str
    state: State = "pending"
    error: str = ""
    seconds: float | None = None
    peak_memory_mb: float | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    scan_digest: str = ""
    result: str | None = None
    finished: int = 0


class Table:
    """The table of record, open for the one process that writes it.

    Args:
        folder: of the evaluation.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._beaten = folder, 0.0
        self._file = _open(folder / FILE, "rwc")
        try:
            self._file.executescript(_TABLES)
            self._claim()
        except sqlite3.Error as error:
            self._file.close()
            raise InputError(f"{folder / FILE} cannot be written ({error}); choose another --out") from error
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(sqlite3.Error), self._file:
            self._file.execute("DELETE FROM facts WHERE name = 'client'")
        self._file.close()

    def begin(self, facts: Mapping[str, Any], items: Mapping[int, str], methods: Sequence[str]) -> None:
        """Enter what is to be done, or check that it is what this table was begun with.

        A table that has no finished row yet binds nobody: it is begun anew. Items and methods may be added,
        not left out.

        Args:
            facts: everything that decides the results; ``methods`` and ``units`` by method.
            items: labels by number.

        Raises:
            InputError: the table belongs to another evaluation; names the first difference.
        """
        if self._binds():
            self._check(facts, items, methods)
        with self._file:
            if not self._binds():
                self._file.execute("DELETE FROM rows")
                self._file.execute("DELETE FROM facts WHERE name != 'client'")
            self._file.executemany(
                "INSERT OR REPLACE INTO facts VALUES (?, ?)", [(n, json.dumps(v)) for n, v in facts.items()]
            )
            self._file.executemany(
                "INSERT OR IGNORE INTO rows (item, method, label, state) VALUES (?, ?, ?, 'pending')",
                [(item, method, label) for item, label in items.items() for method in methods],
            )
            self._file.execute("UPDATE rows SET state = 'pending' WHERE state = 'running'")

    def _check(self, facts: Mapping[str, Any], items: Mapping[int, str], methods: Sequence[str]) -> None:
        for name, now in facts.items():
            before = self.fact(name)
            if name in _BY_METHOD:  # of methods that were added there is nothing to compare
                before, now = ({m: known[m] for m in before.keys() & now.keys()} for known in (before, now))
            _compare(name, before, now, self.folder)
        rows = self._file.execute("SELECT item, method, label FROM rows ORDER BY item, rowid").fetchall()
        for item, method, label in rows:
            if item not in items or method not in methods:
                raise InputError(
                    f"{self.folder} was begun with {method} on item {item}, {label}, too; give all items and "
                    "methods that it has, and others if you like, or another --out"
                )
            _compare(f"the label of item {item}", label, items[item], self.folder)

    def fact(self, name: str) -> Any:
        """Return what the table was begun with; ``None`` if nothing is finished yet."""
        return _facts(self._file).get(name) if self._binds() else None

    def retry_failed(self) -> None:
        """Make what failed pending again."""
        with self._file:
            self._file.execute("UPDATE rows SET state = 'pending', error = '' WHERE state = 'failed'")

    def mark(self, pairs: Iterable[tuple[int, str]], state: State) -> None:
        """Set the state of some (item, method)."""
        with self._file:
            self._file.executemany(
                "UPDATE rows SET state = ? WHERE item = ? AND method = ?", [(state, *pair) for pair in pairs]
            )

    def record(self, rows: Iterable[Row]) -> None:
        """Keep finished rows, all or none. A row that is done stays as it is."""
        values = [vars(row) | {"scores": json.dumps(dict(row.scores))} for row in rows]
        with self._file:
            self._file.executemany(
                "UPDATE rows SET state = :state, error = :error, seconds = :seconds, scores = :scores, "
                "peak_memory_mb = :peak_memory_mb, scan_digest = :scan_digest, result = :result, "
                "finished = finished + 1 WHERE item = :item AND method = :method AND state != 'done'",
                values,
            )

    def pairs(self, state: State) -> list[tuple[int, str]]:
        """List every (item, method) of a state, in the order of the items."""
        return self._file.execute(
            "SELECT item, method FROM rows WHERE state = ? ORDER BY item", (state,)
        ).fetchall()

    def beat(self) -> None:
        """Leave a sign of life, so that no second client works on the same table."""
        if time.time() - self._beaten > _BEAT_SECONDS:
            with self._file:
                self._sign()

    def _sign(self) -> None:
        self._beaten, process = time.time(), os.getpid()
        client = {"host": socket.gethostname(), "process": process, "start": _start(process)}
        text = json.dumps(client | {"time": self._beaten})
        self._file.execute("INSERT OR REPLACE INTO facts VALUES ('client', ?)", [text])

    def _binds(self) -> bool:
        return self._file.execute("SELECT 1 FROM rows WHERE finished > 0").fetchone() is not None

    def _claim(self) -> None:
        with self._file:
            self._file.execute("BEGIN IMMEDIATE")  # no other client looks between this look and the claim
            client = _facts(self._file).get("client")
            if client is not None:
                here = client["host"] == socket.gethostname()
                alive = _is_running(client) if here else time.time() - client["time"] < _DEAD_SECONDS
                if alive and not (here and client["process"] == os.getpid()):
                    raise InputError(
                        f"{self.folder}: process {client['process']} on {client['host']} works on "
                        "this evaluation; wait for it or stop it, or choose another --out"
                    )
            self._sign()


def read_rows(folder: str | Path) -> list[Row]:
    """Read every row of an evaluation, finished or under way, in the order of items and methods.

    Raises:
        InputError: there is no evaluation in this folder.
    """
    with _reading(folder) as file:
        names = [column[1] for column in file.execute("PRAGMA table_info(rows)")]
        found = file.execute("SELECT * FROM rows ORDER BY item, rowid").fetchall()
    rows = []
    for values in found:
        cells = dict(zip(names, values, strict=True))
        rows.append(Row(**cells | {"scores": json.loads(cells["scores"])}))
    return rows


def read_facts(folder: str | Path) -> dict[str, Any]:
    """Read what an evaluation was begun with: dataset, items, methods with their settings, versions."""
    with _reading(folder) as file:
        return {name: value for name, value in _facts(file).items() if name != "client"}


@contextlib.contextmanager
def _reading(folder: str | Path) -> Iterator[sqlite3.Connection]:
    path = Path(folder) / FILE
    if not path.is_file():
        raise InputError(f"{folder} holds no evaluation ({FILE}); give the --out of ct-dip evaluate")
    file = _open(path, "ro")
    try:
        yield file
    except sqlite3.Error as error:
        raise InputError(f"{path} cannot be read ({error}); is it a table of ct-dip evaluate?") from error
    finally:
        file.close()


def _open(path: Path, mode: str) -> sqlite3.Connection:
    try:
        return sqlite3.connect(f"{path.resolve().as_uri()}?mode={mode}", uri=True, timeout=30)
    except sqlite3.Error as error:
        raise InputError(f"{path} cannot be opened ({error}); choose another folder") from error


def _facts(file: sqlite3.Connection) -> dict[str, Any]:
    return {name: json.loads(value) for name, value in file.execute("SELECT name, value FROM facts")}


def _compare(name: str, before: Any, now: Any, folder: Path) -> None:
    """Refuse a fact that differs from the table's, down to the first key that does."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted(before.keys() | now.keys()):
            _compare(f"{name}.{key}", before.get(key), now.get(key), folder)
    elif before != now:
        raise InputError(
            f"{folder} was begun with {name} {shortened(json.dumps(before))}, not "
            f"{shortened(json.dumps(now))}; give the same, or another --out"
        )


def _is_running(client: Mapping[str, Any]) -> bool:
    try:
        os.kill(client["process"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    before, now = client.get("start"), _start(client["process"])
    return before == now or not before or not now


def _start(process: int) -> str:
    """Return what tells a process from a later one of the same number; empty where there is no /proc."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        ticks = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]  # since the boot
    except OSError:
        return ""
    return f"{boot} {ticks}"
