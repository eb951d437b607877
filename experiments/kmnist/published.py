"""What the published implementation was given on KMNIST, and what it made of that."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from benchmarks.kmnist import data_folder
from benchmarks.kmnist_loglik import PUBLISHED
from ct_dip.data.comparison import Comparison
from ct_dip.data.noise import WhiteNoise
from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.evaluation.score import score
from ct_dip.geometry import ParallelBeam, Volume

CASES = ((20, 0), (20, 1), (20, 2), (5, 0))  # views and image
_STDS = {"published MLL": "std_MLL", "published TV-PredCP": "std_TVMAP"}
_NOISE = 0.05
# Its detector has 41 bins over the diagonal of the image, and its views begin a quarter of a turn before
# ours. With that, our matrix of kernel "linear" is its matrix: projections differ by 2e-6.
_PITCH, _TURN = 28 * math.sqrt(2) / 41, -math.pi / 2


class PublishedCase(NamedTuple):
    """One scan, and figures of the published implementation by the names of its two priors."""

    views: int
    image: int
    scan: Scan
    figures: dict[str, dict[str, Any]]


def published_cases() -> Iterator[PublishedCase]:
    """Yield the scans that the published implementation was given, with the scores of what it returned.

    Its image and deviations are scored as ours are. Its covariance is not stored: the log-likelihood of the
    whole image is the recorded one.
    """
    arrays = np.load(data_folder() / "published_kmnist.npz", allow_pickle=False)
    for views, image in CASES:
        stored = {name: arrays[f"views{views}_image{image}_{name}"] for name in _names()}
        truth = stored["ground_truth"]
        line_integrals = published_matrix(arrays, views) @ truth.ravel()
        scan = Scan(
            sinogram=stored["sinogram"],
            geometry=ParallelBeam(
                volume=Volume(shape=(28, 28)),
                angles=stored["angles"] + _TURN,
                detectors=41,
                detector_pitch=_PITCH,
            ),
            noise=WhiteNoise(std=_NOISE * float(np.abs(line_integrals).mean())),
            ground_truth=truth,
            source=f"published implementation, KMNIST image {image}",
        )
        comparison, figures = Comparison(name="truth", image=truth), {}
        for name, std in _STDS.items():
            prediction = Prediction(mean=stored["dip"], std=stored[std])
            found: dict[str, Any] = dict(score(prediction, comparison, scan.evaluated).row())
            figures[name] = found | {"log_likelihood_image": PUBLISHED[views][name][image]}
        yield PublishedCase(views, image, scan, figures)


def published_matrix(arrays: Mapping[str, Any], views: int) -> csr_matrix:
    """Return the stored ray transform, (views · 41, 784)."""
    parts = (arrays[f"views{views}_matrix_{name}"] for name in ("data", "indices", "indptr"))
    return csr_matrix(tuple(parts), shape=(41 * views, 28 * 28))


def _names() -> tuple[str, ...]:
    return ("ground_truth", "sinogram", "angles", "dip", *_STDS.values())
