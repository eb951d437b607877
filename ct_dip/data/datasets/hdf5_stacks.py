"""Stacks of arrays in numbered HDF5 files, read and written one array at a time."""

import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ct_dip.data.plain_hdf5 import get_dataset, open_hdf5, refuse_indirect
from ct_dip.errors import InputError, ScanError
from ct_dip.files import atomic_path

PER_FILE = 128  # arrays, in all but the last file
_NAME = "data"
_OPEN = 8  # files that stay open; opening one costs a check of 0.2 s


class Stacks:
    """Files with a dataset ``data`` of shape (arrays, …) each.

    A process keeps a few of them open. Handles are neither pickled nor shared with a forked process, which
    opens its own.
    """

    def __init__(self) -> None:
        self._handles: OrderedDict[Path, tuple[h5py.Dataset, ExitStack]] = OrderedDict()
        self._process = os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Stacks.__init__(self)

    def length(self, path: Path) -> int:
        """Return the number of arrays in a file."""
        return int(self._dataset(path).shape[0])

    def read(self, path: Path, index: int, shape: tuple[int, ...]) -> NDArray[Any]:
        """Read one array of a file.

        Raises:
            ScanError: the file is missing, damaged or of other shapes, or has no array of this number.
        """
        dataset = self._dataset(path)
        if dataset.shape[1:] != shape:
            raise ScanError(f"{path}: its arrays have shape {dataset.shape[1:]}, expected {shape}")
        if index >= dataset.shape[0]:
            raise ScanError(f"{path} holds {dataset.shape[0]} arrays, none of number {index}; fetch it anew")
        if dataset.dtype.kind != "f":
            raise ScanError(f"{path} holds {dataset.dtype}, expected floating-point numbers")
        try:
            return np.asarray(dataset[index])
        except (OSError, RuntimeError) as error:
            raise _damaged(path, error) from error

    def _dataset(self, path: Path) -> h5py.Dataset:
        if self._process != os.getpid():
            # The parent's files are not closed here: HDF5's state is a copy that a fork may have torn.
            self.__setstate__({})
        if path not in self._handles:
            if not path.is_file():
                raise ScanError(f"{path} does not exist; fetch it, or leave out its scans")
            if len(self._handles) == _OPEN:
                self._handles.popitem(last=False)[1][1].close()
            with ExitStack() as stack:
                try:
                    file = stack.enter_context(open_hdf5(path))
                    refuse_indirect(file)
                    dataset = get_dataset(file, _NAME)
                    if dataset.ndim != 3:
                        raise InputError(f"'data' has shape {dataset.shape}, expected three dimensions")
                except InputError as error:
                    raise ScanError(f"{path}: {error}") from error
                except (KeyError, TypeError) as error:
                    raise ScanError(f"{path} has no dataset 'data'; is it a file of this kind?") from error
                except (OSError, RuntimeError) as error:
                    raise _damaged(path, error) from error
                self._handles[path] = dataset, stack.pop_all()
        self._handles.move_to_end(path)
        return self._handles[path][0]


def _damaged(path: Path, error: Exception) -> ScanError:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return ScanError(f"{path} is damaged or no HDF5 file ({reason}); fetch it anew")


@contextmanager
def new_stack(path: Path, shape: tuple[int, ...], *, fill: float = 0.0) -> Iterator[h5py.Dataset]:
    """Yield a float32 dataset ``data`` to fill; the file appears when the block succeeds.

    Every array is a chunk with a checksum, so that damage to one spoils no other.
    """
    with atomic_path(path) as temporary, h5py.File(temporary, "w") as file:
        chunk = (1, *shape[1:])
        yield file.create_dataset(_NAME, shape, np.float32, chunks=chunk, fletcher32=True, fillvalue=fill)
