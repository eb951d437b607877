"""``ct-dip import``: a scan file from a measured scan."""

import dataclasses
import io
from pathlib import Path
from typing import Annotated

import typer

from ct_dip.cli.console import message
from ct_dip.cli.options import Verbose, check_result_name, load_mask
from ct_dip.errors import InputError

_GRID, _EXCHANGE = "Image grid", "Data Exchange files"


def import_(
    file: Annotated[Path, typer.Argument(help="File with a measured scan.")],
    out: Annotated[Path, typer.Option(help="Scan file to write (.h5).")],
    format: Annotated[
        str, typer.Option(help="htc2022, fips-walnut, data-exchange, numpy, or auto: by the content.")
    ] = "auto",
    views: Annotated[int | None, typer.Option(help="Keep so many, evenly spread. Default: all.")] = None,
    bin: Annotated[int, typer.Option(help="Average so many neighbouring detectors.")] = 1,
    size: Annotated[
        int | None,
        typer.Option(
            "--size",
            "--pixels",
            help="Pixels of a side. Default: one per ray at the axis.",
            rich_help_panel=_GRID,
        ),
    ] = None,
    width: Annotated[
        float | None, typer.Option(help="Of a side, mm. Default: the field of view.", rich_help_panel=_GRID)
    ] = None,
    row: Annotated[
        int | None, typer.Option(help="Which row of the detector.", rich_help_panel=_EXCHANGE)
    ] = None,
    center: Annotated[
        str, typer.Option(help="Column of the rotation axis, from 0; auto.", rich_help_panel=_EXCHANGE)
    ] = "auto",
    detector_pitch: Annotated[
        float | None,
        typer.Option(help="Width of a column, mm. Default: 1.", rich_help_panel=_EXCHANGE),
    ] = None,
    mask: Annotated[
        str | None,
        typer.Option(
            help="Pixels that evaluations count: a picture or NPY file of the grid's shape, or all. Default: "
            "the field of view.",
            rich_help_panel=_GRID,
        ),
    ] = None,
    counts: Annotated[
        bool,
        typer.Option("--counts", help="An NPZ file's sinogram holds readings of the detector, with 'flat'."),
    ] = False,
    reference_out: Annotated[
        Path | None,
        typer.Option(help="NPY file for the FBP of all views on the grid, 1/mm: a reference, no truth."),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Turn a measured scan into a scan file."""
    import numpy as np

    from ct_dip.data.noise import PhotonNoise
    from ct_dip.data.plausibility import implausible
    from ct_dip.data.scan_file import write_scan
    from ct_dip.files import check_writable, write_bytes
    from ct_dip.importers.grid import spread_views
    from ct_dip.importers.reference import reference_image
    from ct_dip.importers.run import import_scan

    check_result_name(out, "a scan")
    if reference_out is not None and reference_out.suffix != ".npy":
        raise InputError(f"--reference-out {reference_out}: it is a NumPy file; give it the ending .npy")
    for name, path in (("--out", out), ("--reference-out", reference_out)):
        if path is not None and path.exists() and file.exists() and path.samefile(file):
            raise InputError(f"{name} {path} is the measured scan itself; choose another name")
    if size is not None and size < 2:
        raise InputError(f"--size {size} must be at least 2")
    scan = import_scan(
        file,
        format=format,
        bin=bin,
        size=size,
        width=width,
        row=row,
        center=_column(center),
        pitch=detector_pitch,
        counts=counts,
    )
    if mask is not None:
        shape = scan.geometry.domain_shape
        marked = np.ones(shape, dtype=bool) if mask == "all" else load_mask(Path(mask), shape)
        scan = dataclasses.replace(scan, mask=marked)
    kept = scan if views is None else spread_views(scan, views)
    warnings = implausible(kept)
    check_writable(out)
    if reference_out is not None:
        buffer = io.BytesIO()
        np.save(buffer, reference_image(scan).astype(np.float32), allow_pickle=False)
        write_bytes(reference_out, buffer.getvalue())
    write_scan(out, kept)
    geometry, volume = kept.geometry, kept.geometry.volume
    noise = "no noise stated: it will be estimated"
    if isinstance(kept.noise, PhotonNoise):
        noise = f"noise of {kept.noise.photons:.4g} photons per bin in air"
    elif kept.noise is not None:
        noise = f"white noise of {kept.noise.std:.4g}"
    message(
        f"{out}: {geometry.views} of {scan.geometry.views} views × {geometry.detectors} bins, "
        f"{volume.shape[0]} × {volume.shape[1]} pixels of {volume.pixel_size:.4g} mm, {noise}; {kept.source}"
    )
    for warning in warnings:
        message(f"warning: {warning}")


def _column(text: str) -> float | None:
    if text == "auto":
        return None
    try:
        return float(text)
    except ValueError as error:
        raise InputError(f"--center {text!r} is neither auto nor the column of the rotation axis") from error
