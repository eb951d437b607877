"""An offset that is known with an error only: the algebra, and error bars that hold."""

from dataclasses import replace

import pytest
import torch

from ct_dip.geometry import Volume
from ct_dip.operators import ray_transform
from ct_dip.operators.nuisance import NuisanceWhitened, offset_derivative
from ct_dip.operators.whitened import Whitened
from ct_dip.scanners import scanner
from tests.identities import assert_every_identity

SIDE = 16
GEOMETRY = scanner(Volume(shape=(SIDE, SIDE)), views=16)
SIGMA, ERROR = 0.1, 0.1  # of a measurement; of the offset, mm


def smooth_covariance(length=2.5):
    """Of images that are smooth and end softly: the transform of pixels is one of lines for them."""
    x = torch.arange(SIDE, dtype=torch.float64)
    points = torch.cartesian_prod(x, x)
    window = torch.exp(-0.5 * ((points - (SIDE - 1) / 2).norm(dim=1) / 4) ** 2)
    covariance = torch.exp(-0.5 * (torch.cdist(points, points) / length) ** 2)
    return covariance * window[:, None] * window + 1e-9 * torch.eye(SIDE**2, dtype=torch.float64)


def whitened(nuisance=None):
    inverse = torch.full(GEOMETRY.range_shape, 1 / SIGMA, dtype=torch.float64)
    transform = ray_transform(GEOMETRY)
    return (
        Whitened(transform, inverse) if nuisance is None else NuisanceWhitened(transform, inverse, nuisance)
    )


def test_whitening_undoes_the_covariance():
    u = (
        0.3
        * torch.randn(
            GEOMETRY.views * GEOMETRY.detectors, generator=torch.Generator().manual_seed(0)
        ).double()
    )
    operator = whitened(u)
    assert_every_identity(operator)
    count = len(u)
    covariance = torch.eye(count, dtype=torch.float64) + torch.outer(u, u)
    root = operator.whiten(torch.eye(count, dtype=torch.float64))
    torch.testing.assert_close(root @ covariance @ root.T, torch.eye(count, dtype=torch.float64))
    assert operator.log_det == pytest.approx(float(torch.linalg.slogdet(root).logabsdet))
    torch.testing.assert_close(operator.dense(), root @ whitened().dense())
    torch.testing.assert_close(operator.unwhiten(root), torch.eye(count, dtype=torch.float64))
    torch.testing.assert_close(operator.noise_variance, covariance.diagonal())


def blob(side, pixel_size):
    """A smooth image off the centre, on any grid."""
    x = (torch.arange(side) - (side - 1) / 2) * pixel_size
    return torch.exp(-0.5 * ((x - 2.3).square() + (x[:, None] + 1.7).square()) / 2.5**2)


@pytest.mark.parametrize("bin", [0.5, 1, 2])  # over a pixel's shadow
@pytest.mark.parametrize(
    "distances", [{}, {"source_origin": 110, "origin_detector": 190}], ids=["parallel", "fan"]
)
def test_the_derivative_is_that_of_a_finite_difference_on_a_finer_grid(distances, bin):
    """The small step of a fine grid; on our own grid it would differ by the edges of pixels."""
    geometry = scanner(Volume(shape=(32, 32)), views=12, **distances)
    geometry = replace(geometry, detector_pitch=bin * geometry.detector_pitch, detector_offset=0.3)
    fine = geometry.with_volume(Volume(shape=(256, 256), pixel_size=1 / 8))
    after, before = (
        ray_transform(replace(fine, detector_offset=0.3 + step), "astra")(blob(256, 1 / 8))
        for step in (0.2, -0.2)
    )
    expected = (after - before) / 0.4
    found = offset_derivative(blob(32, 1.0), geometry)
    assert float((found - expected).norm()) < 0.1 * float(expected.norm())


def test_error_bars_hold_when_the_offset_is_uncertain():
    """95 % intervals of 30 draws of an object, its noise and its offset, which errs by a tenth of a bin."""
    generator = torch.Generator().manual_seed(1)
    prior = smooth_covariance()
    lower = torch.linalg.cholesky(prior)
    design = whitened().dense()
    covered = {"without": [], "with": []}
    for _ in range(30):
        truth = lower @ torch.randn(SIDE**2, generator=generator, dtype=torch.float64)
        moved = replace(GEOMETRY, detector_offset=ERROR * float(torch.randn(1, generator=generator)))
        sinogram = ray_transform(moved, "astra")(truth.reshape(SIDE, SIDE).float()).double().flatten()
        y = sinogram / SIGMA + torch.randn(len(sinogram), generator=generator, dtype=torch.float64)
        start, _ = conditioned(design, y, prior)  # an image to take the derivative at
        derivative = offset_derivative(start.reshape(SIDE, SIDE).float(), GEOMETRY).double().flatten()
        whiten = whitened(ERROR * derivative / SIGMA).whiten
        for name, matrix, data in (("without", design, y), ("with", whiten(design.T).T, whiten(y[None])[0])):
            mean, variance = conditioned(matrix, data, prior)
            seen = prior.diagonal() > 0.25
            inside = (truth - mean).abs() <= 1.96 * variance.sqrt()
            covered[name].append(inside[seen].double().mean())
    shares = {name: torch.stack(parts) for name, parts in covered.items()}
    assert float(shares["without"].mean()) < 0.8
    error = float(shares["with"].std()) / len(shares["with"]) ** 0.5
    assert abs(float(shares["with"].mean()) - 0.95) < 3 * error < 0.05


def conditioned(design, y, prior):
    """Mean and pixel variances of x ~ N(0, prior) given y = design x + N(0, I)."""
    measured = design @ prior @ design.T + torch.eye(len(design), dtype=torch.float64)
    gain = torch.linalg.solve(measured, design @ prior).T
    return gain @ y, (prior - gain @ design @ prior).diagonal()
