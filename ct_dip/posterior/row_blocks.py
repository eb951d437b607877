"""Tall matrices that grow while they are made and are met only in products: features, and a sinogram's basis.

They may be the largest things in memory, so they are never copied as a whole: not to be extended, and not to
be multiplied in another precision. Where a GPU has no room for them their blocks stay in the host's memory,
and each is copied to the GPU for every product.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

BLOCK = 32  # rows that are kept, and converted, together


@dataclass(frozen=True, eq=False)
class RowBlocks:
    """A matrix R, (n, length), in blocks of rows, (rows, length) each; there is at least one.

    Args:
        used_on: device of the products, if the blocks are kept on another one.
    """

    blocks: tuple[Tensor, ...]
    used_on: torch.device | None = None

    def __len__(self) -> int:
        return sum(len(block) for block in self.blocks)

    @property
    def length(self) -> int:
        """Entries of every row."""
        return self.blocks[0].shape[1]

    @property
    def device(self) -> torch.device:
        """Device of the products."""
        return self.used_on or self.blocks[0].device

    def extended(self, rows: Tensor) -> "RowBlocks":
        """Append rows: to the last block if they fit there, else as a block of their own."""
        rows = rows.to(self.blocks[0].device)
        if len(self.blocks[-1]) + len(rows) <= BLOCK:
            return replace(self, blocks=(*self.blocks[:-1], torch.cat([self.blocks[-1], rows])))
        return replace(self, blocks=(*self.blocks, rows.clone()))  # they may be a view of much more

    def columns(self, where: slice) -> Tensor:
        """Return some columns of all rows."""
        return torch.cat([block[:, where] for block in self.blocks]).to(self.device)

    def whole(self) -> Tensor:
        """Return all rows as one tensor."""
        return torch.cat(self.blocks).to(self.device)

    def chunks(self, size: int, first: int = 0) -> Iterator[Tensor]:
        """Yield a few rows at a time, from ``first`` on."""
        for start in range(first, len(self), size):
            yield self._range(start, start + size)

    def last(self, count: int) -> Tensor:
        """Return the last rows, or all if there are fewer."""
        return self._range(max(0, len(self) - count), len(self))

    def _range(self, first: int, stop: int) -> Tensor:
        inside = []
        for own, block in self._numbered():
            if first < own.stop and stop > own.start:
                inside.append(block[max(0, first - own.start) : stop - own.start])
        return (inside[0] if len(inside) == 1 else torch.cat(inside)).to(self.device)

    def combine(self, coefficients: Tensor) -> Tensor:
        """Return ``c R``, (k, n) → (k, length), in the precision of c."""
        assert coefficients.shape[1] == len(self)
        total = coefficients.new_zeros(len(coefficients), self.length)
        for own, block in self._numbered():
            total.addmm_(coefficients[:, own], block.to(total))
        return total

    def inner(self, vectors: Tensor) -> Tensor:
        """Return ``v Rᵀ``, (k, length) → (k, n), in the precision of v."""
        return torch.cat([vectors @ block.to(vectors).T for block in self.blocks], dim=1)

    def outside(self, vectors: Tensor) -> Tensor:
        """Return what vectors (k, length) have outside of the span of the rows, if these are orthonormal."""
        return vectors - self.combine(self.inner(vectors))

    def _numbered(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield every block with the rows that it holds."""
        first = 0
        for block in self.blocks:
            yield slice(first, first + len(block)), block
            first += len(block)
