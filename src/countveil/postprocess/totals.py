"""Totals first: each unit's total, as it and the levels below measured it, fitted to the parent's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from countveil.base.numerics import FloatArray
from countveil.measure.measurements import Measured
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan
from countveil.plan.workload import TOTAL
from countveil.postprocess.certificate import Certificate, natural_residual
from countveil.postprocess.normal_equations import Observations

_VALUES = 4_000_000  # measurements in memory at a time


@dataclass(frozen=True, eq=False, slots=True)
class MeasuredTotals:
    """An unbiased estimate of each unit's total, and its variance."""

    estimate: FloatArray
    variance: FloatArray

    def slice(self, start: int, stop: int) -> MeasuredTotals:
        """Return the totals of units start … stop - 1."""
        return MeasuredTotals(self.estimate[start:stop], self.variance[start:stop])


def looks_below(plan: Plan, level: str) -> bool:
    """Whether a level fits its totals first, from its own measurements and those below."""
    passes = plan.passes[level]
    return passes.look_below and any(query.name == TOTAL for query in passes.first)


def measured_totals(
    measurements: Measured, plan: Plan, geography: Geography, visited: Sequence[str], level: str
) -> MeasuredTotals | None:
    """Return a level's totals as it, and the levels below that look below, measured them.

    A unit's own estimate and the sum of its children's are independent, and are weighted by their
    precision: the upward pass of generalised least squares on a tree. None if nothing measures them.
    """
    own = _own(measurements, geography, level)
    index = visited.index(level)
    if not looks_below(plan, level) or index + 1 == len(visited):
        return own
    below = visited[index + 1]
    children = measured_totals(measurements, plan, geography, visited, below)
    if children is None:
        return own
    units, parents = geography.units(level), geography.ancestors(below, level)
    summed = np.asarray(np.bincount(parents, children.estimate, units), float)
    variance = np.asarray(np.bincount(parents, children.variance, units), float)
    if own is None:
        return MeasuredTotals(summed, variance)
    precision = 1.0 / own.variance + 1.0 / variance
    estimate = (own.estimate / own.variance + summed / variance) / precision
    return MeasuredTotals(estimate, 1.0 / precision)


def _own(measurements: Measured, geography: Geography, level: str) -> MeasuredTotals | None:
    """Combine the sums of a level's queries that count everyone; None if there are none."""
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


class FittedTotals(NamedTuple):
    """The total of each child, not yet rounded, and its certificate."""

    totals: FloatArray
    certificate: Certificate


def fit_totals(
    measured: MeasuredTotals, total: float, lower: FloatArray, upper: FloatArray
) -> FittedTotals:
    """Return the t that minimises Σ (t − x)² / 2v with Σ t = total and lower ≤ t ≤ upper, certified.

    t = clip(x − v θ, lower, upper) for the one θ at which it adds up. Σ t decreases with θ piecewise
    linearly, so θ lies between two neighbouring corners and can be computed exactly.
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
    if low == 0:  # every total is above its lower bound; those without an upper bound move
        inside = ~finite
    if inside.any():
        theta += (t.sum() - total) / v[inside].sum()
        t = at(theta)
    return FittedTotals(t, _certify(measured, t, theta, total, lower, upper))


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
    # At an upper bound the gradient may point up; the bound absorbs it.
    reduced = np.where(t >= upper, np.maximum(reduced, 0.0), reduced)
    terms = np.maximum(np.abs(t), np.abs(measured.estimate)) / measured.variance
    steep = max(float(terms.max(initial=0.0)), abs(theta), 1e-300)
    open_ = np.ones(t.shape, bool)
    residual = natural_residual(t - lower, reduced, open_, scale, steep)
    gap = abs(float(t.sum()) - total)
    objective = float((0.5 * (t - measured.estimate) ** 2 / measured.variance).sum())
    return Certificate(max(residual, gap / scale), gap, objective, 1, 0)
