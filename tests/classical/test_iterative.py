"""CGLS and total variation against independent solutions of the same problem."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from ct_dip.classical.cgls import cgls
from ct_dip.classical.tv import TvSolver, tv
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.errors import InputError
from ct_dip.geometry import Volume
from ct_dip.operators import ray_transform
from ct_dip.operators.differences import FiniteDifferences, total_variation
from ct_dip.operators.norm import rms_column_norm
from ct_dip.quality import psnr
from ct_dip.scanners import scanner
from tests.geometries import FAN

TINY = scanner(Volume(shape=(7, 6)), views=9)


@pytest.fixture(scope="module")
def tiny():
    transform = ray_transform(TINY)
    generator = torch.Generator().manual_seed(0)
    truth = torch.rand(7, 6, generator=generator, dtype=torch.float64)
    truth[2:5, 1:4] += 2
    noise = torch.randn(TINY.range_shape, generator=generator, dtype=torch.float64)
    variance = torch.linspace(0.02, 0.2, noise.numel(), dtype=torch.float64).reshape(noise.shape)
    return transform, transform(truth) + noise * variance.sqrt(), variance


def test_cgls_solves_weighted_least_squares(tiny):
    transform, sinogram, variance = tiny
    found = cgls(transform, sinogram, weights=1 / variance, tolerance=1e-12, max_iterations=500)
    root = variance.rsqrt().reshape(-1, 1)
    exact = torch.linalg.lstsq(transform.dense() * root, sinogram.reshape(-1, 1) * root).solution
    torch.testing.assert_close(found.image.reshape(-1, 1), exact, rtol=1e-6, atol=1e-6)
    assert found.reason == "gradient below tolerance"
    assert all(b <= a * (1 + 1e-12) for a, b in zip(found.residuals, found.residuals[1:], strict=False))
    residual = torch.linalg.vector_norm((transform(found.image) - sinogram) * variance.rsqrt())
    assert found.residuals[-1] == pytest.approx(float(residual), rel=1e-9)


@pytest.mark.parametrize("unit", [1e-12, 1e12])
def test_cgls_takes_weights_of_any_size(tiny, unit):
    transform, sinogram, variance = (tiny[0], *(part.float() for part in tiny[1:]))
    plain = cgls(transform, sinogram, weights=1 / variance, max_iterations=12)
    scaled = cgls(transform, sinogram, weights=unit / variance, max_iterations=12)
    torch.testing.assert_close(scaled.image, plain.image, rtol=1e-3, atol=1e-4)
    assert scaled.residuals[-1] == pytest.approx(plain.residuals[-1] * unit**0.5, rel=1e-3)


def test_cgls_stops_at_the_noise():
    scan = simulate("ellipses", scanner(Volume(shape=(64, 64)), views=90), noise=NoiseLevel(relative=0.1))
    transform, sinogram = ray_transform(scan.geometry), torch.as_tensor(scan.sinogram.copy())
    weights = torch.full_like(sinogram, scan.noise.std**-2)
    target = float(np.sqrt(sinogram.numel()))
    steps = []
    found = cgls(
        transform,
        sinogram,
        weights=weights,
        discrepancy=target,
        report=lambda step, residual: steps.append(residual),
    )
    assert found.reason == "residual at noise level"
    assert found.residuals[-1] <= target < found.residuals[-2]
    assert steps == found.residuals[1:]
    beyond = cgls(transform, sinogram, weights=weights, max_iterations=100)
    assert psnr(found.image.numpy(), scan.ground_truth) > psnr(beyond.image.numpy(), scan.ground_truth)


def objective(transform, sinogram, variance, penalty, isotropic):
    def value(image):
        misfit = 0.5 * torch.sum((transform(image) - sinogram) ** 2 / variance)
        return misfit + penalty * total_variation(image, isotropic=isotropic)

    return value


@pytest.mark.parametrize("isotropic", [True, False])
def test_tv_reaches_the_minimum_that_a_general_solver_finds(tiny, isotropic):
    """L-BFGS-B on a smoothed TV approaches the minimum from above; PDHG's bound holds from below."""
    transform, sinogram, variance = tiny
    strength = 0.7
    found = tv(
        transform,
        sinogram,
        variance=variance,
        strength=strength,
        isotropic=isotropic,
        tolerance=1e-7,
        max_iterations=20000,
    )
    assert found.converged
    assert found.image.min() >= 0
    penalty = strength * rms_column_norm(transform, variance.rsqrt())
    value = objective(transform, sinogram, variance, penalty, isotropic)
    assert found.objective == pytest.approx(float(value(found.image)), rel=1e-9)

    differences = FiniteDifferences((7, 6))

    def smoothed(flat, width):
        image = torch.tensor(flat.reshape(7, 6), requires_grad=True)
        field = differences(image)
        squares = field.pow(2).sum(0) if isotropic else field.pow(2)
        smooth = torch.sqrt(squares + width**2).sum() - width * squares.numel()
        total = 0.5 * torch.sum((transform(image) - sinogram) ** 2 / variance) + penalty * smooth
        total.backward()
        return total.item(), image.grad.numpy().ravel()

    start = np.ones(42)
    for width in (1e-1, 1e-2, 1e-3, 1e-4):
        options = {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-10}
        solution = minimize(
            smoothed,
            start,
            args=(width,),
            jac=True,
            method="L-BFGS-B",
            bounds=[(0, None)] * 42,
            options=options,
        )
        start = solution.x
    reference = float(value(torch.tensor(start.reshape(7, 6))))
    assert found.objective <= reference * (1 + 1e-6)
    assert found.objective * (1 - found.gap) <= reference
    assert found.objective == pytest.approx(reference, rel=1e-3)


