"""Networks, priors and complements of the user's own, in every regime."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy import stats

import ct_dip
from ct_dip.data.result_file import read_result, write_result
from ct_dip.errors import InputError
from ct_dip.methods import find_method, load_config
from ct_dip.pipeline import plan_run
from ct_dip.posterior.config import InferenceConfig
from ct_dip.posterior.fit import fit_posterior
from ct_dip.priors.complement import Complement, slope_complement, white_complement
from ct_dip.priors.covariance import WeightCovariance, independent_covariance
from ct_dip.priors.weights import BlockPrior, OneVariancePrior, WeightPrior
from ct_dip.progress import Progress
from tests import tiny
from tests.own_network import Wrapped, sequential
from tests.pretend_device import pretend_device

REGIMES = ["exact", "compressed", "iterative"]
STEPS = {"warmup_steps": 5, "cooldown_steps": 10, "max_steps": 30}


def configured(regime="exact", **settings):
    return InferenceConfig(**{"regime": regime, "starts": 1, "samples": 20, "tolerance": 1e-6} | settings)


def own_fit(shape=tiny.PLAIN):
    fit = tiny.dip_fit(shape)
    network = Wrapped(fit.network())
    return dataclasses.replace(fit, template=network, weights=network.state_dict())


def agree(found, expected, rtol=2e-3):
    """Search and solves end where float32, or a tolerance, lets them."""
    for name in ("mean", "linear", "std"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=rtol, atol=1e-5)
    assert found.evidence.evidence == pytest.approx(expected.evidence.evidence, rel=rtol, abs=rtol)


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("shape", [tiny.PLAIN, tiny.NORMALISED], ids=["plain", "normalised"])
def test_a_copy_of_the_unet_gives_its_posterior(regime, shape):
    config = configured(regime)
    agree(
        fit_posterior(own_fit(shape), tiny.scan(), config),
        fit_posterior(tiny.dip_fit(shape), tiny.scan(), config),
    )


def isotropic(jacobian):
    base = independent_covariance(jacobian.blocks, jacobian.slices)
    return OneVariancePrior("log_own", base, float(jacobian.weights.square().sum()), len(jacobian.weights))


class NoTerms(WeightPrior):
    """`isotropic` by what is abstract alone."""

    def __init__(self, jacobian):
        self.inner = isotropic(jacobian)
        self.names, self.start = ("log_own",), self.inner.start
        self.lower, self.upper = self.inner.lower, self.inner.upper

    def coefficients(self, theta):
        return self.inner.coefficients(theta)

    def covariance(self, theta):
        return self.inner.covariance(theta)

    def weight_norm(self, theta):
        return self.inner.weight_norm(theta)


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("prior", [isotropic, NoTerms])
def test_an_own_prior_is_the_configured_one_where_they_are_equal(regime, prior):
    found = fit_posterior(tiny.dip_fit(), tiny.scan(), configured(regime), prior=prior)
    assert "log_own" in found.hyperparameters
    agree(found, fit_posterior(tiny.dip_fit(), tiny.scan(), configured(regime, prior="isotropic")))


def test_an_own_block_prior_is_the_configured_one():
    config = configured(objective="optimum")

    def prior(jacobian):
        return BlockPrior(jacobian.blocks, jacobian.weights, jacobian.slices)

    found = fit_posterior(tiny.dip_fit(), tiny.scan(), config, prior=prior)
    expected = fit_posterior(tiny.dip_fit(), tiny.scan(), config)
    agree(found, expected, rtol=1e-9)


class BlockVariances(WeightPrior):
    """``Σ = ⊕_b σ_b² I``: a variance for every block, and independent taps; log-normal around a start."""

    def __init__(self, jacobian):
        self.slices = list(jacobian.slices.values())
        self.names = tuple(f"log_variance.{block.name}" for block in jacobian.blocks)
        self.squares = torch.stack([jacobian.weights[s].double().square().sum() for s in self.slices])
        counts = torch.tensor([s.stop - s.start for s in self.slices])
        self.start = (self.squares / counts).log()
        self.lower, self.upper = self.start - 8, self.start + 8

    def coefficients(self, theta):
        return theta.exp()

    def covariance(self, theta):
        return self._covariance((theta / 2).exp().tolist())

    def terms(self):
        return [self._covariance([float(s is where) for s in self.slices]) for where in self.slices]

    def _covariance(self, deviations):
        return WeightCovariance(
            [
                (where, torch.full((1, 1), value).double())
                for where, value in zip(self.slices, deviations, strict=True)
            ]
        )

    def weight_norm(self, theta):
        return (self.squares / theta.exp()).sum()

    def log_hyperprior(self, theta):
        return -0.5 * (theta - self.start).square().sum()


@pytest.mark.parametrize("network", [tiny.dip_fit, own_fit])
@pytest.mark.parametrize("regime", REGIMES)
def test_a_prior_of_several_terms_has_the_evidence_of_its_covariance(regime, network):
    found = fit_posterior(network(), tiny.scan(), configured(regime, probes=200), prior=BlockVariances)
    problem, theta = found.problem, found.evidence.theta
    noise = float(theta[-1].exp())
    covariance = problem.prior.covariance(theta[:-1])
    signal = problem.signal(covariance, noise * problem.complement.variance).dense()
    dense = signal.numpy() + noise * np.eye(problem.measurements)
    value = stats.multivariate_normal(cov=(dense + dense.T) / 2).logpdf(problem.residual) - problem.log_noise
    error = 0.0 if found.certificate is None else found.certificate.evidence_error
    assert found.evidence.evidence == pytest.approx(value, rel=1e-4, abs=4 * error)
    exact = fit_posterior(network(), tiny.scan(), configured("exact"), prior=BlockVariances)
    tolerance = 0.02 if regime == "exact" else 0.3  # of log-parameters: the probes' gradient has an error
    np.testing.assert_allclose(theta, exact.evidence.theta, atol=tolerance)
    np.testing.assert_allclose(found.linear, exact.linear, atol=0.1 * exact.std.max())


@pytest.mark.parametrize("regime", REGIMES)
def test_an_own_complement_is_the_configured_one_where_they_are_equal(regime):
    def slope(jacobian, whitened):
        seen = whitened.dense(device=jacobian.image.device).square().sum() / jacobian.image.numel()
        return slope_complement(jacobian.image, float(seen) ** -0.5, whitened.inverse.numel())

    found = fit_posterior(tiny.dip_fit(), tiny.scan(), configured(regime), complement=slope)
    agree(found, fit_posterior(tiny.dip_fit(), tiny.scan(), configured(regime)))
    if regime != "iterative":
        found = fit_posterior(
            tiny.dip_fit(), tiny.scan(), configured(regime), complement=white_complement(30)
        )
        agree(found, fit_posterior(tiny.dip_fit(), tiny.scan(), configured(regime, complement="white")))


def test_a_fitted_complement_in_units_of_the_noise_is_compressed_as_it_is_exact():
    own = Complement(torch.full((30,), 1e-3), deviation=1.0)
    exact, compressed = (
        fit_posterior(tiny.dip_fit(), tiny.scan(), configured(regime), complement=own)
        for regime in ("exact", "compressed")
    )
    # The search along the complement ends a tenth before its end.
    assert compressed.hyperparameters["log_complement"] == pytest.approx(
        exact.hyperparameters["log_complement"], abs=0.1
    )
    agree(compressed, exact, rtol=0.02)


def two_terms(jacobian):
    prior = BlockVariances(jacobian)
    prior.terms = lambda: BlockVariances.terms(prior)[:2]
    return prior


def wrong_scale(jacobian):
    prior = isotropic(jacobian)
    prior.coefficients = lambda theta: 2 * theta.exp()
    return prior


def too_few(jacobian):
    return OneVariancePrior("log", WeightCovariance([(slice(0, 9), torch.eye(9))]), 1.0, 9)


def no_bounds(jacobian):
    prior = isotropic(jacobian)
    prior.lower = prior.lower[:0]
    return prior


@pytest.mark.parametrize(
    ("objects", "settings", "problem"),
    [
        ({"prior": lambda jacobian: "g"}, {}, "must be a WeightPrior"),
        ({"prior": too_few}, {}, "is one of 9 weights"),
        ({"prior": no_bounds}, {}, "one start, lower and upper"),
        ({"prior": two_terms}, {}, "5 coefficients and 2 terms"),
        ({"prior": wrong_scale}, {}, "is not the sum of its terms"),
        ({"prior": isotropic}, {"objective": "optimum", "hyperprior": "tv-predcp"}, "tap lengths"),
        (
            {"prior": lambda j: BlockPrior(j.blocks[:0:-1] + j.blocks[:1], j.weights, j.slices)},
            {},
            "blocks of the network",
        ),
        ({"complement": lambda jacobian, whitened: None}, {}, "must be a Complement"),
        ({"complement": Complement(torch.ones(29))}, {}, "30 finite numbers"),
        ({"complement": Complement(-torch.ones(30))}, {}, "none below zero"),
        ({"complement": Complement(torch.arange(30.0), in_model=False)}, {}, "the same in every pixel"),
        (
            {"complement": Complement(torch.ones(30), in_units_of_noise=False)},
            {"regime": "compressed"},
            "in units of the noise",
        ),
    ],
)
def test_objects_that_do_not_fit_are_refused(objects, settings, problem):
    with pytest.raises(InputError, match=problem):
        fit_posterior(tiny.dip_fit(), tiny.scan(), configured(**settings), **objects)


def test_stages_of_an_own_network_are_its_own(tmp_path):
    """The features of one fit are not taken for another one's."""
    config = configured()
    first = fit_posterior(own_fit(), tiny.scan(), config, run_folder=tmp_path)
    again = fit_posterior(own_fit(), tiny.scan(), config, run_folder=tmp_path)
    assert np.array_equal(first.std, again.std)
    halved = dataclasses.replace(own_fit(), image=own_fit().image / 2)  # of another forward()
    fit_posterior(halved, tiny.scan(), config, run_folder=tmp_path)
    kept = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    fit_posterior(own_fit(), tiny.scan(), config, run_folder=tmp_path, prior=isotropic)
    assert kept == {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}  # nothing of priors


