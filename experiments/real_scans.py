"""Reconstruct two measured scans with FBP and TV, and write pictures to look at.

``CT_DIP_DATA=… python -m experiments.real_scans --out DIR``

A measured scan has no ground truth. The error panels compare with a *reference*: the FBP of all
views on the same grid.
"""

import argparse
import dataclasses
import os
from pathlib import Path

import numpy as np

from ct_dip.arrays import Bools
from ct_dip.data.scan import Scan
from ct_dip.importers.reference import reference_image
from ct_dip.importers.run import import_scan
from ct_dip.methods import load_config
from ct_dip.pages.figures import reconstruction_panel, save_png
from ct_dip.pipeline import reconstruct


def load_htc(path: Path, *, pixels: int = 256, width: float = 76.0) -> Scan:
    """A full scan of the Helsinki Tomography Challenge 2022 on a grid of ours."""
    return import_scan(path, size=pixels, width=width, noise="none")


def load_walnut(path: Path, *, pixels: int = 256, width: float = 40.0, offset: float = 0.28) -> Scan:
    """The FIPS walnut on a grid of ours; its noise is left to be estimated, as that of the other scan."""
    return import_scan(path, size=pixels, width=width, detector_offset=offset, noise="none")


def field_of_view(scan: Scan) -> Bools:
    """Pixels that every view sees."""
    x, y = scan.geometry.volume.pixel_centers()
    return np.hypot(x[None, :], y[:, None]) <= scan.geometry.field_of_view


def study(scan: Scan, *, keep_every: int, bin_by: int, path: Path) -> None:
    """FBP and TV from a few views, beside the FBP of all views."""
    name = scan.source.split(";")[0]  # without the licence
    full = scan.bin_detectors(bin_by)
    reference = reference_image(full)
    inside = field_of_view(full)
    few = dataclasses.replace(full.select_views(slice(None, None, keep_every)), mask=inside)
    images = {}
    for method in ("fbp", "tv"):
        result = reconstruct(few, load_config(method=method, preset="balanced"), reference=reference)
        images[method.upper()] = result.mean
        assert result.scores is not None
        assert result.scores.psnr is not None
        quality = result.scores.psnr.value
        print(f"{name}: {method}, {few.geometry.views} views, {quality:.2f} dB to the reference")
    figure = reconstruction_panel(
        images,
        pixel_size=scan.geometry.volume.pixel_size,
        truth=reference,
        truth_name="reference",
        mask=inside,
        title=f"{name}: {few.geometry.views} of {scan.geometry.views} views",
    )
    save_png(figure, path)
    print(f"{path} written")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("real_scans"))
    out = parser.parse_args().out
    folder = os.environ.get("CT_DIP_DATA")
    if folder is None:
        parser.error("set CT_DIP_DATA to the folder with htc2022/ and fips_walnut.mat")
    data = Path(folder)
    if not data.is_dir():
        parser.error(f"CT_DIP_DATA={data} is not a folder")
    htc = load_htc(data / "htc2022" / "htc2022_01a_full.mat")
    study(htc, keep_every=12, bin_by=2, path=out / "htc2022_01a.png")
    walnut = load_walnut(data / "fips_walnut.mat")
    study(walnut, keep_every=20, bin_by=8, path=out / "walnut.png")


if __name__ == "__main__":
    main()
