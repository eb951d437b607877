"""The walnut of the Finnish Inverse Problems Society: a MATLAB file with ``sinogram1200`` or ``sinogram120``.

Raw intensities of a flat fan beam, (2296 detectors, views), over a full circle. The geometry is not in the
file; it is in Hämäläinen et al. 2015, but for the detector's offset, which was found by sharpness.
"""

from pathlib import Path

import numpy as np

from ct_dip.data.scan import Scan
from ct_dip.errors import ScanError
from ct_dip.geometry import FanBeam
from ct_dip.importers.grid import ANY_VOLUME, bin_columns, scan_on_grid
from ct_dip.importers.intensity import check_air, check_readings, line_integrals, photon_noise
from ct_dip.importers.matlab import matlab_names, read_matlab
from ct_dip.importers.open import named
from ct_dip.scanners import view_angles

VARIABLES = {"sinogram1200": 1200, "sinogram120": 120}  # the better one first
LICENCE = "Finnish Inverse Problems Society, Zenodo 1254206, CC BY 4.0"
DETECTORS = 2296
_AIR = 100  # detectors at either end that see air in every view


def read_fips_walnut(
    path: str | Path,
    *,
    bin: int = 1,
    size: int | None = None,
    width: float | None = None,
    offset: float = 0.28,
) -> Scan:
    """All views on a grid, with photon noise measured in air.

    Args:
        bin: neighbouring detectors whose intensities are averaged.
        size, width: of the grid, see `ct_dip.importers.grid.on_grid`.
        offset: of the detector, mm.

    Raises:
        ScanError: with the file, the field and the fix.
    """
    path = Path(path)
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
        counts = check_readings(readings, name).T
        check_air(np.concatenate([counts[:, :_AIR], counts[:, -_AIR:]], axis=1), name)
        counts = bin_columns(counts, bin)
        edge = max(1, _AIR // bin)
        ends = np.concatenate([counts[:, :edge], counts[:, -edge:]], axis=1)
        # The tube drifts by 10 % during the scan, so every view has its own air value.
        air = np.median(ends, axis=1, keepdims=True)
        if not air.min() > 0:
            view = int(air.argmin())
            raise ScanError(
                f"{name}: view {view} reads {air[view, 0]:g} at the detector's ends, which see air; drop it"
            )
        geometry = FanBeam(
            volume=ANY_VOLUME,
            angles=view_angles(len(counts), 2 * np.pi),
            detectors=counts.shape[1],
            detector_pitch=0.05 * bin,
            detector_offset=offset,
            source_origin=110.0,
            origin_detector=190.0,
        )
        scan = Scan(
            sinogram=line_integrals(counts, air),
            geometry=geometry,
            noise=photon_noise(ends / air),
            source=f"FIPS walnut, {name}; {LICENCE}",
        )
        return scan_on_grid(scan, size=size, width=width)
