"""A reproduction, not a posterior: the limit of the sampler behind paper 002's hierarchical figures.

Its figures are not the posterior (25) that it states. They are what a Gibbs sampler gives that draws
X_1 without the condition X_1 ≤ X_2, as inferred from the numbers. Its limit is computed here exactly,
for two levels with a flat prior and the papers' discrete-Gaussian sum of siblings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtrc

from countveil.assess.decision import sigmoid
from countveil.assess.intruder import Intruder
from countveil.assess.level import Level
from countveil.assess.probability import as_probability
from countveil.assess.risk import Risk
from countveil.assess.summed_noise import SummedNoise, half_width
from countveil.errors import InputError
from countveil.numerics import FloatArray, IntArray


@dataclass(frozen=True, eq=False, slots=True)
class Limit:
    """The sampler's limit: how often it is at X_1 = known + 1, and at each X_2."""

    known: int
    there: float
    parents: FloatArray
    weights: FloatArray

    def counts(self, level: int) -> tuple[IntArray, FloatArray]:
        """Return the counts of level 1 or 2, and how often it is there."""
        if level == 1:
            return np.array([self.known, self.known + 1]), np.array([1 - self.there, self.there])
        return self.parents.astype(np.int64), self.weights


def joint(
    low: Level, high: Level, observed: int, parent: int, sibling_sum: int, intruder: Intruder
) -> Limit:
    """Return the sampler's limit for one released triple."""
    width = 2 * half_width(high.noise) + 2 * half_width(_sum(low))
    x2 = intruder.known + np.arange(0.0, max(parent, sibling_sum, 0) + width)
    draws = [
        _draw_parent(low, high, parent, sibling_sum, k, x2)
        for k in (intruder.known, intruder.known + 1)
    ]
    there = _draw_low(low, observed, np.array(float(sibling_sum)), x2, intruder)
    up, down = float(draws[0] @ there), float(draws[1] @ (1 - there))
    share = up / (up + down)
    return Limit(intruder.known, share, x2, (1 - share) * draws[0] + share * draws[1])


def correct_decision(
    low: Level,
    high: Level,
    truth: Sequence[int],
    intruder: Intruder,
    *,
    draws: int | None = None,
) -> Risk:
    """Return how often a decision by the sampler's limit, or by some draws from it, is right."""
    if draws is not None and draws < 1:
        raise InputError(f"draws: {draws} is not allowed; the sampler draws at least once")
    present = truth[0] != intruder.known
    width, spread, reach = (half_width(law) for law in (high.noise, _sum(low), low.noise))
    parents = truth[1] + np.arange(-width, width + 1.0)
    sums = truth[1] - truth[0] + np.arange(-spread, spread + 1.0)
    lows = truth[0] + np.arange(-reach, reach + 1.0)
    x2 = intruder.known + np.arange(0.0, max(parents.max(), sums.max()) + width + spread)
    of_parents = np.exp(high.noise.log_pmf(parents - truth[1]))
    of_sums = np.exp(_sum(low).log_pmf(sums - truth[1] + truth[0]))
    of_lows = np.exp(low.noise.log_pmf(lows - truth[0]))
    says_yes = 0.0
    for s, of_sum in zip(sums, of_sums, strict=True):
        from_away, from_there = (
            np.array([_draw_parent(low, high, float(x), s, k, x2) for x in parents])
            for k in (intruder.known, intruder.known + 1)
        )
        there = np.array([_draw_low(low, float(x), np.array(s), x2, intruder) for x in lows])
        up, down = from_away @ there.T, from_there @ (1 - there).T
        share = up / (up + down)
        yes = _decided(share, draws)
        says_yes += of_sum * float(of_parents @ yes @ of_lows)
    value = as_probability(says_yes if present else 1 - says_yes)
    return Risk("correct decision, the paper's sampler", value)


def _decided(share: FloatArray, draws: int | None) -> FloatArray:
    """Say yes where the limit is above one half; or where half of some draws or more say so."""
    if draws is None:
        return np.where(share > 0.5, 1.0, np.where(share == 0.5, 0.5, 0.0))
    needed = -(-draws // 2)
    return np.asarray(bdtrc(needed - 1, draws, share), float)


def _sum(low: Level) -> SummedNoise:
    return SummedNoise(low.noise, low.siblings, "gaussian")


def _draw_parent(
    low: Level, high: Level, parent: float, sibling_sum: float, count: int, x2: FloatArray
) -> FloatArray:
    """Return the law of the draw of X_2 given X_1, (S3.14): at least X_1."""
    log_weights = high.noise.log_pmf(parent - x2) + _sum(low).log_pmf(sibling_sum + count - x2)
    log_weights = np.where(x2 >= count, log_weights, -np.inf)
    weights = np.exp(log_weights - log_weights.max())
    return np.asarray(weights / weights.sum())


def _draw_low(
    low: Level, observed: float, sibling_sum: FloatArray, x2: FloatArray, intruder: Intruder
) -> FloatArray:
    """Return the chance of drawing the target there given X_2, (S3.9) without X_1 ≤ X_2."""
    there, away = intruder.known + 1, intruder.known
    log_odds = float(low.noise.log_density(observed - there))
    log_odds -= float(low.noise.log_density(observed - away))
    moves = _sum(low)
    added = moves.log_pmf(sibling_sum + there - x2) - moves.log_pmf(sibling_sum + away - x2)
    return sigmoid(intruder.log_odds + log_odds + added)
