"""Tensors that wait on disk: for what is large, and read now and then from one end to the other.

They are mapped from a file that has no name. Their pages are this process's only while they are read; the
system keeps them beyond that as long as nobody else needs the memory.
"""

import io
import logging
import mmap
import os
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

_log = logging.getLogger(__name__)


def scratch_folder() -> Path:
    """``TMPDIR`` if it is set, else ``/var/tmp``: on many systems ``/tmp`` is memory itself."""
    for folder in (os.environ.get("TMPDIR"), "/var/tmp"):
        if folder and os.access(folder, os.W_OK):
            return Path(folder)
    return Path(tempfile.gettempdir())


class Scratch:
    """A file without a name that tensors are appended to; gone with its last user, however that ends."""

    def __init__(self) -> None:
        self._file: io.FileIO | None = None  # none before there is anything to keep
        self._end = 0

    def keep(self, tensor: Tensor) -> "Tensor | Waiting":
        """The tensor on disk, or as it is: on another device, empty, or where the disk refuses it."""
        if tensor.device.type != "cpu" or not tensor.numel():
            return tensor
        try:
            waiting = Waiting(self._append(tensor), tensor)
        except OSError as error:
            _log.warning("%s cannot take a part of a basis (%s); it stays in memory", scratch_folder(), error)
            return tensor
        return waiting

    def _append(self, tensor: Tensor) -> mmap.mmap:
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
        pages = mmap.mmap(self._file.fileno(), tensor.nbytes, offset=self._end)
        self._end += -(-tensor.nbytes // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        return pages


class Waiting:
    """A tensor in a `Scratch`.

    Args:
        pages: where it is.
        like: the tensor as it was.
    """

    def __init__(self, pages: mmap.mmap, like: Tensor) -> None:
        self._pages = pages
        self.shape, self.dtype, self.nbytes = like.shape, like.dtype, like.nbytes

    def __len__(self) -> int:
        return self.shape[0]

    @contextmanager
    def mapped(self) -> Iterator[Tensor]:
        """The tensor, to be read and no more, and not after this."""
        try:
            yield torch.frombuffer(self._pages, dtype=self.dtype).view(self.shape)
        finally:
            if hasattr(mmap, "MADV_DONTNEED"):
                self._pages.madvise(mmap.MADV_DONTNEED)  # from this process; they are in the file

    def load(self) -> Tensor:
        """A copy in memory."""
        with self.mapped() as found:
            return found.clone()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """For NumPy, which asks for it when it writes a file."""
        found = self.load().numpy()
        return found if dtype is None else found.astype(dtype, copy=False)
