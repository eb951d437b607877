"""Algebra that every linear map must obey, whoever computes it."""

import torch
from torch.autograd import gradcheck, gradgradcheck

ADJOINT_TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def random_pair(linear_map, dtype, batch=(), seed=0):
    """x of the domain and y of the range, of both signs: positive vectors would hide sign errors."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*batch, *linear_map.domain_shape, generator=generator, dtype=torch.float64)
    y = torch.randn(*batch, *linear_map.range_shape, generator=generator, dtype=torch.float64)
    return x.to(dtype), y.to(dtype)


def assert_shapes(linear_map):
    x, y = random_pair(linear_map, torch.float32, batch=(2, 3))
    assert linear_map(x).shape == (2, 3, *linear_map.range_shape)
    assert linear_map.T(y).shape == (2, 3, *linear_map.domain_shape)
    assert linear_map(x[0, 0]).shape == linear_map.range_shape
    assert linear_map(x[:0]).shape == (0, 3, *linear_map.range_shape)
    assert linear_map.T.T is linear_map
    assert linear_map(x).dtype == torch.float32
    assert linear_map(x.double()).dtype == torch.float64


def assert_adjoint(linear_map, dtype):
    """|⟨Ax, y⟩ − ⟨x, Aᵀy⟩| / (‖Ax‖ ‖y‖), summed in float64 so that only the map is tested."""
    x, y = random_pair(linear_map, dtype)
    ax, aty = linear_map(x).double(), linear_map.T(y).double()
    mismatch = torch.sum(ax * y.double()) - torch.sum(x.double() * aty)
    assert abs(mismatch) / (ax.norm() * y.double().norm()) < ADJOINT_TOLERANCE[dtype]


def assert_linear(linear_map):
    x, _ = random_pair(linear_map, torch.float64, batch=(2,))
    combined = linear_map(2 * x[0] - 3 * x[1])
    torch.testing.assert_close(combined, 2 * linear_map(x[0]) - 3 * linear_map(x[1]))


def assert_batch_is_loop(linear_map, dtype=torch.float64):
    x, y = random_pair(linear_map, dtype, batch=(4,))
    torch.testing.assert_close(linear_map(x), torch.stack([linear_map(v) for v in x]))
    torch.testing.assert_close(linear_map.T(y), torch.stack([linear_map.T(v) for v in y]))


def assert_matches_dense(linear_map):
    x, y = random_pair(linear_map, torch.float64)
    matrix = linear_map.dense()
    torch.testing.assert_close(linear_map(x).flatten(), matrix @ x.flatten())
    torch.testing.assert_close(linear_map.T(y).flatten(), matrix.T @ y.flatten())


def assert_differentiable(linear_map):
    """Once and twice, backward and forward, against finite differences."""
    x, y = random_pair(linear_map, torch.float64)
    options = {"check_forward_ad": True, "fast_mode": True, "check_batched_grad": False}
    assert gradcheck(linear_map, x.requires_grad_(), **options)

    def energy(v):
        return torch.sum((linear_map(v) - y) ** 3)

    assert gradgradcheck(energy, x, fast_mode=True)


def assert_functional_transforms(linear_map):
    """``torch.func``: vmap over any dimension, jvp, vjp, and a Hessian product by both."""
    x, y = random_pair(linear_map, torch.float64, batch=(3,))
    vmapped = torch.func.vmap(linear_map, in_dims=1)(x.movedim(0, 1))
    torch.testing.assert_close(vmapped, linear_map(x))
    value, tangent = torch.func.jvp(linear_map, (x[0],), (x[1],))
    torch.testing.assert_close(value, linear_map(x[0]))
    torch.testing.assert_close(tangent, linear_map(x[1]))
    _, pull = torch.func.vjp(linear_map, x[0])
    torch.testing.assert_close(pull(y[0])[0], linear_map.T(y[0]))
    torch.testing.assert_close(torch.func.vmap(pull)(y)[0], linear_map.T(y))

    def energy(v):
        return 0.5 * torch.sum(linear_map(v) ** 2)

    _, product = torch.func.jvp(torch.func.grad(energy), (x[0],), (x[1],))
    torch.testing.assert_close(product, linear_map.T(linear_map(x[1])))


def assert_every_identity(linear_map):
    assert_shapes(linear_map)
    for dtype in ADJOINT_TOLERANCE:
        assert_adjoint(linear_map, dtype)
    assert_linear(linear_map)
    assert_batch_is_loop(linear_map)
    assert_matches_dense(linear_map)
    assert_differentiable(linear_map)
    assert_functional_transforms(linear_map)
