"""LoDoPaB-CT (Leuschner et al. 2021), and datasets of its layout::

    observation_{part}_{nnn}.hdf5    data: (128, views, detectors) float32, line integrals / 81.35858
    ground_truth_{part}_{nnn}.hdf5   data: (128, x, y) float32, attenuation / (81.35858 per metre)
    geometry.json                    of datasets that are not LoDoPaB's own: see `Layout`

Its images are ODL's, indexed [x, y] with y upwards. Here images have rows, first row on top, and are in
1/mm, and sinograms are line integrals; `LoDoPaB.stored_image` goes back. The PSNR and SSIM of its authors,
with the range max − min of each truth, are those of `ct_dip.quality`; their reference FBP is method ``fbp``
with ``filter=hann`` and ``cutoff=0.641``.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.data.datasets.dataset import Dataset
from ct_dip.data.datasets.hdf5_stacks import PER_FILE, Stacks
from ct_dip.data.noise import PhotonNoise
from ct_dip.data.scan import Scan
from ct_dip.errors import InputError, ScanError
from ct_dip.files import write_bytes
from ct_dip.geometry import Geometry, ParallelBeam, Volume, geometry_from_dict
from ct_dip.text import counted

PARTS = ("train", "validation", "test", "challenge")
LENGTHS = {"train": 35820, "validation": 3522, "test": 3553, "challenge": 3678}
WATER, AIR = 0.02, 0.00002  # 1/mm
SCALE = WATER + 3071 * (WATER - AIR) / 1000  # 1/mm of value 1: attenuation at 3071 HU
PHOTONS = 4096.0
SIZE = 260.0  # mm, of both sides of an image
SIDECAR = "geometry.json"
_FORMAT, _VERSION = "ct_dip.lodopab", 1
_FILE = re.compile(rf"observation_({'|'.join(PARTS)})_(\d{{3,}})\.hdf5")


def lodopab_geometry(side: int = 362, views: int = 1000) -> ParallelBeam:
    """Return LoDoPaB's scanner for ``side`` × ``side`` pixels, as ODL's ``parallel_beam_geometry`` has it.

    Views lie in the middles of equal parts of [0, π), and an odd number of bins covers the circle around the
    image: 513 over ±183.8 mm for 362 pixels over ±130 mm.
    """
    volume = Volume(shape=(side, side), pixel_size=SIZE / side)
    detectors = 2 * math.ceil(side / math.sqrt(2)) + 1
    return ParallelBeam(
        volume=volume,
        angles=(np.arange(views) + 0.5) * math.pi / views,
        detectors=detectors,
        detector_pitch=2 * volume.radius / detectors,
    )


def part_file(folder: Path, kind: str, part: str, number: int) -> Path:
    """Return the path of a file of ``observation`` or ``ground_truth``."""
    return folder / f"{kind}_{part}_{number:03d}.hdf5"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What all scans of such a dataset share.

    Args:
        geometry: of every scan.
        photons: per bin in air.
        items: how many scans each part has, where that is known.
        source: what was scanned, in words.
    """

    geometry: Geometry = field(default_factory=lodopab_geometry)
    photons: float = PHOTONS
    items: Mapping[str, int] = field(default_factory=dict)
    source: str = "LoDoPaB-CT"

    def write(self, folder: Path) -> None:
        """Write it beside the data."""
        plain = {
            "format": _FORMAT,
            "version": _VERSION,
            "source": self.source,
            "photons": self.photons,
            "items": dict(self.items),
            "geometry": self.geometry.to_dict(),
        }
        write_bytes(folder / SIDECAR, (json.dumps(plain, indent=1) + "\n").encode())

    @staticmethod
    def read(folder: Path) -> "Layout":
        """Read it from beside the data; without a file it is LoDoPaB's own."""
        path = folder / SIDECAR
        if not path.exists():
            return Layout()
        try:
            plain = json.loads(path.read_text(encoding="utf-8"))
            if (plain["format"], plain["version"]) != (_FORMAT, _VERSION):
                raise InputError(f"its format is {plain['format']!r}, version {plain['version']!r}")
            return Layout(
                geometry=geometry_from_dict(plain["geometry"]),
                photons=PhotonNoise(photons=plain["photons"]).photons,
                items={str(part): int(count) for part, count in plain["items"].items()},
                source=str(plain["source"]),
            )
        except (InputError, OSError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"{path} does not describe a dataset ({type(error).__name__}: {error}); "
                "write the dataset anew, or remove the file if this is LoDoPaB itself"
            ) from error


