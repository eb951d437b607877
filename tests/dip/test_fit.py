"""Fits: that they find the object, do not peek, can be many, and can be killed."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from ct_dip.data.scan_file import write_scan
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.devices import use_threads
from ct_dip.dip.config import DipConfig
from ct_dip.dip.ensemble import Ensemble, FitDivergedError
from ct_dip.dip.fit import CHECKPOINT, _digest, fit_bytes, fit_dip, fit_many
from ct_dip.dip.presets import resolve
from ct_dip.dip.schedule import Schedule
from ct_dip.errors import InputError, ScanError
from ct_dip.geometry import Volume
from ct_dip.operators import ray_transform
from ct_dip.operators.differences import total_variation
from ct_dip.progress import Progress, Stage
from ct_dip.quality import psnr
from ct_dip.scanners import scanner

GEOMETRY = scanner(Volume(shape=(20, 20)), views=15)
TRANSFORM, CPU = ray_transform(GEOMETRY), torch.device("cpu")
QUICK = DipConfig(channels=(8, 8), warmup_steps=10, cooldown_steps=30, max_steps=80)


def make(seed=1, **options):
    return simulate("ellipses", GEOMETRY, noise=NoiseLevel(relative=0.05), seed=seed, **options)


def test_a_fit_explains_the_data_and_finds_the_object():
    scan = make(same_grid=True)
    fit = fit_dip(scan, DipConfig(channels=(32, 32, 32), max_steps=1200))
    assert fit.stopped_by == "discrepancy"
    assert fit.steps < 1200
    assert 0.6 < fit.misfit < 1.05
    quality = psnr(fit.image, scan.ground_truth)
    assert quality > 24
    # The kept iterate is about as good as any on the way, though nothing compared it with the truth.
    assert quality > fit.traces["psnr"].max() - 0.7
    assert len(fit.traces["loss"]) == fit.steps
    rebuilt = fit.scale * fit.network()(fit.network_input)[0, 0]
    np.testing.assert_allclose(rebuilt.detach().numpy(), fit.image, rtol=1e-4, atol=1e-6)


def test_the_truth_is_only_logged():
    scan = make()
    seen, unseen = fit_dip(scan, QUICK), fit_dip(replace(scan, ground_truth=None), QUICK)
    assert np.array_equal(seen.image, unseen.image)
    assert "psnr" not in unseen.traces


def test_seeds_decide_and_repeat():
    scan = make()
    first, again, other = (fit_dip(scan, QUICK, seed=s).image for s in (3, 3, 4))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    "options",
    [
        {"input": "noise"},
        {"jitter": 0.05},
        {"output": "softplus"},
        {"output": "identity"},
        {"norm_groups": 4},
        {"stopping": "variance"},
        {"stopping": "budget"},
        {"skip_channels": (0,)},
        {"upsampling": "nearest"},
    ],
)
def test_every_option_runs_and_matters(options):
    scan = make()
    plain = fit_dip(scan, QUICK)
    changed = fit_dip(scan, QUICK.model_copy(update=options))
    assert np.isfinite(changed.image).all()
    if "stopping" not in options:
        assert not np.array_equal(changed.image, plain.image)
        assert changed.traces["misfit"][-1] < 0.5 * changed.traces["misfit"][0]


def test_photon_counts_are_fitted_by_either_likelihood():
    scan = simulate("ellipses", GEOMETRY, noise=NoiseLevel(photons=2000), seed=1)
    images = [
        fit_dip(scan, QUICK.model_copy(update={"data_term": kind})).image for kind in ("gaussian", "poisson")
    ]
    assert not np.array_equal(*images)
    assert np.linalg.norm(images[0] - images[1]) < 0.3 * np.linalg.norm(images[0])


def test_many_are_the_same_as_one_by_one():
    """The same arithmetic in another order: rounding differs, and training lets it grow slowly."""
    scans = [make(seed) for seed in (1, 2, 3)]
    together = fit_many(scans, QUICK, seeds=[5, 6, 7])
    for scan, seed, fit in zip(scans, (5, 6, 7), together, strict=True):
        alone = fit_dip(scan, QUICK, seed=seed)
        assert fit.steps == alone.steps
        assert fit.stopped_by == alone.stopped_by
        np.testing.assert_allclose(fit.traces["loss"][:10], alone.traces["loss"][:10], rtol=1e-3)
        assert np.linalg.norm(fit.image - alone.image) < 0.02 * np.linalg.norm(alone.image)


def test_many_have_strengths_of_their_own():
    scan, strengths = make(), [0.8, "auto"]
    quick = QUICK.model_copy(update={"channels": (4, 4), "max_steps": 40, "strength": 0.3})
    for strength, fit in zip(
        strengths, fit_many([scan] * 2, quick, seeds=[5, 5], strengths=strengths), strict=True
    ):
        alone = fit_dip(scan, quick.model_copy(update={"strength": strength}), seed=5)
        assert (fit.strength, fit.stopped_by) == (alone.strength, alone.stopped_by)
        np.testing.assert_allclose(fit.traces["loss"][:10], alone.traces["loss"][:10], rtol=1e-3)
        assert np.linalg.norm(fit.image - alone.image) < 0.02 * np.linalg.norm(alone.image)
    with pytest.raises(InputError, match="2 strengths were given for 1 scans"):
        fit_many([scan], QUICK, strengths=[0.1, 0.8])


def test_each_of_many_stops_by_its_own_data():
    quiet, loud = (
        simulate("ellipses", GEOMETRY, noise=NoiseLevel(relative=level), seed=1, same_grid=True)
        for level in (0.04, 0.4)
    )
    config = DipConfig(channels=(16, 16), warmup_steps=10, cooldown_steps=20, max_steps=400)
    fits = fit_many([quiet, loud], config)
    assert fits[1].steps < fits[0].steps
    assert len(fits[1].traces["loss"]) == fits[1].steps


def test_one_scan_with_many_seeds():
    scan = make()
    fits = fit_many([scan, scan], QUICK, seeds=[1, 2])
    assert not np.array_equal(fits[0].image, fits[1].image)


def test_unknown_noise_is_estimated_and_stopped_by_the_running_variance():
    ensemble = Ensemble(
        [replace(make(), noise=None)],
        resolve(QUICK, (20, 20)),
        [0],
        ray_transform(GEOMETRY),
        torch.device("cpu"),
    )
    assert ensemble.rule.name == "running variance"
    assert (ensemble.targets.precision > 0).all()


def test_dense_parts_are_not_cut_at_what_the_scan_says_of_soft_ones():
    """A body of water with a bone of 2.5 times its attenuation, as ``simulate --hu`` scans it."""
    body = np.zeros((20, 20))
    body[3:17, 3:17], body[8:12, 8:12] = 1.0, 2.5
    scan = simulate(body, GEOMETRY, noise=NoiseLevel(relative=0.02), attenuation=0.02, same_grid=True)
    assert scan.attenuation_scale == 0.02
    fit = fit_dip(scan, DipConfig(channels=(16, 16), max_steps=600, cooldown_steps=200))
    assert fit.image[9:11, 9:11].mean() == pytest.approx(0.05, rel=0.1)


def test_a_fit_ends_with_the_noise_model_alone():
    """Ramp-filtered residuals hardly see a shift of a whole view: alone they would leave it."""
    schedule = Schedule(peak=1.0, warmup=1, cooldown=10, budget=50)
    shares = [float(schedule.heat(step, torch.tensor([20]))) for step in (0, 20, 25, 30)]
    assert shares == pytest.approx([1, 1, 0.5, 0])
    scan = make(same_grid=True)
    fit = fit_dip(scan, QUICK.model_copy(update={"ramp": 1.0, "max_steps": 400}))
    variation = float(total_variation(torch.as_tensor(fit.image) / fit.scale, isotropic=True))
    expected = fit.misfit + 2 * fit.tv_weight / scan.sinogram.size * variation
    assert fit.loss == pytest.approx(expected, rel=1e-3)
    assert fit.traces["loss"][-1] == pytest.approx(expected, rel=0.02)  # the last step's own objective


class KilledError(Exception):
    pass


class KillAt(Progress):
    """Stops the process of fitting, rudely, at a step."""

    def __init__(self, step):
        super().__init__()
        self.step = step

    def _show(self, name, total):
        import contextlib

        outer = self

        class Watcher(Stage):
            def update(self, done, **figures):
                if done >= outer.step:
                    raise KilledError

        return contextlib.nullcontext(Watcher())


@pytest.mark.parametrize("options", [{}, {"jitter": 0.05}, {"stopping": "variance"}])
def test_an_interrupted_fit_goes_on_to_the_same_bits(tmp_path, monkeypatch, options):
    monkeypatch.setattr("ct_dip.dip.fit._CHECKPOINT_SECONDS", 0.0)
    config = QUICK.model_copy(update=options)
    whole = fit_dip(make(), config)
    for step in (1, 23, 57, 79):
        with pytest.raises(KilledError):
            fit_dip(make(), config, run_folder=tmp_path, progress=KillAt(step))
    resumed = fit_dip(make(), config, run_folder=tmp_path)
    assert np.array_equal(resumed.image, whole.image)
    for name in whole.traces:
        assert np.array_equal(resumed.traces[name], whole.traces[name])
    assert np.array_equal(fit_dip(make(), config, run_folder=tmp_path).image, whole.image)


def test_a_checkpoint_of_another_device_or_number_of_threads_is_continued_only_if_asked(
    tmp_path, monkeypatch
):
    whole = fit_dip(make(), QUICK)
    monkeypatch.setattr("ct_dip.dip.fit._CHECKPOINT_SECONDS", 0.0)
    with pytest.raises(KilledError):
        fit_dip(make(), QUICK, run_folder=tmp_path, progress=KillAt(40))
    with use_threads(torch.get_num_threads() + 1):
        with pytest.raises(InputError, match=r"differs in: threads was 1 and is 2; continue with --resume"):
            fit_dip(make(), QUICK, run_folder=tmp_path)
        resumed = fit_dip(make(), QUICK, run_folder=tmp_path, resume="compatible")
    np.testing.assert_allclose(resumed.image, whole.image, atol=1e-3 * whole.image.max())
    parts = json.loads(_digest([make()], QUICK, [0], "", torch.device("cuda")))
    assert parts["device"] == "cuda"


def test_a_fit_whose_cooldown_is_longer_than_its_budget_is_continued(tmp_path, monkeypatch):
    monkeypatch.setattr("ct_dip.dip.fit._CHECKPOINT_SECONDS", 0.0)
    config = QUICK.model_copy(update={"max_steps": 20, "stopping": "budget"})
    whole = fit_dip(make(), config)
    assert whole.steps == 30  # those of the cool-down
    with pytest.raises(KilledError):
        fit_dip(make(), config, run_folder=tmp_path, progress=KillAt(28))
    assert np.array_equal(fit_dip(make(), config, run_folder=tmp_path).image, whole.image)


def test_kill_9_and_start_again(tmp_path):
    """The real thing: SIGKILL at arbitrary moments, through the command line."""
    write_scan(make(), tmp_path / "scan.h5")
    settings = ("channels=[16,16]", "strength=0.3", "max_steps=600", "stopping=budget")
    options = "--method dip --threads 1 " + " ".join(f"--set dip.{setting}" for setting in settings)

    def command(out, run):
        words = f"reconstruct scan.h5 --out {out} --run {run} {options}".split()
        code = "import ct_dip.dip.fit as f, sys; f._CHECKPOINT_SECONDS = 0.05\n"
        code += "from ct_dip.cli import main; sys.exit(main(sys.argv[1:]))"
        return subprocess.Popen([sys.executable, "-c", code, *words], cwd=tmp_path, env=os.environ.copy())

    assert command("whole.h5", "whole").wait(timeout=120) == 0
    kills = 0
    for _ in range(3):
        job = command("killed.h5", "killed")
        checkpoint = tmp_path / "killed" / CHECKPOINT
        deadline = time.monotonic() + 60
        started = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        while job.poll() is None and time.monotonic() < deadline:
            if checkpoint.exists() and checkpoint.stat().st_mtime_ns > started:
                time.sleep(0.3)
                job.send_signal(signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.02)
        job.wait()
    assert command("killed.h5", "killed").wait(timeout=120) == 0
    assert kills >= 2

    from ct_dip.data.result_file import read_result

    assert np.array_equal(read_result(tmp_path / "killed.h5").mean, read_result(tmp_path / "whole.h5").mean)


def test_a_checkpoint_of_something_else_is_refused_and_kept(tmp_path):
    fit_dip(make(), QUICK, run_folder=tmp_path)
    path = tmp_path / CHECKPOINT
    before = path.read_bytes()
    for scan, config, others in (
        (make(seed=2), QUICK, {}),
        (make(), QUICK.model_copy(update={"strength": 0.5}), {}),
        (make(), QUICK, {"seed": 1}),
        (make(), QUICK, {"transform": ray_transform(GEOMETRY, kernel="line")}),
        (make(), QUICK, {"transform": ray_transform(GEOMETRY, "astra")}),
    ):
        with pytest.raises(InputError, match="differs in: "):
            fit_dip(scan, config, run_folder=tmp_path, **others)
    assert path.read_bytes() == before
    path.write_bytes(before[: len(before) // 2])
    with pytest.raises(InputError, match="remove it"):
        fit_dip(make(), QUICK, run_folder=tmp_path)


def test_a_hopeless_step_size_is_reported():
    with pytest.raises(FitDivergedError, match=r"diverged twice.*dip\.learning_rate"):
        fit_dip(make(), QUICK.model_copy(update={"learning_rate": 1e6, "output": "identity"}))


def test_a_collapsed_network_is_not_taken_for_a_fit():
    """A sigmoid that is driven to zero everywhere has a finite loss and no gradient."""
    scan = make(same_grid=True)
    wild = QUICK.model_copy(update={"learning_rate": 1.0, "max_steps": 200})
    try:
        fit = fit_dip(scan, wild)
    except FitDivergedError:
        return
    assert fit.traces["loss"][-1] < 0.1 * fit.traces["loss"][0]


def test_one_divergence_is_rolled_back(monkeypatch):
    """A loss that is not a number once, from outside: the fit goes on with smaller steps."""
    original = Ensemble._evaluate_all
    calls = {"count": 0}

    def poisoned(self, z, ramp):
        gradient, loss, *rest = original(self, z, ramp)
        calls["count"] += 1
        return gradient, loss * float("nan") if calls["count"] == 40 else loss, *rest

    monkeypatch.setattr(Ensemble, "_evaluate_all", poisoned)
    fit = fit_dip(make(), QUICK)
    assert np.isfinite(fit.image).all()
    assert fit.misfit < fit.traces["misfit"][0]
    assert np.isfinite(fit.traces["loss"]).all()


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_constant_sinograms_are_refused(value):
    scan = replace(make(), sinogram=np.full(GEOMETRY.range_shape, value))
    with pytest.raises(ScanError, match=f"{value:g} everywhere"):
        fit_dip(scan, QUICK)


def test_a_scan_whose_noise_is_missing_and_cannot_be_found_is_refused():
    smooth = np.tile(np.linspace(0, 1, GEOMETRY.detectors), (GEOMETRY.views, 1)).round(2) ** 0
    smooth[:, 0] = 2
    with pytest.raises(ScanError, match="states no noise"):
        fit_dip(replace(make(), sinogram=smooth, noise=None), QUICK)


def test_scans_that_do_not_belong_together_are_refused():
    other = simulate("ellipses", scanner(Volume(shape=(20, 20)), views=9), noise=NoiseLevel(relative=0.05))
    with pytest.raises(InputError, match="same geometry"):
        fit_many([make(), other], QUICK)
    with pytest.raises(InputError, match="no scans"):
        fit_many([], QUICK)
    with pytest.raises(InputError, match="3 seeds"):
        fit_many([make()], QUICK, seeds=[1, 2, 3])


def test_memory_is_known_beforehand():
    small, large = fit_bytes(DipConfig(), (28, 28)), fit_bytes(DipConfig(), (256, 256))
    assert small < 100e6
    assert 500e6 < large < 1e9  # what a process was seen to grow by
    assert fit_bytes(DipConfig(), (28, 28), members=16) > small


def test_networks_that_are_done_are_not_computed():
    """Two of three stop; the third goes on alone, to what it finds without company."""
    scans = [make(seed=s) for s in (1, 2, 3)]
    config = resolve(QUICK, GEOMETRY.domain_shape)
    ensemble = Ensemble(scans, config, [0, 1, 2], ray_transform(GEOMETRY), torch.device("cpu"))
    for _ in range(5):
        ensemble.step()
    ensemble.done[:2] = True
    gradient, loss, misfit, images = ensemble._evaluate_all(ensemble.inputs, torch.zeros(3))
    assert not gradient[:2].any()
    assert gradient[2].any()
    assert torch.isnan(loss[:2]).all()
    assert torch.isnan(images[:2]).all()
    assert torch.isfinite(misfit[2])
    figures = ensemble.step()
    assert all(np.isfinite(value) for value in figures.values())
