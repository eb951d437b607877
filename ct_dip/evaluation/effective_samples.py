"""How many independent samples a correlated chain is worth."""

import numpy as np

from ct_dip.arrays import Floats


def effective_sample_size(chain: Floats) -> Floats:
    """Return ``n / (1 + 2 Σ_t ρ_t)`` for every number that a chain follows, (n, …) → (…).

    The autocorrelations ρ are summed in pairs of neighbouring lags, ``ρ_2k + ρ_2k+1``, until the first
    negative pair: of a reversible chain they are positive, and what follows is noise (Geyer, 1992). It is at
    most n, and 1 of a number that never changes.
    """
    samples = np.asarray(chain, dtype=np.float64)
    count = len(samples)
    flat = samples.reshape(count, -1) - samples.reshape(count, -1).mean(axis=0)
    power = np.abs(np.fft.rfft(flat, 2 * count, axis=0)) ** 2
    covariance = np.fft.irfft(power, axis=0)[:count]
    correlation = covariance / np.where(covariance[0] > 0, covariance[0], 1)
    pairs = correlation[: count // 2 * 2].reshape(count // 2, 2, -1).sum(axis=1)
    pairs *= np.cumprod(pairs > 0, axis=0)
    time = np.maximum(2 * pairs.sum(axis=0) - 1, 1)  # 1 + 2 Σ_t≥1 ρ_t
    size = np.where(covariance[0] > 0, count / time, 1.0)
    return size.reshape(samples.shape[1:])
