"""An intruder who is unsure of others: the released count is a mixture under both hypotheses."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from countveil.assess.decision import refuse_impossible, sign_of_sum
from countveil.assess.intruder import Intruder
from countveil.assess.probability import as_probability, expectation
from countveil.errors import InputError
from countveil.mechanisms.law import Law, Mechanism
from countveil.numerics import FloatArray

_TAIL = 42.0  # of the slower of a Gaussian and an exponential tail: less than 1e-17 lies beyond
_ROUNDING = 1e-13
_FINEST = 40  # points a standard deviation, where a sum is thinned


@dataclass(frozen=True, eq=False, slots=True)
class Lattice:
    """Released counts, their probabilities with the target there and away, and the log of the ratio."""

    there: FloatArray
    away: FloatArray
    log_odds: FloatArray

    @staticmethod
    def log_ratio(noise: Law, intruder: Intruder, released: FloatArray) -> FloatArray:
        """Return log P(released | there) - log P(released | away)."""
        there, away = _log_mixtures(noise, intruder, released)
        with np.errstate(invalid="ignore"):  # neither is possible: refused
            found = there - away
        refuse_impossible(found)
        return found

    def average(self, values: FloatArray) -> float:
        """Return the average of some values over what may be released with the target there."""
        return expectation(self.there, values) if self.there.any() else 0.0


def _grid(noise: Law, intruder: Intruder) -> FloatArray:
    """Return what may be released, thinned where the noise is wide."""
    spread = math.sqrt(noise.variance)
    step = max(1.0, math.floor(spread / _FINEST)) if isinstance(noise, Mechanism) else spread / 400
    low = intruder.counts(there=False)[0] - _TAIL * spread - 20 * step
    high = intruder.counts(there=True)[-1] + _TAIL * spread + 20 * step
    return step * np.arange(math.floor(low / step), math.ceil(high / step) + 1)


def lattice(noise: Law, intruder: Intruder) -> Lattice:
    """Tabulate what may be released, for averages of what changes smoothly with it."""
    released = _grid(noise, intruder)
    log_there, log_away = _log_mixtures(noise, intruder, released)
    there, away = np.exp(log_there), np.exp(log_away)
    shares = [law / law.sum() if law.any() else law for law in (there, away)]
    return Lattice(shares[0], shares[1], log_there - log_away)


def probability_above(
    noise: Law, intruder: Intruder, limit: float, *, there: bool, tied: float
) -> float:
    """Return how often the log of the ratio passes a limit; where it equals it, count `tied` of it.

    Jumps are found between points of a grid and then exactly, so that wide noise is no less right.
    """
    weights = np.exp(intruder.log_weights(there=there))
    if not weights.any():
        raise InputError(
            f"present: {there} is not allowed; by at_least and at_most the target "
            f"{'cannot' if there else 'must'} be there; use present={not there}"
        )
    grid = _grid(noise, intruder)

    def sign(at: FloatArray) -> FloatArray:
        log_ratio = Lattice.log_ratio(noise, intruder, at)
        return sign_of_sum(log_ratio, -limit, rounding=_ROUNDING, least=1.0)

    signs = sign(grid)
    whole = isinstance(noise, Mechanism)
    total, counts = 0.0, intruder.counts(there=there)

    def up_to(at: float) -> float:
        """Return P(released ≤ at)."""
        return expectation(weights, as_probability(noise.cdf(at - counts)))

    shares = {1.0: 1.0, 0.0: tied, -1.0: 0.0}
    before, here = 0.0, float(signs[0])
    for edge in np.flatnonzero(np.diff(signs)):
        low, last = float(grid[edge]), float(grid[edge + 1])
        while here != float(signs[edge + 1]):  # a tie may lie between two signs
            high = last
            while (high - low > 1) if whole else (high - low > _ROUNDING * (abs(high) + 1)):
                middle = math.floor((low + high) / 2) if whole else (low + high) / 2
                same = float(sign(np.array([middle]))[0]) == here
                low, high = (middle, high) if same else (low, middle)
            reached = up_to(low)
            total += shares[here] * (reached - before)
            before, low = reached, high
            here = float(sign(np.array([high]))[0]) if whole else float(signs[edge + 1])
    return total + shares[here] * (1.0 - before)


def _log_mixtures(
    noise: Law, intruder: Intruder, released: FloatArray
) -> tuple[FloatArray, FloatArray]:
    mixtures = []
    for there in (True, False):
        counts = intruder.counts(there=there)
        log_terms = noise.log_density(released[..., None] - counts) + intruder.log_weights(
            there=there
        )
        with np.errstate(divide="ignore"):
            mixtures.append(np.asarray(logsumexp(log_terms, axis=-1)))
    return mixtures[0], mixtures[1]
