"""Ray transform as an assembled matrix: ASTRA's weights, two CSR tensors, MKL or cuSPARSE."""

import contextlib
import functools
import logging
import math
import warnings
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ct_dip import memory
from ct_dip.errors import BackendError
from ct_dip.geometry import Geometry
from ct_dip.operators import cache
from ct_dip.operators.assembly import assemble, assembly_bytes, choose_kernel, estimate_nonzeros
from ct_dip.operators.ray import RayTransform
from ct_dip.scratch import Scratch, Waiting, in_memory

_log = logging.getLogger(__name__)
_BYTES_PER_NONZERO = 8  # float32 value and int32 index
_SMALL = 2**24  # bytes that are not worth a file
_BLOCK = 2**20  # non-zeros that are on disk together, and in memory while a product reads them
_PART = 2**19  # non-zeros that are taken together in another precision


def estimate_bytes(geometry: Geometry, kernel: str = "auto") -> int:
    """Memory that the transform holds: A and Aᵀ, each with values, indices and row pointers."""
    rows = math.prod(geometry.range_shape) + math.prod(geometry.domain_shape)
    return 2 * _BYTES_PER_NONZERO * estimate_nonzeros(geometry, kernel) + 4 * rows


def waiting_bytes(geometry: Geometry, kernel: str = "auto") -> int:
    """Disk space that the transform takes within `SparseRayTransform.waiting`."""
    size = estimate_bytes(geometry, kernel)
    return size if size > _SMALL else 0


def estimate_peak_bytes(geometry: Geometry, kernel: str = "auto") -> int:
    """Memory that making the transform takes at its peak."""
    # A quarter more: SciPy's copies while it transposes, as measured.
    return int(1.25 * estimate_bytes(geometry, kernel)) + assembly_bytes(geometry, kernel)


