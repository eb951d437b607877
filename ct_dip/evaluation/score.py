"""`score`: how a prediction compares with the truth or a reference. Nothing else computes these figures."""

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from ct_dip.arrays import Bools, Floats
from ct_dip.data.comparison import Comparison
from ct_dip.data.pixel_distribution import PixelDistribution
from ct_dip.data.prediction import Prediction
from ct_dip.data.scores import (
    BLOCKS,
    PATCHES,
    WHOLE,
    Mean,
    MeanKind,
    MeanScores,
    PartScores,
    RegionScore,
    Scores,
)
from ct_dip.errors import InputError, MissingPartError
from ct_dip.evaluation.clusters import clustered_mean, tile_numbers
from ct_dip.evaluation.image_parts import image_parts
from ct_dip.evaluation.mean_scores import (
    Deviations,
    blocks_inside,
    mean_scores,
    sampled_deviations,
)
from ct_dip.evaluation.patch_likelihood import patch_log_likelihood
from ct_dip.evaluation.pixel_scores import pixel_scores
from ct_dip.quality import similarities


class Predicted(Protocol):
    """What a score needs of a prediction; images in 1/mm, (rows, columns)."""

    @property
    def mean(self) -> Floats:
        """The image."""

    @property
    def std(self) -> Floats | None:
        """Standard deviation of every pixel."""

    @property
    def pixel_distribution(self) -> PixelDistribution:
        """The distribution of (truth − mean)/std of a single pixel."""

    @property
    def samples(self) -> Floats | None:
        """Images that are as likely as the true one, (n, rows, columns)."""

    def covariances(self, width: int) -> Sequence[tuple[slice, slice, Floats]]:
        """Return rows, columns and covariance of the patches that tile the image.

        Raises:
            MissingPartError: there are none of this width.
        """


def score(
    prediction: Predicted,
    comparison: Comparison,
    mask: Bools | None = None,
    *,
    regions: Mapping[str, Bools] | None = None,
    value_range: float | None = None,
) -> Scores:
    """Compare a prediction with the truth, or with a reference whose noise widens the error bars.

    Parts of the image are those of the truth (`ct_dip.evaluation.image_parts`); beside a reference, which is
    noise where nothing is, those of the prediction's own image. Standard errors take tiles of 8×8 pixels as
    independent (`ct_dip.evaluation.clusters`). Blocks lie wholly near the object.

    Args:
        mask: the pixels that count, (rows, columns); all if ``None``.
        regions: pixels of regions by name, (rows, columns) each, of which the evaluated ones count.
        value_range: range of the attenuation, 1/mm, for a PSNR and an SSIM that do not depend on the truth's.
    """
    shape = prediction.mean.shape
    mask = np.ones(shape, dtype=bool) if mask is None else np.asarray(mask, dtype=bool)
    _check(prediction, comparison, mask, value_range)
    truth = np.asarray(comparison.image, dtype=np.float64)
    mean = np.asarray(prediction.mean, dtype=np.float64)
    std = None if prediction.std is None else comparison.widened(prediction.std)
    measured = comparison.name == "reference"
    parts = image_parts(mean if measured else truth, mask, noisy=measured)
    tiles = tile_numbers((shape[0], shape[1]))
    distribution = prediction.pixel_distribution
    found = {name: pixel_scores(truth, mean, std, part, tiles, distribution) for name, part in parts.items()}
    its_range = float(np.ptp(truth[mask]))
    region_scores, means = _regions(prediction, comparison, mask, regions or {})
    if "near" in parts:
        means |= _blocks(prediction, comparison, parts["near"])
    return Scores(
        compared_with=comparison.name,
        noise_std=comparison.noise_std,
        value_range=its_range,
        psnr=_psnr(found["all"], its_range),
        ssim=_ssim(mean, truth, mask, its_range),
        fixed_range=value_range,
        psnr_fixed=None if value_range is None else _psnr(found["all"], value_range),
        ssim_fixed=None if value_range is None else _ssim(mean, truth, mask, value_range),
        parts=found,
        log_likelihood=_log_likelihoods(prediction, comparison, mask, found["all"]),
        means=means,
        regions=region_scores,
    )


def scores_of(prediction: Prediction) -> Scores | None:
    """Return the scores that a prediction holds, or compute those of an older file; none of a plain scan."""
    if prediction.scores is not None or prediction.comparison is None:
        return prediction.scores
    return score(prediction, prediction.comparison, prediction.evaluated)


