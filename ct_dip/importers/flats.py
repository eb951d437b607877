"""Flats and darks by a name or a number."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.errors import ScanError


def frames_of(
    text: str | None, get: Callable[[str], Any], rows: int, columns: int, name: str
) -> Floats | None:
    """Readings as (repetitions, rows, columns); ``None`` if there are none.

    Args:
        text: a number that holds for all detectors, or what ``get`` finds an array by: one number,
            (columns,), (rows, columns) or (repetitions, columns), or (repetitions, rows, columns).
        name: for messages.
    """
    if text is None:
        return None
    try:
        values = np.asarray(float(text))
    except ValueError:
        values = np.asarray(get(text))
    given = values.shape
    if values.size == 1:
        return np.broadcast_to(values.reshape(1, 1, 1), (1, rows, columns))
    if values.ndim == 1:
        values = values[None]
    if values.ndim == 2:
        values = values[None] if rows > 1 else values[:, None]
    if values.ndim != 3 or values.shape[1:] != (rows, columns):
        one = (
            f"({columns},) or (n, {columns})"
            if rows == 1
            else f"({rows}, {columns}) or (n, {rows}, {columns})"
        )
        raise ScanError(f"{name} has shape {given}, expected {one}, or one number")
    return values
