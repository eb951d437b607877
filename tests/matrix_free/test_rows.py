"""Matrices in parts: the same numbers as in one piece, however they grew."""

import pytest
import torch

from ct_dip.matrix_free import rows as module
from ct_dip.matrix_free.rows import Columns, Rows
from tests.matrix_free.dense import MANY, configured, problem_of


@pytest.fixture(params=[1, 4, 100])
def grown(request, monkeypatch):
    """(rows in parts of a few, the same as one tensor)."""
    monkeypatch.setattr(module, "PART", request.param)
    whole = torch.randn(13, 6, generator=torch.Generator().manual_seed(0))
    rows = Rows([whole[:0]])
    for piece in torch.split(whole, [3, 1, 5, 2, 2]):
        rows = rows.extended(piece)
    return rows, whole


def test_growing(grown):
    rows, whole = grown
    assert len(rows) == 13
    assert torch.equal(rows.whole(), whole)
    assert torch.equal(rows.columns(slice(1, 4)), whole[:, 1:4])


@pytest.mark.parametrize("size", [1, 3, 5, 50])
@pytest.mark.parametrize("first", [0, 2, 4, 12, 13])
def test_chunks_do_not_depend_on_the_parts(grown, size, first):
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


def test_images_stand_for_the_columns_that_are_measured_of_them():
    problem = problem_of(configured("none"), views=MANY)
    images = torch.randn(4, problem.pixels, dtype=torch.float64)
    columns, written = Columns(Rows([images]), problem.whitened), problem.whitened.dense() @ images.T
    c, v = torch.randn(4, 2).double(), torch.randn(problem.measurements, 2).double()
    torch.testing.assert_close(columns @ c, written @ c)
    torch.testing.assert_close(columns.inner(v), written.T @ v)
    new = torch.randn(3, problem.pixels, dtype=torch.float64)
    outside = columns.measured(columns.outside(new))
    measured = problem.whitened.dense() @ new.T
    torch.testing.assert_close(outside, measured - written @ (written.T @ measured))
