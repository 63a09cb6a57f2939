"""Risk of the real TopDown output: two databases that differ in the target, released many times.

Both get the same noise (common random numbers), so that only the target differs between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from countveil.assess.intruder.one_level import marginal_risk
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.risk import ConfidenceInterval, Risk
from countveil.base.numerics import Array, FloatArray, IntArray
from countveil.base.randomness import BitSource
from countveil.errors import InputError
from countveil.noise.law import Law
from countveil.plan.plans import Plan
from countveil.plan.workload import Query
from countveil.postprocess.facts.fact_bounds import Bounds
from countveil.postprocess.facts.family_facts import LevelFacts
from countveil.postprocess.family import Family, solve
from countveil.postprocess.family_information import LevelInformation, Observations
from countveil.postprocess.topdown import kept_queries

_Z = 1.959963984540054  # quantile for a 95 % interval
_GROUPS, _BLOCKS = 6, 20

Frequencies = dict[tuple[int, int], int]


@dataclass(frozen=True, slots=True)
class ReleasedRisk:
    """The risk of a cell that TopDown releases, and that of the measurements behind it.

    Attributes
    ----------
    released : Risk
        The marginal risk of the released counts, simulated.
    measured : Risk
        The marginal risk of the measurements, exact.
    draws : int
        How many releases were simulated.
    """

    released: Risk
    measured: Risk
    draws: int

    @property
    def interval(self) -> ConfidenceInterval:
        """A 95 % confidence interval of the released risk."""
        assert self.released.standard_error is not None
        value, reach = float(self.released.value), _Z * self.released.standard_error
        return ConfidenceInterval(value - reach, value + reach)

    @property
    def retained(self) -> Retained:
        """The share of the measurements' risk above 1 that the release keeps, with a 95 % interval."""
        gain = float(self.measured.value) - 1
        values = (float(self.released.value), *self.interval)
        return Retained(*((value - 1) / gain for value in values))


class Retained(NamedTuple):
    """How much of what measurements reveal survives post-processing, with a 95 % interval.

    1 where post-processing can be inverted, 0 where its output reveals nothing.
    """

    value: float
    low: float
    high: float


def top_down_risk(
    plan: Plan,
    *,
    counts: Array,
    cell: int,
    prior: float,
    level: str | None = None,
    draws: int = 2_000,
    rng: BitSource,
    progress: Callable[[int, int], None] = lambda done, all_: None,
) -> ReleasedRisk:
    """Return the risk of the target's cell as TopDown releases it, by simulation.

    The intruder knows everyone else in the unit. They see the estimates of their target's cell in the
    unit and in its parent, and learned how these are distributed by the same simulation: half of the
    draws teach them, the other half test them, and vice versa. The number is their expected posterior
    over their prior.

    Parameters
    ----------
    plan : Plan
        The plan that releases the counts. What it publishes exactly at the two levels is met; files of
        constraints are not read.
    counts : array, units × cells
        Made-up or confidential histograms of the units under one parent, the target's unit first.
    cell : int
        The cell of the full table in which the target is counted.
    prior : float
        The intruder's probability that the target is there.
    level : str, optional
        The level of the units; the plan's judged level by default.
    draws : int
        How many releases are simulated.
    rng : BitSource
        The randomness of the simulation.
    progress : callable
        Called with the draws completed and all draws.

    Returns
    -------
    ReleasedRisk
        The risk of the release with its standard error, and that of the measurements.
    """
    table = np.asarray(counts, np.int64)
    level = plan.judged_level if level is None else level
    measured = plan.measured_levels
    if level not in measured or measured.index(level) == 0:
        raise InputError(
            f"level: {level} has no measured level above it; choose from {', '.join(measured[1:])}"
        )
    above = measured[measured.index(level) - 1]
    if table.ndim != 2 or table.shape[1] != plan.schema.cells or (table < 0).any():
        raise InputError(
            f"counts: they must be units × {plan.schema.cells:,} cells of the full table, none negative"
        )
    if len(table) < 2 or not 0 <= cell < plan.schema.cells or table[0, cell] < plan.rows_per_person:
        raise InputError(
            "counts: give two units or more, with the target counted in `cell` of the first"
        )
    if draws < 100:
        raise InputError(f"draws: {draws} is not allowed; use at least 100")
    without = table.copy()
    without[0, cell] -= plan.rows_per_person
    seen = np.empty((2, draws, 2), np.int64)
    for draw in range(draws):
        noises = [_noise(plan, above, 1, rng), _noise(plan, level, len(table), rng)]
        for number, histograms in enumerate((table, without)):
            seen[number, draw] = _released(plan, above, level, histograms, cell, noises)
        progress(draw + 1, draws)
    who = Intruder(prior=prior, rows=plan.rows_per_person)
    mean, error = _cross_fitted(seen, who)
    laws = _laws_of(plan, level, cell)
    released = Risk(
        "marginal risk",
        mean / prior,
        posterior=mean,
        standard_error=error / prior,
        intruder=who,
        noise=tuple(laws),
        level=level,
        attack="presence",
    )
    return ReleasedRisk(released, marginal_risk(laws, intruder=who), draws)


