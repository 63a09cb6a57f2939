"""Several levels: what is above is drawn or listed, the lowest count is summed (Rao-Blackwell).

Where the noise above can take few values, all of them are listed and the result is exact; otherwise it
is simulated. Someone who is unsure about others compares two mixtures of counts, as at one level.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from countveil.assess.intruder.decision import (
    Ties,
    refuse_impossible,
    share_of_ties,
    sigmoid,
    sign_of_sum,
)
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.intruder.several_levels.count_chain import LevelStep, message
from countveil.assess.intruder.several_levels.hierarchy_level import Level
from countveil.assess.intruder.several_levels.lowest_count import (
    first_yes,
    mean_posterior,
    probability_from,
)
from countveil.assess.risk import Risk, mean_of_draws
from countveil.base.bounded_averages import as_probability, expectation
from countveil.base.numerics import FloatArray, IntArray
from countveil.base.randomness import BitSource
from countveil.errors import InputError
from countveil.noise.law import Law, Mechanism
from countveil.noise.summed_noise import SummedNoise, half_width

DRAWS = 2_000
_ROUNDING = 1e-9  # messages are certified to less, and draws are few
_MOST_LISTED = 4_000  # releases above the lowest count that are listed rather than drawn
_MOST_VALUES = 10_000
_RARE = 1e-12  # values of a count with less probability are left out, and their sum is stated

Noises = tuple[Law, ...]
StepsOf = Callable[[Sequence[int], Sequence[int]], Sequence[LevelStep]]


class Above(NamedTuple):
    """What may be released above the lowest count, and what each of it adds.

    `log_values` are the messages at the counts the intruder considers possible, with their target and
    then without: releases × counts. `weights` are probabilities that sum to 1 - `left_out` if all
    releases are listed, and None if they are drawn.
    """

    log_values: FloatArray
    weights: FloatArray | None
    left_out: float = 0.0

    @property
    def added(self) -> FloatArray:
        """What is added to the log-odds of someone who knows everyone else."""
        with np.errstate(invalid="ignore"):  # neither is possible: refused
            added = np.asarray(self.log_values[:, 0] - self.log_values[:, 1])
        refuse_impossible(added)
        return added

    def average(self, measure: str, values: FloatArray, intruder: Intruder, noise: Noises) -> Risk:
        """Return the average of a value of each release: exact with a bound, or simulated."""
        if self.weights is None:
            return mean_of_draws(measure, values, intruder=intruder, noise=noise)
        value = as_probability(expectation(self.weights, values))
        bound = 2 * self.left_out
        return Risk(measure, value, error_bound=bound, intruder=intruder, noise=noise)


def released_above(
    levels: Sequence[Level],
    truth: Sequence[int],
    intruder: Intruder,
    steps_of: StepsOf,
    draws: int | None,
    rng: BitSource | None,
    simulated: int = DRAWS,
) -> Above:
    """List what may be released above the lowest count if that is short; otherwise draw it.

    With `draws`, draw that many in any case; otherwise `simulated`.
    """
    points = np.concatenate([intruder.counts(there=True), intruder.counts(there=False)])
    if draws is None:
        releases = _listed(levels, truth)
        if releases is not None:
            keys, weights = releases
            left_out = max(0.0, 1.0 - math.fsum(weights))
            return Above(_messages(keys, len(levels), steps_of, points), weights, left_out)
    draws = simulated if draws is None else draws
    if rng is None:
        raise InputError(
            f"rng: {len(levels)} levels are simulated; pass rng=Seeded(1), and draws if {draws:,} "
            f"are too few"
        )
    if draws < 2:
        raise InputError(f"draws: {draws} is not allowed; a standard error needs at least 2")
    sums, observed = [], []
    for number, level in enumerate(levels):
        if number:
            observed.append(truth[number] + level.noise.sample(draws, rng=rng))
        if number < len(levels) - 1:
            sums.append(truth[number + 1] - truth[number] + _summed(level, draws, rng))
    keys = list(zip(*map(_ints, observed), *map(_ints, sums), strict=True))
    return Above(_messages(keys, len(levels), steps_of, points), None)


def _listed(levels: Sequence[Level], truth: Sequence[int]) -> _Listed | None:
    """Return every release above the lowest count and its probability; None if they are too many."""
    parts: list[tuple[int, Mechanism | SummedNoise | None]] = [
        (truth[number], level.noise) for number, level in enumerate(levels) if number
    ]
    for number, level in enumerate(levels[:-1]):
        noise = SummedNoise(level.noise, level.siblings) if level.siblings else None
        parts.append((truth[number + 1] - truth[number], noise))
    values, probabilities = [], []
    size = 1
    for middle, law in parts:
        if law is None:
            values.append([middle])
            probabilities.append(np.ones(1))
            continue
        width = half_width(law)
        if (2 * width + 1) > _MOST_VALUES:
            return None
        e = np.arange(-width, width + 1, dtype=float)
        probability = np.exp(law.log_pmf(e))
        likely = np.flatnonzero(probability > _RARE)
        size *= len(likely)
        if size > _MOST_LISTED:
            return None
        values.append([middle + int(e[k]) for k in likely])
        probabilities.append(probability[likely])
    keys = list(product(*values))
    weights = np.ones(1)
    for probability in probabilities:
        weights = np.outer(weights, probability).ravel()
    return _Listed(keys, weights)


class _Listed(NamedTuple):
    keys: list[tuple[int, ...]]
    weights: FloatArray


def _messages(
    keys: Sequence[tuple[int, ...]], levels: int, steps_of: StepsOf, points: FloatArray
) -> FloatArray:
    """Return the messages of releases, counts of levels above first, then sums of siblings."""
    computed: dict[tuple[int, ...], FloatArray] = {}
    result = np.empty((len(keys), len(points)))
    for number, key in enumerate(keys):
        if key not in computed:
            steps = steps_of(key[: levels - 1], key[levels - 1 :])
            computed[key] = message(steps, points).log_values if steps else np.zeros(len(points))
        result[number] = computed[key]
    return result


def correct_decision(
    levels: Sequence[Level],
    truth: Sequence[int],
    present: bool,
    intruder: Intruder,
    ties: Ties,
    bias: float,
    above: Above,
) -> Risk:
    """Return how often the intruder guesses correctly, over what is released above."""
    tied = share_of_ties(ties)
    if intruder.certain:
        odds = intruder.log_odds + above.added - bias
        yes = _says_yes(levels[0], odds, intruder.rows, present, tied)
    else:

        def says(log_odds: FloatArray) -> FloatArray:
            sign = sign_of_sum(log_odds, -bias, rounding=_ROUNDING, least=1.0)
            return np.where(sign == 0, tied, sign > 0)

        yes = _averaged(levels[0], truth[0], intruder, above, says)
    right = as_probability(yes if present else 1 - yes)
    return above.average("correct decision", right, intruder, _noises(levels))


def expected_posterior(
    levels: Sequence[Level],
    truth: Sequence[int],
    present: bool,
    intruder: Intruder,
    above: Above,
) -> Risk:
    """Return the intruder's posterior on average, over what is released above."""
    if intruder.certain:
        points, weights = levels[0].noise.privacy_loss(intruder.rows)
        # Noise is symmetric: for a target who is away the loss is reversed.
        losses = points if present else -points
        each = mean_posterior(intruder.log_odds + above.added, losses, weights)
    else:
        each = _averaged(levels[0], truth[0], intruder, above, sigmoid)
    return above.average("posterior", each, intruder, _noises(levels))


