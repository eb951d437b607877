"""Measured scans: orientation, distances and detector offsets are right only if the pictures are."""

import numpy as np

from ct_dip.importers.run import import_scan
from ct_dip.methods import load_config
from ct_dip.pipeline import reconstruct
from experiments.htc2022.segmentation import compare, given_segmentation


def test_htc_fbp_agrees_with_the_published_segmentation(real_data):
    """The plastic is what is dense. Mirrored or turned it differs in 2 % of the pixels of 01a and more."""
    path = real_data / "htc2022" / "htc2022_01a_full.mat"
    scan = import_scan(path, size=128, width=76.0, views=180, noise="none")
    image = reconstruct(scan.bin_detectors(2), load_config(method="fbp"))
    assert compare(image, given_segmentation("01a", 128))["wrong"] < 0.01


def test_the_walnut_is_sharp_at_its_measured_offset(real_data):
    """The right detector offset gives the sharpest image; a wrong one doubles every edge."""

    def sharpness(offset):
        path = real_data / "fips_walnut.mat"
        scan = import_scan(path, size=192, width=40.0, detector_offset=offset, noise="none")
        scan = scan.bin_detectors(8).select_views(slice(None, None, 4))
        image = reconstruct(scan, load_config(method="fbp")).mean
        return float(np.square(np.diff(image, axis=0)).sum() + np.square(np.diff(image, axis=1)).sum())

    assert sharpness(0.28) > max(sharpness(-0.5), sharpness(1.0))
