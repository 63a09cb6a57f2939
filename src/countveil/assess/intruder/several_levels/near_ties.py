"""Odds so nearly even that doubles cannot decide: computed with as many digits as it takes.

Ties are real: with rational parameters two hypotheses can be exactly equally likely, or differ by
1e-44.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

import numpy as np

from countveil.assess.intruder.decision import EVEN, Losses
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.intruder.several_levels.hierarchy_level import Exactly, Flat, Level, UpTo
from countveil.noise.law import Mechanism
from countveil.noise.summed_noise import Addition

_DIGITS = (60, 120, 240)
_GUARD = 12


@dataclass(frozen=True, slots=True)
class Tie:
    """Where the odds are near even: e = x1* - known - rows, x2* and y1*."""

    e: float
    parent: float
    sibling_sum: float


def canonical(tie: Tie, low: Level, high: Level, intruder: Intruder) -> Tie:
    """Return one representative of all equivalent ties: far from zero only x2* - y1* matters."""
    if not isinstance(low.prior, Flat) or low.siblings == 0:
        return tie
    below, above = low.noise.gaussian_variance, high.noise.gaussian_variance
    if below is None or above is None:
        return tie
    far = intruder.known + intruder.rows + _reach(above, _DIGITS[-1])
    far += _reach(below * low.siblings, _DIGITS[-1])
    if min(tie.parent, tie.sibling_sum) <= far:
        return tie
    apart = tie.parent - tie.sibling_sum
    return Tie(tie.e, 2 * far + max(apart, 0.0), 2 * far + max(-apart, 0.0))


def resolved(
    tie: Tie, low: Level, high: Level, intruder: Intruder, siblings: Addition, losses: Losses = EVEN
) -> int:
    """Return 1 if saying "there" has the smaller expected loss, -1 if not, 0 if even to 240 digits.

    Only discrete Gaussian noise with a flat, bounded or known parent is resolved; others return 0.
    """
    if low.noise.gaussian_variance is None or high.noise.gaussian_variance is None:
        return 0
    if not isinstance(low.prior, Flat | UpTo | Exactly):
        return 0
    for digits in _DIGITS:
        with localcontext(Context(prec=digits + _GUARD, Emin=-(10**9), Emax=10**9)):
            there = _evidence(tie, low, high, intruder, siblings, True, digits)
            away = _evidence(tie, low, high, intruder, siblings, False, digits)
            there *= _ratio(Fraction(losses.false_no))
            away *= _ratio(Fraction(losses.false_yes))
            if there == away == 0:
                return 0
            if abs(there - away) > max(there, away) * Decimal(10) ** -digits:
                return 1 if there > away else -1
    return 0


def _evidence(
    tie: Tie,
    low: Level,
    high: Level,
    intruder: Intruder,
    siblings: Addition,
    there: bool,
    digits: int,
) -> Decimal:
    """Return prior × g1 × Σ_y g2 h prior(x2 | x1), without factors that both hypotheses share."""
    sigma2, sigma2_above = _sigma2(low.noise), _sigma2(high.noise)
    rate, above = 1 / (2 * sigma2), 1 / (2 * sigma2_above)
    count = intruder.known + (intruder.rows if there else 0)
    prior = Fraction(intruder.prior)
    observed = int(tie.e) + intruder.known + intruder.rows
    total = Decimal(0)
    centre = round(tie.parent) - count
    # Terms fall off from the centres: sum enough of them for these digits.
    reach = _reach(float(sigma2_above), digits)
    sum_reach = _reach(float(sigma2) * max(low.siblings, 1), digits)
    first = max(0, min(centre - reach, round(tie.sibling_sum) - sum_reach))
    last = max(centre + reach, round(tie.sibling_sum) + sum_reach, first)
    if low.siblings == 0:
        first = last = 0
    elif isinstance(low.prior, Exactly):
        first = last = low.prior.count - count
        if first < 0:
            return Decimal(0)
    for y in _that_matter(range(first, last + 1), tie, low, high, count, digits):
        weight = _prior_weight(low, count, y)
        if weight == 0:
            continue
        term = _exp(-above * (round(tie.parent) - count - y) ** 2) * weight
        if low.siblings:
            term *= _sum_weight(low, round(tie.sibling_sum) - y, siblings, digits)
        total += term
    return total * _exp(-rate * (observed - count) ** 2) * _ratio(prior if there else 1 - prior)


def _that_matter(
    counts: range, tie: Tie, low: Level, high: Level, count: int, digits: int
) -> list[int]:
    """Leave out summands that are smaller than the largest by 20 digits more than these."""
    y = np.array(counts, float)
    logs = -((tie.parent - count - y) ** 2) / (2 * float(_sigma2(high.noise)))
    if low.siblings:
        logs -= (tie.sibling_sum - y) ** 2 / (2 * float(_sigma2(low.noise)) * low.siblings)
    heavy = logs > logs.max() - (digits + 20) * math.log(10)
    return [counts[place] for place in np.flatnonzero(heavy)]


def _reach(variance: float, digits: int) -> int:
    """Return the distance at which a Gaussian has fallen by 10 digits more than these."""
    return math.ceil(math.sqrt((digits + 10) * math.log(10) * 2 * variance)) + 2


def _prior_weight(low: Level, count: int, y: int) -> Decimal:
    if isinstance(low.prior, Exactly):
        return Decimal(int(count + y == low.prior.count))
    if isinstance(low.prior, UpTo):
        if count + y > low.prior.most:
            return Decimal(0)
        return 1 / Decimal(low.prior.most - count + 1) if low.prior.normalized else Decimal(1)
    return Decimal(1)


def _sum_weight(low: Level, noise: int, siblings: Addition, digits: int) -> Decimal:
    sigma2 = _sigma2(low.noise)
    if siblings == "gaussian" or low.siblings == 1:
        return _exp(-Fraction(noise * noise) / (2 * sigma2 * low.siblings))
    # One more digit for every zero at which the weight begins, in steps of fifty.
    zeros = noise * noise / (2 * float(sigma2) * low.siblings) / math.log(10)
    digits += 50 * math.ceil(zeros / 50)
    return _convolved(sigma2, low.siblings, digits).get(abs(noise), Decimal(0))


@lru_cache(maxsize=8)
def _convolved(sigma2: Fraction, count: int, digits: int) -> dict[int, Decimal]:
    """Return the weights of a sum of discrete Gaussians, from integers with enough digits."""
    scale = 10 ** (digits + _GUARD)
    reach = math.ceil(math.sqrt((digits + 20) * math.log(10) * 2 * float(sigma2))) + 2
    with localcontext(Context(prec=digits + 2 * _GUARD)):
        weights = [
            int(_exp(-Fraction(k * k) / (2 * sigma2)) * scale) for k in range(-reach, reach + 1)
        ]
    power = np.array(weights, object)
    result, left = np.array([1], object), count
    while left:
        if left & 1:
            result = _product(result, power, scale)
        left >>= 1
        if left:
            power = _product(power, power, scale)
    middle = len(result) // 2
    return {k: Decimal(int(result[middle + k])) for k in range(middle + 1)}


def _product(a: np.ndarray, b: np.ndarray, scale: int) -> np.ndarray:
    """Multiply two polynomials by one long multiplication (Kronecker), and drop surplus digits."""
    if len(a) == 1:
        return b * int(a[0])
    bits = (2 * max(int(a.max()), int(b.max()), scale)).bit_length() * 2 + len(a).bit_length()
    size, length = -(-bits // 8), len(a) + len(b) - 1
    packed = [
        int.from_bytes(b"".join(int(x).to_bytes(size, "little") for x in item), "little")
        for item in (a, b)
    ]
    both = (packed[0] * packed[1]).to_bytes(size * length + size, "little")
    out = [int.from_bytes(both[size * i : size * (i + 1)], "little") for i in range(length)]
    top = max(out)
    shrink = max(1, top // (scale * scale))
    return np.array([x // shrink for x in out], object)


def _sigma2(noise: Mechanism) -> Fraction:
    """Return the exact sigma² of discrete Gaussian noise, as a manifest records it."""
    return Fraction(noise.parameters["sigma2"])


def _exp(x: Fraction) -> Decimal:
    return _ratio(x).exp()


def _ratio(x: Fraction) -> Decimal:
    return Decimal(x.numerator) / Decimal(x.denominator)
