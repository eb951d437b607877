"""Detectors with several rows: one scan per row, with one geometry, read a few at a time."""

import h5py
import numpy as np
import pytest
import tifffile

from ct_dip.cli import main
from ct_dip.data.result_file import read_result
from ct_dip.data.scan_file import read_scan
from ct_dip.errors import ScanError
from ct_dip.importers import build
from ct_dip.importers.build import pick_rows
from ct_dip.importers.run import import_rows, import_scan
from tests.importers.files import exchange, nxtomo, tiff_folder


@pytest.mark.parametrize(
    ("text", "rows"),
    [("12", [12]), ("10:13", [10, 11, 12]), (":2", [0, 1]), ("18:", [18, 19]), ("all", list(range(20)))],
)
def test_rows_are_picked(text, rows):
    assert list(pick_rows(text, 20)) == rows
    assert list(pick_rows(None, 1)) == [0]


@pytest.mark.parametrize("text", ["20", "-1", "3:3", "5:2", "0:21", "1:2:3", "x"])
def test_rows_that_do_not_exist(text):
    with pytest.raises(ScanError, match="--row"):
        pick_rows(text, 20)


def test_rows_are_those_of_single_imports_with_one_geometry(tmp_path):
    """The axis is found once, in the middle row, and every row takes it."""
    tiff_folder(tmp_path / "scan", axis=14.3)
    options = {"arc": np.pi, "detector_pitch": 1.0}
    rows = dict(import_rows(tmp_path / "scan", rows="all", **options))
    assert list(rows) == [0, 1, 2]
    assert len({scan.geometry.digest for scan in rows.values()}) == 1
    single = import_scan(tmp_path / "scan", row=1, **options)
    assert single.geometry == rows[1].geometry
    center = single.geometry.center_of_rotation + 15.5
    for row, scan in rows.items():
        assert np.array_equal(
            scan.sinogram, import_scan(tmp_path / "scan", row=row, center=center, **options).sinogram
        )
        assert f"row {row}" in scan.source


@pytest.mark.parametrize("stated", [None, 0.2])
def test_the_error_of_the_axis_stays_with_the_scan(tmp_path, capsys, stated):
    exchange(tmp_path / "e.h5", axis=21.3)
    option = [] if stated is None else ["--offset-error", str(stated)]
    assert main(["import", str(tmp_path / "e.h5"), "--out", str(tmp_path / "s.h5"), *option]) == 0
    error = read_scan(tmp_path / "s.h5").offset_error
    assert error == stated if stated else 0 < error < 0.25
    assert main(["info", str(tmp_path / "s.h5")]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert f" ± {error:.2g} mm from the detector's centre" in told
    assert "offset" not in told.split("step 1")[0]
    assert "attenuation scale" not in told


def test_only_the_rows_that_are_asked_for_are_read(tmp_path, monkeypatch):
    nxtomo(tmp_path / "scan.nxs", rows=6)
    read = []
    plain = h5py.Dataset.__getitem__

    def watched(self, key, **others):
        if self.ndim == 3:
            read.append(key[1])
        return plain(self, key, **others)

    monkeypatch.setattr(h5py.Dataset, "__getitem__", watched)
    list(import_rows(tmp_path / "scan.nxs", rows="2:4", center=15.5))
    assert set(map(str, read)) == {"slice(2, 4, None)"}
    read.clear()
    monkeypatch.setattr(build, "_BLOCK_SHARE", 10**12)  # next to no memory: a row at a time
    list(import_rows(tmp_path / "scan.nxs", rows="2:4", center=15.5))
    assert set(map(str, read)) == {"slice(2, 3, None)", "slice(3, 4, None)"}


def test_a_row_that_cannot_be_imported_is_named_and_those_before_stay(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exchange(tmp_path / "e.h5", rows=4)
    with h5py.File("e.h5", "r+") as file:
        file["exchange/data_white"][:, 2, 7] = 100  # as dark as without light: a dead detector
    assert main("import e.h5 --rows all --center 21.3 --out s.h5".split()) == 2
    said = capsys.readouterr().err
    assert "e.h5: row 2: column 7" in said
    assert "s_row0000.h5 to s_row0001.h5" in said
    assert sorted(path.name for path in tmp_path.glob("s*")) == ["s_row0000.h5", "s_row0001.h5"]
    assert main("import e.h5 --row 2 --center 21.3 --out s.h5".split()) == 2
    assert "e.h5: column 7" in capsys.readouterr().err


def test_from_rows_to_a_volume(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exchange(tmp_path / "e.h5", rows=3)
    words = "import e.h5 --rows 1:3 --center 21.3 --detector-pitch 0.5 --bin 2 --size 16 --out s.h5"
    assert main(words.split()) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    names = ["s_row0001.h5", "s_row0002.h5"]
    assert sorted(path.name for path in tmp_path.glob("s*")) == names
    assert read_scan(names[0]).geometry == read_scan(names[1]).geometry
    assert main(["reconstruct", *names, "--method", "fbp", "--out", "results"]) == 0
    results = [f"results/{name}" for name in names]
    capsys.readouterr()
    assert any("rows are 0.5 mm apart" in step for step in read_scan(names[0]).steps)
    assert main(["export", *results[::-1], "--format", "tiff", "--out", "volume"]) == 0
    told = capsys.readouterr().out
    assert "2 slices of 16 × 16" in told
    assert "0.5 mm apart" in told
    with tifffile.TiffFile("volume-mean.tif") as file:
        assert file.imagej_metadata["spacing"] == 0.5
        np.testing.assert_array_equal(file.asarray(), [read_result(result).mean for result in results])
    assert main(["export", *results, "--spacing", "0.7", "--format", "tiff", "--out", "volume"]) == 0
    assert "0.7 mm apart" in capsys.readouterr().out


def test_scans_of_detectors_with_one_row_and_items_of_datasets_have_no_row(tmp_path):
    exchange(tmp_path / "e.h5")
    scan = import_scan(tmp_path / "e.h5")
    assert (scan.detector_row, scan.row_spacing) == (None, None)
