"""Scan and result files: the same comes back, and nothing else is mistaken for one."""

import shutil
from dataclasses import replace

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ct_dip.data.comparison import Comparison
from ct_dip.data.noise import PhotonNoise, WhiteNoise
from ct_dip.data.plausibility import implausible
from ct_dip.data.prediction import Patch, Prediction, SinogramPredictive
from ct_dip.data.result_file import read_result, write_result
from ct_dip.data.scan import Scan
from ct_dip.data.scan_file import read_scan, write_scan
from ct_dip.data.scores import Mean, PartScores, Scores
from ct_dip.errors import InputError, MissingPartError, OutputError, ResultError, ScanError
from tests import geometries
from tests.test_geometry import any_geometry

noises = st.one_of(
    st.none(),
    st.floats(1e-6, 1e3).map(lambda std: WhiteNoise(std=std)),
    st.floats(1, 1e9).map(lambda photons: PhotonNoise(photons=photons)),
)
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


PART = PartScores(pixels=9, mae=Mean(0.1, 0.01, 9), rmse=Mean(0.2, None, 9))


def same(first, second):
    assert np.array_equal(first.sinogram, second.sinogram)
    assert first.geometry == second.geometry
    assert first.noise == second.noise
    assert first.attenuation_scale == second.attenuation_scale
    for name in ("source", "offset_error", "detector_row", "row_spacing"):
        assert getattr(first, name) == getattr(second, name)
    for name in ("ground_truth", "mask"):
        ours, theirs = getattr(first, name), getattr(second, name)
        assert (ours is None) == (theirs is None)
        assert ours is None or np.array_equal(ours, theirs)


def _some_pixels(rng, shape):
    """A mask that leaves something."""
    marked = rng.random(shape) > 0.5
    marked[0, 0] = True
    return marked


@given(
    geometry=any_geometry(),
    noise=noises,
    scale=st.floats(1e-6, 1e3),
    source=st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]), max_size=30),
    truth=st.booleans(),
    mask=st.booleans(),
    error=st.sampled_from([0.0, 0.013]),
    row=st.sampled_from([None, 0, 12]),
)
@relaxed
def test_scans_survive_their_file(tmp_path, geometry, noise, scale, source, truth, mask, error, row):
    rng = np.random.default_rng(0)
    scan = Scan(
        sinogram=rng.normal(size=geometry.range_shape),
        geometry=geometry,
        noise=noise,
        ground_truth=rng.normal(size=geometry.domain_shape) if truth else None,
        mask=_some_pixels(rng, geometry.domain_shape) if mask else None,
        attenuation_scale=scale,
        source=source,
        offset_error=error,
        detector_row=row,
        row_spacing=None if row is None else 0.25,
    )
    write_scan(scan, tmp_path / "scan.h5")
    with h5py.File(tmp_path / "scan.h5") as file:
        assert ("offset_error" in file.attrs) == bool(error)  # files without it are as they were
        assert ("detector_row" in file.attrs) == ("row_spacing" in file.attrs) == (row is not None)
    again = read_scan(tmp_path / "scan.h5")
    same(again, scan)
    assert again.digest == scan.digest
    write_scan(again, tmp_path / "again.h5")
    assert (tmp_path / "again.h5").read_bytes() == (tmp_path / "scan.h5").read_bytes()


@pytest.fixture(scope="module")
def scan_bytes(tmp_path_factory):
    rng = np.random.default_rng(0)
    geometry = geometries.FAN
    scan = Scan(
        sinogram=rng.normal(size=geometry.range_shape),
        geometry=geometry,
        noise=WhiteNoise(std=0.1),
        ground_truth=rng.normal(size=geometry.domain_shape),
    )
    path = tmp_path_factory.mktemp("scan") / "scan.h5"
    write_scan(scan, path)
    return path.read_bytes()


def test_steps_and_warnings_survive_in_their_order(tmp_path, scan_bytes):
    path = tmp_path / "scan.h5"
    path.write_bytes(scan_bytes)
    scan = read_scan(path)
    assert (scan.steps, scan.warnings) == ((), ())
    made = replace(scan, steps=("dark current subtracted", "two\nlines"), warnings=["clipped", ""])
    write_scan(made.select_views(slice(0, 2)), path)
    read = read_scan(path)
    assert read.steps == ("dark current subtracted", "two lines")
    assert read.warnings == ("clipped",)
    assert implausible(read)[0] == "clipped"
    assert made.digest == scan.digest  # no reconstruction depends on them
    with pytest.raises(ScanError, match="steps must be at most 40 lines"):
        replace(scan, steps="one text")


