"""A reference for a measured scan, which has no ground truth: what FBP makes of all views.

It regularises nothing and is no truth: noise, rings and beam hardening are in it as well.
"""

import numpy as np
import torch

from ct_dip.arrays import Floats
from ct_dip.classical.fbp import fbp
from ct_dip.data.scan import Scan


def reference_image(scan: Scan, *, filter: str = "ram-lak", finer: int = 1) -> Floats:
    """FBP of all views on the scan's grid, (rows, columns), 1/mm; 0 outside of the field of view.

    Args:
        scan: with all its views.
        filter: see `ct_dip.classical.fbp.fbp`.
        finer: reconstruct on a grid so many times as fine, and average over the scan's pixels.
    """
    volume = scan.geometry.volume
    geometry = scan.geometry.with_volume(volume.refine(finer))
    image = fbp(torch.as_tensor(scan.sinogram.copy()), geometry, filter=filter).numpy()
    rows, columns = volume.shape
    if finer > 1:
        image = image.reshape(rows, finer, columns, finer).mean(axis=(1, 3))
    return np.where(scan.evaluated, image, np.float32(0))
