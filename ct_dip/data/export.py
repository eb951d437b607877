"""Images of a `Prediction` for other programs: TIFF, NIfTI and NPY files with the pixel size.

Several results, of the rows of a detector, are one volume: (slices, rows, columns), in the order of the rows,
or in the order given where results do not know them. There is no OME-Zarr: it pays for volumes that outgrow
memory, which are not made slice by slice with error bars, and napari, ImageJ and 3D Slicer open what is here.

Every quantity is a file of its own, ``NAME-mean`` and ``NAME-std``. A viewer stretches the contrast of a
file, not of its pages, so a standard deviation that shares one with a mean ten times larger opens black;
and a file with one page opens everywhere, while two of them can still be laid over one another.

Values are float32 in 1/mm. Where a format has coordinates, they are those of `Volume.pixel_centers`: the
origin is the rotation axis, x points right, y up.
"""

import contextlib
import gzip
import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.checks import check_positive
from ct_dip.data.prediction import Prediction
from ct_dip.data.result_file import AnyResult, load_result
from ct_dip.errors import InputError
from ct_dip.files import atomic_path
from ct_dip.geometry import Volume

# File endings by format; the first is given to a name that has none.
ENDINGS = {"tiff": (".tif", ".tiff"), "npy": (".npy",), "nifti": (".nii", ".nii.gz")}


def export(
    result: AnyResult | Sequence[AnyResult],
    out: str | Path,
    format: str | None = None,
    *,
    spacing: float | None = None,
) -> list[Path]:
    """Write the mean, and the standard deviation if there is one, of a slice or a volume for other programs.

    Args:
        result: a `Prediction` or the path of a result file; or the slices of a volume: several of them, or a
            folder of result files; in the order of the detector's rows, or else as given, a folder by names.
        out: ``NAME`` or, say, ``NAME.tif``; the files are ``NAME-mean.tif`` and ``NAME-std.tif``.
        format: ``tiff``, ``npy`` or ``nifti``; by default what the ending of ``out`` says, else ``tiff``.
        spacing: distance between slices of a volume, mm; by default that of the detector's rows at the
            rotation axis, if its pixels are square, see `spacing_of_rows`.

    Returns:
        The files. None appears, or takes the place of an older one, before all are safely on the disk.

    Raises:
        InputError: the format is unknown, or contradicts the ending of ``out``; slices do not fit together.
        OutputError: a file cannot be written.
    """
    kind = _format_of(Path(out)) if format is None else format
    stem, ending = _split(Path(out), kind)
    given = [result] if isinstance(result, Prediction | str | Path) else result
    results = _by_row([load_result(each) for each in expand_folders(given)])
    pixel_size = _check_slices(results)
    spacing = spacing_of_rows(results) if spacing is None else spacing
    if spacing is None and len(results) > 1:
        raise InputError(
            f"results do not say how far apart these {len(results)} slices are, or that they are evenly so: "
            "give the spacing in mm (--spacing MM), which ct-dip info shows for the scan of a detector's row"
        )
    grid = _Grid(pixel_size, check_positive(pixel_size if spacing is None else spacing, "spacing", "mm"))
    parts = {"mean": [result.mean for result in results]}
    if deviations := [result.std for result in results if result.std is not None]:
        parts["std"] = deviations
    encode = _ENCODERS[kind]
    # Encoded in memory: the disk meets finished files only.
    contents = {
        stem.with_name(f"{stem.name}-{name}{ending}"): encode(
            np.asarray(images if len(images) > 1 else images[0], dtype=np.float32), name, grid
        )
        for name, images in parts.items()
    }
    if ending == ".nii.gz":
        contents = {file: gzip.compress(content, mtime=0) for file, content in contents.items()}
    if kind == "npy":
        contents[stem.with_name(f"{stem.name}-grid.json")] = _grid(grid, len(results) > 1)
    with contextlib.ExitStack() as files:  # renames them when all are written
        for file, content in contents.items():
            files.enter_context(atomic_path(file)).write_bytes(content)
    return list(contents)


def expand_folders(results: Sequence[AnyResult]) -> list[AnyResult]:
    """Put the result files of a folder, in the order of their names, in its place."""
    found: list[AnyResult] = []
    for each in results:
        if isinstance(each, Prediction) or not Path(each).is_dir():
            found.append(each)
            continue
        files = sorted(path for path in Path(each).iterdir() if path.suffix in (".h5", ".hdf5"))
        if not files:
            raise InputError(f"{each} is a folder without result files (.h5); name the files themselves")
        found += files
    return found


def spacing_of_rows(results: Sequence[Prediction]) -> float | None:
    """Distance between slices of evenly spaced detector rows, mm; ``None`` if results do not say it."""
    rows = sorted(result.detector_row for result in results if result.detector_row is not None)
    steps, spacings = set(np.diff(rows).tolist()), {result.row_spacing for result in results}
    if len(rows) < len(results) or len(steps) != 1 or len(spacings) != 1:
        return None
    (step,), (spacing,) = steps, spacings
    return step * spacing if step and spacing else None


def _by_row(results: list[Prediction]) -> list[Prediction]:
    """Sort by the rows of the detector, if all are known and no two the same."""
    rows = {result.detector_row: result for result in results}
    known = sorted(row for row in rows if row is not None)
    return [rows[row] for row in known] if len(known) == len(results) else results


