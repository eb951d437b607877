"""Tensors that wait on disk come back as they were, and leave nothing behind."""

import errno
import gc
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from ct_dip import scratch as module
from ct_dip.scratch import Scratch, Waiting


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32])
@pytest.mark.parametrize("shape", [(3, 5), (7,), (300, 40)])
def test_they_come_back_as_they_were(shape, dtype):
    scratch = Scratch()
    tensors = [(torch.randn(shape) * 100).to(dtype) for _ in range(3)]
    waiting = [scratch.keep(tensor) for tensor in tensors]
    for tensor, other in reversed(list(zip(tensors, waiting, strict=True))):
        assert isinstance(other, Waiting)
        assert len(other) == len(tensor)
        assert other.nbytes == tensor.nbytes
        assert torch.equal(other.load(), tensor)
        assert np.array_equal(np.asarray(other), tensor.numpy())


def test_nothing_is_left_as_it_is():
    tensor = torch.zeros(0, 5)
    assert Scratch().keep(tensor) is tensor


def test_what_is_not_contiguous_is_kept_in_its_order():
    tensor = torch.arange(12.0).reshape(3, 4).T[1:]
    found = Scratch().keep(tensor)
    assert torch.equal(found.load(), tensor)


def test_nobody_sees_the_file_and_it_goes_with_its_last_user(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    descriptors = Path("/proc/self/fd")
    if not descriptors.exists():
        pytest.skip("only Linux says which files are open")

    def held():
        links = [str(each.readlink()) for each in descriptors.iterdir() if each.is_symlink()]
        return sum(link.startswith(str(tmp_path)) for link in links)

    waiting = Scratch().keep(torch.ones(1000))
    assert not list(tmp_path.iterdir())
    assert held() == 1
    assert float(waiting.load().sum()) == 1000  # it needs no more than what was returned
    del waiting
    gc.collect()
    assert held() == 0


@pytest.mark.parametrize("at", ["open", "write"])
def test_a_disk_that_refuses_leaves_it_in_memory_and_that_is_told(monkeypatch, caplog, at):
    class Full:
        def seek(self, offset):
            pass

        def write(self, part):
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self):
            pass

    def open_(**_):
        if at == "open":
            raise OSError(errno.EROFS, "Read-only file system")
        return Full()

    monkeypatch.setattr(module.tempfile, "TemporaryFile", open_)
    tensor = torch.ones(5)
    assert Scratch().keep(tensor) is tensor
    assert "stays in memory" in caplog.text


def test_partial_writes_are_continued(monkeypatch):
    """The system may take less than it was given."""
    real = module.tempfile.TemporaryFile

    class Slow:
        def __init__(self, **arguments):
            self.file = real(**arguments)
            self.seek, self.close, self.fileno = self.file.seek, self.file.close, self.file.fileno

        def write(self, part):
            return self.file.write(part[:7])

    monkeypatch.setattr(module.tempfile, "TemporaryFile", Slow)
    tensor = torch.randn(40)
    assert torch.equal(Scratch().keep(tensor).load(), tensor)


def test_pages_are_held_only_while_they_are_read():
    smaps = Path("/proc/self/smaps_rollup")
    if not smaps.exists():
        pytest.skip("only Linux says what a process holds")

    def held():
        return int(re.search(r"Rss:\s+(\d+)", smaps.read_text())[1]) / 2**10  # MiB

    waiting = Scratch().keep(torch.ones(2**23))  # 32 MiB
    before = held()
    with waiting.mapped() as tensor:
        assert float(tensor.sum()) == 2**23
        during = held()
    assert during - before > 30
    assert held() - before < 2


def test_where_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert module.scratch_folder() == tmp_path
    monkeypatch.setenv("TMPDIR", str(tmp_path / "nowhere"))
    assert module.scratch_folder() != tmp_path / "nowhere"
