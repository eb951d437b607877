"""A wheel holds the whole package, and works where the source tree is not."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from ct_dip import __version__

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT]
    built = subprocess.run(command, capture_output=True, text=True)
    if "hatchling" in built.stderr and "No matching distribution" in built.stderr:
        pytest.skip("pip cannot download hatchling, which builds the wheel")
    assert built.returncode == 0, built.stderr
    (file,) = folder.glob("*.whl")
    assert file.name == f"ct_dip-{__version__}-py3-none-any.whl"
    return file


def test_the_wheel_has_every_file_of_the_package(wheel):
    """Templates, styles, scripts and type stubs, too."""
    source = {path.relative_to(ROOT).as_posix() for path in (ROOT / "ct_dip").rglob("*") if path.is_file()}
    with zipfile.ZipFile(wheel) as file:
        packed = {name for name in file.namelist() if name.startswith("ct_dip/")}
    assert packed == {name for name in source if "__pycache__" not in name}


def test_an_installed_wheel_runs_the_demo(wheel, tmp_path):
    """Installed alone into an empty environment, which borrows the libraries of this one."""
    venv.create(tmp_path / "venv")
    paths = {"base": str(tmp_path / "venv"), "platbase": str(tmp_path / "venv")}
    packages = Path(sysconfig.get_path("purelib", vars=paths))
    python = Path(sysconfig.get_path("scripts", vars=paths)) / "python"
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-compile",
    ]
    subprocess.run([*install, wheel], check=True)
    # Not a site directory: an editable install of the source tree is not found through it.
    libraries = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "libraries.pth").write_text("\n".join(sorted(libraries)))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*command):
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = run(python, "-c", "import ct_dip; print(ct_dip.__file__)")
    assert Path(where.strip()).is_relative_to(packages)
    assert run(python.with_name("ct-dip"), "--version").strip() == __version__
    assert "demo/report.html" in run(python.with_name("ct-dip"), "demo")
    for page in ("report.html", "comparison.html"):
        assert "</html>" in (tmp_path / "demo" / page).read_text()
