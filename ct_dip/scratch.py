"""Tensors that wait on disk: for what is large, and read now and then from one end to the other."""

import io
import logging
import math
import os
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ct_dip import memory

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
        """The tensor on disk, or as it is: on another device, or where the disk refuses it."""
        if tensor.device.type != "cpu":
            return tensor
        try:
            file = self._open()
            file.seek(self._end)
            left = _bytes_of(tensor.contiguous())
            while len(left):
                left = left[file.write(left) :]
        except OSError as error:
            _log.warning("%s cannot take a part of a basis (%s); it stays in memory", scratch_folder(), error)
            return tensor
        waiting = Waiting(self, self._end, tensor.shape, tensor.dtype)
        self._end += tensor.nbytes
        return waiting

    def read(self, offset: int, into: Tensor) -> None:
        """Fill a contiguous tensor."""
        file = self._open()
        file.seek(offset)
        left = _bytes_of(into)
        while len(left):
            count = file.readinto(left)
            if not count:
                raise OSError(f"a temporary file in {scratch_folder()} lost its end")
            left = left[count:]

    def _open(self) -> io.FileIO:
        if self._file is None:
            found: Any = tempfile.TemporaryFile(buffering=0, dir=scratch_folder())  # noqa: SIM115  for long
            self._file = found
            weakref.finalize(self, found.close)
        return self._file


@dataclass(frozen=True, eq=False)
class Waiting:
    """A tensor in a `Scratch`."""

    scratch: Scratch
    offset: int
    shape: torch.Size
    dtype: torch.dtype

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """On disk."""
        return math.prod(self.shape) * self.dtype.itemsize

    def load(self) -> Tensor:
        """A copy in memory."""
        found = memory.own_pages(tuple(self.shape), torch.empty(0, dtype=self.dtype))
        self.scratch.read(self.offset, found)
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """For NumPy, which asks for it when it writes a file."""
        found = self.load().numpy()
        return found if dtype is None else found.astype(dtype, copy=False)


def _bytes_of(tensor: Tensor) -> memoryview:
    array: Any = tensor.detach().numpy().reshape(-1).view(np.uint8)
    return memoryview(array)