class SparseRayTransform(RayTransform):
    """``A x`` by a sparse matrix that is assembled once and kept with its transpose.

    Args:
        geometry: the scan.
        kernel: see `ct_dip.operators.assembly.choose_kernel`.
        memory_budget: bytes, or text such as ``"2G"``; see `ct_dip.memory.memory_budget`.
        device: where the matrix lives; inputs must live there too.

    Raises:
        MemoryBudgetError: before any work, with the estimate.
    """

    def __init__(
        self,
        geometry: Geometry,
        *,
        kernel: str = "auto",
        memory_budget: int | str | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        kernel = choose_kernel(geometry, kernel)
        super().__init__(geometry, kernel)
        self.device = torch.device(device)
        memory.require(
            estimate_peak_bytes(geometry, kernel),
            memory.memory_budget(memory_budget),
            what="the sparse ray transform",
            advice="use the matrix-free backend 'astra'",
        )
        if estimate_nonzeros(geometry, kernel) >= 2**31:
            raise BackendError("the matrix has more than 2³¹ non-zeros; use the matrix-free backend 'astra'")
        matrix = _load_or_assemble(geometry, kernel)
        self.nonzeros = int(matrix.nnz)
        self._matrix = _to_torch(matrix, self.device)
        self._transposed = _to_torch(matrix.T.tocsr(), self.device)

    @property
    def nbytes(self) -> int:
        """Bytes that the matrices hold."""
        return self._matrix.nbytes + self._transposed.nbytes

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Meanwhile the matrices wait on disk, and are in memory only while a product reads them.

        For work whose time goes elsewhere, as into passes of a network. Small matrices stay where they are.
        """
        if self.nbytes <= _SMALL or self._matrix.waits or self.device.type != "cpu":
            yield
            return
        scratch = Scratch()
        try:
            self._matrix = self._matrix.kept_in(scratch)
            self._transposed = self._transposed.kept_in(scratch)
            memory.give_back()
            yield
        finally:
            self._matrix, self._transposed = self._matrix.in_one(), self._transposed.in_one()

    def _forward(self, x: Tensor) -> Tensor:
        return _multiply(self._matrix, x.flatten(1)).reshape(-1, *self.range_shape)

    def _adjoint(self, y: Tensor) -> Tensor:
        return _multiply(self._transposed, y.flatten(1)).reshape(-1, *self.domain_shape)


class _Matrix(NamedTuple):
    """Compressed sparse rows in blocks of rows, of which columns and values may wait on disk.

    Args:
        rows: where every row begins, (rows + 1,).
        cuts: the first row of every block, and where the last one ends.
        columns: of every block; its ``values`` likewise.
        width: columns of the matrix.
    """

    rows: Tensor
    cuts: tuple[int, ...]
    columns: tuple[Tensor | Waiting, ...]
    values: tuple[Tensor | Waiting, ...]
    width: int

    @property
    def nbytes(self) -> int:
        """Bytes of everything, wherever it is."""
        return sum(part.nbytes for part in (self.rows, *self.columns, *self.values))

    @property
    def waits(self) -> bool:
        """Whether anything is on disk."""
        return any(isinstance(part, Waiting) for part in self.values)

    def kept_in(self, scratch: Scratch) -> "_Matrix":
        """The same on disk, in blocks that products have in memory one after another."""
        whole = self.in_one() if len(self.values) > 1 else self  # as after a disk that was full
        (columns,), (values,) = map(in_memory, whole.columns), map(in_memory, whole.values)
        cuts = _cuts(0, len(self.rows) - 1, len(values), _BLOCK)
        where = [slice(int(self.rows[first]), int(self.rows[stop])) for first, stop in pairwise(cuts)]

        def kept(part: Tensor) -> Tensor | Waiting:
            """What is empty would be a view, and hold all of it."""
            return scratch.keep(part) if len(part) else part.clone()

        return self._replace(
            cuts=cuts,
            columns=tuple(kept(columns[own]) for own in where),
            values=tuple(kept(values[own]) for own in where),
        )

    def in_one(self) -> "_Matrix":
        """The same in memory, in one block."""
        return self._replace(
            cuts=(0, len(self.rows) - 1),
            columns=(torch.cat([in_memory(part) for part in self.columns]),),
            values=(torch.cat([in_memory(part) for part in self.values]),),
        )

    def in_precision(self, dtype: torch.dtype) -> Iterator[Tensor]:
        """Some rows after another, for torch's products.

        Where values have to be converted these are few: a second set of all values would be the larger one.
        """
        for number, (first, stop) in enumerate(pairwise(self.cuts)):
            columns, values = in_memory(self.columns[number]), in_memory(self.values[number])
            rows = self.rows[first : stop + 1]
            if first:
                rows = rows - rows[0]
            if values.dtype == dtype:
                yield _csr(rows, columns, values, (stop - first, self.width))
                continue
            for top, bottom in pairwise(_cuts(0, stop - first, len(values), _PART)):
                here = rows[top : bottom + 1]
                own = slice(int(here[0]), int(here[-1]))
                shape = (bottom - top, self.width)
                yield _csr(here - here[0], columns[own], values[own].to(dtype), shape)


def _cuts(first: int, stop: int, nonzeros: int, size: int) -> tuple[int, ...]:
    """Rows in parts of about as many non-zeros as asked for: where each begins, and the last one ends."""
    count = max(1, -(-nonzeros // size))
    return tuple(first + part * (stop - first) // count for part in range(count + 1))


def _multiply(matrix: _Matrix, vectors: Tensor) -> Tensor:
    """(n, columns) → (n, rows), in the precision of the vectors. A single one has its own, faster kernel."""
    _hear_the_warning_of_torch()
    columns = vectors[0] if len(vectors) == 1 else vectors.T.contiguous()
    found = [part @ columns for part in matrix.in_precision(vectors.dtype)]
    whole = found[0] if len(found) == 1 else torch.cat(found)
    return whole[None] if len(vectors) == 1 else whole.T


def _load_or_assemble(geometry: Geometry, kernel: str) -> Any:
    folder = cache.cache_folder()
    if folder is None:
        return assemble(geometry, kernel)
    path = cache.matrix_path(geometry, kernel, folder)
    matrix = cache.load_matrix(path)
    if matrix is None:
        _log.info("assembling the projection matrix of %s", geometry.range_shape)
        matrix = assemble(geometry, kernel)
        cache.store_matrix(path, matrix)
    return matrix


def _to_torch(matrix: Any, device: torch.device) -> _Matrix:
    # int32 indices halve the traffic, and MKL takes them as they are (int64 is converted per call).
    height, width = matrix.shape
    return _Matrix(
        rows=torch.as_tensor(matrix.indptr, dtype=torch.int32).to(device),
        cuts=(0, height),
        columns=(torch.as_tensor(matrix.indices, dtype=torch.int32).to(device),),
        values=(torch.from_numpy(matrix.data).to(device),),
        width=width,
    )


def _csr(rows: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, ...]) -> Tensor:
    return torch.sparse_csr_tensor(rows, columns, values, size=shape, check_invariants=False)


@functools.cache
def _hear_the_warning_of_torch() -> None:
    """That its CSR tensors are in beta; it says so once, and products need not change filters each time."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        _csr(torch.tensor([0, 0]), torch.tensor([], dtype=torch.int64), torch.tensor([]), (1, 1))
