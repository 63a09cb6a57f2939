"""Many levels: what is above is simulated, the lowest count is summed exactly (Rao and Blackwell)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from countveil.assess.chain import Step, message
from countveil.assess.decision import Ties, share_of_ties
from countveil.assess.intruder import Intruder
from countveil.assess.level import Level
from countveil.assess.risk import Risk, averaged
from countveil.assess.two_levels import first_yes, mean_posterior, probability_from
from countveil.errors import InputError
from countveil.numerics import FloatArray, IntArray
from countveil.randomness import BitSource


def correct_decision(
    levels: Sequence[Level],
    truth: Sequence[int],
    intruder: Intruder,
    ties: Ties,
    added: FloatArray,
) -> Risk:
    """Return how often he decides rightly, given draws of the log-odds that the levels above add."""
    present = truth[0] != intruder.known
    shift = 0 if present else intruder.rows
    log_odds = intruder.log_odds + added
    first = first_yes(levels[0], log_odds, intruder.rows)
    yes = probability_from(levels[0], first, shift)
    before = first - 1
    with np.errstate(invalid="ignore"):
        loss = levels[0].noise.loss_at(before, intruder.rows)
        even = np.abs(log_odds + loss) <= 1e-12 * (np.abs(log_odds) + np.abs(loss) + 1)
    tied = np.where(even, probability_from(levels[0], before, shift) - yes, 0.0)
    yes = yes + share_of_ties(ties) * tied
    right = yes if present else 1 - yes
    return averaged("correct decision", right)


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
            seen[key] = float(found.log_values[0] - found.log_values[1])
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
