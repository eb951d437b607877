"""HTC 2022 01a, 30 of 720 views, bins of four, 128² over 76 mm: deep image prior against the best TV.

The yardstick is a *reference*, not a truth: FBP of all 720 views with all bins on a grid four times as fine,
averaged over the pixels of ours. It regularises nothing and shares neither the projector nor the binning of
the methods. It is compared inside the field of view, which every ray sees. TV gets the best of a sweep of
strengths, chosen with the reference; the deep image prior gets its defaults, which were chosen on 02b, 04c
and generated phantoms.
"""

import time
from collections.abc import Iterator

import torch

from benchmarks.measure import Row, plain
from benchmarks.measured_scans import measured_scan
from ct_dip.classical.tv import tv
from ct_dip.dip.fit import fit_dip
from ct_dip.operators import ray_transform
from ct_dip.quality import psnr

STRENGTHS = (0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8)


def run() -> Iterator[Row]:
    few, comparison = measured_scan("htc", "01a", side=128, views=30)
    reference = comparison.image
    seen = few.evaluated
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
        return psnr(found.image.numpy(), reference, seen)

    sweep = {strength: tv_quality(strength) for strength in STRENGTHS}
    best = max(sweep, key=sweep.__getitem__)
    start = time.perf_counter()
    fit = fit_dip(few, transform=transform)
    seconds = time.perf_counter() - start
    quality = psnr(fit.image, reference, seen)
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
