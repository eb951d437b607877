"""Keep the results of a run's stages on disk, so that a killed run continues: on the CPU to the same bits.

No pickles.
"""

import contextlib
import json
import lzma
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ct_dip.errors import InputError
from ct_dip.files import atomic_path
from ct_dip.labels import LABEL, has_label, write_label

T = TypeVar("T")

# What reading a broken file raises.
_DAMAGE = (
    *(KeyError, ValueError, EOFError, OSError, TypeError, SyntaxError, MemoryError, RuntimeError),
    *(NotImplementedError, AttributeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
)
_LABELS = ("digest", LABEL)
BITS = ("threads", "device", "torch")  # parts of a digest that decide the last bits of a result alone


def save_checkpoint(path: Path, digest: str, state: Mapping[str, Tensor]) -> None:
    """Write a state atomically, labelled with the digest of what it belongs to."""
    arrays = {name: value.detach().cpu().numpy() for name, value in state.items()}
    advice = "choose another run folder (--run)"
    with atomic_path(path, advice=advice) as temporary, temporary.open("w+b") as file:
        np.savez(file, allow_pickle=False, digest=np.array(digest), **arrays)
        with zipfile.ZipFile(file, "a") as archive:
            write_label(archive, digest)


def stage_result(
    folder: Path | None,
    name: str,
    digest: str,
    compute: Callable[[], dict[str, Tensor]],
    check: Callable[[Mapping[str, Tensor]], dict[str, Tensor]],
) -> dict[str, Tensor]:
    """What a stage found before, from its file in the run folder, or what it finds now, which is then kept.

    A file that belongs to other inputs is replaced: redoing a stage with other settings is what run folders
    are for.

    Args:
        check: takes from a state what must be in it, see `take`.
    """
    return stage_object(folder, name, digest, compute=compute, to_state=dict, from_state=check)


def stage_object(
    folder: Path | None,
    name: str,
    digest: str,
    *,
    compute: Callable[[], T],
    to_state: Callable[[T], Mapping[str, Tensor]],
    from_state: Callable[[Mapping[str, Tensor]], T],
) -> T:
    """`stage_result` of what is no dictionary of tensors, but can be written as one and read again.

    Args:
        from_state: of a state whose tensors are read from the file when they are asked for, each time again.
    """
    if folder is None:
        return compute()
    path = folder / name
    try:
        with _opened(path, digest) as state:
            if state is not None:
                return from_state(state)
    except InputError:
        pass  # of other inputs, or damaged
    computed = compute()
    save_checkpoint(path, digest, to_state(computed))
    return computed


def load_checkpoint(
    path: Path,
    digest: str,
    *,
    tolerate: Collection[str] = (),
    note: Callable[[str], None] = lambda message: None,
) -> dict[str, Tensor] | None:
    """The state, or ``None`` if there is none yet.

    Args:
        digest: of what the state belongs to; if it is a JSON object, an error names the parts that differ.
        tolerate: parts of such an object that may differ.
        note: told which of them do.

    Raises:
        InputError: the file belongs to something else, or is damaged. It is not touched.
    """
    with _opened(path, digest, tolerate, note) as state:
        return None if state is None else dict(state)


class _Stored(Mapping[str, Tensor]):
    """The tensors of a file, read when they are asked for: not all of them are needed at once."""

    def __init__(self, path: Path, arrays: Any) -> None:
        self._path, self._arrays = path, arrays

    def array(self, name: str) -> np.ndarray[Any, Any]:
        try:
            values: np.ndarray[Any, Any] = self._arrays[name]
        except _DAMAGE as error:
            raise _unreadable(self._path, error) from error
        return values

    def __getitem__(self, name: str) -> Tensor:
        if name not in self:
            raise KeyError(name)
        return torch.from_numpy(self.array(name))

    def __contains__(self, name: object) -> bool:
        return name not in _LABELS and name in self._arrays.files

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._arrays.files if name not in _LABELS)

    def __len__(self) -> int:
        return len(list(iter(self)))


