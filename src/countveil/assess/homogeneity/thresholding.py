"""An intruder content with the likeliest label, or with shares, where a cell shows several (004, S5).

Noisy counts are rounded and negative ones are taken for 0, so that any noise is one of whole numbers.
Where a cell shows nobody, he names no label.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from countveil.assess.homogeneity.distinct import Distinct, distinct_cells
from countveil.assess.homogeneity.measures import HomogeneityRisk
from countveil.assess.homogeneity.recursion import refuse_large
from countveil.assess.homogeneity.rounding import RoundedNoise, rounded
from countveil.assess.homogeneity.table import Table
from countveil.errors import InputError
from countveil.mechanisms.law import Law
from countveil.numerics import FloatArray, IntArray
from countveil.randomness import BitSource

_STEP = 0.2  # of the integral over log s: its error is exp(-π²/0.2), less than a double shows
_LARGEST_S = 45.0
_SMALLEST = 1e-18
_AT_ONCE = 4_000_000

_Disclosed = Callable[[IntArray, FloatArray], FloatArray]


def hard_thresholding(
    table: Table,
    *,
    mechanism: Law,
    weighted: bool = False,
    draws: int | None = None,
    rng: BitSource | None = None,
) -> HomogeneityRisk:
    """Return how many people of a cell have the label with the largest noisy count.

    He knows his target's identifiers; he sees the noisy counts of its cell, and names the label with
    the largest, one of them if several are; the number is the share of people it is true of, on
    average. With `draws` it is simulated with `rng`.
    """
    noise = rounded(mechanism)
    cells = distinct_cells(table)
    refuse_large(int(cells.sizes.max()))
    if draws is not None:
        return _simulated("hard thresholding", cells, noise, _named, weighted, draws, rng)
    each = np.array([_chance_named(counts, noise) for counts in cells.counts])
    return _risk("hard thresholding", cells, each, weighted)


def soft_thresholding(
    table: Table,
    *,
    mechanism: Law,
    weighted: bool = False,
    draws: int | None = None,
    rng: BitSource | None = None,
) -> HomogeneityRisk:
    """Return how much of the belief in the right label the noisy shares of a cell give.

    He knows and sees the same, and believes in each label by its share of the noisy counts; the number
    is the belief in the true label of a person drawn from the cell, on average.
    """
    noise = rounded(mechanism)
    cells = distinct_cells(table)
    refuse_large(int(cells.sizes.max()))
    if draws is not None:
        return _simulated("soft thresholding", cells, noise, _believed, weighted, draws, rng)
    return _risk("soft thresholding", cells, _mean_belief(cells, noise), weighted)


def _chance_named(counts: IntArray, noise: RoundedNoise) -> float:
    """Return Σ_k n_k/n P(k is named), one of m largest with chance 1/m.

    E[1/(1 + ties)] = ∫ Π_j (P(j is smaller) + t P(j is as large)) dt over t from 0 to 1, a polynomial.
    """
    values, times = np.unique(counts, return_counts=True)
    last = int(values[-1]) + noise.reach
    nodes, shares = np.polynomial.legendre.leggauss(len(counts) // 2 + 1)
    t = (nodes[:, None] + 1) / 2
    every = max(1, _AT_ONCE // (len(t) + len(values)))
    named = 0.0
    for start in range(1, last + 1, every):
        x = np.arange(start, min(start + every, last + 1))
        at, below = zip(*(_shifted(noise, x - value) for value in values), strict=True)
        for own, value in enumerate(values):
            if value == 0:
                continue
            product = np.ones((len(t), len(x)))
            for other, number in enumerate(times):
                product *= (below[other] + t * at[other]) ** (number - (other == own))
            named += times[own] * value * float(shares / 2 @ product @ at[own])
    return named / int(counts.sum())


def _shifted(noise: RoundedNoise, k: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return P(noise = k) and P(noise < k), also beyond what is tabulated."""
    inside = np.clip(k + noise.reach, 0, len(noise.at) - 1)
    beyond = k > noise.reach
    at = np.where(beyond | (k < -noise.reach), 0.0, noise.at[inside])
    return at, np.where(beyond, 1.0, noise.below[inside])


