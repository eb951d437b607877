"""A measured walnut from few views, beside the reference of all 1,200.

``CT_DIP_DATA=… python -m experiments.walnut [--cases 128-60v …] [--methods tv …] --out DIR``
"""

from functools import partial

from benchmarks.measured_scans import measured_scan
from experiments.study import Case, run_study

# At 501² the default network of 128 channels would take a day of one core; one of 32 fits.
LARGE = ("dip.preset=medium", "dip.max_steps=500", "dip.cooldown_steps=300")
CASES = [
    Case(
        f"{side}-{views}v",
        partial(measured_scan, "fips-walnut", "", side=side, views=views),
        network=LARGE if side > 256 else (),
    )
    for side, views in ((128, 60), (128, 20), (128, 120), (256, 60), (256, 20), (256, 120), (501, 120))
]

if __name__ == "__main__":
    run_study("walnut", CASES, about=__doc__)
