"""The standard errors of each level's counts, from the plan and the shape of the tree alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from countveil.base.numerics import FloatArray
from countveil.estimate.unbiased import LeastSquares
from countveil.plan.workload import TOTAL
from countveil.tree.observed_levels import Observed
from countveil.tree.query_errors import QueryErrors
from countveil.tree.tree_shape import Tree


@dataclass(frozen=True, slots=True)
class LevelError:
    """The standard errors of a query, in all cells of all units of a level.

    Attributes
    ----------
    level, query : str
        What is counted.
    units, counts : int
        How many units the level has, and how many counts that makes.
    exact : int
        Counts that are public, or follow from public ones.
    undetermined : int
        Counts that measurements do not determine.
    smallest, median, largest : float or None
        Of the standard errors of all other counts, or None.
    noise : float or None
        The standard deviation of the query's own noise; None if it is not measured.

    """

    level: str
    query: str
    units: int
    counts: int
    exact: int
    undetermined: int
    smallest: float | None
    median: float | None
    largest: float | None
    noise: float | None


def level_errors(estimates: LeastSquares, query: str = TOTAL) -> tuple[LevelError, ...]:
    """Return the standard errors of least squares by level, from the top; no measurement is read.

    Parameters
    ----------
    estimates : LeastSquares
        Least squares of a release.
    query : str
        Attributes and recodes joined by `*`, or "TOTAL".

    Returns
    -------
    tuple of LevelError
        One per level.

    """
    measurements, geography = estimates.measurements, estimates.geography
    parsed, tree = estimates.plan.schema.query(query), Tree.of(geography)
    observed = Observed.of(measurements, estimates.plan)
    shape = QueryErrors.of(observed, tree, parsed)
    cells = shape.decomposition.kinds.cells
    result = []
    for depth, level in enumerate(geography.levels):
        units = np.bincount(tree.positions[depth].of_unit)
        errors = shape.standard_errors(depth)
        weights = np.multiply.outer(units, cells)
        noisy = np.isfinite(errors) & (errors > 0)
        smallest, median, largest = _range(errors[noisy], weights[noisy])
        mechanism = measurements.mechanisms.get((level, parsed.name))
        result.append(
            LevelError(
                level,
                parsed.name,
                geography.units(level),
                int(weights.sum()),
                int(weights[errors == 0].sum()),
                int(weights[np.isinf(errors)].sum()),
                smallest,
                median,
                largest,
                None if mechanism is None else math.sqrt(mechanism.variance),
            )
        )
    return tuple(result)


class _Range(NamedTuple):
    """The smallest, median and largest error, or None without any."""

    smallest: float | None = None
    median: float | None = None
    largest: float | None = None


def _range(errors: FloatArray, weights: FloatArray) -> _Range:
    """Return the range of errors, each counted as often as its weight."""
    if not len(errors):
        return _Range()
    order = np.argsort(errors, kind="stable")
    upto = np.cumsum(weights[order])
    half = int(np.searchsorted(2 * upto, upto[-1]))
    return _Range(*(float(errors[order[at]]) for at in (0, half, -1)))
