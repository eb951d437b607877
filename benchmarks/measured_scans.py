"""Measured scans with few views, each with a reference from all of them.

The *reference* is FBP of all views with all detectors, on a finer grid, averaged over our pixels. Its noise
is estimated from two half-scans: FBP of even and FBP of odd views differ by twice the noise of FBP of all.
"""

import math
from collections.abc import Callable

import numpy as np
import tifffile
from scipy.ndimage import median_filter

from benchmarks.kmnist import data_folder
from ct_dip.data.comparison import Comparison
from ct_dip.data.scan import Scan
from ct_dip.geometry import ParallelBeam
from ct_dip.importers.grid import ANY_VOLUME, scan_on_grid, spread_views
from ct_dip.importers.intensity import line_integrals
from ct_dip.importers.reference import reference_image
from ct_dip.importers.run import import_scan
from ct_dip.scanners import view_angles

FINE = 512  # pixels of a side on which a reference is computed, about as wide as one detector of HTC


def measured_scan(
    kind: str, which: str, *, side: int, views: int, arc: float | None = None
) -> tuple[Scan, Comparison]:
    """Few views in bins about as wide as a pixel, and the reference.

    Args:
        kind: one of `READERS`, and ``which`` of its scans, if there are several.
        arc: degrees from the first view on that the few views are taken from; all if ``None``.
    """
    read = READERS[kind]
    full, binned = read(which, side, False), read(which, side, True)
    finer = FINE // side
    reference, *halves = (
        reference_image(full.select_views(views), filter="hann", finer=finer)
        for views in (slice(None), slice(0, None, 2), slice(1, None, 2))
    )
    noise = (halves[0] - halves[1])[full.evaluated] / 2
    if arc is not None:
        angles = binned.geometry.angles
        binned = binned.select_views(angles - angles.min() < math.radians(arc) - 1e-9)
    comparison = Comparison(name="reference", image=reference, noise_std=float(np.sqrt(np.mean(noise**2))))
    return spread_views(binned, views), comparison


def _htc(which: str, side: int, binned: bool) -> Scan:
    path = data_folder() / "htc2022" / f"htc2022_{which}_full.mat"
    scan = import_scan(path, size=side, width=76.0, noise="none")
    return scan.bin_detectors(
        FINE // side if binned else 1
    )  # line integrals averaged, as in published figures


def _fips_walnut(which: str, side: int, binned: bool) -> Scan:
    path = data_folder() / "fips_walnut.mat"
    factor = min((1, 2, 4, 7, 8, 14, 28, 41, 56), key=lambda divisor: abs(divisor - 14 * 128 / side))
    return import_scan(path, size=side, width=40.0, bin=factor if binned else 1)


def _tooth(which: str, side: int, binned: bool) -> Scan:
    """The unit is a column: the pitch is not stated. The tooth is half as wide as the field of view."""
    factor = {64: 5, 96: 4, 128: 2}[side] if binned else 1
    return import_scan(data_folder() / "tooth.h5", row=int(which), size=side, width=384.0, bin=factor)


def _neutron(which: str, side: int, binned: bool) -> Scan:
    """Rods, over a full circle of parallel rays. No flats: the ends of every view see air."""
    readings = tifffile.imread(data_folder() / "neutron_sinogram_360.tif")[:, :-3].astype(np.float64)
    readings = median_filter(readings, (1, 7))  # two defective columns would draw arcs into the reference
    air = np.median(np.concatenate([readings[:, :50], readings[:, -50:]], axis=1), axis=1, keepdims=True)
    views, columns = readings.shape
    geometry = ParallelBeam(
        volume=ANY_VOLUME,
        angles=view_angles(views, 2 * math.pi),
        detectors=columns,
        center_of_rotation=245.2 - (columns - 1) / 2,  # where FBP has most energy
    )
    sinogram, _ = line_integrals(readings, air)
    scan = Scan(sinogram=sinogram, geometry=geometry, source="neutron sinogram, nghia-vo/sarepy, Apache-2.0")
    return scan_on_grid(scan.bin_detectors(5 * 64 // side if binned else 1), size=side, width=360.0)


READERS: dict[str, Callable[[str, int, bool], Scan]] = {
    "htc": _htc,
    "fips-walnut": _fips_walnut,
    "tooth": _tooth,
    "neutron": _neutron,
}
