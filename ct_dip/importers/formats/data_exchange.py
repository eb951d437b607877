"""Data Exchange files of synchrotrons (HDF5): counts, flats and darks of a parallel beam.

``exchange/data``, ``data_white`` and ``data_dark`` are (frames, rows, columns), ``exchange/theta`` the angles
in degrees. One row is one scan. The layout states neither the rotation axis nor, as a rule, the pixel size,
nor the sense of rotation, which is taken as counter-clockwise: an image may be a mirror image of the object.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import h5py

from ct_dip.arrays import Floats
from ct_dip.data.plain_hdf5 import Linked, open_linked
from ct_dip.errors import ScanError
from ct_dip.importers.frames import get_stack, plain, read_angles, read_rows, read_text
from ct_dip.importers.open import check_file, named, reading
from ct_dip.importers.options import Options
from ct_dip.importers.recording import Format, Readings, Recording

_NAMES = ("data", "data_white", "data_dark")
_NEEDED = "a scan has exchange/data, data_white and data_dark: add it"


@contextlib.contextmanager
def _open(path: Path, options: Options) -> Iterator[Recording]:
    path = check_file(path)
    with contextlib.ExitStack() as stack:
        with reading(path, "a Data Exchange file"), named(path):
            file = stack.enter_context(open_linked(path))
            recording = _recording(path, file, options)
        yield recording


def _recording(path: Path, file: Linked, options: Options) -> Recording:
    data, white, dark = stacks = [get_stack(file, f"exchange/{name}", _NEEDED) for name in _NAMES]
    for name, stack in zip(_NAMES, stacks, strict=True):
        if stack.shape[1:] != data.shape[1:]:
            raise ScanError(
                f"exchange/{name} has frames of {stack.shape[1]} × {stack.shape[2]}, exchange/data of "
                f"{data.shape[1]} × {data.shape[2]}"
            )
        _check_axes(stack, f"exchange/{name}")
    title = read_text(file.get("measurement/sample/name")) or read_text(file.get("exchange/title"))

    def read(first: int, last: int) -> Readings:
        rows = [read_rows(path, stack, first, last) for stack in (data, white, dark)]
        names = tuple(f"exchange/{name}" for name in _NAMES)
        return Readings(data=rows[0], flats=rows[1], darks=rows[2], names=(names[0], names[1], names[2]))

    return Recording(
        shape=data.shape,
        read=read,
        counts=True,
        angles=_angles(file, len(data), options),
        source=f"Data Exchange, {title or 'no title'}; the file states no licence",
    )


def _angles(file: Linked, views: int, options: Options) -> Floats | None:
    """Angles by the name that the user gives, or theta, rad; ``None`` where the file does not have it."""
    if options.arc is not None or (options.angles is None and file.get("exchange/theta") is None):
        return None
    return read_angles(file, options.angles or "exchange/theta", views, options.degrees)


def _check_axes(dataset: h5py.Dataset, name: str) -> None:
    axes = str(plain(dataset.attrs.get("axes", "")))
    if axes and axes.split(":")[1:] != ["y", "x"]:
        raise ScanError(f"{name} has the axes {axes!r}, expected 'theta:y:x'; transpose it")


FORMAT = Format(
    name="data-exchange",
    about="Data Exchange of synchrotrons, HDF5: counts, flats, darks",
    options=("angles", "arc", "degrees", "center", "detector_pitch"),
    recognises=lambda content: content.kind == "hdf5" and "exchange" in content.names,
    open=_open,
)
