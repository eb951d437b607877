"""What every test may rely on: a cache of its own, and the real data where they are."""

import os
from pathlib import Path

# One thread per test process: two processes with two threads each wait for one another at every
# barrier, which was ten times slower. Set before torch is imported.
os.environ["OMP_NUM_THREADS"] = "1"

import pytest


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory):
    os.environ["CT_DIP_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def real_data() -> Path:
    folder = os.environ.get("CT_DIP_DATA")
    if folder is None:
        pytest.skip("CT_DIP_DATA is not set: real scans are not here")
    return Path(folder)