@given(share=st.floats(0, 1, exclude_max=True))
@settings(relaxed, max_examples=20)  # each starts a child process
def test_a_truncated_file_is_refused(tmp_path, scan_bytes, share):
    path = tmp_path / "cut.h5"
    length = int(share * len(scan_bytes))
    assume(not 0 <= length - scan_bytes.rindex(b"ct_dip blake2b") < 8)  # whole, but without its checksum
    path.write_bytes(scan_bytes[:length])
    with pytest.raises(ScanError, match=r"cut\.h5"):
        read_scan(path)


def edited(tmp_path, scan_bytes, edit):
    path = tmp_path / "edited.h5"
    path.write_bytes(scan_bytes)
    with h5py.File(path, "r+") as file:
        edit(file)
    return path


def _delete(name):
    def edit(file):
        del file[name]

    return edit


def _attribute(where, name, value):
    def edit(file):
        file[where].attrs[name] = value

    return edit


def _without(where, name):
    def edit(file):
        del file[where].attrs[name]

    return edit


def _group(name):
    def edit(file):
        del file[name]
        file.create_group(name)

    return edit


def _replace(name, values):
    def edit(file):
        del file[name]
        file[name] = values

    return edit


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (_delete("sinogram"), "sinogram"),
        (_delete("geometry/angles"), "angles"),
        (_attribute("/", "format", "other"), "not a ct_dip scan"),
        (_attribute("/", "version", 99), "version 99"),
        (_attribute("/", "attenuation_scale", -1.0), "attenuation_scale"),
        (_attribute("geometry", "angle_unit", "deg"), "'deg', expected 'rad'"),
        (_attribute("geometry", "length_unit", "cm"), "'cm', expected 'mm'"),
        (_attribute("geometry", "kind", "spiral"), "spiral"),
        (_attribute("geometry", "detectors", 30), "30 detectors"),
        (_attribute("geometry", "detector_offset", np.nan), "detector_offset"),
        (_replace("geometry/angles", np.linspace(0, 300, 5)), "degrees"),
        (_replace("sinogram", np.full((5, 31), np.nan)), "nan"),
        (_replace("ground_truth", np.zeros((2, 2))), "ground_truth"),
        (_without("geometry", "detector_offset"), "no field 'detector_offset'; add it"),
        (_without("geometry", "center_of_rotation"), "no field 'center_of_rotation'"),
        (_without("geometry", "detector_pitch"), "no field 'detector_pitch'"),
        (_replace("geometry/angles", np.array([b"0"] * 5)), "angles has type"),
        (_attribute("noise", "kind", "pink"), "pink"),
        (_attribute("noise", "std", 0.0), "noise std"),
        (_attribute("noise", "std", "loud"), "wrong type"),
        (_attribute("noise", "kind", np.arange(3)), "noise.kind"),
        (_attribute("/", "attenuation_scale", "one"), "wrong type"),
        (_attribute("/", "version", np.arange(3)), "wrong type"),
        (_attribute("geometry", "kind", np.arange(3)), "kind"),
        (_attribute("geometry", "shape", 5), "shape|geometry"),
        (_replace("geometry/angles", np.full(5, 1j)), "list of numbers"),
        (_replace("geometry", 1.0), "wrong type|angle_unit|length_unit"),
        (_group("sinogram"), "wrong type"),
        (_group("geometry/angles"), "wrong type|list of numbers"),
        (_replace("noise", 1.0), "kind"),
    ],
)
def test_a_wrong_field_is_named_with_its_file(tmp_path, scan_bytes, edit, words):
    path = edited(tmp_path, scan_bytes, edit)
    with pytest.raises(ScanError, match=words) as caught:
        read_scan(path)
    assert "edited.h5" in str(caught.value)


