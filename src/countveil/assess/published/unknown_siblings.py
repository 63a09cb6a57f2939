"""What measurements say to someone who has a prior on other units: summed over all their counts.

Each other unit has a Poisson number of people in the target's cell. The intruder counts as knowing the
other cells there, which is what makes the sum exact; it changes nothing where every query counts single
cells, and only adds to what they learn elsewhere.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import poisson

from countveil.assess.published.many_releases import SimulatedReleases, answers_of
from countveil.assess.published.two_databases import TwoDatabases
from countveil.base.numerics import FloatArray, IntArray

_BEYOND = 1e-13  # probability of a count that is left out
_MOST_UNITS, _MOST_COUNTS = 500, 600


def can_be_summed(two: TwoDatabases) -> bool:
    """Whether the counts of all other units are few enough to be summed over."""
    around = two.units_of_path()[0][1]
    counts = sum(_supports(two, around).values())
    return len(around) <= _MOST_UNITS and counts <= _MOST_COUNTS


def log_ratio(two: TwoDatabases, there: IntArray, releases: SimulatedReleases) -> FloatArray:
    """Return log P(measurements | target there)/P(measurements | not), one for each release."""
    plan, geography = two.plan, two.geography
    cell, rows = two.target.cell, plan.rows_per_person
    lowest, draws = plan.levels[-1], len(there)
    around = two.units_of_path()[0][1]
    # The law of each unit's count; of those with the target, for both hypotheses: 2 × draws × counts.
    laws: dict[int, FloatArray] = {}
    for unit, most in _supports(two, around).items():
        if unit == two.unit:
            law = np.zeros((2, 1, most + 1))
            law[[0, 1], 0, [most, most - rows]] = 1.0
        elif two.known[unit]:
            law = np.zeros((1, 1, most + 1))
            law[0, 0, most] = 1.0
        else:
            law = poisson.pmf(np.arange(most + 1), two.counts[unit, cell])[None, None]
        laws[unit] = law
    scale = np.zeros((1, draws))
    for depth in range(len(plan.levels) - 1, -1, -1):
        level = plan.levels[depth]
        parents = geography.ancestors(lowest, level)
        for unit, law in laws.items():
            people = there[:, around[parents[around] == unit]].sum(axis=1)
            likely = _likelihood(two, releases, level, unit, people, law.shape[2])
            both = law * np.exp(likely - likely.max(axis=1, keepdims=True))
            peak = np.maximum(both.max(axis=(0, 2), keepdims=True), 1e-300)
            scale = scale + np.log(peak[0, :, 0]) + likely.max(axis=1)
            laws[unit] = both / peak
        if depth:
            above: dict[int, FloatArray] = {}
            for unit, law in laws.items():
                parent = int(geography.parents[depth][unit])
                above[parent] = law if parent not in above else _added(above[parent], law)
            laws = above
    (law,) = laws.values()
    with np.errstate(divide="ignore"):
        first, second = np.log(law.sum(axis=2))
    return np.asarray(first - second)


def _supports(two: TwoDatabases, around: IntArray) -> dict[int, int]:
    """Return the largest count of the target's cell that each lowest unit may have."""
    means = two.counts[around, two.target.cell].astype(float)
    most = poisson.isf(_BEYOND, means).astype(int) if len(means) else means.astype(int)
    return {
        int(unit): int(two.counts[unit, two.target.cell]) if two.known[unit] else int(number)
        for unit, number in zip(around, most, strict=True)
    }


def _likelihood(
    two: TwoDatabases,
    releases: SimulatedReleases,
    level: str,
    unit: int,
    people: IntArray,
    size: int,
) -> FloatArray:
    """Return the log likelihood of 0, 1, … people in the target's cell of a unit: draws × counts."""
    counts = np.arange(size)
    cell = two.target.cell
    result = np.zeros((len(people), size))
    offset = 0
    for item in two.plan.at(level):
        at = int(item.query.cells_at(cell))
        if at >= 0:
            rest = answers_of(item.query, people)[:, at] - people[:, cell]
            noise = releases.values[level][:, unit, offset + at] - rest
            result += item.mechanism.log_pmf(noise[:, None] - counts)
        offset += item.query.cells
    for fact in two.plan.invariants:
        at = int(fact.query.cells_at(cell))
        if fact.level == level and at >= 0:
            rest = answers_of(fact.query, people)[:, at] - people[:, cell]
            exact = releases.exact[level, fact.query.name][:, unit, at] - rest
            result = np.where(exact[:, None] == counts, result, -np.inf)
    return result


def _added(one: FloatArray, other: FloatArray) -> FloatArray:
    """Return the law of a sum of independent counts, draw by draw."""
    if one.shape[2] > other.shape[2]:
        one, other = other, one
    shape = np.broadcast_shapes(one.shape[:2], other.shape[:2])
    total = np.zeros((*shape, one.shape[2] + other.shape[2] - 1))
    for number in range(one.shape[2]):
        total[:, :, number : number + other.shape[2]] += one[:, :, number, None] * other
    return total
