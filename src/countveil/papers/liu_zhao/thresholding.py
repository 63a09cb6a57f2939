"""An intruder who settles for the likeliest label, or for shares, if a cell shows several (004, S5).

Noisy counts are rounded and clipped at 0, so that any noise becomes noise of whole numbers. If a cell
shows no one, the intruder names no label.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from countveil.assess.homogeneity.average_risk import DistinctCells, distinct_cells
from countveil.assess.homogeneity.label_recursion import refuse_large
from countveil.assess.homogeneity.measures import HomogeneityRisk
from countveil.assess.homogeneity.sensitive_table import Table
from countveil.base.numerics import FloatArray, IntArray
from countveil.base.randomness import BitSource
from countveil.errors import InputError
from countveil.noise.law import Law
from countveil.papers.liu_zhao.rounded_noise import RoundedNoise, round_noise

_STEP = 0.2  # of the integral over log s; its error, exp(-π²/0.2), is below double precision
_LARGEST_S = 45.0
_SMALLEST = 1e-18
_AT_ONCE = 4_000_000

_Disclosure = Callable[[IntArray, FloatArray], FloatArray]


def hard_thresholding(
    table: Table,
    *,
    mechanism: Law,
    weighted: bool = False,
    draws: int | None = None,
    rng: BitSource | None = None,
) -> HomogeneityRisk:
    """Return how often the label with the largest noisy count is a person's own.

    The intruder knows their target's identifiers, sees the noisy counts of its cell, and names the
    label with the largest count, choosing among ties at random. The risk is the average share of people
    for whom that label is right.

    Parameters
    ----------
    table
        The exact table of identifiers and a sensitive attribute.
    mechanism
        The law of the noise.
    weighted
        Whether cells count by their people, or all equally.
    draws, rng
        Simulate this number of draws instead of computing exactly.

    Returns
    -------
    HomogeneityRisk
        The risk, with its standard error if simulated; internal.
    """
    noise = round_noise(mechanism)
    cells = distinct_cells(table)
    refuse_large(int(cells.sizes.max()))
    if draws is not None:
        return _simulate("hard thresholding", cells, noise, _names_own, weighted, draws, rng)
    each = np.array([_probability_named(counts, noise) for counts in cells.counts])
    return _risk("hard thresholding", cells, each, weighted)


def soft_thresholding(
    table: Table,
    *,
    mechanism: Law,
    weighted: bool = False,
    draws: int | None = None,
    rng: BitSource | None = None,
) -> HomogeneityRisk:
    """Return the average belief in a person's own label, by the noisy shares of their cell.

    The intruder knows and sees the same as in `hard_thresholding`, and believes in each label in
    proportion to its noisy count.

    Parameters
    ----------
    table, mechanism, weighted, draws, rng
        As for `hard_thresholding`.

    Returns
    -------
    HomogeneityRisk
        The risk, with its standard error if simulated; internal.
    """
    noise = round_noise(mechanism)
    cells = distinct_cells(table)
    refuse_large(int(cells.sizes.max()))
    if draws is not None:
        return _simulate("soft thresholding", cells, noise, _belief_in_own, weighted, draws, rng)
    return _risk("soft thresholding", cells, _mean_belief(cells, noise), weighted)


def _probability_named(counts: IntArray, noise: RoundedNoise) -> float:
    """Return Σ_k n_k/n P(k is named), where one of m largest is named with probability 1/m.

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
    """Return P(noise = k) and P(noise < k), also beyond the tabulated range."""
    inside = np.clip(k + noise.reach, 0, len(noise.at) - 1)
    beyond = k > noise.reach
    at = np.where(beyond | (k < -noise.reach), 0.0, noise.at[inside])
    return at, np.where(beyond, 1.0, noise.below[inside])


def _mean_belief(cells: DistinctCells, noise: RoundedNoise) -> FloatArray:
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

    The sums over X > 0 for a count follow from those for the count below: shift by one and add X = 1.
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
            at_one = _shifted(noise, np.array([1 - count]))[0][0]
            rest, mean = factor * (rest + at_one), factor * (mean + rest + at_one)
        before = int(value)
        zero = _shifted(noise, np.array([1 - before]))[1][0]
        empty[:, number], moment[:, number] = zero + rest, s * mean
    return empty, moment


def _names_own(values: IntArray, shares: FloatArray) -> FloatArray:
    best = (values == values.max(axis=1, keepdims=True)) & (values > 0)
    return np.asarray((best * shares).sum(axis=1) / np.maximum(best.sum(axis=1), 1))


def _belief_in_own(values: IntArray, shares: FloatArray) -> FloatArray:
    return np.asarray((values * shares).sum(axis=1) / np.maximum(values.sum(axis=1), 1))


def _simulate(
    name: str,
    cells: DistinctCells,
    noise: RoundedNoise,
    disclosure: _Disclosure,
    weighted: bool,
    draws: int,
    rng: BitSource | None,
) -> HomogeneityRisk:
    if rng is None:
        raise InputError("rng: a simulation needs random numbers; pass rng=Seeded(1)")
    if isinstance(draws, bool) or not isinstance(draws, int) or draws < 2:
        raise InputError(f"draws: {draws} is not allowed; give 2 or more")
    means, variances = np.empty(len(cells.counts)), np.empty(len(cells.counts))
    for number, (counts, shares) in enumerate(zip(cells.counts, cells.shares, strict=True)):
        samples = noise.sample(draws * len(counts), rng=rng).reshape(draws, -1)
        each = disclosure(np.maximum(counts + samples, 0), shares)
        means[number], variances[number] = each.mean(), each.var(ddof=1) / draws
    weights = cells.weights[:, int(weighted)]
    return _risk(name, cells, means, weighted, error=math.sqrt(weights**2 @ variances))


def _risk(
    name: str, cells: DistinctCells, each: FloatArray, weighted: bool, error: float | None = None
) -> HomogeneityRisk:
    value = min(1.0, float(each @ cells.weights[:, int(weighted)]))
    return HomogeneityRisk(
        measure=f"{name} risk",
        value=value,
        standard_error=error,
        audience="internal",
        cells=np.clip(each, 0.0, 1.0)[cells.place],
    )
