"""The reading of a homogeneity attack: where a cell shows one sensitive value, it is believed.

A cell is a place and a combination of identifiers; its sensitive values are side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from countveil.base.numerics import IntArray
from countveil.errors import InputError
from countveil.plan.plans import Plan
from countveil.plan.workload import Query


class Readings(NamedTuple):
    """What the attack concludes, an array over tables each.

    Attributes
    ----------
    right, wrong : array of int
        People to whom their own value is attributed, and a wrong one.
    cells_right, cells_wrong : array of int
        Cells that show a single value which someone in the cell has, and which no one has.
    """

    right: IntArray
    wrong: IntArray
    cells_right: IntArray
    cells_wrong: IntArray


def read_tables(exact: IntArray, shown: IntArray, values: int) -> Readings:
    """Read several tables for the same people.

    Parameters
    ----------
    exact : array, units × cells
        Everyone, by identifiers and then by sensitive value.
    shown : array, tables × units × cells
        What each table shows.
    values : int
        How many sensitive values there are.

    Returns
    -------
    Readings
        People and cells; those of occupied cells only.
    """
    truth = exact.reshape(-1, values)
    occupied = truth.any(axis=1)
    truth, tables = truth[occupied], shown.reshape(len(shown), -1, values)[:, occupied]
    single = (tables > 0).sum(axis=2) == 1
    there = np.take_along_axis(truth[None], tables.argmax(axis=2)[:, :, None], axis=2)[:, :, 0]
    right = np.where(single, there, 0)
    return Readings(
        right=right.sum(axis=1),
        wrong=np.where(single, truth.sum(axis=1) - right, 0).sum(axis=1),
        cells_right=(right > 0).sum(axis=1),
        cells_wrong=(single & (right == 0)).sum(axis=1),
    )


def attack_query(plan: Plan, level: str, sensitive: str, identifiers: Sequence[str]) -> Query:
    """Return identifiers × sensitive attribute as a query; refuse an impossible one."""
    if level not in plan.estimated_levels:
        raise InputError(
            f"level: {level!r} has no published tables; choose from "
            f"{', '.join(plan.estimated_levels)}"
        )
    known = [item.name for item in plan.schema.attributes]
    known += [item.name for item in plan.schema.recodes]
    for name in (*identifiers, sensitive):
        if name not in known:
            raise InputError(f"no attribute or recode {name!r}; choose from {', '.join(known)}")
    if sensitive in identifiers:
        raise InputError(f"sensitive: {sensitive!r} is also an identifier; choose another one")
    query = plan.schema.query("*".join((*identifiers, sensitive)))
    if value_count(query) < 2:
        raise InputError(
            f"sensitive: {sensitive!r} has one value, so there is nothing to learn; choose another"
        )
    return query


def value_count(query: Query) -> int:
    """Return how many values the sensitive attribute has, the last of the query."""
    return len(query.labels[-1][1])