def _laws_of(plan: Plan, level: str, cell: int) -> list[Law]:
    """Return the noises of the counts of a level that hold the target."""
    return [item.mechanism for item in plan.at(level) if item.query.cells_at(cell) >= 0]


def _cross_fitted(seen: IntArray, who: Intruder) -> tuple[float, float]:
    """Return the intruder's expected posterior while the target is there, and its standard error.

    Half of the draws teach them which outputs speak for their target. By that the other half are put
    into groups, and the posterior is computed from the groups, which never reveal more than the outputs
    do. A jackknife over blocks of draws removes the bias of counting and gives the error.
    """
    draws = seen.shape[1]
    half = np.arange(draws) % 2 == 0
    counts = np.zeros((2, 2, _BLOCKS, _GROUPS))
    for fold, (teach, test) in enumerate(((half, ~half), (~half, half))):
        there, away = (_frequencies(seen[number, teach]) for number in (0, 1))

        def score(
            outcomes: IntArray, there: Frequencies = there, away: Frequencies = away
        ) -> FloatArray:
            keys = [(unit, parent) for unit, parent in outcomes.tolist()]
            odds = [(there.get(key, 0) + 0.5) / (away.get(key, 0) + 0.5) for key in keys]
            return np.log(odds)

        learned = np.concatenate([score(seen[number, teach]) for number in (0, 1)])
        edges = np.quantile(learned, np.arange(1, _GROUPS) / _GROUPS)
        block = np.arange(int(test.sum())) * _BLOCKS // int(test.sum())
        for number in (0, 1):
            group = np.searchsorted(edges, score(seen[number, test]), side="right")
            np.add.at(counts[fold, number], (block, group), 1)
    whole = _mean_posterior(counts.sum(axis=2), who)
    left_out = np.array(
        [_mean_posterior(np.delete(counts, at, axis=2).sum(axis=2), who) for at in range(_BLOCKS)]
    )
    value = _BLOCKS * whole - (_BLOCKS - 1) * float(left_out.mean())
    # The correction extrapolates and may leave [0, 1]; the nearest end is the better estimate.
    value = min(1.0, max(0.0, value))
    error = math.sqrt((_BLOCKS - 1) * float(left_out.var()))
    return value, error


def _mean_posterior(counts: FloatArray, who: Intruder) -> float:
    """Return Σ P(group | there) posterior(group), on average over the two halves."""
    shares = counts / counts.sum(axis=2, keepdims=True)
    there, away = who.prior * shares[:, 0], (1 - who.prior) * shares[:, 1]
    both = there + away
    posterior = np.divide(there, both, out=np.zeros_like(both), where=both > 0)
    return float((shares[:, 0] * posterior).sum(axis=1).mean())


