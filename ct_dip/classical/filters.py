"""The ramp filter of filtered back-projection and its windows."""

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.errors import InputError

FILTERS = ("ram-lak", "shepp-logan", "cosine", "hamming", "hann")


def ramp_response(length: int, pitch: float, name: str, cutoff: float = 1.0) -> Floats:
    """Frequency response of the windowed ramp for a real FFT of ``length`` samples.

    The ramp is the transform of its band-limited kernel ``h₀ = 1/4τ²``, ``h_n = −1/(πnτ)²`` for odd n,
    0 for even n, rather than ``|f|`` sampled, which would lose the mean of the image (Kak & Slaney,
    section 3.3). The factor τ of the convolution sum is included.

    Args:
        name: one of `FILTERS`.
        cutoff: where the window ends, as a fraction of the Nyquist frequency.
    """
    if name not in FILTERS:
        raise InputError(f"filter {name!r} is not known; choose one of {', '.join(FILTERS)}")
    if not 0 < cutoff <= 1:
        raise InputError(f"cutoff {cutoff} must lie in (0, 1], as a fraction of the Nyquist frequency")
    n = np.minimum(np.arange(length), length - np.arange(length)).astype(float)
    kernel = np.zeros(length)
    kernel[0] = 0.25
    odd = n % 2 == 1
    kernel[odd] = -1 / (np.pi * n[odd]) ** 2
    ramp = np.fft.rfft(kernel).real / pitch

    f = 2 * np.fft.rfftfreq(length) / cutoff  # 1 at the end of the window
    window = {
        "ram-lak": np.ones_like(f),
        "shepp-logan": np.sinc(f / 2),
        "cosine": np.cos(np.pi * f / 2),
        "hamming": 0.54 + 0.46 * np.cos(np.pi * f),
        "hann": 0.5 + 0.5 * np.cos(np.pi * f),
    }[name]
    return np.asarray(ramp * np.where(f <= 1, window, 0))
