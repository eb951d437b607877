"""How many independent samples a Markov chain is worth."""

import numpy as np

from ct_dip.arrays import Floats


def effective_size(chains: Floats) -> Floats:
    """Estimate independent samples by Geyer's initial monotone positive sequence (1992) over several chains.

    ``N / (1 + 2 Σ_t ρ_t)`` with the autocorrelations ρ of all chains around their common mean (Gelman et al.,
    Bayesian Data Analysis, 11.5): chains that differ have few effective samples. Sums of two neighbouring ρ
    of a reversible chain are positive and fall; from where they are not, they are noise and do not count.

    Args:
        chains: (chains, steps, ...): quantities in the order of the chain.

    Returns:
        (...): between 1 and chains × steps; of a quantity that never changes, 1.
    """
    count, steps = chains.shape[:2]
    values = np.asarray(chains, dtype=np.float64).reshape(count, steps, -1)
    values = values - values.mean(axis=(0, 1))
    spectrum = np.abs(np.fft.rfft(values, 2 * steps, axis=1)) ** 2
    covariance = np.fft.irfft(spectrum, axis=1)[:, :steps].mean(axis=0) / steps  # (steps, quantities)
    variance = np.maximum(covariance[0], np.finfo(float).tiny)
    correlation = covariance / variance
    pairs = correlation[: steps - steps % 2].reshape(steps // 2, 2, -1).sum(axis=1)
    pairs = np.where(np.logical_and.accumulate(pairs > 0, axis=0), pairs, 0)
    pairs = np.minimum.accumulate(pairs, axis=0)
    time = np.maximum(2 * pairs.sum(axis=0) - 1, 1)  # steps that are worth one independent sample
    size = np.where(covariance[0] > 0, np.maximum(count * steps / time, 1), 1)
    return np.asarray(size.reshape(chains.shape[2:]))
