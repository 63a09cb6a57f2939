"""The tight (epsilon, delta) of many noisy queries: their privacy losses, convolved.

It is reported next to the zCDP bound; budgets are never kept in it. Grids follow the hockey-stick
curve ("connect the dots", Doroshenko et al. 2022), which rounds against us.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from countveil.base.numerics import FloatArray
from countveil.privacy.costs import ZCDP

HockeyStick: TypeAlias = Callable[[FloatArray], FloatArray]

_STEP = 1e-3
_BEYOND_FLOATS = 600  # e^epsilon overflows soon after; the zCDP bound is returned
_DEVIATIONS = 14  # standard deviations; the tails beyond have less than exp(-98)


@dataclass(frozen=True, slots=True)
class LossyQuery:
    """One noisy count: delta as a function of epsilon, its rho, and how many there are."""

    delta: HockeyStick
    rho: float
    count: int = 1


def tight_epsilon(queries: Sequence[LossyQuery], delta: float) -> float:
    """Return the smallest epsilon with (epsilon, delta)-DP for all queries together, rounded up."""
    rho = sum(query.rho * query.count for query in queries)
    if rho == 0:
        return 0.0
    bound = ZCDP(_text(rho)).epsilon(_text(delta))
    if bound > _BEYOND_FLOATS:
        return bound
    if len(queries) == 1 and queries[0].count == 1:
        curve = queries[0].delta
        return _smallest(lambda epsilon: float(curve(np.array([epsilon]))[0]), delta, bound)
    # Tilting by exp(t loss) moves the mass to where epsilon will be, so that rounding errors of the
    # Fourier transform are relative to delta.
    deviation = math.sqrt(2 * rho)
    tilt = max((bound - rho) / (2 * rho), 0.0)
    centre = rho + 2 * rho * tilt
    half = math.ceil(_DEVIATIONS * deviation / _STEP) + 64
    size = 1 << (2 * half).bit_length()
    spectrum = np.ones(size // 2 + 1, np.complex128)
    log_scale, log_finite = 0.0, 0.0
    for query in queries:
        index, mass, infinite = _dots(query)
        weight = mass * np.exp(tilt * _STEP * index)
        total = weight.sum()
        wrapped = np.bincount(index % size, weight / total, size)
        spectrum *= np.fft.rfft(wrapped) ** query.count
        log_scale += query.count * math.log(total)
        log_finite += query.count * math.log1p(-infinite)
    start = round(centre / _STEP) - size // 2
    loss_index = np.arange(start, start + size)
    tilted = np.clip(np.fft.irfft(spectrum, size)[loss_index % size], 0, None)
    losses = _STEP * loss_index
    # Only losses above an epsilon are read; far below 0 the tilt would overflow.
    log_mass = np.log(tilted, out=np.full(size, -np.inf), where=(tilted > 0) & (losses > 0))
    mass = np.exp(log_mass + log_scale - tilt * losses)
    infinite = -math.expm1(log_finite)

    def delta_at(epsilon: float) -> float:
        beyond = losses > epsilon
        return infinite + float((mass[beyond] * -np.expm1(epsilon - losses[beyond])).sum())

    return _smallest(delta_at, delta, bound)


def _smallest(delta_at: Callable[[float], float], delta: float, bound: float) -> float:
    """Return the smallest epsilon up to `bound` with delta_at(epsilon) <= delta, rounded up."""
    low, high = 0.0, bound
    if delta_at(low) <= delta:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if delta_at(middle) <= delta else (middle, high)
    return math.nextafter(high, math.inf)


def _dots(
    query: LossyQuery,
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], FloatArray, float]:
    """Return grid indices and masses whose delta curve meets the true one at every grid point."""
    deviation = math.sqrt(2 * query.rho)
    half = math.ceil((query.rho + _DEVIATIONS * deviation) / _STEP) + 2
    index = np.arange(-half, half + 1)
    delta = query.delta(np.asarray(_STEP * index, np.float64))
    rise = np.diff(delta)
    # delta is piecewise linear in e^epsilon between the dots; its kinks are the masses.
    mass = np.zeros(len(index))
    mass[1:-1] = rise[1:] / math.expm1(_STEP) - rise[:-1] / -math.expm1(-_STEP)
    mass[-1] = -rise[-1] / -math.expm1(-_STEP)
    mass = np.clip(mass, 0, None)
    infinite = max(float(delta[-1]), 0.0)
    mass[0] = max(0.0, 1 - infinite - mass.sum())
    return index, mass, infinite


def _text(value: float) -> str:
    return f"{value:.17g}"
