"""A method of another package, in one file: everything else follows from it."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import ct_dip
from ct_dip.cli import main
from ct_dip.data.result_file import read_result
from ct_dip.data.scan_file import write_scan
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.errors import CtDipError, InputError
from ct_dip.geometry import Volume
from ct_dip.methods import find_method, load_config, method_names, summary_of, title_of
from ct_dip.scanners import scanner

TOY = '''
"""Back-projection with error bars that are all alike."""

import numpy as np
from pydantic import Field

from ct_dip.config import RunConfig, Section
from ct_dip.data.prediction import Prediction
from ct_dip.method import Method


class ToyConfig(Section):
    """How sure it claims to be."""

    std: float = Field(default=0.004, gt=0)
    draws: int = 60


class ToyRun(RunConfig):
    """Settings of method toy."""

    toy: ToyConfig = ToyConfig()


class Toy(Method[ToyRun]):
    """``x = c Aᵀ y``."""

    name = "toy"
    title = "a toy"
    summary = "Back-projection, with the same error bar everywhere."
    reference = "nobody, never"
    gives = ("image", "error bars", "samples")
    config = ToyRun

    def plan(self, scan, config, start):
        return start.with_facts(colour="green").with_stage("toy", 1000)

    def run(self, job):
        transform = job.transform()
        with job.progress.stage("toy"):
            image = transform.T(job.sinogram)
            image = (image / image.max() * 0.02).numpy()
        shape, std = image.shape, job.config.toy.std
        noise = np.random.default_rng(job.config.seed).standard_normal((job.config.toy.draws, *shape))
        return Prediction(
            mean=image,
            std=np.full(shape, std),
            samples=image + std * noise,
            diagnostics={"brightest": float(image.max())},
            warnings=("this is a toy",),
        )
'''

SCAN = simulate(
    "ellipses", scanner(Volume(shape=(16, 16)), views=10), noise=NoiseLevel(relative=0.05), seed=12
)


def install(folder, monkeypatch, source=TOY, point="toy = toy_method:Toy"):
    """What pip would leave in site-packages."""
    (folder / "toy_method.py").write_text(source)
    info = folder / "toy_method-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-method\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[ct_dip.methods]\n{point}\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "toy_method", raising=False)


@pytest.fixture
def toy(tmp_path, monkeypatch):
    (site := tmp_path / "site").mkdir()
    install(site, monkeypatch)
    monkeypatch.chdir(tmp_path)
    write_scan(SCAN, "scan.h5")


def test_the_package_finds_its_own_methods():
    assert {"fbp", "cgls", "tv", "dip", "lin-dip"} <= set(method_names())
    for name in method_names():
        method = find_method(name)
        assert method.name == name
        assert method.summary.endswith(".")
        assert method.reference
        assert load_config(method=name).method == name
    assert (title_of("tv"), title_of("gone")) == ("total variation", "gone")
    assert (summary_of("gone"), summary_of("fbp")[:8]) == ("", "Filtered")
    with pytest.raises(InputError, match=r"method 'magic' is not known; choose one of .*cgls, .*tv"):
        find_method("magic")
    for slip, meant in {"tvv": "tv", "lindip": "lin-dip"}.items():
        with pytest.raises(InputError, match=rf"method '{slip}' is not known; did you mean '{meant}'\?"):
            find_method(slip)


@pytest.mark.usefixtures("toy")
def test_python_knows_it():
    found = ct_dip.reconstruct("scan.h5", method="toy", std=0.002, seed=4)
    assert (found.method, found.settings["toy"]["std"], found.warnings) == ("toy", 0.002, ("this is a toy",))
    assert found.scores.coverage(0.95).count == SCAN.evaluated.sum()
    assert found.scores.coverage(0.95, "blocks_4") is not None
    assert found.scores.log_likelihood.keys() == {1, 2, 3}  # 60 samples are too few for patches of 5²
    again = ct_dip.reconstruct(SCAN, **found.settings)
    np.testing.assert_array_equal(again.samples, found.samples)
    several = ct_dip.reconstruct([SCAN, "scan.h5"], method="toy")
    np.testing.assert_array_equal(several[0].mean, several[1].mean)
    with pytest.raises(InputError, match=r"toy\.std=-1 must be greater than 0"):
        load_config(method="toy", std=-1)


@pytest.mark.usefixtures("toy")
def test_every_verb_knows_it(capsys):
    assert main(["methods"]) == 0
    assert "the same error bar everywhere" in capsys.readouterr().out
    assert main("methods --json".split()) == 0
    assert json.loads(capsys.readouterr().out)["toy"]["settings"] == {"toy": {"std": 0.004, "draws": 60}}
    assert main("plan scan.h5 --method toy --json".split()) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["colour"] == "green"
    assert [stage["name"] for stage in facts["stages"]] == ["ray transform", "toy"]
    assert main("reconstruct scan.h5 --method toy --set toy.std=0.003 --out r.h5 --figures all".split()) == 0
    said = capsys.readouterr()
    assert "note: this is a toy" in said.err
    assert "nats per pixel" in said.out
    page = Path("r.html").read_text(encoding="utf-8")
    assert "by a toy" in page
    assert "The true object is known here" in page
    assert main("info r.h5 --json".split()) == 0
    assert json.loads(capsys.readouterr().out)["brightest"] == pytest.approx(0.02)
    assert main("query r.h5 --roi=-3,-3,3,3".split()) == 0
    assert "(95 %: " in capsys.readouterr().out
    assert main("report r.h5 --out again.html".split()) == 0
    assert main("export r.h5 --format tiff --out image".split()) == 0
    assert main("reconstruct scan.h5 --method tv --set toy.std=1 --out t.h5".split()) == 2
    assert "no effect with method 'tv'" in capsys.readouterr().err
    assert read_result("r.h5").settings["toy"]["std"] == 0.003
    assert main("compare scan.h5 --methods toy,fbp --out both".split()) == 0
    assert "toy" in Path("both/comparison.csv").read_text()


def test_a_method_that_cannot_be_loaded_is_named_and_the_others_work(tmp_path, monkeypatch, capsys):
    install(tmp_path, monkeypatch, source="import nowhere_at_all")
    with pytest.raises(CtDipError, match=r"method 'toy' \(toy_method:Toy\) cannot be loaded: No module"):
        find_method("toy")
    assert main(["methods"]) == 0
    said = capsys.readouterr()
    assert "nowhere_at_all" in said.err
    assert "total variation" in said.out.lower()
    with pytest.raises(InputError, match="did you mean 'tv'"):
        load_config(settings=["tvv.strength=1"])
