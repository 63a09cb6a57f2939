"""The Bayesian intruder at one level (paper 002, section 3.1), exactly, for any noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from countveil.assess.decision import EVEN, Losses, Ties, share_of_ties, sigmoid, sign_of_sum
from countveil.assess.evidence import joint_loss
from countveil.assess.intruder import Intruder
from countveil.assess.probability import as_probability, expectation
from countveil.assess.risk import Risk
from countveil.assess.unsure import Lattice, lattice, probability_above
from countveil.errors import InputError
from countveil.mechanisms.law import Law, Mechanism
from countveil.numerics import Array, FloatArray

_FARTHEST = 2.0**62
_ROUNDING = 8 * np.finfo(float).eps


def posterior(noise: Law, *, observed: Array | float, intruder: Intruder) -> Risk:
    """Return the probability he gives to his target being counted, after seeing `observed`.

    He knows all others in the cell, or has probabilities of how many there are; he sees the noisy
    count; the number is (10) of 002.
    """
    seen = np.asarray(observed, np.float64)
    if not np.isfinite(seen).all():
        raise InputError("observed: not a finite number; a released count is a whole number")
    if intruder.certain:
        e = seen - intruder.known - intruder.rows
        value = sigmoid(intruder.log_odds + noise.loss_at(e, intruder.rows))
    else:
        value = sigmoid(intruder.log_odds + Lattice.log_ratio(noise, intruder, seen))
    return Risk("posterior", _plain(value), posterior=_plain(value))


def disclosure_risk(noise: Law, *, observed: Array | float, intruder: Intruder) -> Risk:
    """Return posterior over prior, R'(x) of (13): how much one released value tells him.

    What is public of the count is part of the prior: the release is not charged with it.
    """
    after = posterior(noise, observed=observed, intruder=intruder).value
    before = intruder.informed_prior
    value = after / before if before > 0 else np.ones_like(after) * 1.0
    return Risk("disclosure risk", _plain(np.asarray(value)), posterior=after)


def marginal_risk(noise: Law | Sequence[Law], *, intruder: Intruder) -> Risk:
    """Return R of (15): the risk averaged over what may be released while the target is there.

    He knows all others; he sees one noisy count, or several independent ones that all contain the
    target; the number is his expected posterior over his prior.
    """
    laws = [noise] if isinstance(noise, Law) else list(noise)
    if not laws:
        return Risk("marginal risk", 1.0, posterior=intruder.informed_prior)
    if not intruder.certain:
        grid = lattice(_only(laws), intruder)
        after = grid.average(sigmoid(intruder.log_odds + grid.log_odds))
    else:
        losses, weights = joint_loss(laws, intruder.rows)
        after = expectation(weights, sigmoid(intruder.log_odds + losses))
    before = intruder.informed_prior
    return Risk("marginal risk", after / before if before > 0 else 1.0, posterior=after)


def exceedance(noise: Law, *, above: float, intruder: Intruder, present: bool = True) -> Risk:
    """Return how often the release will put R' above a limit (002, section 4.2.1).

    They know all others and will see the noisy count; the number is the probability that their
    posterior passes `above` times their prior, while the target is there or, if not `present`, is not.
    Where public facts rule the target out, R' is 1, as in `disclosure_risk`.
    """
    if not above > 0:
        raise InputError(f"above: {above} is not allowed; a ratio is above 0")
    before = intruder.informed_prior
    if before == 0:
        return Risk("exceedance", 1.0 if above < 1 else 0.0)
    if above * before >= 1:
        return Risk("exceedance", 0.0)
    limit = math.log(above) + math.log(before) - math.log1p(-above * before)
    if not intruder.certain:
        limit -= intruder.log_odds
        share = probability_above(noise, intruder, limit, there=present, tied=0.0)
        return Risk("exceedance", as_probability(share))
    whole = isinstance(noise, Mechanism)

    def passes(e: float) -> bool:
        return _sign(intruder.log_odds - limit, noise, e, intruder.rows) > 0

    shift = 0 if present else intruder.rows
    share = _at_least(noise, _first(passes, whole), shift, whole)
    return Risk("exceedance", as_probability(share))


def expected_exceedances(noise: Law, *, above: float, intruder: Intruder, targets: int) -> Risk:
    """Return in how many of so many independent cells R' will pass a limit, on average."""
    if isinstance(targets, bool) or not isinstance(targets, int) or targets < 0:
        raise InputError(f"targets: {targets} is not allowed; it is a whole number, 0 or more")
    chance = exceedance(noise, above=above, intruder=intruder)
    return Risk("expected exceedances", targets * float(chance.value))


def correct_decision(
    noise: Law,
    *,
    intruder: Intruder,
    ties: Ties = "split",
    present: bool = True,
    losses: Losses = EVEN,
) -> Risk:
    """Return the probability that he decides rightly, (19) of 002.

    He says "there" where that has the smaller expected loss, under 0-1 loss where it is the more
    probable; `ties` says what he does when they are equal; `present` whether his target is there.
    """
    if isinstance(noise, Sequence):
        raise InputError(
            "noise: several laws came, and this is about one count; attacks.correct_decision takes all "
            "queries of a plan"
        )
    tied = share_of_ties(ties)
    if not intruder.certain:
        limit = losses.bias - intruder.log_odds
        says_yes = probability_above(noise, intruder, limit, there=present, tied=tied)
        return Risk("correct decision", as_probability(says_yes if present else 1 - says_yes))
    prior = intruder.log_odds - losses.bias

    def verdict(e: float) -> float:
        return _sign(prior, noise, e, intruder.rows)

    whole = isinstance(noise, Mechanism)
    # In terms of e = released - known - rows: the noise if he is there, noise - rows if not.
    shift = 0 if present else intruder.rows
    yes = _at_least(noise, _first(lambda e: verdict(e) > 0, whole), shift, whole)
    yes_or_tie = _at_least(noise, _first(lambda e: verdict(e) >= 0, whole), shift, whole)
    says_yes = tied * yes_or_tie + (1 - tied) * yes
    return Risk("correct decision", as_probability(says_yes if present else 1 - says_yes))


def _sign(log_odds: float, noise: Law, e: float, rows: int) -> float:
    """Return the sign of the odds once the noise e is seen; 0 where they are even but for rounding."""
    with np.errstate(over="ignore"):  # beyond the largest double the noise has settled it
        loss = noise.loss_at(e, rows)
    return float(sign_of_sum(log_odds, loss, rounding=_ROUNDING))


def _only(laws: Sequence[Law]) -> Law:
    if len(laws) != 1:
        raise InputError("others: an intruder who does not know all others is judged by one count")
    return laws[0]


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


def _plain(value: FloatArray) -> float | FloatArray:
    return float(value) if value.ndim == 0 else value
