"""Tensors that wait on disk: for what is large, and read now and then from one end to the other.

They are in a file that has no name, and are mapped into memory only while they are read. The system keeps
what it has read of a file as long as nobody else needs the memory, so that reading again costs nothing.
"""

import io
import logging
import mmap
import os
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

_log = logging.getLogger(__name__)


def scratch_folder() -> Path:
    """``TMPDIR`` if it is set, else ``/var/tmp``: on many systems ``/tmp`` is memory itself."""
    for folder in (os.environ.get("TMPDIR"), "/var/tmp"):
        if folder and Path(folder).is_dir() and os.access(folder, os.W_OK | os.X_OK):
            return Path(folder)
    return Path(tempfile.gettempdir())


class Scratch:
    """A file without a name that tensors are appended to; gone with its last user, however that ends."""

    def __init__(self) -> None:
        self._file: io.FileIO | None = None  # none before there is anything to keep
        self._end = 0
        self._refused = False

    def keep(self, tensor: Tensor) -> "Tensor | Waiting":
        """The tensor on disk, or as it is: on another device, empty, or where the disk refuses it."""
        if tensor.device.type != "cpu" or not tensor.numel():
            return tensor
        waiting = Waiting(self, self._end, tensor)
        try:
            self._append(tensor)
            waiting.mapped()  # which some file systems cannot do
        except OSError as error:
            self._refuse(tensor.nbytes, error)
            return tensor
        self._end += -(-tensor.nbytes // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        return waiting

    def _append(self, tensor: Tensor) -> None:
        """Written rather than mapped and filled: a full disk is an error then, not the end of the process."""
        if self._file is None:
            found: Any = tempfile.TemporaryFile(buffering=0, dir=scratch_folder())  # noqa: SIM115  for long
            self._file = found
            weakref.finalize(self, found.close)
        self._file.seek(self._end)
        array: Any = tensor.detach().contiguous().numpy().reshape(-1).view(np.uint8)
        left = memoryview(array)
        while len(left):
            left = left[self._file.write(left) :]

    def _refuse(self, size: int, error: OSError) -> None:
        """Say it once, and leave no part of a tensor on a full disk."""
        if self._file is not None:
            self._file.truncate(self._end)
        if not self._refused:
            _log.warning(
                "%s cannot take %d bytes (%s); they stay in memory, beyond the plan: set TMPDIR to a folder "
                "with more room",
                scratch_folder(),
                size,
                error,
            )
        self._refused = True

    def map(self, offset: int, size: int) -> mmap.mmap:
        """Some bytes of the file. Writing to them would change this copy alone."""
        assert self._file is not None
        return mmap.mmap(self._file.fileno(), size, access=mmap.ACCESS_COPY, offset=offset)

    def __reduce__(self) -> tuple[Any, ...]:
        return Scratch, ()


class Waiting:
    """A tensor in a `Scratch`.

    Args:
        scratch: the file.
        offset: where the tensor begins there.
        like: the tensor as it was.
    """

    def __init__(self, scratch: Scratch, offset: int, like: Tensor) -> None:
        self._scratch, self._offset = scratch, offset
        self.shape, self.dtype, self.nbytes = like.shape, like.dtype, like.nbytes

    def __len__(self) -> int:
        return self.shape[0]

    def mapped(self) -> Tensor:
        """The tensor; its memory goes back as soon as nobody has it any more."""
        return torch.frombuffer(self._scratch.map(self._offset, self.nbytes), dtype=self.dtype).view(
            self.shape
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """For NumPy, which asks for it when it writes a file."""
        found = self.mapped().numpy()
        return found if dtype is None else found.astype(dtype, copy=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return torch.clone, (self.mapped(),)  # whoever gets a copy of it has it in memory


def in_memory(tensor: Tensor | Waiting) -> Tensor:
    """The tensor, wherever it is."""
    return tensor.mapped() if isinstance(tensor, Waiting) else tensor
