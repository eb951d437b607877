"""Labels of NPZ files that are kept between runs: whose arrays these are, and that nobody changed them.

A label is a digest of an identity and of the CRCs of the arrays. zipfile compares the CRCs with the bytes
whenever it reads an array, so that a label vouches for the whole content without taking time of its own.
"""

import hashlib
import zipfile

LABEL = "content.sha256"  # beside the arrays, whose names end in .npy


def write_label(archive: zipfile.ZipFile, identity: str) -> None:
    """Label the arrays of an archive."""
    archive.writestr(zipfile.ZipInfo(LABEL), _digest(archive, identity))


def has_label(archive: zipfile.ZipFile, identity: str) -> bool:
    """Whether an archive holds what was labelled with this identity."""
    return LABEL in archive.namelist() and archive.read(LABEL) == _digest(archive, identity)


def _digest(archive: zipfile.ZipFile, identity: str) -> bytes:
    parts = [(part.filename, part.CRC, part.file_size) for part in archive.infolist()]
    content = repr((identity, sorted(part for part in parts if part[0] != LABEL)))
    return hashlib.sha256(content.encode()).hexdigest().encode()
