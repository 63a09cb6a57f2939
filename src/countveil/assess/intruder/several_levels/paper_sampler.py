"""A reproduction, not a posterior: the limit of the sampler behind paper 002's hierarchical figures.

The paper's figures are not the posterior (25) that it states. Judging by the numbers, they come from a
Gibbs sampler that draws X_1 without the condition X_1 ≤ X_2. Its limit is computed here exactly, for
two levels with a flat prior and the papers' discrete-Gaussian sum of siblings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtrc

from countveil.assess.intruder.decision import sigmoid
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.intruder.several_levels.count_chain import CountPosterior
from countveil.assess.intruder.several_levels.hierarchy_level import Level
from countveil.assess.risk import Risk
from countveil.base.bounded_averages import as_probability
from countveil.base.numerics import FloatArray
from countveil.errors import InputError
from countveil.noise.summed_noise import SummedNoise, half_width


@dataclass(frozen=True, eq=False, slots=True)
class SamplerLimit:
    """The sampler's limit: how often it is at X_1 = known + 1, and at each X_2."""

    known: int
    there: float
    parents: FloatArray
    weights: FloatArray

    def counts(self, level: int) -> CountPosterior:
        """Return the counts of level 1 or 2, and how often the sampler is at each."""
        if level == 1:
            counts = np.array([self.known, self.known + 1])
            return CountPosterior(counts, np.array([1 - self.there, self.there]))
        return CountPosterior(self.parents.astype(np.int64), self.weights)


def joint(
    low: Level, high: Level, observed: int, parent: int, sibling_sum: int, intruder: Intruder
) -> SamplerLimit:
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
    return SamplerLimit(intruder.known, share, x2, (1 - share) * draws[0] + share * draws[1])


def correct_decision(
    low: Level,
    high: Level,
    truth: Sequence[int],
    intruder: Intruder,
    *,
    draws: int | None = None,
) -> Risk:
    """Return how often a decision by the sampler's limit, or by several draws from it, is right."""
    if draws is not None and draws < 1:
        raise InputError(f"draws: {draws} is not allowed; the sampler needs at least 1")
    present = truth[0] != intruder.known
    width, sum_width, reach = (half_width(law) for law in (high.noise, _sum(low), low.noise))
    parents = truth[1] + np.arange(-width, width + 1.0)
    sums = truth[1] - truth[0] + np.arange(-sum_width, sum_width + 1.0)
    lows = truth[0] + np.arange(-reach, reach + 1.0)
    x2 = intruder.known + np.arange(0.0, max(parents.max(), sums.max()) + width + sum_width)
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
    noise = (low.noise, high.noise)
    return Risk("correct decision, the paper's sampler", value, intruder=intruder, noise=noise)


def _decided(share: FloatArray, draws: int | None) -> FloatArray:
    """Return how often the answer is yes: by the limit, or by at least half of the draws."""
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
    """Return the probability of drawing the target there given X_2, (S3.9) without X_1 ≤ X_2."""
    there, away = intruder.known + 1, intruder.known
    log_odds = float(low.noise.log_density(observed - there))
    log_odds -= float(low.noise.log_density(observed - away))
    moves = _sum(low)
    added = moves.log_pmf(sibling_sum + there - x2) - moves.log_pmf(sibling_sum + away - x2)
    return sigmoid(intruder.log_odds + log_odds + added)
