"""One file of LoDoPaB-CT or of a dataset in its layout: ``observation_test_000.hdf5``, with up to 128 items.

An item is chosen as a row of a detector is, ``--row 17``. Its ground truth comes along, if the file with it
lies beside this one, and stays as long as the grid is the dataset's own. `ct_dip.data.datasets.lodopab` reads
both.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.data.datasets.hdf5_stacks import PER_FILE
from ct_dip.data.datasets.lodopab import LoDoPaB, is_lodopab
from ct_dip.data.noise import PhotonNoise
from ct_dip.errors import ScanError
from ct_dip.importers.open import check_file, named
from ct_dip.importers.options import Options
from ct_dip.importers.recording import Format, Readings, Recording, fields_of_geometry


@contextlib.contextmanager
def _open(path: Path, options: Options) -> Iterator[Recording]:
    path = check_file(path)
    match = re.fullmatch(r"observation_([a-z]+)_(\d+)\.hdf5", path.name)
    if match is None:
        raise ScanError(f"{path} is not called observation_PART_NNN.hdf5, as files of LoDoPaB are")
    dataset, first_item = LoDoPaB(path.parent, match[1]), int(match[2]) * PER_FILE
    items = min(PER_FILE, len(dataset) - first_item)

    def read(first: int, last: int) -> Readings:
        with named(path):
            scans = [dataset.read(first_item + item) for item in range(first, last)]
        return Readings(data=np.stack([scan.sinogram for scan in scans], axis=1))

    def truth(item: int) -> Floats | None:
        return dataset.read(first_item + item).ground_truth

    geometry = dataset.layout.geometry
    yield Recording(
        shape=(geometry.views, items, geometry.detectors),
        read=read,
        counts=False,
        noise=PhotonNoise(photons=dataset.layout.photons),
        source=f"{dataset.layout.source}, {path.stem.removeprefix('observation_')}",
        truth=truth,
        **fields_of_geometry(geometry),
    )


FORMAT = Format(
    name="lodopab",
    about="a file of LoDoPaB-CT, HDF5; --row chooses the item",
    options=(),
    recognises=lambda content: (
        content.kind == "hdf5" and "data" in content.names and is_lodopab([content.path.name])
    ),
    open=_open,
)
