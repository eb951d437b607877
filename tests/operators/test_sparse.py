"""The assembled matrix: its size before it exists, its cache, its memory budget."""

import shutil
import subprocess
import sys
import threading
import time
import warnings
import zipfile

import numpy as np
import pytest
import torch

from ct_dip.errors import MemoryBudgetError, OutputError
from ct_dip.geometry import Volume
from ct_dip.labels import LABEL
from ct_dip.operators import cache, sparse
from ct_dip.operators.assembly import assemble, estimate_nonzeros, matrix_blocks
from ct_dip.operators.sparse import SparseRayTransform, estimate_bytes
from ct_dip.scanners import scanner

GEOMETRY = scanner(Volume(shape=(40, 30), pixel_size=0.5), views=12)
FAN = scanner(Volume(shape=(40, 40)), views=12, source_origin=80.0, origin_detector=40.0)
NEAR = scanner(Volume(shape=(40, 40)), views=12, source_origin=32.0, origin_detector=40.0)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CT_DIP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize(
    ("geometry", "kernel"),
    [
        (GEOMETRY, "line"),
        (GEOMETRY, "linear"),
        (GEOMETRY, "strip"),
        (FAN, "line"),
        (FAN, "strip"),
        (NEAR, "line"),
    ],
)
def test_the_number_of_nonzeros_is_known_beforehand(geometry, kernel):
    actual = assemble(geometry, kernel).nnz
    assert 0.94 * actual < estimate_nonzeros(geometry, kernel) < 1.06 * actual


def test_bytes_are_estimated_and_counted(folder):
    transform = SparseRayTransform(FAN)
    assert 0.94 * transform.nbytes < estimate_bytes(FAN) < 1.06 * transform.nbytes


@pytest.mark.parametrize("part", [1, 1000, 10**6])
@pytest.mark.parametrize("count", [1, 3])
def test_float64_takes_some_rows_after_another(folder, part, count, monkeypatch):
    sizes = []
    made = sparse._csr
    monkeypatch.setattr(sparse, "_PART", part)
    monkeypatch.setattr(sparse, "_csr", lambda *given: sizes.append(len(given[2])) or made(*given))
    transform, matrix = SparseRayTransform(FAN), assemble(FAN, "line").astype(float)
    x, y = np.random.default_rng(0).normal(size=(count, 1600)), np.ones((count, matrix.shape[0]))
    sizes.clear()
    found = transform(torch.as_tensor(x).reshape(-1, *FAN.domain_shape)).flatten(1)
    assert sum(sizes) == matrix.nnz
    assert max(sizes) <= max(2 * part, np.diff(matrix.indptr).max())  # parts have as many rows, not values
    np.testing.assert_allclose(found, x @ matrix.T, rtol=0, atol=1e-12)
    back = transform.T(torch.as_tensor(y).reshape(-1, *FAN.range_shape)).flatten(1)
    np.testing.assert_allclose(back, y @ matrix, rtol=0, atol=1e-12)


def test_products_leave_the_filters_of_warnings_alone(folder):
    transform = SparseRayTransform(FAN)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("default")
        for _ in range(3):
            transform(torch.ones(FAN.domain_shape))
            warnings.warn("once for every place", stacklevel=1)
    assert len(heard) == 1


def test_a_budget_that_is_too_small_is_refused_before_any_work(folder, monkeypatch):
    monkeypatch.setattr("ct_dip.operators.sparse.assemble", lambda *_: pytest.fail("assembled"))
    with pytest.raises(MemoryBudgetError, match=r"needs [\d.]+ MiB, the memory budget is 100 KiB"):
        SparseRayTransform(FAN, memory_budget="100K")


def test_blocks_of_views_make_the_same_matrix(monkeypatch):
    whole = assemble(FAN, "line")
    monkeypatch.setattr("ct_dip.operators.assembly._BLOCK_BYTES", 1)
    assert len(list(matrix_blocks(FAN, "line"))) == FAN.views
    assert (assemble(FAN, "line") != whole).nnz == 0


def test_the_cache_serves_the_same_matrix_again(folder, monkeypatch):
    image = torch.rand(40, 40, generator=torch.Generator().manual_seed(0))
    first = SparseRayTransform(FAN)(image)
    monkeypatch.setattr("ct_dip.operators.sparse.assemble", lambda *_: pytest.fail("not cached"))
    assert torch.equal(SparseRayTransform(FAN)(image), first)


def test_what_a_killed_writer_left_is_removed(folder):
    import os

    SparseRayTransform(GEOMETRY)
    for name, age in ((".matrix-old.npz.1.part", 10_000), (".matrix-new.npz.2.part", 0)):
        (folder / name).touch()
        os.utime(folder / name, (time.time() - age,) * 2)
    SparseRayTransform(FAN)
    assert [p.name for p in folder.glob(".*")] == [".matrix-new.npz.2.part"]


def test_a_damaged_cache_file_is_replaced(folder):
    image = torch.rand(40, 40, generator=torch.Generator().manual_seed(0))
    first = SparseRayTransform(FAN)(image)
    (path,) = folder.iterdir()
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], b"", content[:2000] + b"\0\1" + content[2002:]):
        path.write_bytes(damaged)
        assert torch.equal(SparseRayTransform(FAN)(image), first)
        assert path.read_bytes() == content


