"""MkDocs builds the site without a warning; `tests/test_docs.py` checks its pages one by one."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="needs MkDocs: pip install '.[docs]'")
def test_the_site_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (built.returncode, built.stderr) == (0, "")
    assert "<math" in (tmp_path / "understand/theory.html").read_text(encoding="utf-8")  # no script needed
    assert "Reconstruct a scan, or several" in (tmp_path / "reference/api.html").read_text(encoding="utf-8")
