"""The Gaussian majorant of total variation: it touches it at an image, and can leave pixels alone."""

import pytest
import torch

from ct_dip.operators.differences import FiniteDifferences, total_variation
from ct_dip.priors.tv_majorant import majorant_weights, without_pixels

SHAPE = (6, 5)


@pytest.mark.parametrize("isotropic", [True, False])
def test_the_majorant_touches_total_variation_from_above(isotropic):
    """``½ uᵀDᵀWDu + const ≥ λ TV(u)``, with equality and the same slope at the image of the weights."""
    generator = torch.Generator().manual_seed(0)
    image, other = torch.rand(2, 6, 5, generator=generator, dtype=torch.float64)
    weights, differences = (
        majorant_weights(image, 0.8, 1e-6, isotropic=isotropic),
        FiniteDifferences((6, 5)),
    )

    def size(field):
        return torch.linalg.vector_norm(field, dim=0) if isotropic else field.abs()

    def majorant(u):
        constant = 0.4 * size(differences(image)).sum()
        return 0.5 * (weights * differences(u).square()).sum() + constant

    assert float(majorant(image)) == pytest.approx(0.8 * float(size(differences(image)).sum()), rel=1e-6)
    assert float(majorant(other)) > 0.8 * float(size(differences(other)).sum())


def test_its_slope_at_the_image_is_that_of_total_variation():
    image = torch.rand(SHAPE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    leaf = image.clone().requires_grad_()
    (slope,) = torch.autograd.grad(0.8 * total_variation(leaf, isotropic=True), leaf)
    weights, differences = majorant_weights(image, 0.8, 1e-9), FiniteDifferences(SHAPE)
    torch.testing.assert_close(differences.T(weights * differences(image)), slope)


def test_pixels_without_it_are_tied_to_no_other_and_the_others_as_before():
    pixels = torch.zeros(30, dtype=torch.bool)
    pixels[[6, 29]] = True
    weights = torch.ones(2, *SHAPE, dtype=torch.float64)
    touches = FiniteDifferences(SHAPE).dense()[:, pixels].any(dim=1)
    found = without_pixels(weights, pixels).flatten()
    assert found[touches].max() == 0
    assert found[FiniteDifferences(SHAPE).dense()[:, ~pixels].any(dim=1) & ~touches].min() == 1
