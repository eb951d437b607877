"""Ray transform as an assembled matrix: ASTRA's weights, two CSR tensors, MKL or cuSPARSE."""

import contextlib
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
        pair = self._matrix, self._transposed
        return sum(part.nbytes for m in pair for part in (m.values, m.columns, m.rows))

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Meanwhile the matrices wait on disk, and are in memory only while a product reads them.

        For work whose time goes elsewhere, as into passes of a network. Small matrices stay where they are.
        """
        if self.nbytes > _SMALL:
            scratch = Scratch()
            self._matrix = self._matrix.kept_in(scratch)
            self._transposed = self._transposed.kept_in(scratch)
            memory.give_back()
        try:
            yield
        finally:
            self._matrix, self._transposed = self._matrix.loaded(), self._transposed.loaded()

    def _forward(self, x: Tensor) -> Tensor:
        return _multiply(self._matrix, x.flatten(1)).reshape(-1, *self.range_shape)

    def _adjoint(self, y: Tensor) -> Tensor:
        return _multiply(self._transposed, y.flatten(1)).reshape(-1, *self.domain_shape)


class _Matrix(NamedTuple):
    """Compressed sparse rows, of which all but where each row begins may wait on disk."""

    rows: Tensor
    columns: Tensor | Waiting
    values: Tensor | Waiting
    shape: tuple[int, ...]

    def kept_in(self, scratch: Scratch) -> "_Matrix":
        """The same on disk; the one in memory is free when nobody has it any more."""
        values = scratch.keep(in_memory(self.values))
        return self._replace(columns=scratch.keep(in_memory(self.columns)), values=values)

    def loaded(self) -> "_Matrix":
        """The same in memory."""
        columns, values = (
            part.mapped().clone() if isinstance(part, Waiting) else part
            for part in (self.columns, self.values)
        )
        return self._replace(columns=columns, values=values)

    def in_dtype(self, dtype: torch.dtype) -> Iterator[Tensor]:
        """The matrix for torch's products, or, in another precision, some rows of it after another.

        A second set of all values would be the larger one.
        """
        columns, values = in_memory(self.columns), in_memory(self.values)
        if values.dtype == dtype:
            yield _csr(self.rows, columns, values, self.shape)
            return
        count = max(1, -(-len(values) // _PART))
        height = self.shape[0]
        for first, stop in pairwise(part * height // count for part in range(count + 1)):
            own = self.rows[first : stop + 1]
            where = slice(int(own[0]), int(own[-1]))
            yield _csr(own - own[0], columns[where], values[where].to(dtype), (stop - first, self.shape[1]))


def _multiply(matrix: _Matrix, vectors: Tensor) -> Tensor:
    """(n, columns) → (n, rows), in the precision of the vectors. A single one has its own, faster kernel."""
    columns = vectors[0] if len(vectors) == 1 else vectors.T
    if vectors.dtype != matrix.values.dtype:
        columns = columns.contiguous()  # else torch copies them for every part
    found = [part @ columns for part in matrix.in_dtype(vectors.dtype)]
    whole = found[0] if len(found) == 1 else torch.cat(found)
    return whole.T if len(vectors) != 1 else whole[None]


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
    return _Matrix(
        torch.as_tensor(matrix.indptr, dtype=torch.int32).to(device),
        torch.as_tensor(matrix.indices, dtype=torch.int32).to(device),
        torch.from_numpy(matrix.data).to(device),
        matrix.shape,
    )


def _csr(rows: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, ...]) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(rows, columns, values, size=shape, check_invariants=False)
