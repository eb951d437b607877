import multiprocessing

import pytest

from ct_dip.errors import OutputError
from ct_dip.files import atomic_path, check_writable, write_bytes


def test_a_file_appears_only_when_it_is_complete(tmp_path):
    target = tmp_path / "deep" / "file.txt"
    with atomic_path(target) as temporary:
        temporary.write_text("half")
        assert not target.exists()
        temporary.write_text("whole")
    assert target.read_text() == "whole"
    assert [p.name for p in target.parent.iterdir()] == ["file.txt"]


def test_an_error_inside_leaves_nothing(tmp_path):
    def fail():
        with atomic_path(tmp_path / "x") as temporary:
            temporary.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not list(tmp_path.iterdir())


def _write(arguments):
    path, letter = arguments
    for _ in range(30):
        write_bytes(path, letter * 100_000)


def test_two_writers_never_mix(tmp_path):
    path = tmp_path / "shared"
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        pool.map(_write, [(path, b"a"), (path, b"b")])
    content = path.read_bytes()
    assert content in (b"a" * 100_000, b"b" * 100_000)
    assert [p.name for p in tmp_path.iterdir()] == ["shared"]


def _rewrite(path):
    for letter in b"ab" * 150:
        write_bytes(path, bytes([letter]) * 300_000)


def test_a_reader_never_sees_half_a_file(tmp_path):
    path = tmp_path / "read"
    write_bytes(path, b"a" * 300_000)
    writer = multiprocessing.get_context("spawn").Process(target=_rewrite, args=(path,))
    writer.start()
    while writer.is_alive():
        content = path.read_bytes()
        assert content in (b"a" * 300_000, b"b" * 300_000)
    writer.join()
    assert writer.exitcode == 0


def test_writability_is_known_beforehand(tmp_path):
    check_writable(tmp_path / "new" / "deep" / "file")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot write"):
        check_writable(tmp_path / "file" / "below")
    for folder in (tmp_path, ".", "/"):
        with pytest.raises(OutputError, match="folder"):
            check_writable(folder)
    (tmp_path / "old").write_text("kept")
    check_writable(tmp_path / "old")
    assert (tmp_path / "old").read_text() == "kept"
