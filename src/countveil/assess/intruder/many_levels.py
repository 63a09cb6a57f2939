"""Three levels or more: what is above is simulated, the lowest count is summed (Rao-Blackwell)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from countveil.assess.intruder.count_chain import LevelStep, message
from countveil.assess.intruder.decision import Ties, refuse_impossible, share_of_ties, sign_of_sum
from countveil.assess.intruder.hierarchy_level import Level
from countveil.assess.intruder.lowest_count import first_yes, mean_posterior, probability_from
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.risk import Risk, mean_of_draws
from countveil.base.bounded_averages import as_probability
from countveil.base.numerics import FloatArray, IntArray
from countveil.base.randomness import BitSource
from countveil.errors import InputError

_ROUNDING = 1e-9  # messages are certified to less, and draws are few


def log_odds_above(
    levels: Sequence[Level],
    truth: Sequence[int],
    intruder: Intruder,
    steps_of: Callable[[Sequence[int], Sequence[int]], Sequence[LevelStep]],
    draws: int,
    rng: BitSource,
) -> FloatArray:
    """Draw what is released above the lowest count, and return what each draw adds to the log-odds."""
    if draws < 2:
        raise InputError(f"draws: {draws} is not allowed; a standard error needs at least 2")
    sums, observed = [], []
    for number, level in enumerate(levels):
        if number:
            observed.append(truth[number] + level.noise.sample(draws, rng=rng))
        if number < len(levels) - 1:
            sums.append(truth[number + 1] - truth[number] + _summed(level, draws, rng))
    points = np.concatenate([intruder.counts(there=True), intruder.counts(there=False)])
    computed: dict[tuple[int, ...], float] = {}
    added = np.empty(draws)
    for draw, key in enumerate(zip(*map(_ints, observed), *map(_ints, sums), strict=True)):
        if key not in computed:
            above, below = key[: len(observed)], key[len(observed) :]
            log_values = message(steps_of(above, below), points).log_values
            with np.errstate(invalid="ignore"):  # neither is possible: refused
                computed[key] = float(log_values[0] - log_values[1])
            refuse_impossible(computed[key])
        added[draw] = computed[key]
    return added


def correct_decision(
    levels: Sequence[Level],
    truth: Sequence[int],
    intruder: Intruder,
    ties: Ties,
    added: FloatArray,
) -> Risk:
    """Return how often the intruder guesses correctly, given draws of what is added to the log-odds."""
    present = truth[0] != intruder.known
    yes = _says_yes(
        levels[0], intruder.log_odds + added, intruder.rows, present, share_of_ties(ties)
    )
    right = as_probability(yes if present else 1 - yes)
    noise = tuple(level.noise for level in levels)
    return mean_of_draws("correct decision", right, intruder=intruder, noise=noise)


def expected_posterior(
    levels: Sequence[Level], truth: Sequence[int], intruder: Intruder, added: FloatArray
) -> Risk:
    """Return the intruder's posterior on average, given draws of what is added to the log-odds."""
    points, weights = levels[0].noise.privacy_loss(intruder.rows)
    # Noise is symmetric: for a target who is away the loss is reversed.
    losses = points if truth[0] != intruder.known else -points
    each = mean_posterior(intruder.log_odds + added, losses, weights)
    noise = tuple(level.noise for level in levels)
    return mean_of_draws("posterior", each, intruder=intruder, noise=noise)


def _says_yes(
    low: Level, log_odds: FloatArray, rows: int, present: bool, tied: float
) -> FloatArray:
    """Return how often they say "there" at each log-odds, before the lowest count is seen."""
    if low.noise.bounded_loss is not None:  # then its few values are summed
        points, weights = low.noise.privacy_loss(rows)
        yes = np.zeros(len(log_odds))
        for point, weight in zip(points if present else -points, weights, strict=True):
            sign = sign_of_sum(log_odds, point, rounding=_ROUNDING, least=1.0)
            yes += weight * np.where(sign == 0, tied, sign > 0)
        return yes
    shift = 0 if present else rows
    first = first_yes(low, log_odds, rows)
    yes = probability_from(low, first, shift)
    # Just before the first yes, or just at it, the odds may be even up to rounding.
    for offset in (-1, 0):
        at = np.where(np.isfinite(first), first + offset, 0.0)
        loss = low.noise.loss_at(at, rows)
        sign = sign_of_sum(log_odds, loss, rounding=_ROUNDING, least=1.0)
        even = np.isfinite(first) & (sign == 0)
        mass = np.exp(low.noise.log_pmf(at + shift))
        yes = yes + np.where(even, mass * (tied - (1.0 if offset == 0 else 0.0)), 0.0)
    return np.asarray(yes)


def _summed(level: Level, draws: int, rng: BitSource) -> IntArray:
    if level.siblings == 0:
        return np.zeros(draws, np.int64)
    noise: IntArray = level.noise.sample(draws * level.siblings, rng=rng)
    summed: IntArray = noise.reshape(draws, level.siblings).sum(axis=1)
    return summed


def _ints(values: IntArray) -> list[int]:
    return [int(value) for value in values]
