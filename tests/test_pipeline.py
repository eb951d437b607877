import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from ct_dip.data.noise import WhiteNoise
from ct_dip.data.result_file import read_result, write_result
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.errors import InputError, MemoryBudgetError, ScanError
from ct_dip.geometry import Volume
from ct_dip.methods import load_config
from ct_dip.pipeline import reconstruct
from ct_dip.progress import Progress
from ct_dip.quality import psnr
from ct_dip.scanners import scanner

CLASSICAL = ("fbp", "cgls", "tv")
FAN = scanner(Volume(shape=(48, 48)), views=40, source_origin=120.0, origin_detector=60.0)


@pytest.fixture(scope="module")
def scan():
    return simulate("ellipses", FAN, noise=NoiseLevel(photons=5000), seed=2)


class Notes(Progress):
    def __init__(self):
        super().__init__()
        self.notes = []

    def note(self, message):
        self.notes.append(message)


def test_every_method_finds_the_object(scan):
    quality = {m: reconstruct(scan, load_config(method=m)).scores.psnr.value for m in CLASSICAL}
    assert quality["fbp"] > 22
    assert quality["cgls"] > 22
    assert quality["tv"] > max(quality["fbp"], quality["cgls"]) + 2


def test_results_say_what_was_done(scan):
    progress = Progress()
    result = reconstruct(scan, load_config(method="tv", settings=["tv.strength=0.4"]), progress=progress)
    assert result.settings["tv"]["strength"] == 0.4
    assert result.scan_digest == scan.digest
    assert result.diagnostics["converged"]
    assert result.diagnostics["duality_gap"] == result.traces["duality_gap"][-1]
    assert set(result.seconds) == {"ray transform", "total variation", "compare with the truth"}
    assert result.scores.psnr.value == pytest.approx(psnr(result.mean, scan.ground_truth))
    assert result.diagnostics["peak_memory_mb"] > 10
    assert {"torch", "numpy", "ct_dip", "python"} <= set(result.versions)


def test_a_strength_that_was_chosen_is_told_and_gives_the_same_again(scan):
    progress = Progress()
    chosen = reconstruct(scan, load_config(method="tv"), progress=progress)
    assert "strength of total variation" in chosen.seconds
    strength = chosen.settings["tv"]["strength"]
    again = reconstruct(scan, load_config(method="tv", settings=[f"tv.strength={strength!r}"]))
    assert np.array_equal(again.mean, chosen.mean)


def test_the_truth_is_never_used(scan):
    blind = replace(scan, ground_truth=None)
    for method in CLASSICAL:
        seen, unseen = (reconstruct(s, load_config(method=method)) for s in (scan, blind))
        assert np.array_equal(seen.mean, unseen.mean)
        assert "psnr" not in unseen.diagnostics


@pytest.mark.parametrize("method", ["cgls", "tv"])
def test_every_measurement_counts_by_its_own_noise(scan, method):
    """Photon noise is uneven: with one common variance, the image is another."""
    even = replace(scan, noise=WhiteNoise(std=float(np.sqrt(scan.variance.mean()))))
    ours, common = (reconstruct(s, load_config(method=method)).mean for s in (scan, even))
    assert np.linalg.norm(ours - common) > 0.005 * np.linalg.norm(common)


@pytest.mark.parametrize("method", ["cgls", "tv"])
def test_noise_below_the_resolution_of_the_data_is_refused(scan, method):
    with pytest.raises(ScanError, match="resolution"):
        reconstruct(replace(scan, noise=WhiteNoise(std=1e-30)), load_config(method=method))


@pytest.mark.parametrize("shape", [(1, 9), (2, 2), (9, 1)])
@pytest.mark.parametrize("method", CLASSICAL)
def test_the_thinnest_images_work(shape, method):
    geometry = scanner(Volume(shape=shape), views=7)
    scan = simulate(np.ones(shape), geometry, noise=NoiseLevel(relative=0.05))
    result = reconstruct(scan, load_config(method=method))
    assert result.mean.shape == shape
    assert "ssim" not in result.diagnostics


def test_threads_are_set_and_said(scan):
    import torch

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert reconstruct(scan, load_config(method="fbp", threads=2)).settings["threads"] == 2
        assert torch.get_num_threads() == 3  # as before
        assert reconstruct(scan, load_config(method="fbp")).settings["threads"] == 1  # a small image
        assert torch.get_num_threads() == 3
        large = simulate("ellipses", scanner(Volume(shape=(128, 128)), views=3), noise=NoiseLevel(std=0.1))
        assert reconstruct(large, load_config(method="fbp")).settings["threads"] == 3
    finally:
        torch.set_num_threads(before)


