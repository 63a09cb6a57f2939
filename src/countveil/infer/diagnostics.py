"""Have chains converged, and what are they worth: rank-normalised split R-hat, bulk and tail sizes.

Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021); the figures are those that ArviZ gives.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from countveil.numerics import FloatArray


def r_hat(draws: FloatArray) -> float:
    """Return R-hat of draws (chains, draws): the larger of that of location and that of spread."""
    halves = _split(draws)
    folded = np.abs(halves - np.median(halves))
    return max(_plain_r_hat(_ranked(halves)), _plain_r_hat(_ranked(folded)))


def bulk_size(draws: FloatArray) -> float:
    """Return the effective sample size of the ranks of draws (chains, draws)."""
    return effective_size(_ranked(_split(draws)))


def tail_size(draws: FloatArray) -> float:
    """Return the smaller of the effective sizes for the 5 and the 95 percent quantile."""
    below = ((draws <= np.quantile(draws, p)).astype(np.float64) for p in (0.05, 0.95))
    return min(effective_size(_split(indicator)) for indicator in below)


def effective_size(chains: FloatArray) -> float:
    """Return how many independent draws chains are worth: Geyer's initial monotone sequence."""
    count, length = chains.shape
    if np.ptp(chains) == 0:
        return float(chains.size)
    spectrum = np.array([_autocovariance(chain) for chain in chains])
    within = float(spectrum[:, 0].mean()) * length / (length - 1)
    overall = within * (length - 1) / length
    if count > 1:
        overall += float(chains.mean(axis=1).var(ddof=1))
    correlation = 1 - (within - spectrum.mean(axis=0)) / overall
    correlation[0] = 1.0
    # Sums of two neighbouring lags are positive and fall: kept until they are not, and never rising.
    pairs = [1.0 + float(correlation[1])]
    lag, even = 2, 1.0
    while lag + 1 < length - 1 and pairs[-1] > 0:
        even = float(correlation[lag])
        pairs.append(even + float(correlation[lag + 1]))
        lag += 2
    last = pairs.pop()
    if not pairs:
        pairs = [max(last, 0.0)]
    sums = np.minimum.accumulate(np.array(pairs))
    # Of the pair after the last that is kept, the even lag counts once.
    spread = -1 + 2 * float(sums.sum()) + max(even, 0.0)
    return float(chains.size / max(spread, 1 / math.log10(chains.size)))


def _split(draws: FloatArray) -> FloatArray:
    half = draws.shape[1] // 2
    return np.concatenate((draws[:, :half], draws[:, -half:]))


def _ranked(chains: FloatArray) -> FloatArray:
    # Ties share the mean of their ranks, counted from 1.
    _, place, times = np.unique(chains, return_inverse=True, return_counts=True)
    ends = np.cumsum(times)
    ranks = (ends - (times - 1) / 2)[place].reshape(chains.shape)
    found: FloatArray = special.ndtri((ranks - 0.375) / (chains.size + 0.25))
    return found


def _plain_r_hat(chains: FloatArray) -> float:
    length = chains.shape[1]
    within = float(chains.var(axis=1, ddof=1).mean())
    between = float(chains.mean(axis=1).var(ddof=1))
    if within == 0:
        return 1.0 if between == 0 else float("inf")
    return float(np.sqrt((length - 1) / length + between / within))


def _autocovariance(chain: FloatArray) -> FloatArray:
    length = len(chain)
    size = 1 << (2 * length - 1).bit_length()
    transform = np.fft.rfft(chain - chain.mean(), size)
    found: FloatArray = np.fft.irfft(np.abs(transform) ** 2, size)[:length] / length
    return found
