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


def test_the_derivative_is_that_of_the_transform():
    image = smooth_covariance()[:, 7 * SIDE + 9].reshape(SIDE, SIDE).float()
    moved = replace(GEOMETRY, detector_offset=0.1)
    difference = ray_transform(moved, "astra")(image) - ray_transform(GEOMETRY, "astra")(image)
    found = 0.1 * offset_derivative(image, GEOMETRY)
    assert float((difference - found).norm()) < 0.1 * float(found.norm())


def test_error_bars_hold_when_the_offset_is_uncertain():
    """25 draws of an object, its noise and its offset, a tenth of a bin: it is three times the error bars."""
    generator = torch.Generator().manual_seed(1)
    prior = smooth_covariance()
    lower = torch.linalg.cholesky(prior)
    design = whitened().dense()
    squares = {"without": [], "with": []}
    for _ in range(25):
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
            squares[name].append(((truth - mean).square() / variance)[seen].mean())
    without, with_nuisance = (float(torch.stack(squares[name]).mean().sqrt()) for name in ("without", "with"))
    assert without > 2
    assert 0.8 < with_nuisance < 1.2


def conditioned(design, y, prior):
    """Mean and pixel variances of x ~ N(0, prior) given y = design x + N(0, I)."""
    measured = design @ prior @ design.T + torch.eye(len(design), dtype=torch.float64)
    gain = torch.linalg.solve(measured, design @ prior).T
    return gain @ y, (prior - gain @ design @ prior).diagonal()