class LoDoPaB(Dataset):
    """A part of a LoDoPaB folder.

    Args:
        folder: with the files as they were unpacked.
        part: ``train``, ``validation``, ``test``, or ``challenge``, which has no ground truth; by default
            ``test``, or the only one that is there.
    """

    def __init__(self, folder: str | Path, part: str | None = None, **subsets: Any) -> None:
        super().__init__(**subsets)
        self.folder = Path(folder)
        self.layout = Layout.read(self.folder)
        self._stacks = Stacks()
        names = [path.name for path in self.folder.iterdir()]
        found = [match.groups() for match in map(_FILE.fullmatch, names) if match]
        parts = sorted({name for name, _ in found})
        self.part = part = part or (parts[0] if len(parts) == 1 else "test")
        numbers = [int(number) for name, number in found if name == part]
        if not numbers:
            raise InputError(
                f"{self.folder} has no part {part!r} (observation_{part}_000.hdf5, …); "
                + (f"choose from {', '.join(parts)}" if parts else "check the folder")
            )
        self._has_truth = any(name.startswith(f"ground_truth_{part}_") for name in names)
        self._length = self.layout.items.get(part) or self._count(max(numbers))

    def _count(self, last: int) -> int:
        """Return the number of scans up to the last file, which may hold fewer than the others."""
        try:
            return last * PER_FILE + self._stacks.length(self._file("observation", last))
        except ScanError:  # its scans say so when they are read
            end = (last + 1) * PER_FILE
            return min(end, LENGTHS[self.part]) if self.layout.source == Layout().source else end

    def _file(self, kind: str, number: int) -> Path:
        return part_file(self.folder, kind, self.part, number)

    def __len__(self) -> int:
        return self._length

    def label(self, index: int) -> str:
        """Return part and number, as ``test_00017``."""
        return f"{self.part}_{index:05d}"

    def describe(self) -> str:
        """Return part, number of scans and their shapes."""
        views, detectors = self.geometry.range_shape
        rows, columns = self.geometry.domain_shape
        return (
            f"{self.layout.source}, part {self.part}: {counted(len(self), 'scan')} of {views} views × "
            f"{detectors} bins, {rows} × {columns} pixels, {self.layout.photons:g} photons"
            + ("" if self._has_truth else ", no ground truth")
        )

    @property
    def full_geometry(self) -> Geometry:
        """Geometry of every scan, with all views and bins."""
        return self.layout.geometry

    @property
    def geometry(self) -> Geometry:
        """Geometry of every scan."""
        geometry = super().geometry
        assert geometry is not None
        return geometry

    def read(self, index: int) -> Scan:
        """Read a scan with its truth, in line integrals and 1/mm."""
        number, place = divmod(index, PER_FILE)
        geometry = self.layout.geometry
        rows, columns = geometry.domain_shape
        sinogram = self._stacks.read(self._file("observation", number), place, geometry.range_shape)
        truth = None
        if self._has_truth:
            truth = self._stacks.read(self._file("ground_truth", number), place, (columns, rows))
        try:
            return Scan(
                sinogram=sinogram * np.float32(1000 * SCALE),
                geometry=geometry,
                noise=PhotonNoise(photons=self.layout.photons),
                ground_truth=None if truth is None else self.image_of_stored(truth),
                attenuation_scale=SCALE,
                source=f"{self.layout.source}, {self.label(index)}",
            )
        except ScanError as error:
            raise ScanError(f"{self.label(index)} in {self._file('observation', number)}: {error}") from error

    @staticmethod
    def stored_image(image: Floats) -> Floats:
        """Return an image in 1/mm, (rows, columns), as the dataset stores it: relative, [x, y], float32."""
        return np.ascontiguousarray((image[::-1] / SCALE).T, dtype=np.float32)

    @staticmethod
    def image_of_stored(stored: Floats) -> Floats:
        """Return the inverse of `stored_image`."""
        return np.ascontiguousarray(stored.T[::-1] * np.float32(SCALE))


def is_lodopab(names: list[str]) -> bool:
    """Whether a folder with these files is one of this layout."""
    return any(map(_FILE.fullmatch, names))
