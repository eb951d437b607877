"""``ct-dip export``: export the images of a result for other programs."""

from pathlib import Path
from typing import Annotated

import typer

from ct_dip.cli.console import message
from ct_dip.cli.options import Verbose


def export(
    result: Annotated[Path, typer.Argument(help="Result file.")],
    out: Annotated[Path, typer.Option(help="Write the files NAME-mean and NAME-std for this NAME.")],
    format: Annotated[
        str | None,
        typer.Option(
            help="File format: tiff (ImageJ, napari), nifti or npy. Default: by the ending of --out, else "
            "tiff."
        ),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Export the mean and the standard deviation of a result as images for other programs, in 1/mm."""
    from ct_dip.data.export import export as run
    from ct_dip.data.result_file import read_result

    loaded = read_result(result)
    files = run(loaded, out, format)
    rows, columns = loaded.mean.shape
    what = "mean" if loaded.std is None else "mean and standard deviation"
    missing = f"; method {loaded.method} gives no standard deviation" if loaded.std is None else ""
    message(
        f"{', '.join(map(str, files))}: {what} of {rows} × {columns} pixels of "
        f"{loaded.pixel_size:g} mm, in 1/mm{missing}"
    )
