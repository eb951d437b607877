"""Every figure that a result allows."""

import contextlib
from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from ct_dip.data.prediction import Prediction
from ct_dip.data.result_file import AnyResult, load_result
from ct_dip.errors import MissingPartError
from ct_dip.pages.calibration_figures import (
    calibration_figure,
    quantile_figure,
    residual_figure,
    sparsification_figure,
    std_error_figure,
)
from ct_dip.pages.figures import reconstruction_panel, save_png
from ct_dip.pages.inference_figures import (
    evidence_figure,
    hyperparameters_figure,
    panel_figure,
    samples_figure,
    sinogram_figure,
)


def result_panel(result: Prediction, *, title: str | None = None) -> Figure:
    """The image, its standard deviation, and the truth or reference with the difference, side by side."""
    compared, name = result.comparison, result.method.upper()
    return reconstruction_panel(
        {f"TV image of {name}" if result.shows_total_variation else name: result.mean},
        std=result.std,
        pixel_size=result.pixel_size,
        truth=None if compared is None else compared.image,
        truth_name="reference" if compared is not None and compared.name == "reference" else "ground truth",
        mask=result.evaluated,
        title=title,
    )


# In the order in which a reader would look at them.
FIGURES: dict[str, Callable[[Prediction], Figure]] = {
    "image": result_panel,
    "panel": panel_figure,
    "samples": samples_figure,
    "sinogram": sinogram_figure,
    "evidence": evidence_figure,
    "hyperparameters": hyperparameters_figure,
    "coverage": calibration_figure,
    "std-error": std_error_figure,
    "residuals": residual_figure,
    "quantiles": quantile_figure,
    "sparsification": sparsification_figure,
}


def figures(result: AnyResult, out: str | Path | None = None) -> dict[str, Figure]:
    """Draw every figure that a result allows, by name; leave out those whose data it does not hold.

    Args:
        result: a `Prediction`, or the path of a result file.
        out: folder to write them to, as ``NAME.png``, replacing files of these names.
    """
    result, drawn = load_result(result), {}
    for name, draw in FIGURES.items():
        with contextlib.suppress(MissingPartError):
            drawn[name] = draw(result)
    if out is not None:
        for name, figure in drawn.items():
            save_png(figure, Path(out) / f"{name}.png")
    return drawn
