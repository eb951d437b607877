"""Slices of objects in 1/mm to make a dataset of: phantoms, image files, DICOM files."""

from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.data.datasets.lodopab import AIR, SCALE, WATER
from ct_dip.data.dicom import read_dicom
from ct_dip.data.images import count_images, load_array, load_image
from ct_dip.data.phantoms import phantom
from ct_dip.errors import InputError

_DICOM = (".dcm", ".ima", ".dicom")
_FINER = 3


class Slices(ABC):
    """Objects by number, of any shapes."""

    def __init__(self, source: str) -> None:
        self.source = source

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of different ones."""

    @abstractmethod
    def attenuation(self, index: int, side: int, rng: np.random.Generator) -> Floats:
        """Return one in 1/mm, (rows, columns), for a grid of ``side`` × ``side`` pixels."""


class PhantomSlices(Slices):
    """A phantom drawn with ``count`` seeds, one after the other; value 1 is water."""

    def __init__(self, name: str, count: int, seed: int = 0) -> None:
        super().__init__(f"phantoms {name}")
        self._name, self._count, self._seed = name, count, seed
        phantom(name, (8, 8))  # refused now if there is none

    def __len__(self) -> int:
        return self._count

    def attenuation(self, index: int, side: int, rng: np.random.Generator) -> Floats:
        """Draw it, averaged over every pixel."""
        fine = phantom(self._name, (_FINER * side, _FINER * side), self._seed + index)
        return WATER * fine.reshape(side, _FINER, side, _FINER).mean(axis=(1, 3))


class FileSlices(Slices):
    """Images of NPZ, NPY, picture or DICOM files.

    Hounsfield units become attenuation as in LoDoPaB: whole numbers are first spread by a uniform number in
    [0, 1), and slices of DICOM files are cut to the largest square in the scanner's round field of view.

    Args:
        path: a file, or a folder of DICOM files, also in folders below it.
        hounsfield: whether images are in Hounsfield units, as DICOM's are in any case; if not, 1 is water.
    """

    def __init__(self, path: Path, *, hounsfield: bool = False) -> None:
        super().__init__(path.name)
        self._hounsfield = hounsfield
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.suffix.lower() in _DICOM)
            if not files:
                raise InputError(
                    f"{path} holds no DICOM files ({', '.join(_DICOM)}); name a folder that does"
                )
            self._slices = [(file, 0) for file in files]
        elif path.suffix.lower() in _DICOM:
            self._slices = [(path, 0)]
        else:
            self._slices = [(path, index) for index in range(count_images(path))]

    def __len__(self) -> int:
        return len(self._slices)

    def attenuation(self, index: int, side: int, rng: np.random.Generator) -> Floats:
        """Read it."""
        path, place = self._slices[index]
        if path.suffix.lower() in _DICOM:
            return _of_hounsfield(_inner_square(read_dicom(path)[0]), rng)
        if self._hounsfield:
            return _of_hounsfield(load_array(path, place), rng)
        return WATER * load_image(path, index=place)


def _of_hounsfield(units: Floats, rng: np.random.Generator) -> Floats:
    """Return ``μ_water + HU (μ_water − μ_air)/1000``, between 0 and the attenuation at 3071 HU."""
    if units.dtype.kind == "u":
        raise InputError(f"images of {units.dtype} have no negative Hounsfield units; drop --hu")
    spread = rng.uniform(size=units.shape) if np.array_equal(units, np.round(units)) else 0.0
    return np.asarray(np.clip(WATER + (units + spread) * (WATER - AIR) / 1000, 0, SCALE))


def _inner_square(image: Floats) -> Floats:
    """Return the largest square inside the inscribed circle: 362 of 512 pixels."""
    side = min(image.shape)
    kept = int(side / np.sqrt(2))
    top, left = ((n - kept) // 2 for n in image.shape)
    return image[top : top + kept, left : left + kept]
