"""An intruder who is unsure of others: the released count is a mixture under both hypotheses."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from countveil.assess.intruder import Intruder
from countveil.mechanisms.law import Law, Mechanism
from countveil.numerics import FloatArray

_TAIL = 42.0  # of the slower of a Gaussian and an exponential tail: less than 1e-17 lies beyond
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
        return there - away


def lattice(noise: Law, intruder: Intruder) -> Lattice:
    """Tabulate what may be released."""
    spread = math.sqrt(noise.variance)
    step = max(1.0, math.floor(spread / _FINEST)) if isinstance(noise, Mechanism) else spread / 400
    low = intruder.counts(there=False)[0] - _TAIL * spread - 20 * step
    high = intruder.counts(there=True)[-1] + _TAIL * spread + 20 * step
    released = step * np.arange(math.floor(low / step), math.ceil(high / step) + 1)
    log_there, log_away = _log_mixtures(noise, intruder, released)
    there, away = np.exp(log_there), np.exp(log_away)
    with np.errstate(invalid="ignore"):
        shares = [np.nan_to_num(law / law.sum()) for law in (there, away)]
    return Lattice(shares[0], shares[1], log_there - log_away)


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
