"""Submissions to the LoDoPaB-CT challenge, https://lodopab.grand-challenge.org.

A zip file with ``reco_000.hdf5``, ``reco_001.hdf5``, …: dataset ``data`` of shape (128, 362, 362), float32,
in the dataset's own units and order of axes. Places of the last file that are left over hold NaN, which the
challenge ignores.
"""

import math
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from ct_dip.arrays import Floats
from ct_dip.data.datasets.hdf5_stacks import PER_FILE, new_stack
from ct_dip.data.datasets.lodopab import LoDoPaB, lodopab_geometry
from ct_dip.errors import InputError
from ct_dip.files import atomic_path


def write_submission(path: str | Path, dataset: LoDoPaB, image: Callable[[int], Floats | None]) -> None:
    """Write the images of all scans of a part; nothing is left if one is missing.

    Args:
        path: of the zip file.
        image: gives the reconstruction of a scan by number, 1/mm, (rows, columns); ``None`` if there is none.

    Raises:
        InputError: an image is missing or has another shape than the truth would have.
    """
    path = Path(path)
    if path.suffix != ".zip":
        raise InputError(f"a submission is a zip file, {path} does not end in .zip; name one that does")
    shape = (PER_FILE, *dataset.geometry.domain_shape[::-1])
    with (
        atomic_path(path) as temporary,
        tempfile.TemporaryDirectory(dir=path.parent) as folder,
        zipfile.ZipFile(temporary, "w") as packed,
    ):
        for first in range(0, len(dataset), PER_FILE):
            file = Path(folder) / f"reco_{first // PER_FILE:03d}.hdf5"
            with new_stack(file, shape, fill=math.nan) as stack:
                for index in range(first, min(first + PER_FILE, len(dataset))):
                    stack[index - first] = dataset.stored_image(_checked(image(index), dataset, index))
            # An entry without the time of day: the same images give the same bytes.
            with packed.open(zipfile.ZipInfo(file.name), "w", force_zip64=True) as entry:
                entry.write(file.read_bytes())
            file.unlink()


def is_uploadable(dataset: LoDoPaB) -> bool:
    """Whether the challenge takes images of these scans: it has a part and a grid of its own."""
    return dataset.part == "challenge" and dataset.geometry.domain_shape == lodopab_geometry().domain_shape


def _checked(image: Floats | None, dataset: LoDoPaB, index: int) -> Floats:
    if image is None:
        raise InputError(
            f"there is no reconstruction of {dataset.label(index)}, and a submission needs all "
            f"{len(dataset)}; finish the run first"
        )
    expected = dataset.geometry.domain_shape
    if image.shape != expected:
        raise InputError(f"the image of {dataset.label(index)} has shape {image.shape}, expected {expected}")
    return image