def test_a_flipped_bit_in_the_data_is_noticed(tmp_path, scan_bytes):
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["x"] = 1
    path = tmp_path / "flipped.h5"
    path.write_bytes(scan_bytes)
    with h5py.File(path) as file:
        chunk = file["sinogram"].id.get_chunk_info(0)
    damaged = bytearray(scan_bytes)
    damaged[chunk.byte_offset + chunk.size // 2] ^= 0x10
    path.write_bytes(bytes(damaged))
    with pytest.raises(ScanError, match=r"flipped\.h5"):
        read_scan(path)


@pytest.mark.parametrize("content", [b"", b"hello", b"\x89HDF\r\n\x1a\n", bytes(5000)])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "other.h5"
    path.write_bytes(content)
    with pytest.raises(ScanError, match=r"other\.h5"):
        read_scan(path)


def test_missing_files_and_folders_are_refused(tmp_path):
    with pytest.raises(ScanError, match="does not exist"):
        read_scan(tmp_path / "nowhere.h5")
    with pytest.raises(ScanError, match="folder"):
        read_scan(tmp_path)


def test_a_foreign_hdf5_file_is_refused(tmp_path):
    from ct_dip.data.hdf5 import file_kind

    path = tmp_path / "foreign.h5"
    with h5py.File(path, "w") as file:
        file["data"] = np.zeros(3)
    with pytest.raises(ScanError, match="not a ct_dip scan"):
        read_scan(path)
    with pytest.raises(InputError, match="not one of ct_dip"):
        file_kind(path)


def result():
    return Prediction(
        method="tv",
        mean=np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32),
        pixel_size=0.5,
        scan_digest="abc",
        detector_row=3,
        row_spacing=0.25,
        settings={"tv": {"strength": 0.8}},
        diagnostics={"gap": 30.5, "converged": True},
        seconds={"total variation": 1.5},
        versions={"torch": "2"},
        traces={"duality_gap": np.array([1.0, 0.1])},
    )


def test_results_survive_their_file(tmp_path):
    write_result(result(), tmp_path / "r.h5")
    again = read_result(tmp_path / "r.h5")
    assert np.array_equal(again.mean, result().mean)
    assert np.array_equal(again.traces["duality_gap"], [1.0, 0.1])
    names = ("method", "pixel_size", "scan_digest", "detector_row", "row_spacing")
    for name in (*names, "settings", "diagnostics", "seconds", "versions"):
        assert getattr(again, name) == getattr(result(), name)
    write_result(replace(result(), detector_row=None, row_spacing=None), tmp_path / "old.h5")
    assert read_result(tmp_path / "old.h5").detector_row is None
    for name in ("std", "std_error", "samples", "sinogram", "comparison", "mask", "scores"):
        assert getattr(again, name) is None
    assert (again.images, again.patches, again.warnings) == ({}, (), ())


def whole_result():
    """With everything that a result may have."""
    std, std_error, fbp, truth, *samples = np.random.default_rng(1).random((7, 4, 5)).astype(np.float32)
    sinogram = SinogramPredictive(*np.random.default_rng(2).random((4, 6, 7)).astype(np.float32))
    covariance = np.arange(36, dtype=np.float32).reshape(6, 6)
    return replace(
        result(),
        std=std,
        degrees=3.0,
        std_error=std_error,
        samples=np.stack(samples),
        images={"fbp": fbp},
        sinogram=sinogram,
        patches=(Patch(slice(2, 4), slice(1, 4), covariance),),
        warnings=("The object is cut.", "Beware."),
        comparison=Comparison(name="truth", image=truth),
        mask=fbp > 0.5,
        scores=Scores(compared_with="truth", noise_std=0.0, value_range=1.0, parts={"all": PART}),
    )


def test_everything_that_a_result_may_have_survives_its_file(tmp_path):
    whole = whole_result()
    write_result(whole, tmp_path / "r.h5")
    again = read_result(tmp_path / "r.h5")
    for name in ("mean", "std", "std_error", "samples", "mask", "sinogram"):
        assert np.array_equal(getattr(again, name), getattr(whole, name))
    assert (again.degrees, again.mask.dtype) == (3.0, bool)
    assert list(again.images) == ["fbp"]
    assert np.array_equal(again.images["fbp"], whole.images["fbp"])
    assert again.comparison.name == "truth"
    assert np.array_equal(again.comparison.image, whole.comparison.image)
    (patch,) = again.patches
    assert (patch.rows, patch.columns) == (slice(2, 4), slice(1, 4))
    assert np.array_equal(patch.covariance, whole.patches[0].covariance)
    assert (again.diagnostics, again.warnings) == (whole.diagnostics, whole.warnings)
    assert again.scores == whole.scores