def test_filters_of_any_width_have_their_tap_lengths():
    """The evidence is that of the dense covariance, for filters of 5×5 and 2×2 taps."""
    torch.manual_seed(0)
    wide, narrow = torch.nn.Conv2d(1, 2, 5, padding=2), torch.nn.Conv2d(2, 1, 2)
    network = torch.nn.Sequential(wide, torch.nn.Tanh(), torch.nn.ZeroPad2d((0, 1, 0, 1)), narrow)
    fit = dataclasses.replace(tiny.dip_fit(), template=network, weights=dict(network.state_dict()))
    found = fit_posterior(fit, tiny.scan(), configured(objective="optimum"))
    problem, theta = found.problem, found.evidence.theta
    noise = float(theta[-1].exp())
    pixels = noise * problem.complement.variance
    dense = problem.signal(problem.prior.covariance(theta[:-1]), pixels).dense().numpy()
    dense = (dense + dense.T) / 2 + noise * np.eye(problem.measurements)
    value = stats.multivariate_normal(cov=dense).logpdf(problem.residual) - problem.log_noise
    assert found.evidence.evidence == pytest.approx(value, rel=1e-4)


@pytest.mark.parametrize("regime", REGIMES)
def test_reconstruct_takes_all_of_them(regime, tmp_path):
    objects = {"network": sequential(), "prior": isotropic, "complement": white_complement(30)}
    settings = configured(regime).model_dump(include={"regime", "starts", "samples"})
    result = ct_dip.reconstruct(tiny.scan(), method="lin-dip", **objects, **settings, **STEPS)
    assert result.settings["given"] == {
        "network": "Sequential",
        "prior": "isotropic",
        "complement": "Complement",
    }
    assert result.settings["dip"]["channels"] is None
    assert result.settings["dip"]["max_steps"] == 30
    told = result.settings["inference"]
    assert (told["prior"], told["complement"], told["objective"]) == (None, None, "optimum")
    assert type(result.network) is torch.nn.Sequential
    assert result.std.min() > 0
    write_result(result.plain(), tmp_path / "result.h5")
    assert read_result(tmp_path / "result.h5").settings == result.settings
    repeated = ct_dip.fit_posterior(
        ct_dip.fit_dip(tiny.scan(), ct_dip.DipConfig(**STEPS), network=objects["network"]),
        tiny.scan(),
        InferenceConfig(**settings),
        prior=objects["prior"],
        complement=objects["complement"],
    )
    np.testing.assert_allclose(result.std, repeated.std, rtol=1e-5)


