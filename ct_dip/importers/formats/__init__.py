"""One module per format, each with a `Format` called ``FORMAT``. To add one, write it and name it here."""

from ct_dip.errors import ScanError
from ct_dip.importers.content import Content
from ct_dip.importers.formats import (
    arrays,
    data_exchange,
    fips_lotus,
    fips_walnut,
    htc2022,
    lodopab,
    nikon,
    nxtomo,
    tiff_folder,
    tiff_sinogram,
    two_detect,
)
from ct_dip.importers.recording import Format

_PICTURES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM")  # first bytes: PNG, JPEG, GIF, BMP

# In this order they are asked whether they know a file: those that look for less come later.
FORMATS: tuple[Format, ...] = tuple(
    module.FORMAT
    for module in (
        htc2022,
        fips_walnut,
        fips_lotus,
        lodopab,
        data_exchange,
        nxtomo,
        nikon,
        two_detect,
        tiff_folder,
        tiff_sinogram,
        arrays,
    )
)


def find_format(content: Content) -> Format:
    """Return the first that recognises a file.

    Raises:
        ScanError: it is none of these.
    """
    for known in FORMATS:
        if known.recognises(content):
            return known
    names = ", ".join(known.name for known in FORMATS)
    if content.kind == "folder":
        raise ScanError(
            f"{content.path} is a folder without TIFF files; name a file in it. Formats are {names}"
        )
    refused = f"{content.path} is neither MATLAB, HDF5, NPZ nor TIFF"
    dicom = content.start[128:] == b"DICM"
    if dicom or content.start.startswith(_PICTURES):
        raise ScanError(
            f"{refused}, but a {'DICOM image' if dicom else 'picture'}: import a sinogram or projections as "
            f"TIFF; to scan a picture in the computer there is ct-dip simulate --images {content.path}"
        )
    raise ScanError(
        f"{refused}; formats are {names}. Store arrays sinogram, angles (rad) and detector_pitch (mm) "
        "with numpy.savez and import that; the page 'Import your file' (docs/howto/import.md) has all names"
    )
