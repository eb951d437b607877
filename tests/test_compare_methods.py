"""Methods on the same scans: nothing is run twice, nothing that fails stops the rest, no truth is used."""

from dataclasses import replace

import numpy as np
import pytest

import ct_dip
from ct_dip import compare_methods
from ct_dip.compare_methods import compare, compare_results
from ct_dip.data.result_file import read_result, write_result
from ct_dip.data.scan_file import write_scan
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.errors import InputError
from ct_dip.evaluation.heldout import score_heldout
from ct_dip.geometry import Volume
from ct_dip.methods import load_config
from ct_dip.pipeline import reconstruct
from ct_dip.progress import Progress
from ct_dip.scanners import scanner
from tests.predictions import prediction

GEOMETRY = scanner(Volume(shape=(20, 20)), views=12)
SCANS = [simulate("ellipses", GEOMETRY, noise=NoiseLevel(relative=0.05), seed=seed) for seed in (0, 1)]
BLIND = replace(SCANS[0], ground_truth=None)


@pytest.fixture
def runs(monkeypatch):
    """What was reconstructed: scan digest and method."""
    done = []

    def counted(scan, config, **options):
        done.append((scan.digest, config.method))
        return reconstruct(scan, config, **options)

    monkeypatch.setattr(compare_methods, "reconstruct", counted)
    return done


def test_the_table_holds_what_reconstruct_and_score_heldout_find():
    table = ct_dip.compare(SCANS, ["fbp", "tv"], heldout=True, settings=["tv.strength=0.4"])
    assert [(row.scan_digest, row.method) for row in table.rows] == [
        (scan.digest, method) for scan in SCANS for method in ("fbp", "tv")
    ]
    config = load_config(method="tv", settings=["tv.strength=0.4"])
    alone = reconstruct(SCANS[1], config)
    row = table.rows[3]
    assert np.array_equal(row.prediction.mean, alone.mean)
    assert row.prediction.scores == alone.scores
    assert row.prediction.heldout == score_heldout(SCANS[1], lambda scan: reconstruct(scan, config))


def test_views_are_held_out_where_there_is_no_truth(runs):
    known, blind = (compare(scan, ["fbp"]).rows[0].prediction for scan in (SCANS[0], BLIND))
    assert (known.heldout, blind.scores) == (None, None)
    assert blind.heldout.views in (2, 3)  # 12 views in five folds
    assert [method for _, method in runs] == ["fbp"] * 3
    assert compare(BLIND, ["fbp"], heldout=False).criterion is None


def test_what_is_there_is_not_run_again(runs, tmp_path):
    first = compare([*SCANS], ["fbp", "cgls"], out=tmp_path)
    assert len(runs) == 4
    again = compare([*SCANS], ["fbp", "cgls"], out=tmp_path)
    assert len(runs) == 4
    for one, other in zip(first.rows, again.rows, strict=True):
        assert one.cells == other.cells
        assert np.array_equal(one.prediction.mean, other.prediction.mean)
    compare([*SCANS], ["fbp", "tv"], out=tmp_path)  # a new method
    assert [method for _, method in runs[4:]] == ["tv", "tv"]
    compare(SCANS[:1], ["fbp"], out=tmp_path, settings=["fbp.cutoff=0.5"])  # other settings
    compare(SCANS[:1], ["fbp"], out=tmp_path, memory_budget="1G")  # another budget
    compare([replace(SCANS[0], ground_truth=None)], ["fbp"], out=tmp_path, heldout=False)  # other scores
    assert len(runs) == 9
    compare(SCANS[:1], ["fbp"], out=tmp_path, heldout=True)  # the held-out views alone
    assert len(runs) == 10
    assert runs[-1][0] != SCANS[0].digest
    compare(SCANS[:1], ["fbp"], out=tmp_path, heldout=True)
    assert len(runs) == 10
    assert all(read_result(path).method for path in (tmp_path / "results").iterdir())  # nothing else is left


