"""The notebooks run from top to bottom on small settings, and are stored with the outputs of larger ones."""

import json
import os
import tempfile
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
SECONDS = 120  # for one cell; a machine that is busy with other tests is slow


def test_there_are_notebooks():
    assert [path.name[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04", "05"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_with_the_outputs_of_one_run(path):
    """So that they can be looked at where nothing is run; notebooks/execute.py stores them."""
    assert path.stat().st_size < 1_000_000
    book = json.loads(path.read_text())
    assert book["metadata"]["kernelspec"]["name"] == "python3"
    cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 3
    assert not [output for output in outputs if output.get("name") == "stderr"]
    assert tempfile.gettempdir() not in json.dumps([output.get("text", "") for output in outputs])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_and_holds_what_it_says(path, tmp_path, monkeypatch):
    """A notebook asserts its own claims; every cell that fails raises here, with its traceback."""
    reason = "notebooks are run with nbclient and ipykernel: pip install '.[test]'"
    nbclient = pytest.importorskip("nbclient", reason=reason)
    pytest.importorskip("ipykernel", reason=reason)
    import nbformat

    if "CT_DIP_DATA" in path.read_text() and "CT_DIP_DATA" not in os.environ:
        pytest.skip(f"CT_DIP_DATA is not set: {path.name} takes a measured scan from there")
    monkeypatch.setenv("CT_DIP_NOTEBOOK_QUICK", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    # No history, profile or connection file in anybody's home.
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    book = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        book, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    written = [output for cell in cells for output in cell.outputs]
    warnings = [output.text for output in written if output.get("name") == "stderr"]
    assert not warnings, f"{path.name} warns: {warnings[0]}"
    # A figure that is not drawn is a line of text, as "<Figure size 640x480>".
    drawn = [output for output in written if "image/png" in output.get("data", {})]
    assert len(drawn) >= 3
    assert not [output for output in written if set(output.get("data", {})) == {"text/plain"}]
