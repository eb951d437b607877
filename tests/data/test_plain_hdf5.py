"""HDF5 from anywhere: reading ends, leads to no other file, and takes no more memory than is allowed."""

import os
import re
import resource
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

from ct_dip.data import plain_hdf5
from ct_dip.data.comparison import Comparison
from ct_dip.data.plain_hdf5 import open_linked
from ct_dip.data.prediction import Patch, Prediction
from ct_dip.data.result_file import read_result, write_result
from ct_dip.data.scan import Scan
from ct_dip.data.scan_file import read_scan, write_scan
from ct_dip.errors import InputError, ResultError, ScanError
from tests import geometries

SHAPE = geometries.FAN.range_shape


@pytest.fixture
def scan(tmp_path):
    path = tmp_path / "scan.h5"
    write_scan(Scan(sinogram=np.ones(SHAPE), geometry=geometries.FAN, source="x" * 60_000), path)
    return path


@pytest.fixture
def other(tmp_path):
    path = tmp_path / "other.h5"
    with h5py.File(path, "w") as file:
        file["values"] = np.ones(SHAPE, dtype=np.float32)
    (tmp_path / "raw").write_bytes(np.ones(SHAPE, dtype=np.float32).tobytes())
    return path


def virtual(file, name, source, *, shape=SHAPE):
    layout = h5py.VirtualLayout(shape=shape, dtype=np.float32)
    layout[: SHAPE[0]] = h5py.VirtualSource(source, "values", shape=SHAPE)
    file.create_virtual_dataset(name, layout)


INDIRECT = {
    "external": lambda file: file.__setitem__("sinogram", h5py.ExternalLink("other.h5", "values")),
    "soft": lambda file: file.__setitem__("sinogram", h5py.SoftLink("/ground_truth")),
    "dangling": lambda file: file.__setitem__("extra", h5py.SoftLink("/nowhere")),
    "virtual": lambda file: virtual(file, "sinogram", "other.h5"),
    "missing": lambda file: virtual(file, "sinogram", "nowhere.h5"),
    "raw": lambda file: file.create_dataset("sinogram", SHAPE, np.float32, external=[("raw", 0, 10**6)]),
}


@pytest.mark.parametrize("kind", INDIRECT)
def test_scans_hold_their_data_themselves(scan, other, kind, monkeypatch):
    monkeypatch.chdir(scan.parent)
    with h5py.File(scan, "r+") as file:
        if kind != "dangling":
            del file["sinogram"]
        INDIRECT[kind](file)
    with pytest.raises(ScanError, match=r"scan\.h5: (sinogram|extra) is .*store the data itself"):
        read_scan(scan)


def test_a_group_that_holds_itself_ends(scan):
    with h5py.File(scan, "r+") as file:
        file["geometry/again"] = file["geometry"]
    assert read_scan(scan).geometry == geometries.FAN


def test_results_hold_their_data_themselves(tmp_path, other):
    path = tmp_path / "r.h5"
    write_result(Prediction(method="tv", mean=np.ones((4, 5)), pixel_size=1.0, scan_digest=""), path)
    with h5py.File(path, "r+") as file:
        file["arrays/truth"] = h5py.ExternalLink("other.h5", "values")
    with pytest.raises(ResultError, match="arrays/truth is a link"):
        read_result(path)


def declare(file, name, shape, dtype=np.float32):
    """Replace a dataset, but for its attributes, by one that is not written."""
    attributes = dict(file[name].attrs)
    del file[name]
    chunks = tuple(min(100, n) for n in shape)
    file.create_dataset(name, shape, dtype, chunks=chunks, compression="gzip").attrs.update(attributes)