def test_dip_takes_a_network_and_says_so():
    result = ct_dip.reconstruct(tiny.scan(), method="dip", network=sequential(), **STEPS)
    assert result.settings["given"] == {"network": "Sequential"}
    assert "network" in find_method("dip").accepts
    config = load_config(method="lin-dip")
    plan = plan_run(tiny.scan(), config, budget=2**40, measure=True, given={"network": sequential()})
    assert plan.facts["network"] == "Sequential (own), 67 weights"
    assert plan.seconds > 0


def test_text_is_still_a_setting():
    config = load_config(method="lin-dip", prior="g", complement="white")
    assert (config.inference.prior, config.inference.complement) == ("g", "white")
    result = ct_dip.reconstruct(
        tiny.scan(), method="lin-dip", prior="isotropic", complement="none", fit=tiny.dip_fit(), samples=0
    )
    assert result.settings["inference"]["prior"] == "isotropic"
    assert "dip" not in result.settings


@pytest.mark.parametrize(
    ("objects", "problem"),
    [
        ({"network": torch.nn.Linear(5, 5)}, "square kernels"),
        ({"network": torch.nn.Conv2d(1, 1, 3)}, "must keep the shape"),
        ({"network": sequential(), "fit": tiny.dip_fit()}, "network has no effect together with a fit"),
        ({"prior": isotropic, "posterior": object()}, "prior has no effect together with a posterior"),
        ({"prior": 3}, "prior must be a WeightPrior or a function"),
        ({"complement": 3}, "complement must be a Complement or a function"),
        ({"network": sequential(), "channels": (4, 4)}, "dip.channels"),
    ],
)
def test_reconstruct_refuses_before_any_stage(objects, problem):
    class NoStage(Progress):
        def stage(self, *arguments, **options):
            raise AssertionError("a stage was begun")

    with pytest.raises(InputError, match=problem):
        ct_dip.reconstruct(tiny.scan(), method="lin-dip", progress=NoStage(), **objects)


@pytest.mark.parametrize("regime", REGIMES)
def test_an_own_network_runs_where_the_data_are(regime):
    settings = {"method": "lin-dip", "regime": regime, "starts": 1, "samples": 20, **STEPS}
    expected = ct_dip.reconstruct(
        tiny.scan(), network=sequential(), prior=isotropic, device="cpu", **settings
    )
    with pretend_device():
        found = ct_dip.reconstruct(
            tiny.scan(), network=sequential(), prior=isotropic, device="pretend", **settings
        )
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.std, expected.std, rtol=1e-4, atol=1e-7)


def test_held_out_views_are_predicted_with_the_same_objects():
    seen = []

    def prior(jacobian):
        seen.append([block.name for block in jacobian.blocks])
        return isotropic(jacobian)

    settings = {"method": "lin-dip", "starts": 1, "samples": 20, "check": "views", **STEPS}
    result = ct_dip.reconstruct(tiny.scan(views=10), network=sequential(), prior=prior, **settings)
    assert seen == [["0", "2"]] * 2
    assert result.heldout is not None
