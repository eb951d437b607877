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

from ct_dip import memory
from ct_dip.errors import CtDipError
from ct_dip.matrix_free.problem import Problem
from ct_dip.matrix_free.rows import Columns, Rows, kept_as_images
from ct_dip.priors.covariance import WeightCovariance
from ct_dip.progress import Progress

_BATCH = 32  # random elements that are taken together
_TRIMMED = 4 * _BATCH  # columns after which what is free in the heap is given back
_ROUNDING = 10  # in units of that of one element: below it there is nothing to be orthogonal to


class Compression(NamedTuple):
    """``Q`` and ``F``, and what they leave out.

    Args:
        basis: Q, (measurements, rank), orthonormal columns; kept as images where these take less memory.
        features: F, (rank, P).
        discarded: trace of S outside of Q for the covariance that was last asked for, in units of the stated
            noise; ``discarded_error`` its standard error.
        passes: products with J and Jᵀ so far.
        complete: whether ``discarded`` is as small as it was asked to be.
    """

    basis: Columns
    features: Rows
    discarded: float
    discarded_error: float
    passes: int
    complete: bool

    @property
    def rank(self) -> int:
        """Columns of Q."""
        return self.basis.rank


def empty_compression(problem: Problem) -> Compression:
    """Of nothing: rank zero."""
    weights = problem.jacobian.weights
    if kept_as_images(problem.measurements, problem.pixels):
        basis = Columns(Rows([weights.new_zeros(0, problem.pixels).double()]), problem.whitened)
    else:
        basis = Columns(Rows([weights.new_zeros(0, problem.measurements)]))
    return Compression(
        basis,
        Rows([weights.new_zeros(0, len(weights))]),
        float("inf"),
        0.0,
        0,
        False,
    )


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
    basis, features, passes = before.basis, before.features, before.passes
    with (progress or Progress()).stage("compression") as stage:
        while True:
            noise = torch.randn(_BATCH, len(weights), generator=generator, dtype=weights.dtype)
            images = _finite(problem.images(covariance.root(noise.to(weights.device))), "J")
            drawn = problem.project(images).T if basis.whitened is None else images.double()
            measured = basis.measured(drawn)
            outside = basis.outside(drawn, measured)
            passes += _BATCH
            squares = basis.measured(outside).double().square().sum(dim=0)
            left, error = float(squares.mean()), float(squares.std()) / _BATCH**0.5
            stage.update(basis.rank, rank=basis.rank, outside=left / problem.dimensions)
            late = deadline is not None and time.monotonic() > deadline
            # One batch in any case: without a basis there is nothing that a search could go on with.
            if basis.rank >= max_rank or (basis.rank and (left <= trace or late)):
                break
            rounding = torch.finfo(images.dtype).eps * float(measured.norm(dim=0).max())
            new = _orthonormal(basis, outside, _ROUNDING * rounding)[: max_rank - basis.rank]
            if not len(new) and not basis.rank:  # a network that is blind everywhere: some direction
                new = _orthonormal(basis, torch.ones_like(outside[:1]))
            if not len(new):
                break
            new = _orthonormal(basis, basis.outside(new))  # twice is enough
            features = features.extended(_finite(problem.pull(basis.measured(new).to(weights)), "Jᵀ"))
            basis = basis.extended(new)
            passes += len(new)
            # What batches leave in the heap, up to a third of a gigabyte at 256². Asking anew takes time.
            if basis.rank % _TRIMMED < len(new):
                memory.give_back()
    return Compression(basis, features, left, error, passes, left <= trace)


def to_state(compression: Compression, before: Compression) -> dict[str, Tensor]:
    """For `ct_dip.checkpoint`: the parts that a compression has beyond the one that it was grown from."""
    state = {
        "discarded": torch.tensor(compression.discarded, dtype=torch.float64),
        "discarded_error": torch.tensor(compression.discarded_error, dtype=torch.float64),
        "passes": torch.tensor(compression.passes),
        "complete": torch.tensor(compression.complete),
    }
    for name, rows, old in (
        ("basis", compression.basis.rows, before.basis.rows),
        ("features", compression.features, before.features),
    ):
        for number, part in enumerate(rows.parts):
            if number >= len(old.parts) or part is not old.parts[number]:
                state[f"{name}-{number:03d}"] = part
    return state


def from_state(state: dict[str, Tensor], before: Compression) -> Compression:
    """What `to_state` kept, with the same parts, so that products have the same bits."""

    def rows(name: str, old: Rows) -> Rows:
        new = {int(key.removeprefix(name)): part for key, part in state.items() if key.startswith(name)}
        parts = dict(enumerate(old.parts)) | new
        return Rows([parts[number] for number in sorted(parts)])

    return Compression(
        before.basis._replace(rows=rows("basis-", before.basis.rows)),
        rows("features-", before.features),
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


def _orthonormal(basis: Columns, rows: Tensor, threshold: float = 0.0) -> Tensor:
    """Orthonormal columns that span others, kept in the same way; ``C = Q R`` and, for images, ``U R⁻¹``.

    Args:
        threshold: of the diagonal of R; what is below is dropped as the rounding of what was there before.
    """
    q, r = torch.linalg.qr(basis.measured(rows).double())
    keep = r.diagonal().abs() > threshold
    if basis.whitened is None:
        return q[:, keep].T.to(rows)
    if not bool(keep.all()):
        rows = rows[keep]
        r = torch.linalg.qr(basis.measured(rows).double()).R
    return torch.linalg.solve_triangular(r.T, rows.double(), upper=False).to(rows)