def _rewritten(path, **changes):
    with np.load(path) as parts:
        arrays = {name: parts[name] for name in ("data", "indices", "indptr", "shape")}
        label = parts[LABEL] if LABEL in parts.files else None
    for name, change in changes.items():
        arrays[name] = change(arrays[name])
    np.savez(path, **arrays)
    if label is not None:
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(LABEL, label)


@pytest.mark.parametrize(
    "changes",
    [
        {"data": lambda values: 3 * values},
        {"indices": lambda values: values + 10**8},
        {"indptr": lambda values: values[::-1]},
        {"shape": lambda values: values * 1000},
    ],
)
def test_a_cache_file_with_other_content_is_replaced(folder, changes):
    image = torch.rand(40, 40, generator=torch.Generator().manual_seed(0))
    first = SparseRayTransform(FAN)(image)
    (path,) = folder.iterdir()
    content = path.read_bytes()
    _rewritten(path, **changes)
    assert cache.load_matrix(path) is None
    assert torch.equal(SparseRayTransform(FAN)(image), first)
    assert path.read_bytes() == content


def test_a_cache_file_without_or_with_another_label_is_replaced(folder):
    SparseRayTransform(FAN)
    (path,) = folder.iterdir()
    other = path.with_name("matrix-other.npz")
    shutil.copy(path, other)
    assert cache.load_matrix(other) is None
    with np.load(path) as parts:
        arrays = {name: parts[name] for name in ("data", "indices", "indptr", "shape")}
    np.savez(path, **arrays)
    assert cache.load_matrix(path) is None


def test_the_cache_is_its_owners(folder):
    SparseRayTransform(FAN)
    (path,) = folder.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700


def test_other_geometries_kernels_and_versions_are_other_files(folder, monkeypatch):
    names = {cache.matrix_path(g, k, folder) for g in (GEOMETRY, FAN) for k in ("line", "strip")}
    monkeypatch.setattr("astra.__version__", "0.0")
    names.add(cache.matrix_path(FAN, "line", folder))
    assert len(names) == 5


def test_a_cache_that_cannot_be_written_is_an_error_with_a_way_out(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("CT_DIP_CACHE", str(blocked / "cache"))
    with pytest.raises(OutputError, match="CT_DIP_CACHE"):
        SparseRayTransform(FAN)
    monkeypatch.setenv("CT_DIP_CACHE", "off")
    SparseRayTransform(FAN)


def test_the_least_recently_used_matrix_goes_first(folder, monkeypatch):
    import os

    SparseRayTransform(GEOMETRY)
    (old,) = folder.iterdir()
    os.utime(old, (0, 0))
    monkeypatch.setattr(cache, "_LIMIT_BYTES", old.stat().st_size + 1)
    SparseRayTransform(FAN)
    (left,) = folder.iterdir()
    assert left == cache.matrix_path(FAN, "line", folder)


_WRITER = """
from ct_dip.geometry import Volume
from ct_dip.scanners import scanner
from ct_dip.operators import sparse
from ct_dip.operators.sparse import SparseRayTransform
import torch
assemble = sparse.assemble
sparse.assemble = lambda *given: print("assembled") or assemble(*given)
geometry = scanner(Volume(shape=(64, 64)), views=30)
print(float(SparseRayTransform(geometry)(torch.ones(64, 64)).sum()))
"""


def test_of_two_processes_at_once_one_fills_the_cache(folder):
    jobs = [
        subprocess.Popen([sys.executable, "-c", _WRITER], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    answers = [job.communicate(timeout=120)[0].split() for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0]
    assert answers[0][-1] == answers[1][-1]
    assert sorted(len(words) for words in answers) == [1, 2]  # one assembled it, the other waited
    (path,) = folder.iterdir()  # one whole file, no leftovers
    assert cache.load_matrix(path) is not None


def test_the_matrix_holds_intersection_lengths():
    """Rays through the whole volume add up to chords, so a row's sum is the chord of its ray."""
    matrix = assemble(FAN, "line")
    rows = np.asarray(matrix.sum(axis=1)).reshape(FAN.range_shape)
    middle = rows[0, FAN.detectors // 2]  # the central ray of view 0 runs along a column
    assert middle == pytest.approx(40.0, rel=1e-5)


def test_squared_row_norms_are_those_of_the_matrix():
    transform = SparseRayTransform(scanner(Volume(shape=(7, 6)), views=5))
    expected = transform.dense().square().sum(dim=1).reshape(transform.range_shape)
    torch.testing.assert_close(transform.squared_row_norms, expected)


def test_a_matrix_does_not_wait_for_another_one(folder):
    entered = {name: threading.Event() for name in "ab"}

    def enter(name):
        with cache.one_at_a_time(folder / f"matrix-{name}.npz"):
            entered[name].set()

    with cache.one_at_a_time(folder / "matrix-a.npz"):
        threads = [threading.Thread(target=enter, args=name, daemon=True) for name in "ab"]
        for thread in threads:
            thread.start()
        assert entered["b"].wait(10)
        assert not entered["a"].wait(0.1)
    assert entered["a"].wait(10)
    for thread in threads:
        thread.join()
    assert list(folder.iterdir()) == []
