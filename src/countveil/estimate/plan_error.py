"""The error to expect of a count, from the plan alone, before anything is spent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product

import numpy as np
from numpy.typing import NDArray

from countveil.base.numerics import FloatArray, IntArray
from countveil.noise.law import Mechanism
from countveil.plan.plans import Plan
from countveil.plan.workload import TOTAL, Query, Schema

_REACH = 40  # beyond this many standard deviations no mass is left in double precision
_POINTS = 1000  # enough lattice points per standard deviation
_CONVERGED = 1e-12
_MOST_STEPS = 100  # times the number of classes
_MOST_WORK = 10_000_000  # kinds of cells × classes × queries: a few seconds
_MOST_WORK_TOGETHER = 50_000_000  # the same for all queries of a plan: about half a minute
_OVERHEAD = 50  # the fixed cost of one query in a system, in classes
_OUTSIDE = 1e-9
_LEAST_VARIANCE = 1e-22  # of the largest: noise that is almost certainly 0 counts as this much


@dataclass(frozen=True, slots=True)
class ExpectedError:
    """The error of one cell of one query, in any unit of the level.

    Attributes
    ----------
    level, query : str
        What is counted.
    cells : int
        The number of cells of the query.
    standard_deviation, absolute_error : float or None
        The standard deviation and the mean absolute value of the cell's own noise, exact; None if the
        query is not measured.
    standard_error, smallest_standard_error : float or None
        That of the weighted least-squares estimate from all queries of the level. It does not use other
        levels, invariants, structural zeros, or that counts are never negative; released counts do, and
        are usually closer. Cells differ if a recode has groups of unequal size: these are the largest
        and the smallest. None if the queries of the level do not determine the cell, or if there are
        too many kinds of cells or queries to try them all.
    as_counted : bool
        Whether an invariant publishes this count exactly.

    """

    level: str
    query: str
    cells: int
    standard_deviation: float | None
    absolute_error: float | None
    standard_error: float | None
    smallest_standard_error: float | None
    as_counted: bool

    @property
    def combined_absolute_error(self) -> float | None:
        """The mean absolute error after least squares, approximately: as if it were normal."""
        return None if self.standard_error is None else math.sqrt(2 / math.pi) * self.standard_error


def expected_error(plan: Plan, queries: Sequence[str] | None = None) -> tuple[ExpectedError, ...]:
    """Return the error to expect of each query at each measured level, without reading a record.

    Parameters
    ----------
    plan : Plan
        A plan with a budget.
    queries : sequence of str, optional
        Names of queries; TOTAL and all measured queries by default.

    Returns
    -------
    tuple of ExpectedError
        Level by level.

    """
    combined = _combined_errors(plan, queries)
    return tuple(item for level in combined for item in _at(plan, level, combined[level]))


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


def _combined_errors(
    plan: Plan, queries: Sequence[str] | None
) -> dict[str, dict[Query, list[float]]]:
    """Return the standard errors after least squares for each measured level and query.

    Levels with the same queries and the same noise are solved once.
    """
    strategies: dict[tuple[object, ...], _Strategy] = {}
    at_level: dict[str, tuple[object, ...]] = {}
    for level in plan.measured_levels:
        measured = [item.query for item in plan.at(level)]
        variances = [item.mechanism.variance for item in plan.at(level)]
        key = (*(query.name for query in measured), *variances)
        if key not in strategies:
            strategies[key] = _Strategy.of(plan.schema, measured, variances)
        at_level[level] = key
    targets = {
        level: [
            query
            for query in dict.fromkeys(
                [plan.schema.query(TOTAL), *(item.query for item in plan.at(level))]
            )
            if queries is None or query.name in queries
        ]
        for level in at_level
    }
    by_key = {key: targets[level] for level, key in at_level.items()}
    work = sum(strategies[key].work(query) for key in by_key for query in by_key[key])
    errors = {
        key: {
            query: strategies[key].standard_errors(query) if work <= _MOST_WORK_TOGETHER else []
            for query in by_key[key]
        }
        for key in by_key
    }
    return {level: errors[key] for level, key in at_level.items()}


def _at(plan: Plan, level: str, combined: Mapping[Query, list[float]]) -> Iterator[ExpectedError]:
    noises = {item.query.name: item.mechanism for item in plan.at(level)}
    for query, errors in combined.items():
        noise = noises.get(query.name)
        yield ExpectedError(
            level,
            query.name,
            query.cells,
            None if noise is None else math.sqrt(noise.variance),
            None if noise is None else mean_absolute_noise(noise),
            max(errors, default=None),
            min(errors, default=None),
            as_counted(plan, level, query),
        )


@dataclass(frozen=True, eq=False, slots=True)
class _Strategy:
    """The queries of a level: their weights, and how they look at each attribute.

    A = Σ w_k Q_kᵀQ_k does not change if categories that no recode tells apart (an atom) are exchanged.
    So A⁻¹q is the same in all cells of a class, which for each attribute is the category that q names,
    the rest of its atom, or another atom. Solving for one value per class is exact and small.
    """

    queries: tuple[Query, ...]
    weights: FloatArray
    axes: tuple[_AtomAxis, ...]

    @classmethod
    def of(cls, schema: Schema, queries: Sequence[Query], variances: Sequence[float]) -> _Strategy:
        """Return the strategy of a level, from the variance of each query's noise."""
        used = {name for query in queries for name, _ in query.labels}
        axes = []
        for attribute in schema.attributes:
            groups = {
                recode.name: np.array(recode.group_of(attribute))
                for recode in schema.recodes
                if recode.of == attribute.name and recode.name in used
            }
            axes.append(_axis(attribute.name, len(attribute.categories), groups))
        floor = _LEAST_VARIANCE * (max(variances) or 1.0)
        # A*B and B*A have the same cells: their weights add up.
        together: dict[frozenset[str], Query] = {}
        weights: dict[frozenset[str], float] = {}
        for query, variance in zip(queries, variances, strict=True):
            views = _views(query)
            together.setdefault(views, query)
            weights[views] = weights.get(views, 0.0) + 1 / max(variance, floor)
        return cls(tuple(together.values()), np.array(list(weights.values())), tuple(axes))

    def work(self, query: Query) -> int:
        """Return the work that the standard errors of a query take, in classes."""
        kinds = [axis.kinds(axis.view(query)) for axis in self.axes]
        classes = math.prod(max(len(kind.sizes) for kind in along) for along in kinds)
        if math.prod(map(len, kinds)) * classes * len(self.queries) > _MOST_WORK:
            return 0  # it will be left out
        return math.prod(map(len, kinds)) * (classes + _OVERHEAD) * len(self.queries)

    def standard_errors(self, query: Query) -> list[float]:
        """Return the standard error of one cell of each kind; [] if it cannot be computed."""
        kinds = [axis.kinds(axis.view(query)) for axis in self.axes]
        classes = math.prod(max(len(kind.sizes) for kind in along) for along in kinds)
        if math.prod(map(len, kinds)) * classes * len(self.queries) > _MOST_WORK:
            return []
        # A measured query is in the span of the rows, and TOTAL is if some query counts everyone.
        measured = {_views(item) for item in self.queries}
        spanned = _views(query) in measured or any(item.complete for item in self.queries)
        variances = []
        for chosen in product(*kinds):
            system = self._system(chosen)
            variance = system.variance() if spanned or system.determined() else None
            if variance is None:
                return []
            variances.append(variance)
        return [math.sqrt(variance) for variance in variances]

    def _system(self, classes: tuple[_Classes, ...]) -> _System:
        shape = tuple(len(item.sizes) for item in classes)
        places, rows, offset = [], [], 0
        for query, weight in zip(self.queries, self.weights, strict=True):
            seen = [
                axis.seen(axis.view(query), item)
                for axis, item in zip(self.axes, classes, strict=True)
            ]
            labels = np.zeros(shape, np.int64)
            omitted = np.zeros(shape, bool)
            for label, grid in zip((label for label, _ in seen), _grids(shape), strict=True):
                labels = labels * (int(label.max()) + 1) + label[grid]
                omitted |= label[grid] < 0
            labels = np.where(omitted, 0, labels)
            sizes = _outer([size for _, size in seen])
            places.append(offset + labels.reshape(-1))
            rows.append(np.where(omitted.reshape(-1), 0.0, np.sqrt(weight * sizes)))
            offset += int(labels.max()) + 1
        cells = _outer([item.sizes for item in classes])
        chosen = _outer([item.chosen.astype(float) for item in classes])
        return _System(np.stack(places), np.stack(rows), chosen * np.sqrt(cells))


