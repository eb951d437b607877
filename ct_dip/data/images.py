"""Images from files: PNG and other pictures, NPY, NPZ, DICOM."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ct_dip.arrays import Floats
from ct_dip.data.plain_hdf5 import check_size
from ct_dip.data.plain_numpy import read_npy, read_npz
from ct_dip.errors import InputError


def load_image(path: str | Path, *, index: int | None = None, hounsfield: bool = False) -> Floats:
    """Read one image, (rows, columns), as relative attenuation.

    Unsigned integers are scaled to [0, 1] by their type's largest value, floats are taken as they are,
    and with ``hounsfield`` values become ``max(0, 1 + HU/1000)``: 1 is water.

    Args:
        path: a picture, ``.npy``, or ``.npz`` with one array or one called ``images``.
        index: which one of a stack (n, rows, columns).
    """
    path = Path(path)
    array = load_array(path, index)
    kind = array.dtype.kind
    if hounsfield:
        if kind == "u":
            raise InputError(f"{path} holds {array.dtype}, which has no negative Hounsfield units; drop --hu")
        image = relative_attenuation(array)
    elif kind == "u":
        image = array.astype(np.float64) / np.iinfo(array.dtype).max
    elif kind == "i" and array.max() > 1:
        raise InputError(
            f"{path} holds {array.dtype} up to {array.max()}, whose scale is not known; use --hu for "
            "Hounsfield units, or convert to unsigned integers or to floats"
        )
    else:
        image = array.astype(np.float64)
    if not np.isfinite(image).all():
        raise InputError(f"{path} holds values that are not finite; replace them first")
    if image.min() < 0:
        raise InputError(
            f"{path} holds negative values (least {image.min():g}), attenuation is not negative; "
            "use --hu if these are Hounsfield units, or clip them first"
        )
    if image.max() == 0:
        raise InputError(f"{path} is zero everywhere: there is nothing to scan")
    return image


def relative_attenuation(units: NDArray[Any]) -> Floats:
    """Hounsfield units as ``max(0, 1 + HU/1000)``: 1 is water."""
    return np.maximum(0, 1 + units.astype(np.float64) / 1000)


def load_array(path: Path, index: int | None = None) -> NDArray[Any]:
    """One image, (rows, columns), with the numbers that the file holds."""
    array = _pick(_load(path), index, path)
    if array.size == 0:
        raise InputError(f"{path} is empty, of shape {array.shape}")
    return array


def count_images(path: Path) -> int:
    """Return how many images `load_image` could choose from."""
    array = _load(path)
    return len(array) if array.ndim == 3 else 1


def _load(path: Path) -> NDArray[Any]:
    if path.is_dir():
        raise InputError(
            f"{path} is a folder, expected an image file; a folder of DICOM files is for ct-dip simulate "
            "--dataset lodopab"
        )
    if not path.is_file():
        raise InputError(f"image file {path} does not exist; check the path")
    try:
        if path.suffix == ".npy":
            return read_npy(path)
        if path.suffix == ".npz":
            arrays = read_npz(path)
            name = next(iter(arrays)) if len(arrays) == 1 else "images"
            if name not in arrays:
                raise InputError(
                    f"it holds {len(arrays)} arrays ({', '.join(list(arrays)[:6])}, …); keep one, or call it "
                    "'images'"
                )
            return arrays[name]
        from PIL import Image as Picture

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Picture.DecompressionBombWarning)  # the budget decides
            opened = Picture.open(path)
        with opened as picture:
            check_size("the picture", picture.size[::-1], np.float64)
            if picture.mode == "F":
                return np.asarray(picture)
            if picture.mode.startswith("I"):  # 16 bits, which Pillow may hand over as 32
                array = np.asarray(picture)
                if array.min() < 0 or array.max() > 65535:
                    raise InputError("it has more than 16 bits per pixel; save it as floats (NPY)")
                return array.astype(np.uint16)
            return np.asarray(picture.convert("L"))
    except Exception as error:  # Pillow's decoders raise nearly anything on a damaged file
        raise InputError(f"{path} cannot be read as an image ({error}); use PNG, NPY or NPZ") from error


def _pick(array: NDArray[Any], index: int | None, path: Path) -> NDArray[Any]:
    if array.dtype.kind not in "fiub":
        raise InputError(f"{path} holds {array.dtype}, expected real numbers")
    if array.ndim == 2:
        if index not in (None, 0):
            raise InputError(f"{path} holds one image, --index {index} does not exist")
        return array
    if array.ndim != 3:
        raise InputError(f"{path} has shape {array.shape}, expected (rows, columns) or a stack of them")
    if index is None:
        raise InputError(f"{path} holds {len(array)} images; choose one with --index 0…{len(array) - 1}")
    if not 0 <= index < len(array):
        raise InputError(f"--index {index} is outside of {path}: 0…{len(array) - 1}")
    return np.asarray(array[index])
