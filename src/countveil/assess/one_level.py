"""The Bayesian intruder at one level (paper 002, section 3.1), exactly, for any noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from countveil.assess.evidence import joint_loss
from countveil.assess.intruder import Intruder
from countveil.assess.risk import Risk
from countveil.errors import InputError
from countveil.mechanisms.law import Law, Mechanism
from countveil.numerics import Array, FloatArray

Ties = Literal["split", "yes", "no"]

_FARTHEST = 2.0**62
_ROUNDING = 8 * np.finfo(float).eps


def posterior(noise: Law, *, observed: Array | float, intruder: Intruder) -> Risk:
    """Return the probability he gives to his target being counted, after seeing `observed`.

    He knows all others in the cell; he sees the noisy count; the number is (10) of 002.
    """
    e = np.asarray(observed, np.float64) - intruder.known - intruder.rows
    if not np.isfinite(e).all():
        raise InputError("observed: not a finite number; a released count is a whole number")
    value = sigmoid(intruder.log_odds + noise.loss_at(e, intruder.rows))
    return Risk("posterior", _plain(value), posterior=_plain(value))


def disclosure_risk(noise: Law, *, observed: Array | float, intruder: Intruder) -> Risk:
    """Return posterior over prior, R'(x) of (13): how much one released value tells him."""
    after = posterior(noise, observed=observed, intruder=intruder).value
    return Risk("disclosure risk", after / intruder.prior, posterior=after)


def marginal_risk(noise: Law | Sequence[Law], *, intruder: Intruder) -> Risk:
    """Return R of (15): the risk averaged over what may be released while the target is there.

    He knows all others; he sees one noisy count, or several independent ones that all contain the
    target; the number is his expected posterior over his prior.
    """
    laws = [noise] if isinstance(noise, Law) else list(noise)
    if not laws:
        return Risk("marginal risk", 1.0, posterior=intruder.prior)
    losses, weights = joint_loss(laws, intruder.rows)
    after = float((weights * sigmoid(intruder.log_odds + losses)).sum())
    return Risk("marginal risk", after / intruder.prior, posterior=after)


def correct_decision(
    noise: Law, *, intruder: Intruder, ties: Ties = "split", present: bool = True
) -> Risk:
    """Return the probability that he decides rightly under 0-1 loss, (19) of 002.

    He decides for the more probable of "there" and "not there"; `ties` says what he does when they
    are equal; `present` whether his target is there.
    """
    if ties not in ("split", "yes", "no"):
        raise InputError(f'ties: {ties!r} is not known; choose "split", "yes" or "no"')
    prior = intruder.log_odds

    def verdict(e: float) -> int:
        loss = float(noise.loss_at(e, intruder.rows))
        odds = prior + loss
        return 0 if abs(odds) <= _ROUNDING * (abs(prior) + abs(loss)) else (1 if odds > 0 else -1)

    whole = isinstance(noise, Mechanism)
    # In terms of e = released - known - rows: the noise if he is there, noise - rows if not.
    shift = 0 if present else intruder.rows
    yes = _at_least(noise, _first(lambda e: verdict(e) > 0, whole), shift, whole)
    yes_or_tie = _at_least(noise, _first(lambda e: verdict(e) >= 0, whole), shift, whole)
    says_yes = {"yes": yes_or_tie, "no": yes, "split": (yes + yes_or_tie) / 2}[ties]
    return Risk("correct decision", says_yes if present else 1 - says_yes)


def _first(holds: Callable[[float], bool], whole: bool) -> float:
    """Return where a statement that stays true once true becomes true, by bisection."""
    if holds(-_FARTHEST):
        return -math.inf
    if not holds(_FARTHEST):
        return math.inf
    if whole:
        left, right = -int(_FARTHEST), int(_FARTHEST)
        while right - left > 1:
            centre = (left + right) // 2
            left, right = (left, centre) if holds(float(centre)) else (centre, right)
        return float(right)
    low, high = -_FARTHEST, _FARTHEST
    while math.nextafter(low, math.inf) < high:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _at_least(noise: Law, e: float, shift: int, whole: bool) -> float:
    """Return P(noise - shift >= e)."""
    if math.isinf(e):
        return 1.0 if e < 0 else 0.0
    return float(noise.survival(e + shift - 1 if whole else e + shift))


def sigmoid(log_odds: FloatArray) -> FloatArray:
    """Return the probability of these log-odds."""
    return np.exp(-np.logaddexp(0, -log_odds))


def _plain(value: FloatArray) -> float | FloatArray:
    return float(value) if value.ndim == 0 else value