@contextlib.contextmanager
def _opened(
    path: Path,
    digest: str,
    tolerate: Collection[str] = (),
    note: Callable[[str], None] = lambda message: None,
) -> Iterator[_Stored | None]:
    """The state in a file; see `load_checkpoint`."""
    if not path.exists():
        yield None
        return
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("rb"))
            arrays = stack.enter_context(np.load(file, allow_pickle=False))
        except _DAMAGE as error:
            raise _unreadable(path, error) from error
        stored = _Stored(path, arrays)
        stored_digest = str(stored.array("digest"))
        if not has_label(arrays.zip, stored_digest):
            raise _unreadable(path, ValueError("its content was changed, or is of an earlier version"))
        if stored_digest != digest:
            changes = _changes(stored_digest, digest)
            if not changes or not changes.keys() <= set(tolerate):
                raise _other(path, changes, tolerate)
            note(f"continuing {path}, which began with other settings: {_spell(changes)}")
        yield stored


def _changes(before: str, now: str) -> dict[str, tuple[Any, Any]]:
    """The parts of two JSON objects that differ, with both values; none if these are no such objects."""
    try:
        old, new = (_flat(json.loads(text)) for text in (before, now))
    except (ValueError, AttributeError):
        return {}
    return {name: (old.get(name), new.get(name)) for name in old | new if old.get(name) != new.get(name)}


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    """``{"dip": {"ramp": 1}}`` as ``{"dip.ramp": 1}``."""
    inner = {name: value.items() for name, value in values.items() if isinstance(value, dict)}
    flat = {f"{name}.{key}": value for name, items in inner.items() for key, value in items}
    return {name: value for name, value in values.items() if name not in inner} | flat


def _spell(changes: Mapping[str, tuple[Any, Any]]) -> str:
    """What differs; of digests, which nobody can read, the name alone."""
    parts = []
    for name, (before, now) in changes.items():
        readable = all(len(str(value)) < 40 for value in (before, now))
        parts.append(f"{name} was {before} and is {now}" if readable else name)
    return ", ".join(parts)


def _other(path: Path, changes: Mapping[str, tuple[Any, Any]], tolerate: Collection[str]) -> InputError:
    """The error that says what a checkpoint of something else differs in, and what to do."""
    what = f"in: {_spell(changes)}" if changes else "from this run"
    way_on = ""
    if changes and changes.keys() <= set(BITS) and not tolerate:
        way_on = "continue with --resume compatible, which gives other last bits, "
    return InputError(
        f"checkpoint {path} differs {what}; {way_on}use another run folder (--run), or remove it to start "
        "again"
    )


def take(
    state: Mapping[str, Tensor],
    name: str,
    shape: tuple[int | None, ...],
    dtype: torch.dtype,
    *,
    finite: bool = True,
) -> Tensor:
    """A tensor of a state, if it is as it must be.

    Args:
        shape: of which sides that are ``None`` may have any length.
        finite: whether all its values must be.

    Raises:
        InputError: otherwise; `stage_object` then computes the stage again.
    """
    tensor = state.get(name)
    if tensor is None:
        raise InputError(f"there is no tensor {name!r}")
    sides = tuple(tensor.shape)
    fits = len(shape) == len(sides) and all(map(_fits, shape, sides))
    if not fits or tensor.dtype != dtype:
        raise InputError(f"tensor {name!r} is {tensor.dtype} {sides}, expected {dtype} {shape}")
    if finite and not bool(torch.isfinite(tensor).all()):
        raise InputError(f"tensor {name!r} holds values that are not finite")
    return tensor


def _fits(side: int | None, length: int) -> bool:
    return side is None or side == length


def _unreadable(path: Path, error: Exception) -> InputError:
    return InputError(f"checkpoint {path} cannot be read ({error}); remove it to start again")
