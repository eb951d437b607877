"""``import ct_dip`` is cheap: heavy libraries load when something needs them."""

import ast
import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ct_dip
from tests import tiny

HEAVY = ("torch", "astra", "odl", "matplotlib", "scipy", "skimage", "h5py", "tomosipo")


def a_scan():
    return ct_dip.simulate("ellipses", ct_dip.scanner(ct_dip.Volume((12, 12)), views=6))


def a_posterior():
    return ct_dip.fit_posterior(tiny.dip_fit(), tiny.scan(), ct_dip.InferenceConfig(starts=1))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: ct_dip.simulate("ellipses", a_scan().geometry, noise=0.05),
            r"noise must be a NoiseLevel, for example NoiseLevel\(relative=0\.05\), not 0\.05",
        ),
        (
            lambda: ct_dip.simulate("ellipses", (28, 28)),
            r"geometry must be a ParallelBeam .*, not \(28, 28\)",
        ),
        (lambda: dataclasses.replace(a_scan(), noise=0.1), r"noise must be a noise model, .*, not 0\.1"),
        (lambda: ct_dip.NoiseLevel(relative=-0.05), "noise relative -0.05 must be a positive number"),
        (lambda: ct_dip.NoiseLevel(photons="many"), "noise photons 'many' must be a positive number"),
        (lambda: ct_dip.scanner((28, 28), views=20), r"volume must be a Volume, .*, not \(28, 28\)"),
        (
            lambda: ct_dip.ray_transform(a_scan()),
            "geometry must be a ParallelBeam .*scan.geometry, not a Scan",
        ),
        (lambda: ct_dip.reconstruct(np.ones((6, 17)), method="tv"), "scan must be a Scan, .*, not a ndarray"),
        (lambda: ct_dip.reconstruct(7, method="tv"), "scan must be a Scan, .*, not 7"),
        (
            lambda: ct_dip.fit_posterior(tiny.dip_fit(), tiny.scan(), prior="g"),
            r"prior must be a WeightPrior, .* not 'g'; for a built-in one: InferenceConfig\(prior='g'\)",
        ),
        (
            lambda: ct_dip.fit_posterior(tiny.dip_fit(), tiny.scan(), complement=3),
            "complement must be a Complement, or make one, not 3$",
        ),
        (lambda: a_posterior().sample(-1), "count: -1 must be a whole number of at least 1"),
        (
            lambda: ct_dip.Prediction(mean=np.zeros((2, 2)), samples=np.zeros((3, 2, 2))).sample(-1),
            "count: -1 must be a whole number of at least 1",
        ),
    ],
)
def test_an_argument_of_a_wrong_kind_is_named(call, words):
    with pytest.raises(ct_dip.CtDipError, match=words):
        call()


def loaded_by(code):
    report = f"{code}\nimport sys\nprint([m for m in {HEAVY!r} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return run.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    "code",
    [
        "import ct_dip",
        "import ct_dip; ct_dip.Volume, ct_dip.ParallelBeam, ct_dip.FanBeam",
        "from ct_dip.cli import main; main(['--help'])",
        "from ct_dip.cli import main; main(['simulate', '--help'])",
        "from ct_dip.cli import main; main(['simulate', '--vews', '3'])",
    ],
)
def test_nothing_heavy_is_imported(code):
    assert loaded_by(code) == "[]"


def test_every_public_name_is_there():
    stub = ast.parse(Path(ct_dip.__file__).with_suffix(".pyi").read_text())
    imported = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    assert {alias.name for node in imported for alias in node.names} == set(ct_dip.__all__)
    for node in imported:
        for alias in node.names:
            assert alias.asname == alias.name  # else type checkers take it for private
            found = getattr(ct_dip, alias.name)
            if node.module:
                home = sys.modules[f"ct_dip.{node.module}"]
                assert found is getattr(home, alias.name)
                assert getattr(found, "__module__", home.__name__) == home.__name__, "name its own home"
    assert set(dir(ct_dip)) >= set(ct_dip.__all__)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = ct_dip.nonsense


def test_public_names_are_not_hidden_by_modules_of_that_name():
    """A submodule, once imported, becomes an attribute of the package, and would shadow a function."""
    import pkgutil

    modules = {module.name for module in pkgutil.iter_modules(ct_dip.__path__)}
    assert modules & set(ct_dip.__all__) == {"memory"}  # which is one


def test_memory_is_there_as_the_readme_names_it():
    code = "import ct_dip; ct_dip.memory.keep_freed(); print('kept')"
    assert "kept" in subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout


def test_names_that_one_would_guess_work(tmp_path):
    """The program runs, and draws nothing where nobody looks; `make lint` checks its types."""
    program = Path(__file__).with_name("guessed_names.py")
    run = subprocess.run([sys.executable, program], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert run.stdout.startswith("method: tv")
    assert "holds no posterior samples" in run.stdout
    assert run.stderr == ""
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"image-mean.tif", "page.html", "comparison.html", "figures"}


def test_a_method_may_be_the_second_argument():
    geometry = ct_dip.scanner(ct_dip.Volume((16, 16)), 12)
    scan = ct_dip.simulate("ellipses", geometry, noise=ct_dip.NoiseLevel(relative=0.05), seed=0)
    assert ct_dip.reconstruct(scan, "fbp").method == "fbp"
    assert ct_dip.plan(scan, "fbp", measure=False).method == "fbp"
    with pytest.raises(ct_dip.InputError, match="is not known"):
        ct_dip.reconstruct(scan, "fpb")


def test_several_rows_are_asked_of_the_right_function(tmp_path):
    with pytest.raises(ct_dip.InputError, match="import_rows"):
        ct_dip.import_scan(tmp_path / "scan.h5", rows="all")
