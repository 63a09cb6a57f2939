"""Round up or down at least cost: largest remainder for the cells, shortest paths for the totals."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from countveil.numerics import FloatArray, IntArray
from countveil.postprocess.union_find import root_of


@njit(cache=True, nogil=True)
def _largest(part: FloatArray, ups: int, up: Any) -> None:
    """Mark the `ups` largest of `part` that are above 0, earlier ones first among equals."""
    order = np.argsort(-part, kind="mergesort")
    for i in range(ups):
        up[order[i]] = True


@njit(cache=True, nogil=True)
def round_up(part: FloatArray, ups: IntArray) -> Any:
    """Choose in each column the `ups` entries to round up; the largest parts cost least."""
    children, cells = part.shape
    up = np.zeros((children, cells), np.bool_)
    for j in range(cells):
        if ups[j] > 0:
            _largest(part[:, j], ups[j], up[:, j])
    return up


@njit(cache=True, nogil=True)
def largest_remainder(values: FloatArray, total: int) -> IntArray:
    """Round numbers that sum to `total` up or down so that they still do, moving them least."""
    whole = np.floor(values)
    up = np.zeros(len(values), np.bool_)
    _largest(values - whole, int(total - whole.sum()), up)
    return (whole + up).astype(np.int64)


@njit(cache=True, nogil=True)
def round_totals(sums: FloatArray, part: FloatArray) -> IntArray:
    """Round the children's totals; children that share open cells, and no others, trade round-ups."""
    children, cells = part.shape
    above = np.arange(children)
    for j in range(cells):
        last = -1
        for c in range(children):
            if part[c, j] > 0.0:
                if last >= 0:
                    above[root_of(above, c)] = root_of(above, last)
                last = c
    for c in range(children):
        above[c] = root_of(above, c)
    order = np.argsort(above, kind="mergesort")
    rounded = np.empty(children, np.int64)
    start = 0
    while start < children:
        stop = start
        while stop < children and above[order[stop]] == above[order[start]]:
            stop += 1
        members = order[start:stop]
        inside = sums[members]
        rounded[members] = largest_remainder(inside, int(np.rint(inside.sum())))
        start = stop
    return rounded


@njit(cache=True, nogil=True)
def meet_totals(part: FloatArray, up: Any, wanted: IntArray) -> bool:
    """Move round-ups within columns, at least cost, until each row has its `wanted` number.

    `up` comes in least cost for its columns. Each step carries one round-up from a row with too many
    to a row with too few along a shortest path; reduced costs stay non-negative (Dijkstra with
    potentials), so the result is a least-cost one. False if some row cannot be reached.
    """
    children, cells = part.shape
    excess = np.empty(children, np.int64)
    for c in range(children):
        excess[c] = up[c].sum() - wanted[c]
    # Potentials: rows at 0, columns at their threshold between what is up and what is down.
    cost = 1.0 - 2.0 * part
    potential = np.zeros(children + cells)
    for j in range(cells):
        highest = -np.inf
        for c in range(children):
            if up[c, j]:
                highest = max(highest, cost[c, j])
        if highest == -np.inf:
            highest = np.inf
            for c in range(children):
                if part[c, j] > 0.0:
                    highest = min(highest, cost[c, j])
        potential[children + j] = highest if np.isfinite(highest) else 0.0
    distance = np.empty(children + cells)
    before = np.empty(children + cells, np.int64)
    done = np.empty(children + cells, np.bool_)
    while True:
        distance[:] = np.inf
        before[:] = -1
        done[:] = False
        short = False
        for c in range(children):
            if excess[c] > 0:
                distance[c] = 0.0
                short = True
        if not short:
            return True
        target = -1
        while True:
            node, nearest = -1, np.inf
            for i in range(children + cells):
                if not done[i] and distance[i] < nearest:
                    node, nearest = i, distance[i]
            if node < 0:
                break
            done[node] = True
            if node < children:
                if excess[node] < 0:
                    target = node
                    break
                for j in range(cells):  # give up a round-up: back along the entry
                    if up[node, j] and not done[children + j]:
                        along = potential[children + j] - potential[node] - cost[node, j]
                        reach = nearest + max(along, 0.0)
                        if reach < distance[children + j]:
                            distance[children + j], before[children + j] = reach, node
            else:
                j = node - children
                for c in range(children):  # take it in a row that rounds down here
                    if not up[c, j] and part[c, j] > 0.0 and not done[c]:
                        along = cost[c, j] + potential[c] - potential[node]
                        reach = nearest + max(along, 0.0)
                        if reach < distance[c]:
                            distance[c], before[c] = reach, node
        if target < 0:
            return False
        reached = distance[target]
        for i in range(children + cells):
            potential[i] -= min(distance[i], reached)
        node = target
        excess[target] += 1
        while before[node] >= 0:
            column = before[node]
            giver = before[column]
            up[node, column - children] = True
            up[giver, column - children] = False
            node = giver
        excess[node] -= 1
