"""The walnut of the Finnish Inverse Problems Society: a MATLAB file with ``sinogram1200`` or ``sinogram120``.

Raw intensities of a flat fan beam, (2296 detectors, views), over a full circle. The geometry is not in the
file; it is in Hämäläinen et al. 2015, but for the detector's offset, which is found in the data. The tube
drifts by 10 % during the scan, so that every view has its own air value.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ct_dip.errors import ScanError
from ct_dip.importers.intensity import check_readings
from ct_dip.importers.matlab import matlab_names, read_matlab
from ct_dip.importers.open import named
from ct_dip.importers.options import Options
from ct_dip.importers.recording import Format, Readings, Recording
from ct_dip.scanners import view_angles

VARIABLES = {"sinogram1200": 1200, "sinogram120": 120}  # the better one first
LICENCE = "Finnish Inverse Problems Society, Zenodo 1254206, CC BY 4.0"
DETECTORS = 2296
_AIR = 100  # detectors at either end that see air in every view


@contextlib.contextmanager
def _open(path: Path, options: Options) -> Iterator[Recording]:
    names = matlab_names(path)
    name = next((name for name in VARIABLES if name in names), None)
    if name is None:
        raise ScanError(
            f"{path} has neither sinogram1200 nor sinogram120 but {', '.join(names)}; is it the walnut?"
        )
    readings = np.asarray(read_matlab(path, name))
    with named(path):
        expected = (DETECTORS, VARIABLES[name])
        if readings.shape != expected:
            hint = "; transpose it?" if readings.shape == expected[::-1] else ""
            raise ScanError(
                f"{name} has shape {readings.shape}, expected {expected}: detectors × views{hint}"
            )
        counts = check_readings(readings, name).T[:, None]
    yield Recording(
        shape=(VARIABLES[name], 1, DETECTORS),
        read=lambda first, last: Readings(data=counts, air=_AIR, names=(name, "", "")),
        counts=True,
        angles=view_angles(VARIABLES[name], 2 * np.pi),
        detector_pitch=0.05,
        source_origin=110.0,
        origin_detector=190.0,
        source=f"FIPS walnut, {name}; {LICENCE}",
    )


FORMAT = Format(
    name="fips-walnut",
    about="walnut of the Finnish Inverse Problems Society, MATLAB",
    options=("detector_offset",),
    recognises=lambda content: bool(content.names & VARIABLES.keys()),
    open=_open,
)