def test_sizes_are_compared_before_anything_is_read(scan):
    with h5py.File(scan, "r+") as file:
        declare(file, "sinogram", (20_000, 20_000))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ScanError, match="sinogram has shape"):
        read_scan(scan)
    with h5py.File(scan, "r+") as file:
        declare(file, "geometry/angles", (10**9,))
    with pytest.raises(ScanError, match=r"angles .* never written"):
        read_scan(scan)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "words"),
    [
        ("mean", (20_000, 20_000), np.float32, "the image (20000, 20000)"),
        ("mean", (10, 10, 10), np.float32, "the image (10, 10, 10)"),
        ("arrays/truth", (10**5, 10**5), np.float32, "truth has shape"),
        ("arrays/truth", (4, 5), h5py.string_dtype(), "expected real numbers"),
        ("arrays/patch_1_1", (10**5, 10**5), np.float32, "never written"),
        ("traces/gap", (5, 5), np.float32, "expected 1 dim"),
    ],
)
def test_arrays_of_results_are_checked_before_they_are_read(tmp_path, name, shape, dtype, words):
    path, image = tmp_path / "r.h5", np.ones((4, 5))
    result = Prediction(
        mean=image,
        comparison=Comparison(name="truth", image=image),
        patches=(Patch(slice(1, 3), slice(1, 3), np.eye(4)),),
        traces={"gap": np.ones(3)},
    )
    write_result(result, path)
    with h5py.File(path, "r+") as file:
        declare(file, name, shape, dtype)
    with pytest.raises(ResultError, match=re.escape(words)):
        read_result(path)


def test_images_of_a_result_have_one_shape(tmp_path):
    path, image = tmp_path / "r.h5", np.ones((4, 5))
    for name, values in {
        "truth": image.T,
        "reference": image[1:],
        "samples": image,
        "mask": np.ones((4, 4)),
        "std_error": image.T,
        "fbp": image[None],
    }.items():
        write_result(Prediction(mean=image), path)
        with h5py.File(path, "r+") as file:
            file[f"arrays/{name}"] = values.astype(np.float32)
        with pytest.raises(ResultError, match=rf"r\.h5: arrays/{name} has shape .*; reconstruct again"):
            read_result(path)


@pytest.mark.parametrize(
    "part",
    [
        {"std": np.ones((5, 4))},
        {"std_error": np.ones((5, 4))},
        {"mask": np.ones((4, 4), dtype=bool)},
        {"images": {"fbp": np.ones((3, 4, 5))}},
        {"comparison": Comparison(name="truth", image=np.ones((5, 4)))},
        {"samples": np.ones((4, 5))},
        {"samples": np.ones((3, 5, 4))},
    ],
)
def test_images_of_a_prediction_have_one_shape(part):
    with pytest.raises(ResultError, match=r"shape .*; reconstruct again"):
        Prediction(mean=np.ones((4, 5)), **part)


def test_the_memory_budget_bounds_what_is_read(scan, monkeypatch):
    monkeypatch.setenv("CT_DIP_MEMORY", "1k")
    with pytest.raises(ScanError, match=r"scan\.h5: reading sinogram .* memory budget"):
        read_scan(scan)


def test_a_long_source_is_shortened(scan):
    assert len(read_scan(scan).source) == 500


@pytest.fixture
def spinning(scan):
    """A scan whose global heap, with the text of attributes, has an object of size −16.

    HDF5 adds 16 for the header, and looks for the next object in the same place, for ever.
    """
    with h5py.File(scan, "r+"):
        pass  # HDF5 cuts off the seal
    content = bytearray(scan.read_bytes())
    size = content.index(b"GCOL") + 16 + 8
    content[size : size + 8] = (2**64 - 16).to_bytes(8, "little")
    scan.write_bytes(content)
    return scan


def test_a_file_that_makes_hdf5_spin_is_refused(spinning, monkeypatch):
    hangs = [sys.executable, "-c", f"import h5py; dict(h5py.File({str(spinning)!r}).attrs)"]
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(hangs, timeout=5, check=False)
    monkeypatch.setattr(plain_hdf5, "_PROBE_SECONDS", 3.0)
    with pytest.raises(ScanError, match=r"scan\.h5: it is damaged, .* within 3 s"):
        read_scan(spinning)


def test_a_file_that_crashes_hdf5_is_refused(scan, tmp_path, monkeypatch):
    with h5py.File(scan, "r+"):
        pass
    script = tmp_path / "crash.py"
    script.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")
    monkeypatch.setattr(plain_hdf5, "_PROBE", script)
    with pytest.raises(ScanError, match=r"scan\.h5: it is damaged, .*exit status -11"):
        read_scan(scan)


