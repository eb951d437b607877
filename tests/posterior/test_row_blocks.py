"""Matrices in blocks of rows: the same numbers as in one piece, however they grew."""

import pytest
import torch

from ct_dip.posterior import row_blocks
from ct_dip.posterior.row_blocks import RowBlocks


@pytest.fixture(params=[1, 4, 100])
def grown(request, monkeypatch):
    """(rows in blocks of a few; the same as one tensor)."""
    monkeypatch.setattr(row_blocks, "BLOCK", request.param)
    whole = torch.randn(13, 6, generator=torch.Generator().manual_seed(0))
    rows = RowBlocks((whole[:0],))
    for piece in torch.split(whole, [3, 1, 5, 2, 2]):
        rows = rows.extended(piece)
    return rows, whole


def test_growing(grown):
    rows, whole = grown
    assert len(rows) == 13
    assert torch.equal(rows.whole(), whole)
    assert torch.equal(rows.columns(slice(1, 4)), whole[:, 1:4])


def test_coefficients_must_be_as_many_as_the_rows(grown):
    rows, _ = grown
    with pytest.raises(AssertionError):
        rows.combine(torch.zeros(2, 14))


@pytest.mark.parametrize("size", [1, 3, 5, 50])
@pytest.mark.parametrize("first", [0, 2, 4, 12, 13])
def test_chunks_do_not_depend_on_the_blocks(grown, size, first):
    rows, whole = grown
    chunks = list(rows.chunks(size, first))
    assert all(len(chunk) == size for chunk in chunks[:-1])
    assert torch.equal(torch.cat([*chunks, whole[:0]]), whole[first:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products(grown, dtype):
    rows, whole = grown
    wide = whole.to(dtype)
    c, v = torch.randn(2, 13, dtype=dtype), torch.randn(2, 6, dtype=dtype)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-13
    torch.testing.assert_close(rows.combine(c), c @ wide, rtol=0, atol=tolerance)
    torch.testing.assert_close(rows.inner(v), v @ wide.T, rtol=0, atol=tolerance)


def test_what_is_outside_of_orthonormal_rows():
    q = torch.linalg.qr(torch.randn(6, 4, generator=torch.Generator().manual_seed(0))).Q.T
    rows = RowBlocks((q[:1], q[1:]))
    v = torch.randn(3, 6, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(rows.outside(v), v - v @ q.T @ q)
    torch.testing.assert_close(rows.outside(q), torch.zeros(4, 6), rtol=0, atol=1e-6)
