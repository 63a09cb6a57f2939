"""Two levels summed exactly: no sampler, no simulation.

Given the parent's and the siblings' noisy counts x2*, y1*, the log-odds are a constant plus the loss of
the lowest count, which never falls: he says yes from some x1* on. So the probability of a correct
decision is a sum over (x2*, y1*) of survival functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import ndtr

from countveil.assess.decision import EVEN, Losses, Ties, share_of_ties, sign_of_sum
from countveil.assess.intruder import Intruder
from countveil.assess.level import Level
from countveil.assess.lowest_count import first_yes, mean_posterior, probability_from
from countveil.assess.near_ties import Tie, canonical, resolved
from countveil.assess.parent_prior import Exactly
from countveil.assess.probability import as_probability, expectation
from countveil.assess.risk import Risk
from countveil.assess.summed_noise import Addition
from countveil.assess.upper_level import Table, can_tie, log_odds_above, tabulated
from countveil.errors import InputError
from countveil.mechanisms.discrete_gaussian import DiscreteGaussian
from countveil.mechanisms.discrete_laplace import DiscreteLaplace
from countveil.numerics import FloatArray

_ROUNDING = 256 * float(np.finfo(float).eps)


def correct_decision(
    low: Level,
    high: Level,
    truth: Sequence[int],
    intruder: Intruder,
    siblings: Addition,
    ties: Ties,
    losses: Losses = EVEN,
) -> Risk:
    """Return the probability of a correct decision about the target; see `hierarchy`."""
    present = truth[0] != intruder.known

    def says_yes(table: Table) -> float:
        return _says_yes(table, low, high, intruder, siblings, ties, losses, present)

    value, error = _twice(low, high, truth, intruder, siblings, says_yes)
    if error is not None:
        # He may also change his mind one step of the lattice too early or too late.
        error += float(np.exp(low.noise.log_pmf(0)))
    right = as_probability(value if present else 1 - value)
    return Risk("correct decision", right, error=error)


def expected_posterior(
    low: Level, high: Level, truth: Sequence[int], intruder: Intruder, siblings: Addition
) -> Risk:
    """Return his posterior on average over what may be released, given the truth."""
    points, weights = low.noise.privacy_loss(intruder.rows)
    # Noise is symmetric: of a target who is away the loss is the other way round.
    losses = points if truth[0] != intruder.known else -points

    def averaged(table: Table) -> float:
        odds = intruder.log_odds + table.log_odds.ravel()
        return expectation(table.weights.ravel(), mean_posterior(odds, losses, weights))

    value, error = _twice(low, high, truth, intruder, siblings, averaged, smooth=True)
    return Risk("posterior", value, posterior=value, error=error)


def _twice(
    low: Level,
    high: Level,
    truth: Sequence[int],
    intruder: Intruder,
    siblings: Addition,
    what: Callable[[Table], float],
    *,
    smooth: bool = False,
) -> tuple[float, float | None]:
    """Return what a table says and, if it is thinned, by how much one half as fine says otherwise."""
    table = tabulated(low, high, truth, intruder, siblings, smooth=smooth)
    value = what(table)
    if not table.thinned:
        return value, None
    rough = tabulated(low, high, truth, intruder, siblings, smooth=smooth, coarser=2)
    return value, abs(value - what(rough))


def decision_changes(
    low: Level,
    high: Level,
    truth: Sequence[int],
    intruder: Intruder,
    siblings: Addition = "convolution",
) -> tuple[float, float]:
    """Return how often the upper level corrects a decision, and how often it spoils a right one."""
    present = truth[0] != intruder.known
    table = tabulated(low, high, truth, intruder, siblings)
    with_both = first_yes(low, intruder.log_odds + table.log_odds, intruder.rows)
    alone = first_yes(low, np.array(intruder.log_odds), intruder.rows)
    shift = 0 if present else intruder.rows
    between = probability_from(low, np.minimum(with_both, alone), shift) - probability_from(
        low, np.maximum(with_both, alone), shift
    )
    more_yes = expectation(table.weights, np.where(with_both < alone, between, 0.0))
    more_no = expectation(table.weights, np.where(with_both > alone, between, 0.0))
    return (more_yes, more_no) if present else (more_no, more_yes)


def decision_threshold(
    low: Level,
    high: Level,
    *,
    parent: int,
    sibling_sum: int,
    intruder: Intruder,
    siblings: Addition = "convolution",
) -> int:
    """Return the least count of the lowest level at which he says yes, given what is seen above it."""
    added = log_odds_above(
        low, high, np.array([float(parent)]), np.array([float(sibling_sum)]), intruder, siblings
    )
    first = float(first_yes(low, intruder.log_odds + added, intruder.rows)[0, 0])
    if not math.isfinite(first):
        raise InputError("prior: it settles the matter, whatever the lowest count is")
    return int(first) + intruder.known + intruder.rows


def _says_yes(
    table: Table,
    low: Level,
    high: Level,
    intruder: Intruder,
    siblings: Addition,
    ties: Ties,
    losses: Losses,
    present: bool,
) -> float:
    """Return how often he says that his target is there."""
    log_odds = intruder.log_odds - losses.bias + table.log_odds
    shift = 0 if present else intruder.rows
    if isinstance(low.noise, DiscreteLaplace):
        return _says_yes_by_loss(table, low, high, intruder, ties, log_odds, present)
    if table.thinned and isinstance(low.noise, DiscreteGaussian) and low.noise.sigma2 > 400:
        rate = float(1 / (2 * low.noise.sigma2))
        e = -log_odds / (2 * rate * intruder.rows) - intruder.rows / 2
        return expectation(table.weights, ndtr(-(e + shift) * math.sqrt(2 * rate)))
    first = first_yes(low, log_odds, intruder.rows)
    yes = probability_from(low, first, shift)
    # Just before the first yes the odds may be even, or just at it, but for rounding.
    signs: dict[Tie, int] = {}
    for offset in (-1, 0):
        at = first + offset
        finite = np.isfinite(at) & np.isfinite(log_odds)
        loss = low.noise.loss_at(np.where(finite, at, 0.0), intruder.rows)
        near = finite & (sign_of_sum(log_odds, loss, rounding=_ROUNDING, least=1.0) == 0)
        for i, j in np.argwhere(near):
            mass = float(np.exp(low.noise.log_pmf(at[i, j] + shift)))
            if table.weights[i, j] * mass < 1e-18:
                continue
            # Beside a known parent's count its noisy one says nothing.
            parent = table.truth if isinstance(low.prior, Exactly) else float(table.parents[i])
            tie = canonical(Tie(float(at[i, j]), parent, float(table.sums[j])), low, high, intruder)
            if tie not in signs:
                signs[tie] = resolved(tie, low, high, intruder, siblings, losses)
            decided = {1: 1.0, -1: 0.0, 0: share_of_ties(ties)}[signs[tie]]
            yes[i, j] += mass * (decided - (1.0 if offset == 0 else 0.0))
    return expectation(table.weights, as_probability(yes))


def _says_yes_by_loss(
    table: Table,
    low: Level,
    high: Level,
    intruder: Intruder,
    ties: Ties,
    log_odds: FloatArray,
    present: bool,
) -> float:
    """Return how often he says yes where the lowest count can say a few things only."""
    points, chances = low.noise.privacy_loss(intruder.rows)
    yes = np.zeros_like(log_odds)
    for point, chance in zip(points if present else -points, chances, strict=True):
        sign = sign_of_sum(log_odds, point, rounding=_ROUNDING, least=1.0)
        near = sign == 0
        says = np.where(near, share_of_ties(ties), sign > 0)
        if can_tie(low, high):
            # Only a small x2* is exactly a tie; the others come as near to one as doubles can tell.
            more = near & (table.parents > intruder.known)[:, None]
            says = np.where(more, 1.0 if point > 0 else 0.0, says)
        yes += chance * says
    return expectation(table.weights, as_probability(yes))
