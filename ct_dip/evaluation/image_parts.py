"""Parts of an image in which errors behave differently: the background, flat parts of the object, edges."""

import numpy as np
from scipy.ndimage import maximum_filter, minimum_filter

from ct_dip.arrays import Bools, Floats
from ct_dip.data.scores import Part
from ct_dip.evaluation.near import near_object

_JUMP = 0.1  # of the image's range


def image_parts(image: Floats, mask: Bools | None = None, *, noisy: bool = False) -> dict[Part, Bools]:
    """Return the pixels of every part, (rows, columns) each; parts without pixels are left out.

    ``all`` are those of the mask; ``near`` those in the object or next to it (`near_object`), ``background``
    the others. ``edges`` are pixels near the object whose 3×3 neighbourhood spans more than 10 % of the
    image's range, which for a step is one pixel on either side; ``flat`` the others near the object.

    Args:
        image: the truth, or the prediction itself where there is only a reference.
        mask: the pixels that count, which alone decide; all if ``None``.
        noisy: the image is a reconstruction rather than the truth.
    """
    where = np.ones(image.shape, dtype=bool) if mask is None else mask
    near = near_object(image, where, noisy=noisy)
    highest = maximum_filter(np.where(where, image, -np.inf), 3, mode="nearest")
    lowest = minimum_filter(np.where(where, image, np.inf), 3, mode="nearest")
    edges = near & (highest - lowest > _JUMP * np.ptp(image[where]))
    parts: dict[Part, Bools] = {
        "all": where,
        "near": near,
        "flat": near & ~edges,
        "edges": edges,
        "background": where & ~near,
    }
    return {name: part for name, part in parts.items() if part.any()}
