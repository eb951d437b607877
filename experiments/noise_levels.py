"""Compare the noise that air and views show with the noise that the evidence finds, on measured scans.

``CT_DIP_DATA=… python -m experiments.noise_levels [--side 64] [--only tooth walnut neutron htc]``

All are deviations of a typical measurement relative to the noise that `import_scan` chose: by the views
themselves, by third differences along the detector (what a run would estimate if the scan stated nothing),
and by the evidence of ``lin-dip`` with preset ``fast`` and no held-out views.
"""

import argparse
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from ct_dip.data.noise import estimate_white_std
from ct_dip.data.scan import Scan
from ct_dip.importers.grid import spread_views
from ct_dip.importers.run import import_scan
from ct_dip.pipeline import reconstruct
from ct_dip.preprocess.noise_level import estimate_noise

# Name: file, options, detectors per 64 pixels of the grid, few views.
SCANS: dict[str, tuple[str, dict[str, Any], int, int]] = {
    "tooth": ("tooth.h5", {"row": 0, "width": 384.0}, 5, 60),
    "walnut": ("fips_walnut.mat", {"width": 40.0}, 28, 60),
    "neutron": ("neutron_sinogram_360.tif", {"arc": 2 * math.pi, "counts": True, "air": 30}, 1, 51),
    "htc": ("htc2022/htc2022_02b_full.mat", {"width": 76.0}, 8, 30),
}


def load(name: str, side: int) -> tuple[Scan, int]:
    """Return all views of a scan, in bins about as wide as a pixel, and how many views are kept."""
    file, options, factor, views = SCANS[name]
    factor = factor if factor == 1 or name == "tooth" else factor * 64 // side
    return import_scan(Path(os.environ["CT_DIP_DATA"]) / file, size=side, bin=factor, **options), views


def row(name: str, side: int) -> str:
    """Return one line of the table."""
    scan, views = load(name, side)
    stated = np.sqrt(scan.variance if scan.variance is not None else scan.variance_or_estimate()[0])
    found = estimate_noise(scan.sinogram, scan.geometry)
    typical = float(np.median(stated))
    photons = getattr(scan.noise, "photons", None)
    by_views = math.sqrt(photons / found.photons.value) if photons else found.std.value / typical
    result = reconstruct(spread_views(scan, views), "lin-dip", preset="fast", inference={"calibrate": "none"})
    fitted, started = (float(result.diagnostics[key]) for key in ("sigma_y", "sigma_y_stated"))
    return (
        f"| {name}, {side}², {views} views, bins of {scan.geometry.detector_pitch:.3g} mm | {scan.noise} | "
        f"{found.correlation[0]} | {by_views:.2f} | {estimate_white_std(scan.sinogram) / typical:.2f} | "
        f"{fitted / started:.2f} |"
    )


def main() -> None:
    """Print the table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--only", nargs="*", default=list(SCANS), choices=list(SCANS))
    arguments = parser.parse_args()
    print("| scan | noise of the import | correlation | views | third differences | evidence |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in arguments.only:
        print(row(name, arguments.side), flush=True)


if __name__ == "__main__":
    main()
