"""Nikon (X-Tek) scanners: a file ``NAME.xtekct`` and TIFF projections ``NAME_0001.tif``, … beside it.

Projections are corrected by the scanner's own flats already; the air is the file's ``WhiteLevel``. Lengths
are in mm, angles in degrees. Signs are as CIL reads these files: columns count from the right, and the axis
is off the central ray by ``ObjectOffsetX``, in older files by the mean of ``CentreOfRotationTop`` and
``…Bottom`` on the detector. We have no scan of a known object to check them with, so an image may be a mirror
image. A cone beam: the middle row is a fan beam, others nearly so.
"""

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ct_dip.errors import ScanError
from ct_dip.importers.flats import frames_of
from ct_dip.importers.open import check_file, named
from ct_dip.importers.options import Options
from ct_dip.importers.recording import Format, Readings, Recording
from ct_dip.importers.tiff import frame_shape, read_tiff_rows, sorted_tiffs
from ct_dip.text import shortened

_ENDING = ".xtekct"
_LARGEST = 2**20  # bytes; such a file has some thousand


@contextlib.contextmanager
def _open(path: Path, options: Options) -> Iterator[Recording]:
    if path.is_dir():
        files = [file for file in path.iterdir() if file.suffix == _ENDING]
        if len(files) != 1:
            raise ScanError(
                f"{path} has {len(files)} files {_ENDING}, expected one; name the one that you mean"
            )
        path = files[0]
    with named(check_file(path)):
        recording = _recording(path, options)
    yield recording


def _recording(path: Path, options: Options) -> Recording:
    fields = _fields(path)
    views = int(_number(fields, "Projections"))
    rows, columns = int(_number(fields, "DetectorPixelsY")), int(_number(fields, "DetectorPixelsX"))
    files = _projections(path, fields, views)
    if frame_shape(files[0]) != (1, rows, columns):
        raise ScanError(f"{files[0].name} has another shape than DetectorPixelsY × X, {rows} × {columns}")
    source_origin = _number(fields, "SrcToObject")
    source_detector = _number(fields, "SrcToDetector")
    if "ObjectOffsetX" in fields:
        offset = _number(fields, "ObjectOffsetX")
    else:
        ends = [_number(fields, f"CentreOfRotation{end}", 0.0) for end in ("Top", "Bottom")]
        offset = sum(ends) / 2 * source_origin / source_detector
    flats = frames_of(options.flat or str(_number(fields, "WhiteLevel")), _no_file, rows, columns, "--flat")

    def read(first: int, last: int) -> Readings:
        data = read_tiff_rows(files, (rows, columns), first, last)[:, :, ::-1]
        assert flats is not None
        return Readings(data=data, flats=flats[:, first:last], names=(path.name, "WhiteLevel", ""))

    degrees = _number(fields, "InitialAngle", 0.0) + _number(fields, "AngularStep") * np.arange(views) - 180
    return Recording(
        shape=(views, rows, columns),
        read=read,
        counts=True,
        angles=np.deg2rad(degrees - 360 * math.floor(degrees.min() / 360)),
        detector_pitch=_number(fields, "DetectorPixelSizeX"),
        source_origin=source_origin,
        origin_detector=source_detector - source_origin,
        center_of_rotation=-offset,
        source=f"Nikon {fields.get('Name') or path.stem}",
        steps=("flat-corrected by the scanner", "columns reversed, as they count from the right"),
    )


def _fields(path: Path) -> dict[str, str]:
    """``Name=value`` of all sections."""
    if path.stat().st_size > _LARGEST:
        raise ScanError(f"it has {path.stat().st_size} bytes, and is no {_ENDING} file")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _number(fields: dict[str, str], name: str, default: float | None = None) -> float:
    if name not in fields and default is not None:
        return default
    if name not in fields:
        raise ScanError(f"there is no line '{name}=…'; it is no {_ENDING} file, or not of a circular scan")
    try:
        number = float(fields[name])
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ScanError(f"{name} is {shortened(repr(fields[name]))}, expected a number")
    return number


def _projections(path: Path, fields: dict[str, str], views: int) -> list[Path]:
    folder = fields.get("InputFolderName", "")
    if Path(folder).is_absolute() or ".." in Path(folder).parts:
        raise ScanError(f"InputFolderName is {folder!r}; only files in the folder of the scan are read")
    name = fields.get("Name") or path.stem
    files = [file for file in sorted_tiffs(path.parent / folder) if file.name.startswith(f"{name}_")]
    if len(files) < views:
        raise ScanError(
            f"there are {len(files)} files {name}_….tif, expected {views} (Projections); copy the others"
        )
    return files[:views]


def _no_file(text: str) -> None:
    raise ScanError(f"--flat {text} must be a number here, in place of WhiteLevel")


FORMAT = Format(
    name="nikon",
    about="Nikon .xtekct, or its folder, with TIFF projections",
    options=("flat", "detector_offset"),
    recognises=lambda content: (
        content.start.startswith((b"[XTekCT]", b"\xef\xbb\xbf[XTekCT]"))
        or (content.kind == "folder" and any(name.endswith(_ENDING) for name in content.names))
    ),
    open=_open,
)
