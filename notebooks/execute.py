"""Execute notebooks from top to bottom, and store them with their outputs.

``python notebooks/execute.py`` takes all of them, ``python notebooks/execute.py FILE...`` some; minutes each.
"""

import base64
import io
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbclient
import nbformat
from PIL import Image


def execute(path: Path) -> None:
    """Run a notebook in a fresh kernel and an empty folder, and replace the file."""
    book = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        client = nbclient.NotebookClient(
            book, timeout=3600, kernel_name="python3", record_timing=False, resources=resources
        )
        client.execute()
    store(book, path)


def store(book: Any, path: Path) -> None:
    """Write a notebook without the version of this machine's Python, its pictures in few bytes."""
    book.metadata["language_info"] = {"name": "python"}
    for cell in book.cells:
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = smaller(output.data["image/png"])
    nbformat.write(book, path)


def smaller(png: str) -> str:
    """Encode a picture with 256 colours, which are enough for a figure and take half of the bytes."""
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(base64.b64decode(png))) as picture:
        few = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        few.save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()


if __name__ == "__main__":
    given = [Path(name) for name in sys.argv[1:]]
    for each in given or sorted(Path(__file__).parent.glob("*.ipynb")):
        execute(each)
