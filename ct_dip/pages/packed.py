"""Arrays inside a page: deflated and in base64, exact or in steps of one byte; `report.js` unpacks them.

As bare 32-bit floats, a result of 256² pixels with 100 samples makes a page of 37 MB; like this, of 5.3 MB
with 64 of the samples. Exact arrays are stored by planes, all first bytes before all second ones, because
signs and exponents repeat and deflate well. Samples are rounded to one byte, a sixteenth of a standard
deviation.
"""

import base64
import zlib
from typing import Any

import numpy as np

from ct_dip.arrays import Floats

_LARGEST = 127  # of a signed byte


def pack(values: Floats) -> str:
    """Pack an array exactly: little-endian float32, row-major, by byte planes."""
    planes = np.ascontiguousarray(values, dtype="<f4").view(np.uint8).reshape(-1, 4).T
    return _deflated(planes.tobytes())


def pack_steps(values: Floats, step: float) -> dict[str, Any]:
    """Round an array to multiples of a step in one byte each; of a larger step where they would not fit."""
    step = max(step, float(np.abs(values).max(initial=0.0)) / _LARGEST)
    return {"step": step, "data": _deflated(np.rint(values / step).astype(np.int8).tobytes())}


def _deflated(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content, 9)).decode("ascii")