def _averaged(
    low: Level,
    count: int,
    intruder: Intruder,
    above: Above,
    function: Callable[[FloatArray], FloatArray],
) -> FloatArray:
    """Return a function of the log-odds, averaged over the noise of the lowest count, by release."""
    width = half_width(low.noise)
    e = np.arange(-width, width + 1, dtype=float)
    probability = np.exp(low.noise.log_pmf(e))
    own = []
    for there in (True, False):
        fit = low.noise.log_pmf(count + e[:, None] - intruder.counts(there=there))
        own.append(fit + intruder.log_weights(there=there))
    further = len(intruder.others)
    result = np.empty(len(above.log_values))
    for number, log_values in enumerate(above.log_values):
        with np.errstate(invalid="ignore"):  # neither is possible: refused
            odds = logsumexp(own[0] + log_values[:further], axis=1) - logsumexp(
                own[1] + log_values[further:], axis=1
            )
        refuse_impossible(odds)
        result[number] = expectation(probability, function(intruder.log_odds + odds))
    return result


def _noises(levels: Sequence[Level]) -> tuple[Mechanism, ...]:
    return tuple(level.noise for level in levels)


def _says_yes(
    low: Level, log_odds: FloatArray, rows: int, present: bool, tied: float
) -> FloatArray:
    """Return how often they say "there" at each log-odds, before the lowest count is seen."""
    if low.noise.bounded_loss is not None:  # then its few values are summed
        points, weights = low.noise.privacy_loss(rows)
        yes, total = np.zeros(len(log_odds)), 0.0
        for point, weight in zip(points if present else -points, weights, strict=True):
            sign = sign_of_sum(log_odds, point, rounding=_ROUNDING, least=1.0)
            yes += weight * np.where(sign == 0, tied, sign > 0)
            total += weight
        return yes / total
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
