"""Measured scans: orientation, distances and detector offsets are right only if the pictures are."""

import numpy as np
import scipy.io

from ct_dip.methods import load_config
from ct_dip.pipeline import reconstruct
from experiments.real_scans import field_of_view, load_htc, load_walnut


def test_htc_fbp_agrees_with_the_published_segmentation(real_data):
    """0.1483 mm pixels, a quarter turn from ours; the plastic is what is dense."""
    segmentation = scipy.io.loadmat(real_data / "htc2022" / "htc2022_01a_recon_fbp_seg.mat")[
        "reconFullFbpSeg"
    ]
    width = 512 * 0.1483223
    scan = load_htc(real_data / "htc2022" / "htc2022_01a_full.mat", pixels=512, width=width)
    image = reconstruct(scan.bin_detectors(2), load_config(method="fbp")).mean
    dense = image > 0.5 * np.quantile(image[field_of_view(scan)], 0.9)
    agreement = max(np.mean(np.rot90(dense, k) == (segmentation > 0)) for k in range(4))
    assert agreement > 0.985


def test_the_walnut_is_sharp_at_its_measured_offset(real_data):
    """The right detector offset gives the sharpest image; a wrong one doubles every edge."""

    def sharpness(offset):
        scan = load_walnut(real_data / "fips_walnut.mat", pixels=192, offset=offset)
        scan = scan.bin_detectors(8).select_views(slice(None, None, 4))
        image = reconstruct(scan, load_config(method="fbp")).mean
        return float(np.square(np.diff(image, axis=0)).sum() + np.square(np.diff(image, axis=1)).sum())

    assert sharpness(0.28) > max(sharpness(-0.5), sharpness(1.0))
