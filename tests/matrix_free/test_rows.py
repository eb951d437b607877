"""Matrices in parts: the same numbers as in one piece, however they grew."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ct_dip.matrix_free import rows as module
from ct_dip.matrix_free.rows import Columns, Rows
from ct_dip.scratch import Scratch, Waiting


@pytest.fixture(params=[(1, None), (4, None), (100, None), (1, 0), (4, 0), (4, 120), (100, 200)])
def grown(request, monkeypatch):
    """(rows in parts of a few, of which some may wait on disk; the same as one tensor)."""
    part, in_memory = request.param
    monkeypatch.setattr(module, "PART", part)
    monkeypatch.setattr(module, "IN_MEMORY", in_memory)
    whole = torch.randn(13, 6, generator=torch.Generator().manual_seed(0))
    rows = Rows([whole[:0]], None if in_memory is None else Scratch())
    for piece in torch.split(whole, [3, 1, 5, 2, 2]):
        rows = rows.extended(piece)
    return rows, whole


def test_growing(grown):
    rows, whole = grown
    assert len(rows) == 13
    assert torch.equal(rows.whole(), whole)
    assert torch.equal(rows.columns(slice(1, 4)), whole[:, 1:4])


def test_only_what_is_beyond_the_limit_waits_on_disk(monkeypatch):
    monkeypatch.setattr(module, "IN_MEMORY", 300)
    monkeypatch.setattr(module, "PART", 4)
    rows = Rows([torch.zeros(0, 6)], Scratch())
    for _ in range(4):
        rows = rows.extended(torch.ones(4, 6))  # 96 bytes
    assert [isinstance(part, Waiting) for part in rows.parts] == [False, False, False, True]


def test_where_the_disk_is_full_they_stay_in_memory(monkeypatch):
    monkeypatch.setattr(module, "IN_MEMORY", 0)
    monkeypatch.setattr(module, "PART", 1)
    scratch, whole = Scratch(), torch.randn(4, 6)
    rows = Rows([whole[:0]], scratch)
    for k, row in enumerate(whole):
        monkeypatch.setattr(scratch, "keep", (lambda t: t) if k % 2 else Scratch().keep)
        rows = rows.extended(row[None])
    assert [isinstance(part, Waiting) for part in rows.parts[1:]] == [False, True, False]
    assert torch.equal(rows.whole(), whole)
    torch.testing.assert_close(rows.combine(torch.eye(4).double()), whole.double())


def test_coefficients_must_be_as_many_as_the_rows(grown):
    rows, _ = grown
    with pytest.raises(AssertionError):
        rows.combine(torch.zeros(2, 14))


@pytest.mark.parametrize("size", [1, 3, 5, 50])
@pytest.mark.parametrize("first", [0, 2, 4, 12, 13])
def test_chunks_do_not_depend_on_the_parts(grown, size, first):
    rows, whole = grown
    chunks = list(rows.chunks(size, first))
    assert all(len(chunk) == size for chunk in chunks[:-1])
    assert torch.equal(torch.cat([*chunks, whole[:0]]), whole[first:])


@pytest.mark.parametrize("together", [2**23, 150, 1], ids=["all", "some", "one"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products(grown, dtype, together, monkeypatch):
    monkeypatch.setattr(module, "_CONVERTED", together)
    rows, whole = grown
    wide = whole.to(dtype)
    c, v = torch.randn(2, 13, dtype=dtype), torch.randn(2, 6, dtype=dtype)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-13
    torch.testing.assert_close(rows.combine(c), c @ wide, rtol=0, atol=tolerance)
    torch.testing.assert_close(rows.inner(v), v @ wide.T, rtol=0, atol=tolerance)


def test_rows_stand_for_columns(grown):
    rows, whole = grown
    columns, written = Columns(rows), whole.T.double()
    c, v = torch.randn(13, 2).double(), torch.randn(6, 2).double()
    assert columns.rank == 13
    torch.testing.assert_close(columns @ c, written @ c)
    torch.testing.assert_close(columns.inner(v), written.T @ v)
    torch.testing.assert_close(columns.outside(v.T).T, v - written @ (written.T @ v))


MEMORY = """if True:
    import re
    from pathlib import Path
    import torch
    from ct_dip.matrix_free.rows import Rows
    from ct_dip.memory import keep_freed, kept_up_to
    from ct_dip.scratch import Scratch
    keep_freed()
    def held():
        return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 2**10  # MiB
    new, vectors = torch.ones(32, 21780), torch.ones(32, 21780, dtype=torch.float64)  # as of 256², 60 views
    def grown(count):
        rows = Rows([torch.zeros(0, 21780)], {scratch})
        for _ in range(count):
            rows = rows.extended(new)
        return rows
    grown(1).inner(vectors)  # so that torch is warm
    before = held()
    rows = grown(40)
    extended = held()
    with kept_up_to(10 * 2**20):
        found = rows.inner(vectors)
        print(extended - before, held() - extended, bool((found == 21780).all()))
"""


def taken(scratch):
    """MiB that 106 of rows take while they grow, and what a product of theirs in float64 leaves behind."""
    if not Path("/proc/self/status").exists():
        pytest.skip("only Linux says what a process holds")
    program = MEMORY.replace("{scratch}", scratch)
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    growth, product, right = out.split()
    assert right == "True"
    return float(growth), float(product)


def test_rows_that_wait_take_no_memory():
    growth, _ = taken("Scratch()")
    assert growth < module.IN_MEMORY / 2**20 + 8  # and a part that comes and goes


def test_products_in_another_precision_leave_no_holes():
    growth, product = taken("None")
    assert growth > 100
    assert product < 20  # with an array for every part 200 where the C library is glibc
