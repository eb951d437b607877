"""A measured tooth from few views of a parallel beam, beside the reference of all 181.

``CT_DIP_DATA=… python -m experiments.tooth [--cases 96-30v …] [--methods tv …] --out DIR``
"""

from functools import partial

from benchmarks.measured_scans import measured_scan
from experiments.study import Case, run_study

CASES = [
    Case(f"{side}-{views}v", partial(measured_scan, "tooth", "0", side=side, views=views))
    for side, views in ((96, 60), (96, 30), (128, 60))
]

if __name__ == "__main__":
    run_study("tooth", CASES, about=__doc__)
