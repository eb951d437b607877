"""A symmetric operator as a function of vectors, and the check that guards every product with it."""

from collections.abc import Callable

import torch
from torch import Tensor

from ct_dip.errors import CtDipError, InputError

Operator = Callable[[Tensor], Tensor]  # v, (vectors, n) → K v, (vectors, n), same dtype and device


def product(operator: Operator, v: Tensor, name: str = "the operator") -> Tensor:
    """``K v``, checked.

    Raises:
        InputError: the shape or dtype is not that of ``v``.
        CtDipError: a value is not finite; the message begins with ``name``.
    """
    result = operator(v)
    if result.shape != v.shape or result.dtype != v.dtype:
        raise InputError(
            f"{name} must keep shape and dtype: it was given {tuple(v.shape)} {v.dtype} and returned "
            f"{tuple(result.shape)} {result.dtype}"
        )
    bad = ~torch.isfinite(result).all(dim=1)
    if bad.any():
        given = "finite" if torch.isfinite(v).all() else "not finite"
        raise CtDipError(
            f"{name} returned NaN or infinity for {int(bad.sum())} of {len(v)} vectors "
            f"(what it was given was {given}); look for an overflow or a division by zero in it"
        )
    return result