def test_two_runs_side_by_side_are_two_runs_one_after_the_other(scan):
    """Nothing of a run is left in the process: not its threads of torch, and no bit of its result."""
    before = torch.get_num_threads()
    dip = ["dip.channels=[8,8]", "dip.strength=0.3", "dip.max_steps=60", "dip.cooldown_steps=20"]
    configs = [
        load_config(
            method="lin-dip", settings=[*dip, "inference.starts=1", "inference.calibrate=none"], seed=3
        ),
        load_config(method="dip", settings=dip, seed=4, threads=1),
    ]
    alone = [reconstruct(scan, config) for config in configs]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(lambda config: reconstruct(scan, config), configs))
    with ThreadPoolExecutor(1) as fresh:
        assert fresh.submit(torch.get_num_threads).result() == before
    for one, other in zip(alone, together, strict=True):
        assert np.array_equal(one.mean, other.mean)
    assert np.array_equal(alone[0].std, together[0].std)
    assert torch.get_num_threads() == before


def test_backends_give_the_same_image(scan):
    """ODL's rays differ by a rounding error, and a few of those run along pixel edges."""
    sparse, astra, odl = (
        reconstruct(scan, load_config(method="cgls", backend=b)).mean for b in ("sparse", "astra", "odl")
    )
    assert np.linalg.norm(astra - sparse) < 1e-4 * np.linalg.norm(sparse)
    assert np.linalg.norm(odl - sparse) < 0.03 * np.linalg.norm(sparse)


def test_unknown_noise_is_estimated_and_said(scan):
    white = simulate("ellipses", FAN, noise=NoiseLevel(relative=0.03), seed=2)
    progress = Notes()
    result = reconstruct(replace(white, noise=None), load_config(method="tv"), progress=progress)
    assert result.diagnostics["noise_estimated"]
    assert result.diagnostics["noise_std"] == pytest.approx(white.noise.std, rel=0.5)
    assert "estimated" in progress.notes[0]


@pytest.mark.parametrize("method", ["tv-gauss", "tv"])
def test_error_bars_that_ignore_the_error_of_the_offset_say_so(method):
    plain = simulate("ellipses", scanner(Volume((16, 16)), 9), noise=NoiseLevel(relative=0.05))
    progress = Notes()
    result = reconstruct(replace(plain, offset_error=0.2), method, progress=progress)
    said = any("take the detector offset as exact" in note and "0.2 mm" in note for note in progress.notes)
    assert said == (method == "tv-gauss")
    assert result.diagnostics.get("offset_error") == (0.0 if method == "tv-gauss" else None)


def test_error_bars_of_a_short_arc_come_with_a_warning():
    told = {}
    for arc in (90, 180):
        geometry = scanner(Volume(shape=(12, 12)), views=10, arc=math.radians(arc))
        short = simulate("ellipses", geometry, noise=NoiseLevel(relative=0.05), seed=3)
        found = reconstruct(short, load_config(method="tv-gauss"))
        told[arc] = any("leave out more than 20° of all directions" in warning for warning in found.warnings)
        assert not reconstruct(short, load_config(method="fbp")).warnings  # an image alone
    assert told == {90: True, 180: False}


def test_a_sinogram_without_noise_cannot_be_judged(scan):
    empty = replace(scan, sinogram=np.zeros(FAN.range_shape), noise=None)
    with pytest.raises(ScanError, match="fbp"):
        reconstruct(empty, load_config(method="tv"))


def test_a_solver_that_did_not_converge_says_so(scan):
    progress = Notes()
    config = load_config(method="tv", settings=["tv.max_iterations=20"])
    result = reconstruct(scan, config, progress=progress)
    assert result.diagnostics["converged"] is False
    assert result.diagnostics["duality_gap"] > 1e-3
    assert "tv.max_iterations" in progress.notes[-1]
    assert "tv.max_iterations" in result.warnings[-1]


