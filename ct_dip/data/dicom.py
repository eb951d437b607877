"""DICOM images of clinical CT as objects to simulate scans of. Needs pydicom: ``pip install '.[dicom]'``.

Stored values become Hounsfield units by the file's own line, ``HU = slope · stored + intercept``.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.data.plain_hdf5 import check_size
from ct_dip.errors import InputError


def is_dicom(path: str | Path) -> bool:
    """Whether a file is one, by the letters after its first 128 bytes."""
    path = Path(path)
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(132)[128:] == b"DICM"


def read_dicom(path: str | Path, *, index: int | None = None) -> tuple[Floats, float | None]:
    """Hounsfield units, (rows, columns), and the edge of a pixel, mm, if the file states it.

    Args:
        index: which frame of several.

    Raises:
        InputError: with the file and what is wrong with it.
    """
    try:
        import pydicom
    except ImportError as error:
        raise InputError(f"{path} is a DICOM file; reading it needs pydicom: pip install pydicom") from error
    try:
        dataset = pydicom.dcmread(path)
        values = _frame(dataset, index)
        units = float(dataset.RescaleSlope) * values + float(dataset.RescaleIntercept)
        spacing = [float(length) for length in dataset.get("PixelSpacing") or ()]
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except Exception as error:  # pydicom's decoders raise nearly anything on a damaged file
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{path} cannot be read as a CT slice ({reason}); copy or export it anew") from error
    if spacing and not (len(spacing) == 2 and math.isclose(*spacing, rel_tol=1e-3) and spacing[0] > 0):
        raise InputError(f"{path} has pixels of {spacing} mm, expected square ones; resample it first")
    if not (np.isfinite(units).all() and units.max() > -1000):
        raise InputError(f"{path} holds nothing but air, or values that are not finite")
    return units, spacing[0] if spacing else None


def _frame(dataset: Any, index: int | None) -> Floats:
    if dataset.get("Modality", "CT") != "CT":
        raise InputError(
            f"its modality is {dataset.get('Modality')!r}, expected 'CT', which has Hounsfield units"
        )
    frames = int(dataset.get("NumberOfFrames") or 1)
    check_size("the image", (frames, dataset.Rows, dataset.Columns), np.float64)
    if index is None and frames > 1:
        raise InputError(f"it holds {frames} images; choose one with --index 0…{frames - 1}")
    if not 0 <= (index or 0) < frames:
        raise InputError(f"--index {index} is outside of 0…{frames - 1}")
    values = np.asarray(dataset.pixel_array, dtype=np.float64)
    return values.reshape(frames, dataset.Rows, dataset.Columns)[index or 0]
