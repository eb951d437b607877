"""Chains on a linear-Gaussian problem, whose posterior, and whose bias of a finite step, are known."""

import pytest
import torch

from ct_dip.weight_posterior.langevin import preconditioned_langevin

CHAINS, SIZE = 2000, 4  # independent chains are one chain of a block-diagonal problem
GENERATOR = torch.Generator().manual_seed(0)
DESIGN = torch.randn(12, SIZE, generator=GENERATOR).double() * torch.tensor([3.0, 1.0, 1.0, 0.5])
PRECISION = DESIGN.T @ DESIGN + 0.3 * torch.eye(SIZE)
MEAN = torch.randn(SIZE, generator=GENERATOR).double()


def run(step, *, steps, burn_in=0, seed=1):
    return preconditioned_langevin(
        lambda w: (((w.view(-1, SIZE) - MEAN) @ PRECISION).flatten(), w),
        MEAN.repeat(CHAINS),
        PRECISION.diagonal().repeat(CHAINS),
        burn_in=burn_in,
        steps=steps,
        samples=2,
        step=step,
        seed=seed,
    )


def moments(chain):
    ends = chain.end.view(-1, SIZE)
    return ends.mean(dim=0), torch.cov(ends.T)


def test_moments_are_those_of_the_posterior():
    mean, covariance = moments(run(0.1, steps=800, burn_in=400))
    truth = PRECISION.inverse()
    assert ((mean - MEAN).abs() < 4 * (truth.diagonal() / CHAINS).sqrt()).all()
    ratio = covariance.diagonal() / truth.diagonal()
    assert ((ratio - 1).abs() < 4 * (2 / CHAINS) ** 0.5 + 0.1 / 4).all()
    root = torch.linalg.cholesky(PRECISION)
    assert (root.T @ covariance @ root - torch.eye(SIZE)).abs().max() < 0.1 / 4 + 4 * (2 / CHAINS) ** 0.5


@pytest.mark.parametrize("step", [0.5, 2.0])
def test_the_bias_of_a_step_is_the_one_stated(step):
    """In coordinates ``G^−½ w`` a variance is ``1/(h (1 − ε h/4))`` along every eigenvector."""
    chain = run(step, steps=600)
    root = PRECISION.diagonal() ** -0.25
    stiff, vectors = torch.linalg.eigh(root[:, None] * PRECISION * root)
    assert chain.step * float(stiff[-1]) == pytest.approx(step, rel=1e-3)
    covariance = moments(chain)[1] / root[:, None] / root
    found = (vectors.T @ covariance @ vectors).diagonal()
    expected = 1 / (stiff * (1 - chain.step * stiff / 4))
    assert ((found / expected - 1).abs() < 4 * (2 / CHAINS) ** 0.5).all()


def test_the_same_seed_gives_the_same_chain():
    first, second, other = (run(0.5, steps=5, burn_in=3, seed=seed).values for seed in (1, 1, 2))
    assert first.shape == (2, CHAINS * SIZE)
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
