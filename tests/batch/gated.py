"""A dataset that stops at a gate, so that a test can break something while work is under way."""

import time
from pathlib import Path

from ct_dip.data.datasets import Dataset, open_dataset


class Gated(Dataset):
    """Scan files of a folder; those from ``first`` on can be read when the file ``gate`` is there."""

    def __init__(self, folder, gate=None, first=0):
        super().__init__()
        self.inner, self.gate, self.first = open_dataset(folder), gate, first

    def __len__(self):
        return len(self.inner)

    def label(self, index):
        return self.inner.label(index)

    def describe(self):
        return self.inner.describe()

    def read(self, index):
        while index >= self.first and self.gate is not None and not Path(self.gate).exists():
            time.sleep(0.05)
        return self.inner.read(index)
