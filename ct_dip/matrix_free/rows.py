"""Tall matrices that grow while they are made and are met only in products: features, and a sinogram's basis.

They may be the largest things in memory, so they are never copied as a whole: not to be extended, and not to
be multiplied in another precision. A basis is read from one end to the other, some times for every batch of
network passes; so most of it waits on disk, and what it takes in memory does not grow with the image.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ct_dip import memory
from ct_dip.scratch import Scratch, Waiting, in_memory

PART = 32  # rows that are kept, and converted, together
IN_MEMORY = 2**24  # bytes of the first rows that stay there, of those that may wait on disk
_CONVERTED = 2**23  # bytes that are in another precision at once


class Rows:
    """Vectors of one length, (n, length), in parts.

    Args:
        parts: (rows, length) each, at least one.
        scratch: where parts beyond `IN_MEMORY` wait; ``None`` if all are in memory.
    """

    def __init__(self, parts: Sequence[Tensor | Waiting], scratch: Scratch | None = None) -> None:
        self.parts, self.scratch = tuple(parts), scratch

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    @property
    def length(self) -> int:
        """Of every vector."""
        return self.parts[0].shape[1]

    @property
    def device(self) -> torch.device:
        """Of every vector, once it is loaded."""
        first = self.parts[0]
        return torch.device("cpu") if isinstance(first, Waiting) else first.device

    def extended(self, new: Tensor) -> "Rows":
        """With further rows at the end."""
        before, last = self, new[:0]
        if len(self.parts[-1]) + len(new) <= PART:
            before, last = self.first_parts(len(self.parts) - 1), in_memory(self.parts[-1])
        part = memory.own_pages((len(last) + len(new), new.shape[1]), new)
        return before.with_part(torch.cat([last, new], out=part))

    def first_parts(self, count: int) -> "Rows":
        """Those of the first parts."""
        return Rows(self.parts[:count], self.scratch)

    def with_part(self, part: Tensor) -> "Rows":
        """With further rows at the end, as a part of their own."""
        before = sum(each.nbytes for each in self.parts)
        if self.scratch is None or before + part.nbytes <= IN_MEMORY:
            return Rows([*self.parts, part], self.scratch)
        return Rows([*self.parts, self.scratch.keep(part)], self.scratch)

    def columns(self, where: slice) -> Tensor:
        """Some columns of all rows."""
        return torch.cat([in_memory(part)[:, where] for part in self.parts])

    def whole(self) -> Tensor:
        """All of them as one tensor."""
        return self.columns(slice(None))

    def chunks(self, size: int, first: int = 0) -> Iterator[Tensor]:
        """A few rows at a time, from ``first`` on."""
        count = len(self)
        for start in range(first, count, size):
            yield self._range(start, min(start + size, count))

    def _range(self, first: int, stop: int) -> Tensor:
        found = []
        for part in self.parts:
            if first < len(part) and stop > 0:
                found.append(in_memory(part)[max(0, first) : stop])
            first, stop = first - len(part), stop - len(part)
        return found[0] if len(found) == 1 else torch.cat(found)

    def last(self, count: int) -> Tensor:
        """The last rows, or all if there are fewer."""
        return self._range(max(0, len(self) - count), len(self))

    def combine(self, coefficients: Tensor) -> Tensor:
        """``c R``, (k, n) → (k, length), in the precision of c."""
        assert coefficients.shape[1] == len(self)
        total = coefficients.new_zeros(len(coefficients), self.length)
        for own, part in self._in_precision_of(coefficients):
            total.addmm_(coefficients[:, own], part)
        return total

    def inner(self, vectors: Tensor) -> Tensor:
        """``v Rᵀ``, (k, length) → (k, n), in the precision of v."""
        found = vectors.new_empty(len(vectors), len(self))
        for own, part in self._in_precision_of(vectors):
            found[:, own] = vectors @ part.T
        return found

    def _in_precision_of(self, like: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Some rows after another: which they are, and themselves, until the next ones are asked for."""
        first = 0
        for rows in self._converted(like):
            yield slice(first, first + len(rows)), rows
            first += len(rows)

    def _converted(self, like: Tensor) -> Iterator[Tensor]:
        """Those that have another precision share an array.

        One for each would leave holes in the heap, of 0.15 GB in all at 256².
        """
        shared = None
        for part in map(in_memory, self.parts):
            if part.dtype == like.dtype:
                yield part
                continue
            if shared is None:
                rows = max(1, min(PART, _CONVERTED // (self.length * like.element_size())))
                shared = memory.own_pages((rows, self.length), like)
            for piece in torch.split(part, len(shared)):
                yield shared[: len(piece)].copy_(piece)


def basis_bytes(rank: int, measurements: int) -> int:
    """What a basis takes in memory, if the disk has room for the rest."""
    return min(4 * rank * measurements, IN_MEMORY)


class Columns(NamedTuple):
    """Some sinograms as columns ``C``, (measurements, n), by their products; ``rows`` are Cᵀ."""

    rows: Rows

    @property
    def rank(self) -> int:
        """How many columns."""
        return len(self.rows)

    def __matmul__(self, coefficients: Tensor) -> Tensor:
        """``C c``, (rank, k) → (measurements, k), in the precision of c."""
        return self.rows.combine(coefficients.T).T

    def inner(self, columns: Tensor) -> Tensor:
        """``Cᵀ v``, (measurements, k) → (rank, k), in the precision of v."""
        return self.rows.inner(columns.T).T

    def outside(self, rows: Tensor) -> Tensor:
        """``(I − C Cᵀ) v`` for columns v that are given as rows, if these are orthonormal."""
        return rows - self.rows.combine(self.rows.inner(rows))

    def extended(self, rows: Tensor) -> "Columns":
        """With further columns, given as rows."""
        return Columns(self.rows.extended(rows))
