"""The rotation axis and the views that tell it: found, or said not to be."""

import math

import numpy as np
import pytest

from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.geometry import Volume
from ct_dip.importers.run import import_scan
from ct_dip.scanners import scanner

OFFSET = 1.7
FAN = {"source_origin": 120.0, "origin_detector": 80.0}


def measured(views=60, arc=2 * math.pi, offset=OFFSET, **beam):
    geometry = scanner(
        Volume(shape=(40, 40)), views=views, arc=arc, detectors=70, detector_offset=offset, **beam
    )
    return simulate("ellipses", geometry, noise=NoiseLevel(relative=0.02), attenuation=0.05, seed=3)


def write(path, sinogram, angles, **more):
    np.savez(path, sinogram=sinogram, angles=angles, detector_pitch=1.0, **more)
    return path


def as_a_stranger(path, **options):
    """Import with the sinogram's name, so that the axis is searched."""
    return import_scan(path, sinogram="sinogram", **options)


@pytest.mark.parametrize("turn", [2 * math.pi, -2 * math.pi, 0.0])
def test_a_last_view_that_repeats_the_first_is_dropped(tmp_path, turn):
    """The views go round once without it, so that they can be compared with one another."""
    scan = measured(**FAN)
    pitch = scan.geometry.detector_pitch
    angles = np.sign(turn or 1.0) * scan.geometry.angles + 0.3
    path = write(tmp_path / "once.npz", scan.sinogram, angles)
    once = as_a_stranger(path, detector_pitch=pitch, **FAN)
    path = write(tmp_path / "a.npz", np.r_[scan.sinogram, scan.sinogram[:1]], np.r_[angles, angles[0] + turn])
    closed = as_a_stranger(path, detector_pitch=pitch, **FAN)
    assert closed.digest == once.digest
    assert closed.steps == ("view 60 dropped: it repeats view 0 after a full turn", *once.steps)
    assert any("detector offset found" in step for step in closed.steps)


def test_views_that_do_not_close_a_turn_are_kept(tmp_path):
    scan = measured(arc=math.pi)
    there_and_back = np.r_[scan.geometry.angles, scan.geometry.angles[::-1]]
    path = write(tmp_path / "a.npz", np.r_[scan.sinogram, scan.sinogram[::-1]], there_and_back)
    assert import_scan(path, detector_offset=OFFSET).geometry.views == 120
