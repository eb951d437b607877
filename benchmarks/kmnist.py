"""The scans of the linearised deep-image-prior papers: KMNIST, parallel beam, 41 bins, same grid."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ct_dip.data.scan import Scan
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.geometry import ParallelBeam, Volume
from ct_dip.scanners import view_angles


def kmnist_scans(images: Iterable[int], *, views: int, noise: float) -> list[Scan]:
    """One scan per test image; the noise of image i has seed i."""
    stack = np.load(data_folder() / "kmnist_test_first100.npz", allow_pickle=False)["images"] / 255
    geometry = ParallelBeam(volume=Volume(shape=(28, 28)), angles=view_angles(views), detectors=41)
    level = NoiseLevel(relative=noise)
    return [
        simulate(stack[i], geometry, noise=level, attenuation=1.0, same_grid=True, seed=i) for i in images
    ]


def data_folder() -> Path:
    """Where the data are, or a word on how to say so."""
    folder = os.environ.get("CT_DIP_DATA")
    if folder is None:
        sys.exit("this benchmark needs data: set CT_DIP_DATA, see data/README.md")
    return Path(folder)
