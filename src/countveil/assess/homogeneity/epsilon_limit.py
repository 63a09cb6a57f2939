"""The largest epsilon that keeps the risk of a homogeneity attack below a limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from countveil.assess.homogeneity.average_risk import Measure, averages, prepare
from countveil.assess.homogeneity.noise_families import NoiseFamily, law_at
from countveil.assess.homogeneity.sensitive_table import Table
from countveil.base.numerics import FloatArray
from countveil.errors import InputError
from countveil.noise.continuous import Laplace

_DIGITS = 12  # significant digits of the chosen epsilon, rounded down
_POINTS = 241
_SMALLEST, _LARGEST = 1e-4, 1e2
_HALVINGS = 50


def largest_epsilon(
    table: Table,
    *,
    risk: float,
    measure: Measure | str = "local",
    mechanism: NoiseFamily = Laplace,
    delta: float | None = None,
    epsilons: Sequence[float] | None = None,
) -> Fraction:
    """Return the largest epsilon at which the risk of a homogeneity attack is at most `risk`.

    In tables with heterogeneous cells the risk may fall before it rises. So all `epsilons` are tried,
    and the interval above the largest one that keeps the limit is bisected.

    Parameters
    ----------
    table : Table
        The confidential table.
    risk : float
        The limit, between 0 and 1.
    measure : Measure or str
        Which risk is limited.
    mechanism : class or callable
        Laplace, DiscreteLaplace, Gaussian, DiscreteGaussian, or a function of epsilon that returns
        noise.
    delta : float, optional
        For Gaussian noise.
    epsilons : sequence of float, optional
        The values to try; 241 from 1e-4 to 100 in equal ratios by default.

    Returns
    -------
    Fraction
        An epsilon, rounded down; the largest of `epsilons` if that keeps the limit.
    """
    if not 0 < risk < 1:
        raise InputError(f"risk: {risk} is not allowed; it must be between 0 and 1")
    limited = Measure(measure) if isinstance(measure, str) else measure
    fitted = [prepare(table, limited)]

    def at(points: FloatArray) -> FloatArray:
        laws = [law_at(mechanism, float(point), delta) for point in points]
        return np.asarray(averages(fitted, laws)[:, 0, int(limited.weighted)])

    grid = _grid(epsilons)
    risks = at(grid)
    keeping = np.flatnonzero(risks <= risk)
    if not len(keeping):
        best = int(np.argmin(risks))
        raise InputError(
            f"risk: {risk:g} is below the smallest that can be reached, {risks[best]:.4g} at "
            f"epsilon = {grid[best]:.4g}; allow more, or use fewer identifiers"
        )
    last = int(keeping[-1])
    if last + 1 == len(grid):
        return Fraction(repr(float(grid[last])))
    low, high = float(grid[last]), float(grid[last + 1])
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if at(np.array([middle]))[0] <= risk else (low, middle)
    epsilon = _rounded_down(low)
    # Where risk falls with epsilon, rounding down may exceed the limit; the grid point does not.
    within = at(np.array([float(epsilon)]))[0] <= risk
    return epsilon if within else Fraction(repr(float(grid[last])))


def _grid(epsilons: Sequence[float] | None) -> FloatArray:
    if epsilons is None:
        return np.geomspace(_SMALLEST, _LARGEST, _POINTS)
    grid = np.unique(np.asarray(epsilons, np.float64))
    if not len(grid) or not (np.isfinite(grid) & (grid > 0)).all():
        raise InputError("epsilons: give at least one number, all finite and above 0")
    return grid


def _rounded_down(value: float) -> Fraction:
    """Return the largest fraction with few digits that is at most the value."""
    scale = Fraction(10) ** (_DIGITS - 1 - math.floor(math.log10(value)))
    return Fraction(math.floor(Fraction(value) * scale)) / scale
