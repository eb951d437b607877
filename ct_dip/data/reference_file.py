"""Reference images from files."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ct_dip.data.hdf5 import file_kind
from ct_dip.data.plain_hdf5 import check_size
from ct_dip.data.plain_numpy import read_npy
from ct_dip.data.result_file import read_result
from ct_dip.errors import InputError

READ = ".npy, .tif, .tiff, or a ct_dip result .h5"


def read_reference(path: str | Path, pixel_size: float | None = None) -> NDArray[Any]:
    """Read a reference image in 1/mm from a file: NPY, TIFF, or the mean of a result.

    Args:
        pixel_size: mm, which that of a result must be.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"reference {path} does not exist; check the path")
    ending = path.suffix.lower()
    if ending in (".h5", ".hdf5"):
        if file_kind(path) == "scan":
            raise InputError(f"reference {path} is a ct_dip scan file; give {READ}")
        result = read_result(path)
        if pixel_size is not None and not math.isclose(result.pixel_size, pixel_size, rel_tol=1e-6):
            raise InputError(
                f"reference {path} has pixels of {result.pixel_size:g} mm, the scan of {pixel_size:g} mm; "
                "resample it to the scan's grid"
            )
        return result.mean
    if ending not in (".npy", ".tif", ".tiff"):
        raise InputError(f"reference {path} ends in {ending or 'nothing'}; give {READ}")
    try:
        if ending == ".npy":
            return read_npy(path)
        import tifffile

        with tifffile.TiffFile(path) as file:
            image = file.series[0]
            check_size("the image", image.shape, image.dtype)
            return np.asarray(image.asarray())
    except Exception as error:  # a damaged TIFF fails in many ways
        raise InputError(f"reference {path} cannot be read ({error}); give {READ}") from error
