"""NPY and NPZ from anywhere: a header that lies is refused before it costs memory."""

import contextlib
import io
import resource
import zipfile

import numpy as np
import pytest

from ct_dip.data.images import load_image
from ct_dip.data.plain_numpy import read_npy, read_npz
from ct_dip.data.reference_file import read_reference
from ct_dip.errors import InputError


def npy(shape, content=b"", descr="<f8"):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue() + content


def archive(path, compression=zipfile.ZIP_DEFLATED, **members):
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, ">u2", bool, "U3"])
def test_arrays_survive(tmp_path, order, dtype):
    values = np.array(np.arange(6).reshape(2, 3), dtype=dtype, order=order)
    np.save(tmp_path / "x.npy", values)
    np.savez_compressed(tmp_path / "x.npz", values=values, number=3.0)
    assert np.array_equal(read_npy(tmp_path / "x.npy"), values)
    arrays = read_npz(tmp_path / "x.npz")
    assert np.array_equal(arrays["values"], values)
    assert float(arrays["number"]) == 3


def test_sizes_are_compared_before_anything_is_read(tmp_path, monkeypatch):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (tmp_path / "x.npy").write_bytes(npy((20_000, 20_000)))
    with pytest.raises(InputError, match="has 3200000000 bytes, but 0 are stored"):
        read_npy(tmp_path / "x.npy")
    monkeypatch.setenv("CT_DIP_MEMORY", "100M")
    archive(tmp_path / "bomb.npz", images=npy((10_000, 10_000), bytes(10**8), "|u1"))
    assert (tmp_path / "bomb.npz").stat().st_size < 10**6
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match=r"bomb\.npz.*images.*memory budget"):
        load_image(tmp_path / "bomb.npz")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 * 1024


def test_damaged_headers_and_members_are_input_errors(tmp_path):
    header = bytearray(npy((2, 2), bytes(32)))
    for start, wrong in ((10, b"{'descr"), (10, b"((((((("), (40, b"'''"), (20, b"\xff\xff")):
        damaged = header[:]
        damaged[start : start + len(wrong)] = wrong[::-1]
        (tmp_path / "x.npy").write_bytes(damaged)
        with contextlib.suppress(InputError):  # and nothing else
            load_image(tmp_path / "x.npy")
    archive(tmp_path / "x.npz", zipfile.ZIP_LZMA, images=npy((9, 9), bytes(range(81)) * 8))
    content = (tmp_path / "x.npz").read_bytes()
    for place in range(40, 200, 7):
        damaged = bytearray(content)
        damaged[place] ^= 0xFF
        (tmp_path / "y.npz").write_bytes(damaged)
        with contextlib.suppress(InputError):  # and nothing else
            load_image(tmp_path / "y.npz")


def test_two_arrays_of_one_name_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as file:
        file.writestr("a.npy", npy((), bytes(8)))
        with pytest.warns(UserWarning, match="Duplicate"):
            file.writestr("a.npy", npy((), bytes(8)))
    with pytest.raises(InputError, match="two arrays 'a'"):
        read_npz(tmp_path / "x.npz")


def test_large_pictures_are_refused_before_they_are_decoded(tmp_path, monkeypatch):
    from PIL import Image

    Image.new("1", (20_000, 20_000)).save(tmp_path / "x.png")
    with pytest.raises(InputError, match=r"x\.png cannot be read as an image .*bomb"):
        load_image(tmp_path / "x.png")
    monkeypatch.setenv("CT_DIP_MEMORY", "1M")
    Image.new("L", (1000, 1000)).save(tmp_path / "x.png")
    with pytest.raises(InputError, match="memory budget"):
        load_image(tmp_path / "x.png")


def test_large_references_are_refused_before_they_are_read(tmp_path, monkeypatch):
    import tifffile

    np.save(tmp_path / "x.npy", np.ones((1000, 1000)))
    tifffile.imwrite(tmp_path / "x.tif", np.ones((1000, 1000), dtype=np.float32), compression="zlib")
    assert read_reference(tmp_path / "x.tif").shape == (1000, 1000)
    monkeypatch.setenv("CT_DIP_MEMORY", "1M")
    for name in ("x.npy", "x.tif"):
        with pytest.raises(InputError, match="memory budget"):
            read_reference(tmp_path / name)
