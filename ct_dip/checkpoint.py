"""What a stage of a run found, on disk, so that a killed run goes on to the same bits. No pickles."""

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from ct_dip.errors import InputError
from ct_dip.files import atomic_path
from ct_dip.scratch import Waiting

T = TypeVar("T")


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
    from_state: Callable[[dict[str, Tensor]], T],
) -> T:
    """`stage_result` of what is no dictionary of tensors, but can be written as one and read again."""
    if folder is None:
        return compute()
    path = folder / name
    try:
        state = load_checkpoint(path, digest)
    except InputError:
        state = None
    if state is not None:
        return from_state(state)
    found = compute()
    save_checkpoint(path, digest, to_state(found))
    return found


def load_checkpoint(path: Path, digest: str) -> dict[str, Tensor] | None:
    """The state, or ``None`` if there is none yet.

    Raises:
        InputError: the file belongs to another scan, configuration or ray transform, or is damaged. It is
            not touched.
    """
    if not path.exists():
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            found = str(arrays["digest"])
            names = [name for name in arrays if name != "digest"] if found == digest else []
            state = {name: torch.from_numpy(arrays[name]) for name in names}
    except (KeyError, ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise InputError(f"checkpoint {path} cannot be read ({error}); remove it to start again") from error
    if found != digest:
        raise InputError(
            f"checkpoint {path} belongs to another scan or configuration, or to another ray transform; "
            "give the --backend and --kernel that it began with, use another run folder, or remove it to "
            "start again"
        )
    return state