@pytest.mark.parametrize("strength", [0.2, 0.8, 3.2])
def test_many_views_do_not_slow_the_iteration_down(strength):
    """With one pace for both duals it takes 960, 1,520 and 3,280 iterations."""
    scan = simulate(
        "ellipses", scanner(Volume(shape=(32, 32)), views=120), noise=NoiseLevel(relative=0.02), seed=1
    )
    sinogram = torch.as_tensor(scan.sinogram.copy())
    found = tv(ray_transform(scan.geometry), sinogram, variance=scan.noise.std**2, strength=strength)
    assert found.converged
    assert found.iterations <= 400


def test_the_certificate_is_never_below_the_true_gap(tiny):
    transform, sinogram, variance = tiny
    options = {"variance": variance, "strength": 1.0, "tolerance": 1e-9}
    found = tv(transform, sinogram, max_iterations=20000, **options)
    best, solution = found.objective, found.image
    assert found.box == pytest.approx(2 * float(solution.max()))
    for iterations in (20, 40, 80, 160, 320):
        early = tv(transform, sinogram, max_iterations=iterations, **options)
        assert early.objective * (1 - early.gap) <= best * (1 + 1e-9)
        assert not early.converged
        assert early.box >= float(solution.max())


@pytest.mark.parametrize("factor", [1e-3, 50.0])
def test_strength_does_not_depend_on_units(factor):
    """Attenuation in other units, or lengths in other units: the same image in those units."""
    scan = simulate("rectangles", scanner(Volume(shape=(24, 24)), views=12), noise=NoiseLevel(relative=0.05))
    sinogram = torch.as_tensor(scan.sinogram.copy()).double()
    variance = scan.noise.std**2
    transform = ray_transform(scan.geometry)
    plain = tv(transform, sinogram, variance=variance, tolerance=1e-5).image
    louder = tv(transform, factor * sinogram, variance=factor**2 * variance, tolerance=1e-5).image
    torch.testing.assert_close(louder / factor, plain, rtol=1e-3, atol=1e-5 * float(plain.max()))
    larger = scanner(Volume(shape=(24, 24), pixel_size=factor), views=12)
    longer = tv(ray_transform(larger), sinogram, variance=variance, tolerance=1e-5).image
    torch.testing.assert_close(longer * factor, plain, rtol=1e-3, atol=1e-3 * float(plain.max()))


@pytest.mark.parametrize(("seed", "views", "noise"), [(11, 20, 0.05), (12, 60, 0.02), (13, 40, 0.1)])
def test_the_default_strength_is_near_the_best(seed, views, noise):
    """Within 1 dB of the best of a sweep, over noise and views; chosen on other objects."""
    geometry = scanner(Volume(shape=(48, 48)), views=views)
    scan = simulate("ellipses", geometry, noise=NoiseLevel(relative=noise), seed=seed)
    transform, sinogram = ray_transform(scan.geometry), torch.as_tensor(scan.sinogram.copy())

    def quality(**options):
        found = tv(transform, sinogram, variance=scan.noise.std**2, max_iterations=400, **options)
        return psnr(found.image.numpy(), scan.ground_truth)

    best = max(quality(strength=strength) for strength in (0.1, 0.3, 1.0, 3.0))
    assert quality() > best - 1.0


def test_problems_solved_together_and_one_after_another_are_solved_alike(tiny):
    """Two sinograms, one without its last views, from strong to weak TV, against each alone from zero."""
    transform, sinogram, variance = tiny
    hidden = variance.clone()
    hidden[6:] = torch.inf
    solver = TvSolver(transform, sinogram.expand(2, -1, -1), torch.stack([variance, hidden]))
    options = {"tolerance": 1e-7, "max_iterations": 20000}
    for strength in (2.0, 0.7):
        solver.solve(strength, **options)
        for i, own in enumerate((variance, hidden)):
            alone = tv(transform, sinogram, variance=own, strength=strength, **options)
            assert float(solver.objective[i]) == pytest.approx(alone.objective, rel=1e-6)
            torch.testing.assert_close(solver.images[i], alone.image, rtol=0, atol=2e-3)


@pytest.mark.parametrize("options", [{"strength": 0.0}, {"tolerance": -1.0}, {"max_iterations": 0}])
def test_tv_refuses_nonsense(options):
    transform = ray_transform(FAN)
    with pytest.raises(InputError):
        tv(transform, torch.ones(FAN.range_shape), variance=1.0, **options)
