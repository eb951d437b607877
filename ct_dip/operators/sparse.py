"""Ray transform as an assembled matrix: ASTRA's weights, two CSR tensors, MKL or cuSPARSE."""

import functools
import logging
import math
import warnings
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ct_dip import memory
from ct_dip.errors import BackendError
from ct_dip.geometry import Geometry
from ct_dip.operators import cache
from ct_dip.operators.assembly import assemble, assembly_bytes, choose_kernel, estimate_nonzeros
from ct_dip.operators.ray import RayTransform

_log = logging.getLogger(__name__)
_BYTES_PER_NONZERO = 8  # float32 value and int32 index
_PART = 2**19  # non-zeros that are converted together to another precision


def estimate_bytes(geometry: Geometry, kernel: str = "auto") -> int:
    """Estimate the memory of the transform: A and Aᵀ, each with values, indices and row pointers."""
    rows = math.prod(geometry.range_shape) + math.prod(geometry.domain_shape)
    return 2 * _BYTES_PER_NONZERO * estimate_nonzeros(geometry, kernel) + 4 * rows


def estimate_peak_bytes(geometry: Geometry, kernel: str = "auto") -> int:
    """Estimate the peak memory of making the transform."""
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
        return _nbytes(self._matrix) + _nbytes(self._transposed)

    @functools.cached_property
    def squared_row_norms(self) -> Tensor:
        """``Σ_j A_ij²`` of every measurement, (views, detectors), float64."""
        ones = torch.ones(self.shape[1], dtype=torch.float64, device=self.device)
        parts = []
        for rows in _converted(self._matrix, torch.float64):
            squares = _csr(rows.crow_indices(), rows.col_indices(), rows.values().square(), rows.shape)
            parts.append(squares @ ones)
        return torch.cat(parts).reshape(self.range_shape)

    def _forward(self, x: Tensor) -> Tensor:
        return _multiply(self._matrix, x.flatten(1)).reshape(-1, *self.range_shape)

    def _adjoint(self, y: Tensor) -> Tensor:
        return _multiply(self._transposed, y.flatten(1)).reshape(-1, *self.domain_shape)


def _multiply(matrix: Tensor, vectors: Tensor) -> Tensor:
    """Map (n, columns) → (n, rows) in the precision of the vectors; a single one has a faster kernel."""
    columns = vectors[0] if len(vectors) == 1 else vectors.T.contiguous()
    if matrix.dtype == vectors.dtype:
        product = matrix @ columns
    else:
        product = torch.cat([rows @ columns for rows in _converted(matrix, vectors.dtype)])
    return product[None] if len(vectors) == 1 else product.T


def _converted(matrix: Tensor, dtype: torch.dtype) -> Iterator[Tensor]:
    """Yield consecutive blocks of rows in another precision: all values at once would double the memory."""
    starts, columns, values = matrix.crow_indices(), matrix.col_indices(), matrix.values()
    height, width = matrix.shape
    count = max(1, -(-len(values) // _PART))
    for first, stop in pairwise(block * height // count for block in range(count + 1)):
        block = starts[first : stop + 1]
        own = slice(int(block[0]), int(block[-1]))
        yield _csr(block - block[0], columns[own], values[own].to(dtype), (stop - first, width))


def _nbytes(matrix: Tensor) -> int:
    return sum(part.nbytes for part in (matrix.crow_indices(), matrix.col_indices(), matrix.values()))


def _load_or_assemble(geometry: Geometry, kernel: str) -> Any:
    folder = cache.cache_folder()
    if folder is None:
        return assemble(geometry, kernel)
    path = cache.matrix_path(geometry, kernel, folder)
    matrix = cache.load_matrix(path)
    if matrix is not None:
        return matrix
    with cache.one_at_a_time(path):
        matrix = cache.load_matrix(path)
        if matrix is None:
            _log.info("assembling the projection matrix of %s", geometry.range_shape)
            matrix = assemble(geometry, kernel)
            cache.store_matrix(path, matrix)
    return matrix


def _to_torch(matrix: Any, device: torch.device) -> Tensor:
    # int32 indices halve the traffic, and MKL takes them as they are (int64 is converted per call).
    starts, columns = (torch.as_tensor(part, dtype=torch.int32) for part in (matrix.indptr, matrix.indices))
    return _csr(starts.to(device), columns.to(device), torch.from_numpy(matrix.data).to(device), matrix.shape)


def _csr(starts: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, ...]) -> Tensor:
    _consume_beta_warning()
    return torch.sparse_csr_tensor(starts, columns, values, size=shape, check_invariants=False)


@functools.cache
def _consume_beta_warning() -> None:
    """Let torch warn, as it does once per process, that CSR tensors are in beta, where nobody hears it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        none = torch.tensor([], dtype=torch.int64)
        torch.sparse_csr_tensor(torch.tensor([0, 0]), none, none, size=(1, 1), check_invariants=False)
