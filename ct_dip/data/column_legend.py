"""Write tables of scores as CSV files, and explain their columns: every meaning is read on its own."""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ct_dip.files import write_bytes

# N stands for a number in a column's name.
FIGURES = {
    "scan": "name of the scan",
    "item": "number of the item in the dataset",
    "label": "name of the item",
    "method": "the method, with the settings that tell it from other runs of it",
    "state": "pending, running, done or failed",
    "error": "why the run failed",
    "warnings": "what to know before the row is believed",
    "compared_with": "truth or reference: the image that the result was compared with",
    "pixels": "distribution of a single pixel; empty without error bars",
    "scan_digest": "digest of the scan's data, the same in result files",
    "result": "result file, below the folder of the evaluation",
    "seconds": "time of the run, without the scores",
    "peak_memory_mb": "peak memory of the process during the run, MB",
    "evidence": "log marginal likelihood of the sinogram, nats; larger is better, for one method",
    "psnr": "peak signal-to-noise ratio for the value range of the image compared with, dB; larger is better",
    "ssim": "structural similarity, for the value range of the image compared with; 1 is perfect",
    "psnr_fixed": "PSNR for the range given as `value_range` of `ct_dip.score`, dB; larger is better",
    "ssim_fixed": "SSIM for the range given as `value_range` of `ct_dip.score`; 1 is perfect",
    "mae": "mean absolute error of the image, 1/mm; smaller is better",
    "rmse": "root mean squared error of the image, 1/mm; smaller is better",
    "coverage_N": "share inside the central N % interval; N % is right",
    "log_likelihood_N": "log-density of the truth, in patches of N × N pixels, in nats per pixel and for "
    "values in 1/mm; larger is better",
    "log_likelihood_image": "log-density of the truth, as one whole image, in nats per pixel and for "
    "values in 1/mm; larger is better",
    "crps": "continuous ranked probability score of single pixels, 1/mm; smaller is better",
    "rms_z": "root mean square of error over standard deviation; 1 is right, more is overconfident",
    "largest_z": "largest error over its standard deviation",
    "z_999": "error over standard deviation that one pixel in a thousand exceeds; 3.29 for a Gaussian",
    "ence": "expected normalised calibration error: mean over ten bins of pixels with similar error bars of "
    "|rms error − rms error bar| / rms error bar; 0 is right",
    "ause": "area between the sparsification curve and that of an oracle: whether wide error bars are where "
    "errors are; 0 is best",
    "ause_of_no_knowledge": "what `ause` would be for error bars in random order",
    "heldout_log_density": "log predictive density of held-out measurements, nats each; larger is better",
    "heldout_coverage_N": "share of held-out measurements inside their central N % interval; N % is right",
    "heldout_rms_z": "root mean square of held-out residuals over their standard deviations; 1 is right",
    "heldout_rms_z_smoothed": "root mean square of held-out residuals, averaged over 7 neighbouring "
    "detectors, over their standard deviations; 1 is right",
    "heldout_misfit": "mean squared held-out residual over the variance of the stated noise; 1 is the noise",
}
ENDINGS = {
    "": "all evaluated pixels: the scan's mask, or its field of view",
    "_near": "pixels in the object or next to it",
    "_flat": "pixels near the object without an edge",
    "_edges": "pixels near the object with a step of a tenth of the image's range among their neighbours",
    "_background": "pixels that are not near the object",
    "_blocks_4": "means over blocks of 4×4 pixels near the object",
    "_blocks_8": "means over blocks of 8×8 pixels near the object",
    "_regions": "means over regions that the user named",
    "_se": "standard error of the column without this ending",
}
_WHERE = "|".join(ending for ending in ENDINGS if ending not in ("", "_se"))
_NAME = re.compile(rf"(?P<figure>.+?)(?P<ending>{_WHERE})?(?P<error>_se)?")
HEADING = ("column", "meaning")  # by which a file of ours is known


def legend_path(path: Path) -> Path:
    """Return where the columns of a CSV file are explained: ``scores_columns.csv`` of ``scores.csv``."""
    return path.with_name(f"{path.stem}_columns.csv")


def column_meaning(name: str) -> str:
    """Explain a column by its name, as ``coverage_95_near``; empty if it is unknown."""
    match = _NAME.fullmatch(name)
    if match is None:
        return ""
    if match["error"]:
        explained = name.removesuffix("_se")
        return f"standard error of {explained}" if column_meaning(explained) else ""
    figure, number = match["figure"], re.search(r"\d+$", match["figure"])
    text = FIGURES.get(figure, "")
    if not text and number is not None:
        pattern = figure.removesuffix(number[0]) + "N"
        text = re.sub(r"\bN\b", number[0], FIGURES.get(pattern, ""))
    return f"{text} ({ENDINGS[match['ending']]})" if text and match["ending"] else text


def write_table(path: str | Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows by the names of their columns as a CSV file, with its legend beside it, `legend_path`."""
    _write_csv(Path(path), columns, rows)
    meanings = [{"column": name, "meaning": column_meaning(name)} for name in columns]
    _write_csv(legend_path(Path(path)), HEADING, meanings)


def _write_csv(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_bytes(path, text.getvalue().encode("utf-8"))
