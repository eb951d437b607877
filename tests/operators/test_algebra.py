"""Linear maps compose: sums, products and multiples are maps like their parts, and say what they are."""

import pytest
import torch

from ct_dip.errors import InputError
from ct_dip.geometry import Volume
from ct_dip.operators import ray_transform
from ct_dip.operators.basic_maps import Diagonal, Identity, LowRank, Reshape
from ct_dip.operators.differences import FiniteDifferences
from ct_dip.operators.whitened import StackedWhitened, Whitened
from ct_dip.scanners import scanner
from tests.identities import assert_every_identity

A = ray_transform(scanner(Volume(shape=(5, 4)), views=3))
D = FiniteDifferences((5, 4))
GENERATOR = torch.Generator().manual_seed(0)
IMAGE = torch.rand(5, 4, generator=GENERATOR, dtype=torch.float64)
U, V = (torch.randn(2, n, generator=GENERATOR, dtype=torch.float64) for n in (6, 7))

MAPS = {
    "identity": Identity(5, 4),
    "diagonal": Diagonal(IMAGE),
    "low rank": LowRank(U, V),
    "low rank, symmetric": LowRank(U),
    "reshape": Reshape((5, 4), (20,)),
    "product": A @ Diagonal(IMAGE),
    "sum": D.T @ D + Diagonal(IMAGE),
    "difference": Diagonal(IMAGE) - Identity(5, 4),
    "multiple": 2.5 * A,
    "stacked": StackedWhitened(*(Whitened(m, torch.ones(m.range_shape)) for m in (A, D))),
    "adjoint of a product": (A @ Diagonal(IMAGE) @ D.T).T,
    "measurement covariance": A @ (D.T @ D + Diagonal(IMAGE)) @ A.T + 0.3 * Identity(*A.range_shape),
}


@pytest.mark.parametrize("linear_map", MAPS.values(), ids=MAPS.keys())
def test_every_identity(linear_map):
    assert_every_identity(linear_map)


def test_the_algebra_is_that_of_matrices():
    a, d, x = A.dense(), D.dense(), torch.diag(IMAGE.flatten())
    expected = a @ (d.T @ d + x) @ a.T + 0.3 * torch.eye(len(a))
    torch.testing.assert_close(MAPS["measurement covariance"].dense(), expected)
    torch.testing.assert_close(MAPS["stacked"].dense(), torch.cat([a, d]))
    torch.testing.assert_close((A - 3 * A).dense(), -2 * a)
    torch.testing.assert_close((A * 2 @ D.T).T.dense(), 2 * d @ a.T)
    torch.testing.assert_close(LowRank(U, V).dense(), U.T @ V)
    torch.testing.assert_close(A @ IMAGE, A(IMAGE))


def test_a_map_knows_its_shape_and_says_what_it_is():
    assert A.shape == (3 * A.range_shape[1], 20)
    assert A.T.shape == A.shape[::-1]
    assert repr(D) == "<FiniteDifferences: (5, 4) → (2, 5, 4)>"
    assert repr(D.T @ D + 2 * Identity(5, 4)) == (
        "<(FiniteDifferencesᵀ @ FiniteDifferences + 2 Identity): (5, 4) → (5, 4)>"
    )


def test_what_does_not_fit_is_named():
    with pytest.raises(InputError, match=r"SparseRayTransform.*FiniteDifferences.*gives \(2, 5, 4\)"):
        A @ D
    with pytest.raises(InputError, match="must have the same shapes"):
        A + D
    with pytest.raises(InputError, match=r"\(2, 6\) and \(3, 7\) do not fit"):
        LowRank(U, torch.ones(3, 7))
    with pytest.raises(InputError, match="have no shape"):
        Reshape((2, 3), (5,))
    with pytest.raises(TypeError):
        A + 1
