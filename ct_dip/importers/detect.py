"""Which format a file has, by what is in it; names and endings say nothing."""

from pathlib import Path

import h5py

from ct_dip.data.hdf5 import file_kind
from ct_dip.data.plain_hdf5 import open_hdf5
from ct_dip.errors import ScanError
from ct_dip.importers import fips_walnut, htc2022
from ct_dip.importers.matlab import matlab_names
from ct_dip.importers.open import check_file, named, reading

FORMATS = ("htc2022", "fips-walnut", "data-exchange", "numpy")


def detect_format(path: str | Path) -> str:
    """One of `FORMATS`.

    Raises:
        ScanError: it is none of these.
    """
    path = check_file(path)
    with reading(path, "a scan"), path.open("rb") as file:
        start = file.read(128)
    if start.startswith(b"PK"):
        return "numpy"
    hdf5 = h5py.is_hdf5(path)
    if hdf5:
        with reading(path, "HDF5"), named(path), open_hdf5(path) as opened:
            if "exchange" in list(opened):  # by its name: `in` alone follows links
                return "data-exchange"
            ours = str(opened.attrs.get("format", "")).startswith("ct_dip.")
        if ours:
            raise ScanError(f"{path} is a ct_dip {file_kind(path)} file already; there is nothing to import")
    if hdf5 or start.startswith(b"MATLAB 5.0"):
        names = set(matlab_names(path))
        if names & set(htc2022.VARIABLES):
            return "htc2022"
        if names & set(fips_walnut.VARIABLES):
            return "fips-walnut"
        what = f"holds {', '.join(sorted(names)[:6]) or 'nothing'}, which no importer knows"
    else:
        what = "is neither MATLAB, HDF5 nor NPZ"
    raise ScanError(
        f"{path} {what}; importers read {', '.join(FORMATS)}: store sinogram, angles and geometry "
        "with numpy.savez (ct_dip/importers/numpy_file.py has the names) and import that"
    )
