"""State of a fit on disk, so that a killed run goes on to the same bits. Plain arrays, no pickles."""

import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ct_dip.errors import InputError
from ct_dip.files import atomic_path


def save_checkpoint(path: Path, digest: str, state: dict[str, Tensor]) -> None:
    """Write a state atomically, labelled with the digest of what it belongs to."""
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in state.items()}
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, digest=np.array(digest), **arrays)


def load_checkpoint(path: Path, digest: str) -> dict[str, Tensor] | None:
    """The state, or ``None`` if there is none yet.

    Raises:
        InputError: the file belongs to another scan or configuration, or is damaged. It is not touched.
    """
    if not path.exists():
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            found = str(arrays["digest"])
            state = {name: torch.from_numpy(arrays[name]) for name in arrays if name != "digest"}
    except (KeyError, ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise InputError(f"checkpoint {path} cannot be read ({error}); remove it to start again") from error
    if found != digest:
        raise InputError(
            f"checkpoint {path} belongs to another scan or configuration; "
            "use another run folder, or remove it to start again"
        )
    return state
