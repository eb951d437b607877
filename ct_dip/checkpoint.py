"""What a stage of a run found, on disk, so that a killed run goes on to the same bits. No pickles."""

import contextlib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ct_dip.errors import InputError
from ct_dip.files import atomic_path
from ct_dip.scratch import Waiting

T = TypeVar("T")

_DAMAGE = (KeyError, ValueError, EOFError, OSError, zipfile.BadZipFile)  # what reading a broken file raises


def save_checkpoint(path: Path, digest: str, state: Mapping[str, Tensor | Waiting]) -> None:
    """Write a state atomically, labelled with the digest of what it belongs to."""
    # What waits on disk is loaded by NumPy when its turn comes.
    arrays = {
        name: value if isinstance(value, Waiting) else value.detach().cpu().numpy()
        for name, value in state.items()
    }
    advice = "choose another run folder (--run)"
    with atomic_path(path, advice=advice) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, digest=np.array(digest), **arrays)


def stage_result(
    folder: Path | None, name: str, digest: str, compute: Callable[[], dict[str, Tensor]]
) -> dict[str, Tensor]:
    """What a stage found before, from its file in the run folder, or what it finds now, which is then kept.

    A file that belongs to other inputs is replaced: redoing a stage with other settings is what run folders
    are for.
    """
    return stage_object(folder, name, digest, compute=compute, to_state=dict, from_state=dict)


def stage_object(
    folder: Path | None,
    name: str,
    digest: str,
    *,
    compute: Callable[[], T],
    to_state: Callable[[T], Mapping[str, Tensor | Waiting]],
    from_state: Callable[[Mapping[str, Tensor]], T],
) -> T:
    """`stage_result` of what is no dictionary of tensors, but can be written as one and read again.

    Args:
        from_state: of a state whose tensors are read from the file when they are asked for, each time anew.
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
    found = compute()
    save_checkpoint(path, digest, to_state(found))
    return found


def load_checkpoint(path: Path, digest: str) -> dict[str, Tensor] | None:
    """The state, or ``None`` if there is none yet.

    Raises:
        InputError: the file belongs to another scan, configuration or ray transform, or is damaged. It is
            not touched.
    """
    with _opened(path, digest) as state:
        return None if state is None else dict(state)


class _Stored(Mapping[str, Tensor]):
    """The tensors of a file, read when they are asked for: not all of them are needed at once."""

    def __init__(self, path: Path, arrays: Any) -> None:
        self._path, self._arrays = path, arrays

    def array(self, name: str) -> np.ndarray[Any, Any]:
        try:
            found: np.ndarray[Any, Any] = self._arrays[name]
        except _DAMAGE as error:
            raise _unreadable(self._path, error) from error
        return found

    def __getitem__(self, name: str) -> Tensor:
        if name not in self:
            raise KeyError(name)
        return torch.from_numpy(self.array(name))

    def __contains__(self, name: object) -> bool:
        return name != "digest" and name in self._arrays.files

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._arrays.files if name != "digest")

    def __len__(self) -> int:
        return len(self._arrays.files) - 1


@contextlib.contextmanager
def _opened(path: Path, digest: str) -> Iterator[_Stored | None]:
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
        if str(stored.array("digest")) != digest:
            raise InputError(
                f"checkpoint {path} belongs to another scan or configuration, or to another ray transform; "
                "give the --backend and --kernel that it began with, use another run folder, or remove it to "
                "start again"
            )
        yield stored


def _unreadable(path: Path, error: Exception) -> InputError:
    return InputError(f"checkpoint {path} cannot be read ({error}); remove it to start again")
