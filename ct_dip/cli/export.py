"""``ct-dip export``: export the images of a result for other programs."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from ct_dip.cli.console import print_line
from ct_dip.cli.options import Verbose


def export(
    results: Annotated[
        list[Path],
        typer.Argument(
            metavar="RESULT...", help="Result file; or the slices of a volume, as files or as their folder."
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="NAME of the files NAME-mean and NAME-std, with or without an ending.")
    ],
    format: Annotated[
        str | None,
        typer.Option(
            help="File format: tiff (ImageJ, napari), nifti or npy. Default: by the ending of --out, else "
            "tiff."
        ),
    ] = None,
    spacing: Annotated[
        float | None,
        typer.Option(help="Distance between the slices of a volume in mm. Default: that of detector rows."),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Export the mean and the standard deviation of results as images for other programs, in 1/mm."""
    from ct_dip.data.export import expand_folders, spacing_of_rows
    from ct_dip.data.export import export as run
    from ct_dip.data.result_file import load_result
    from ct_dip.errors import InputError

    files = expand_folders(results)
    if spacing is not None and len(files) == 1:
        raise InputError(f"--spacing {spacing:g} belongs to several slices; drop it")
    loaded = [dataclasses.replace(load_result(path), samples=None) for path in files]  # which are large
    spacing = spacing_of_rows(loaded) if spacing is None else spacing
    written = run(loaded, out, format, spacing=spacing)
    first = loaded[0]
    rows, columns = first.mean.shape
    what = "mean" if first.std is None else "mean and standard deviation"
    missing = f"; method {first.method} gives no standard deviation" if first.std is None else ""
    slices = f"{len(loaded)} slices of " if len(loaded) > 1 else ""
    apart = f", {spacing:.4g} mm apart" if slices else ""
    print_line(
        f"{', '.join(map(str, written))}: {what} of {slices}{rows} × {columns} pixels of "
        f"{first.pixel_size:g} mm{apart}, in 1/mm{missing}"
    )
