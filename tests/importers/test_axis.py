"""The rotation axis and the views that tell it: found, or said not to be."""

import math

import numpy as np
import pytest

from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.errors import ScanError
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


@pytest.mark.parametrize(("source", "detector", "times"), [(110.0, 190.0, "2.727"), (190.0, 110.0, "1.579")])
def test_magnification_and_width_of_a_fan_are_told(tmp_path, source, detector, times):
    """The data would not show that the distances are exchanged; the width of the object does."""
    geometry = scanner(Volume(shape=(40, 40)), views=60, source_origin=110.0, origin_detector=190.0)
    scan = simulate("ellipses", geometry, noise=NoiseLevel(relative=0.02), attenuation=0.05, seed=3)
    path = write(tmp_path / "a.npz", scan.sinogram, geometry.angles)
    found = import_scan(path, source_origin=source, origin_detector=detector)
    width = found.geometry.volume.size[0]
    assert f"the fan beam magnifies {times} times; the image is {width:.4g} mm wide" in found.steps
    assert not any("magnifies" in step for step in import_scan(path).steps)


def test_views_that_do_not_close_a_turn_are_kept(tmp_path):
    scan = measured(arc=math.pi)
    there_and_back = np.r_[scan.geometry.angles, scan.geometry.angles[::-1]]
    path = write(tmp_path / "a.npz", np.r_[scan.sinogram, scan.sinogram[::-1]], there_and_back)
    assert import_scan(path, detector_offset=OFFSET).geometry.views == 120


def test_an_offset_of_a_fan_that_is_not_found_is_warned_of(tmp_path):
    """Views over part of a turn cannot be compared; the offset is taken to be 0, without an error."""
    scan = measured(arc=4.0, **FAN)
    pitch = scan.geometry.detector_pitch
    path = write(tmp_path / "a.npz", scan.sinogram, scan.geometry.angles)
    found = as_a_stranger(path, detector_pitch=pitch, **FAN)
    (warning,) = (each for each in found.warnings if "could not be found" in each)
    assert "if they go round evenly, once" in warning
    assert "--detector-offset MM and --offset-error MM" in warning
    known = as_a_stranger(path, detector_pitch=pitch, detector_offset=OFFSET, **FAN)
    assert not any("could not be found" in each for each in known.warnings)


@pytest.mark.parametrize(
    ("spoil", "options", "words"),
    [
        (lambda p, angles: (p, angles), {"degrees": True}, "radians that were taken for degrees"),
        (lambda p, angles: (p.T, np.linspace(0, math.pi, 70, endpoint=False)), {}, "looks transposed"),
    ],
)
def test_a_slip_that_spoils_the_search_for_the_axis_is_named(tmp_path, spoil, options, words):
    scan = measured(arc=math.pi, offset=4.0)
    path = write(tmp_path / "a.npz", *spoil(scan.sinogram, scan.geometry.angles))
    with pytest.raises(ScanError, match=rf"{words}.* give --center COLUMN"):
        as_a_stranger(path, **options)


def test_a_wrong_column_is_suspected_first(tmp_path):
    scan = measured(arc=math.pi)
    path = write(tmp_path / "a.npz", scan.sinogram, scan.geometry.angles)
    found = as_a_stranger(path, center=10)
    assert any("--center" in warning for warning in found.warnings)
