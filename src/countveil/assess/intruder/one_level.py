"""The Bayesian intruder who sees one noisy count (paper 002, section 3.1), exactly, for any noise.

An intruder who knows everyone else compares two values of the count, so that the privacy loss of the
noise is all they learn. One who is unsure about others compares two mixtures (see the end of the file).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from countveil.assess.intruder.combined_loss import NoisyCells, joint_loss, lattice_loss
from countveil.assess.intruder.decision import (
    EVEN,
    Losses,
    Ties,
    refuse_impossible,
    share_of_ties,
    sigmoid,
    sign_of_sum,
)
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.risk import Risk
from countveil.base.bounded_averages import as_probability, expectation
from countveil.base.numerics import Array, FloatArray
from countveil.errors import InputError
from countveil.noise.law import Law, Mechanism

_FARTHEST = 2.0**62
_LOSS_ROUNDING = 8 * np.finfo(float).eps

_TAIL = 42.0  # of the slower of a Gaussian and an exponential tail: less than 1e-17 lies beyond
_MIXTURE_ROUNDING = 1e-13
_TIE = 1e-12  # of a summed loss
_FINEST = 40  # points per standard deviation, where a sum is thinned


def posterior(noise: Law, *, observed: Array | float, intruder: Intruder) -> Risk:
    """Return the intruder's probability that their target is counted, after seeing `observed`.

    They know everyone else in the cell, or have probabilities of how many others there are. They see
    the noisy count. The number is (10) of 002.

    Parameters
    ----------
    noise : Law
        The noise of the count.
    observed : float or array
        The released count, or several that might be released.
    intruder : Intruder
        What they believe and know before the release.

    Returns
    -------
    Risk
        "posterior", of the shape of `observed`.

    Examples
    --------
    >>> from countveil import DiscreteLaplace, Intruder
    >>> seen = posterior(DiscreteLaplace(epsilon=1), observed=3, intruder=Intruder(prior=0.5))
    >>> round(seen.value, 4)
    0.7311
    """
    value = _posterior_at(noise, observed, intruder)
    return Risk("posterior", value, posterior=value, intruder=intruder, noise=(noise,))


def disclosure_risk(noise: Law, *, observed: Array | float, intruder: Intruder) -> Risk:
    """Return posterior over prior, R'(x) of (13): how much one released count reveals.

    The intruder knows everyone else in the cell, or has probabilities of how many others there are.
    They see the noisy count. A value of 2 means that seeing it doubled their probability that the
    target is counted. Public bounds on the count belong to the prior: the release did not reveal them.

    Parameters
    ----------
    noise : Law
        The noise of the count.
    observed : float or array
        The released count, or several that might be released.
    intruder : Intruder
        What they believe and know before the release.

    Returns
    -------
    Risk
        "disclosure risk", of the shape of `observed`; 1 where public bounds rule the target out.
    """
    after = _posterior_at(noise, observed, intruder)
    before = intruder.informed_prior
    value = after / before if before > 0 else np.ones_like(after) * 1.0
    return Risk(
        "disclosure risk",
        _plain(np.asarray(value)),
        posterior=after,
        intruder=intruder,
        noise=(noise,),
    )


def marginal_risk(noise: Law | Sequence[Law], *, intruder: Intruder) -> Risk:
    """Return R of (15): the risk averaged over what may be released while the target is counted.

    The intruder knows everyone else. They see one noisy count, or several independent ones that all
    contain the target. The number is their expected posterior over their prior: 1.1 means that a
    release raises the probability by 10 % on average.

    Parameters
    ----------
    noise : Law or sequence of Law
        The noise of the count, or of each count. Several need an intruder who knows everyone else.
    intruder : Intruder
        What they believe and know before the release.

    Returns
    -------
    Risk
        "marginal risk", with the expected posterior.

    Examples
    --------
    >>> from countveil import DiscreteLaplace, Intruder
    >>> risk = marginal_risk(DiscreteLaplace(epsilon=1), intruder=Intruder(prior=0.5))
    >>> round(risk.value, 4)
    1.2136
    """
    laws = (noise,) if isinstance(noise, Law) else tuple(noise)
    before = intruder.informed_prior
    if not laws:
        return Risk("marginal risk", 1.0, posterior=before, intruder=intruder)
    if not intruder.certain:
        law = _only(laws)
        there, log_ratio = _averaged_over(law, intruder)
        after = 0.0
        if there.any():
            after = expectation(there, sigmoid(intruder.log_odds + log_ratio))
    else:
        losses, weights = joint_loss(laws, intruder.rows)
        after = expectation(weights, sigmoid(intruder.log_odds + losses))
    value = after / before if before > 0 else 1.0
    return Risk("marginal risk", value, posterior=after, intruder=intruder, noise=laws)


def exceedance(noise: Law, *, above: float, intruder: Intruder, present: bool = True) -> Risk:
    """Return how often the release will put R' above a limit (002, section 4.2.1).

    The intruder knows everyone else and will see the noisy count. The number is the probability that
    their posterior exceeds `above` times their prior.

    Parameters
    ----------
    noise : Law
        The noise of the count.
    above : float
        The limit on posterior over prior.
    intruder : Intruder
        What they believe and know before the release.
    present : bool
        Whether the target is counted.

    Returns
    -------
    Risk
        "exceedance", a probability. Where public bounds rule the target out R' is 1, as in
        `disclosure_risk`; a `present` that they rule out is refused, as in `correct_decision`.
    """
    if not above > 0:
        raise InputError(f"above: {above} is not allowed; a ratio must be above 0")
    value = as_probability(_exceedance(noise, above, intruder, present))
    return Risk("exceedance", value, intruder=intruder, noise=(noise,))


def expected_exceedances(noise: Law, *, above: float, intruder: Intruder, targets: int) -> Risk:
    """Return for how many of several targets in independent cells R' will exceed a limit, on average.

    The intruder knows and sees the same as in `exceedance`, for each target.

    Parameters
    ----------
    noise, above, intruder
        As for `exceedance`.
    targets : int
        How many people, each counted in a cell of their own.

    Returns
    -------
    Risk
        "expected exceedances", a number of people.
    """
    if isinstance(targets, bool) or not isinstance(targets, int) or targets < 0:
        raise InputError(f"targets: {targets} is not allowed; it must be a whole number, 0 or more")
    share = exceedance(noise, above=above, intruder=intruder)
    value = targets * float(share.value)
    return Risk("expected exceedances", value, intruder=intruder, noise=(noise,))


def correct_decision(
    noise: Law | Sequence[Law],
    *,
    intruder: Intruder,
    ties: Ties = "split",
    present: bool = True,
    losses: Losses = EVEN,
) -> Risk:
    """Return the probability that the intruder guesses correctly, (19) of 002.

    They know everyone else in the cell, or have probabilities of how many others there are. They see
    the noisy count and say "there" where that has the smaller expected loss; under 0-1 loss, where it
    is the more probable.

    Parameters
    ----------
    noise : Law or sequence of Law
        The noise of the count, or of each of several counts that all contain the target (S1.3). Several
        need an intruder who knows everyone else.
    intruder : Intruder
        What they believe and know before the release.
    ties : {"split", "yes", "no"}
        What they say when both answers have the same expected loss.
    present : bool
        Whether the target is counted.
    losses : Losses
        What wrong answers cost them.

    Returns
    -------
    Risk
        "correct decision", a probability.

    Examples
    --------
    >>> from countveil import DiscreteLaplace, Intruder
    >>> right = correct_decision(DiscreteLaplace(epsilon=1), intruder=Intruder(prior=0.5))
    >>> round(right.value, 4)
    0.7311
    """
    tied = share_of_ties(ties)
    laws = (noise,) if isinstance(noise, Law) else tuple(noise)
    if len(laws) != 1 and intruder.certain:
        says_yes = _says_yes_to_several(laws, intruder, losses, present, tied)
    elif intruder.certain:
        says_yes = _says_yes(laws[0], intruder, losses, present, tied)
    else:
        limit = losses.bias - intruder.log_odds
        says_yes = _probability_above(_only(laws), intruder, limit, there=present, tied=tied)
    value = as_probability(says_yes if present else 1 - says_yes)
    return Risk("correct decision", value, intruder=intruder, noise=laws)


# An intruder who knows everyone else: e = released - known - rows is the noise if the target is
# there, and the noise less `rows` if not. The loss never falls with e, so they say "there" from
# some e on.


def _posterior_at(noise: Law, observed: Array | float, intruder: Intruder) -> float | FloatArray:
    releases = np.asarray(observed, np.float64)
    if not np.isfinite(releases).all():
        raise InputError("observed: not a finite number; a released count is a whole number")
    if intruder.certain:
        loss = noise.loss_at(releases - intruder.known - intruder.rows, intruder.rows)
    else:
        loss = _log_ratio(noise, intruder, releases)
    return _plain(sigmoid(intruder.log_odds + loss))


def _exceedance(noise: Law, above: float, intruder: Intruder, present: bool) -> float:
    _refuse_ruled_out(intruder, there=present)
    before = intruder.informed_prior
    if before == 0:
        return 1.0 if above < 1 else 0.0
    if above * before >= 1:
        return 0.0
    limit = math.log(above) + math.log(before) - math.log1p(-above * before)
    if not intruder.certain:
        limit -= intruder.log_odds
        return _probability_above(noise, intruder, limit, there=present, tied=0.0)

    def exceeds(e: float) -> bool:
        return _sign(intruder.log_odds - limit, noise, e, intruder.rows) > 0

    shift = 0 if present else intruder.rows
    return _probability_from(noise, _first(exceeds, whole=noise.lattice), shift)


def _says_yes(noise: Law, intruder: Intruder, losses: Losses, present: bool, tied: float) -> float:
    """Return how often they say "there"."""
    prior = intruder.log_odds - losses.bias

    def verdict(e: float) -> float:
        return _sign(prior, noise, e, intruder.rows)

    shift, whole = 0 if present else intruder.rows, noise.lattice
    yes = _probability_from(noise, _first(lambda e: verdict(e) > 0, whole=whole), shift)
    yes_or_tie = _probability_from(noise, _first(lambda e: verdict(e) >= 0, whole=whole), shift)
    return tied * yes_or_tie + (1 - tied) * yes


def _says_yes_to_several(
    laws: tuple[Law, ...], intruder: Intruder, losses: Losses, present: bool, tied: float
) -> float:
    """Return how often they say "there", from the summed loss; without counts, from their prior."""
    mechanisms = [law for law in laws if isinstance(law, Mechanism)]
    if len(mechanisms) == len(laws):  # with every jump, on which ties depend
        kinds = tuple(NoisyCells(law, number) for law, number in Counter(mechanisms).items())
        points, weights = lattice_loss(kinds, intruder.rows)
    else:
        points, weights = joint_loss(laws, intruder.rows)
    # Noise is symmetric: for a target who is away the loss is reversed.
    sign = sign_of_sum(
        intruder.log_odds - losses.bias, points if present else -points, rounding=_TIE, least=1.0
    )
    return expectation(weights, np.where(sign == 0, tied, sign > 0))


def _sign(log_odds: float, noise: Law, e: float, rows: int) -> float:
    """Return the sign of the log-odds after the noise e is seen; 0 if they are even up to rounding."""
    with np.errstate(over="ignore"):  # beyond the largest double the noise decides alone
        loss = noise.loss_at(e, rows)
    return float(sign_of_sum(log_odds, loss, rounding=_LOSS_ROUNDING))


def _first(holds: Callable[[float], bool], *, whole: bool) -> float:
    """Return where a statement that stays true becomes true, by bisection."""
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


def _probability_from(noise: Law, e: float, shift: int) -> float:
    """Return P(noise - shift >= e)."""
    if math.isinf(e):
        return 1.0 if e < 0 else 0.0
    return float(noise.survival(e + shift - 1 if noise.lattice else e + shift))


# An intruder who is unsure about others: the released count is a mixture under both hypotheses,
# and its log-ratio may rise and fall.


@dataclass(frozen=True, eq=False, slots=True)
class _LogMixtures:
    """The log density of released counts with the target there, and away."""

    there: FloatArray
    away: FloatArray


def _log_mixtures(noise: Law, intruder: Intruder, released: FloatArray) -> _LogMixtures:
    mixtures = []
    for there in (True, False):
        log_terms = noise.log_density(released[..., None] - intruder.counts(there=there))
        log_terms = log_terms + intruder.log_weights(there=there)
        with np.errstate(divide="ignore"):
            mixtures.append(np.asarray(logsumexp(log_terms, axis=-1)))
    return _LogMixtures(*mixtures)


def _log_ratio(noise: Law, intruder: Intruder, released: FloatArray) -> FloatArray:
    """Return log P(released | there) - log P(released | away)."""
    mixtures = _log_mixtures(noise, intruder, released)
    with np.errstate(invalid="ignore"):  # neither is possible: refused
        log_ratio = mixtures.there - mixtures.away
    refuse_impossible(log_ratio)
    return log_ratio


def _released_grid(noise: Law, intruder: Intruder) -> FloatArray:
    """Return what may be released, thinned where the noise is wide."""
    deviation = math.sqrt(noise.variance)
    step = max(1.0, math.floor(deviation / _FINEST)) if noise.lattice else deviation / 400
    low = intruder.counts(there=False)[0] - _TAIL * deviation - 20 * step
    high = intruder.counts(there=True)[-1] + _TAIL * deviation + 20 * step
    return step * np.arange(math.floor(low / step), math.ceil(high / step) + 1)


def _averaged_over(noise: Law, intruder: Intruder) -> tuple[FloatArray, FloatArray]:
    """Return the weights of released counts with the target there, and the log-ratio at each.

    For averages of what changes smoothly with the count; all weights are 0 if public bounds rule the
    target out.
    """
    mixtures = _log_mixtures(noise, intruder, _released_grid(noise, intruder))
    weights = np.exp(mixtures.there)
    weights = weights / weights.sum() if weights.any() else weights
    return weights, mixtures.there - mixtures.away


def _probability_above(
    noise: Law, intruder: Intruder, limit: float, *, there: bool, tied: float
) -> float:
    """Return how often the log-ratio exceeds a limit; where it equals the limit, count `tied` of it.

    Changes of sign are located between the points of a grid and then exactly, so that the result is as
    precise for wide noise.
    """
    _refuse_ruled_out(intruder, there=there)
    weights = np.exp(intruder.log_weights(there=there))
    grid = _released_grid(noise, intruder)

    def sign(at: FloatArray) -> FloatArray:
        log_ratio = _log_ratio(noise, intruder, at)
        return sign_of_sum(log_ratio, -limit, rounding=_MIXTURE_ROUNDING, least=1.0)

    signs = sign(grid)
    whole = noise.lattice
    total, counts = 0.0, intruder.counts(there=there)

    def up_to(at: float) -> float:
        """Return P(released ≤ at)."""
        return expectation(weights, as_probability(noise.cdf(at - counts)))

    shares = {1.0: 1.0, 0.0: tied, -1.0: 0.0}
    before, here = 0.0, float(signs[0])
    for edge in np.flatnonzero(np.diff(signs)):
        low, last = float(grid[edge]), float(grid[edge + 1])
        while here != float(signs[edge + 1]):  # there may be a tie between two signs
            high = last
            while (high - low > 1) if whole else (high - low > _MIXTURE_ROUNDING * (abs(high) + 1)):
                middle = math.floor((low + high) / 2) if whole else (low + high) / 2
                same = float(sign(np.array([middle]))[0]) == here
                low, high = (middle, high) if same else (low, middle)
            reached = up_to(low)
            total += shares[here] * (reached - before)
            before, low = reached, high
            here = float(sign(np.array([high]))[0]) if whole else float(signs[edge + 1])
    return total + shares[here] * (1.0 - before)


def _refuse_ruled_out(intruder: Intruder, *, there: bool) -> None:
    if not np.exp(intruder.log_weights(there=there)).any():
        raise InputError(
            f"present: {there} is not allowed; by at_least and at_most the target "
            f"{'cannot' if there else 'must'} be there; use present={not there}"
        )


def _only(laws: Sequence[Law]) -> Law:
    if len(laws) != 1:
        raise InputError(
            f"noise: got {len(laws)} laws, but an intruder who is unsure about others is assessed "
            f"by one count; give one law, or leave out others, at_least and at_most"
        )
    return laws[0]


def _plain(value: FloatArray) -> float | FloatArray:
    return float(value) if value.ndim == 0 else value
