"""From counts to line integrals: what is averaged, what is reported."""

import re

import numpy as np
import tifffile

from ct_dip.importers.run import import_scan
from ct_dip.scanners import view_angles
from tests.importers.files import disk, readings


def test_zero_and_saturated_counts_stay_with_the_scan(tmp_path):
    truth = disk(view_angles(40), rows=1)
    counts = readings(truth)[0][:, 0]
    counts[7, 15] = 0
    counts = np.minimum(counts, 4600)
    tifffile.imwrite(tmp_path / "one.tif", counts)
    scan = import_scan(
        tmp_path / "one.tif", arc=np.pi, counts=True, flat="5020", center=15.5, detector_pitch=1.0
    )
    assert len(scan.warnings) == 2
    assert re.match(r"\d+ of 1280 readings are 4600, where the detector saturates", scan.warnings[0])
    assert scan.warnings[1].startswith("1 of 1280 rays have no light")
    assert scan.sinogram[7, 15] == scan.sinogram.max()


def test_counts_are_binned_not_logarithms(tmp_path):
    """Half of a bin behind metal: mean counts say 1/2 of the air, mean logarithms next to none."""
    counts = np.full((10, 8), 1000.0)
    counts[:, 1] = 1.0
    for suffix, values, options in (
        ("counts", counts, {"counts": True, "flat": "1000"}),
        ("integrals", -np.log(counts / 1000), {}),
    ):
        np.savez(tmp_path / f"{suffix}.npz", sinogram=values, angles=view_angles(10), detector_pitch=1.0)
        scan = import_scan(tmp_path / f"{suffix}.npz", bin=2, **options)
        np.testing.assert_allclose(scan.sinogram[:, 0], -np.log(1001 / 2000), rtol=1e-6)
        assert "counts of 2 neighbouring detectors averaged" in scan.steps