def test_damage_to_a_sealed_file_is_noticed_wherever_it_is(scan, monkeypatch):
    monkeypatch.setattr(plain_hdf5, "_probe", lambda _: pytest.fail("a sealed file needs no child process"))
    read_scan(scan)
    content = scan.read_bytes()
    for place in np.random.default_rng(0).integers(0, len(content) - 80, 50):
        damaged = bytearray(content)
        damaged[place] ^= 1
        scan.write_bytes(damaged)
        with pytest.raises(ScanError, match="does not match the checksum"):
            read_scan(scan)


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.h5")
    with pytest.raises(ScanError, match="regular file"):
        read_scan(tmp_path / "pipe.h5")


def test_probing_is_quick(other):
    plain_hdf5._probe(other)  # h5py is on its way from the disk
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        plain_hdf5._probe(other)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 1.5  # 0.2 s on a quiet machine


@pytest.fixture
def beamline(tmp_path, other):
    """A master file beside those that it refers to, and a folder above them."""
    folder = tmp_path / "scans" / "parts"
    folder.mkdir(parents=True)
    other.rename(folder / "part.h5")
    with h5py.File(tmp_path / "outside.h5", "w") as file:
        file["values"] = np.ones(SHAPE, dtype=np.float32)
    (folder / "escape.h5").symlink_to(tmp_path / "outside.h5")
    with h5py.File(tmp_path / "scans" / "master.h5", "w") as file:
        file["external"] = h5py.ExternalLink("parts/part.h5", "/values")
        file["soft"] = h5py.SoftLink("/external")
        virtual(file, "virtual", "parts/part.h5")
        file["absolute"] = h5py.ExternalLink(str(folder / "part.h5"), "/values")
        file["upward"] = h5py.ExternalLink("../outside.h5", "/values")
        file["symbolic"] = h5py.ExternalLink("parts/escape.h5", "/values")
        file["missing"] = h5py.ExternalLink("parts/nowhere.h5", "/values")
        file["nothing"] = h5py.ExternalLink("parts/part.h5", "/nothing")
        file["loop"] = h5py.SoftLink("/loop")
        file["chain"] = h5py.ExternalLink("parts/part.h5", "/onwards")
        virtual(file, "virtual absolute", str(folder / "part.h5"))
        virtual(file, "virtual upward", "../outside.h5")
        virtual(file, "virtual symbolic", "parts/escape.h5")
        virtual(file, "virtual missing", "parts/nowhere.h5")
        virtual(file, "virtual gap", "parts/part.h5", shape=(SHAPE[0] + 1, SHAPE[1]))
        file.create_dataset("raw", SHAPE, np.float32, external=[("/etc/hostname", 0, 10**6)])
    with h5py.File(folder / "part.h5", "r+") as file:
        file["onwards"] = h5py.ExternalLink("../../outside.h5", "/values")
    return tmp_path / "scans" / "master.h5"


@pytest.mark.parametrize("name", ["external", "soft", "virtual"])
def test_links_within_the_folder_are_followed(beamline, name, monkeypatch):
    monkeypatch.chdir("/")
    with open_linked(beamline) as file:
        assert np.all(file.get(name)[...] == 1)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("absolute", "only files in the scan's own folder"),
        ("upward", "only files in the scan's own folder"),
        ("chain", "only files in the scan's own folder"),
        ("symbolic", "symbolic link to elsewhere"),
        ("missing", "does not exist"),
        ("nothing", "'/nothing', which does not exist"),
        ("loop", "a link to a link"),
        ("virtual absolute", "only files in the scan's own folder"),
        ("virtual upward", "only files in the scan's own folder"),
        ("virtual symbolic", "symbolic link to elsewhere"),
        ("virtual missing", "'parts/nowhere.h5', which does not exist"),
        ("virtual gap", "have no source"),
        ("raw", "stored outside of its file"),
    ],
)
def test_links_to_elsewhere_are_refused(beamline, name, words):
    with open_linked(beamline) as file, pytest.raises(InputError, match=words):
        file.get(name)


def test_names_that_are_not_there(beamline):
    with open_linked(beamline) as file:
        assert file.get("nowhere/at/all") is None
        assert file.get("external/deeper") is None
