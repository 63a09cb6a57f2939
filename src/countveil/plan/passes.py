"""Passes: which queries of a level are estimated first, and how estimates are rounded."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from countveil.base.numerics import IntArray
from countveil.errors import PlanError
from countveil.plan.attributes import choices
from countveil.plan.budget import query_named, refuse_repeats
from countveil.plan.plan_file import LevelPassesSection, PlanFile
from countveil.plan.workload import TOTAL, Query, Schema

Rounding = Literal["cells", "totals", "queries", "unbiased"]


@dataclass(frozen=True, slots=True)
class Passes:
    """The queries of a level that are estimated and fixed before the rest, and the rounding."""

    first: tuple[Query, ...]
    rounding: Rounding
    look_below: bool
    residual: float  # how far from optimal a solution may be
    automatic: bool = False  # the plan leaves it to a rule which queries come first


def read_passes(checked: PlanFile, schema: Schema, levels: tuple[str, ...]) -> dict[str, Passes]:
    """Resolve the passes of every level."""
    sections = checked.postprocess.levels
    for level in sections:
        if level not in (*levels, "*"):
            raise PlanError(
                f"postprocess.levels.{level}: unknown level {level!r}; choose from {choices(levels)}"
            )
    residual = checked.postprocess.residual
    default = _passes(sections.get("*", LevelPassesSection()), schema, "*", residual)
    return {
        level: _passes(sections[level], schema, level, residual) if level in sections else default
        for level in levels
    }


def _passes(section: LevelPassesSection, schema: Schema, level: str, residual: float) -> Passes:
    where = f"postprocess.levels.{level}.passes"
    queries = tuple(query_named(schema, name, where) for name in section.passes)
    refuse_repeats(queries, where)
    for query in queries:
        if not query.complete:
            raise PlanError(
                f"{where}: {query.name} leaves people out; name a query that counts everyone"
            )
    for coarse, fine in pairwise(queries):
        if not coarsens(coarse, fine):
            raise PlanError(
                f"{where}: {coarse.name} is not a sum of {fine.name}; list queries from coarse to "
                f"fine, each nested in the next"
            )
    if section.look_below and all(query.name != TOTAL for query in queries):
        raise PlanError(
            f"postprocess.levels.{level}.look_below: needs a pass over TOTAL, and passes has none; set "
            f'passes = ["TOTAL"], or remove look_below'
        )
    automatic = "passes" not in section.model_fields_set
    return Passes(queries, section.rounding, section.look_below, residual, automatic)


def cells_within(coarse: Query, fine: Query) -> IntArray:
    """Return the cell of `coarse` that contains each cell of `fine`, if `coarse` coarsens it."""
    cell = np.zeros([len(categories) for _, categories in fine.labels], np.int64)
    axes = [factor.axis for factor in fine.factors]
    for factor, (_, categories) in zip(coarse.factors, coarse.labels, strict=True):
        cell *= len(categories)
        if factor.axis not in axes:
            cell += factor.group[0]  # it has only one group, or it would not be coarser
            continue
        number = axes.index(factor.axis)
        of_group = np.zeros(cell.shape[number], np.int64)
        of_group[fine.factors[number].group] = factor.group
        cell += of_group.reshape([-1 if axis == number else 1 for axis in range(cell.ndim)])
    return cell.reshape(-1)


def coarsens(coarse: Query, fine: Query) -> bool:
    """Return whether each cell of `fine` is in one cell of `coarse`; both count everyone."""
    finer = {factor.axis: factor.group for factor in fine.factors}
    for factor in coarse.factors:
        within = finer.get(factor.axis)
        if within is None:
            if (factor.group != factor.group[0]).any():
                return False
            continue
        holder = np.zeros(within.max() + 1, np.int64)
        holder[within] = factor.group  # one of several, if a cell of `fine` is split
        if (holder[within] != factor.group).any():
            return False
    return True
