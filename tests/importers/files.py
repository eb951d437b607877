"""Tiny files of the formats that importers read, right but for what a test changes."""

import h5py
import numpy as np
import scipy.io

from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.geometry import ParallelBeam, Volume
from ct_dip.scanners import view_angles


def htc(path, *, name="CtDataFull", angles=None, v73=False, drop=(), **changes):
    """A fan-beam scan of 40 bins; fields of ``changes`` replace those of the file."""
    angles = np.arange(0, 361, 30.0) if angles is None else angles
    parameters = {
        "projectName": "htc2022_09z_",
        "distanceSourceOrigin": 410.66,
        "distanceSourceDetector": 553.74,
        "distanceUnit": "mm",
        "angles": angles,
        "pixelSizePost": 2.8,
        "numDetectorsPost": 40,
    }
    sinogram = np.random.default_rng(0).uniform(0, 1, (len(angles), 40))
    data = {"sinogram": changes.pop("sinogram", sinogram), "parameters": parameters | changes}
    for key in drop:
        (data if key in data else parameters).pop(key)
    if drop and "parameters" in data:
        data["parameters"] = parameters
    if v73:
        with h5py.File(path, "w", userblock_size=512) as file:
            _store(file.create_group(name), data)
        with open(path, "r+b") as file:  # noqa: PTH123
            file.write(b"MATLAB 7.3 MAT-file")
    else:
        scipy.io.savemat(path, {name: data}, do_compression=True)
    return data


def _store(group, data):
    for key, value in data.items():
        if isinstance(value, dict):
            _store(group.create_group(key), value)
        elif isinstance(value, str):
            item = group.create_dataset(key, data=np.array([[ord(c)] for c in value], dtype=np.uint16))
            item.attrs["MATLAB_class"] = np.bytes_("char")
        else:
            group.create_dataset(key, data=np.atleast_2d(value).T)


def walnut_readings(views=120):
    """A disk in the middle, a tube that drifts, noise of 10,000 photons: (detectors, views)."""
    rng = np.random.default_rng(1)
    detectors = np.arange(2296)
    path = 1.5 * np.sqrt(np.clip(1 - ((detectors - 1147.5) / 700) ** 2, 0, None))
    air = 2000 * (1 + 0.1 * np.linspace(-0.5, 0.5, views))
    photons = rng.poisson(1e4 * np.exp(-path)[:, None], (2296, views))
    return np.round(photons / 1e4 * air).astype(np.uint16)


def walnut(path, readings=None, name="sinogram120"):
    scipy.io.savemat(path, {name: walnut_readings() if readings is None else readings}, do_compression=True)


def exchange(path, *, axis=21.3, rows=1, columns=48, drop=(), **changes):
    """An off-centre phantom around column ``axis``; returns the line integrals."""
    geometry = ParallelBeam(
        volume=Volume(shape=(32, 32)),
        angles=view_angles(60),
        detectors=columns,
        center_of_rotation=axis - (columns - 1) / 2,
    )
    scan = simulate(
        "ellipses", geometry, noise=NoiseLevel(), attenuation=0.05, allow_truncation=True, seed=2, source="x"
    )
    rng = np.random.default_rng(3)
    flat = 2e4 * (1 + 0.1 * np.sin(np.arange(columns)))
    frame = (rows, columns)
    data = {
        "data": 100 + rng.poisson(flat * np.exp(-scan.sinogram)[:, None, :] * np.ones((1, rows, 1))),
        "data_white": 100 + rng.poisson(flat, (20, *frame)),
        "data_dark": np.full((5, *frame), 100),
        "theta": np.rad2deg(geometry.angles),
    } | changes
    with h5py.File(path, "w") as file:
        for key, value in data.items():
            if key not in drop:
                file[f"exchange/{key}"] = value
        file["measurement/sample/name"] = "Tiny"
    return scan.sinogram


def npz(path, *, drop=(), **changes):
    """A parallel scan of 20 views × 24 bins."""
    fields = {
        "sinogram": np.random.default_rng(4).uniform(0, 1, (20, 24)),
        "angles": view_angles(20),
        "detector_pitch": 0.5,
    } | changes
    with path.open("wb") as file:
        np.savez(file, **{key: value for key, value in fields.items() if key not in drop})
    return fields
