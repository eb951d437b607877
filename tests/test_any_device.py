"""Everything runs where the data are: on a device that refuses to mix with the CPU, to the CPU's numbers."""

import numpy as np
import pytest
import torch

from ct_dip.cli import main
from ct_dip.data.result_file import read_result
from ct_dip.data.scan_file import write_scan
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.devices import pick_device
from ct_dip.dip import fit as dip_fit
from ct_dip.dip.ensemble import Ensemble
from ct_dip.dip.presets import resolve
from ct_dip.geometry import Volume
from ct_dip.methods import find_method, load_config
from ct_dip.operators import ray_transform
from ct_dip.pipeline import reconstruct
from ct_dip.posterior.config import InferenceConfig
from ct_dip.posterior.fit import fit_posterior
from ct_dip.scanners import scanner
from ct_dip.tangent.jacobian import Jacobian
from tests import tiny
from tests.pretend_device import DEVICE, DeviceError, pretend_device

SCAN = simulate("ellipses", scanner(Volume(shape=(12, 12)), views=9), noise=NoiseLevel(relative=0.05), seed=1)
NETWORK = ["channels=[4,4]", "max_steps=30", "cooldown_steps=10", "warmup_steps=5"]


def configure(method, device="pretend", **settings):
    lines = [f"dip.{line}" for line in NETWORK if "dip" in find_method(method).config.sections()]
    lines += [f"{name.replace('__', '.')}={value}" for name, value in settings.items()]
    return load_config(method=method, settings=lines, device=device)


def close(result, expected):
    """Float32's rounding is all that may differ; here even that does not, since the CPU computes both."""
    np.testing.assert_allclose(result.mean, expected.mean, rtol=1e-4, atol=1e-6)
    if expected.std is not None:
        np.testing.assert_allclose(result.std, expected.std, rtol=1e-4, atol=1e-7)


def test_the_device_refuses_what_a_gpu_refuses():
    with pretend_device() as traffic:
        x = torch.ones(3, device="pretend")
        y = 2 * x * torch.tensor(3.0) + x[torch.tensor([0, 1, 2])]
        assert y.device == DEVICE
        for mixed in (
            lambda: x + torch.ones(3),
            lambda: torch.cat([x, torch.ones(1)]),
            lambda: torch.ones(3).add_(x),
            lambda: torch.ones(3)[x.long()],
            lambda: torch.randn(3, device="pretend", generator=torch.Generator()),
        ):
            with pytest.raises(DeviceError):
                mixed()
        with pytest.raises(RuntimeError, match="numpy"):
            np.asarray(x)
        assert (traffic.to_device, traffic.to_host, traffic.waits) == (1, 0, 0)  # the index
        assert float(y.sum()) == 21
        assert y.cpu().tolist() == [7, 7, 7]
        assert (traffic.to_device, traffic.to_host, traffic.waits) == (1, 1, 1)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("fbp", {}),
        ("cgls", {}),
        ("cgls", {"backend": "astra"}),
        ("tv", {"tv__tolerance": 1e-2}),
        ("dip", {"dip__jitter": 0.01}),
        ("dip", {"dip__strength": 0.3, "dip__input": "fbp"}),
        ("laplace-kfac", {"dip__strength": 0.3}),
        ("laplace-subnetwork", {"dip__strength": 0.3, "subnetwork__weights": 20}),
        ("sgld", {"dip__strength": 0.3, "sgld__steps": 10, "sgld__burn_in": 5, "sgld__samples": 5}),
        ("sparse-vd", {"dip__strength": 0.3, "variational__steps": 10, "variational__samples": 5}),
    ],
)
def test_methods_find_what_they_find_on_the_cpu(method, settings):
    with pretend_device():
        result = reconstruct(SCAN, configure(method, **settings))
    close(result, reconstruct(SCAN, configure(method, "cpu", **settings)))
    assert result.diagnostics["device"] == "pretend:0"


def test_the_command_line_takes_any_device_that_torch_knows(tmp_path):
    assert pick_device("pretend:0") == DEVICE
    write_scan(SCAN, tmp_path / "scan.h5")
    with pretend_device():
        line = ["reconstruct", str(tmp_path / "scan.h5"), "--method", "cgls", "--device", "pretend"]
        assert main([*line, "--out", str(tmp_path / "cgls.h5")]) == 0
    assert read_result(tmp_path / "cgls.h5").diagnostics["device"] == "pretend:0"


@pytest.mark.parametrize("stopping", ["discrepancy", "variance"])
@pytest.mark.parametrize("members", [1, 2])
def test_a_step_of_a_fit_tells_the_host_once(stopping, members):
    """Losses and misfits, and which rules fire, in one copy; of the schedule as much goes the other way."""
    config = resolve(configure("dip", dip__stopping=stopping).dip, SCAN.geometry.domain_shape)
    with pretend_device() as traffic:
        transform = ray_transform(SCAN.geometry, device=DEVICE)
        ensemble = Ensemble([SCAN] * members, config, list(range(members)), transform, DEVICE)
        ensemble.step()  # which also copies an image, for its PSNR
        ensemble.restore({name: tensor.cpu() for name, tensor in ensemble.state().items()})  # as from a file
        before = vars(traffic).copy()
        for _ in range(10):
            ensemble.step()
    assert traffic.to_host - before["to_host"] == 10
    assert traffic.waits == before["waits"]
    assert traffic.to_device - before["to_device"] <= 10 * members  # several networks: which are not done


