"""Arrays of your own in an NPZ, HDF5 or MATLAB file: they have these names, or you say which is which.

==================  ==================  ========================================================
name                option              what
==================  ==================  ========================================================
``sinogram``        ``--sinogram``      line integrals, dimensionless, (views, detectors); or
                                        projections, (views, rows, columns)
``angles``          ``--angles``        of the views, radians (``--degrees``), (views,); or
                                        ``--arc`` for evenly spread ones
``detector_pitch``  the same for all    distance of neighbouring detectors, mm
==================  ==================  ========================================================

and where they apply:

============================================  ===================================================
``source_origin``, ``origin_detector``        distances of a flat fan beam, mm; without: parallel
``detector_offset``, ``center_of_rotation``   mm, 0 without (`ct_dip.geometry` has the frame)
``noise_std`` or ``photons``                  the noise, where it is known (`ct_dip.data.noise`)
``source``                                    where the scan comes from, in words
============================================  ===================================================

With ``--counts`` the sinogram holds readings of the detector, and these are needed or may be there:

==========  =====================================================================================
``flat``    (``--flat``) readings in air, (detectors,) or (repetitions, detectors), or one number;
            repetitions tell the noise. Or ``--air``: the ends of the detector see air
``dark``    (``--dark``) readings without light, likewise; 0 without
==========  =====================================================================================

Where the user names the sinogram, the rotation axis of a parallel beam is found, not 0; ``--center`` says it.
``--transpose`` reverses the axes of sinogram, flat and dark. No pickle is ever loaded.
"""

import contextlib
import difflib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.data.noise import NoiseModel, PhotonNoise, WhiteNoise
from ct_dip.errors import ScanError
from ct_dip.importers.array_file import ArrayFile, open_arrays
from ct_dip.importers.flats import frames_of
from ct_dip.importers.frames import plain
from ct_dip.importers.open import named
from ct_dip.importers.options import BEAM, Options
from ct_dip.importers.recording import Format, MissingError, Readings, Recording
from ct_dip.text import shortened

_LENGTHS = ("detector_pitch", "source_origin", "origin_detector", "detector_offset", "center_of_rotation")
_NAMES = ("sinogram", "angles", *_LENGTHS, "noise_std", "photons", "source", "flat", "dark")


@contextlib.contextmanager
def _open(path: Path, options: Options) -> Iterator[Recording]:
    with open_arrays(path) as file:
        with named(path):
            recording = _recording(path, file, options)
        yield recording


def _recording(path: Path, file: ArrayFile, options: Options) -> Recording:
    own = options.sinogram is None  # then all names are ours, and others are slips
    if own and "sinogram" not in file.names:
        raise MissingError(
            f"there is no array 'sinogram': name it with --sinogram NAME; the file has {_listed(file)}"
        )
    if own:
        _refuse_slips(file)
    sinogram = _get(file, options.sinogram or "sinogram", "--sinogram")
    shape = tuple(sinogram.shape)[::-1] if options.transpose else tuple(sinogram.shape)
    if len(shape) not in (2, 3) or 0 in shape:
        raise ScanError(f"sinogram has shape {shape}, expected (views, detectors) or (views, rows, columns)")
    views, rows, columns = (shape[0], 1, shape[1]) if len(shape) == 2 else shape
    angles = _angles(file, options, views, shape)
    others = {name: _others(file, name, options, rows, columns) for name in ("flat", "dark")}
    for name, values in others.items():
        if values is not None and not options.counts:
            raise ScanError(f"array {name!r} belongs to readings of the detector; import them with --counts")

    def read(first: int, last: int) -> Readings:
        flats, darks = (None if values is None else values[:, first:last] for values in others.values())
        data = _rows(sinogram, options.transpose, first, last)
        return Readings(data=data, flats=flats, darks=darks, air=options.air or 0)

    lengths: dict[str, float] = {name: _number(file, name) for name in _LENGTHS if name in file.names}
    if own and options.center is None:
        lengths.setdefault("center_of_rotation", 0.0)
    return Recording(
        shape=(views, rows, columns),
        read=read,
        counts=options.counts,
        angles=angles,
        noise=_noise(file),
        source=_source(file) or path.name,
        **lengths,  # type: ignore[arg-type]
    )


