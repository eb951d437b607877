"""The few directions of a sinogram that the network's weights can move, by a randomised block Krylov method.

``B J w`` for random weights w from the prior is a random element of the signal space. Of S = B J Σ Jᵀ Bᵀ, an
orthonormal basis Q of some of them, X, and of S X, S² X, … holds nearly as much as any basis of its size can
(Musco and Musco 2015). A column costs a pass of J and one of Jᵀ, as it would with random elements alone: y is
told of the weights through Q, ``r = Q F w + …``, for which its feature ``f = qᵀ B J`` is needed anyway, and
``S q = B J Σ fᵀ``. (At 64², 60 views, 1,344 random elements hold what 1,088 of these columns do, and 948
eigenvectors would.)

What *other* random elements, the probes, leave outside of Q has the expected square
``tr (I − QQᵀ) S (I − QQᵀ)``: it tells when Q is good enough (Halko, Martinsson, Tropp 2011).
"""

import time
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from ct_dip import memory
from ct_dip.checkpoint import take
from ct_dip.errors import CtDipError, InputError
from ct_dip.posterior.problem import Problem
from ct_dip.posterior.row_blocks import RowBlocks
from ct_dip.priors.covariance import WeightCovariance
from ct_dip.progress import Progress

_BATCH = 32  # columns, and probes, that are taken together
_ROUNDING = 100  # in units of that of one number: below it there is nothing to be orthogonal to
_KEPT = 0.7  # of a column that is made orthogonal a second time; it was rounding if less is left of it


class Compression(NamedTuple):
    """The basis ``Q``, the features ``F``, and how much they leave out.

    Args:
        basis: Q, orthonormal, as rows, (rank, measurements).
        features: F, (rank, P).
        discarded: trace of S outside of Q for the covariance that was last asked for, in units of the stated
            noise; ``discarded_error`` its standard error.
        passes: products with J and Jᵀ so far.
        complete: whether ``discarded`` is as small as it was asked to be.
    """

    basis: RowBlocks
    features: RowBlocks
    discarded: float
    discarded_error: float
    passes: int
    complete: bool

    @property
    def rank(self) -> int:
        """Columns of Q."""
        return len(self.basis)


def empty_compression(problem: Problem, *, features_on_host: bool = False) -> Compression:
    """Return a compression of rank zero, to grow from.

    Args:
        features_on_host: keep F in the host's memory, for a device that has no room for it.
    """
    weights = problem.jacobian.weights
    none = weights.new_zeros(0, len(weights))
    return Compression(
        RowBlocks((weights.new_zeros(0, problem.measurements),)),
        RowBlocks((none.cpu() if features_on_host else none,), weights.device),
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

    def seen(directions: Tensor) -> Tensor:
        """Compute ``B J w`` of some weights, as rows."""
        nonlocal passes
        passes += len(directions)
        return problem.project(_finite(problem.images(directions), "J"))

    def beyond(rows: Tensor) -> Tensor:
        """Compute orthonormal columns that span what some have outside the basis, beyond rounding."""
        rounding = torch.finfo(weights.dtype).eps * float(rows.norm(dim=1).max())
        new = _orthonormal(basis.outside(rows), _ROUNDING * rounding)
        return _orthonormal(basis.outside(new), _KEPT)  # twice is enough

    def random() -> Tensor:
        noise = torch.randn(_BATCH, len(weights), generator=generator, dtype=weights.dtype)
        return seen(covariance.root(noise.to(weights.device)))

    with (progress or Progress()).stage("compression") as stage:
        probes = basis.outside(basis.outside(random()))  # once leaves rounding, of signals that are strong
        while True:
            squares = probes.double().square().sum(dim=1)
            left, error = float(squares.mean()), float(squares.std()) / _BATCH**0.5
            stage.update(len(basis), rank=len(basis), outside=left / problem.dimensions)
            late = deadline is not None and time.monotonic() > deadline
            # One batch in any case: without a basis there is nothing that a search could go on with.
            if len(basis) >= max_rank or (len(basis) and (left <= trace or late)):
                break
            new = probes[:0]
            if len(basis):
                new = beyond(seen(covariance(features.last(_BATCH))))
            if not len(new):  # at the beginning, or where S leads no further
                new = beyond(random())
            if not len(new) and not len(basis):  # a network that is blind everywhere: some direction
                new = _orthonormal(torch.ones_like(probes[:1]))
            if not len(new):
                break
            new = new[: max_rank - len(basis)]
            features = features.extended(_finite(problem.design.T(new), "Jᵀ"))
            passes += len(new)
            added = RowBlocks((new,))
            probes = added.outside(added.outside(probes))
            basis = basis.extended(new)
            memory.give_back()  # what a batch leaves in the heap, which grows otherwise
    return Compression(basis, features, left, error, passes, left <= trace)


def to_state(compression: Compression, before: Compression) -> dict[str, Tensor]:
    """Return the blocks that a compression was grown by, for `ct_dip.checkpoint`."""
    state: dict[str, Tensor] = {
        "discarded": torch.tensor(compression.discarded, dtype=torch.float64),
        "discarded_error": torch.tensor(compression.discarded_error, dtype=torch.float64),
        "passes": torch.tensor(compression.passes),
        "complete": torch.tensor(compression.complete),
    }
    for name, rows, old in (
        ("basis", compression.basis, before.basis),
        ("features", compression.features, before.features),
    ):
        for number, block in enumerate(rows.blocks):
            if number >= len(old.blocks) or block is not old.blocks[number]:
                state[f"{name}-{number:05d}"] = block
    return state


def from_state(state: Mapping[str, Tensor], before: Compression) -> Compression:
    """Restore what `to_state` kept, in the same blocks, so that products have the same bits."""

    def rows(name: str, old: RowBlocks) -> RowBlocks:
        new = sorted(key for key in state if key.startswith(name))
        first = int(new[0].removeprefix(name)) if new else len(old.blocks)
        blocks = list(old.blocks[:first])
        for number, key in enumerate(new, first):
            if key != f"{name}{number:05d}":
                raise InputError(f"there is {key!r} where block {number} belongs")
            block = take(state, key, (None, old.length), old.blocks[0].dtype)
            blocks.append(block.to(old.blocks[0].device))
        return RowBlocks(tuple(blocks), old.used_on)

    compression = Compression(
        rows("basis-", before.basis),
        rows("features-", before.features),
        float(take(state, "discarded", (), torch.float64)),
        float(take(state, "discarded_error", (), torch.float64)),
        int(take(state, "passes", (), torch.int64)),
        bool(take(state, "complete", (), torch.bool)),
    )
    if compression.rank != len(compression.features) or compression.rank < before.rank:
        raise InputError(f"the basis has rank {compression.rank}, the features {len(compression.features)}")
    return compression


def _finite(values: Tensor, name: str) -> Tensor:
    """Return a product if it is finite."""
    if not bool(torch.isfinite(values).all()):
        raise CtDipError(
            f"a product with {name} of the network returned NaN or infinity; its fit may have diverged: try "
            "another seed or a smaller dip.learning_rate"
        )
    return values


def _orthonormal(rows: Tensor, threshold: float = 0.0) -> Tensor:
    """Compute orthonormal columns that span others, ``C = Q R``; both as rows.

    Args:
        threshold: of the diagonal of R; what is below is dropped as the rounding of what was there before.
    """
    q, r = torch.linalg.qr(rows.T.double())
    return q[:, r.diagonal().abs() > threshold].T.to(rows)