def test_an_interrupted_fit_goes_on_where_it_ran(tmp_path, monkeypatch):
    step = Ensemble.step

    def interrupted(self):
        if self.adam.steps == 12:
            raise KeyboardInterrupt
        return step(self)

    monkeypatch.setattr(dip_fit, "_CHECKPOINT_SECONDS", -1.0)
    config = configure("dip")
    with pretend_device():
        with monkeypatch.context() as patch:
            patch.setattr(Ensemble, "step", interrupted)
            with pytest.raises(KeyboardInterrupt):
                reconstruct(SCAN, config, run_folder=tmp_path)
        result = reconstruct(SCAN, config, run_folder=tmp_path)
    close(result, reconstruct(SCAN, configure("dip", "cpu")))


@pytest.mark.parametrize("regime", ["exact", "compressed", "iterative"])
def test_error_bars_are_those_of_the_cpu_and_so_are_resumed_ones(regime, tmp_path):
    settings = {"dip__strength": 0.3, "inference__regime": regime, "inference__samples": 20}
    expected = reconstruct(SCAN, configure("lin-dip", "cpu", **settings))
    with pretend_device():
        for _ in range(2):
            result = reconstruct(SCAN, configure("lin-dip", **settings), run_folder=tmp_path)
            close(result, expected)
    assert result.diagnostics["device"] == "pretend:0"


@pytest.fixture(scope="module")
def fit():
    return dip_fit.fit_dip(SCAN, configure("dip").dip)


WIDE = {"objective": "optimum", "hyperprior": "tv-predcp", "starts": 1}


@pytest.mark.parametrize(
    "settings",
    [
        {"regime": "exact"},
        {"regime": "exact", "prior": "g", "complement": "floor", "temper": 0.5, "tv": "majorant"},
        {"regime": "exact", "complement": "white", "integrate": "laplace"},
        {"regime": "exact", **WIDE},
        {"regime": "exact", "prior": "isotropic", "objective": "fit", "complement": "none"},
        {"regime": "compressed", "tv": "majorant"},
        {"regime": "compressed", "prior": "g", "complement": "floor", "deviations": "samples", "temper": 0.5},
        {"regime": "compressed", **WIDE},
        {"regime": "iterative", "prior": "g", "complement": "white"},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_inference_stays_on_the_device(settings, fit):
    """Nothing larger than an image or a sinogram is copied to the host: no matrix."""
    config = InferenceConfig(samples=20, **settings)
    expected = fit_posterior(fit, SCAN, config)
    with pretend_device() as traffic:
        posterior = fit_posterior(fit, SCAN, config, device=DEVICE)
        assert posterior.deviations.std.device == DEVICE
        assert traffic.largest_to_host <= max(fit.image.size, SCAN.sinogram.size)
        close(posterior, expected)
        np.testing.assert_allclose(posterior.sample(2, seed=9), expected.sample(2, seed=9), rtol=1e-3)
        for part, whole in zip(posterior.covariance(8), expected.covariance(8), strict=True):
            np.testing.assert_allclose(part.covariance, whole.covariance, rtol=1e-3, atol=1e-9)


def test_the_jacobian_of_any_network_works_there():
    expected = Jacobian(tiny.network(), tiny.network_input()).dense()
    with pretend_device():
        jacobian = Jacobian(tiny.network().to(DEVICE), tiny.network_input().to(DEVICE))
        found = jacobian.dense(device=DEVICE).cpu()
        adjoint = jacobian.T.dense(device=DEVICE).cpu()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(adjoint.T, expected)


def test_features_stay_on_the_host_where_the_device_has_no_room_for_them(monkeypatch):
    """The plan says so, the blocks are there, and the numbers are the same."""
    from ct_dip.pipeline import plan_run
    from ct_dip.posterior import compressed_fit

    settings = {"inference__regime": "compressed", "inference__samples": 20, "inference__starts": 1}
    expected = reconstruct(SCAN, configure("lin-dip", "cpu", **settings))
    kept = []
    grow = compressed_fit.extend
    monkeypatch.setattr(compressed_fit, "extend", lambda *a, **k: kept.append(grow(*a, **k)) or kept[-1])
    monkeypatch.setattr("ct_dip.methods.lin_dip.free_memory", lambda device: 1)
    with pretend_device():
        assert plan_run(SCAN, configure("lin-dip", **settings), budget=2**34).details.features_on_host
        result = reconstruct(SCAN, configure("lin-dip", **settings))
        features, basis = kept[-1].features, kept[-1].basis
        assert all(block.is_cpu for block in features.blocks)
        assert features.device == basis.blocks[-1].device == DEVICE
    close(result, expected)
