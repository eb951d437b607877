"""NXtomo, and files of beamlines in its manner (NeXus, HDF5): frames of a parallel beam, told apart by a key.

In an ``NXentry`` there is an ``NXdetector`` with ``data`` (frames, rows, columns) and ``image_key``
(frames,): 0 of the object, 1 flat, 2 dark, 3 not to be used. Angles are ``sample/rotation_angle``, or what an
``NXdata`` group of the detector names as its first axis; the pixel size is ``x_pixel_size``, in the unit it
states. The sense of rotation is taken as counter-clockwise.

Beamlines keep the frames in files of their own and link to them. Links are followed to files in the folder of
the scan and below it, and nowhere else: a file from somebody else must not make us read what it likes
(`ct_dip.data.plain_hdf5.Linked`).
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np

from ct_dip.arrays import Floats
from ct_dip.data.plain_hdf5 import Linked, open_linked
from ct_dip.errors import InputError, ScanError
from ct_dip.importers.frames import get_stack, plain, read_angles, read_length, read_rows, read_text
from ct_dip.importers.open import check_file, named, reading
from ct_dip.importers.options import BEAM, Options
from ct_dip.importers.recording import Format, Readings, Recording

_OBJECT, _FLAT, _DARK = 0, 1, 2


@contextlib.contextmanager
def _open(path: Path, options: Options) -> Iterator[Recording]:
    path = check_file(path)
    with contextlib.ExitStack() as stack:
        with reading(path, "an NXtomo file"), named(path):
            file = stack.enter_context(open_linked(path))
            recording = _recording(path, file, options)
        yield recording


def _recording(path: Path, file: Linked, options: Options) -> Recording:
    entry, detector = _find_detector(file)
    data = get_stack(file, f"{detector}/data", "an NXdetector has its frames there: add them")
    key = _image_key(file, detector, len(data))
    frames = {kind: key == kind for kind in (_OBJECT, _FLAT, _DARK)}
    if not frames[_OBJECT].any():
        raise ScanError(f"{detector}/image_key marks no frame of the object (0)")
    angles = _find_angles(file, entry, data, options)
    if angles is not None:
        angles = angles[frames[_OBJECT]]
    _, rows, columns = data.shape

    def read(first: int, last: int) -> Readings:
        parts = {
            kind: read_rows(path, data, first, last, which) for kind, which in frames.items() if which.any()
        }
        names = (f"{detector}/data", f"{detector}/data (flats)", f"{detector}/data (darks)")
        return Readings(
            data=parts[_OBJECT],
            flats=parts.get(_FLAT),
            darks=parts.get(_DARK),
            air=options.air or 0,
            names=names,
        )

    return Recording(
        shape=(int(frames[_OBJECT].sum()), rows, columns),
        read=read,
        counts=True,
        angles=angles,
        detector_pitch=read_length(_quietly(file, f"{detector}/x_pixel_size")),
        source=f"NXtomo, {read_text(_quietly(file, f'{entry}/title')) or path.stem}",
    )


def _find_detector(file: Linked) -> tuple[str, str]:
    """Names of the entry, and of its first detector with an image key whose frames are there."""
    problem = "there is no NXentry/NXinstrument/NXdetector with data and image_key"
    for entry in _children(file, "", "NXentry"):
        for instrument in _children(file, entry, "NXinstrument"):
            for detector in _children(file, instrument, "NXdetector"):
                if _quietly(file, f"{detector}/image_key") is not None:
                    try:
                        if file.get(f"{detector}/data") is not None:
                            return entry, detector
                    except (
                        InputError
                    ) as error:  # a link to a file that was not copied; another detector may do
                        problem = str(error)
    raise ScanError(f"{problem}; or import arrays by their names, with --format arrays")


def _children(file: Linked, parent: str, kind: str) -> list[str]:
    """Names of the groups of an NX_class."""
    group = file.file if not parent else file.get(parent)
    names = [f"{parent}/{name}".lstrip("/") for name in group] if isinstance(group, h5py.Group) else []
    return [
        name
        for name in names
        if isinstance(item := _quietly(file, name), h5py.Group)
        and plain(item.attrs.get("NX_class", "")) == kind
    ]


def _image_key(file: Linked, detector: str, frames: int) -> Floats:
    item = file.get(f"{detector}/image_key")
    if not isinstance(item, h5py.Dataset) or item.shape != (frames,) or item.dtype.kind not in "iuf":
        raise ScanError(f"{detector}/image_key must have one number per frame, {frames}")
    return np.asarray(item[...])


def _find_angles(file: Linked, entry: str, data: h5py.Dataset, options: Options) -> Floats | None:
    """Angles of all frames, rad; ``None`` if the file does not have them."""
    if options.angles is not None:
        return read_angles(file, options.angles, len(data), options.degrees)
    names = [f"{entry}/sample/rotation_angle"]
    for group in _children(file, entry, "NXdata"):
        shown = _quietly(file, f"{group}/data")
        if isinstance(shown, h5py.Dataset) and shown.shape == data.shape:
            axis = plain(np.ravel(file.get(group).attrs.get("axes", [b""]))[0])  # type: ignore[union-attr]
            # Where the demanded positions (…_set) are not there, those that were read back are better anyway.
            names += [f"{group}/{axis.removesuffix('_set')}", f"{group}/{axis}"]
    for name in names:
        if isinstance(_quietly(file, name), h5py.Dataset):
            return read_angles(file, name, len(data), options.degrees)
    return None


def _quietly(file: Linked, name: str) -> h5py.Group | h5py.Dataset | None:
    """Return what a name leads to; ``None`` also if it is a link to a file that was not copied."""
    try:
        return file.get(name)
    except InputError:
        return None


FORMAT = Format(
    name="nxtomo",
    about="NXtomo of beamlines, HDF5: frames with an image key",
    options=("angles", "arc", "degrees", "air", *BEAM),
    recognises=lambda content: content.kind == "hdf5" and "NXentry" in content.classes,
    open=_open,
)