def _frequencies(outcomes: IntArray) -> Frequencies:
    times: Frequencies = {}
    for unit, parent in outcomes.tolist():
        times[unit, parent] = times.get((unit, parent), 0) + 1
    return times


def _noise(plan: Plan, level: str, units: int, rng: BitSource) -> list[IntArray]:
    return [
        item.mechanism.sample(units * item.query.cells, rng=rng).reshape(units, -1)
        for item in plan.at(level)
    ]


def _released(
    plan: Plan,
    above: str,
    level: str,
    histograms: IntArray,
    cell: int,
    noises: list[list[IntArray]],
) -> tuple[int, int]:
    """Return the estimates of a cell, in the first unit and in the parent."""
    cells = np.flatnonzero(plan.possible)
    lower = _measured(plan, level, histograms, noises[1])
    whole = histograms.sum(axis=0, keepdims=True)
    upper = _measured(plan, above, whole, noises[0])
    information = LevelInformation.of(upper.observed, cells, upper.values)
    if plan.information == "tree":
        information = _with_children(information, lower, cells)
    top = _family(plan, above, whole, information, cells, None)
    parent = solve(top, plan.passes[above]).counts[0]
    support = parent > 0
    if not support.any():
        return 0, 0
    inside = cells[support]
    information = LevelInformation.of(lower.observed, inside, lower.values)
    bottom = _family(plan, level, histograms, information, inside, parent[support])
    estimates = solve(bottom, plan.passes[level]).counts
    where = np.flatnonzero(cells[support] == cell)
    of_parent = int(parent[cells == cell].sum())
    return (int(estimates[0, where[0]]) if len(where) else 0), of_parent


class _Measured(NamedTuple):
    """The queries of a level, and their noisy values side by side: units × scalars."""

    observed: Observations
    values: IntArray


def _measured(plan: Plan, level: str, histograms: IntArray, noises: list[IntArray]) -> _Measured:
    queries = [item.query for item in plan.at(level)]
    observed = Observations.of_queries(queries, [i.mechanism.variance for i in plan.at(level)])
    values = [
        _answers(query, histograms) + noise for query, noise in zip(queries, noises, strict=True)
    ]
    return _Measured(observed, np.concatenate(values, axis=1))


def _with_children(own: LevelInformation, children: _Measured, cells: IntArray) -> LevelInformation:
    """Add what children that are alike say about their parent: the sums of what they measured.

    n children with A_c = A say (Σ A⁻¹)⁻¹ = A / n, at the sum of their values.
    """
    count, first = len(children.values), own.values.shape[1]
    places = children.observed.scalars_of(cells)
    return LevelInformation(
        np.vstack([own.places, np.where(places >= 0, places + first, -1)]),
        np.concatenate([own.weights, children.observed.weights / count]),
        np.hstack([own.values, children.values.sum(axis=0, keepdims=True)]),
    )


def _family(
    plan: Plan,
    level: str,
    histograms: IntArray,
    information: LevelInformation,
    cells: IntArray,
    parent: IntArray | None,
) -> Family:
    fixed = [item.query for item in plan.invariants if item.level == level]
    known = [_answers(query, histograms).astype(np.int32) for query in fixed]
    facts = LevelFacts(
        tuple(Bounds(query, exact, exact) for query, exact in zip(fixed, known, strict=True))
    )
    return Family(
        name=level,
        children=[str(number) for number in range(len(histograms))],
        cells=cells,
        parent=parent,
        information=information,
        limits=facts.limits(0, len(histograms), cells, parent),
        label=lambda some: f"{len(some)} cells",
        keep=kept_queries(plan, level),
    )


def _answers(query: Query, histograms: IntArray) -> IntArray:
    """Return the exact counts of a query: units × its cells."""
    place = query.cell_of
    counted = place >= 0
    exact = np.zeros((len(histograms), query.cells), np.int64)
    np.add.at(exact.T, place[counted], histograms[:, counted].T)
    return exact
