"""Regions that a user marked in a picture or an array."""

from pathlib import Path

import numpy as np

from ct_dip.arrays import Bools
from ct_dip.errors import InputError


def read_mask(path: str | Path, shape: tuple[int, int]) -> Bools:
    """Read a region: where a picture is neither black nor transparent, or an array neither 0 nor NaN.

    The first row is on top. Unlike `load_image`, which reads attenuation, this takes any number as "inside".
    """
    from PIL import Image as Picture

    path = Path(path)
    if not path.is_file():
        raise InputError(f"mask {path} does not exist; check the path")
    try:
        if path.suffix == ".npy":
            with path.open("rb") as file:
                array = np.asarray(np.load(file, allow_pickle=False))
                if array.dtype.kind not in "biuf":
                    raise ValueError(f"it holds {array.dtype}, not numbers")
                marked = (array != 0) & ~np.isnan(array)
        else:
            with Picture.open(path) as picture:
                if picture.mode[0] in "IF":  # 16 or 32 bits
                    marked = np.asarray(picture) != 0
                else:
                    colors = np.asarray(picture.convert("RGBA"))
                    marked = colors[..., :3].any(axis=-1) & (colors[..., 3] > 0)
    except (OSError, ValueError, EOFError, SyntaxError, Picture.DecompressionBombError) as error:
        raise InputError(f"mask {path} cannot be read ({error}); use PNG, TIFF or NPY") from error
    if marked.shape != shape:
        raise InputError(f"mask {path} has shape {marked.shape}, the image {shape}; give one of its shape")
    if not marked.any():
        raise InputError(f"mask {path} has no pixels: it is zero everywhere; mark the region in white")
    return marked
