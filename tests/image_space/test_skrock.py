"""SK-ROCK against the law of its own chain, and that against the Gaussian it samples."""

import numpy as np
import pytest
import torch

from ct_dip.image_space.skrock import SkRock

PRECISIONS = np.array([0.02, 0.1, 0.5, 2.0, 10.0, 50.0])


@pytest.mark.parametrize("stages", [2, 5, 15])
def test_the_chain_has_the_variance_that_its_polynomials_say(stages):
    """Independent Gaussians, one per precision, 4000 chains at once."""
    method, rng = SkRock(50.0, stages), np.random.default_rng(0)
    precisions = torch.as_tensor(PRECISIONS)
    u = torch.as_tensor(rng.standard_normal((4000, len(PRECISIONS)))) / precisions.sqrt()
    total, steps = torch.zeros(len(PRECISIONS), dtype=torch.float64), 0
    for step in range(150):
        u = method(u, lambda v: precisions * v, rng)
        if step >= 75:
            total, steps = total + u.square().mean(dim=0), steps + 1
    # The slowest ones are correlated over the whole run: 4000 independent values, five standard errors.
    np.testing.assert_allclose(total.numpy() / steps, method.variance(PRECISIONS), rtol=5 * (2 / 4000) ** 0.5)


def test_directions_that_the_data_do_not_know_have_no_bias():
    """The bias of the discretisation is of the order δλ: in directions whose deviation is small anyway."""
    method = SkRock(50.0, 15)
    ratio = method.variance(PRECISIONS) * PRECISIONS
    assert ratio[0] == pytest.approx(1, abs=0.1)
    assert (ratio > 0).all()
    assert (ratio < 1.1).all()


def test_a_step_of_s_stages_goes_on_for_a_time_that_grows_as_their_square():
    assert SkRock(1.0, 20).step / SkRock(1.0, 10).step == pytest.approx(4, rel=0.15)


def test_without_noise_it_is_stable_and_goes_to_the_minimum():
    class Silent(np.random.Generator):
        def standard_normal(self, size=None, dtype=np.float64, out=None):
            return np.zeros(size, dtype=dtype)

    method, silent = SkRock(1000.0, 15), Silent(np.random.PCG64(0))
    precisions = torch.linspace(1, 1000, 200, dtype=torch.float64)
    u = torch.ones(200, dtype=torch.float64)
    for _ in range(200):
        u = method(u, lambda v: precisions * v, silent)
    assert float(u.abs().max()) < 1e-3
