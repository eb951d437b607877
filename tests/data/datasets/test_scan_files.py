"""Scan files as datasets: order, labels, subsets, and what is wrong with one of them."""

import pickle

import numpy as np
import pytest

from ct_dip.data.datasets import open_dataset
from ct_dip.data.scan_file import write_scan
from ct_dip.errors import CtDipError, InputError
from tests import tiny


@pytest.fixture
def folder(tmp_path):
    for name, seed in (("b", 1), ("a", 0), ("c", 2)):
        write_scan(tiny.scan(seed=seed), tmp_path / f"{name}.h5")
    return tmp_path


def test_a_folder_gives_its_scans_by_name(folder):
    dataset = open_dataset(folder)
    assert [dataset.label(i) for i in range(len(dataset))] == ["a", "b", "c"]
    assert [scan.digest for scan in dataset] == [tiny.scan(seed=seed).digest for seed in range(3)]
    assert "3 scan files" in dataset.describe()
    assert dataset.reference(0) is None
    np.testing.assert_array_equal(dataset[-1].ground_truth, tiny.scan(seed=2).ground_truth)
    with pytest.raises(IndexError):
        dataset[3]


def test_a_pattern_and_a_single_file_are_datasets(folder):
    assert len(open_dataset(folder / "[ab].h5")) == 2
    assert open_dataset(folder / "b.h5").label(0) == "b"
    named = open_dataset([folder / "b.h5", folder / "a.h5"])  # as a shell expands a pattern
    assert [named.label(i) for i in range(len(named))] == ["b", "a"]
    with pytest.raises(InputError, match="not a scan file"):
        open_dataset([folder / "a.h5", folder])
    (folder / "x[1].h5").write_bytes((folder / "a.h5").read_bytes())
    assert len(open_dataset(folder / "x[1].h5")) == 1


def test_a_dataset_can_be_pickled(folder):
    dataset = open_dataset(folder, views=2)
    again = pickle.loads(pickle.dumps(dataset))
    assert [scan.digest for scan in again] == [scan.digest for scan in dataset]


def test_views_are_evenly_spaced_and_rays_keep_their_values(folder):
    full, some = open_dataset(folder)[0], open_dataset(folder, views=2)[0]
    assert some.geometry == full.geometry.select_views([0, 2])
    np.testing.assert_array_equal(some.sinogram, full.sinogram[[0, 2]])
    assert open_dataset(folder, bin=7)[0].geometry.detectors == 1
    with pytest.raises(InputError, match=r"a: it has 4 views, 5 were asked for"):
        open_dataset(folder, views=5)[0]


def test_one_bad_file_spoils_no_other(folder):
    (folder / "b.h5").write_bytes(b"nothing of a scan")
    dataset = open_dataset(folder)
    with pytest.raises(InputError, match=r"b\.h5"):
        dataset[1]
    assert dataset[0].digest == tiny.scan(seed=0).digest
    assert dataset[2].digest == tiny.scan(seed=2).digest


def test_a_manifest_names_scans_references_and_labels(folder):
    np.save(folder / "r.npy", np.ones(tiny.IMAGE))
    (folder / "list.csv").write_text("label,scan,reference\nfirst one,c.h5,\n,a.h5,r.npy\n")
    dataset = open_dataset(folder / "list.csv")
    assert [dataset.label(i) for i in range(2)] == ["first_one", "a"]
    assert dataset[0].digest == tiny.scan(seed=2).digest
    assert dataset.reference(0) is None
    np.testing.assert_array_equal(dataset.reference(1), np.ones(tiny.IMAGE))


def test_labels_differ_whatever_the_files_are_called(folder):
    (folder / "p").mkdir()
    (folder / "p" / "a.h5").touch()
    (folder / "list.csv").write_text("scan,label\na.h5,\np/a.h5,\nb.h5,x\nb.h5,X\nc.h5,x-2\n")
    dataset = open_dataset(folder / "list.csv")
    labels = [dataset.label(i).casefold() for i in range(len(dataset))]
    assert len(set(labels)) == 5
    assert labels[1] == "p-a"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "columns none"),
        ("file\na.h5\n", "'file'"),
        ("scan,colour\na.h5,red\n", "'colour'"),
        ("scan\na.h5,b.h5\n", "line 2 has more values"),
        ("scan,label\na.h5,x\n,y\n", "line 3 has no scan"),
        ("scan\n", "holds no scan"),
        ('scan\n"a.h5\n', "cannot be read as CSV"),
    ],
)
def test_a_wrong_manifest_is_explained(folder, text, message):
    (folder / "list.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        open_dataset(folder / "list.csv")


def test_what_is_no_dataset_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").touch()
    for name, message in [
        ("empty", "holds no dataset; expected a LoDoPaB"),
        ("absent", "does not exist; expected"),
        ("text.txt", "is no dataset; expected"),
        ("*.h5", "holds no scan"),
    ]:
        with pytest.raises(InputError, match=message):
            open_dataset(tmp_path / name)


def test_impossible_subsets_and_parts_are_refused_at_once(folder):
    with pytest.raises(CtDipError, match="views"):
        open_dataset(folder, views=0)
    with pytest.raises(InputError, match="has no parts"):
        open_dataset(folder, part="test")
