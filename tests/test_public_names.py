"""``import ct_dip`` is cheap: heavy libraries load when something needs them."""

import subprocess
import sys

import pytest

import ct_dip

HEAVY = ("torch", "astra", "odl", "matplotlib", "scipy", "skimage", "h5py", "tomosipo")


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
    for name in ct_dip.__all__:
        assert getattr(ct_dip, name) is not None
    assert dir(ct_dip) == ct_dip.__all__
    with pytest.raises(AttributeError, match="nonsense"):
        _ = ct_dip.nonsense


def test_public_names_are_not_hidden_by_modules_of_that_name():
    """A submodule, once imported, becomes an attribute of the package, and would shadow a function."""
    import pkgutil

    modules = {module.name for module in pkgutil.iter_modules(ct_dip.__path__)}
    assert not modules & set(ct_dip.__all__)


def test_memory_is_there_as_the_readme_names_it():
    code = "import ct_dip; ct_dip.memory.keep_freed(); print('kept')"
    assert "kept" in subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
