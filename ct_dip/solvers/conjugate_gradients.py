"""Preconditioned conjugate gradients for many right-hand sides, ended by residuals that are recomputed.

``scipy.sparse.linalg.cg`` takes one right-hand side, runs on NumPy, and believes its recursive residual.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from ct_dip.errors import InputError
from ct_dip.solvers.products import Operator, product

_GAIN = 0.9  # a restart that leaves more than this of the residual has met the limit of the arithmetic
_FAULTS = ("", "operator not positive definite", "preconditioner not positive definite", "diverged")


@dataclass(frozen=True, kw_only=True)
class Solution:
    """What `conjugate_gradients` found, system by system."""

    x: Tensor  # (systems, n)
    residuals: Tensor  # (systems,) ‖b − K x‖/‖b‖, computed from x itself; 0 where b is 0
    iterations: Tensor  # (systems,)
    converged: Tensor  # (systems,) bool
    reasons: tuple[str, ...]  # why each system ended
    products: int  # operator times vector


@dataclass
class _Active:
    """The systems that are still worked on; everything is along the first dimension."""

    index: Tensor  # which system of the caller's
    b: Tensor
    x: Tensor
    r: Tensor  # the recursive residual
    p: Tensor  # the direction
    energy: Tensor  # rᵀ P⁻¹ r of the step before
    size: Tensor  # ‖b‖
    limit: Tensor  # ‖r‖ beyond which the iteration has diverged
    goal: Tensor  # of the recursive residual, relative
    checked: Tensor  # the last residual that was recomputed, relative
    fresh: Tensor  # bool: the direction starts again
    fault: Tensor  # index into `_FAULTS`: why no step could be taken

    def select(self, keep: Tensor) -> "_Active":
        return _Active(*(getattr(self, field.name)[keep] for field in fields(self)))


@torch.no_grad()
def conjugate_gradients(
    operator: Operator,
    b: Tensor,
    *,
    preconditioner: Operator | None = None,
    x0: Tensor | None = None,
    tolerance: float = 1e-6,
    max_iterations: int = 1000,
    report: Callable[[int, float], None] | None = None,
) -> Solution:
    """Solve ``K x = b`` for every row of b until ``‖b − K x‖ ≤ tolerance ‖b‖``.

    The recursive residual of conjugate gradients drifts from the true one by rounding. So where it says
    done, the true one is computed; a system whose true residual is too large starts again from it (residual
    replacement), until it is small enough or a restart gains nothing. Systems have their own step sizes, and
    those that ended take no further products.

    Args:
        operator: K, symmetric positive definite.
        b: (systems, n), float32 or float64.
        preconditioner: ``v → P⁻¹ v``, symmetric positive definite, close to ``K⁻¹`` up to a factor.
        x0: where to start, (systems, n); zero if not given.
        max_iterations: of every system, restarts included.
        report: called after every step with (step, worst recursive relative residual of those not ended).

    Returns:
        A `Solution`; a system that did not converge says so and has its true residual all the same.

    Raises:
        CtDipError: the operator or the preconditioner returned NaN or infinity.
    """
    _check(b, x0, tolerance, max_iterations)
    # Every system near 1 while iterating, so that no square overflows; powers of two round nothing.
    scale = torch.ldexp(torch.ones_like(b[:, 0]), torch.frexp(b.abs().amax(dim=1)).exponent - 1)[:, None]
    systems = len(b)
    x, residuals = torch.zeros_like(b), b.new_zeros(systems)
    iterations = torch.zeros(systems, dtype=torch.long, device=b.device)
    reasons = ["converged"] * systems  # which is true of b = 0
    products = 0
    work = _start(b / scale, None if x0 is None else x0 / scale, tolerance)
    if x0 is not None and len(work.index):
        work.r = work.b - product(operator, work.x)
        products += len(work.index)
    # The 2-norm of a residual may grow by the root of the condition number, which this allows for.
    start = torch.maximum(work.size, _norm(work.r))
    work.limit = start / torch.finfo(b.dtype).eps
    for step in range(max_iterations + 1):
        relative = _norm(work.r) / work.size
        if step > 0 and report is not None and len(work.index):
            report(step, float(relative.max()))
        suspect = (relative <= work.goal) | (work.fault > 0)
        if step == max_iterations:
            suspect[:] = True
        if suspect.any():
            asked = work.select(suspect)
            r = asked.b - product(operator, asked.x)
            products += len(asked.index)
            true = _norm(r) / asked.size
            why = _reasons(asked, true, tolerance, last=step == max_iterations)
            ended = torch.tensor([reason != "" for reason in why], device=b.device)
            gone = asked.index[ended]
            x[gone], residuals[gone], iterations[gone] = asked.x[ended], true[ended], step
            for system, reason in zip(asked.index.tolist(), why, strict=True):
                reasons[system] = reason
            work.r[suspect], work.checked[suspect], work.fresh[suspect] = r, true, True
            work.goal[suspect] /= 2  # aim lower than the drift that was just seen
            keep = torch.ones_like(suspect)
            keep[suspect] = ~ended
            work = work.select(keep)
        if not len(work.index):
            break
        _step(operator, preconditioner, work)
        products += len(work.index)
    converged = torch.tensor([reason == "converged" for reason in reasons], device=b.device)
    return Solution(
        x=x * scale,
        residuals=residuals,
        iterations=iterations,
        converged=converged,
        reasons=tuple(reasons),
        products=products,
    )


def _step(operator: Operator, preconditioner: Operator | None, work: _Active) -> None:
    """One step of every system; a system for which there is none stays where it is and is marked."""
    z = work.r if preconditioner is None else product(preconditioner, work.r, "the preconditioner")
    energy = torch.sum(work.r * z, dim=1)
    beta = torch.where(work.fresh, 0.0, energy / work.energy)
    p = z + beta[:, None] * work.p
    image = product(operator, p)
    curvature = torch.sum(p * image, dim=1)
    alpha = (energy / curvature)[:, None]
    r = work.r - alpha * image
    fault = torch.where(_norm(r) <= work.limit, 0, 3)
    fault = torch.where(curvature > 0, fault, 1)
    work.fault = torch.where(energy > 0, fault, 2)
    fine = (work.fault == 0)[:, None]
    work.x = torch.where(fine, work.x + alpha * p, work.x)
    work.r = torch.where(fine, r, work.r)
    work.p, work.energy, work.fresh = p, energy, torch.zeros_like(work.fresh)


def _reasons(asked: _Active, true: Tensor, tolerance: float, *, last: bool) -> list[str]:
    """Why each of these systems ends; empty where it goes on."""
    why = []
    stuck = true > _GAIN * asked.checked
    for residual, fault, stagnant in zip(true.tolist(), asked.fault.tolist(), stuck.tolist(), strict=True):
        if fault:
            why.append(_FAULTS[fault])
        elif residual <= tolerance:
            why.append("converged")
        elif last:
            why.append("at max_iterations")
        else:
            why.append("stagnated" if stagnant else "")
    return why


def _start(b: Tensor, x0: Tensor | None, tolerance: float) -> _Active:
    size = _norm(b)
    index = size.nonzero()[:, 0]
    b, size = b[index], size[index]
    return _Active(
        index=index,
        b=b,
        x=torch.zeros_like(b) if x0 is None else x0[index],
        r=b.clone(),
        p=torch.zeros_like(b),
        energy=torch.ones_like(size),
        size=size,
        limit=torch.full_like(size, torch.inf),
        goal=torch.full_like(size, tolerance),
        checked=torch.full_like(size, torch.inf),
        fresh=torch.ones_like(index, dtype=torch.bool),
        fault=torch.zeros_like(index),
    )


def _check(b: Tensor, x0: Tensor | None, tolerance: float, max_iterations: int) -> None:
    if b.ndim != 2 or b.dtype not in (torch.float32, torch.float64):
        raise InputError(
            f"right-hand sides are (systems, n) in float32 or float64, got {tuple(b.shape)} {b.dtype}"
        )
    if x0 is not None and (x0.shape != b.shape or x0.dtype != b.dtype):
        raise InputError(f"x0 must be like b, {tuple(b.shape)} {b.dtype}, got {tuple(x0.shape)} {x0.dtype}")
    for name, values in (("right-hand sides", b), ("x0", x0)):
        if values is not None and not torch.isfinite(values).all():
            raise InputError(f"{name} must be finite")
    if not tolerance > 0 or max_iterations < 0:
        raise InputError(
            f"tolerance must be positive and max_iterations not negative, got {tolerance:g}, {max_iterations}"
        )


def _norm(vectors: Tensor) -> Tensor:
    """Return the 2-norm of every row."""
    return torch.linalg.vector_norm(vectors, dim=1)