def test_stages_stay_in_the_order_in_which_they_ran(tmp_path):
    ran = {"ray transform": 0.5, "deep image prior": 3.0, "calibration": 0.1}
    write_result(replace(result(), seconds=ran), tmp_path / "r.h5")
    assert list(read_result(tmp_path / "r.h5").seconds) == list(ran)


def test_too_few_samples_for_covariances_say_which_settings_help():
    samples = np.zeros((100, 4, 5), np.float32)
    few = replace(result(), samples=samples, settings={"inference": {"samples": 100, "patch": 0}})
    words = r"need 320; reconstruct with inference\.samples=320, or with inference\.patch=8"
    with pytest.raises(MissingPartError, match=words):
        few.covariances(8)
    other = replace(few, settings={"tv_gauss": {"samples": 100}})
    with pytest.raises(MissingPartError, match=r"need 320; reconstruct with tv_gauss\.samples=320$"):
        other.covariances(8)


def test_a_scan_is_not_a_result(tmp_path, scan_bytes):
    path = tmp_path / "scan.h5"
    path.write_bytes(scan_bytes)
    with pytest.raises(ResultError, match=r"scan\.h5 is a ct_dip scan file; a result file is needed"):
        read_result(path)


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        (_attribute("/", "metrics", "{half"), "metrics"),
        (_attribute("/", "metrics", "null"), "metrics"),
        (_attribute("/", "metrics", "[" * 60_000), "metrics"),
        (_attribute("/", "metrics", '{"certificate": "good"}'), "metrics.certificate"),
        (_attribute("/", "metrics", '{"certificate": [1]}'), "metrics.certificate"),
        (_attribute("/", "metrics", '{"certificate": {"mean_error": 0.1}}'), "sample_error"),
        (
            _attribute("/", "metrics", '{"certificate": {"mean_error": "small", "sample_error": 0.1}}'),
            "mean_error",
        ),
        (_attribute("/", "metrics", '{"certificate": {"closed_form": false, "samples": 0}}'), "samples"),
        (_attribute("/", "metrics", '{"warnings": "one"}'), "metrics.warnings"),
        (_attribute("/", "settings", "[1]"), "settings"),
        (_attribute("/", "seconds", '{"a": "long"}'), "seconds"),
        (_attribute("/", "scores", "[1]"), "scores"),
        (_attribute("/", "scores", '{"psnr": "high"}'), "scores.psnr"),
        (_attribute("/", "pixel_size", "small"), ""),
        (_replace("mean", np.zeros(3)), "the image (3,)"),
        (_replace("arrays/sinogram_standardised", np.zeros(3)), "arrays/sinogram_standardised"),
        (_attribute("arrays/patch_2_1", "shape", (3, 3)), "arrays/patch_2_1"),
        (_replace("traces", 1.0), ""),
        (_group("mean"), "mean"),
        (_delete("mean"), "mean"),
    ],
)
def test_damaged_results_are_refused(tmp_path, edit, field):
    """With the file, the field and the fix."""
    path = tmp_path / "r.h5"
    write_result(whole_result(), path)
    with h5py.File(path, "r+") as file:
        edit(file)
    with pytest.raises(
        ResultError, match=r"r\.h5.*; (reconstruct again|write (it|the file) again)"
    ) as caught:
        read_result(path)
    assert field in str(caught.value)


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match="cannot write"):
        write_result(result(), tmp_path / "file" / "r.h5")
    with pytest.raises(OutputError, match="folder"):
        write_result(result(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "r.h5"
    write_result(result(), path)
    before = path.read_bytes()
    shutil.copy(path, tmp_path / "copy.h5")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ct_dip.files._flush_to_disk", full)
    with pytest.raises(OutputError, match="No space left"):
        write_result(result(), path)
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy.h5", "r.h5"]


@pytest.mark.parametrize(("write", "what"), [(write_scan, "scan"), (write_result, "result")])
def test_arguments_in_the_other_order_are_named(tmp_path, write, what):
    with pytest.raises(InputError, match=f"takes the {what} first"):
        write(tmp_path / "a.h5", None)
