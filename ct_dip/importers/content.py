"""`look_into`: what kind of file or folder it is, and the names in it; endings say nothing."""

from dataclasses import dataclass
from pathlib import Path

import h5py
import scipy.io

from ct_dip.data.hdf5 import file_kind
from ct_dip.data.plain_hdf5 import open_hdf5
from ct_dip.data.plain_numpy import npz_names
from ct_dip.errors import ScanError
from ct_dip.importers.open import check_file, named, reading

TIFF_STARTS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


@dataclass(frozen=True, kw_only=True)
class Content:
    """What a format needs to recognise a file.

    Args:
        kind: folder, hdf5 (also MATLAB 7.3), matlab5, npz, tiff or other.
        names: of the files in a folder, the variables or top-level groups of a file.
        classes: NX_class of the top-level groups of an HDF5 file.
        start: first bytes of a file.
    """

    path: Path
    kind: str
    names: frozenset[str] = frozenset()
    classes: frozenset[str] = frozenset()
    start: bytes = b""


def look_into(path: str | Path) -> Content:
    """Find out what there is.

    Raises:
        ScanError: nothing, or a file of ct_dip itself.
    """
    path = Path(path)
    if path.is_dir():
        return Content(path=path, kind="folder", names=frozenset(item.name for item in path.iterdir()))
    path = check_file(path)
    with reading(path, "a scan"), path.open("rb") as file:
        start = file.read(132)  # DICOM has its name after 128
    if start.startswith(b"PK"):
        with named(path):
            return Content(path=path, kind="npz", names=frozenset(npz_names(path)))
    if start.startswith(TIFF_STARTS):
        return Content(path=path, kind="tiff")
    if start.startswith(b"MATLAB 5.0"):
        with reading(path, "a MATLAB file"):
            return Content(
                path=path, kind="matlab5", names=frozenset(name for name, _, _ in scipy.io.whosmat(path))
            )
    if not h5py.is_hdf5(path):
        return Content(path=path, kind="other", start=start)
    with reading(path, "HDF5"), named(path), open_hdf5(path) as opened:
        names = [name for name in opened if not name.startswith("#")]
        groups = [opened[name] for name in names if _is_own_group(opened, name)]
        classes = frozenset(_text(group.attrs.get("NX_class", "")) for group in groups)
        ours = str(opened.attrs.get("format", "")).startswith("ct_dip.")
    if ours:
        raise ScanError(f"{path} is a ct_dip {file_kind(path)} file already; there is nothing to import")
    return Content(path=path, kind="hdf5", names=frozenset(names), classes=classes)


def _is_own_group(file: h5py.File, name: str) -> bool:
    """By a hard link: `file[name]` would follow others."""
    return file.id.links.get_info(name.encode()).type == h5py.h5l.TYPE_HARD and isinstance(
        file[name], h5py.Group
    )


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
