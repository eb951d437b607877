"""How the error bars of the FIPS walnut grow with the error of its detector offset.

``CT_DIP_DATA=… python -m experiments.offset_error --out FILE``

60 of 1,200 views, 64² pixels of 0.625 mm, bins of 1.4 mm. The network is fitted once (seed 0, defaults)
and its posterior computed for every error, without held-out views. *Edges* are the tenth of the pixels near
the object where f(w̃) changes most. Coverage is that of 95 % intervals against the reference of
`benchmarks.measured_scans`.
"""

import argparse
import dataclasses
import json
from pathlib import Path

import numpy as np

from benchmarks.measured_scans import measured_scan
from ct_dip.devices import use_threads
from ct_dip.dip.fit import fit_dip
from ct_dip.evaluation.near import near_object
from ct_dip.methods import load_config
from ct_dip.posterior.fit import fit_posterior

ERRORS = (0.0, 0.001, 0.1, 0.3)  # mm; the second is that of the search in the data


def main() -> None:
    """Print a row for every error, and append it to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines")
    options = parser.parse_args()
    scan, comparison = measured_scan("fips-walnut", "", side=64, views=60)
    print(scan, scan.steps, f"offset {scan.geometry.detector_offset:.4f} ± {scan.offset_error:.4f} mm")
    config = load_config(method="lin-dip").resolved(scan.geometry.domain_shape)
    with use_threads(1):
        fit = fit_dip(scan, config.dip)
        near = near_object(comparison.image, scan.evaluated, noisy=True)
        slope = np.hypot(*np.gradient(fit.image))
        edges = near & (slope >= np.quantile(slope[near], 0.9))
        exact = None
        for error in ERRORS:
            posterior = fit_posterior(fit, dataclasses.replace(scan, offset_error=error), config.inference)
            exact = posterior.std if exact is None else exact
            ratio = posterior.std / exact
            wide = 1.96 * np.hypot(posterior.std, comparison.noise_std)
            inside = np.abs(posterior.mean - comparison.image) <= wide
            nuisance = getattr(posterior.problem.whitened, "nuisance", None)
            row = {
                "error": error,
                "nuisance": 0.0 if nuisance is None else float(nuisance.norm()),
                "std_ratio_edges": float(np.median(ratio[edges])),
                "std_ratio_near": float(np.median(ratio[near])),
                "std_ratio_largest": float(ratio[near].max()),
                "noise": posterior.noise_std / posterior.stated_noise_std,
                "evidence": posterior.evidence.evidence,
                "coverage_near": float(inside[near].mean()),
                "coverage_edges": float(inside[edges].mean()),
                "regime": posterior.regime,
            }
            print(row, flush=True)
            with options.out.open("a") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
