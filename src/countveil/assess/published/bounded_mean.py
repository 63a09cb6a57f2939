"""An upper bound on the mean of bounded draws that holds with the stated confidence, for any law.

If draws V in [0, B] have mean m or more and rate < 1/B, the product of 1 + rate (m - V) is on average 1
or less, so that it reaches 1/a with probability a at most (Markov's inequality). The bound is the
smallest m at which it does (Waudby-Smith and Ramdas, Estimating means of bounded random variables by
betting, 2024). Values that were possible but not drawn cost it about B log(1/a)/n.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from countveil.base.numerics import FloatArray

_RATES = np.geomspace(1e-4, 0.99, 40)


class Ends(NamedTuple):
    """Two numbers between which another one is."""

    lower: float
    upper: float


class RateChoice(NamedTuple):
    """A rate, and the bound expected with it."""

    rate: float
    bound: float


def mean_at_most(draws: FloatArray, rates: FloatArray | float, *, confidence: float) -> float:
    """Return a number that the mean of the draws' law exceeds with probability 1 - confidence at most.

    Draws may come from several laws, in turn or chosen from earlier draws: the bound is then on the
    least mean of any. If as many come from each of two laws, and the rates are the same for both, it is
    on the mean of the two.

    Parameters
    ----------
    draws : array
        Independent draws, none negative.
    rates : array or float
        How much each draw counts: above 0, and below one over the largest value that it could have had.
        It may depend on earlier draws, not on this one.
    confidence : float
        The confidence of the bound, below 1.

    Returns
    -------
    float
        The bound.

    Examples
    --------
    >>> draws = np.random.default_rng(1).random(1_000)
    >>> 0.5 < mean_at_most(draws, 0.3, confidence=0.975) < 0.55
    True
    """
    each = np.broadcast_to(np.asarray(rates, float), draws.shape)
    return _bound(draws, each, -math.log1p(-confidence))


def mean_between(draws: FloatArray, *, confidence: float) -> Ends:
    """Return two ends that contain the mean of any law on [0, 1].

    A fifth of the draws choose the rates, and the others test them.

    Parameters
    ----------
    draws : array
        Independent draws from the law, each from 0 to 1.
    confidence : float
        The probability, at least, that the mean is between the ends.

    Returns
    -------
    Ends
        The lower and the upper end, from 0 to 1.

    Examples
    --------
    >>> low, high = mean_between(np.random.default_rng(1).random(1_000), confidence=0.95)
    >>> 0.45 < low < 0.5 < high < 0.55
    True
    """
    few, each = max(len(draws) // 5, 1), 1 - (1 - confidence) / 2

    def at_most(values: FloatArray) -> float:
        pilot, rest = values[:few], values[few:]
        rate = best_rate(pilot, largest=1.0, size=len(rest), confidence=each).rate
        return mean_at_most(rest, rate, confidence=each)

    return Ends(max(1 - at_most(1 - draws), 0.0), min(at_most(draws), 1.0))


def best_rate(pilot: FloatArray, *, largest: float, size: int, confidence: float) -> RateChoice:
    """Return the rate that gives the lowest bound for `size` draws like those of a pilot."""
    goal = -math.log1p(-confidence) * len(pilot) / size
    rates = _RATES / largest
    bounds = [_bound(pilot, np.full(len(pilot), rate), goal) for rate in rates]
    best = int(np.argmin(bounds))
    return RateChoice(float(rates[best]), bounds[best])


def _bound(draws: FloatArray, rates: FloatArray, goal: float) -> float:
    """Return the m at which the sum of log(1 + rate (m - V)) reaches the goal."""

    def excess(m: float) -> float:
        return float(np.log1p(rates * (m - draws)).sum()) - goal

    high = float(draws.max(initial=0.0)) + 1 / float(rates.max())
    while excess(high) < 0:
        high *= 2
    # At m = 0 all terms are 0 or less, and 1 - rate V is above 0.
    return float(brentq(excess, 0.0, high, xtol=1e-12 * high, rtol=1e-10))
