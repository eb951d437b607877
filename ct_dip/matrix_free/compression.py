"""The few directions of a sinogram that the network's weights can move, by a randomised range finder.

``B J w`` for random weights w from the prior is a random element of the signal space. Of S = B J Σ Jᵀ Bᵀ, an
orthonormal basis Q of enough of them holds all but the trace of ``(I − QQᵀ) S (I − QQᵀ)``, and what a *new*
random element leaves outside of Q has exactly that expected square: every batch first tells how good Q is,
then makes it better (Halko, Martinsson, Tropp 2011). Then y is told of the weights through Q alone:
``r = Q F w + …`` with features ``F = Qᵀ B J``, and no more of the network.
"""

import time
from typing import NamedTuple

import torch
from torch import Tensor

from ct_dip.errors import CtDipError
from ct_dip.matrix_free.problem import Problem
from ct_dip.priors.covariance import WeightCovariance
from ct_dip.progress import Progress

_BATCH = 32  # random elements that are taken together
_ROUNDING = 10  # in units of that of one element: below it there is nothing to be orthogonal to


class Compression(NamedTuple):
    """``Q`` and ``F``, and what they leave out.

    Args:
        basis: Q, (measurements, rank), orthonormal columns.
        features: F, (rank, P).
        discarded: trace of S outside of Q for the covariance that was last asked for, in units of the stated
            noise; ``discarded_error`` its standard error.
        passes: products with J and Jᵀ so far.
        complete: whether ``discarded`` is as small as it was asked to be.
    """

    basis: Tensor
    features: Tensor
    discarded: float
    discarded_error: float
    passes: int
    complete: bool

    @property
    def rank(self) -> int:
        """Columns of Q."""
        return self.basis.shape[1]


def empty_compression(problem: Problem) -> Compression:
    """Of nothing: rank zero."""
    weights = problem.jacobian.weights
    basis = weights.new_zeros(problem.measurements, 0)
    return Compression(basis, weights.new_zeros(0, len(weights)), float("inf"), 0.0, 0, False)


def extend(
    problem: Problem,
    covariance: WeightCovariance,
    before: Compression,
    *,
    trace: float,
    max_rank: int,
    seed: int = 0,
    deadline: float | None = None,
    progress: Progress | None = None,
) -> Compression:
    """Grow a compression until at most ``trace`` is left outside under a covariance.

    Args:
        trace: in units of the stated noise.
        max_rank: where to give up; the result then is not ``complete``.
        seed: of the random weights; another one for every extension of the same compression.
        deadline: of ``time.monotonic``; also a reason to give up.
    """
    generator = torch.Generator().manual_seed(seed)
    weights = problem.jacobian.weights
    basis, rows = before.basis, [before.features]
    passes = before.passes
    with (progress or Progress()).stage("compression") as stage:
        while True:
            noise = torch.randn(_BATCH, len(weights), generator=generator, dtype=weights.dtype)
            drawn = problem.measure(covariance.root(noise.to(weights.device)))
            outside = _outside(_finite(drawn, "J"), basis)
            passes += _BATCH
            squares = outside.double().square().sum(dim=0)
            left, error = float(squares.mean()), float(squares.std()) / _BATCH**0.5
            stage.update(basis.shape[1], rank=basis.shape[1], outside=left / problem.measurements)
            late = deadline is not None and time.monotonic() > deadline
            # One batch in any case: without a basis there is nothing that a search could go on with.
            if basis.shape[1] >= max_rank or (basis.shape[1] and (left <= trace or late)):
                break
            new = _directions(outside, drawn, least=0 if basis.shape[1] else 1)[
                :, : max_rank - basis.shape[1]
            ]
            if not new.shape[1]:
                break
            new = torch.linalg.qr(_outside(new, basis)).Q  # twice is enough
            basis = torch.cat([basis, new], dim=1)
            rows.append(_finite(problem.pull(new), "Jᵀ"))
            passes += new.shape[1]
    return Compression(basis, torch.cat(rows), left, error, passes, left <= trace)


def to_state(compression: Compression) -> dict[str, Tensor]:
    """For `ct_dip.checkpoint`."""
    return {
        name: torch.as_tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
        for name, value in compression._asdict().items()
    }


def from_state(state: dict[str, Tensor]) -> Compression:
    """What `to_state` kept."""
    return Compression(
        state["basis"],
        state["features"],
        float(state["discarded"]),
        float(state["discarded_error"]),
        int(state["passes"]),
        bool(state["complete"]),
    )


def _finite(values: Tensor, name: str) -> Tensor:
    """What a product gave, if it is made of numbers."""
    if not bool(torch.isfinite(values).all()):
        raise CtDipError(
            f"a product with {name} of the network returned NaN or infinity; its fit may have diverged: try "
            "another seed or a smaller dip.learning_rate"
        )
    return values


def _directions(outside: Tensor, drawn: Tensor, least: int) -> Tensor:
    """An orthonormal basis of what is more than the rounding of what was drawn.

    Args:
        least: directions that are made in any case, even for a network that is blind everywhere.
    """
    q, r = torch.linalg.qr(outside.double())
    rounding = torch.finfo(drawn.dtype).eps * float(torch.linalg.vector_norm(drawn, dim=0).max())
    keep = r.diagonal().abs() > _ROUNDING * rounding
    keep[:least] = True
    return q[:, keep].to(drawn.dtype)


def _outside(columns: Tensor, basis: Tensor) -> Tensor:
    """``(I − QQᵀ) v``."""
    return columns - basis @ (basis.T @ columns)
