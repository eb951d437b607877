"""HTC 2022 01a, 30 of 720 views, bins of four, 128² over 76 mm: deep image prior against the best TV.

The yardstick is a *reference*, CGLS of all 720 views on the same grid, not a truth. TV gets the best of a
sweep of strengths, chosen with the reference; the deep image prior gets its defaults.
"""

import time
from collections.abc import Iterator

import torch

from benchmarks.kmnist import data_folder
from benchmarks.measure import Row, plain
from ct_dip.classical.cgls import cgls
from ct_dip.classical.tv import tv
from ct_dip.dip.fit import fit_dip
from ct_dip.operators import ray_transform
from ct_dip.quality import psnr
from experiments.real_scans import load_htc

STRENGTHS = (0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8)
REFERENCE_ITERATIONS = 20


def run() -> Iterator[Row]:
    path = data_folder() / "htc2022" / "htc2022_01a_full.mat"
    full = load_htc(path, pixels=128, width=76.0).bin_detectors(4)
    everything = torch.as_tensor(full.sinogram.copy())
    reference = cgls(
        ray_transform(full.geometry), everything, max_iterations=REFERENCE_ITERATIONS, tolerance=0.0
    ).image.numpy()
    few = full.select_views(slice(None, None, 24))
    transform, sinogram = ray_transform(few.geometry), torch.as_tensor(few.sinogram.copy())
    variance, _ = few.variance_or_estimate()

    def tv_quality(strength: float) -> float:
        found = tv(
            transform,
            sinogram,
            variance=torch.as_tensor(variance),
            strength=strength,
            max_iterations=2000,
        )
        return psnr(found.image.numpy(), reference)

    sweep = {strength: tv_quality(strength) for strength in STRENGTHS}
    best = max(sweep, key=sweep.__getitem__)
    start = time.perf_counter()
    fit = fit_dip(few, transform=transform)
    seconds = time.perf_counter() - start
    quality = psnr(fit.image, reference)
    yield Row(
        benchmark="dip-real",
        case=f"HTC 01a, 30 views, 128², PSNR to a 720-view reference, {quality - sweep[best]:+.2f} dB",
        reference=f"TV, best of {len(STRENGTHS)} strengths ({best:g})",
        reference_value=sweep[best],
        value=quality,
        unit="dB",
        ratio=quality / sweep[best],
    )
    yield plain("dip-real", f"one fit, {fit.steps} steps, stopped by {fit.stopped_by}", seconds, "s")
