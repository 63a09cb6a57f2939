"""What noise, as it came out, adds to the log-odds of a person in a cell: kernels over cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numba import njit

from countveil.mechanisms.discrete_gaussian import DiscreteGaussian
from countveil.mechanisms.law import Mechanism
from countveil.numerics import Array, FloatArray, IntArray
from countveil.schema.plan import Plan

_TABLE = 4_096  # losses of other noise beyond this are constant or never seen


def realised_log_odds(
    plan: Plan,
    level: str,
    values: Mapping[str, Array],
    mechanisms: Mapping[tuple[str, str], Mechanism],
    unit: IntArray,
    cell: IntArray,
    count: IntArray,
) -> FloatArray:
    """Return what all queries add to the log-odds of a person in each cell, being there.

    The loss of each query's realised noise: its value less the exact count.
    """
    log_odds = np.zeros(len(cell))
    for item in plan.at(level):
        law = mechanisms[level, item.query.name]
        if isinstance(law, DiscreteGaussian):
            rate, table = float(1 / (2 * law.sigma2)), np.empty((0, 0))
        else:
            noise = np.arange(-_TABLE, _TABLE + 1)
            shifts = range(1, plan.rows_per_person + 1)
            rate, table = 0.0, np.array([law.loss_at(noise, shift) for shift in shifts])
        add_losses(
            log_odds,
            *(unit, count, item.query.cells_at(cell), values[item.query.name]),
            *(rate, table, plan.rows_per_person),
        )
    return log_odds


@njit(cache=True, nogil=True)
def add_losses(
    log_odds: FloatArray,
    unit: IntArray,
    count: IntArray,
    place: IntArray,
    values: Any,
    rate: float,
    table: FloatArray,
    rows: int,
) -> None:
    """Add the losses of one query; entries go by unit, `place` is the cell of the query of each."""
    exact = np.zeros(values.shape[1], np.int64)
    start = 0
    while start < len(unit):
        stop = start
        while stop < len(unit) and unit[stop] == unit[start]:
            if place[stop] >= 0:
                exact[place[stop]] += count[stop]
            stop += 1
        for i in range(start, stop):
            at = place[i]
            if at < 0:
                continue
            noise = values[unit[i], at] - exact[at]
            shift = min(rows, count[i])
            if len(table) == 0:
                log_odds[i] += rate * shift * (2 * noise + shift)
            else:
                half = table.shape[1] // 2
                log_odds[i] += table[shift - 1, min(max(noise, -half), half) + half]
        for i in range(start, stop):
            if place[i] >= 0:
                exact[place[i]] = 0
        start = stop
