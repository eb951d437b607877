"""The page "Which method?" has every method, and its figures are drawn with and without error bars."""

import re
from itertools import chain
from pathlib import Path

import numpy as np

import experiments.method_figures as method_figures
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.geometry import Volume
from ct_dip.methods import find_method, method_names
from ct_dip.scanners import scanner
from experiments.method_figures import FAMILIES, family_figure, line, result

DOCS = Path(__file__).parents[1] / "docs"


def test_every_method_is_on_the_page_with_what_it_gives():
    page = (DOCS / "which-method.md").read_text()
    rows = {row[1]: row for row in re.finditer(r"^\| `([\w-]+)` \|[^|]*\| ([ES –]+) \|", page, re.MULTILINE)}
    assert sorted(rows) == sorted(chain(*FAMILIES.values())) == method_names()
    for name, row in rows.items():
        gives = {"E": "error bars", "S": "samples"}
        assert {"image", *(gives[letter] for letter in row[2] if letter in gives)} == set(
            find_method(name).gives
        )
    assert all((DOCS / image).exists() for image in re.findall(r"\]\((methods-\w+\.png)\)", page))
    assert sum(image.stat().st_size for image in DOCS.glob("*.png")) < 2**20


def test_a_result_is_kept_and_drawn(tmp_path, monkeypatch):
    geometry = scanner(Volume(shape=(16, 16)), views=8)
    scan = simulate("ellipses", geometry, noise=NoiseLevel(relative=0.05), seed=0)
    monkeypatch.setattr(method_figures, "example_scan", lambda: scan)
    first = {name: result(name, tmp_path / f"{name}.h5") for name in ("fbp", "matern-gp")}
    again = {name: result(name, tmp_path / f"{name}.h5") for name in first}
    for name, prediction in first.items():
        np.testing.assert_array_equal(again[name].mean, prediction.mean)
        assert line(name, again[name]) == line(name, prediction)  # its CPU seconds, too
    assert line("fbp", first["fbp"]).count("–") == 4
    texts = [text.get_text() for axis in family_figure(first).axes for text in axis.texts]
    assert texts == ["no error bars"]