def _format_of(path: Path) -> str:
    return next((f for f, endings in ENDINGS.items() if path.name.lower().endswith(endings)), "tiff")


@dataclass(frozen=True)
class _Grid:
    """Width of a pixel and distance between slices, mm."""

    pixel_size: float
    spacing: float


def _check_slices(results: Sequence[Prediction]) -> float:
    """Return the pixel size that all results share."""
    first = results[0]
    for number, result in enumerate(results, start=1):
        if result.mean.shape != first.mean.shape or result.pixel_size != first.pixel_size:
            raise InputError(
                f"result {number} has {_spelled(result)}, the first {_spelled(first)}; slices of a volume "
                "share a grid"
            )
        if (result.std is None) != (first.std is None):
            raise InputError(f"result {number} and the first must both have a standard deviation, or neither")
    return first.pixel_size


def _spelled(result: Prediction) -> str:
    rows, columns = result.mean.shape
    return f"{rows} × {columns} pixels of {result.pixel_size:g} mm"


def _split(path: Path, format: str) -> tuple[Path, str]:
    """Return the name without its ending, and the ending that the files get."""
    if format not in ENDINGS:
        raise InputError(f"format {format!r} is not known; choose one of {', '.join(ENDINGS)}")
    for other, endings in ENDINGS.items():
        for ending in endings:
            if not path.name.lower().endswith(ending):
                continue
            if other != format:
                raise InputError(
                    f"{path} ends like a {other} file and the format is {format}; "
                    f"choose format {other}, or the ending {ENDINGS[format][0]}"
                )
            stem = path.name[: -len(ending)]
            if not stem:
                raise InputError(f"{path} has an ending and no name; write for example image{ending}")
            return path.with_name(stem), ending
    if not path.name or path.is_dir():
        raise InputError(f"{path} is a folder; give a name for the files in it, for example {path / 'image'}")
    if re.fullmatch(r"\.[a-z][a-z0-9]{1,4}", path.suffix.lower()):  # not the end of slice-0.5mm
        known = ", ".join(ending for endings in ENDINGS.values() for ending in endings)
        raise InputError(
            f"{path}: {path.suffix} is not an ending of an export; choose one of {known}, or none"
        )
    return path, ENDINGS[format][0]


def _tiff(image: Floats, name: str, grid: _Grid) -> bytes:
    """Encode as ImageJ does: first row on top, resolution in pixels per mm, the unit of its metadata.

    ImageJ takes ``1/XResolution`` for the pixel size in *its* unit, so pixels per centimetre beside
    ``unit=mm`` would be wrong by ten; the tag ``ResolutionUnit`` knows inches and centimetres, and says none.
    """
    import tifffile

    buffer = io.BytesIO()
    slices = len(image) if image.ndim == 3 else 1
    axes = {"axes": "ZYX", "spacing": grid.spacing} if image.ndim == 3 else {"axes": "YX"}
    tifffile.imwrite(
        buffer,
        image,
        imagej=True,
        resolution=(1 / grid.pixel_size, 1 / grid.pixel_size),
        resolutionunit="NONE",
        metadata={"unit": "mm", "Labels": [f"{name}, 1/mm"] * slices, **axes},
    )
    return buffer.getvalue()


def _nifti(image: Floats, name: str, grid: _Grid) -> bytes:
    """Encode with voxel (i, j, k) in column i and row j *from below* of slice k; coordinates in mm.

    NIfTI's indices grow to the right and up, as x and y do, hence the affine has no reflection, and programs
    that ignore it show the image upright as well. "Scanner" coordinates, since we know no patient. The slice
    has no thickness; it is given that of a pixel, or the distance of slices. Our array is
    ``voxels[:, ::-1].T``; the first slice is at 0.
    """
    import nibabel

    x, y = Volume(shape=(image.shape[-2], image.shape[-1]), pixel_size=grid.pixel_size).pixel_centers()
    affine = np.diag([grid.pixel_size, grid.pixel_size, grid.spacing, 1.0])
    affine[:2, 3] = x[0], y[-1]
    picture = nibabel.Nifti1Image(np.atleast_3d(image[..., ::-1, :].T), affine)
    picture.set_sform(affine, code="scanner")
    picture.set_qform(affine, code="scanner")
    picture.header.set_xyzt_units("mm")
    picture.header["descrip"] = f"ct_dip {name}, 1/mm"
    return picture.to_bytes()


def _npy(image: Floats, name: str, grid: _Grid) -> bytes:
    """Encode the bare array; its pixel size is in the file that `_grid` fills."""
    buffer = io.BytesIO()
    np.save(buffer, image, allow_pickle=False)
    return buffer.getvalue()


def _grid(grid: _Grid, volume: bool) -> bytes:
    """Encode what an NPY file cannot hold: pixel size, unit and axes."""
    axes = "rows from the top, columns from the left"
    facts: dict[str, object] = {"pixel_size_mm": grid.pixel_size, "unit": "1/mm", "axes": axes}
    if volume:
        facts |= {"axes": f"slices, {axes}", "slice_spacing_mm": grid.spacing}
    return (json.dumps(facts, indent=2) + "\n").encode()


_ENCODERS: dict[str, Callable[[Floats, str, _Grid], bytes]] = {"tiff": _tiff, "npy": _npy, "nifti": _nifti}
