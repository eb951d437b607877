"""An HTML page that compares reconstructions of one scan; one file, no network."""

import base64
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.files import write_bytes
from ct_dip.methods import summary_of
from ct_dip.progress import format_duration
from ct_dip.report.figures import darkened, png_bytes, reconstruction_panel


def write_comparison(path: str | Path, scan: Scan, results: Sequence[Prediction]) -> None:
    """Write the page: one picture of all, a table of figures, the settings."""
    panel = reconstruction_panel(
        {result.method.upper(): result.mean for result in results},
        pixel_size=scan.geometry.volume.pixel_size,
        truth=scan.ground_truth,
    )
    template = files("ct_dip.report").joinpath("comparison.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters["duration"] = format_duration
    page = environment.from_string(template).render(
        scan=scan,
        geometry=scan.geometry,
        results=results,
        summary_of=summary_of,
        picture=base64.b64encode(png_bytes(panel)).decode("ascii"),
        dark_picture=base64.b64encode(png_bytes(darkened(panel))).decode("ascii"),
    )
    write_bytes(path, page.encode("utf-8"))