def _check(prediction: Predicted, comparison: Comparison, mask: Bools, value_range: float | None) -> None:
    shape = prediction.mean.shape
    images = {"std": prediction.std, comparison.name: comparison.image, "mask": mask}
    for name, image in images.items():
        if image is not None and image.shape != shape:
            raise InputError(f"the {name} has shape {image.shape}, the prediction {shape}")
    if not mask.any():
        raise InputError(f"the mask leaves no pixel to compare with the {comparison.name}")
    for name, image in {"prediction": prediction.mean, **images}.items():
        if image is not None and not np.isfinite(image[mask]).all():
            raise InputError(f"the {name} must be finite where it is compared")
    if value_range is not None and not 0 < value_range < math.inf:
        raise InputError(f"value_range {value_range:g} must be a positive number, in 1/mm")


def _psnr(part: PartScores, value_range: float) -> Mean | None:
    """``20 log₁₀(range / rmse)``, dB, with its error to first order; none of an image without error."""
    rmse, error, count = part.rmse
    if rmse == 0 or value_range == 0:
        return None
    factor = 20 / math.log(10)
    return Mean(
        factor * math.log(value_range / rmse), None if error is None else factor * error / rmse, count
    )


def _ssim(mean: Floats, truth: Floats, mask: Bools, value_range: float) -> Mean | None:
    similarity = similarities(mean, truth, mask, value_range=value_range)
    counted = np.isfinite(similarity)
    return clustered_mean(similarity[counted], tile_numbers((mask.shape[0], mask.shape[1]))[counted])


def _log_likelihoods(
    prediction: Predicted, comparison: Comparison, mask: Bools, pixels: PartScores
) -> dict[int, Mean]:
    """By width of the patches, as far as the prediction has covariances that are not singular."""
    found = {1: pixels.log_likelihood}
    error = np.asarray(comparison.image, dtype=np.float64) - prediction.mean
    for width in (*PATCHES[1:], WHOLE):
        try:
            patches = prediction.covariances(width or max(error.shape))
        except MissingPartError:
            continue
        found[width] = patch_log_likelihood(error, patches, mask, noise_std=comparison.noise_std)
    return {width: mean for width, mean in found.items() if mean is not None}


def _blocks(prediction: Predicted, comparison: Comparison, near: Bools) -> dict[MeanKind, MeanScores]:
    found: dict[MeanKind, MeanScores] = {}
    kinds: tuple[MeanKind, ...] = ("blocks_4", "blocks_8")
    for kind, width in zip(kinds, BLOCKS, strict=True):
        blocks = blocks_inside(near, width)
        if not len(blocks.rows):
            continue
        noise, centers = comparison.noise_std**2 / width**2, blocks.means(prediction.mean)
        if (samples := _samples(prediction)) is not None:
            deviations = sampled_deviations(blocks.means(samples) - centers, noise)
        else:
            try:
                variances = blocks.variances(prediction.covariances(width))
            except MissingPartError:
                continue
            deviations = Deviations(np.sqrt(variances + noise), np.full(len(variances), np.inf))
        found[kind] = mean_scores(blocks.means(comparison.image) - centers, deviations, blocks.clusters)
    return found


def _regions(
    prediction: Predicted, comparison: Comparison, mask: Bools, regions: Mapping[str, Bools]
) -> tuple[dict[str, RegionScore], dict[MeanKind, MeanScores]]:
    samples, found, all_deviations = _samples(prediction), {}, []
    for name, region in regions.items():
        if region.shape != mask.shape:
            raise InputError(f"region {name!r} has shape {region.shape}, the image {mask.shape}")
        inside = region & mask
        pixels = int(np.count_nonzero(inside))
        if not pixels:
            raise InputError(f"region {name!r} has no pixel that is evaluated; move it, or leave it out")
        center, truth = (
            image[inside].mean(dtype=np.float64) for image in (prediction.mean, comparison.image)
        )
        found[name] = RegionScore(pixels, float(truth - center))
        if samples is not None:
            sampled = samples[:, inside].mean(axis=1, dtype=np.float64) - center
            deviations = sampled_deviations(sampled, comparison.noise_std**2 / pixels)
            level = float(deviations.levels(truth - center))
            found[name] = RegionScore(pixels, float(truth - center), float(deviations.std), level)
            all_deviations.append(deviations)
    if not all_deviations:
        return found, {}
    errors = np.array([region.error for region in found.values()])
    together = Deviations(*(np.array(values) for values in zip(*all_deviations, strict=True)))
    return found, {"regions": mean_scores(errors, together, np.arange(len(errors)))}


def _samples(prediction: Predicted) -> Floats | None:
    """Return samples that are enough for a deviation."""
    samples = prediction.samples
    return None if samples is None or len(samples) < 2 else samples
