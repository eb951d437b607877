"""Helsinki Tomography Challenge 2022: MATLAB files with ``CtDataFull`` or ``CtDataLimited``.

``.sinogram`` holds line integrals, (views, detectors), with the centre of rotation already corrected;
``.parameters`` the flat fan beam, in mm and degrees. Raw intensities are not published, so the scan states no
noise.
"""

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ct_dip.errors import ScanError
from ct_dip.importers.matlab import matlab_names, read_matlab
from ct_dip.importers.open import named
from ct_dip.importers.options import Options
from ct_dip.importers.recording import Format, Readings, Recording
from ct_dip.text import shortened

VARIABLES = {"CtDataFull": "full", "CtDataLimited": "limited"}
LICENCE = "Helsinki Tomography Challenge 2022, Zenodo 8041800, CC BY 4.0"


@contextlib.contextmanager
def _open(path: Path, options: Options) -> Iterator[Recording]:
    names = [name for name in matlab_names(path) if name in VARIABLES]
    if len(names) != 1:
        raise ScanError(f"{path} must hold one of CtDataFull and CtDataLimited, found {names or 'neither'}")
    data = read_matlab(path, names[0])
    with named(path):
        recording = _recording(data, names[0])
    yield recording


def _recording(data: Any, name: str) -> Recording:
    parameters = _field(data, "parameters", name)
    inside = f"{name}.parameters"
    unit = str(parameters.get("distanceUnit", "mm")) if isinstance(parameters, dict) else ""
    if unit not in ("mm", ""):
        raise ScanError(f"{inside}.distanceUnit is {unit!r}, expected 'mm'; convert the distances")
    angles = np.atleast_1d(_field(parameters, "angles", inside))
    if angles.dtype.kind not in "fiu" or not np.isfinite(angles).all():
        raise ScanError(f"{inside}.angles must be numbers, in degrees, and finite")
    angles = angles.astype(np.float64)
    sinogram = np.asarray(_field(data, "sinogram", name))
    detectors = int(count := _number(parameters, "numDetectorsPost", inside))
    if detectors != count:
        raise ScanError(f"{inside}.numDetectorsPost is {count}, expected a whole number")
    if sinogram.shape != (len(angles), detectors):
        hint = "; transpose it?" if sinogram.shape == (detectors, len(angles)) else ""
        raise ScanError(
            f"{name}.sinogram has shape {sinogram.shape}, expected {(len(angles), detectors)}: the views of "
            f"{inside}.angles × numDetectorsPost{hint}"
        )
    source_origin = _number(parameters, "distanceSourceOrigin", inside)
    project = str(parameters.get("projectName", "")).removeprefix("htc2022_").strip("_")
    return Recording(
        shape=(len(angles), 1, detectors),
        read=lambda first, last: Readings(data=sinogram[:, None]),
        counts=False,
        angles=np.deg2rad(angles),
        detector_pitch=_number(parameters, "pixelSizePost", inside),
        source_origin=source_origin,
        origin_detector=_number(parameters, "distanceSourceDetector", inside) - source_origin,
        center_of_rotation=0.0,
        source=" ".join(f"HTC 2022 {project} {VARIABLES[name]}".split()) + f"; {LICENCE}",
        steps=("line integrals with a corrected centre of rotation, as published",),
    )


def _field(data: Any, key: str, name: str) -> Any:
    if not isinstance(data, dict) or key not in data:
        raise ScanError(f"{name} has no field {key!r}; is this a file of the challenge? Download it anew")
    return data[key]


def _number(data: Any, key: str, name: str) -> float:
    value = _field(data, key, name)
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise ScanError(f"{name}.{key} is {shortened(repr(value))}, expected a number") from error
    if not math.isfinite(number):
        raise ScanError(f"{name}.{key} is {number}, expected a finite number")
    return number


FORMAT = Format(
    name="htc2022",
    about="Helsinki Tomography Challenge 2022, MATLAB",
    options=(),
    recognises=lambda content: bool(content.names & VARIABLES.keys()),
    open=_open,
)
