"""Plans: what is said beforehand is what is taken."""

import dataclasses
import json
import os
import subprocess
import sys
import time

import pytest

from ct_dip.cli import main
from ct_dip.data.scan_file import write_scan
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.dip.fit import fit_dip
from ct_dip.errors import MemoryBudgetError
from ct_dip.evaluation.heldout import heldout_views
from ct_dip.geometry import Volume
from ct_dip.methods import load_config
from ct_dip.operators.sparse import estimate_bytes
from ct_dip.pipeline import plan_run, reconstruct
from ct_dip.scanners import scanner

QUICK = ["dip.channels=[8,8]", "dip.max_steps=30", "dip.cooldown_steps=10"]


def make(size, views=12):
    return simulate(
        "ellipses", scanner(Volume(shape=(size, size)), views=views), noise=NoiseLevel(relative=0.05)
    )


def test_every_method_has_a_plan():
    scan = make(24)
    for method in ("fbp", "cgls", "tv", "dip", "lin-dip"):
        plan = plan_run(scan, load_config(method=method), budget=2**34)
        assert plan.stages[0].name == "ray transform"
        assert plan.bytes == max(stage.bytes for stage in plan.stages)
        assert ("network" in plan.facts) == ("dip" in method)
        assert plan.seconds is None
        plan.require()


def test_exact_inference_grows_as_the_fourth_power_of_the_side():
    config = load_config(method="lin-dip", settings=["dip.preset=small", "inference.regime=exact"])
    small, large = (plan_run(make(size, size), config, budget=2**34).bytes for size in (40, 80))
    assert 12 < large / small < 17


def test_what_does_not_fit_is_refused_with_advice():
    config = load_config(method="lin-dip", settings=["inference.regime=exact"])
    plan = plan_run(make(64), config, budget=2**28)
    with pytest.raises(MemoryBudgetError, match=r"lin-dip needs .* budget is 256 MiB; exact .*=compressed"):
        plan.require()


def test_advice_names_method_dip_only_where_that_fits():
    config = load_config(method="lin-dip", settings=["inference.regime=compressed"])
    scan = make(64)
    dip = plan_run(scan, load_config(method="dip"), budget=2**34).bytes
    enough, short = (plan_run(scan, config, budget=budget).advice for budget in (dip, dip - 1))
    assert "or method dip" in enough
    assert short == "use a smaller image or fewer views"


@pytest.mark.parametrize(("method", "settings"), [("lin-dip", []), ("tv-gauss", ["check=views"])])
def test_held_out_views_need_another_ray_transform(method, settings):
    """The one of the other views is there while that of all views waits."""
    scan = dataclasses.replace(make(48, 30), ground_truth=None)
    plan = plan_run(scan, load_config(method=method, settings=settings), budget=2**34)
    bytes_of = {stage.name: stage.bytes for stage in plan.stages}
    others = max(size for name, size in bytes_of.items() if "held-out" not in name)
    (held_out,) = (size for name, size in bytes_of.items() if "held-out" in name)
    matrix = estimate_bytes(scan.select_views(~heldout_views(scan.geometry)).geometry, "auto")
    assert held_out >= others + matrix > others


def test_every_stage_of_a_run_is_in_its_plan_with_a_time():
    """Also the choice of settings, the error bars, and the second run without some views."""
    scan = dataclasses.replace(make(12), ground_truth=None)
    few = ["tv_langevin.draws=5", "tv_langevin.burn_in=5"]
    for method, settings in (("tv", ()), ("tv-gauss", ()), ("matern-gp", ()), ("tv-langevin", few)):
        config = load_config(method=method, settings=settings)
        plan = plan_run(scan, config, budget=2**34, measure=True)
        assert all(stage.seconds is not None for stage in plan.stages)
        assert list(reconstruct(scan, config).seconds) == [stage.name for stage in plan.stages]
        assert f"{plan.stages[-1].name}: " in str(plan)


def test_measured_time_is_of_the_right_order():
    """A fit of 300 steps takes between a tenth of and ten times what the plan says."""
    scan = make(20)
    settings = ["dip.channels=[8,8]", "dip.max_steps=300", "dip.stopping=budget"]
    config = load_config(method="dip", settings=settings)
    said = plan_run(scan, config, budget=2**34, measure=True).stages[1].seconds
    start = time.perf_counter()
    fit_dip(scan, config.dip)
    assert said / 10 < time.perf_counter() - start < 10 * said


def test_the_run_follows_the_plan_near_the_limit():
    """Between what exact inference takes and that plus the arrays beside it, both decide the same."""
    scan = make(20)
    config = load_config(method="lin-dip", settings=[*QUICK, "inference.starts=1", "inference.samples=2"])
    plan = plan_run(scan, config, budget=2**34)
    assert plan.facts["regime"] == "exact"
    budget = max(plan.details.bytes.values()) + 1  # not enough for the images and sinograms beside them
    assert plan_run(scan, config, budget=budget).facts["regime"] == "compressed"
    result = reconstruct(scan, config, memory_budget=budget)
    assert result.diagnostics["regime"] == "compressed"


@pytest.mark.parametrize("regime", ["exact", "compressed"])
def test_said_memory_is_enough(tmp_path, regime):
    """In a process of its own: what lin-dip takes beyond an idle one."""
    write_scan(make(32, 24), tmp_path / "scan.h5")
    script = """
import sys
from ct_dip import load_config, read_scan, reconstruct, fit_dip, DipConfig, ray_transform
from ct_dip.memory import anonymous_bytes
from ct_dip.pipeline import plan_run
scan = read_scan(sys.argv[1])
fit_dip(scan, DipConfig(channels=(8, 8), max_steps=2, cooldown_steps=1, warmup_steps=1))
before = anonymous_bytes()
config = load_config(method="lin-dip", settings=sys.argv[2:])
peak = reconstruct(scan, config).diagnostics["peak_memory_mb"] * 2**20
print(int(peak - before), plan_run(scan, config, budget=2**34).bytes)
"""
    settings = [*QUICK, "inference.starts=1", f"inference.regime={regime}"]
    output = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "scan.h5"), *settings],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    ).stdout
    taken, said = (int(part) for part in output.split())
    # Fixed costs are counted for large networks, and this one reuses what the interpreter has already.
    assert taken < said * 1.1


def test_the_verb(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_scan(make(20), "scan.h5")
    quick = " ".join(f"--set {setting}" for setting in QUICK)
    assert main(f"plan scan.h5 {quick} --json".split()) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["fits"] is True
    assert [stage["name"] for stage in facts["stages"]][-1] == "posterior"
    assert all(stage["seconds"] > 0 for stage in facts["stages"])
    assert main(f"plan scan.h5 {quick}".split()) == 0
    said = capsys.readouterr().out
    assert "network passes" in said
    assert "exact" in said
    assert main("plan scan.h5 --budget-memory 1M".split()) == 0
    assert "does NOT fit" in capsys.readouterr().out


def test_the_verb_takes_what_reconstruct_takes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_scan(make(20), "scan.h5")
    assert main("plan scan.h5 --method dip --preset fast --threads 1 --device cpu --json".split()) == 0
    fast = json.loads(capsys.readouterr().out)["stages"][1]["passes"]
    assert main("plan scan.h5 --method dip --preset thorough --json".split()) == 0
    assert json.loads(capsys.readouterr().out)["stages"][1]["passes"] == 8 * fast  # 500 and 4000 steps
    assert main("plan scan.h5 --method dip --device abacus".split()) == 2
    assert "abacus" in capsys.readouterr().err
