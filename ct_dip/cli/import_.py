"""``ct-dip import``: a scan file from a measured scan, or one per row of the detector."""

import io
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ct_dip.cli.console import message, print_line
from ct_dip.cli.options import Verbose, check_result_name, parse_angle
from ct_dip.errors import CtDipError, InputError

if TYPE_CHECKING:
    from ct_dip.data.scan import Scan


def _option(panel: str, help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel)


# Options under the headings of the help page.
_grid = partial(_option, "Image grid")
_rows = partial(_option, "Detectors with several rows")
_parts = partial(_option, "What is where in the file")
_scanner = partial(_option, "What the file does not say")
_repair = partial(_option, "Repairs and noise")


def import_(
    file: Annotated[Path, typer.Argument(help="File or folder with a measured scan.")],
    out: Annotated[Path, typer.Option(help="Scan file to write (.h5).")],
    format: Annotated[
        str,
        typer.Option(
            help="File format: htc2022, fips-walnut, fips-lotus, data-exchange, nxtomo, nikon, tiff-folder, "
            "tiff-sinogram, lodopab, 2detect, arrays (NPZ, HDF5, MATLAB), or auto to recognise it. ct-dip "
            "info FILE shows the format and the options that it needs."
        ),
    ] = "auto",
    views: Annotated[
        int | None, typer.Option(help="Keep this many views, evenly spaced. Default: all.")
    ] = None,
    bin: Annotated[
        int, typer.Option(help="Average the readings of this many neighbouring detector bins.")
    ] = 1,
    size: Annotated[
        int | None,
        _grid(
            "Number of pixels a side. Default: as many as the width has detector bins, seen at the rotation "
            "axis.",
            "--size",
            "--pixels",
        ),
    ] = None,
    width: Annotated[
        float | None,
        _grid(
            "Width of the image in mm. Default: the field of view, which every view sees; it is narrower "
            "than the detector by twice the distance of the rotation axis from its middle."
        ),
    ] = None,
    mask: Annotated[
        str | None,
        _grid(
            "Score only the pixels that this picture or NPY file of the image's shape marks, or all. "
            "Default: the field of view."
        ),
    ] = None,
    row: Annotated[int | None, _rows("Import this row of the detector, counted from 0.")] = None,
    rows: Annotated[
        str | None,
        _rows("Import several rows, as 10:20 (without row 20), or all, each into a file OUT_row0012.h5."),
    ] = None,
    sinogram: Annotated[str | None, _parts("Name of the array with the sinogram.")] = None,
    angles: Annotated[str | None, _parts("Name of the array with the angles.")] = None,
    degrees: Annotated[bool, _parts("Read the angles in degrees, not radians.", "--degrees")] = False,
    transpose: Annotated[bool, _parts("Read the sinogram as detectors × views.", "--transpose")] = False,
    counts: Annotated[
        bool,
        _parts(
            "Take the values to be detector readings, not line integrals; needs --flat or --air.", "--counts"
        ),
    ] = False,
    flat: Annotated[
        str | None,
        _parts(
            "Readings without an object (flats): name of an array, of a folder or file of TIFFs, or one "
            "number for all."
        ),
    ] = None,
    dark: Annotated[str | None, _parts("Readings without the beam (darks), given like --flat.")] = None,
    air: Annotated[
        int | None,
        _parts("Use the outermost N columns on each side, which see only air, instead of flats."),
    ] = None,
    arc: Annotated[
        str | None,
        _scanner("Angle that evenly spaced views cover, for example 180, -360 (clockwise) or 3.14rad."),
    ] = None,
    center: Annotated[
        str,
        _scanner("Column of the rotation axis, counted from 0, or auto: as stated, or found in the data."),
    ] = "auto",
    detector_pitch: Annotated[float | None, _scanner("Distance between detector columns in mm.")] = None,
    detector_offset: Annotated[float | None, _scanner("Shift of the detector, mm.")] = None,
    offset_error: Annotated[
        float | None,
        _scanner(
            "Standard error of that shift, or of the axis on the detector, mm. Default: as found in the "
            "data; 0 if the axis is stated."
        ),
    ] = None,
    source_origin: Annotated[
        float | None, _scanner("Distance from the source of a fan beam to the rotation axis, in mm.")
    ] = None,
    origin_detector: Annotated[
        float | None, _scanner("Distance from the rotation axis to the detector of a fan beam, in mm.")
    ] = None,
    remove_outliers: Annotated[
        bool, _repair("Replace isolated outliers (zingers).", "--remove-outliers")
    ] = False,
    normalise_air: Annotated[
        bool,
        _repair(
            "Correct intensity drift: shift each view so that the air at the detector's ends reads zero.",
            "--normalise-air",
        ),
    ] = False,
    remove_stripes: Annotated[
        bool,
        _repair(
            "Correct detector columns with a constant error, which cause ring artefacts.", "--remove-stripes"
        ),
    ] = False,
    linearise: Annotated[
        bool,
        _repair(
            "Correct beam hardening with the coefficient that makes the views most consistent.", "--linearise"
        ),
    ] = False,
    noise: Annotated[
        str,
        _repair(
            "Noise of the line integrals. auto: as stated, else measured in air, else (counts only) "
            "estimated from the views. white, photons: estimate that kind from the views. none: leave unset."
        ),
    ] = "auto",
    noise_std: Annotated[
        float | None, _repair("Standard deviation of the line integrals of single detectors.")
    ] = None,
    photons: Annotated[float | None, _repair("Photons per single detector in air.")] = None,
    reference_out: Annotated[
        Path | None,
        typer.Option(
            help="Write the FBP of all views to this NPY file, in 1/mm, as a reference to compare with."
        ),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Turn a measured scan into a scan file."""
    from ct_dip.importers.run import import_rows

    check_result_name(out, "a scan")
    _check(file, out, reference_out, several=rows is not None)
    if size is not None and size < 2:
        raise InputError(f"--size {size} must be at least 2")
    if row is not None and rows is not None:
        raise InputError(f"--row {row} and --rows {rows} exclude each other; drop one")
    scans = import_rows(
        file,
        rows=rows if row is None else str(row),
        format=format,
        bin=bin,
        size=size,
        width=width,
        mask=mask,
        offset_error=offset_error,
        sinogram=sinogram,
        angles=angles,
        degrees=degrees,
        transpose=transpose,
        counts=counts,
        flat=flat,
        dark=dark,
        air=air,
        arc=None if arc is None else parse_angle(arc, "--arc"),
        center=_column(center),
        detector_pitch=detector_pitch,
        detector_offset=detector_offset,
        source_origin=source_origin,
        origin_detector=origin_detector,
        remove_outliers=remove_outliers,
        normalise_air=normalise_air,
        remove_stripes=remove_stripes,
        linearise=linearise,
        noise=noise,
        noise_std=noise_std,
        photons=photons,
    )
    written: list[Path] = []
    try:
        for number, scan in scans:
            path = out if rows is None else out.with_stem(f"{out.stem}_row{number:04d}")
            _write(scan, path, views=views, reference_out=reference_out, steps=rows is None)
            written.append(path)
    except CtDipError:
        if written:
            message(f"the rows before are imported: {written[0]} to {written[-1]}")
        raise


def _check(file: Path, out: Path, reference_out: Path | None, *, several: bool) -> None:
    """Refuse outputs that cannot be."""
    if reference_out is not None and several:
        raise InputError(f"--reference-out {reference_out} belongs to one row; import it with --row")
    if reference_out is not None and reference_out.suffix != ".npy":
        raise InputError(f"--reference-out {reference_out}: it is a NumPy file; give it the ending .npy")
    for name, path in (("--out", out), ("--reference-out", reference_out)):
        if path is not None and path.exists() and file.exists() and path.samefile(file):
            raise InputError(f"{name} {path} is the measured scan itself; choose another name")


def _write(scan: "Scan", out: Path, *, views: int | None, reference_out: Path | None, steps: bool) -> None:
    """Write one scan with the views that are kept, and say what it is, and how it was made."""
    import numpy as np

    from ct_dip.data.plausibility import implausible
    from ct_dip.data.scan_file import write_scan
    from ct_dip.files import check_writable, write_bytes
    from ct_dip.importers.grid import spread_views
    from ct_dip.importers.reference import reference_image

    kept = scan if views is None else spread_views(scan, views)
    warnings = implausible(kept)
    check_writable(out)
    if reference_out is not None:
        buffer = io.BytesIO()
        np.save(buffer, reference_image(scan).astype(np.float32), allow_pickle=False)
        write_bytes(reference_out, buffer.getvalue())
    write_scan(kept, out)
    geometry, volume = kept.geometry, kept.geometry.volume
    noise = "no noise stated: it will be estimated"
    if kept.noise is not None:
        noise = str(kept.noise.settled(kept.sinogram))
    print_line(
        f"{out}: {geometry.views} of {scan.geometry.views} views × {geometry.detectors} bins, "
        f"{volume.shape[0]} × {volume.shape[1]} pixels of {volume.pixel_size:.4g} mm, {noise}; {kept.source}"
    )
    for step in kept.steps if steps else ():
        print_line(f"step: {step}")
    for warning in warnings:
        message(f"warning: {warning}")


def _column(text: str) -> float | None:
    if text == "auto":
        return None
    try:
        return float(text)
    except ValueError as error:
        raise InputError(f"--center {text!r} is neither auto nor the column of the rotation axis") from error
