"""The contract of every linear operator, two methods to write, and the algebra that follows from it.

``B @ (J @ S @ J.T + D) @ B.T + s2 * Identity(n)`` is a linear map like its parts: products with it are
products with them, in turn.
"""

import math
import weakref
from abc import ABC, abstractmethod
from typing import Any, overload

import torch
from torch import Tensor

from ct_dip.errors import InputError


class LinearMap(ABC):
    """A linear map ``A`` on batches of arrays, with its exact adjoint.

    ``A(x)``, or ``A @ x``, takes ``(..., *domain_shape)`` to ``(..., *range_shape)``, ``A.T(y)`` goes back,
    and ``A.T.T is A``. Both are differentiable any number of times, forward and backward: the derivative
    of a linear map is the map itself, and its vector-Jacobian product is the adjoint. Both work under
    ``torch.func.vmap``, ``jvp`` and ``vjp``.

    Maps compose: ``A @ B`` applies B first, ``A + B``, ``A - B`` and ``2 * A`` are what they say.

    A subclass sets ``domain_shape`` and ``range_shape`` and implements `_forward` and `_adjoint` on
    batches with exactly one leading dimension, without any thought of autograd.
    """

    domain_shape: tuple[int, ...]
    range_shape: tuple[int, ...]
    _adjoint_map: "weakref.ref[LinearMap] | None" = None

    @abstractmethod
    def _forward(self, x: Tensor) -> Tensor:
        """Map (n, *domain_shape) → (n, *range_shape), same dtype and device."""

    @abstractmethod
    def _adjoint(self, y: Tensor) -> Tensor:
        """Map (n, *range_shape) → (n, *domain_shape), same dtype and device."""

    def __call__(self, x: Tensor) -> Tensor:
        """Compute ``A x`` for one array or a batch of any shape."""
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
        adjoint = None if self._adjoint_map is None else self._adjoint_map()
        if adjoint is None:
            adjoint = _Adjoint(self)
            self._adjoint_map = weakref.ref(adjoint)
        return adjoint

    @overload
    def __matmul__(self, other: Tensor) -> Tensor: ...
    @overload
    def __matmul__(self, other: "LinearMap") -> "LinearMap": ...
    def __matmul__(self, other: "Tensor | LinearMap") -> "Tensor | LinearMap":
        """Compute ``A x`` of a tensor, or the map that applies ``other`` first."""
        return _Product(self, other) if isinstance(other, LinearMap) else self(other)

    def __add__(self, other: "LinearMap") -> "LinearMap":
        """Compute ``A + B``."""
        return _Sum(self, other) if isinstance(other, LinearMap) else NotImplemented

    def __sub__(self, other: "LinearMap") -> "LinearMap":
        """Compute ``A − B``."""
        return self + -1.0 * other if isinstance(other, LinearMap) else NotImplemented

    def __mul__(self, factor: float) -> "LinearMap":
        """Compute ``c A`` for a number c."""
        return _Multiple(float(factor), self) if isinstance(factor, int | float) else NotImplemented

    __rmul__ = __mul__

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns) of the matrix: the sizes of range and domain."""
        return math.prod(self.range_shape), math.prod(self.domain_shape)

    @property
    def name(self) -> str:
        """How the map is called in its ``repr``."""
        return type(self).__name__

    def __repr__(self) -> str:
        return f"<{self.name}: ({_spell(self.domain_shape)}) → ({_spell(self.range_shape)})>"

    def dense(self, dtype: torch.dtype = torch.float64, device: torch.device | None = None) -> Tensor:
        """Return the matrix, (range size, domain size), for tests and tiny problems."""
        size = torch.Size(self.domain_shape).numel()
        basis = torch.eye(size, dtype=dtype, device=device).reshape(size, *self.domain_shape)
        return self(basis).reshape(size, -1).T


class _Adjoint(LinearMap):
    def __init__(self, original: LinearMap) -> None:
        self.original = original
        self.domain_shape = original.range_shape
        self.range_shape = original.domain_shape

    @property
    def name(self) -> str:
        return f"{self.original.name}ᵀ"

    def _forward(self, x: Tensor) -> Tensor:
        return self.original._adjoint(x)

    def _adjoint(self, y: Tensor) -> Tensor:
        return self.original._forward(y)

    @property
    def T(self) -> LinearMap:
        return self.original


class _Product(LinearMap):
    def __init__(self, left: LinearMap, right: LinearMap) -> None:
        if left.domain_shape != right.range_shape:
            raise InputError(
                f"{left!r} @ {right!r}: the second gives ({_spell(right.range_shape)}), the first takes "
                f"({_spell(left.domain_shape)})"
            )
        self.left, self.right = left, right
        self.domain_shape, self.range_shape = right.domain_shape, left.range_shape

    @property
    def name(self) -> str:
        return f"{self.left.name} @ {self.right.name}"

    def _forward(self, x: Tensor) -> Tensor:
        return self.left._forward(self.right._forward(x))

    def _adjoint(self, y: Tensor) -> Tensor:
        return self.right._adjoint(self.left._adjoint(y))


class _Sum(LinearMap):
    def __init__(self, left: LinearMap, right: LinearMap) -> None:
        if (left.domain_shape, left.range_shape) != (right.domain_shape, right.range_shape):
            raise InputError(f"{left!r} + {right!r}: maps that are added must have the same shapes")
        self.left, self.right = left, right
        self.domain_shape, self.range_shape = left.domain_shape, left.range_shape

    @property
    def name(self) -> str:
        return f"({self.left.name} + {self.right.name})"

    def _forward(self, x: Tensor) -> Tensor:
        return self.left._forward(x) + self.right._forward(x)

    def _adjoint(self, y: Tensor) -> Tensor:
        return self.left._adjoint(y) + self.right._adjoint(y)


class _Multiple(LinearMap):
    def __init__(self, factor: float, original: LinearMap) -> None:
        self.factor, self.original = factor, original
        self.domain_shape, self.range_shape = original.domain_shape, original.range_shape

    @property
    def name(self) -> str:
        return f"{self.factor:g} {self.original.name}"

    def _forward(self, x: Tensor) -> Tensor:
        return self.factor * self.original._forward(x)

    def _adjoint(self, y: Tensor) -> Tensor:
        return self.factor * self.original._adjoint(y)


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
