"""What every import offers, whatever the format: fewer views, wider bins, the image grid and its mask."""

import dataclasses
from pathlib import Path

import numpy as np

from ct_dip.arrays import Bools, Floats
from ct_dip.checks import check_count, check_positive
from ct_dip.data.mask_file import read_mask
from ct_dip.data.scan import Scan
from ct_dip.errors import ScanError
from ct_dip.geometry import Geometry, Volume

# To begin with, a geometry needs some grid; `on_grid` replaces it by one made from the field of view.
ANY_VOLUME = Volume(shape=(1, 1), pixel_size=1e-3)


def on_grid(geometry: Geometry, *, size: int | None = None, width: float | None = None) -> Geometry:
    """Return the same rays on a square grid.

    Args:
        size: pixels of a side; so many that a pixel is as wide as the distance of rays at the rotation
            axis if not given.
        width: of a side, mm; that of the field of view if not given.

    Raises:
        ScanError: next to nothing is seen by every view, so that the width must be given.
    """
    if width is None:
        width = 2 * geometry.field_of_view
        if width < 2 * geometry.origin_pitch:
            low, high = geometry.reach
            raise ScanError(
                f"no field of view: the rays pass the rotation axis between {low:.4g} and {high:.4g} mm, "
                "on one side of it; check --center, or give the grid's --width in mm"
            )
    width = check_positive(width, "width", "mm")
    if size is None:
        size = max(1, round(width / geometry.origin_pitch))
    size = check_count(size, "size")
    return geometry.with_volume(Volume(shape=(size, size), pixel_size=width / size))


def scan_on_grid(scan: Scan, *, size: int | None = None, width: float | None = None) -> Scan:
    """Return the same scan on another grid, see `on_grid`."""
    return dataclasses.replace(scan, geometry=on_grid(scan.geometry, size=size, width=width))


def spread_views(scan: Scan, views: int) -> Scan:
    """``views`` of the views, evenly spread over those there are, in the order of the file."""
    there = scan.geometry.views
    views = check_count(views, "views")
    if views > there:
        raise ScanError(f"--views {views} is more than were measured; ask for at most {there}")
    by_angle = np.argsort(scan.geometry.angles, kind="stable")  # an interlaced scan is spread as well
    few = scan.select_views(np.sort(by_angle[np.arange(views) * there // views]))
    return dataclasses.replace(few, steps=(*scan.steps, f"{views} of {there} views kept, evenly spread"))


def with_mask(scan: Scan, mask: str | Path | Bools | None) -> Scan:
    """Return the scan with the pixels that evaluations count: an array, a file, ``all``, or as it is."""
    shape = scan.geometry.domain_shape
    if isinstance(mask, str | Path):
        mask = np.ones(shape, dtype=bool) if mask == "all" else read_mask(Path(mask), shape)
    return scan if mask is None else dataclasses.replace(scan, mask=mask)


def check_bin(detectors: int, factor: int) -> int:
    """Check that a number of neighbouring detectors divides them all."""
    factor = check_count(factor, "bin")
    if detectors % factor:
        fits = [str(n) for n in range(2, detectors // 2 + 1) if detectors % n == 0]
        choice = f"choose one of {', '.join(fits[:12])}" if fits else "they are a prime number: drop it"
        raise ScanError(f"--bin {factor} does not divide the {detectors} detectors; {choice}")
    return factor


def bin_columns(values: Floats, factor: int) -> Floats:
    """Mean of ``factor`` neighbours along the last axis, (…, detectors / factor)."""
    detectors = values.shape[-1]
    factor = check_bin(detectors, factor)
    return values if factor == 1 else values.reshape(*values.shape[:-1], -1, factor).mean(axis=-1)
