"""The contract of every linear operator: two methods to write, everything else for free."""

import weakref
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from ct_dip.errors import InputError


class LinearMap(ABC):
    """A linear map ``A`` on batches of arrays, with its exact adjoint.

    ``A(x)`` takes ``(..., *domain_shape)`` to ``(..., *range_shape)``, ``A.T(y)`` goes back, and
    ``A.T.T is A``. Both are differentiable any number of times, forward and backward: the derivative
    of a linear map is the map itself, and its vector-Jacobian product is the adjoint. Both work under
    ``torch.func.vmap``, ``jvp`` and ``vjp``.

    A subclass sets ``domain_shape`` and ``range_shape`` and implements `_forward` and `_adjoint` on
    batches with exactly one leading dimension, without any thought of autograd.
    """

    domain_shape: tuple[int, ...]
    range_shape: tuple[int, ...]
    _adjoint_map: "weakref.ref[LinearMap] | None" = None

    @abstractmethod
    def _forward(self, x: Tensor) -> Tensor:
        """(n, *domain_shape) → (n, *range_shape), same dtype and device."""

    @abstractmethod
    def _adjoint(self, y: Tensor) -> Tensor:
        """(n, *range_shape) → (n, *domain_shape), same dtype and device."""

    def __call__(self, x: Tensor) -> Tensor:
        """``A x`` for one array or a batch of any shape."""
        if not isinstance(x, Tensor):
            raise InputError(
                f"{type(self).__name__} works on torch tensors, got {type(x).__name__}; "
                "use torch.as_tensor(array)"
            )
        if x.dtype not in (torch.float32, torch.float64):
            raise InputError(
                f"{type(self).__name__} works on float32 or float64, got {x.dtype}; use x.float()"
            )
        dimensions = len(self.domain_shape)
        if x.ndim < dimensions or tuple(x.shape[x.ndim - dimensions :]) != self.domain_shape:
            raise InputError(
                f"{type(self).__name__} expects (..., {_spell(self.domain_shape)}), "
                f"got ({_spell(tuple(x.shape))})"
            )
        return _Apply.apply(x, self)  # type: ignore[no-untyped-call]

    @property
    def T(self) -> "LinearMap":
        """The adjoint ``Aᵀ``."""
        # Known weakly: an adjoint holds its map, and two that hold each other would stay in memory, with all
        # of their constants, until Python next looks for such circles.
        known = None if self._adjoint_map is None else self._adjoint_map()
        if known is None:
            known = _Adjoint(self)
            self._adjoint_map = weakref.ref(known)
        return known

    def dense(self, dtype: torch.dtype = torch.float64) -> Tensor:
        """The matrix, (range size, domain size): for tests and tiny problems."""
        size = torch.Size(self.domain_shape).numel()
        basis = torch.eye(size, dtype=dtype).reshape(size, *self.domain_shape)
        return self(basis).reshape(size, -1).T


class _Adjoint(LinearMap):
    def __init__(self, original: LinearMap) -> None:
        self.original = original
        self.domain_shape = original.range_shape
        self.range_shape = original.domain_shape

    def _forward(self, x: Tensor) -> Tensor:
        return self.original._adjoint(x)

    def _adjoint(self, y: Tensor) -> Tensor:
        return self.original._forward(y)

    @property
    def T(self) -> LinearMap:
        return self.original


class _Apply(torch.autograd.Function):
    """``A x`` for autograd and ``torch.func``; any number of leading dimensions."""

    @staticmethod
    def forward(x: Tensor, linear_map: LinearMap) -> Tensor:
        batch = x.shape[: x.ndim - len(linear_map.domain_shape)]
        y = linear_map._forward(x.reshape(-1, *linear_map.domain_shape))
        return y.reshape(*batch, *linear_map.range_shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, LinearMap], output: Tensor) -> None:
        ctx.linear_map = inputs[1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _Apply.apply(gradients[0], ctx.linear_map.T), None  # type: ignore[no-untyped-call]

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        return _Apply.apply(tangents[0], ctx.linear_map)  # type: ignore[no-untyped-call]

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, None], x: Tensor, linear_map: LinearMap
    ) -> tuple[Tensor, int | None]:
        if in_dims[0] is None:
            return _Apply.apply(x, linear_map), None  # type: ignore[no-untyped-call]
        return _Apply.apply(x.movedim(in_dims[0], 0), linear_map), 0  # type: ignore[no-untyped-call]


def _spell(shape: tuple[int, ...]) -> str:
    return ", ".join(str(n) for n in shape)
