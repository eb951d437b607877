"""Measured scans that no importer reads as these tests need them."""

import math

import numpy as np
import tifffile

from ct_dip.data.scan import Scan
from ct_dip.geometry import FanBeam, ParallelBeam, Volume
from ct_dip.importers.matlab import read_matlab
from ct_dip.scanners import view_angles


def walnut(folder, views, bin=4):
    """Either sinogram of the FIPS walnut, with the offset that is known."""
    counts = np.asarray(read_matlab(folder / "fips_walnut.mat", f"sinogram{views}"), dtype=np.float64).T
    counts = counts.reshape(views, -1, bin).mean(axis=2)
    ends = 100 // bin
    air = np.median(np.concatenate([counts[:, :ends], counts[:, -ends:]], axis=1), axis=1, keepdims=True)
    geometry = FanBeam(
        volume=Volume(shape=(64, 64), pixel_size=0.6),
        angles=view_angles(views, 2 * math.pi),
        detectors=counts.shape[1],
        detector_pitch=0.05 * bin,
        detector_offset=0.28,
        source_origin=110.0,
        origin_detector=190.0,
    )
    return Scan(sinogram=-np.log(counts / air), geometry=geometry)


def neutron(folder):
    """Line integrals of the neutron scan, its axis taken to be in the middle."""
    readings = tifffile.imread(folder / "neutron_sinogram_360.tif")[:, :-3].astype(np.float64)
    air = np.median(np.concatenate([readings[:, :50], readings[:, -50:]], axis=1), axis=1, keepdims=True)
    views, detectors = readings.shape
    geometry = ParallelBeam(
        volume=Volume(shape=(64, 64), pixel_size=6.0),
        angles=view_angles(views, 2 * math.pi),
        detectors=detectors,
    )
    return -np.log(np.maximum(readings / air, 0.01)), geometry
