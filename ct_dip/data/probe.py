"""Run as a script, in a child process: read what an HDF5 file holds, to see whether that ends.

Ordinary errors are of no interest here, as the parent meets them too and words them. What counts is that the
child neither hangs nor crashes, which is what the HDF5 library does on some damaged files.
"""

import contextlib
import sys

import h5py

_READ = 2**26  # bytes of a dataset up to which its values are read as well, not only its index


def probe(path: str) -> None:
    """Read all attributes, the index of every chunked dataset, and the values of small ones."""
    with h5py.File(path, "r") as file:
        _read(file)
        file.visititems(lambda _, item: _read(item))


def _read(item: h5py.Group | h5py.Dataset) -> None:
    with contextlib.suppress(Exception):
        for name in item.attrs:
            with contextlib.suppress(Exception):
                item.attrs[name]
    with contextlib.suppress(Exception):
        # Virtual and external data would lead to other files.
        if isinstance(item, h5py.Dataset) and not item.is_virtual and not item.external:
            if item.chunks:
                item.id.get_num_chunks()
            if item.nbytes <= _READ:
                item[()]


if __name__ == "__main__":
    with contextlib.suppress(Exception):
        probe(sys.argv[1])
