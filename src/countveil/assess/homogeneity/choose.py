"""The largest epsilon that keeps the risk of a homogeneity attack below a limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from countveil.assess.homogeneity.averages import Measure, averages, prepare
from countveil.assess.homogeneity.families import Family, law_at
from countveil.assess.homogeneity.table import Table
from countveil.errors import InputError
from countveil.mechanisms.continuous import Laplace
from countveil.numerics import FloatArray

_DIGITS = 12  # of the chosen epsilon, rounded down
_POINTS = 241
_SMALLEST, _LARGEST = 1e-4, 1e2
_HALVINGS = 50


def largest_epsilon(
    table: Table,
    *,
    risk: float,
    measure: Measure | str = "local",
    mechanism: Family = Laplace,
    delta: float | None = None,
    epsilons: Sequence[float] | None = None,
) -> Fraction:
    """Return the largest epsilon whose risk is at most `risk`.

    In tables with heterogeneous cells risk may fall before it rises, so all `epsilons` are looked at,
    1e-4 to 100 in 240 equal ratios unless given: the largest that keeps the limit, then by halving what
    lies between it and the next. If the largest of all keeps it, it is returned.
    """
    if not 0 < risk < 1:
        raise InputError(f"risk: {risk} is not allowed; it must be between 0 and 1")
    asked = Measure(measure) if isinstance(measure, str) else measure
    prepared = [prepare(table, asked)]

    def at(points: FloatArray) -> FloatArray:
        laws = [law_at(mechanism, float(point), delta) for point in points]
        return np.asarray(averages(prepared, laws)[:, 0, int(asked.weighted)])

    grid = _grid(epsilons)
    risks = at(grid)
    keeping = np.flatnonzero(risks <= risk)
    if not len(keeping):
        best = int(np.argmin(risks))
        raise InputError(
            f"risk: {risk:g} is below the smallest there is, {risks[best]:.4g} at epsilon = "
            f"{grid[best]:.4g}; allow more, or take fewer identifiers"
        )
    last = int(keeping[-1])
    if last + 1 == len(grid):
        return Fraction(repr(float(grid[last])))
    low, high = float(grid[last]), float(grid[last + 1])
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if at(np.array([middle]))[0] <= risk else (low, middle)
    chosen = _rounded_down(low)
    # Where risk falls with epsilon, less may be more: the point of the grid does keep the limit.
    kept = at(np.array([float(chosen)]))[0] <= risk
    return chosen if kept else Fraction(repr(float(grid[last])))


def _grid(epsilons: Sequence[float] | None) -> FloatArray:
    if epsilons is None:
        return np.geomspace(_SMALLEST, _LARGEST, _POINTS)
    grid = np.unique(np.asarray(epsilons, np.float64))
    if not len(grid) or not (np.isfinite(grid) & (grid > 0)).all():
        raise InputError("epsilons: they are numbers above 0; give at least one")
    return grid


def _rounded_down(value: float) -> Fraction:
    """Return a fraction of few digits, at most the value."""
    scale = Fraction(10) ** (_DIGITS - 1 - math.floor(math.log10(value)))
    return Fraction(math.floor(Fraction(value) * scale)) / scale
