"""Images of a `Prediction` for other programs: TIFF, NIfTI and NPY files with the pixel size.

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
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.data.result_file import AnyResult, load_result
from ct_dip.errors import InputError
from ct_dip.files import atomic_path
from ct_dip.geometry import Volume

# File endings by format; the first is given to a name that has none.
ENDINGS = {"tiff": (".tif", ".tiff"), "npy": (".npy",), "nifti": (".nii", ".nii.gz")}


def export(result: AnyResult, path: str | Path, format: str | None = None) -> list[Path]:
    """Write the mean, and the standard deviation if there is one, as images for other programs.

    Args:
        result: a `Prediction`, or the path of a result file.
        path: ``NAME`` or, say, ``NAME.tif``; the files are ``NAME-mean.tif`` and ``NAME-std.tif``.
        format: ``tiff``, ``npy`` or ``nifti``; by default what the ending of ``path`` says, else ``tiff``.

    Returns:
        The files. None appears, or takes the place of an older one, before all are safely on the disk.

    Raises:
        InputError: the format is unknown, or contradicts the ending of ``path``.
        OutputError: a file cannot be written.
    """
    result = load_result(result)
    kind = _format_of(Path(path)) if format is None else format
    stem, ending = _split(Path(path), kind)
    images = {"mean": result.mean} | ({} if result.std is None else {"std": result.std})
    encode = _ENCODERS[kind]
    # Encoded in memory: the disk meets finished files only.
    contents = {
        stem.with_name(f"{stem.name}-{name}{ending}"): encode(
            np.asarray(image, dtype=np.float32), name, result.pixel_size
        )
        for name, image in images.items()
    }
    if ending == ".nii.gz":
        contents = {file: gzip.compress(content, mtime=0) for file, content in contents.items()}
    if kind == "npy":
        contents[stem.with_name(f"{stem.name}-grid.json")] = _grid(result.pixel_size)
    with contextlib.ExitStack() as files:  # renames them when all are written
        for file, content in contents.items():
            files.enter_context(atomic_path(file)).write_bytes(content)
    return list(contents)


def _format_of(path: Path) -> str:
    return next((f for f, endings in ENDINGS.items() if path.name.lower().endswith(endings)), "tiff")


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
    return path, ENDINGS[format][0]


def _tiff(image: Floats, name: str, pixel_size: float) -> bytes:
    """Encode as ImageJ does: first row on top, resolution in pixels per mm, the unit of its metadata.

    ImageJ takes ``1/XResolution`` for the pixel size in *its* unit, so pixels per centimetre beside
    ``unit=mm`` would be wrong by ten; the tag ``ResolutionUnit`` knows inches and centimetres, and says none.
    """
    import tifffile

    buffer = io.BytesIO()
    tifffile.imwrite(
        buffer,
        image,
        imagej=True,
        resolution=(1 / pixel_size, 1 / pixel_size),
        resolutionunit="NONE",
        metadata={"axes": "YX", "unit": "mm", "Labels": [f"{name}, 1/mm"]},
    )
    return buffer.getvalue()


def _nifti(image: Floats, name: str, pixel_size: float) -> bytes:
    """Encode with voxel (i, j, 0) in column i and row j *from below*, and world coordinates in mm.

    NIfTI's indices grow to the right and up, as x and y do, hence the affine has no reflection, and programs
    that ignore it show the image upright as well. "Scanner" coordinates, since we know no patient. The slice
    has no thickness; it is given that of a pixel. Our array is ``voxels[:, ::-1, 0].T``.
    """
    import nibabel

    x, y = Volume(shape=image.shape, pixel_size=pixel_size).pixel_centers()
    affine = np.diag([pixel_size, pixel_size, pixel_size, 1.0])
    affine[:2, 3] = x[0], y[-1]
    picture = nibabel.Nifti1Image(image[::-1].T[:, :, None], affine)
    picture.set_sform(affine, code="scanner")
    picture.set_qform(affine, code="scanner")
    picture.header.set_xyzt_units("mm")
    picture.header["descrip"] = f"ct_dip {name}, 1/mm"
    return picture.to_bytes()


def _npy(image: Floats, name: str, pixel_size: float) -> bytes:
    """Encode the bare array; its pixel size is in the file that `_grid` fills."""
    buffer = io.BytesIO()
    np.save(buffer, image, allow_pickle=False)
    return buffer.getvalue()


def _grid(pixel_size: float) -> bytes:
    """Encode what an NPY file cannot hold: pixel size, unit and axes."""
    facts = {"pixel_size_mm": pixel_size, "unit": "1/mm", "axes": "rows from the top, columns from the left"}
    return (json.dumps(facts, indent=2) + "\n").encode()


_ENCODERS: dict[str, Callable[[Floats, str, float], bytes]] = {"tiff": _tiff, "npy": _npy, "nifti": _nifti}
