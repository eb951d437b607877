"""Data of the Finnish Inverse Problems Society with a matrix: ``A`` and ``m``, as of the lotus root.

``m`` (detectors, views) holds line integrals of a flat fan beam over a full circle, ``A`` (detectors · views,
pixels) how rays meet the pixels of a square grid. The distances are those of the lotus root (Bubba et al.
2016): 540 mm from the source to the axis, 630 mm to the detector. The detector's pitch is stated neither in
the file nor beyond doubt elsewhere, but ``A`` knows where its rays pass: at signed distances ``s_j`` from the
axis, in pixels of 0.627 mm on the grid of 128, where a fan beam has ``s_j = 540 sin γ_j`` and
``630 tan γ_j = j · pitch``. So the pitch is fitted to that, unless ``--detector-pitch`` says it; lengths are
as sure as the published pixel size. Other data of this layout have other distances: ``--source-origin``,
``--origin-detector``.
"""

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from ct_dip.arrays import Floats
from ct_dip.errors import ScanError
from ct_dip.importers.matlab import read_matlab
from ct_dip.importers.open import named
from ct_dip.importers.options import Options
from ct_dip.importers.recording import Format, Readings, Recording
from ct_dip.scanners import view_angles

_SOURCE_ORIGIN, _SOURCE_DETECTOR = 540.0, 630.0  # mm
_WIDTH = 128 * 0.627  # mm, of the grid that A is for
_VIEWS = 4  # whose rays are looked at


@contextlib.contextmanager
def _open(path: Path, options: Options) -> Iterator[Recording]:
    m = np.asarray(read_matlab(path, "m"))
    with named(path):
        if m.ndim != 2 or m.dtype.kind not in "fiu":
            raise ScanError(f"m has shape {m.shape} and type {m.dtype}, expected numbers, detectors × views")
        detectors, views = m.shape
        source_origin = options.source_origin or _SOURCE_ORIGIN
        origin_detector = options.origin_detector
        if origin_detector is None:
            origin_detector = _SOURCE_DETECTOR - _SOURCE_ORIGIN
        pitch = options.detector_pitch
        steps: tuple[str, ...] = ()
        if pitch is None:
            distances = ray_distances(_matrix(read_matlab(path, "A"), m.size), detectors, views)
            pitch = fitted_pitch(distances, source_origin, source_origin + origin_detector)
            steps = (f"detector pitch of {pitch:.4g} mm fitted to the rays of the matrix A",)
        sinogram = m.T[:, None]
    yield Recording(
        shape=(views, 1, detectors),
        read=lambda first, last: Readings(data=sinogram, names=("m", "", "")),
        counts=False,
        angles=view_angles(views, 2 * math.pi),
        detector_pitch=pitch,
        source_origin=source_origin,
        origin_detector=origin_detector,
        center_of_rotation=0.0,
        source="FIPS data with a matrix, geometry of the lotus root; Bubba et al. 2016, arXiv 1609.07299",
        steps=("line integrals, as published", *steps),
    )


def ray_distances(matrix: Any, detectors: int, views: int) -> Floats:
    """Detector number from the middle, and distance from the middle of the grid in mm, (rays, 2).

    A row of ``A`` weighs the pixels along a line, so that its centre of mass is on the line, and the weights'
    largest principal axis is its direction.
    """
    side = math.isqrt(matrix.shape[1])
    if matrix.shape != (detectors * views, side**2):
        raise ScanError(
            f"A has shape {matrix.shape}, expected ({detectors * views}, n²) for m of {detectors} × {views}"
        )
    centers = (np.arange(side) - (side - 1) / 2) * _WIDTH / side
    x, y = np.tile(centers, side), np.repeat(centers, side)
    rays = []
    for view in range(0, views, max(1, views // _VIEWS)):
        signed = []
        for detector in range(detectors):
            ray = slice(*matrix.indptr[view * detectors + detector :][:2])
            weights, pixels = matrix.data[ray], matrix.indices[ray]
            if len(pixels) < side // 2:  # too short a part of the ray to see its direction
                continue
            points = np.stack([x[pixels], y[pixels]])
            mean = points @ weights / weights.sum()
            spread = (points - mean[:, None]) * weights @ (points - mean[:, None]).T
            normal = np.linalg.eigh(spread)[1][:, 0]
            signed.append((detector - (detectors - 1) / 2, normal @ mean, normal))
        rays += _same_side(signed)
    return np.array(rays)


def _same_side(rays: list[tuple[float, float, Floats]]) -> list[tuple[float, float]]:
    """Number and distance of the rays of a view, with the normals on one side, where numbers grow."""
    if not rays:
        return []
    numbers = np.array([number for number, _, _ in rays])
    reference = rays[len(rays) // 2][2]
    signs = np.array([np.sign(normal @ reference) for _, _, normal in rays])
    distances = signs * np.array([distance for _, distance, _ in rays])
    if np.polyfit(numbers, distances, 1)[0] < 0:
        distances = -distances
    return list(zip(numbers, distances, strict=True))


def fitted_pitch(rays: Floats, source_origin: float, source_detector: float) -> float:
    """Pitch of the detector, mm, that makes a flat fan beam of these rays."""
    if len(rays) < 2:
        raise ScanError("the rays of A do not tell the detector's pitch: give --detector-pitch MM")
    number, distance = rays.T
    position = source_detector * np.tan(np.arcsin(np.clip(distance / source_origin, -0.99, 0.99)))
    return float(number @ position / (number @ number))


def _matrix(value: Any, rows: int) -> Any:
    """Return a sparse matrix of version 5, or the parts of one of version 7.3, by rows."""
    if isinstance(value, dict) and {"data", "ir", "jc"} <= value.keys():
        parts = value["data"], value["ir"], value["jc"]
        value = scipy.sparse.csc_array(parts, shape=(rows, len(value["jc"]) - 1))
    if not scipy.sparse.issparse(value) and np.ndim(value) != 2:
        raise ScanError("A is no matrix; give --detector-pitch MM, and it is not needed")
    return scipy.sparse.csr_array(value)


FORMAT = Format(
    name="fips-lotus",
    about="FIPS data with a matrix A and a sinogram m, MATLAB",
    options=("detector_pitch", "source_origin", "origin_detector", "detector_offset", "center"),
    recognises=lambda content: content.kind in ("hdf5", "matlab5") and {"A", "m"} <= content.names,
    open=_open,
)
