"""One TIFF file: a sinogram (views, columns), or a stack of projections with a page per view.

A TIFF says nothing of the scanner: angles, lengths, and whether values are line integrals or counts are
options. ``--flat`` and ``--dark`` are other TIFF files, or numbers.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from ct_dip.errors import ScanError
from ct_dip.importers.flats import frames_of
from ct_dip.importers.open import named
from ct_dip.importers.options import BEAM, Options
from ct_dip.importers.recording import Format, Readings, Recording
from ct_dip.importers.tiff import frame_shape, read_pages, read_tiff


@contextlib.contextmanager
def _open(path: Path, options: Options) -> Iterator[Recording]:
    pages, rows, columns = frame_shape(path)
    single = pages == 1
    if single:  # its rows are views
        pages, rows, columns = (columns, 1, rows) if options.transpose else (rows, 1, columns)
    with named(path):
        if options.transpose and not single:
            raise ScanError(f"--transpose is for one sinogram; this file has {pages} pages, one per view")
        others = {
            name: frames_of(text, lambda name: read_tiff(Path(name)), rows, columns, f"--{name}")
            for name, text in (("flat", options.flat), ("dark", options.dark))
        }

    def read(first: int, last: int) -> Readings:
        if single:
            sinogram = read_tiff(path)
            data = (sinogram.T if options.transpose else sinogram)[:, None]
        else:
            data = read_pages(path, first, last)
        flats, darks = (None if part is None else part[:, first:last] for part in others.values())
        return Readings(data=data, flats=flats, darks=darks, air=options.air or 0)

    yield Recording(
        shape=(pages, rows, columns), read=read, counts=options.counts, source=f"TIFF {path.name}"
    )


FORMAT = Format(
    name="tiff-sinogram",
    about="one TIFF: a sinogram, or a stack of projections",
    options=("arc", "transpose", "counts", "flat", "dark", "air", *BEAM),
    recognises=lambda content: content.kind == "tiff",
    open=_open,
)
