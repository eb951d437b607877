"""Tensors that wait on disk come back as they were, and leave nothing behind."""

import copy
import errno
import gc
import os
import pickle
import re
import tempfile
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
        assert torch.equal(other.mapped(), tensor)
        assert np.array_equal(np.asarray(other), tensor.numpy())


def test_nothing_is_left_as_it_is():
    tensor = torch.zeros(0, 5)
    assert Scratch().keep(tensor) is tensor


def test_what_is_not_contiguous_is_kept_in_its_order():
    tensor = torch.arange(12.0).reshape(3, 4).T[1:]
    found = Scratch().keep(tensor)
    assert torch.equal(found.mapped(), tensor)


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
    assert float(waiting.mapped().sum()) == 1000  # it needs no more than what was returned
    del waiting
    gc.collect()
    assert held() == 0


def test_many_of_them_need_one_descriptor():
    descriptors = Path("/proc/self/fd")
    if not descriptors.exists():
        pytest.skip("only Linux says which files are open")
    scratch, before = Scratch(), len(list(descriptors.iterdir()))
    waiting = [scratch.keep(torch.full((10,), float(k))) for k in range(50)]
    assert len(list(descriptors.iterdir())) <= before + 1
    assert [float(each.mapped()[3]) for each in waiting] == list(range(50))


def test_writing_to_one_changes_a_copy_alone():
    waiting = Scratch().keep(torch.zeros(5))
    waiting.mapped().fill_(1.0)
    assert float(waiting.mapped().sum()) == 0


def test_copies_are_in_memory():
    scratch, tensor = Scratch(), torch.randn(5)
    waiting = scratch.keep(tensor)
    for copied in (copy.deepcopy(waiting), pickle.loads(pickle.dumps(waiting))):
        assert torch.equal(copied, tensor)
    assert torch.equal(copy.deepcopy(scratch).keep(tensor).mapped(), tensor)  # a file of its own


real_file = tempfile.TemporaryFile


class Faulty:
    """A file that takes no more than some bytes."""

    def __init__(self, room, **arguments):
        self.file, self.room = real_file(**arguments), room
        self.seek, self.close, self.fileno = self.file.seek, self.file.close, self.file.fileno
        self.truncate = self.file.truncate

    def write(self, part):
        left = self.room - self.file.tell()
        if left <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.file.write(part[:left])


def test_a_full_disk_leaves_it_in_memory_and_that_is_told_once(monkeypatch, caplog):
    files = []

    def open_(**arguments):
        files.append(Faulty(10000, **arguments))
        return files[-1]

    monkeypatch.setattr(module.tempfile, "TemporaryFile", open_)
    scratch = Scratch()
    small, large = torch.randn(100), torch.randn(4000)
    first = scratch.keep(small)
    assert scratch.keep(large) is large
    assert scratch.keep(large) is large
    assert os.fstat(files[0].fileno()).st_size < 5000  # nothing is left of what did not fit
    assert torch.equal(scratch.keep(small).mapped(), small)
    assert torch.equal(first.mapped(), small)
    (message,) = [record.getMessage() for record in caplog.records]
    assert "cannot take 16000 bytes" in message
    assert "set TMPDIR" in message


def test_so_does_a_folder_that_cannot_be_written(monkeypatch, caplog):
    def open_(**_):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(module.tempfile, "TemporaryFile", open_)
    tensor = torch.ones(5)
    assert Scratch().keep(tensor) is tensor
    assert "Read-only file system" in caplog.text


def test_partial_writes_are_continued(monkeypatch):
    """The system may take less than it was given."""

    class Slow:
        def __init__(self, **arguments):
            self.file = real_file(**arguments)
            self.seek, self.close, self.fileno = self.file.seek, self.file.close, self.file.fileno

        def write(self, part):
            return self.file.write(part[:7])

    monkeypatch.setattr(module.tempfile, "TemporaryFile", Slow)
    tensor = torch.randn(40)
    assert torch.equal(Scratch().keep(tensor).mapped(), tensor)


def test_pages_are_held_only_while_they_are_read():
    smaps = Path("/proc/self/smaps_rollup")
    if not smaps.exists():
        pytest.skip("only Linux says what a process holds")

    def held():
        return int(re.search(r"Rss:\s+(\d+)", smaps.read_text())[1]) / 2**10  # MiB

    waiting = Scratch().keep(torch.ones(2**23))  # 32 MiB
    assert float(waiting.mapped().sum()) == 2**23  # once, so that torch is warm
    before = held()
    tensor = waiting.mapped()
    tensor.sum()
    during = held()
    del tensor
    assert during - before > 30
    assert held() - before < 4


def test_where_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert module.scratch_folder() == tmp_path
    monkeypatch.delenv("TMPDIR")
    default = module.scratch_folder()
    assert default.is_dir()
    (tmp_path / "file").touch()
    for wrong in ("nowhere", "file"):
        monkeypatch.setenv("TMPDIR", str(tmp_path / wrong))
        assert module.scratch_folder() == default
