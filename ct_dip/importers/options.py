"""`Options`: what a user says about a file that does not say it itself."""

import dataclasses
import math
from dataclasses import dataclass

from ct_dip.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of ``ct-dip import`` by their names, with underscores. A format reads some, all read `SHARED`.

    Args:
        sinogram, angles: names of arrays in the file.
        arc: that evenly spread views cover, rad; negative if the source moves clockwise.
        degrees: the angles are in degrees.
        transpose: the axes of arrays are in the reverse order.
        counts: the sinogram holds readings of the detector rather than line integrals.
        flat, dark: readings in air and without light: a name, or one number for all detectors.
        air: columns at either end of the detector that see air in every view.
        center: column of the rotation axis, column j being centred at j.
        detector_pitch, source_origin, origin_detector, detector_offset: mm, see `ct_dip.geometry`.
        remove_outliers, normalise_air, remove_stripes, linearise: see `ct_dip.importers.repairs`.
        noise: ``auto``, ``white``, ``photons`` or ``none``, see `ct_dip.importers.noise`.
        noise_std, photons: the noise itself, of single detectors: white, or photons in air.
    """

    sinogram: str | None = None
    angles: str | None = None
    arc: float | None = None
    degrees: bool = False
    transpose: bool = False
    counts: bool = False
    flat: str | None = None
    dark: str | None = None
    air: int | None = None
    center: float | None = None
    detector_pitch: float | None = None
    source_origin: float | None = None
    origin_detector: float | None = None
    detector_offset: float | None = None
    remove_outliers: bool = False
    normalise_air: bool = False
    remove_stripes: bool = False
    linearise: bool = False
    noise: str = "auto"
    noise_std: float | None = None
    photons: float | None = None

    def __post_init__(self) -> None:
        if self.noise not in NOISE:
            raise InputError(f"--noise {self.noise!r} is not known; choose one of {', '.join(NOISE)}")
        numbers = [name for name in ("noise_std", "photons") if getattr(self, name) is not None]
        for name in numbers:
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{spelled(name)} {getattr(self, name)} must be a positive number")
        for name in ("angles", "degrees"):
            if self.arc is not None and getattr(self, name):
                raise InputError(f"--arc and {spelled(name)} exclude each other; drop one")
        said = [spelled(name) for name in numbers] + [f"--noise {self.noise}"] * (self.noise != "auto")
        if len(said) > 1:
            raise InputError(f"{' and '.join(said)} exclude each other; drop one")

    @property
    def given(self) -> dict[str, object]:
        """Those that differ from their default, by name."""
        fields = dataclasses.fields(self)
        values = {field.name: getattr(self, field.name) for field in fields}
        return {field.name: values[field.name] for field in fields if values[field.name] != field.default}

    def refuse_others(self, format: str, known: tuple[str, ...]) -> None:
        """Refuse what a format would ignore.

        Raises:
            InputError: with the option's name.
        """
        for name, value in self.given.items():
            if name not in (*known, *SHARED):
                typed = f"{math.degrees(self.arc):g}" if name == "arc" and self.arc else value
                shown = spelled(name) if value is True else f"{spelled(name)} {typed}"
                reads = ", ".join(map(spelled, known)) or "none of the options about a file"
                raise InputError(
                    f"{shown} has no meaning with format {format}, which reads {reads}; drop it, or name "
                    "another --format"
                )


def spelled(name: str) -> str:
    """Return an option as it is typed."""
    return "--" + name.replace("_", "-")


BEAM = ("center", "detector_pitch", "source_origin", "origin_detector", "detector_offset")
SHARED = ("remove_outliers", "normalise_air", "remove_stripes", "linearise", "noise", "noise_std", "photons")
NOISE = ("auto", "white", "photons", "none")