def _source(file: ArrayFile) -> str:
    """Return the text of ``source``; empty without."""
    if "source" not in file.names:
        return ""
    return " ".join(str(plain(text)) for text in np.ravel(np.asarray(file.get("source"))))


def _refuse_slips(file: ArrayFile) -> None:
    for name in file.names:
        if name not in _NAMES:
            near = difflib.get_close_matches(name, _NAMES, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(_NAMES)}"
            raise ScanError(
                f"array {shortened(repr(name))} has no meaning; {hint} (others are ignored if the "
                "sinogram is named, --sinogram sinogram)"
            )


def _get(file: ArrayFile, name: str, option: str) -> Any:
    """Return an array of numbers; a dataset of HDF5 is not read yet."""
    values = file.get(name)
    if values is None:
        raise ScanError(f"{option} {name}: there is no such array; the file has {_listed(file)}")
    if values.dtype.kind not in "fiub":
        raise ScanError(f"{name} has type {values.dtype}, expected numbers")
    return values


def _rows(sinogram: Any, transpose: bool, first: int, last: int) -> Floats:
    """Return rows of (views, detectors), where there is one, or (views, rows, columns)."""
    if len(sinogram.shape) == 2:
        return np.asarray(sinogram[...].T if transpose else sinogram[...])[:, None]
    part = np.asarray(sinogram[:, first:last])
    return part.T if transpose else part


def _others(file: ArrayFile, name: str, options: Options, rows: int, columns: int) -> Floats | None:
    """Flats or darks, (repetitions, rows, columns)."""
    text = getattr(options, name)
    if text is None and name in file.names and (options.counts or options.sinogram is None):
        text = name

    def get(wanted: str) -> Any:
        values = _get(file, wanted, f"--{name}")[...]
        return values.T if options.transpose else values

    return frames_of(text, get, rows, columns, name)


def _angles(file: ArrayFile, options: Options, views: int, shape: tuple[int, ...]) -> Floats | None:
    if options.arc is not None:
        return None  # which the arc replaces
    name = options.angles or "angles"
    if options.angles is None and name not in file.names:
        return None
    values = np.asarray(_get(file, name, "--angles")[...])
    angles = np.ravel(values).astype(np.float64) if values.size == max(values.shape, default=0) else values
    if angles.shape != (views,):
        word = "drop" if options.transpose else "give"
        hint = f"; {word} --transpose?" if angles.shape == shape[-1:] else ""
        raise ScanError(
            f"{name} has shape {values.shape}, expected ({views},): one per view of a sinogram {shape}{hint}"
        )
    if options.degrees:
        return np.deg2rad(angles)
    if np.isfinite(angles).all() and np.ptp(angles) > 2 * math.pi * (1 + 1e-6):
        raise ScanError(
            f"{name}: the angles reach from {angles.min():g} to {angles.max():g}, more than a turn in "
            "radians; give --degrees, or convert them (np.deg2rad)"
        )
    return angles


def _noise(file: ArrayFile) -> NoiseModel | None:
    if "noise_std" in file.names and "photons" in file.names:
        raise ScanError("noise_std and photons exclude each other; keep one")
    if "noise_std" in file.names:
        return WhiteNoise(std=_number(file, "noise_std"))
    return PhotonNoise(photons=_number(file, "photons")) if "photons" in file.names else None


def _number(file: ArrayFile, name: str) -> float:
    value = np.asarray(_get(file, name, name)[...])
    if value.size != 1 or value.dtype.kind not in "fiu":
        raise ScanError(f"{name} has shape {value.shape} and type {value.dtype}, expected one number")
    return float(value.reshape(()))


def _listed(file: ArrayFile) -> str:
    """Some of the names, with their shapes."""
    words = []
    for name in file.names[:8]:
        try:
            words.append(f"{name} {tuple(np.shape(file.get(name)))}")
        except ScanError:  # a link that leads nowhere
            words.append(name)
    return ", ".join(words + ["…"] * (len(file.names) > 8)) or "nothing"


FORMAT = Format(
    name="arrays",
    about="arrays by their names in an NPZ, HDF5 or MATLAB file",
    options=("sinogram", "angles", "arc", "degrees", "transpose", "counts", "flat", "dark", "air", *BEAM),
    recognises=lambda content: content.kind in ("npz", "hdf5", "matlab5"),
    open=_open,
)
