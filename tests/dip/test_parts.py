"""Optimiser, schedule, stopping rules and objective, each by itself."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ct_dip.data.noise import ZERO_COUNT, PhotonNoise, WhiteNoise
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.dip.adam import Adam
from ct_dip.dip.objective import make_targets, misfit, objective, ramp_gains, ramp_misfit
from ct_dip.dip.schedule import Schedule
from ct_dip.dip.stopping import Budget, Discrepancy, RunningVariance
from ct_dip.errors import ScanError
from ct_dip.geometry import Volume
from ct_dip.operators import ray_transform
from ct_dip.scanners import scanner


def test_adam_is_torchs_adam_with_a_rate_per_row():
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(3, 50, generator=generator)
    rates = torch.tensor([1e-3, 1e-2, 0.0])
    ours = Adam(start.clone())
    theirs = [torch.nn.Parameter(row.clone()) for row in start]
    groups = [{"params": p, "lr": float(r)} for p, r in zip(theirs, rates, strict=True)]
    optimiser = torch.optim.Adam(groups, betas=(ours.beta1, ours.beta2))
    for _ in range(30):
        gradient = torch.randn(3, 50, generator=generator)
        for parameter, row in zip(theirs, gradient, strict=True):
            parameter.grad = row.clone()
        optimiser.step()
        ours.step(gradient, rates)
    torch.testing.assert_close(ours.weights, torch.stack([p.detach() for p in theirs]), rtol=1e-5, atol=1e-6)
    assert torch.equal(ours.weights[2], start[2])


def test_gradients_that_grow_a_hundredfold_make_no_wild_steps():
    """As when the filter comes off the residuals of a scan with little noise."""
    ours, rates = Adam(torch.zeros(1, 1)), torch.ones(1)
    for _ in range(500):
        ours.step(torch.ones(1, 1), rates)
    longest = 0.0
    for _ in range(50):
        before = float(ours.weights)
        ours.step(torch.full((1, 1), 100.0), rates)
        longest = max(longest, before - float(ours.weights))
    assert 1 < longest < 3


def test_the_schedule_warms_up_stays_and_cools_down():
    schedule = Schedule(peak=0.1, warmup=10, cooldown=20, budget=100)
    waiting = torch.tensor([-1, 40])
    rates = torch.stack([schedule.rates(step, waiting) for step in range(70)])
    assert rates[0, 0] < 0.01
    assert (rates[:9].diff(dim=0) > 0).all()
    torch.testing.assert_close(rates[9:, 0], torch.full((61,), 0.1))
    torch.testing.assert_close(rates[9:41, 1], torch.full((32,), 0.1))
    assert rates[50, 1] == pytest.approx(0.05)
    assert rates[60, 1] == 0
    assert schedule.done(59, waiting).tolist() == [False, False]
    assert schedule.done(60, waiting).tolist() == [False, True]
    assert schedule.latest_cooldown == 80


def test_discrepancy_waits_until_half_of_its_window_is_below():
    rule = Discrepancy(2, target=1.0, window=5)
    fired = []
    for step, value in enumerate([5.0, 0.5, 3.0, 0.9, 2.0, 0.8, 0.9, 0.7]):
        fired.append(rule.update(step, torch.tensor([value, 2.0]), torch.zeros(2, 1, 1)).tolist())
    assert [first for first, _ in fired] == [False] * 5 + [True] * 3
    assert not any(second for _, second in fired)


def test_running_variance_fires_when_the_iterates_become_restless():
    rule = RunningVariance(1, (4, 4), window=20, patience=30)
    generator = torch.Generator().manual_seed(0)
    pattern = torch.randn(1, 4, 4, generator=generator)
    fired_at = None
    for step in range(400):
        level = 0.05 + abs(step - 150) / 150  # calmest at step 150
        jump = level * torch.randn(1, 4, 4, generator=generator)
        if bool(rule.update(step, torch.ones(1), pattern + jump)):
            fired_at = step
            break
    assert fired_at is not None
    assert 160 < fired_at < 230


def test_rules_remember_through_their_state():
    first, second = (RunningVariance(1, (2, 2), window=5, patience=3) for _ in range(2))
    images = torch.randn(20, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    for step in range(9):
        first.update(step, torch.ones(1), images[step])
    second.state = {name: tensor.clone() for name, tensor in first.state.items()}
    for step in range(9, 20):
        decisions = [rule.update(step, torch.ones(1), images[step]).tolist() for rule in (first, second)]
        assert decisions[0] == decisions[1]
    assert not Budget().update(0, torch.zeros(3), torch.zeros(3, 1, 1)).any()


GEOMETRY = scanner(Volume(shape=(24, 24)), views=30)


@pytest.mark.parametrize(
    ("level", "kind"),
    [
        (NoiseLevel(relative=0.05), "gaussian"),
        (NoiseLevel(photons=3000), "gaussian"),
        (NoiseLevel(photons=3000), "poisson"),
        (NoiseLevel(photons=40), "poisson"),
    ],
)
def test_the_misfit_of_the_truth_is_one(level, kind):
    """Mean of 1050 values with variance 2: the standard error is 0.044."""
    scan = simulate("ellipses", GEOMETRY, noise=level, same_grid=True, seed=3)
    transform = ray_transform(GEOMETRY)
    targets = make_targets(
        [scan],
        [scan.variance],
        [0.02],
        transform,
        strengths=[0.1],
        data_term=kind,
        device=torch.device("cpu"),
    )
    projected = transform(torch.as_tensor(scan.ground_truth.copy()))
    value = misfit(projected, targets.sinogram[0], targets.precision[0], targets.photons[0], kind)
    assert float(value) == pytest.approx(1, abs=0.15)


def test_the_poisson_misfit_is_twice_the_negative_log_likelihood():
    """Up to a constant: its gradient in the line integrals is 2 (N − n) per measurement."""
    noise = PhotonNoise(photons=50.0)
    counts = torch.tensor([[0.0, 3.0, 60.0]])
    sinogram = torch.as_tensor(-np.log(np.maximum(counts.numpy(), 0.1) / 50.0))
    projected = torch.tensor([[4.0, 2.0, 0.1]], requires_grad=True)
    misfit(projected, sinogram, counts, torch.tensor(noise.photons), "poisson").backward()
    expected = 2 * (counts - 50 * torch.exp(-projected.detach())) / 3
    torch.testing.assert_close(projected.grad, expected)


def photon_problem(photons, *, rays=4000, seed=0):
    """Counts of rays through three pixels: matrix (rays, 3), true attenuation, line integrals, counts."""
    rng = np.random.default_rng(seed)
    matrix, truth = rng.uniform(0, 1, (rays, 3)), np.array([0.5, 1.0, 1.5])
    counts = rng.poisson(photons * np.exp(-matrix @ truth)).astype(float)
    sinogram = -np.log(np.maximum(counts, ZERO_COUNT) / photons)
    return (torch.as_tensor(values) for values in (matrix, truth, sinogram, counts))


def test_the_gradient_of_the_poisson_misfit_is_that_of_finite_differences():
    matrix, truth, sinogram, counts = photon_problem(5.0, rays=40)
    assert (counts == 0).any()

    def value(image):
        return misfit(matrix @ image, sinogram, counts, torch.tensor(5.0), "poisson")

    assert torch.autograd.gradcheck(value, (0.8 * truth).requires_grad_())


@pytest.mark.parametrize("photons", [1e6, 1e9])
def test_of_many_photons_both_misfits_and_their_gradients_are_the_same(photons):
    """They differ by the cube of residuals, 1/√N times; float32 keeps it so, as in a fit."""
    matrix, truth, sinogram, counts = photon_problem(photons)
    values, gradients = [], []
    for kind in ("gaussian", "poisson"):
        projected = (matrix @ truth + 3 / photons**0.5).float().requires_grad_()
        targets = (sinogram.float(), counts.float(), torch.tensor(photons))
        values.append(misfit(projected, *targets, kind))
        values[-1].backward()
        gradients.append(matrix.T @ projected.grad.double())
    torch.testing.assert_close(*values, rtol=1e-2, atol=0.0)
    torch.testing.assert_close(*gradients, rtol=1e-2, atol=0.0)


def test_of_few_photons_the_poisson_misfit_has_the_better_minimiser():
    """20 photons in air, 4000 rays. Least squares trusts counts that are too large by chance."""
    matrix, truth, sinogram, counts = photon_problem(20.0)
    errors = {}
    for kind in ("gaussian", "poisson"):
        image = torch.zeros(3, dtype=torch.float64, requires_grad=True)
        search = torch.optim.LBFGS([image], max_iter=100, line_search_fn="strong_wolfe")

        def closure(image=image, search=search, kind=kind):
            search.zero_grad()
            value = misfit(matrix @ image, sinogram, counts, torch.tensor(20.0), kind)
            value.backward()
            return value

        search.step(closure)
        errors[kind] = float((matrix @ (image.detach() - truth)).mean())
    standard_error = 1 / float((20 * torch.exp(-matrix @ truth)).sum().sqrt())  # of the mean line integral
    assert abs(errors["poisson"]) < 4 * standard_error
    assert abs(errors["gaussian"]) > 10 * standard_error


def test_the_poisson_misfit_needs_counts():
    scan = simulate("ellipses", GEOMETRY, noise=NoiseLevel(relative=0.05))
    with pytest.raises(ScanError, match=r"white.*dip\.data_term=gaussian"):
        make_targets(
            [scan],
            [scan.variance],
            [1.0],
            ray_transform(GEOMETRY),
            strengths=[0.1],
            data_term="poisson",
            device=torch.device("cpu"),
        )


@pytest.mark.parametrize("factor", [1e-3, 40.0])
def test_strength_does_not_depend_on_units(factor):
    """Attenuation in other units, or lengths in other units: the same loss for the same O(1) image."""
    scan = simulate("ellipses", GEOMETRY, noise=NoiseLevel(relative=0.05), attenuation=0.02)
    image = torch.rand(24, 24, generator=torch.Generator().manual_seed(0))

    def loss(scan, scale):
        transform = ray_transform(scan.geometry)
        targets = make_targets(
            [scan],
            [scan.variance],
            [scale],
            transform,
            strengths=[0.3],
            data_term="gaussian",
            device=torch.device("cpu"),
        )
        target = (t[0] for t in vars(targets).values())
        return float(objective(transform, "gaussian")(image, torch.tensor(0.5), *target)[0])

    plain = loss(scan, 0.02)
    louder = replace(scan, sinogram=scan.sinogram * factor, noise=WhiteNoise(std=scan.noise.std * factor))
    assert loss(louder, 0.02 * factor) == pytest.approx(plain, rel=1e-3)
    larger = scanner(Volume(shape=(24, 24), pixel_size=factor), views=30)
    assert loss(replace(scan, geometry=larger), 0.02 / factor) == pytest.approx(plain, rel=1e-3)


def test_ramp_misfit_of_white_noise_is_one():
    """Its gains have mean 1, so at the truth both data terms expect the same; low frequencies count less."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(4000, 50, generator=generator)
    gains = ramp_gains(50)
    each = torch.stack([ramp_misfit(row[None], gains) for row in noise])
    assert abs(float(each.mean()) - 1) < 4 * float(each.std()) / len(noise) ** 0.5
    flat = torch.full_like(gains, 2.0)
    flat[[0, -1]] = 1.0
    assert float(ramp_misfit(noise, flat)) == pytest.approx(float(noise.square().mean()), rel=1e-4)
    smooth = torch.ones(1, 50)
    sharp = smooth * (-1.0) ** torch.arange(50)
    assert 0.15 < ramp_misfit(smooth, gains) < ramp_misfit(sharp, gains) / 5
