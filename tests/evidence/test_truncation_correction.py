"""What signals outside of a basis do to the evidence, where that can be written down."""

import math

import pytest
import torch

from ct_dip.evidence.model import TruncationCorrection

STRENGTH, SCALE, NOISE = 0.7, 1.3, 0.9  # of n equal signals c e in the place of nothing but noise s²


def change(c, noise, n=5, size=12):
    """Of the evidence of a sinogram, dense."""
    residual = torch.randn(size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    alone = noise * torch.eye(size, dtype=torch.float64)
    both = alone.clone()
    both.diagonal()[:n] += c * STRENGTH

    def log_evidence(k):
        return -0.5 * (residual @ torch.linalg.solve(k, residual) + torch.logdet(k))

    return float(log_evidence(both) - log_evidence(alone)), float(residual[:n].square().sum())


@pytest.mark.parametrize(("c", "noise"), [(SCALE, NOISE), (2.0, NOISE), (SCALE, 0.5), (0.4, 1.7)])
def test_equal_signals_are_exact_at_all_scales(c, noise):
    x = SCALE * STRENGTH / NOISE
    expected, squares = change(c, noise)
    correction = TruncationCorrection(5 * x, x, squares * x / (1 + x) / NOISE, SCALE, NOISE)
    found = correction.log_evidence(torch.tensor(c).double(), torch.tensor(noise).double())
    assert float(found) == pytest.approx(expected, abs=1e-6)


def test_gradients_are_those_of_finite_differences():
    correction = TruncationCorrection(3.0, 0.2, 4.0, SCALE, NOISE)
    theta = torch.tensor([math.log(2.0), math.log(0.6)], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: correction.log_evidence(t[0].exp(), t[1].exp()), theta)
