"""An upper bound on the mean of bounded draws that holds with the stated confidence, for any law.

If draws V in [0, B] have mean m or more and rate < 1/B, the product of 1 + rate (m - V) is on average 1
or less, so that it reaches 1/a with probability a at most (Markov's inequality). The bound is the
smallest m at which it does (Waudby-Smith and Ramdas, Estimating means of bounded random variables by
betting, 2024). Rare large values cost it about B log(1/a)/n.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from countveil.base.numerics import FloatArray

_RATES = np.geomspace(1e-4, 0.99, 60)


class RateChoice(NamedTuple):
    """A rate, and the bound expected with it."""

    rate: float
    bound: float


def mean_at_most(draws: FloatArray, *, largest: float, rate: float, confidence: float) -> float:
    """Return a number that the mean of the draws' law exceeds with probability 1 - confidence at most.

    Parameters
    ----------
    draws : array
        Independent draws between 0 and `largest`; their means may differ, and the bound is then on the
        least of them.
    largest : float
        The largest value that a draw could have.
    rate : float
        How much each draw counts, above 0 and below 1/largest. It must not depend on the draws.
    confidence : float
        The confidence of the bound, below 1.

    Returns
    -------
    float
        The bound, `largest` at most.

    Examples
    --------
    >>> draws = np.random.default_rng(1).random(1_000)
    >>> 0.5 < mean_at_most(draws, largest=1.0, rate=0.3, confidence=0.975) < 0.55
    True
    """
    return min(largest, _bound(draws, rate, -math.log1p(-confidence), 1.0))


def best_rate(
    pilot: FloatArray, *, largest: float, size: int, confidence: float
) -> RateChoice:
    """Return the rate that gives the lowest bound for `size` draws like those of a pilot."""
    goal, scale = -math.log1p(-confidence), size / len(pilot)
    rates = _RATES / largest
    bounds = [_bound(pilot, float(rate), goal, scale) for rate in rates]
    best = int(np.argmin(bounds))
    return RateChoice(float(rates[best]), min(largest, bounds[best]))


def _bound(draws: FloatArray, rate: float, goal: float, scale: float) -> float:
    """Return the m at which scale times the sum of log(1 + rate (m - V)) reaches the goal."""

    def excess(m: float) -> float:
        return scale * float(np.log1p(rate * (m - draws)).sum()) - goal

    high = float(draws.max(initial=0.0))
    while excess(high) < 0:
        high = 2 * high + 1 / rate
    # At m = 0 all terms are 0 or less, and 1 - rate V is above 0.
    return float(brentq(excess, 0.0, high, xtol=1e-12 * high, rtol=1e-10))