def test_a_broken_run_goes_on_where_it_was(monkeypatch, tmp_path):
    def interrupted(scan, config, **options):
        if config.method == "cgls":
            raise KeyboardInterrupt
        return reconstruct(scan, config, **options)

    monkeypatch.setattr(compare_methods, "reconstruct", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compare(SCANS[0], ["fbp", "cgls", "tv"], out=tmp_path)
    (kept,) = (tmp_path / "results").iterdir()
    assert read_result(kept).method == "fbp"


def test_a_method_that_fails_is_a_row(monkeypatch):
    def failing(scan, config, **options):
        if config.method == "cgls":
            raise RuntimeError("out of luck")
        if config.method == "tv" and scan.sinogram.shape[0] < 12:
            raise RuntimeError("too few views")
        return reconstruct(scan, config, **options)

    monkeypatch.setattr(compare_methods, "reconstruct", failing)
    notes = []

    class Notes(Progress):
        def note(self, message):
            notes.append(message)

    fbp, cgls, tv = compare(SCANS[0], ["fbp", "cgls", "tv"], heldout=True, progress=Notes).rows
    assert fbp.prediction.heldout is not None
    assert (cgls.prediction, cgls.error) == (None, "out of luck")
    assert "too few views" in tv.warnings[0]  # and the image is there all the same
    assert tv.prediction.scores is not None
    assert any("failed: out of luck" in note for note in notes)


def test_settings_go_to_the_methods_that_have_them(tmp_path):
    (tmp_path / "some.yaml").write_text("tv: {strength: 0.3}\nfbp: {cutoff: 0.7}\n")
    table = compare(
        SCANS[0],
        ["fbp", "tv"],
        config=tmp_path / "some.yaml",
        settings=["tv.tolerance=0.01"],
        seed=3,
        backend="sparse",
    )
    fbp, tv = (row.prediction.settings for row in table.rows)
    assert fbp["fbp"]["cutoff"] == 0.7
    assert (tv["tv"]["strength"], tv["tv"]["tolerance"]) == (0.3, 0.01)
    assert (fbp["seed"], tv["seed"], fbp["backend"], tv["backend"]) == (3, 3, "auto", "sparse")


def test_configurations_of_one_method_have_names_of_their_own():
    configs = [load_config(method="tv", strength=strength) for strength in (0.1, 1.0)]
    table = compare(SCANS, configs)
    assert table.methods == ["tv, strength 0.1", "tv, strength 1.0"]
    assert table.mean("tv, strength 0.1", "psnr").count == 2


@pytest.mark.parametrize(
    ("scans", "methods", "options", "words"),
    [
        ([], ["fbp"], {}, "no scans"),
        (SCANS, [], {}, "list of names"),
        (SCANS, "tv", {}, "list of names"),
        (SCANS, ["fbp", "tvv"], {}, "'tvv' is not known"),
        (SCANS, ["fbp", "fbp"], {}, "twice"),
        ([SCANS[0], SCANS[0]], ["fbp"], {}, "the same scan"),
        (SCANS, ["fbp"], {"settings": ["tv.strength=1"]}, "'tv' have no effect with fbp"),
        (SCANS, ["tv"], {"settings": ["tv.strenght=1"]}, "strength"),
        (SCANS, ["tv"], {"strength": 1}, "section.key=value"),
        (SCANS, ["tv"], {"method": "fbp"}, "section.key=value"),
        (SCANS, ["tv"], {"reference": np.zeros((20, 20))}, "one scan"),
        (BLIND, ["tv"], {"reference": np.zeros((2, 2))}, "shape"),
    ],
)
def test_nonsense_is_refused_before_anything_runs(runs, scans, methods, options, words):
    with pytest.raises(InputError, match=words):
        compare(scans, methods, **options)
    assert runs == []


def test_files_of_others_are_not_replaced(runs, tmp_path):
    compare(SCANS[0], ["fbp"], out=tmp_path)
    (kept,) = (tmp_path / "results").iterdir()
    write_result(prediction("fbp"), kept)
    with pytest.raises(InputError, match="another result"):
        compare(SCANS[0], ["fbp"], out=tmp_path)
    kept.write_text("notes")
    with pytest.raises(InputError, match="in the way"):
        compare(SCANS[0], ["fbp"], out=tmp_path)
    assert kept.read_text() == "notes"
    assert len(runs) == 1


def test_scans_are_called_as_their_files(tmp_path):
    for folder, scan in zip("ab", SCANS, strict=True):
        (tmp_path / folder).mkdir()
        write_scan(scan, tmp_path / folder / "same.h5")
    table = compare([tmp_path / "a/same.h5", tmp_path / "b/same.h5"], ["fbp"])
    assert [label.name for label in table.scans.values()] == ["same", "same (2)"]
    assert "12 views" in table.scan(SCANS[0].digest).about


def test_results_are_compared_as_they_are():
    with pytest.raises(InputError, match="no results"):
        compare_results([])
    other = prediction("fbp", scan="a")
    other = replace(other, comparison=replace(other.comparison, image=other.comparison.image + 1))
    table = compare_results([prediction("tv", scan="a", std=0.01), other, prediction("tv", scan="b")])
    assert ["different images" in " ".join(row.warnings) for row in table.rows] == [True, True, False]
    assert table.rows[0].prediction.samples is None  # many results are held at once
