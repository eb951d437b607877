"""Small pictures of arrays in HTML, which notebooks show in place of a ``repr``."""

import base64
import io
from collections.abc import Mapping
from html import escape

import numpy as np

from ct_dip.arrays import Floats

_HEIGHT = 160  # CSS pixels of a picture
_MOST = 512  # pixels of a side; of longer ones only some rows and columns are shown


def thumbnails(title: str, arrays: Mapping[str, Floats | None]) -> str:
    """Return a line of text and a row of pictures, from black at the least to white at the largest value.

    Args:
        arrays: two-dimensional ones by caption; those that are ``None`` are left out.
    """
    pictures = "".join(
        f'<figure style="display:inline-block;margin:4px"><img height="{_HEIGHT}" '
        f'style="image-rendering:pixelated" src="data:image/png;base64,{_png(array)}">'
        f"<figcaption><small>{escape(caption)}</small></figcaption></figure>"
        for caption, array in arrays.items()
        if array is not None
    )
    return f"<div><code>{escape(title)}</code><br>{pictures}</div>"


def _png(array: Floats) -> str:
    from PIL import Image

    rows, columns = (max(1, -(-n // _MOST)) for n in array.shape)
    shown = array[::rows, ::columns].astype(np.float64)
    low, high = float(shown.min()), float(shown.max())
    grey = 255 * (shown - low) / (high - low) if high > low else np.zeros_like(shown)
    buffer = io.BytesIO()
    Image.fromarray(grey.round().astype(np.uint8)).save(buffer, format="PNG")
    return base64.b64encode(buffer.getvalue()).decode("ascii")
