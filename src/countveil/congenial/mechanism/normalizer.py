"""The normalizer of a product law under a fixed sum: log of a sum over all tables with one total.

Weights are tilted by exp(t k), so that the sum has about the right mean, and one coefficient of the
product of their transforms is read off. Chernoff bounds the error from folding, and the size of the
transforms bounds the error from rounding. Where these bounds do not certify the result, it is summed
term by term.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from countveil.base.numerics import FloatArray
from countveil.errors import CertificateError, InputError

RELATIVE_ERROR = 1e-11  # of the sum: what the bounds must certify (in practice about 1e-14)
_ROUNDING = 2.0**-51  # of a transform of probabilities, for each doubling of its length
_SMALL = 2_000_000  # products up to which plain convolution is used
_LARGE = 400_000_000  # products up to which it is done in logarithms, if nothing else certifies
_LOG_NEGLIGIBLE = -90.0  # tilted weights below exp of this, relative to the largest, are ignored
_LOG_REMOTE = -250.0  # weights below this matter only if a tilt lifts them


def log_sum(log_weights: Sequence[FloatArray], total: int) -> float:
    """Return log of the sum, over k_1 + … + k_J = total, of the product of exp(log_weights[j][k_j]).

    A weight of minus infinity excludes its value; if no table remains, the result is minus infinity.
    """
    if total < 0:
        raise InputError(f"total: {total} is not allowed; counts of 0 or more cannot sum to it")
    if not log_weights:
        return 0.0 if total == 0 else -math.inf
    supports = [np.flatnonzero(row[: total + 1] > -math.inf) for row in log_weights]
    if any(support.size == 0 for support in supports):
        return -math.inf
    lows = [int(support[0]) for support in supports]
    rest = total - sum(lows)
    if rest < 0:
        return -math.inf
    tables = [
        np.asarray(row[low : min(int(support[-1]), low + rest) + 1], dtype=np.float64)
        for row, support, low in zip(log_weights, supports, lows, strict=True)
    ]
    tops = [len(table) - 1 for table in tables]
    if rest > sum(tops):
        return -math.inf
    if rest == 0:
        return math.fsum(float(table[0]) for table in tables)
    if rest == sum(tops):
        return math.fsum(float(table[-1]) for table in tables)
    fixed = math.fsum(float(table[0]) for table in tables if len(table) == 1)
    return fixed + _inside([table for table in tables if len(table) > 1], rest)


def _inside(tables: list[FloatArray], total: int) -> float:
    """Return `log_sum` for tables of two values or more, with the total strictly inside their range."""
    if len(tables) == 1:
        return float(tables[0][total]) if total < len(tables[0]) else -math.inf
    if len(tables) == 2:
        return _log_pair(tables[0], tables[1], total)
    if sum(len(table) for table in tables) * (total + 1) <= _SMALL:
        tilt = _tilt(tables, 0, total)
        log_tilted = _convolve(tables, tilt, total)
    else:
        # Most of a long table weighs nothing: look for the tilt inside first, then everywhere.
        spans = [_span(table, _LOG_REMOTE) for table in tables]
        inner = [table[first:last] for table, (first, last) in zip(tables, spans, strict=True)]
        start = sum(first for first, _ in spans)
        log_tilted = None
        if start < total < start + sum(len(table) - 1 for table in inner):
            tilt = _tilt(inner, start, total)
            log_tilted = _transform(tables, tilt, total)
        if log_tilted is None:
            tilt = _tilt(tables, 0, total)
            log_tilted = _transform(tables, tilt, total)
    return _term_by_term(tables, total) if log_tilted is None else log_tilted - tilt * total


def _span(table: FloatArray, log_floor: float) -> tuple[int, int]:
    """Return the span of values whose weight is above exp(log_floor) times the largest."""
    inside = np.flatnonzero(table > float(table.max()) + log_floor)
    return int(inside[0]), int(inside[-1]) + 1


def levelling_tilt(log_weights: Sequence[FloatArray], total: int) -> float:
    """Return t at which counts with weights exp(log_weights[k] + t k) have a mean sum near total."""
    spans = [np.flatnonzero(row > -math.inf) for row in log_weights]
    lowest, highest = (sum(int(span[end]) for span in spans) for end in (0, -1))
    if not lowest <= total <= highest or lowest == highest:
        return 0.0
    # No tilt reaches the ends themselves, but one a quarter away makes them likely.
    inside = min(max(total, lowest + 0.25), highest - 0.25)
    return _tilt([np.asarray(row, dtype=np.float64) for row in log_weights], 0, inside)


def _log_pair(first: FloatArray, second: FloatArray, total: int) -> float:
    start, stop = max(0, total - len(second) + 1), min(len(first) - 1, total)
    if start > stop:
        return -math.inf
    terms = first[start : stop + 1] + second[total - stop : total - start + 1][::-1]
    return _log_total(terms)


def _log_total(terms: FloatArray) -> float:
    top = float(terms.max())
    return top if top == -math.inf else top + math.log(float(np.exp(terms - top).sum()))


def _mean_and_variance(table: FloatArray, tilt: float, at: FloatArray) -> tuple[float, float]:
    """Return mean and variance of k under weights exp(table + tilt k)."""
    exponents = table + tilt * at
    weights = np.exp(exponents - float(exponents.max()))
    mass = float(weights.sum())
    mean = float((weights * at).sum()) / mass
    return mean, max(float((weights * (at - mean) ** 2).sum()) / mass, 0.0)


def _tilt(tables: list[FloatArray], start: int, total: float) -> float:
    """Return t for which start plus the mean of the sum is within half a standard deviation of total.

    The mean grows with t, so a bracket is kept; Newton's step is used where it stays inside.
    """
    grids = [np.arange(len(table), dtype=np.float64) for table in tables]
    low, high, tilt, step = -math.inf, math.inf, 0.0, 1.0
    for _ in range(400):
        mean, variance = float(start), 0.0
        for table, grid in zip(tables, grids, strict=True):
            own_mean, own_variance = _mean_and_variance(table, tilt, grid)
            mean, variance = mean + own_mean, variance + own_variance
        gap = total - mean
        if abs(gap) <= 0.5 * math.sqrt(variance):
            return tilt
        low, high = (tilt, high) if gap > 0 else (low, tilt)
        newton = tilt + gap / variance if variance > 0 else math.nan
        if low < newton < high and abs(newton - tilt) <= 4 * step:
            step = max(abs(newton - tilt), step / 4)
            tilt = newton
        elif math.isinf(low) or math.isinf(high):
            step *= 2
            tilt += math.copysign(step, gap)
        else:
            tilt, step = (low + high) / 2, (high - low) / 4
        if not low < tilt < high:
            break
    return tilt  # the law jumps between two neighbouring floats; the bounds decide


class _TiltedLaw(NamedTuple):
    start: int  # its lowest value
    law: FloatArray
    log_mass: float  # log of the sum of its weights before they were normalized
    ignored: float  # a bound on the mass of the values that were left out


def _tilted_law(table: FloatArray, tilt: float, log_floor: float) -> _TiltedLaw:
    """Return the tilted law of the values that matter."""
    exponents = table + tilt * np.arange(len(table), dtype=np.float64)
    start, stop = _span(exponents, log_floor)
    top = float(exponents.max())
    weights = np.exp(exponents[start:stop] - top)
    mass = float(weights.sum())
    ignored = (len(table) - stop + start) * math.exp(log_floor)
    return _TiltedLaw(start, weights / mass, top + math.log(mass), ignored)


def _convolve(tables: list[FloatArray], tilt: float, total: int) -> float | None:
    """Return log of the tilted sum by plain convolution; None if terms may be lost to underflow.

    It adds and multiplies positive numbers only, so nothing cancels.
    """
    laws = []
    log_scale = 0.0
    for table in tables:
        tilted = _tilted_law(table, tilt, -math.inf)
        laws.append(tilted.law)
        log_scale += tilted.log_mass
    joint = laws[0]
    for law in laws[1:-1]:
        joint = np.convolve(joint, law)[: total + 1]
    last = laws[-1]
    start, stop = max(0, total - len(last) + 1), min(len(joint) - 1, total)
    mass = float(joint[start : stop + 1] @ last[total - stop : total - start + 1][::-1])
    return log_scale + math.log(mass) if mass > 1e-200 else None


def _transform(tables: list[FloatArray], tilt: float, total: int) -> float | None:
    """Return log of the tilted sum from a product of transforms; None if it cannot be certified."""
    starts, laws, log_masses, ignored = zip(
        *(_tilted_law(table, tilt, _LOG_NEGLIGIBLE) for table in tables), strict=True
    )
    at = total - sum(starts)
    widest = sum(len(law) - 1 for law in laws)
    if not 0 <= at <= widest:
        return None
    deviation = math.sqrt(math.fsum(_variance(law) for law in laws))
    length = 1 << max(6, math.ceil(math.log2(16 * deviation + 1)))
    while True:
        mass, size = _coefficient(laws, at, length)
        # Ignoring tails changes a probability by at most their sum.
        error = _ROUNDING * math.log2(length) * size + math.fsum(ignored)
        if mass <= 0 or error > RELATIVE_ERROR * mass:
            return None
        allowed = math.log(RELATIVE_ERROR * mass / 2)
        if length > widest or _folding_is_below(allowed, laws, at, length, deviation):
            return math.log(mass) + math.fsum(log_masses)
        length *= 2


def _variance(law: FloatArray) -> float:
    grid = np.arange(len(law), dtype=np.float64)
    return float((law * (grid - float((law * grid).sum())) ** 2).sum())


def _coefficient(laws: Sequence[FloatArray], at: int, length: int) -> tuple[float, float]:
    """Return P(sum = at modulo length), and the mean size of what multiplies rounding errors."""
    product = np.ones(length // 2 + 1, dtype=np.complex128)
    size, others = np.ones(len(product)), np.zeros(len(product))
    for law in laws:
        padded = np.zeros(-(-len(law) // length) * length)
        padded[: len(law)] = law
        factor = np.fft.rfft(padded.reshape(-1, length).sum(axis=0))
        modulus = np.abs(factor)
        others = others * modulus + size  # the sum, over the factors, of the product of the others
        size = size * modulus
        product *= factor
    weights = np.full(len(product), 2.0)
    weights[0] = weights[-1] = 1.0
    # Reducing at · i modulo length in whole numbers keeps the angle exact to rounding.
    angles = (2 * math.pi / length) * ((at % length) * np.arange(len(product)) % length)
    mass = float(weights @ (product * np.exp(1j * angles)).real) / length
    return mass, float(weights @ (others + len(laws) * size)) / length


def _folding_is_below(
    log_allowed: float, laws: Sequence[FloatArray], at: int, length: int, deviation: float
) -> bool:
    """Whether P(sum >= at + length) and P(sum <= at - length) are both small enough, by Chernoff.

    log P <= K(u) - u (at + length) for every u > 0, where K is the cumulant function of the sum. A few
    multiples of one over its standard deviation are tried for u.
    """
    return all(
        any(
            _cumulant(laws, sign * multiple / deviation)
            - multiple / deviation * (sign * at + length)
            <= log_allowed
            for multiple in (8.0, 4.0, 16.0, 2.0)
        )
        for sign in (1.0, -1.0)
    )


def _cumulant(laws: Sequence[FloatArray], exponent: float) -> float:
    """Return log E exp(exponent · sum); infinity if it overflows, which bounds nothing."""
    logs = []
    with np.errstate(over="ignore"):
        for law in laws:
            grid = np.arange(len(law), dtype=np.float64)
            centre = float((law * grid).sum())
            logs.append(math.log(float((law * np.exp(exponent * (grid - centre))).sum())))
            logs.append(exponent * centre)
    return math.fsum(logs)


def _term_by_term(tables: list[FloatArray], total: int) -> float:
    """Return the sum by convolution in logarithms, for a total that no tilt makes likely."""
    products = sum(len(table) for table in tables) * (total + 1)
    if products > _LARGE:
        raise CertificateError(
            f"the normalizer of {len(tables)} counts with total {total:,} cannot be certified to "
            f"{RELATIVE_ERROR:g}: the total is far less likely than its neighbours; use a smaller total"
        )
    joint = np.full(total + 1, -math.inf)
    joint[0] = 0.0
    for table in tables:
        following = np.full(total + 1, -math.inf)
        for k, log_weight in enumerate(table[: total + 1]):
            if log_weight > -math.inf:
                np.logaddexp(following[k:], joint[: total + 1 - k] + log_weight, out=following[k:])
        joint = following
    return float(joint[total])
