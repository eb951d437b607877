"""The Helsinki Tomography Challenge 2022: images, error bars and segmentations from few views and short arcs.

``CT_DIP_DATA=… python -m experiments.htc2022 [--cases 02b-30v …] [--methods tv …] --out DIR``
"""

from functools import partial

from benchmarks.kmnist import data_folder
from benchmarks.measured_scans import FINE, measured_scan
from ct_dip.data.comparison import Comparison
from ct_dip.data.scan import Scan
from ct_dip.importers.run import import_scan
from experiments.htc2022.segmentation import segmentation_figures
from experiments.study import COLUMNS, Case, run_study

SIDE = 128
ARCS = {"01a": 90, "02b": 80, "04c": 60}  # degrees
SEGMENTED = {
    "matthews": ("Matthews", ".3f"),
    "wrong": ("wrong", ".2%"),
    "expected_wrong": ("expected", ".2%"),
    "sure": ("sure", ".1%"),
    "wrong_where_sure": ("wrong there", ".2%"),
}


def limited_scan(which: str) -> tuple[Scan, Comparison]:
    """Return the views that the challenge gave, all of a short arc, and the reference of the full circle."""
    _, comparison = measured_scan("htc", which, side=SIDE, views=15)
    path = data_folder() / "htc2022" / f"htc2022_{which}_limited.mat"
    scan = import_scan(path, size=SIDE, width=76.0, noise="none")
    return scan.bin_detectors(FINE // SIDE), comparison


CASES = [
    *(
        Case(
            f"{which}-{views}v",
            partial(measured_scan, "htc", which, side=SIDE, views=views),
            figures=partial(segmentation_figures, which),
        )
        for which in ("02b", "01a", "04c")
        for views in (30, 15, 60)
    ),
    *(
        Case(f"{which}-{arc}deg", partial(limited_scan, which), figures=partial(segmentation_figures, which))
        for which, arc in ARCS.items()
    ),
]

if __name__ == "__main__":
    run_study("htc2022", CASES, about=__doc__, columns=COLUMNS | SEGMENTED)
