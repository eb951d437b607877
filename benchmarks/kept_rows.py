"""Rows that are kept in a file of JSON lines, so that a benchmark of hours can go on where it was stopped."""

import json
from collections.abc import Callable, Hashable
from dataclasses import fields
from pathlib import Path

from benchmarks.measure import Row


class KeptRows:
    """Rows by a key that is made from each.

    Args:
        path: of the file; ``None`` keeps nothing.
        key: of a row.
    """

    def __init__(self, path: Path | None, key: Callable[[Row], Hashable]) -> None:
        self.path = path
        self.known = {} if path is None or not path.exists() else {key(row): row for row in _read(path)}

    def get(self, key: Hashable, measure: Callable[[], Row]) -> Row:
        """Return the kept row, or measure and keep one if there is none or it ended in an error."""
        if key in self.known and "error" not in self.known[key].details:
            return self.known[key]
        row = measure()
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps(row.as_dict(), ensure_ascii=False) + "\n")
        return row


def _read(path: Path) -> list[Row]:
    own, rows = {field.name for field in fields(Row)}, []
    for line in path.read_text().splitlines():
        values = json.loads(line)
        details = {name: values.pop(name) for name in list(values) if name not in own}
        rows.append(Row(**values, details=details))
    return rows
