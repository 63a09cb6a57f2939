"""Totals first: what a unit and its parts measured of its total, fitted to the parent's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from countveil.measure.measurement import Measured
from countveil.numerics import FloatArray
from countveil.postprocess.certificate import Certificate, natural_residual
from countveil.postprocess.least_squares import Observations
from countveil.schema.geography import Geography
from countveil.schema.plan import Plan
from countveil.schema.workload import TOTAL

_VALUES = 4_000_000  # measurements held at a time


@dataclass(frozen=True, eq=False, slots=True)
class MeasuredTotals:
    """An unbiased estimate of each unit's total, and its variance."""

    estimate: FloatArray
    variance: FloatArray

    def slice(self, start: int, stop: int) -> MeasuredTotals:
        """Return those of units start … stop - 1."""
        return MeasuredTotals(self.estimate[start:stop], self.variance[start:stop])


def looks_below(plan: Plan, level: str) -> bool:
    """Whether a level's totals come first, from the units and from their parts."""
    passes = plan.passes[level]
    return passes.look_below and any(query.name == TOTAL for query in passes.first)


def measured_totals(
    measurements: Measured, plan: Plan, geography: Geography, visited: Sequence[str], level: str
) -> MeasuredTotals | None:
    """Return what a level and those below it, as far as they look below, measured of its totals.

    Two independent estimates, a unit's own and the sum of its parts', are weighed by their precision:
    the upward pass of generalised least squares on a tree.
    """
    own = _own(measurements, geography, level)
    index = visited.index(level)
    if not looks_below(plan, level) or index + 1 == len(visited):
        return own
    below = visited[index + 1]
    parts = measured_totals(measurements, plan, geography, visited, below)
    if parts is None:
        return own
    units, parents = geography.units(level), geography.ancestors(below, level)
    together = np.asarray(np.bincount(parents, parts.estimate, units), float)
    variance = np.asarray(np.bincount(parents, parts.variance, units), float)
    if own is None:
        return MeasuredTotals(together, variance)
    precision = 1.0 / own.variance + 1.0 / variance
    estimate = (own.estimate / own.variance + together / variance) / precision
    return MeasuredTotals(estimate, 1.0 / precision)


def _own(measurements: Measured, geography: Geography, level: str) -> MeasuredTotals | None:
    """Combine the sums of a level's queries that count everyone; None if there is none."""
    observed = Observations.of(measurements, level)
    scalars = sum(query.cells for query in observed.queries)
    weight = np.zeros(scalars)
    precision = 0.0
    for query, offset, per_cell in zip(
        observed.queries, observed.offsets, observed.weights, strict=True
    ):
        if query.complete:
            weight[offset : offset + query.cells] = per_cell / query.cells
            precision += per_cell / query.cells
    if precision == 0.0:
        return None
    units = geography.units(level)
    estimate = np.empty(units)
    step = max(1, _VALUES // scalars)
    for start in range(0, units, step):
        stop = min(start + step, units)
        values = measurements.units(level, start, stop)
        estimate[start:stop] = values @ weight / precision
    return MeasuredTotals(estimate, np.full(units, 1.0 / precision))


def fit(
    measured: MeasuredTotals, total: float, lower: FloatArray, upper: FloatArray
) -> tuple[FloatArray, Certificate]:
    """Return the t that minimises Σ (t − x)² / 2v with Σ t = total and lower ≤ t ≤ upper, certified.

    t = clip(x − v θ, lower, upper) for the one θ at which it adds up; Σ t falls along θ in straight
    pieces, so θ lies between two neighbouring corners and is found exactly.
    """
    x, v = measured.estimate, measured.variance
    finite = np.isfinite(upper)
    corners = np.sort(np.concatenate([(x - lower) / v, ((x - upper) / v)[finite]]))

    def at(theta: float) -> FloatArray:
        return np.clip(x - v * theta, lower, upper)

    low, high = 0, len(corners)  # Σ t ≥ total at corners before `low`, below it from `high` on
    while low < high:
        middle = (low + high) // 2
        if at(corners[middle]).sum() >= total:
            low = middle + 1
        else:
            high = middle
    theta = corners[max(low - 1, 0)]
    t = at(theta)
    between = corners[low] if low < len(corners) else theta
    inside = (x - v * 0.5 * (theta + between) > lower) & (x - v * 0.5 * (theta + between) < upper)
    if low == 0:  # every total is above its lower bound, and those without an upper one move
        inside = ~finite
    if inside.any():
        theta += (t.sum() - total) / v[inside].sum()
        t = at(theta)
    return t, _certify(measured, t, theta, total, lower, upper)


def _certify(
    measured: MeasuredTotals,
    t: FloatArray,
    theta: float,
    total: float,
    lower: FloatArray,
    upper: FloatArray,
) -> Certificate:
    scale = max(1.0, total)
    reduced = (t - measured.estimate) / measured.variance + theta
    # At an upper bound the gradient may point up; what is left there is taken by that bound.
    reduced = np.where(t >= upper, np.maximum(reduced, 0.0), reduced)
    terms = np.maximum(np.abs(t), np.abs(measured.estimate)) / measured.variance
    steep = max(float(terms.max(initial=0.0)), abs(theta), 1e-300)
    open_ = np.ones(t.shape, bool)
    residual = natural_residual(t - lower, reduced, open_, scale, steep)
    gap = abs(float(t.sum()) - total)
    objective = float((0.5 * (t - measured.estimate) ** 2 / measured.variance).sum())
    return Certificate(max(residual, gap / scale), gap, objective, 1, 0)
