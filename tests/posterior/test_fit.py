"""`fit_posterior` and `Posterior`: what a user asks, and what happens when they ask badly."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.errors import CtDipError, InputError, MemoryBudgetError
from ct_dip.evidence.stage import evidence_stage
from ct_dip.geometry import Volume
from ct_dip.operators import ray_transform
from ct_dip.posterior.config import InferenceConfig
from ct_dip.posterior.deviations import DenseDeviations
from ct_dip.posterior.exact import Exact
from ct_dip.posterior.exact_model import inference_bytes
from ct_dip.posterior.fit import fit_posterior
from ct_dip.posterior.relevance import freed_pixel_variance, neighbourhood, threshold
from ct_dip.priors.complement import published_floor, slope_complement
from ct_dip.scanners import scanner
from ct_dip.tangent.footprint import footprint
from tests import tiny


@pytest.fixture(scope="module")
def posterior():
    return fit_posterior(tiny.dip_fit(), tiny.scan(), InferenceConfig(starts=1))


def test_images_are_in_inverse_millimetres(posterior):
    fit = tiny.dip_fit()
    np.testing.assert_allclose(posterior.dip, fit.image)
    np.testing.assert_allclose(posterior.mean, (posterior.dip + posterior.linear) / 2)
    assert posterior.std.shape == tiny.IMAGE
    assert (posterior.std > 0).all()
    variance = posterior.deviations.matrix.diagonal().numpy().reshape(tiny.IMAGE)
    np.testing.assert_allclose(posterior.std, tiny.SCALE * np.sqrt(variance))


@pytest.mark.parametrize(("image", "name"), [("dip", "dip"), ("linear", "linear")])
def test_the_shown_image_can_be_chosen(image, name):
    found = fit_posterior(tiny.dip_fit(), tiny.scan(), InferenceConfig(starts=1, image=image))
    np.testing.assert_array_equal(found.mean, getattr(found, name))


def test_patches_tile_the_image(posterior):
    (whole,) = posterior.covariance()
    np.testing.assert_allclose(whole.covariance, tiny.SCALE**2 * posterior.deviations.matrix.numpy())
    for side in (1, 2, 4, 10):
        count = np.zeros(tiny.IMAGE)
        for rows, columns, matrix in posterior.covariance(side):
            count[rows, columns] += 1
            inside = np.arange(30).reshape(tiny.IMAGE)[rows, columns].ravel()
            np.testing.assert_allclose(matrix, whole.covariance[np.ix_(inside, inside)])
        assert (count == 1).all()
    with pytest.raises(InputError, match="patch 0"):
        posterior.covariance(0)


def test_log_likelihood_of_pixels_patches_and_the_image(posterior):
    truth = tiny.scan().ground_truth.astype(np.float64)
    single = stats.norm(posterior.mean, posterior.std).logpdf(truth).mean()
    assert posterior.log_likelihood(truth, 1) == pytest.approx(single)
    (whole,) = posterior.covariance()
    full = stats.multivariate_normal(posterior.mean.ravel(), whole.covariance).logpdf(truth.ravel()) / 30
    assert posterior.log_likelihood(truth) == pytest.approx(full)
    patches = sum(
        stats.multivariate_normal(posterior.mean[r, c].ravel(), k).logpdf(truth[r, c].ravel())
        for r, c, k in posterior.covariance(3)
    )
    assert posterior.log_likelihood(truth, 3) == pytest.approx(patches / 30)
    with pytest.raises(InputError, match="shape"):
        posterior.log_likelihood(truth[:-1])


def test_log_likelihood_inside_a_mask_is_that_of_its_pixels_alone(posterior):
    """The marginal of a Gaussian, and whatever the truth is elsewhere."""
    mask = np.zeros(tiny.IMAGE, dtype=bool)
    mask[1:5, 1:4] = True
    truth = np.where(mask, tiny.scan().ground_truth.astype(np.float64), 1e3)
    (whole,) = posterior.covariance()
    counted = np.flatnonzero(mask)
    inside = stats.multivariate_normal(posterior.mean[mask], whole.covariance[np.ix_(counted, counted)])
    assert posterior.log_likelihood(truth, mask=mask) == pytest.approx(inside.logpdf(truth[mask]) / 12)
    single = stats.norm(posterior.mean[mask], posterior.std[mask]).logpdf(truth[mask]).mean()
    assert posterior.log_likelihood(truth, 1, mask=mask) == pytest.approx(single)


@pytest.mark.parametrize("samples", [1, 5, 19, 20, 100, 1000])
def test_covariances_of_samples_are_those_of_patches_with_fewer_pixels(posterior, samples):
    """Five samples per pixel or more, and no patch that is narrower than needed; never less than a pixel."""
    sampled = dataclasses.replace(posterior, regime="compressed", deviations=SimpleNamespace(samples=samples))
    side = sampled.widest_patch
    assert side == 1 or 5 * side**2 <= samples
    assert samples < 5 * (side + 1) ** 2
    assert posterior.widest_patch is None  # which is exact


def test_samples_have_the_posterior_moments(posterior):
    samples = posterior.sample(40_000, seed=3)
    np.testing.assert_allclose(samples.mean(axis=0), posterior.mean, atol=5 * posterior.std.max() / 200)
    (whole,) = posterior.covariance()
    np.testing.assert_allclose(
        np.cov(samples.reshape(-1, 30).T), whole.covariance, atol=0.05 * whole.covariance.max()
    )
    np.testing.assert_array_equal(posterior.sample(2, seed=3), posterior.sample(2, seed=3))
    assert not np.array_equal(posterior.sample(2, seed=3), posterior.sample(2, seed=4))
    assert posterior.sampling_jitter == 0


def test_sinogram_check_is_the_predictive(posterior):
    scan = tiny.scan()
    check = posterior.sinogram
    a = ray_transform(scan.geometry).dense().numpy()
    np.testing.assert_allclose(check.mean.ravel(), a @ posterior.mean.ravel(), rtol=1e-4, atol=1e-5)
    (whole,) = posterior.covariance()
    variance = np.einsum("ij,jk,ik->i", a, whole.covariance, a) + posterior.noise_std**2
    np.testing.assert_allclose(check.std.ravel() ** 2, variance, rtol=1e-3)
    np.testing.assert_allclose(
        check.standardised, (scan.sinogram - check.mean) / posterior.noise_std, rtol=1e-3, atol=1e-4
    )


def test_units_of_length_and_attenuation_do_not_matter():
    """The same scan with attenuation in other units gives the same image, in those units."""
    fit, scan = tiny.dip_fit(), tiny.scan()
    factor = 20.0
    other = dataclasses.replace(
        scan,
        sinogram=scan.sinogram * factor,
        noise=dataclasses.replace(scan.noise, std=scan.noise.std * factor),
    )
    scaled = dataclasses.replace(fit, scale=fit.scale * factor, image=fit.image * factor)
    config = InferenceConfig(starts=1)
    first, second = fit_posterior(fit, scan, config), fit_posterior(scaled, other, config)
    np.testing.assert_allclose(second.mean, factor * first.mean, rtol=1e-4)
    np.testing.assert_allclose(second.std, factor * first.std, rtol=1e-3)


@pytest.mark.parametrize(
    "settings",
    [
        {"objective": "optimum"},
        {"objective": "fit"},
        {"objective": "optimum", "hyperprior": "tv-predcp"},
        {"prior": "g"},
        {"prior": "isotropic"},
        {"complement": "white"},
        {"complement": "floor"},
        {"complement": "none"},
        {"prior_mean": "zero"},
        {"integrate": "laplace"},
        {"noise": "fixed"},
    ],
    ids=lambda s: ",".join(f"{k}={v}" for k, v in s.items()),
)
def test_every_choice_runs_repeats_and_matters(settings, posterior):
    config = InferenceConfig(starts=1, **settings)
    first, second = (fit_posterior(tiny.dip_fit(), tiny.scan(), config) for _ in range(2))
    assert np.isfinite(first.mean).all()
    assert np.isfinite(first.std).all()
    np.testing.assert_array_equal(first.std, second.std)
    assert not np.array_equal(first.std, posterior.std)


def test_contradicting_choices_are_refused():
    for settings in ({"objective": "scale"}, {"prior": "g", "objective": "optimum"}):
        with pytest.raises(ValueError, match="tap lengths"):
            InferenceConfig(hyperprior="tv-predcp", **settings)
    assert InferenceConfig(hyperprior="tv-predcp").resolved().objective == "optimum"
    for settings in (
        {"hyperprior": "weak"},
        {"hyperprior": "weak", "prior": "g", "objective": "optimum"},
        {"predcp_strength": "paper"},
        {"hyperprior": "tv-predcp", "integrate": "laplace"},
    ):
        with pytest.raises(ValueError, match=r"no effect|not offered"):
            InferenceConfig(**settings)


def test_without_a_complement_there_is_no_density():
    found = fit_posterior(tiny.dip_fit(), tiny.scan(), InferenceConfig(complement="none", relevance=False))
    truth = tiny.scan().ground_truth
    single = stats.norm(found.mean, found.std).logpdf(truth).mean()  # a single pixel still has one
    assert found.log_likelihood(truth, 1) == pytest.approx(single)
    flat = dataclasses.replace(found, deviations=DenseDeviations(torch.zeros(30, 30).double()))
    with pytest.raises(CtDipError, match="singular"):
        flat.log_likelihood(truth)


@pytest.mark.parametrize("kind", ["fan, no stated noise", "photons, more rays than pixels"])
def test_other_scanners(kind):
    volume = Volume(shape=tiny.IMAGE)
    if kind.startswith("fan"):
        geometry = scanner(volume, views=5, source_origin=20.0, origin_detector=10.0)
        scan = simulate("ellipses", geometry, noise=NoiseLevel(relative=0.05), seed=1)
        scan = dataclasses.replace(scan, noise=None)
    else:
        geometry = scanner(volume, views=12)
        scan = simulate("ellipses", geometry, noise=NoiseLevel(photons=500), seed=1)
        assert scan.sinogram.size > 2 * scan.ground_truth.size
    found = fit_posterior(tiny.dip_fit(), scan, InferenceConfig(starts=1))
    assert np.isfinite(found.mean).all()
    assert (found.std > 0).all()
    assert found.noise_std > 0


def test_block_parameters_are_told_with_the_common_scale(posterior):
    values = posterior.hyperparameters
    assert {"log_scale", "log_noise", "log_variance.in", "log_length.in", "log_variance.out"} <= set(values)
    square = float(tiny.network().last.weight.detach().square().mean())
    assert values["log_variance.out"] == pytest.approx(np.log(square) + values["log_scale"], rel=1e-5)


def test_memory_is_asked_for_first():
    network = footprint(tiny.network(), tiny.IMAGE)
    needed = max(inference_bytes(network, tiny.scan(), InferenceConfig()).values())
    exact = InferenceConfig(regime="exact")
    with pytest.raises(MemoryBudgetError, match="exact inference needs"):
        fit_posterior(tiny.dip_fit(), tiny.scan(), exact, memory_budget=needed - 1)


def test_slope_complement_is_wide_at_edges_only():
    image = torch.zeros(8, 8)
    image[:, 4:] = 1
    variance = slope_complement(image, 0.05, 64).variance.reshape(8, 8)
    assert (variance[:, [0, 1, 6, 7]] == variance.min()).all()
    assert (variance[:, 3:5] > 100 * variance.min()).all()
    fewer = slope_complement(image, 0.05, 16).variance.reshape(8, 8)
    torch.testing.assert_close(fewer - fewer.min(), 4 * (variance - variance.min()))
    other = slope_complement(7 * image + 3, 0.05, 64).variance.reshape(8, 8)  # relative to the image's range
    torch.testing.assert_close(other, variance)
    assert (slope_complement(torch.ones(8, 8), 0.05, 64).variance > 0).all()


def test_more_measurements_than_pixels_do_not_narrow_the_complement():
    """Its unit already shrinks with every measurement of a pixel; only missing ones widen it."""
    image = torch.linspace(0, 1, 64).reshape(8, 8)
    enough, plenty = (slope_complement(image, 0.05, count).variance for count in (64, 640))
    torch.testing.assert_close(plenty, enough)


def test_plateaus_do_not_depend_on_the_number_of_measurements():
    image = torch.full((8, 8), 0.5)
    image[:, 0], image[:, 7] = 0.0, 1.0
    many, few = (slope_complement(image, 0.05, count).variance.reshape(8, 8) for count in (64, 16))
    torch.testing.assert_close(few[:, 2:6], many[:, 2:6])
    black = slope_complement(torch.zeros(8, 8), 0.05, 64).variance
    assert (many[:, 2:6] > 10 * black.max()).all()


def test_published_floor_is_the_mean_of_the_pseudo_inverse():
    problem, model = tiny.problem_and_model(InferenceConfig())
    floor = published_floor(problem.whitened)
    assert not floor.in_model
    inverse = torch.linalg.pinv(model.whitened.T @ model.whitened, rtol=1e-11)
    assert float(floor.variance[0]) == pytest.approx(float(inverse.diagonal().mean()), rel=1e-6)


def observing(problem, model, image, theta, seed=0):
    """The posterior of a model that sees an image, with noise."""
    noise = torch.randn(
        len(model.whitened), generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    residual = model.whitened @ (image - model.prior_mean) + noise
    model = model._replace(evidence=dataclasses.replace(model.evidence, residual=residual))
    return Exact(dataclasses.replace(problem, residual=residual), model, theta)


def test_a_pixel_that_the_prior_excludes_is_freed():
    """Little prior variance, and a bright pixel that the network does not show."""
    problem, model = tiny.problem_and_model(InferenceConfig(objective="optimum", complement="slope"))
    theta = model.evidence.start.clone()
    theta[: len(model.evidence.prior.blocks)] -= 12  # weights that hardly move
    assert not freed_pixel_variance(observing(problem, model, model.prior_mean, theta)).any()
    image = model.prior_mean.clone()
    image[12] += 5.0
    freed = freed_pixel_variance(observing(problem, model, image, theta))
    assert freed[12] > 0
    assert freed[12] == freed.max()


@pytest.mark.parametrize("pixels", [1, 784, 10**6])
def test_a_right_model_has_as_many_false_spots_as_stated(pixels):
    """Scores of either sign beyond the threshold, of so many standard normal ones."""
    limit = threshold(0.05, pixels)
    assert pixels * math.erfc(limit / math.sqrt(2)) == pytest.approx(0.05)


def test_a_neighbourhood_is_a_pixel_and_all_that_touch_it_inside_of_the_image():
    for row, column in np.ndindex(tiny.IMAGE):
        values = torch.zeros(30)
        neighbourhood(values, 5 * row + column, tiny.IMAGE).add_(1)
        rows, columns = np.indices(tiny.IMAGE)
        touching = np.maximum(abs(rows - row), abs(columns - column)) <= 1
        np.testing.assert_array_equal(values.reshape(tiny.IMAGE).numpy(), touching)


def test_a_jitter_of_the_search_is_told(monkeypatch):
    """Although the posterior itself needs none."""

    def searched(*args, **kwargs):
        return dataclasses.replace(evidence_stage(*args, **kwargs), jitter=1e-3)

    monkeypatch.setattr("ct_dip.posterior.infer.evidence_stage", searched)
    assert fit_posterior(tiny.dip_fit(), tiny.scan(), InferenceConfig(starts=1)).jitter == 1e-3


def test_freed_pixels_have_wider_error_bars_and_follow_the_data():
    """A bright pixel on top of the network's own image, which every ray through it sees."""
    fit, scan = tiny.dip_fit(), tiny.scan()
    truth = fit.image.astype(np.float64)
    truth[2, 4] += 2.0
    noise = 0.1 * np.random.default_rng(0).standard_normal(scan.sinogram.shape)
    sinogram = ray_transform(scan.geometry)(torch.as_tensor(truth)).numpy() + noise
    scan = dataclasses.replace(scan, sinogram=sinogram, ground_truth=None)
    free, bound = (
        fit_posterior(
            fit,
            scan,
            InferenceConfig(prior="isotropic", noise="fixed", image="linear", starts=1, relevance=relevance),
        )
        for relevance in (True, False)
    )
    assert free.freed_pixels == 6  # with its neighbours, at the image's edge
    assert bound.freed_pixels == 0
    assert (free.std[1:4, 3:5] > 1.05 * bound.std[1:4, 3:5]).all()
    assert abs(free.mean[2, 4] - truth[2, 4]) < abs(bound.mean[2, 4] - truth[2, 4])


def test_a_temper_narrows_the_error_bars_and_leaves_the_image():
    fit, scan = tiny.dip_fit(), tiny.scan()
    whole, part = (fit_posterior(fit, scan, InferenceConfig(starts=1, temper=t)) for t in (1.0, 0.2))
    np.testing.assert_array_equal(whole.mean, part.mean)
    assert (part.std < whole.std).all()
