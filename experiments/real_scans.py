"""Reconstruct two measured scans with FBP and TV, and write pictures to look at.

``CT_DIP_DATA=… python -m experiments.real_scans --out DIR``

A measured scan has no ground truth. The error panels compare with a *reference*: the FBP of all
views on the same grid.
"""

import argparse
import os
from pathlib import Path

import numpy as np
import scipy.io

from ct_dip.arrays import Bools
from ct_dip.config import load_config
from ct_dip.data.scan import Scan
from ct_dip.geometry import FanBeam, Volume
from ct_dip.pipeline import reconstruct
from ct_dip.quality import psnr
from ct_dip.report.figures import reconstruction_panel, save_png


def load_htc(path: Path, *, pixels: int = 256, width: float = 76.0) -> Scan:
    """A full scan of the Helsinki Tomography Challenge 2022: log-attenuation, fan beam, 720 views."""
    data = scipy.io.loadmat(path, simplify_cells=True)["CtDataFull"]
    parameters = data["parameters"]
    source_origin = float(parameters["distanceSourceOrigin"])
    geometry = FanBeam(
        volume=Volume(shape=(pixels, pixels), pixel_size=width / pixels),
        angles=np.deg2rad(parameters["angles"][:720]),  # the 721st view repeats the first
        detectors=int(parameters["numDetectorsPost"]),
        detector_pitch=float(parameters["pixelSizePost"]),
        source_origin=source_origin,
        origin_detector=float(parameters["distanceSourceDetector"]) - source_origin,
    )
    sinogram = data["sinogram"][:720].astype(np.float32)
    return Scan(sinogram=sinogram, geometry=geometry, source=f"HTC 2022, {path.stem}")


def load_walnut(path: Path, *, pixels: int = 256, width: float = 40.0, offset: float = 0.28) -> Scan:
    """The FIPS walnut: raw intensities, fan beam, 1200 views; bins at the edges see air."""
    counts = scipy.io.loadmat(path)["sinogram1200"].T.astype(np.float64)  # (views, detectors)
    # The tube drifts by 10 % during the scan, so every view has its own air value.
    air = np.median(np.concatenate([counts[:, :100], counts[:, -100:]], axis=1), axis=1, keepdims=True)
    geometry = FanBeam(
        volume=Volume(shape=(pixels, pixels), pixel_size=width / pixels),
        angles=2 * np.pi * np.arange(len(counts)) / len(counts),
        detectors=counts.shape[1],
        detector_pitch=0.05,
        detector_offset=offset,
        source_origin=110.0,
        origin_detector=190.0,
    )
    sinogram = -np.log(np.maximum(counts, 1) / air)
    return Scan(sinogram=sinogram.astype(np.float32), geometry=geometry, source="FIPS walnut")


def field_of_view(scan: Scan) -> Bools:
    """Pixels that every view sees."""
    x, y = scan.geometry.volume.pixel_centers()
    return np.hypot(x[None, :], y[:, None]) <= scan.geometry.field_of_view


def study(scan: Scan, *, keep_every: int, bin_by: int, path: Path) -> None:
    """FBP and TV from a few views, beside the FBP of all views."""
    full = scan.bin_detectors(bin_by)
    reference = reconstruct(full, load_config(method="fbp", settings=["fbp.filter=ram-lak"])).mean
    inside = field_of_view(full)
    few = full.select_views(slice(None, None, keep_every))
    images = {}
    for method in ("fbp", "tv"):
        result = reconstruct(few, load_config(method=method))
        images[method.upper()] = result.mean
        quality = psnr(result.mean, reference, inside)
        print(f"{scan.source}: {method}, {few.geometry.views} views, {quality:.2f} dB to the reference")
    figure = reconstruction_panel(
        images,
        pixel_size=scan.geometry.volume.pixel_size,
        truth=reference,
        truth_name="reference",
        mask=inside,
        title=f"{scan.source}: {few.geometry.views} of {scan.geometry.views} views",
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
