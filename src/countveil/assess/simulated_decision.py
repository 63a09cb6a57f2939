"""Many levels: what is above is simulated, the lowest count is summed exactly (Rao and Blackwell)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from countveil.assess.chain import Step, message
from countveil.assess.decision import Ties, refuse_impossible, share_of_ties, sign_of_sum
from countveil.assess.intruder import Intruder
from countveil.assess.level import Level
from countveil.assess.lowest_count import first_yes, mean_posterior, probability_from
from countveil.assess.probability import as_probability
from countveil.assess.risk import Risk, averaged
from countveil.errors import InputError
from countveil.mechanisms.discrete_laplace import DiscreteLaplace
from countveil.numerics import FloatArray, IntArray
from countveil.randomness import BitSource

_ROUNDING = 1e-9  # messages are certified to less, and draws are few


def correct_decision(
    levels: Sequence[Level],
    truth: Sequence[int],
    intruder: Intruder,
    ties: Ties,
    added: FloatArray,
) -> Risk:
    """Return how often he decides rightly, given draws of the log-odds that the levels above add."""
    present = truth[0] != intruder.known
    yes = _says_yes(
        levels[0], intruder.log_odds + added, intruder.rows, present, share_of_ties(ties)
    )
    right = as_probability(yes if present else 1 - yes)
    return averaged("correct decision", right)


def _says_yes(
    low: Level, log_odds: FloatArray, rows: int, present: bool, tied: float
) -> FloatArray:
    """Return how often he says yes at each log-odds, the lowest count being still to come."""
    if isinstance(low.noise, DiscreteLaplace):  # it can say a few things only
        points, chances = low.noise.privacy_loss(rows)
        yes = np.zeros(len(log_odds))
        for point, chance in zip(points if present else -points, chances, strict=True):
            sign = sign_of_sum(log_odds, point, rounding=_ROUNDING, least=1.0)
            yes += chance * np.where(sign == 0, tied, sign > 0)
        return yes
    shift = 0 if present else rows
    first = first_yes(low, log_odds, rows)
    yes = probability_from(low, first, shift)
    # Just before the first yes the odds may be even, or just at it, but for rounding.
    for offset in (-1, 0):
        at = np.where(np.isfinite(first), first + offset, 0.0)
        loss = low.noise.loss_at(at, rows)
        sign = sign_of_sum(log_odds, loss, rounding=_ROUNDING, least=1.0)
        even = np.isfinite(first) & (sign == 0)
        mass = np.exp(low.noise.log_pmf(at + shift))
        yes = yes + np.where(even, mass * (tied - (1.0 if offset == 0 else 0.0)), 0.0)
    return np.asarray(yes)


def expected_posterior(
    levels: Sequence[Level], truth: Sequence[int], intruder: Intruder, added: FloatArray
) -> Risk:
    """Return his posterior on average, given draws of the log-odds that the levels above add."""
    points, weights = levels[0].noise.privacy_loss(intruder.rows)
    # Noise is symmetric: of a target who is away the loss is the other way round.
    losses = points if truth[0] != intruder.known else -points
    each = mean_posterior(intruder.log_odds + added, losses, weights)
    return averaged("posterior", each)


def log_odds_above(
    levels: Sequence[Level],
    truth: Sequence[int],
    intruder: Intruder,
    steps_of: Callable[[Sequence[int], Sequence[int]], Sequence[Step]],
    draws: int,
    rng: BitSource,
) -> FloatArray:
    """Draw what is released above the lowest count, and return the log-odds that each draw adds."""
    if draws < 2:
        raise InputError(
            f"draws: {draws} is not allowed; at least 2 are needed for a standard error"
        )
    sums, observed = [], []
    for number, level in enumerate(levels):
        if number:
            observed.append(truth[number] + level.noise.sample(draws, rng=rng))
        if number < len(levels) - 1:
            sums.append(truth[number + 1] - truth[number] + _summed(level, draws, rng))
    points = np.concatenate([intruder.counts(there=True), intruder.counts(there=False)])
    seen: dict[tuple[int, ...], float] = {}
    added = np.empty(draws)
    for draw, key in enumerate(zip(*map(_ints, observed), *map(_ints, sums), strict=True)):
        if key not in seen:
            above, below = key[: len(observed)], key[len(observed) :]
            found = message(steps_of(above, below), points)
            with np.errstate(invalid="ignore"):  # neither is possible: refused
                seen[key] = float(found.log_values[0] - found.log_values[1])
            refuse_impossible(seen[key])
        added[draw] = seen[key]
    return added


def _summed(level: Level, draws: int, rng: BitSource) -> IntArray:
    if level.siblings == 0:
        return np.zeros(draws, np.int64)
    noise: IntArray = level.noise.sample(draws * level.siblings, rng=rng)
    summed: IntArray = noise.reshape(draws, level.siblings).sum(axis=1)
    return summed


def _ints(values: IntArray) -> list[int]:
    return [int(value) for value in values]
