"""What everything around a unit says about it, in each of several trees of one shape.

The estimate x of the unit from the whole tree, with covariance F, combines that from itself and
everything below it, y with covariance V, and the rest. What the rest says is linear in the values that
were measured: F⁻¹ x - V⁻¹ y, whose covariance is the precision O = F⁻¹ - V⁻¹ of `outside`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from countveil.base.numerics import FloatArray, IntArray
from countveil.measure.measurements import Measured
from countveil.plan.geography import Geography
from countveil.tree.covariances import position_covariances
from countveil.tree.messages import TreePasses, UnitRange
from countveil.tree.observed_levels import Observed
from countveil.tree.tree_shape import Tree, tree_of
from countveil.tree.tree_values import Fit, UpwardFit


def said_around(
    measurements: Measured,
    many: Geography,
    one: Geography,
    *,
    level: str,
    unit: int,
    cell: int,
    other: int | None = None,
) -> FloatArray:
    """Return what the rest of each tree says about one more person in a cell of a unit.

    Parameters
    ----------
    measurements : Measured
        The values measured in all trees.
    many, one : Geography
        The trees side by side, and one of them.
    level : str
        The level of the unit, of which it is not the only one under its parent.
    unit : int
        Its number in each tree.
    cell : int
        The cell of the full table.
    other : int, optional
        A cell in which there is then one person less.

    Returns
    -------
    array
        For each tree, vᵀ(F⁻¹ x - V⁻¹ y), with v the change of the unit's histogram: if the measured
        values are noise alone, its mean is 0 and its variance vᵀOv.

    """
    plan, depth = measurements.plan, one.index(level)
    observed, tree = Observed.planned(plan), Tree.of(many)
    up = UpwardFit.of(measurements, observed, tree, plan.schema.every_cell)
    rows = np.arange(unit, many.units(level), one.units(level))
    own = _upward(up, depth, rows)
    whole = _final(Fit.after(up), depth, rows)
    single = tree_of(one)
    passes = TreePasses.of(measurements, observed, single, up.passes.decomposition)
    position = single.positions[depth].of_unit[unit]
    moves = passes.decomposition.coordinates(np.array([cell]))
    if other is not None:
        less = passes.decomposition.coordinates(np.array([other]))
        moves = [added - gone for added, gone in zip(moves, less, strict=True)]
    said = np.zeros(len(rows))
    for rungs, move, alone, together in zip(passes.rungs, moves, own, whole, strict=True):
        rung = rungs[depth]
        if not rung.noisy.shape[1]:
            continue
        *_, final = (
            item
            for _, item in zip(range(depth + 1), position_covariances(single, rungs), strict=False)
        )
        all_noise = np.linalg.inv(rung.noisy.T @ final[position] @ rung.noisy)
        own_noise = np.linalg.inv(rung.covariance[single.kind[depth][unit]])
        rest = all_noise @ (rung.noisy.T @ together) - own_noise @ alone
        said += np.einsum("ec,nec->n", rung.noisy.T @ move[0], rest)
    return said


def _upward(up: UpwardFit, depth: int, rows: IntArray) -> list[FloatArray]:
    """Return the upward estimates of some units, of their noisy part, by subspace."""
    if depth < len(up.kept):
        return [np.array(item.noisy[:][rows]) for item in up.kept[depth]]
    job = up.passes.upward(depth, keep=True)
    parts = [
        [item.noisy for item in job.estimates(up.passes.unit_run(depth, None, None, *run))]
        for run in up.passes.ranges(depth)
    ]
    return _joined(parts, up.passes.ranges(depth), rows)


def _final(fit: Fit, depth: int, rows: IntArray) -> list[FloatArray]:
    """Return the estimates of some units from the whole tree, by subspace."""
    if depth < len(fit.upper):
        return [np.array(item[:][rows]) for item in fit.upper[depth]]
    ranges = fit.passes.ranges(depth)
    return _joined(list(fit.values(depth, ranges)), ranges, rows)


def _joined(
    parts: Sequence[Sequence[FloatArray]], ranges: Sequence[UnitRange], rows: IntArray
) -> list[FloatArray]:
    """Return some rows of arrays that are cut into ranges, by subspace."""
    chosen = [rows[(rows >= start) & (rows < stop)] - start for start, stop in ranges]
    return [
        np.concatenate([values[own] for values, own in zip(every, chosen, strict=True)])
        for every in zip(*parts, strict=True)
    ]
