"""Tiny files of the formats that importers read, right but for what a test changes."""

import h5py
import numpy as np
import scipy.io
import scipy.sparse
import tifffile

from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.geometry import FanBeam, ParallelBeam, Volume
from ct_dip.operators.assembly import assemble
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


DARK, AIR = 20.0, 5000.0


def disk(angles, *, rows=3, columns=32, axis=15.5, pitch=1.0):
    """Line integrals (views, rows, columns) of a disk off the axis, whose attenuation grows with the row."""
    s = (np.arange(columns) - axis) * pitch
    center = pitch * (3 * np.cos(angles) + 2 * np.sin(angles))
    half = np.sqrt(np.clip((7 * pitch) ** 2 - (s - center[:, None]) ** 2, 0, None))
    return 0.04 / pitch * 2 * half[:, None] * (1 + np.arange(rows))[:, None]


def readings(integrals):
    """Counts, 4 flats with photon noise, and 2 darks, as uint16."""
    counts = DARK + AIR * np.exp(-integrals)
    flats = DARK + np.random.default_rng(8).poisson(AIR, (4, *integrals.shape[1:]))
    darks = np.full((2, *integrals.shape[1:]), DARK)
    return tuple(np.round(values).astype(np.uint16) for values in (counts, flats, darks))


def tiff_folder(path, *, views=40, nested=False, geometry=None, **disk_options):
    """Projections with flats and darks; ``view2`` before ``view10``."""
    integrals = disk(view_angles(views), **disk_options)
    for name, frames in zip(("view", "flat", "dark"), readings(integrals), strict=True):
        folder = path / {"view": "proj", "flat": "flats", "dark": "darks"}[name] if nested else path
        folder.mkdir(parents=True, exist_ok=True)
        for number, frame in enumerate(frames):
            tifffile.imwrite(folder / f"{name}{number}.tif", frame)
    if geometry is not None:
        (path / "geometry.yaml").write_text(geometry)
    return integrals


def nxtomo(path, *, views=40, linked=False, pixel_size=(50.0, "um"), drop=(), **disk_options):
    """Flats, darks, views, flats again; frames may be in a file of their own in the folder beside."""
    angles = view_angles(views)
    integrals = disk(angles, **disk_options)
    counts, flats, darks = readings(integrals)
    frames = np.concatenate([flats[:2], darks, counts, flats[2:]])
    key = np.repeat([1, 2, 0, 1], [2, 2, views, 2])
    turned = np.concatenate([np.zeros(4), np.rad2deg(angles), np.zeros(2)])
    with h5py.File(path, "w") as file:
        for name, kind in (
            ("entry", "NXentry"),
            ("entry/instrument", "NXinstrument"),
            ("entry/instrument/detector", "NXdetector"),
            ("entry/sample", "NXsample"),
        ):
            file.create_group(name).attrs["NX_class"] = np.bytes_(kind)
        detector = file["entry/instrument/detector"]
        detector["image_key"] = key
        if pixel_size:
            detector["x_pixel_size"] = pixel_size[0]
            detector["x_pixel_size"].attrs["units"] = pixel_size[1]
        if "rotation_angle" not in drop:
            file["entry/sample/rotation_angle"] = turned
        if linked:
            folder = path.parent / path.stem
            folder.mkdir()
            with h5py.File(folder / "frames.h5", "w") as other:
                other["entry/data"] = frames
            detector["data"] = h5py.ExternalLink(f"{path.stem}/frames.h5", "/entry/data")
        else:
            detector["data"] = frames
    return integrals


XTEKCT = """[XTekCT]
Name=tiny
SrcToObject=100
SrcToDetector=400
DetectorPixelsX={columns}
DetectorPixelsY={rows}
DetectorPixelSizeX=0.8
DetectorPixelSizeY=0.8
Projections={views}
InitialAngle=190
AngularStep={step}
CentreOfRotationTop=0.4
CentreOfRotationBottom=0.8
WhiteLevel=60000
"""


def nikon(path, *, views=12, rows=3, columns=16):
    """Projections that the scanner corrected already; returns their counts."""
    path.mkdir()
    rng = np.random.default_rng(5)
    counts = np.round(6e4 * np.exp(-rng.uniform(0, 1, (views, rows, columns)))).astype(np.uint16)
    for number, frame in enumerate(counts, start=1):
        tifffile.imwrite(path / f"tiny_{number:04d}.tif", frame)
    text = XTEKCT.format(views=views, rows=rows, columns=columns, step=360 / views)
    (path / "tiny.xtekct").write_text(text)
    return counts


def lotus(path, *, side=32, views=12, detectors=24, pitch=4.0, v73=False):
    """A and m of a fan beam with the distances of the lotus root, and pixels of its grid."""
    geometry = FanBeam(
        volume=Volume(shape=(side, side), pixel_size=128 * 0.627 / side),
        angles=view_angles(views, 2 * np.pi),
        detectors=detectors,
        detector_pitch=pitch,
        source_origin=540.0,
        origin_detector=90.0,
    )
    A = scipy.sparse.csc_array(assemble(geometry, "line"))
    m = np.random.default_rng(2).uniform(0, 1, (detectors, views))
    if v73:
        with h5py.File(path, "w", userblock_size=512) as file:
            file["m"] = m.T
            group = file.create_group("A")
            group.attrs["MATLAB_sparse"] = np.uint64(A.shape[0])
            for name, part in (("data", A.data), ("ir", A.indices), ("jc", A.indptr)):
                group[name] = part
        with path.open("r+b") as file:
            file.write(b"MATLAB 7.3 MAT-file")
    else:
        scipy.io.savemat(path, {"A": A, "m": m, "normA": 1.0}, do_compression=True)
    return geometry, m