def _mean_belief(cells: Distinct, noise: RoundedNoise) -> FloatArray:
    """Return Σ_k n_k/n E[X_k/ΣX] as ∫ E[s X_k e^(-s X_k)] Π E[e^(-s X_j)] dv, s = e^v."""
    values = np.unique(cells.counts)
    largest = float(values[-1]) + noise.reach
    s = np.exp(np.arange(math.log(_SMALLEST / largest), math.log(_LARGEST_S), _STEP))
    empty, moment = _transforms(values, noise, s)
    place = np.searchsorted(values, cells.counts)
    none, one = np.ones((len(s), len(place))), np.zeros((len(s), len(place)))
    for k, column in enumerate(place.T):
        one = one * empty[:, column] + none * moment[:, column] * cells.shares[:, k]
        none = none * empty[:, column]
    return np.asarray(_STEP * one.sum(axis=0))


def _transforms(
    values: IntArray, noise: RoundedNoise, s: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return E[e^(-sX)] and E[sX e^(-sX)], X a noisy count, of each true count: s × counts.

    Sums over X > 0 of a count follow from those of the count below: they move up by one, X = 1 joins.
    """
    positive = np.arange(1, noise.reach + 1)
    weights = noise.at[noise.reach + 1 :]
    rest, mean = np.zeros(len(s)), np.zeros(len(s))
    for part in np.array_split(np.arange(len(s)), max(1, len(s) * len(positive) // _AT_ONCE)):
        discount = np.exp(-s[part, None] * positive) * weights
        rest[part], mean[part] = discount.sum(axis=1), discount @ positive
    empty, moment = np.empty((len(s), len(values))), np.empty((len(s), len(values)))
    factor, before = np.exp(-s), 0
    for number, value in enumerate(values):
        for count in range(before + 1, int(value) + 1):
            joined = _shifted(noise, np.array([1 - count]))[0][0]
            rest, mean = factor * (rest + joined), factor * (mean + rest + joined)
        before = int(value)
        zero = _shifted(noise, np.array([1 - before]))[1][0]
        empty[:, number], moment[:, number] = zero + rest, s * mean
    return empty, moment


def _named(values: IntArray, shares: FloatArray) -> FloatArray:
    best = (values == values.max(axis=1, keepdims=True)) & (values > 0)
    return np.asarray((best * shares).sum(axis=1) / np.maximum(best.sum(axis=1), 1))


def _believed(values: IntArray, shares: FloatArray) -> FloatArray:
    return np.asarray((values * shares).sum(axis=1) / np.maximum(values.sum(axis=1), 1))


def _simulated(
    name: str,
    cells: Distinct,
    noise: RoundedNoise,
    disclosed: _Disclosed,
    weighted: bool,
    draws: int,
    rng: BitSource | None,
) -> HomogeneityRisk:
    if rng is None:
        raise InputError("rng: none came, and draws are simulated; pass rng=Seeded(1)")
    if isinstance(draws, bool) or not isinstance(draws, int) or draws < 2:
        raise InputError(f"draws: {draws} is not allowed; at least 2 are needed")
    means, variances = np.empty(len(cells.counts)), np.empty(len(cells.counts))
    for number, (counts, shares) in enumerate(zip(cells.counts, cells.shares, strict=True)):
        drawn = noise.sample(draws * len(counts), rng=rng).reshape(draws, -1)
        each = disclosed(np.maximum(counts + drawn, 0), shares)
        means[number], variances[number] = each.mean(), each.var(ddof=1) / draws
    weights = cells.weights[:, int(weighted)]
    return _risk(name, cells, means, weighted, error=math.sqrt(weights**2 @ variances))


def _risk(
    name: str, cells: Distinct, each: FloatArray, weighted: bool, error: float | None = None
) -> HomogeneityRisk:
    value = min(1.0, float(each @ cells.weights[:, int(weighted)]))
    return HomogeneityRisk(
        measure=f"{name} risk",
        value=value,
        error=error,
        audience="internal",
        cells=np.clip(each, 0.0, 1.0)[cells.place],
    )