def test_the_deep_image_prior_is_a_method_like_the_others(scan, tmp_path):
    settings = ["dip.channels=[8,8]", "dip.max_steps=60", "dip.cooldown_steps=20"]
    config = load_config(method="dip", settings=settings, seed=3)
    result = reconstruct(scan, config, run_folder=tmp_path)
    assert result.diagnostics["steps"] == 60
    assert "stopped by its budget of 60 steps" in result.warnings[-1]
    assert result.diagnostics["misfit"] == pytest.approx(result.traces["misfit"][-1], rel=0.2)
    assert len(result.traces["psnr"]) == 60
    # What was left to the preset is in the result, and runs again to the same bits.
    settings = result.settings["dip"]
    assert settings["skip_channels"] == [4]
    assert settings["learning_rate"] > 0
    again = reconstruct(scan, load_config(**result.settings))
    assert np.array_equal(again.mean, result.mean)


def test_lin_dip_adds_error_bars(tmp_path):
    geometry = scanner(Volume(shape=(16, 16)), views=12)
    scan = simulate("ellipses", geometry, noise=NoiseLevel(relative=0.05), same_grid=True, seed=2)
    settings = [
        *("dip.channels=[8,8]", "dip.max_steps=150", "dip.cooldown_steps=50"),
        *("inference.samples=3", "inference.patch=5", "inference.image=mean", "inference.calibrate=none"),
    ]
    config = load_config(method="lin-dip", settings=settings, seed=3)
    result = reconstruct(scan, config, run_folder=tmp_path)
    assert result.std.shape == result.mean.shape
    assert (result.std > 0).all()
    assert result.samples.shape == (3, 16, 16)
    np.testing.assert_allclose(
        result.mean, (result.images["dip"] + result.images["linear"]) / 2, rtol=1e-4, atol=1e-6
    )
    assert len(result.patches) == 16  # 16 = 5 + 5 + 5 + 1, both ways
    sizes = {(p.rows.start, p.columns.start): p.covariance.shape for p in result.patches}
    assert (sizes[5, 10], sizes[0, 15]) == ((25, 25), (5, 5))
    metrics = result.diagnostics
    assert result.scores.psnr.value == pytest.approx(psnr(result.mean, scan.ground_truth))
    assert 0.5 < result.scores.coverage(0.95).value <= 1
    assert result.scores.log_likelihood[0].value > 0
    assert metrics["sigma_y"] == pytest.approx(metrics["sigma_y_stated"], rel=0.3)
    assert metrics["evidence"] == pytest.approx(result.traces["evidence"][-1], rel=1e-6)
    assert {"log_scale", "log_noise", "log_variance.in"} <= set(metrics["hyperparameters"])
    assert {"prior covariances", "hyperparameters", "posterior"} <= set(result.seconds)
    # Every choice that was left open is in the result, and runs again to the same bits.
    assert result.settings["inference"]["objective"] == "scale"
    again = reconstruct(scan, load_config(**result.settings))
    assert np.array_equal(again.mean, result.mean)
    assert np.array_equal(again.std, result.std)
    # A written file holds all of it.
    write_result(result, tmp_path / "r.h5")
    read = read_result(tmp_path / "r.h5")
    np.testing.assert_array_equal(read.std, result.std.astype(np.float32))
    assert read.scores == result.scores
    assert set(read.images) == {"fbp", "tv", "dip", "linear"}
    np.testing.assert_array_equal(read.samples, result.samples.astype(np.float32))
    np.testing.assert_array_equal(read.sinogram.std, result.sinogram.std.astype(np.float32))
    assert {p.rows.start for p in read.patches} == {0, 5, 10, 15}
    # Nobody looked at the truth.
    blind = reconstruct(replace(scan, ground_truth=None), config)
    assert np.array_equal(blind.std, result.std)
    assert blind.scores is None


def test_exact_inference_that_does_not_fit_is_refused_before_the_network_is_fitted(scan):
    progress = Progress()
    with pytest.raises(MemoryBudgetError, match="lin-dip needs"):
        reconstruct(scan, load_config(method="lin-dip"), progress=progress, memory_budget="200M")
    assert not progress.seconds


