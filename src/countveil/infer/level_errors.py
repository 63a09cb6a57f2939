"""How far off the counts of each level are: from the plan and the shape of the tree, no value read."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from countveil.infer.observed_levels import Observed
from countveil.infer.subspaces import Asked
from countveil.infer.tree_passes import Passes
from countveil.infer.tree_shape import Tree
from countveil.infer.tree_values import Fit, refuse_too_large
from countveil.infer.two_pass import LeastSquares, standard_errors
from countveil.numerics import FloatArray
from countveil.schema.workload import TOTAL


@dataclass(frozen=True, slots=True)
class LevelError:
    """The standard errors of the counts of a query, in all cells of all units of a level.

    Of `counts` counts some are `exact`, because they are public or follow from what is, and some are
    `undetermined`: measurements do not tell them. `smallest`, `median` and `largest` are those of all
    others; None where there are none. Half of the counts have an error of at most the median.
    `noise` is the standard deviation of the query's own noise, None where it is not measured.
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


def level_errors(found: LeastSquares, query: str = TOTAL) -> tuple[LevelError, ...]:
    """Return the standard errors of least squares by level, from the top; no measurement is read."""
    measurements, geography = found.measurements, found.geography
    asked, tree = found.plan.schema.query(query), Tree.of(geography)
    observed = Observed.of(measurements, found.plan)
    parts = Asked.of(observed, asked)
    refuse_too_large(parts, tree)
    # Errors depend on the rungs of the tree alone, so no values are gathered.
    fit = Fit(Passes.of(measurements, observed, tree, parts), (), [])
    kind, _ = parts.kinds
    cells = np.bincount(kind)
    result = []
    for depth, level in enumerate(geography.levels):
        units = np.bincount(tree.places[depth].of_unit)
        errors = standard_errors(fit, depth)
        weights = np.multiply.outer(units, cells)
        noisy = np.isfinite(errors) & (errors > 0)
        smallest, median, largest = _middle(errors[noisy], weights[noisy])
        mechanism = measurements.mechanisms.get((level, asked.name))
        result.append(
            LevelError(
                level,
                asked.name,
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


def _middle(
    errors: FloatArray, weights: FloatArray
) -> tuple[float, float, float] | tuple[None, None, None]:
    """Return the smallest, the median and the largest error, each as often as it weighs."""
    if not len(errors):
        return None, None, None
    order = np.argsort(errors, kind="stable")
    upto = np.cumsum(weights[order])
    half = int(np.searchsorted(2 * upto, upto[-1]))
    return float(errors[order[0]]), float(errors[order[half]]), float(errors[order[-1]])
