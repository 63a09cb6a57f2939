"""The error to expect of a count, from the plan and its places alone, before anything is spent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from countveil.base.numerics import FloatArray, IntArray
from countveil.errors import InputError
from countveil.noise.law import Mechanism
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan
from countveil.plan.workload import TOTAL, Query
from countveil.tree.observed_levels import Observed
from countveil.tree.query_errors import KindErrors, errors_of_queries
from countveil.tree.tree_shape import Tree, tree_of

_REACH = 40  # beyond this many standard deviations no mass is left in double precision
_POINTS = 1000  # enough lattice points per standard deviation
_BASES = {
    "tree": "the measurements and invariants of all levels",
    "level": "the measurements of its level alone",
}


@dataclass(frozen=True, slots=True)
class ExpectedError:
    """The error of one cell of one query, over the units of a level.

    Attributes
    ----------
    level, query : str
        What is counted.
    cells : int
        The number of cells of the query.
    standard_deviation, absolute_error : float or None
        The standard deviation and the mean absolute value of the cell's own noise, exact; None if the
        query is not measured.
    standard_error : float or None
        That of the best unbiased estimate from all measurements and invariants of the whole tree: the
        root mean square over the units, for the kind of cell where it is largest. Published counts
        are also never negative, which brings small ones closer. None if measurements do not determine
        the cell, or if there are too many kinds of cells to try them all.
    smallest_standard_error, largest_standard_error : float or None
        Over all units and kinds of cells. Cells differ if a recode has groups of unequal size, units
        by how many others there are around and below them.
    overall_standard_error : float or None
        The root mean square over all units and cells of the query.
    as_counted : bool
        Whether an invariant publishes this count exactly.
    basis : {"tree", "level"}
        What the standard errors use: the whole tree, or, without places, the measurements of the level
        alone.

    """

    level: str
    query: str
    cells: int
    standard_deviation: float | None
    absolute_error: float | None
    standard_error: float | None
    smallest_standard_error: float | None
    largest_standard_error: float | None
    overall_standard_error: float | None
    as_counted: bool
    basis: Literal["tree", "level"] = "level"

    @property
    def basis_in_words(self) -> str:
        """What the standard errors are of, for every place that shows them."""
        return f"the best unbiased estimate, from {_BASES[self.basis]}"

    @property
    def combined_absolute_error(self) -> float | None:
        """The mean absolute error of the estimate, approximately: as if it were normal."""
        return None if self.standard_error is None else math.sqrt(2 / math.pi) * self.standard_error


def expected_error(
    plan: Plan,
    queries: Sequence[str] | None = None,
    *,
    geography: Geography | None = None,
    alone: bool = False,
) -> tuple[ExpectedError, ...]:
    """Return the error to expect of each query at each measured level, without reading a record.

    Parameters
    ----------
    plan : Plan
        A plan with a budget.
    queries : sequence of str, optional
        Names of queries; TOTAL and all measured queries by default.
    geography : Geography, optional
        The places; by default those of the plan's crosswalk, if it has one.
    alone : bool
        Whether to use the measurements of each level alone, as without places.

    Returns
    -------
    tuple of ExpectedError
        Level by level.

    """
    places = geography
    if places is None and not alone:
        places = plan.places()
    targets = {
        level: [
            query
            for query in dict.fromkeys(
                [plan.schema.query(TOTAL), *(item.query for item in plan.at(level))]
            )
            if queries is None or query.name in queries
        ]
        for level in plan.measured_levels
    }
    if places is None:
        return _alone(plan, targets)
    tree = tree_of(places)
    every = list(dict.fromkeys(query for level in targets.values() for query in level))
    observed = _observed(plan)
    errors: Mapping[Query, KindErrors | None] = dict.fromkeys(every)
    if observed is not None:
        errors = errors_of_queries(observed, tree, every)
    result = []
    for level, requests in targets.items():
        depth = places.index(level)
        here = {
            query: (at.levels[depth], at.cells)
            for query in requests
            if (at := errors[query]) is not None
        }
        units = np.bincount(tree.positions[depth].of_unit).astype(float)
        result += _at(plan, level, requests, here, units, "tree")
    return tuple(result)


def as_counted(plan: Plan, level: str, query: Query) -> bool:
    """Whether an invariant of this level, or of one below, fixes a query."""
    below = plan.levels[plan.levels.index(level) :]
    return any(
        item.query.name == query.name or (query.name == TOTAL and item.query.complete)
        for item in plan.invariants
        if item.level in below
    )


def mean_absolute_noise(noise: Mechanism) -> float:
    """Return E|noise| = 2 Σ k P(k), to about 14 digits.

    A wide law is summed over every h-th integer. Each sum differs from the integral by the first
    Euler-Maclaurin term, so the two differ by (h² - 1) P(0)/12; the next term is below 1e-14.
    """
    deviation = math.sqrt(noise.variance)
    step = max(1, math.floor(deviation / _POINTS))
    k = step * np.arange(1, math.ceil(_REACH * (deviation + 1) / step) + 1)
    at_zero = math.exp(float(noise.log_pmf(0)))
    half = step * float((k * np.exp(noise.log_pmf(k))).sum()) + (step**2 - 1) * at_zero / 12
    return 2 * half


def _observed(plan: Plan) -> Observed | None:
    """Return what a release by a plan will observe; None if that is too large for the algebra."""
    try:
        return Observed.planned(plan)
    except InputError:
        return None


def _alone(plan: Plan, targets: Mapping[str, Sequence[Query]]) -> tuple[ExpectedError, ...]:
    """Return the errors of each level as if it were the only one.

    Levels with the same queries and the same noise are solved once.
    """
    observed = _observed(plan)
    known: dict[tuple[tuple[str, float], ...], dict[Query, tuple[FloatArray, IntArray]]] = {}
    result = []
    for level, queries in targets.items():
        key = tuple((item.query.name, item.mechanism.variance) for item in plan.at(level))
        if key not in known:
            unit = Geography((level,), (pa.array(["unit"]),), (np.zeros(1, np.int64),))
            errors: Mapping[Query, KindErrors | None] = {}
            if observed is not None:
                errors = errors_of_queries(observed.of_level(level), Tree.of(unit), queries)
            known[key] = {
                query: (at.levels[0], at.cells) for query, at in errors.items() if at is not None
            }
        result += _at(plan, level, queries, known[key], np.ones(1), "level")
    return tuple(result)


def _at(
    plan: Plan,
    level: str,
    queries: Sequence[Query],
    errors: Mapping[Query, tuple[FloatArray, IntArray]],
    units: FloatArray,
    basis: Literal["tree", "level"],
) -> list[ExpectedError]:
    """Describe the errors of a level.

    `errors` has them by position and kind of cell, with the cells of each kind; `units` has the units
    at each position.
    """
    noises: dict[str, Mechanism] = {item.query.name: item.mechanism for item in plan.at(level)}
    result = []
    for query in queries:
        noise, by_position = noises.get(query.name), errors.get(query)
        typical = smallest = largest = overall = None
        if by_position is not None and np.isfinite(by_position[0]).all():
            error, cells = by_position
            squares = np.average(error**2, axis=0, weights=units)
            typical, overall = math.sqrt(squares.max()), math.sqrt(squares @ cells / cells.sum())
            smallest, largest = float(error.min()), float(error.max())
        result.append(
            ExpectedError(
                level,
                query.name,
                query.cells,
                None if noise is None else math.sqrt(noise.variance),
                None if noise is None else mean_absolute_noise(noise),
                typical,
                smallest,
                largest,
                overall,
                as_counted(plan, level, query),
                basis,
            )
        )
    return result
