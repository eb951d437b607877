"""One slice of 2DeteCT in one mode: a folder ``slice00001/mode2``.

`ct_dip.data.datasets.two_detect` reads it.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from ct_dip.data.datasets.two_detect import MODES, TwoDetect, is_two_detect
from ct_dip.errors import ScanError
from ct_dip.importers.content import Content
from ct_dip.importers.options import Options
from ct_dip.importers.recording import Format, Readings, Recording, fields_of_geometry


@contextlib.contextmanager
def _open(path: Path, options: Options) -> Iterator[Recording]:
    place = path.resolve()
    if is_two_detect([place.name]):
        raise ScanError(f"{path} has several exposures; name one of them, as {path / 'mode2'}")
    if place.name not in MODES or not is_two_detect([place.parent.name]):
        raise ScanError(f"{path} is not a folder sliceNNNNN/mode1, 2 or 3 of 2DeteCT")
    dataset = TwoDetect(place.parent.parent, place.name)
    label = f"{place.parent.name}_{place.name}"
    scan = dataset.read(next(index for index in range(len(dataset)) if dataset.label(index) == label))
    yield Recording(
        shape=(scan.geometry.views, 1, scan.geometry.detectors),
        read=lambda first, last: Readings(data=scan.sinogram[:, None]),
        counts=False,
        noise=scan.noise,
        source=scan.source,
        steps=(
            "dark current subtracted, divided by the mean of two flats, detector pairs summed",
            "logarithm taken",
        ),
        **fields_of_geometry(scan.geometry),
    )


def _recognises(content: Content) -> bool:
    name = content.path.resolve().name
    return content.kind == "folder" and (
        bool(is_two_detect([name]) and content.names & set(MODES))
        or (name in MODES and {"sinogram.tif", "dark.tif", "flat1.tif", "flat2.tif"} <= content.names)
    )


FORMAT = Format(
    name="2detect",
    about="a slice of 2DeteCT in one mode, a folder of TIFF files",
    options=(),
    recognises=_recognises,
    open=_open,
)
