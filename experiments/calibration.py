"""How the defaults of Bayesian inference were chosen: KMNIST images 50 to 99, one setting a run.

``CT_DIP_DATA=… python -m experiments.calibration --images 50:58 --set inference.temper=0.3``

Prints mean ± standard error of what `benchmarks kmnist-loglik` reports on images 0 to 9, which are never
used here.
"""

import argparse

import numpy as np

from benchmarks.kmnist import kmnist_scans
from benchmarks.kmnist_loglik import figures
from ct_dip.dip.fit import fit_dip
from ct_dip.methods import load_config
from ct_dip.operators import ray_transform
from ct_dip.posterior.fit import fit_posterior


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", default="50:100", help="first:last, from 50 on")
    parser.add_argument("--views", type=int, default=20)
    parser.add_argument("--noise", type=float, default=0.05)
    parser.add_argument("--set", action="append", default=[], help="section.key=value")
    arguments = parser.parse_args()
    first, last = (int(part) for part in arguments.images.split(":"))
    if first < 50:
        parser.error(f"--images {arguments.images}: images below 50 are for reporting; begin at 50")
    config = load_config(method="lin-dip", preset="balanced", settings=arguments.set)
    rows = []
    for scan in kmnist_scans(range(first, last), views=arguments.views, noise=arguments.noise):
        transform = ray_transform(scan.geometry)
        fit = fit_dip(scan, config.dip, transform=transform)
        posterior = fit_posterior(fit, scan, config.inference, transform=transform)
        rows.append(figures(posterior, scan) | {"steps": fit.steps})
    for name in rows[0]:
        values = np.array([row[name] for row in rows])
        print(f"{name:28s} {values.mean():8.3f} ± {values.std(ddof=1) / np.sqrt(len(values)):.3f}")


if __name__ == "__main__":
    main()
