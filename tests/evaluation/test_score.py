"""A Gaussian with known miscalibration has the scores of the closed forms, to the stated errors."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from ct_dip.data.comparison import Comparison
from ct_dip.data.pixel_distribution import PixelDistribution
from ct_dip.data.prediction import Prediction
from ct_dip.data.scores import LEVELS, PARTS, PATCHES, WHOLE, Scores
from ct_dip.errors import InputError
from ct_dip.evaluation.mean_scores import blocks_inside
from ct_dip.evaluation.near import near_object
from ct_dip.evaluation.score import score, scores_of
from ct_dip.posterior.config import InferenceConfig
from ct_dip.posterior.fit import fit_posterior
from ct_dip.quality import psnr, ssim
from tests import tiny
from tests.evaluation.gaussian import Predicted, disk, smooth_factor

SHAPE = (128, 120)
TRUTH = disk(SHAPE, 50)
COMPARISON = Comparison(name="truth", image=TRUTH)


def independent(k=1.0, seed=0, truth=TRUTH):
    """Independent errors, of deviations that are stated k times too large."""
    rng = np.random.default_rng(seed)
    std = 0.001 * rng.uniform(0.5, 2, truth.shape)
    return Predicted(mean=truth + std * rng.standard_normal(truth.shape), std=k * std)


@pytest.mark.parametrize("k", [0.5, 1, 1.7])
def test_wrong_deviations_give_the_known_curve(k):
    prediction = independent(k)
    scores = score(prediction, COMPARISON)
    for part in PARTS:
        for level in LEVELS:
            found = scores.coverage(level, part)
            expected = 2 * norm.cdf(k * norm.ppf((1 + level) / 2)) - 1
            binomial = math.sqrt(expected * (1 - expected) / found.count)
            assert found.value == pytest.approx(expected, abs=4 * binomial + 1 / found.count)
            assert found.count == scores.parts[part].pixels
        pixels = scores.parts[part]
        assert pixels.rms_z.value == pytest.approx(1 / k, abs=4 * pixels.rms_z.standard_error)
    everywhere = scores.parts["all"]
    chance = 1 / math.sqrt(2 * TRUTH.size / 10)  # relative error of a bin's root mean square
    assert everywhere.ence == pytest.approx(abs(1 - 1 / k), abs=(4 / math.sqrt(10) + 0.8) * chance / k)
    std = prediction.std / k  # E CRPS of N(0, k²σ²) at N(0, σ²): σ (√(2(1 + k²)) − k)/√π
    expected = std.mean() * (math.sqrt(2 * (1 + k**2)) - k) / math.sqrt(math.pi)
    assert everywhere.crps.value == pytest.approx(expected, abs=4 * everywhere.crps.standard_error)
    expected = -np.log(k * std).mean() - math.log(2 * math.pi) / 2 - 1 / (2 * k**2)
    found = scores.log_likelihood[1]
    assert found.value == pytest.approx(expected, abs=4 * found.standard_error)
    assert everywhere.ause < everywhere.ause_of_no_knowledge


def test_pixels_of_students_distribution_are_covered_by_its_intervals_alone():
    """Errors with heavy tails: a Gaussian of the same variance is too wide at 50 %, and less likely."""
    rng = np.random.default_rng(3)
    std = 0.001 * rng.uniform(0.5, 2, SHAPE)
    mean = TRUTH + std * math.sqrt(1 / 3) * rng.standard_t(3, SHAPE)
    student, gaussian = (
        score(Predicted(mean=mean, std=std, pixel_distribution=PixelDistribution(v)), COMPARISON)
        for v in (3.0, math.inf)
    )
    for level in LEVELS:
        found = student.coverage(level)
        assert found.value == pytest.approx(level, abs=4 * math.sqrt(level * (1 - level) / found.count))
    assert gaussian.coverage(0.5).value > 0.6
    assert student.log_likelihood[1].value > gaussian.log_likelihood[1].value + 0.1
    assert student.parts["all"].crps.value < gaussian.parts["all"].crps.value


@pytest.mark.parametrize("k", [0.5, 1.0, 2.0])
def test_quarters_of_narrow_and_wide_error_bars_have_errors_of_their_size(k):
    part = score(independent(k), COMPARISON).parts["all"]
    assert part.widest.std > 1.5 * part.narrowest.std
    for quarter in (part.narrowest, part.widest):
        # a root mean square of n independent errors has the relative standard error 1/√(2n)
        assert quarter.error == pytest.approx(quarter.std / k, rel=3 / np.sqrt(2 * TRUTH.size / 4))


def test_scores_that_a_prediction_holds_are_not_computed_again():
    held = score(independent(), COMPARISON)
    plain = Prediction(mean=independent().mean, std=independent().std, comparison=COMPARISON)
    assert scores_of(plain) == held
    assert scores_of(replace(plain, mean=TRUTH, scores=held)) is held
    assert scores_of(replace(plain, comparison=None)) is None


def test_the_largest_residuals_are_found_near_the_object():
    prediction = independent()
    prediction.mean[64, 60] = TRUTH[64, 60] - 30 * prediction.std[64, 60]
    prediction.mean[0, 0] = TRUTH[0, 0] + 50 * prediction.std[0, 0]
    scores = score(prediction, COMPARISON)
    assert scores.row()["largest_z"] == pytest.approx(50)
    assert scores.row()["largest_z_near"] == pytest.approx(30)
    # The quantile's rank has a binomial deviation of √(0.999·0.001 n); 4 of them around Φ.
    n = scores.parts["near"].pixels
    slack = 4 * math.sqrt(0.001 / n)
    low, high = norm.isf(np.array([0.001 + slack, max(0.001 - slack, 1 / n / 10)]) / 2)
    assert low < scores.parts["near"].z_999 < high


def test_standard_errors_are_the_spread_of_repeated_draws():
    """Errors of neighbours within two pixels are correlated: tiles of eight see most of that."""
    shape, repeats = (48, 48), 150
    truth, rng = disk(shape, 22), np.random.default_rng(3)
    factor = smooth_factor(shape, 1.0)
    comparison = Comparison(name="truth", image=truth)
    names = (
        "coverage_50",
        "coverage_90_near",
        "crps",
        "rmse",
        "psnr",
        "rms_z",
        "log_likelihood_1",
        "mae_flat",
    )
    values, errors = [], []
    for _ in range(repeats):
        error = 0.001 * (factor @ rng.standard_normal(truth.size)).reshape(shape)
        prediction = Predicted(mean=truth + error, std=np.full(shape, 0.001))
        row = score(prediction, comparison).row(standard_errors=True)
        values.append([row[name] for name in names])
        errors.append([row[f"{name}_se"] for name in names])
    spread, stated = np.std(values, axis=0, ddof=1), np.sqrt(np.mean(np.square(errors), axis=0))
    # The spread of 150 draws is known to 6 %; correlation across edges of tiles makes the errors too small.
    assert np.all(stated / spread > 0.7)
    assert np.all(stated / spread < 1.2)
    alone = 0.5 / math.sqrt(truth.size)  # of 50 % coverage, if pixels were independent
    assert stated[0] > 1.5 * alone


@pytest.mark.parametrize("k", [0.5, 1.0])
@pytest.mark.parametrize("kind", ["samples", "covariance"])
def test_block_means_have_the_coverage_of_their_covariance(kind, k):
    shape, repeats, draws = (24, 24), 60, 40
    truth, rng = disk(shape, 30), np.random.default_rng(4)
    truth[0, 0] = 0
    factor = 0.001 * smooth_factor(shape, 2.0)
    comparison = Comparison(name="truth", image=truth)
    region = np.zeros(shape, dtype=bool)
    region[3:15, 5:11] = True
    covered = {"blocks_4": [], "blocks_8": [], "regions": []}
    for _ in range(repeats):
        mean = truth + (factor @ rng.standard_normal(truth.size)).reshape(shape)
        if kind == "samples":
            sampled = k * (rng.standard_normal((draws, truth.size)) @ factor.T).reshape(-1, *shape)
            prediction = Predicted(mean=mean, samples=mean + sampled)
        else:
            prediction = Predicted(mean=mean, covariance=k**2 * factor @ factor.T)
        scores = score(prediction, comparison, regions={"the organ": region})
        for name, values in covered.items():
            found = scores.coverage(0.8, name)
            if found is not None:
                values.append(found.value)
        assert scores.parts["near"].coverage == {}  # no deviation of pixels was given
    expected = 2 * norm.cdf(k * norm.ppf(0.9)) - 1
    for name, values in covered.items():
        if name == "regions" and kind == "covariance":
            assert not values
        else:
            # Student's quantiles are right for k = 1 alone.
            slack = 4 * np.std(values) / math.sqrt(repeats) + (0.01 if k < 1 else 0)
            assert np.mean(values) == pytest.approx(expected, abs=slack)


def test_blocks_share_the_tile_of_their_first_pixel():
    part = np.ones((19, 26), dtype=bool)
    part[3, 5] = False
    blocks = blocks_inside(part, 4)
    assert len(blocks.rows) == 4 * 6 - 1  # whole ones, less the one with a hole
    image = np.random.default_rng(0).random(part.shape)
    assert blocks.means(image)[:2] == pytest.approx([image[:4, :4].mean(), image[:4, 8:12].mean()])
    assert np.bincount(blocks.clusters).tolist() == [3, 4, 4, 4, 4, 4]


def test_patches_have_the_density_of_their_covariance():
    shape, rng = (11, 7), np.random.default_rng(5)
    truth = rng.random(shape)
    factor = rng.standard_normal((77, 77)) / 9
    covariance = factor @ factor.T + 0.1 * np.eye(77)
    mean = truth + (np.linalg.cholesky(covariance) @ rng.standard_normal(77)).reshape(shape)
    prediction = Predicted(
        mean=mean, std=np.sqrt(covariance.diagonal()).reshape(shape), covariance=covariance
    )
    reference = Comparison(name="reference", image=truth, noise_std=0.2)
    mask = rng.random(shape) > 0.3
    scores = score(prediction, reference, mask)
    inside = mask.ravel()
    whole = multivariate_normal(cov=(covariance + 0.04 * np.eye(77))[np.ix_(inside, inside)])
    expected = whole.logpdf((truth - mean).ravel()[inside]) / inside.sum()
    assert scores.log_likelihood[WHOLE].value == pytest.approx(expected)
    assert scores.log_likelihood[WHOLE].standard_error is None
    assert sorted(scores.log_likelihood) == sorted((*PATCHES, WHOLE))
    # A width of 1 uses the deviations, which are those of the covariance.
    single = norm(0, np.sqrt(covariance.diagonal() + 0.04)[inside]).logpdf((truth - mean).ravel()[inside])
    assert scores.log_likelihood[1].value == pytest.approx(single.mean())
    singular = Predicted(mean=mean, std=prediction.std, covariance=np.ones((77, 77)))
    assert list(score(singular, Comparison(name="truth", image=truth)).log_likelihood) == [1]


def test_densities_are_those_of_the_posterior():
    scan = tiny.scan()
    posterior = fit_posterior(tiny.dip_fit(), scan, InferenceConfig(samples=0))
    patches = {width: posterior.covariance(width) for width in (2, 3, 5, 6, 10)}

    class Seen(Predicted):
        def covariances(self, width):
            return patches[width]

    mask = scan.ground_truth > np.quantile(scan.ground_truth, 0.2)
    for noise in (0.0, 0.1):
        comparison = Comparison(name="reference", image=scan.ground_truth, noise_std=noise)
        found = score(Seen(mean=posterior.mean, std=posterior.std), comparison, mask).log_likelihood
        for width in (*PATCHES, WHOLE):
            expected = posterior.log_likelihood(scan.ground_truth, width or None, noise_std=noise, mask=mask)
            assert found[width].value == pytest.approx(expected, rel=1e-6)


def test_quality_has_the_range_of_the_truth_or_a_fixed_one():
    prediction, mask = independent(), np.random.default_rng(6).random(SHAPE) > 0.1
    scores = score(prediction, COMPARISON, mask, value_range=0.05)
    assert scores.psnr.value == pytest.approx(psnr(prediction.mean, TRUTH, mask))
    assert scores.ssim.value == pytest.approx(ssim(prediction.mean, TRUTH, mask))
    assert scores.value_range == 0.02
    assert scores.psnr_fixed.value - scores.psnr.value == pytest.approx(20 * math.log10(0.05 / 0.02))
    assert scores.ssim_fixed.value > scores.ssim.value  # errors are small against a wide range
    again = score(prediction, COMPARISON, mask, value_range=0.02)
    assert again.ssim_fixed == scores.ssim
    assert again.psnr_fixed == scores.psnr


def test_what_is_outside_of_the_mask_has_no_influence():
    mask = np.zeros(SHAPE, dtype=bool)
    mask[20:100, 10:90] = True
    prediction = independent()
    disturbed = Predicted(
        mean=np.where(mask, prediction.mean, 7.0), std=np.where(mask, prediction.std, np.nan)
    )
    truth = np.where(mask, TRUTH, -3.0)
    regions = {"left": np.indices(SHAPE)[1] < 40}
    first = score(prediction, COMPARISON, mask, regions=regions).row(standard_errors=True)
    second = score(disturbed, Comparison(name="truth", image=truth), mask, regions=regions)
    changed = {
        name
        for name, value in second.row(standard_errors=True).items()
        if value != pytest.approx(first[name])
    }
    assert {name for name in changed if not name.startswith("ssim")} == set()  # windows reach across its edge
    assert second.parts["all"].pixels == mask.sum()


def test_a_reference_widens_what_is_expected():
    rng = np.random.default_rng(7)
    prediction, noise = independent(), 0.002
    reference = TRUTH + noise * rng.standard_normal(SHAPE)
    known = score(prediction, Comparison(name="reference", image=reference, noise_std=noise))
    unknown = score(prediction, Comparison(name="reference", image=reference))
    assert known.compared_with == "reference"
    assert known.noise_std == noise
    found = known.coverage(0.9)
    assert found.value == pytest.approx(0.9, abs=4 * found.standard_error)
    assert unknown.coverage(0.9).value < 0.6
    near = near_object(prediction.mean, noisy=True)  # a reference does not say where the object is
    assert known.parts["near"].pixels == near.sum()


def test_noise_of_a_reference_averages_out_over_blocks():
    rng, repeats, noise = np.random.default_rng(8), 60, 0.004
    truth = disk((24, 24), 30)
    truth[0, 0] = 0
    values, region_levels = [], []
    region = np.ones(truth.shape, dtype=bool)
    for _ in range(repeats):
        mean = truth + 0.001 * rng.standard_normal(truth.shape)
        samples = mean + 0.001 * rng.standard_normal((5, *truth.shape))  # so few that Student matters
        reference = truth + noise * rng.standard_normal(truth.shape)
        comparison = Comparison(name="reference", image=reference, noise_std=noise)
        scores = score(Predicted(mean=mean, samples=samples), comparison, regions={"all of it": region})
        values.append(scores.coverage(0.8, "blocks_4").value)
        region_levels.append(scores.regions["all of it"].level)
        assert scores.regions["all of it"].pixels == truth.size
    assert np.mean(values) == pytest.approx(0.8, abs=4 * np.std(values) / math.sqrt(repeats))
    assert np.mean(region_levels) == pytest.approx(0.5, abs=4 / math.sqrt(12 * repeats))  # uniform if right


def test_what_a_prediction_does_not_have_is_absent():
    bare = score(Predicted(mean=independent().mean), COMPARISON, regions={"top": TRUTH > 0})
    row = bare.row(standard_errors=True)
    present = {name for name, value in row.items() if value is not None}
    kinds = {"", "_se"}
    parts = {"" if part == "all" else f"_{part}" for part in PARTS}
    errors = {f"{name}{part}{se}" for name in ("mae", "rmse") for part in parts for se in kinds}
    assert present == errors | {f"{name}{se}" for name in ("psnr", "ssim") for se in kinds}
    assert bare.regions["top"].std is None
    assert bare.log_likelihood == {}
    assert score(independent(), COMPARISON).row().keys() == bare.row().keys()


def test_a_constant_truth_and_a_perfect_image_have_no_quality():
    flat = Comparison(name="truth", image=np.ones((9, 9)))
    scores = score(Predicted(mean=np.zeros((9, 9)), std=np.zeros((9, 9))), flat)
    assert scores.psnr is None
    assert scores.ssim is None
    assert sorted(scores.parts) == ["all", "background"]
    everywhere = scores.parts["all"]
    assert everywhere.coverage[0.99].value == 0  # certain and wrong
    assert everywhere.crps.value == 1
    assert everywhere.largest_z is None  # it is infinite
    assert everywhere.log_likelihood is None
    perfect = score(Predicted(mean=TRUTH, std=np.zeros(SHAPE)), COMPARISON)
    assert perfect.psnr is None
    assert perfect.ssim.value == pytest.approx(1)
    assert perfect.coverage(0.5).value == 1
    for each in (scores, perfect):
        assert Scores.from_dict(each.to_dict()) == each


def test_what_does_not_fit_is_refused():
    good = independent()
    with pytest.raises(InputError, match="shape"):
        score(good, Comparison(name="truth", image=TRUTH.T))
    with pytest.raises(InputError, match="no pixel"):
        score(good, COMPARISON, np.zeros(SHAPE, dtype=bool))
    with pytest.raises(InputError, match="finite"):
        score(Predicted(mean=np.full(SHAPE, np.nan)), COMPARISON)
    with pytest.raises(InputError, match="value_range"):
        score(good, COMPARISON, value_range=0)
    with pytest.raises(InputError, match="'empty' has no pixel"):
        score(good, COMPARISON, regions={"empty": np.zeros(SHAPE, dtype=bool)})
    with pytest.raises(InputError, match="'small' has shape"):
        score(good, COMPARISON, regions={"small": np.ones((2, 2), dtype=bool)})
