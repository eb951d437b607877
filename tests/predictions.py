"""Predictions with known errors, for tables and pages that compare them."""

from dataclasses import replace

import numpy as np

from ct_dip.data.comparison import Comparison
from ct_dip.data.prediction import Prediction
from ct_dip.data.scores import LEVELS, HeldoutScores, Mean
from ct_dip.evaluation.score import score

SHAPE = (24, 24)


def truth(seed=0):
    """A disc in empty space, 1/mm."""
    rows, columns = np.indices(SHAPE) - 11.5
    speckle = 0.002 * np.random.default_rng(seed).standard_normal(SHAPE)
    return np.where(np.hypot(rows, columns) < 9, 0.02 + speckle, 0.0).astype(np.float32)


def prediction(method="tv", *, scan="a", error=0.001, std=None, compared="truth", seconds=1.0, **parts):
    """What a method would say that errs by ``error`` in every pixel, with error bars of ``std``."""
    noise = np.random.default_rng(sum(map(ord, method + scan))).standard_normal((41, *SHAPE))
    image = truth(sum(map(ord, scan)))
    made = Prediction(
        mean=(image + error * noise[0]).astype(np.float32),
        method=method,
        scan_digest=scan * 32,
        seconds={"ray transform": 50.0, method: seconds, "compare with the truth": 70.0},
        diagnostics={"peak_memory_mb": 100.0 * seconds},
        versions={"python": "3"},
        settings={"method": method, "seed": 0},
    )
    if std is not None:
        made = replace(
            made, std=np.full(SHAPE, std, "f4"), samples=made.mean + (std * noise[1:]).astype("f4")
        )
    if compared is not None:
        comparison = Comparison(name=compared, image=image)
        made = replace(made, comparison=comparison, scores=score(made, comparison))
    return replace(made, **parts)


def heldout(log_density, error=0.01):
    """Scores of held-out views."""
    one = Mean(1.0, 0.1, 40)
    return HeldoutScores(
        folds=5,
        held=1,
        views=4,
        measurements=40,
        error_bars=False,
        log_density=Mean(log_density, error, 40),
        coverage={level: Mean(0.95 * level, 0.01, 40) for level in LEVELS},
        rms_z=one,
        rms_z_smoothed=one,
        misfit=one,
    )
