"""Tall matrices that grow while they are made and are met only in products: features, and a sinogram's basis.

They may be the largest things in memory, so they are never copied as a whole: not to be extended, and not to
be multiplied in another precision.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ct_dip import memory
from ct_dip.operators.whitened import Whitened

PART = 32  # rows that are kept, and converted, together


class Rows:
    """Vectors of one length, (n, length), in parts.

    Args:
        parts: (rows, length) each, at least one.
    """

    def __init__(self, parts: Sequence[Tensor]) -> None:
        self.parts = tuple(parts)

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def extended(self, new: Tensor) -> "Rows":
        """With further rows at the end."""
        *before, last = self.parts
        if len(last) + len(new) > PART:
            before, last = [*self.parts], last[:0]
        part = memory.own_pages((len(last) + len(new), new.shape[1]), new)
        return Rows([*before, torch.cat([last, new], out=part)])

    def columns(self, where: slice) -> Tensor:
        """Some columns of all rows."""
        return torch.cat([part[:, where] for part in self.parts])

    def whole(self) -> Tensor:
        """All of them as one tensor."""
        return torch.cat(self.parts)

    def chunks(self, size: int, first: int = 0) -> Iterator[Tensor]:
        """A few rows at a time, from ``first`` on."""
        count = len(self)
        for start in range(first, count, size):
            yield self._range(start, min(start + size, count))

    def _range(self, first: int, stop: int) -> Tensor:
        found = []
        for part in self.parts:
            found.append(part[max(0, first) : max(0, stop)])
            first, stop = first - len(part), stop - len(part)
        found = [part for part in found if len(part)]
        return found[0] if len(found) == 1 else torch.cat(found)

    def last(self, count: int) -> Tensor:
        """The last rows, or all if there are fewer."""
        return self._range(max(0, len(self) - count), len(self))

    def combine(self, coefficients: Tensor) -> Tensor:
        """``c R``, (k, n) → (k, length), in the precision of c."""
        total = coefficients.new_zeros(len(coefficients), self.parts[0].shape[1])
        sizes = [len(part) for part in self.parts]
        for part, own in zip(self.parts, torch.split(coefficients, sizes, dim=1), strict=True):
            total.addmm_(own, part.to(total))
        return total

    def inner(self, vectors: Tensor) -> Tensor:
        """``v Rᵀ``, (k, length) → (k, n), in the precision of v."""
        return torch.cat([vectors @ part.to(vectors).T for part in self.parts], dim=1)


def kept_as_images(measurements: int, pixels: int) -> bool:
    """Whether images take less memory than columns: they are kept in float64, columns in float32."""
    return 2 * pixels < measurements


def column_bytes(measurements: int, pixels: int) -> int:
    """What is kept of a column."""
    return 8 * pixels if kept_as_images(measurements, pixels) else 4 * measurements


class Columns(NamedTuple):
    """Some sinograms as columns ``C``, (measurements, n), by their products.

    Where there are far more measurements than pixels, images U are kept in their place, with ``C = B U``: all
    that a network can explain is in the range of B. They, and products
    with them, are in float64: B is so ill-conditioned that those of float32 would not be orthogonal.

    Args:
        rows: Cᵀ or Uᵀ.
        whitened: B if images are kept, otherwise ``None``.
    """

    rows: Rows
    whitened: Whitened | None = None

    @property
    def rank(self) -> int:
        """How many columns."""
        return len(self.rows)

    def measured(self, rows: Tensor) -> Tensor:
        """Columns (measurements, n) of what is kept of them, (n, …)."""
        if self.whitened is None:
            return rows.T
        return self.whitened.project(rows.double())

    def __matmul__(self, coefficients: Tensor) -> Tensor:
        """``C c``, (rank, k) → (measurements, k), in the precision of c."""
        wide = coefficients if self.whitened is None else coefficients.double()
        return self.measured(self.rows.combine(wide.T)).to(coefficients)

    def inner(self, columns: Tensor) -> Tensor:
        """``Cᵀ v``, (measurements, k) → (rank, k), in the precision of v."""
        vectors = columns.T
        if self.whitened is not None:
            vectors = self.whitened.back_project(columns.double())
        return self.rows.inner(vectors).T.to(columns)

    def outside(self, rows: Tensor, measured: Tensor | None = None) -> Tensor:
        """``(I − C Cᵀ) v`` for columns v of which the same is kept as of these, if these are orthonormal.

        Args:
            measured: v, if it is known.
        """
        columns = self.measured(rows) if measured is None else measured
        return rows - self.rows.combine(self.inner(columns).T)

    def of(self, rows: Tensor) -> "Columns":
        """Others, of which the same is kept."""
        return self._replace(rows=Rows([rows]))

    def extended(self, rows: Tensor) -> "Columns":
        """With further columns, of which the same is kept."""
        return self._replace(rows=self.rows.extended(rows))
