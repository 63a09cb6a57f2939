"""Logarithms of Poisson and negative binomial weights, precise far from 0 (Loader 2000)."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln

from countveil.numerics import Array, FloatArray

_SMALL = 16.0  # below it, log-gamma is as precise as the series


def log_poisson(counts: Array | int, means: Array | float) -> FloatArray:
    """Return log of mean^m e^-mean/m!, as -deviance(m, mean) - ½ log(2πm) - rest of Stirling."""
    m, mean = np.broadcast_arrays(np.asarray(counts, float), np.asarray(means, float))
    some = np.maximum(m, 1.0)
    with np.errstate(divide="ignore"):
        log_p = some * _curve((mean - some) / some) - 0.5 * np.log(2 * math.pi * some) - _rest(some)
    return np.where(m == 0, -mean, log_p)


def log_negative_binomial(most: int, alpha: float, total: float, around: float) -> FloatArray:
    """Return log of Γ(alpha + m)/(Γ(alpha) m!) θ^m (1 - θ)^alpha, θ = around/(total + around).

    m goes from 0 to `most`. It is the binomial chance of m among alpha + m, times alpha/(alpha + m).
    """
    m = np.arange(1.0, most + 1)
    gap = (m * total - alpha * around) / (total + around)
    log_p = alpha * _curve(gap / alpha) + m * _curve(-gap / m)
    log_p += _rest(alpha + m) - _rest(np.asarray(alpha)) - _rest(m)
    log_p += 0.5 * (np.log(alpha / (alpha + m)) - np.log(2 * math.pi * m))
    return np.concatenate(([-alpha * math.log1p(around / total)], log_p))


def log_rising(alpha: float, n: Array) -> FloatArray:
    """Return log of Γ(alpha + n)/Γ(alpha), also where alpha is large beside n."""
    ends = _rest(alpha + n) - _rest(np.asarray(alpha))
    return np.asarray((alpha - 0.5) * np.log1p(n / alpha) + n * np.log(alpha + n) - n + ends)


def _curve(d: FloatArray) -> FloatArray:
    """Return log(1 + d) - d."""
    return np.asarray(np.log1p(d) - d)


def _rest(x: FloatArray) -> FloatArray:
    """Return log x! minus Stirling's formula: 1/(12x) - 1/(360x³) + 1/(1260x⁵) - 1/(1680x⁷) far out."""
    far, square = np.maximum(x, _SMALL), np.maximum(x, _SMALL) ** 2
    series = (1 / 12 - (1 / 360 - (1 / 1260 - 1 / 1680 / square) / square) / square) / far
    near = gammaln(x + 1) - (x + 0.5) * np.log(x) + x - 0.5 * math.log(2 * math.pi)
    return np.asarray(np.where(x < _SMALL, near, series))