@dataclass(frozen=True, eq=False, slots=True)
class _Classes:
    """Classes of categories of one attribute: how many each has, of which atom, and which are q's."""

    sizes: FloatArray
    atoms: IntArray
    chosen: NDArray[np.bool_]


@dataclass(frozen=True, eq=False, slots=True)
class _AtomAxis:
    """One attribute: the size of each atom, and the group of each atom in each recode."""

    name: str
    sizes: FloatArray
    groups: dict[str, IntArray]

    def view(self, query: Query) -> str | None:
        """Return how a query looks at the attribute: through itself, a recode, or not at all (None)."""
        return next((n for n, _ in query.labels if n == self.name or n in self.groups), None)

    def kinds(self, view: str | None) -> list[_Classes]:
        """Return one set of classes for each kind of category or group that a query may name."""
        atoms = np.arange(len(self.sizes))
        if view is None:
            return [_Classes(self.sizes, atoms, np.ones(len(atoms), bool))]
        if view != self.name:
            group = self.groups[view]
            masks = [group == number for number in range(int(group.max()) + 1)]
            kinds = [_Classes(self.sizes, atoms, mask) for mask in masks]
            return _distinct([float(self.sizes[mask].sum()) for mask in masks], kinds, self.groups)
        omitted = [any(group[atom] < 0 for group in self.groups.values()) for atom in atoms]
        kinds = [_apart(self.sizes, atom) for atom in range(len(atoms))]
        return _distinct(list(zip(self.sizes.tolist(), omitted, strict=True)), kinds, self.groups)

    def seen(self, view: str | None, classes: _Classes) -> tuple[IntArray, FloatArray]:
        """Return how a query labels the classes, and how many categories of each it adds up."""
        if view is None:
            return np.zeros(len(classes.sizes), np.int64), classes.sizes
        if view == self.name:
            return np.arange(len(classes.sizes)), np.ones(len(classes.sizes))
        return self.groups[view][classes.atoms], classes.sizes


