import pytest
import torch

from ct_dip.operators.differences import FiniteDifferences, total_variation
from tests.identities import assert_every_identity


@pytest.mark.parametrize("shape", [(5, 7), (1, 4), (3, 1)])
def test_obeys_the_contract(shape):
    assert_every_identity(FiniteDifferences(shape))


def test_a_ramp_has_constant_differences():
    ramp = torch.arange(4.0)[:, None] * 10 + torch.arange(5.0)
    rows, columns = FiniteDifferences((4, 5))(ramp)
    assert torch.equal(rows[:-1], torch.full((3, 5), 10.0))
    assert torch.equal(columns[:, :-1], torch.ones(4, 4))
    assert not rows[-1].any()
    assert not columns[:, -1].any()


def test_total_variation_of_a_square_is_its_perimeter():
    image = torch.zeros(2, 10, 10)
    image[1, 3:7, 3:7] = 2.0
    assert torch.equal(total_variation(image), torch.tensor([0.0, 32.0]))
    # Isotropic: one corner has both differences in one pixel, 2√2 in place of 4.
    isotropic = total_variation(image[1], isotropic=True)
    assert isotropic == pytest.approx(32 - 4 + 2 * 2**0.5)


@pytest.mark.parametrize("isotropic", [False, True])
def test_total_variation_is_the_one_norm_of_the_differences(isotropic):
    image = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    field = FiniteDifferences((6, 5))(image)
    expected = torch.hypot(*field).sum() if isotropic else field.abs().sum()
    torch.testing.assert_close(total_variation(image, isotropic=isotropic), expected)


def test_the_gradient_of_a_flat_image_is_finite():
    image = torch.zeros(4, 4, requires_grad=True)
    total_variation(image, isotropic=True).backward()
    assert torch.isfinite(image.grad).all()
