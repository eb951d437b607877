"""Names for runs of methods: as short as they can be, and different for runs that a table compares."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ct_dip.text import shortened


def run_names(runs: Sequence[tuple[str, str, Mapping[str, Any]]]) -> list[str]:
    """Return a name for every run, given by its scan's digest, method and settings.

    It is the method's, with the settings that tell runs of one method on one scan apart, and a number if
    nothing does.
    """
    names = [method for _, method, _ in runs]
    flat = [dict(_flatten(settings)) for _, _, settings in runs]

    def clashes(method: str) -> list[list[int]]:
        """Find runs of a method that have the same scan and the same name."""
        alike: dict[tuple[str, str], list[int]] = {}
        for index, (digest, each, _) in enumerate(runs):
            if each == method:
                alike.setdefault((digest, names[index]), []).append(index)
        return [indices for indices in alike.values() if len(indices) > 1]

    for method in dict.fromkeys(names):
        used: set[str] = set()
        while found := clashes(method):
            keys = [
                key
                for indices in found
                for key in dict.fromkeys(k for i in indices for k in flat[i])
                if key not in used and len({repr(flat[i].get(key)) for i in indices}) > 1
            ]
            if not keys:
                for indices in found:
                    for number, index in enumerate(indices[1:], start=2):
                        names[index] += f" ({number})"
                break
            key = min(keys, key=lambda k: k.count("."))  # a preset rather than all that follows from it
            used.add(key)
            for index, (_, each, _) in enumerate(runs):
                if each == method:
                    names[index] += f", {key.rpartition('.')[2]} {shortened(flat[index].get(key), 30)}"
    return names


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        elif key != "method":
            yield prefix + key, value