@dataclass(frozen=True, eq=False, slots=True)
class _System:
    """R with RᵀR similar to A on the classes, row by row, and q in the same coordinates.

    Class g adds rows[k, g] to row places[k, g].
    """

    places: IntArray
    rows: FloatArray
    target: FloatArray

    def variance(self) -> float | None:
        """Return qᵀA⁻¹q by conjugate gradients: Σ step × ‖residual‖² (Hestenes & Stiefel 1952).

        A has few distinct eigenvalues, and this takes that many steps, except for rounding. If no
        query tells all cells apart A is singular, which does not matter for a q in the span of its
        rows. None if it does not converge.
        """
        residual = direction = self.target
        square = first = float(residual @ residual)
        value = 0.0
        for _ in range(_MOST_STEPS * len(self.target)):
            if square <= _CONVERGED**2 * first:
                return value
            image = self._times(direction)
            step = square / float(direction @ image)
            value += step * square
            residual = residual - step * image
            before, square = square, float(residual @ residual)
            direction = residual + square / before * direction
        return None

    def determined(self) -> bool:
        """Whether q is a combination of the rows, whatever their weights."""
        matrix = np.zeros((int(self.places.max()) + 1, len(self.target)))
        for places, row in zip(self.places, self.rows, strict=True):
            largest = float(row.max(initial=0.0))
            matrix[places, np.arange(len(row))] += row / largest if largest else row
        fitted = matrix.T @ np.linalg.lstsq(matrix.T, self.target, rcond=None)[0]
        apart = float(np.linalg.norm(fitted - self.target))
        return apart <= _OUTSIDE * float(np.linalg.norm(self.target))

    def _times(self, direction: FloatArray) -> FloatArray:
        sums = np.bincount(self.places.reshape(-1), (self.rows * direction).reshape(-1))
        product: FloatArray = (self.rows * sums[self.places]).sum(axis=0)
        return product


def _views(query: Query) -> frozenset[str]:
    """Return the attributes and recodes of a query, without their order."""
    return frozenset(name for name, _ in query.labels)


def _axis(name: str, categories: int, groups: dict[str, IntArray]) -> _AtomAxis:
    """Return an attribute with the categories that no recode tells apart gathered into atoms."""
    if not groups:
        return _AtomAxis(name, np.array([float(categories)]), {})
    signatures, sizes = np.unique(np.stack(list(groups.values())), axis=1, return_counts=True)
    return _AtomAxis(name, sizes.astype(float), dict(zip(groups, signatures, strict=True)))


def _apart(sizes: FloatArray, atom: int) -> _Classes:
    """Return classes in which one category of an atom is separate from the rest."""
    atoms = np.concatenate(([atom], np.arange(len(sizes))))
    left = np.concatenate(([1.0], sizes))
    left[1 + atom] -= 1
    kept = left > 0
    return _Classes(left[kept], atoms[kept], (np.arange(len(left)) == 0)[kept])


def _distinct(
    keys: Sequence[object], kinds: list[_Classes], groups: dict[str, IntArray]
) -> list[_Classes]:
    """Keep one kind of each size: groups of one recode that are equally large can be exchanged.

    With several recodes they may not be, and all are kept.
    """
    if len(groups) > 1:
        return kinds
    return list(dict(zip(keys, kinds, strict=True)).values())


def _grids(shape: tuple[int, ...]) -> Sequence[IntArray]:
    return np.indices(shape, sparse=True)


def _outer(factors: Sequence[FloatArray]) -> FloatArray:
    """Return the product of one factor per attribute, for all combinations."""
    return reduce(lambda one, other: np.multiply.outer(one, other).reshape(-1), factors, np.ones(1))
