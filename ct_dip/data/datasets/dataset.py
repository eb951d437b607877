"""`Dataset`: many scans in a fixed order, each read when it is asked for."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ct_dip.arrays import Floats
from ct_dip.checks import check_count
from ct_dip.data.scan import Scan
from ct_dip.errors import InputError, ScanError
from ct_dip.geometry import Geometry


class Dataset(ABC):
    """Scans by number, from 0. Opening one reads no scan.

    What is wrong with one scan is an `InputError` when that scan is read, which names its file; the others
    can be read all the same. A dataset can be pickled: it holds paths, and every process opens its own files.

    Args:
        views: how many to keep of every scan, evenly spaced; ``None``: all.
        bin: how many neighbouring bins become one.
    """

    def __init__(self, *, views: int | None = None, bin: int = 1) -> None:
        self.views = None if views is None else check_count(views, "views")
        self.bin = check_count(bin, "bin")

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of scans, also of those that cannot be read."""

    @abstractmethod
    def label(self, index: int) -> str:
        """Return the scan's name: different for every scan, the same in every run, fit for a file name."""

    @abstractmethod
    def describe(self) -> str:
        """Return in one line what these scans are."""

    @abstractmethod
    def read(self, index: int) -> Scan:
        """Read a scan with all of its views and bins."""

    @property
    def full_geometry(self) -> Geometry | None:
        """Geometry of every scan before `views` and `bin`; ``None`` if it is not known or varies."""
        return None

    @property
    def geometry(self) -> Geometry | None:
        """Geometry that all scans of this dataset have; ``None`` if it is not known or varies."""
        full = self.full_geometry
        if full is None:
            return None
        return full.select_views(self._kept(full.views)).bin_detectors(self.bin)

    def reference(self, index: int) -> Floats | None:
        """Read an image to compare with, 1/mm, where a scan has one that is no ground truth."""
        return None

    def __getitem__(self, index: int) -> Scan:
        """Read a scan.

        Raises:
            IndexError: there is none of this number.
            InputError: it cannot be read, or has fewer views than were asked for.
        """
        if not -len(self) <= index < len(self):
            raise IndexError(f"scan {index} of a dataset of {len(self)}")
        index %= len(self)
        scan = self.read(index)
        try:
            if self.views is not None:
                scan = scan.select_views(self._kept(scan.geometry.views))
            return scan if self.bin == 1 else scan.bin_detectors(self.bin)
        except InputError as error:
            raise ScanError(f"{self.label(index)}: {error}") from error

    def __iter__(self) -> Iterator[Scan]:
        return (self[index] for index in range(len(self)))

    def _kept(self, views: int) -> NDArray[np.integer]:
        """Return the indices of the kept views, ``⌊i · all / kept⌋``."""
        if self.views is None:
            return np.arange(views)
        if self.views > views:
            raise ScanError(f"it has {views} views, {self.views} were asked for; ask for {views} at most")
        return np.arange(self.views) * views // self.views
