"""2DeteCT (Kiss et al. 2023): measured slices of fruits, nuts and stones, three exposures each::

    sliceNNNNN/mode{1,2,3}/sinogram.tif     (3601, 1912) uint16, detector readings
                           dark.tif         (n, 1912) or (1912,), without light
                           flat1.tif, flat2.tif   the same with light and without an object

Mode 1 has little light, mode 2 much, mode 3 another spectrum. As its authors do: detector pairs are summed,
the dark and the mean of both flats correct them, and the last view, which repeats the first, is dropped.

Sources: https://github.com/mbkiss/2DeteCTcodes, ``Reconstructions_2DeteCT.py``, for the distances, the
correction and the detector shift; the paper, https://doi.org/10.1038/s41597-023-02484-6, for the rest.
"""

import math
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.checks import check_count
from ct_dip.data.datasets.dataset import Dataset
from ct_dip.data.noise import PhotonNoise, estimate_photons
from ct_dip.data.scan import Scan
from ct_dip.errors import InputError, ScanError
from ct_dip.geometry import FanBeam, Geometry, Volume
from ct_dip.scanners import view_angles
from ct_dip.text import counted

MODES = ("mode1", "mode2", "mode3")
SIDE = 1024
_VIEWS, _COLUMNS = 3601, 1912
_SOURCE_ORIGIN, _SOURCE_DETECTOR, _PITCH = 431.019989, 529.000488, 0.1496  # mm; the pitch of summed pairs
_DARKEST = 1e-6  # share of the light that a ray has at least, as the authors clip it
_SLICE = re.compile(r"slice(\d{5})")


def is_early(number: int) -> bool:
    """Whether a slice was measured before the detector was exchanged."""
    return number <= 2830 or 5521 <= number <= 5870


@lru_cache(maxsize=4)
def two_detect_geometry(early: bool, side: int = SIDE) -> FanBeam:
    """Return the scanner for ``side`` × ``side`` pixels over the width that the detector sees.

    For early slices the authors replace the value of every summed bin by that of its right neighbour: the
    detector sits one bin to the left. (Their notebook for 2048² pixels shifts single, not summed, bins by
    2.75, and those of late slices by 1.)
    """
    detectors = _COLUMNS // 2
    width = detectors * _PITCH * _SOURCE_ORIGIN / _SOURCE_DETECTOR
    return FanBeam(
        volume=Volume(shape=(side, side), pixel_size=width / side),
        angles=view_angles(_VIEWS - 1, 2 * math.pi),
        detectors=detectors,
        detector_pitch=_PITCH,
        detector_offset=-_PITCH if early else 0.0,
        source_origin=_SOURCE_ORIGIN,
        origin_detector=_SOURCE_DETECTOR - _SOURCE_ORIGIN,
    )


class TwoDetect(Dataset):
    """All slices of a 2DeteCT folder in one mode.

    The noise is that of photon counting, with a count that is estimated from the sinogram. There is no truth.

    Args:
        folder: with the folders ``slice00001``, ….
        mode: ``mode1``, ``mode2`` or ``mode3``.
        side: pixels of the image's sides.
    """

    def __init__(self, folder: str | Path, mode: str = "mode2", *, side: int = SIDE, **subsets: Any) -> None:
        super().__init__(**subsets)
        if mode not in MODES:
            raise InputError(f"2DeteCT has no part {mode!r}; choose one of {', '.join(MODES)}")
        self.folder, self.mode, self.side = Path(folder), mode, check_count(side, "side")
        matches = sorted(match[1] for path in self.folder.iterdir() if (match := _SLICE.fullmatch(path.name)))
        self._numbers = [int(number) for number in matches]
        if not self._numbers:
            raise InputError(f"{self.folder} holds no slices (slice00001, …); check the folder")

    def __len__(self) -> int:
        return len(self._numbers)

    def label(self, index: int) -> str:
        """Return slice and mode, as ``slice00001_mode2``."""
        return f"slice{self._numbers[index]:05d}_{self.mode}"

    def describe(self) -> str:
        """Return the number of slices, and their mode."""
        return (
            f"2DeteCT, {self.mode}: {counted(len(self), 'measured slice')}, {self.side} × {self.side} pixels"
        )

    @property
    def full_geometry(self) -> Geometry | None:
        """Geometry of all slices; ``None`` if the detector was exchanged between them."""
        early = set(map(is_early, self._numbers))
        return two_detect_geometry(early.pop(), self.side) if len(early) == 1 else None

    def read(self, index: int) -> Scan:
        """Read a slice: ``−log((I − dark) / (flat − dark))`` of summed pairs."""
        folder = self.folder / f"slice{self._numbers[index]:05d}" / self.mode
        readings = _read(folder / "sinogram.tif", (_VIEWS, _COLUMNS))[:-1]
        dark, flat1, flat2 = (
            _read(folder / f"{name}.tif", (_COLUMNS,)) for name in ("dark", "flat1", "flat2")
        )
        air = _pairs((flat1 + flat2) / 2 - dark)
        if not (air > 0).all():
            raise ScanError(
                f"{folder}: bin {int(np.argmin(air))} has no more light in the flats than in the dark"
            )
        share = _pairs(readings - dark) / air
        sinogram = -np.log(np.maximum(share, _DARKEST))
        photons = estimate_photons(sinogram)
        return Scan(
            sinogram=sinogram,
            geometry=two_detect_geometry(is_early(self._numbers[index]), self.side),
            noise=None if photons is None else PhotonNoise(photons=photons),
            source=f"2DeteCT, {self.label(index)}",
        )


def is_two_detect(names: list[str]) -> bool:
    """Whether a folder with these names in it is one of 2DeteCT."""
    return any(map(_SLICE.fullmatch, names))


def _pairs(values: Floats) -> Floats:
    """Return the sums of neighbouring columns, (…, columns / 2)."""
    return np.asarray(values[..., ::2] + values[..., 1::2])


def _read(path: Path, shape: tuple[int, ...]) -> Floats:
    """Read detector readings as float32; frames of a dark or a flat are averaged."""
    import tifffile

    if not path.is_file():
        raise ScanError(f"{path} does not exist; fetch it, or leave out this slice")
    try:
        with tifffile.TiffFile(path) as file:
            stored = file.series[0].shape
            frames = len(shape) == 1 and len(stored) == 2 and stored[0] > 0
            if stored != shape and not (frames and stored[1:] == shape):
                raise ScanError(f"it has shape {stored}, expected {shape}")
            if file.series[0].dtype != np.uint16:
                raise ScanError(f"it holds {file.series[0].dtype}, expected uint16")
            values = file.series[0].asarray().astype(np.float32)
    except Exception as error:  # a damaged TIFF fails in many ways
        raise ScanError(f"{path} cannot be read ({error}); fetch it anew") from error
    return np.asarray(values.mean(axis=0) if frames else values)