def test_another_prior_reuses_fit_and_features(tmp_path, monkeypatch):
    """With a run folder only the evidence is done again; the result is that of a run from scratch."""
    geometry = scanner(Volume(shape=(16, 16)), views=12)
    scan = simulate("ellipses", geometry, noise=NoiseLevel(relative=0.05), seed=2)
    quick = ["dip.channels=[8,8]", "dip.max_steps=60", "dip.cooldown_steps=20", "inference.starts=1"]
    quick += ["inference.calibrate=none"]

    def config(*settings):
        return load_config(method="lin-dip", settings=[*quick, *settings])

    fresh = reconstruct(scan, config("inference.complement=white"))
    reconstruct(scan, config(), run_folder=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"dip.npz", "evidence.npz", "features.npz"}

    def refuse(*_, **__):
        raise AssertionError("this stage was done before")

    monkeypatch.setattr("ct_dip.dip.ensemble.Ensemble.step", refuse)
    monkeypatch.setattr("ct_dip.tangent.jacobian.Jacobian.columns", refuse)
    again = reconstruct(scan, config("inference.complement=white"), run_folder=tmp_path)
    assert np.array_equal(again.mean, fresh.mean)
    assert np.array_equal(again.std, fresh.std)
    # Another kind of prior needs other features.
    with pytest.raises(AssertionError, match="done before"):
        reconstruct(scan, config("inference.prior=isotropic"), run_folder=tmp_path)
    # A damaged or foreign file is made again.
    monkeypatch.undo()
    (tmp_path / "features.npz").write_bytes(b"damaged")
    again = reconstruct(scan, config("inference.complement=white"), run_folder=tmp_path)
    assert np.array_equal(again.std, fresh.std)


def test_only_the_evidence_is_redone_for_another_hyperprior(tmp_path, monkeypatch):
    geometry = scanner(Volume(shape=(16, 16)), views=12)
    scan = simulate("ellipses", geometry, noise=NoiseLevel(relative=0.05), seed=2)
    quick = ["dip.channels=[8,8]", "dip.max_steps=60", "dip.cooldown_steps=20", "inference.starts=1"]
    quick += ["inference.calibrate=none"]

    def config(*settings):
        return load_config(method="lin-dip", settings=[*quick, "inference.objective=optimum", *settings])

    first = reconstruct(scan, config(), run_folder=tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def refuse(*_, **__):
        raise AssertionError("this stage was done before")

    monkeypatch.setattr("ct_dip.dip.ensemble.Ensemble.step", refuse)
    monkeypatch.setattr("ct_dip.tangent.jacobian.Jacobian.columns", refuse)
    other = reconstruct(scan, config("inference.hyperprior=none"), run_folder=tmp_path)
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert [name for name in sorted(after) if after[name] != before.get(name)] == ["evidence.npz"]
    assert not np.array_equal(other.std, first.std)
    # The run that was just made goes on after its evidence.
    monkeypatch.setattr("ct_dip.evidence.stage.fit_evidence", refuse)
    again = reconstruct(scan, config("inference.hyperprior=none"), run_folder=tmp_path)
    assert np.array_equal(again.std, other.std)
    assert again.diagnostics["hyperparameters"] == other.diagnostics["hyperparameters"]
    assert np.array_equal(again.traces["evidence"], other.traces["evidence"])


def test_presets_fill_what_was_not_given(scan):
    def steps(preset, *settings, shape=(40, 40)):
        config = load_config(method="lin-dip", preset=preset, settings=settings).with_preset(shape)
        return config.preset, config.dip.max_steps, config.inference.starts

    assert steps("fast") == ("fast", 500, 1)
    assert steps("balanced") == ("balanced", None, 3)
    assert steps("thorough") == ("thorough", 4000, 5)
    assert steps("fast", "dip.max_steps=77") == ("fast", 77, 1)
    assert steps("auto")[0] == "balanced"
    assert steps("auto", shape=(40, 90))[0] == "fast"
    with pytest.raises(InputError, match="preset"):
        load_config(method="lin-dip", preset="quick")


def test_a_network_that_ran_out_of_steps_is_said(scan):
    """The discrepancy rule does not fire in 30 steps, unless it accepts a million times the noise."""
    quick = ["dip.channels=[4,4]", "dip.max_steps=30", "dip.cooldown_steps=10", "dip.warmup_steps=1"]
    for settings, said in (
        (quick, True),
        ([*quick, "dip.stopping=discrepancy", "dip.discrepancy=1e6"], False),
    ):
        progress = Notes()
        result = reconstruct(scan, load_config(method="dip", settings=settings), progress=progress)
        assert (result.diagnostics["stopped_by"] == "budget") == said
        assert any("budget of 30 steps at a misfit of" in note for note in progress.notes) == said
