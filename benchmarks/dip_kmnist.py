"""Our deep image prior against the published recipe: PSNR and time on the first ten KMNIST test images.

Every default of ours was chosen on images 50 to 99. The reference networks of the ten images are fitted
together; the time of one is that of ``TIMED_STEPS`` steps of a single network, scaled to the recipe's.
The published recipe takes about an hour here.
"""

import time
from collections.abc import Iterator

import numpy as np

from benchmarks.kmnist import kmnist_scans
from benchmarks.measure import Row, faster
from benchmarks.published_dip import RECIPES, Recipe, fit_published
from ct_dip.dip.fit import fit_dip
from ct_dip.quality import psnr

IMAGES = range(10)
TIMED_STEPS = 300
REFERENCE = "published recipe (Adam 1e-4)"


def run() -> Iterator[Row]:
    for (views, noise), recipe in RECIPES.items():
        scans = kmnist_scans(IMAGES, views=views, noise=noise)
        truths = [scan.ground_truth for scan in scans if scan.ground_truth is not None]
        case = f"{views} views, {noise:.0%} noise"

        _, seconds = fit_published(scans[:1], Recipe(recipe.gamma, TIMED_STEPS))
        theirs_seconds = seconds * recipe.steps / TIMED_STEPS
        ours, ours_seconds, steps = [], [], []
        for scan, truth in zip(scans, truths, strict=True):
            start = time.perf_counter()
            fit = fit_dip(scan)
            ours_seconds.append(time.perf_counter() - start)
            ours.append(psnr(fit.image, truth))
            steps.append(fit.steps)
        label = f"{case}, one fit, {np.mean(steps):.0f} against {recipe.steps} steps"
        yield faster("dip-kmnist", label, REFERENCE, theirs_seconds, float(np.mean(ours_seconds)))

        images, _ = fit_published(scans, recipe)
        theirs = [psnr(image, truth) for image, truth in zip(images.numpy(), truths, strict=True)]
        difference = np.subtract(ours, theirs)
        error = difference.std(ddof=1) / np.sqrt(len(difference))
        yield Row(
            benchmark="dip-kmnist",
            case=f"{case}, PSNR, mean of {len(scans)}, difference {difference.mean():+.2f} ± {error:.2f} dB",
            reference=REFERENCE,
            reference_value=float(np.mean(theirs)),
            value=float(np.mean(ours)),
            unit="dB",
            ratio=float(np.mean(ours) / np.mean(theirs)),
        )
