"""Unbiased rounding: each entry goes up or down at random, keeping its expectation and all sums.

Entries are edges between children and cells. Around a cycle of edges that are not integers yet, every
other edge gains what the edges between them lose, so that no sum changes, until one edge is an integer.
The direction is drawn so that no expectation changes. Entries of one child, or of one cell, come out
negatively correlated: Gandhi, Khuller, Parthasarathy & Srinivasan (2006), J. ACM 53(3), properties P1
to P3.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import ArrayLike

from countveil.base.numerics import FloatArray, IntArray
from countveil.base.randomness import BitSource
from countveil.errors import InputError
from countveil.postprocess.rounding.controlled_rounding import checked_table, whole_and_part

_CLOSE = 1e-5  # the sums of a solved family are right to 1e-6
_SPENT = 2.0**-48  # rounding errors may leave this much of an edge that a shift made 0 or 1


def round_unbiased(
    h: ArrayLike,
    parent: ArrayLike | None,
    totals: ArrayLike | None = None,
    *,
    rng: BitSource,
) -> IntArray:
    """Return random integers with expectation h, each entry rounded up or down, that keep its sums.

    The parent's cells and `totals` are kept. Without `totals`, each child's total is its sum in h
    rounded up or down, also without bias. With `parent` None, each child is rounded on its own. `rng`
    belongs to one unit. Expectations are exact up to the 53 bits of a uniform number and the error of
    the sums of h itself.
    """
    values, above, _ = checked_table(h, parent, totals)
    whole, part = whole_and_part(values)
    rest = values - whole
    by_cell = None if above is None else _ups(rest, whole, above, 0, "parent")
    if totals is None:
        # A slack raises each child's total to the next integer, and is rounded with the entries.
        low, over = whole_and_part(rest.sum(axis=1))
        by_child = low.astype(np.int64) + (over > 0.0)
        slack = np.where(over > 0.0, 1.0 - over, 0.0)
    else:
        by_child = _ups(rest, whole, np.asarray(totals, float), 1, "totals")
        slack = np.zeros(len(values))
    table = np.column_stack((part, slack))
    child, cell = np.nonzero(table)
    edges, ends = _graph(table[child, cell], child, cell, len(table), alone=by_cell is None)
    _settle(edges, ends, _uniforms(len(edges), rng))
    up = np.zeros(table.shape, np.int64)
    up[child, cell] = np.rint(edges[: len(child)])
    kept = by_cell is None or (up[:, :-1].sum(axis=0) == by_cell).all()
    if not (kept and (up.sum(axis=1) == by_child).all()):
        raise ArithmeticError("the sums of h are off in too many cells for a rounding to keep them")
    return whole.astype(np.int64) + up[:, :-1]


def _ups(rest: FloatArray, whole: FloatArray, target: FloatArray, axis: int, what: str) -> IntArray:
    """Return how many entries go up in each cell (axis 0) or child (axis 1); refuse other sums."""
    sums = rest.sum(axis=axis)
    if target.shape != sums.shape:
        raise InputError(f"{what} has shape {target.shape}; it must have {sums.shape}")
    ups: FloatArray = np.rint(target) - whole.sum(axis=axis)
    gap = float(np.abs(sums - ups).max(initial=0.0))
    if not gap <= _CLOSE:  # written so that NaN fails
        raise InputError(
            f"the sums of h are {gap:g} away from its {what}, and may be at most {_CLOSE:g} away; "
            f"solve the family first"
        )
    return ups.astype(np.int64)


def _graph(
    x: FloatArray, child: IntArray, cell: IntArray, children: int, *, alone: bool
) -> tuple[FloatArray, IntArray]:
    """Return edges that add up to an integer at every node, and the two nodes of each.

    Children rounded on their own have no cells in common: each entry x then has a node of its own,
    joined by an edge 1 − x to a twin of its child.
    """
    if not alone:
        return x, np.column_stack((child, children + cell))
    own = 2 * children + np.arange(len(x))
    ends = np.concatenate((np.column_stack((child, own)), np.column_stack((children + child, own))))
    return np.concatenate((x, 1.0 - x)), ends


def _uniforms(count: int, rng: BitSource) -> FloatArray:
    """Draw numbers from [0, 1), using 53 of 64 random bits, as many as a float holds."""
    rng.begin(count)
    words = rng.deepen(np.arange(count), 0) >> np.uint64(11)
    return words.astype(np.float64) * 2.0**-53


@njit(cache=True, nogil=True)
def _settle(edges: FloatArray, ends: IntArray, uniforms: FloatArray) -> None:
    """Make every edge 0 or 1: walk along open edges, and shift each cycle that the walk closes.

    Each shift settles an edge, so there are no more shifts than edges. With integer sums the walk can
    always continue; if it cannot, its last edge is 0 or 1 except for rounding errors.
    """
    nodes = 0 if len(edges) == 0 else ends.max() + 1
    count, first, listed, place = _open_edges(ends, nodes)
    path = np.empty(nodes + 1, np.int64)  # the edges of the walk
    stops = np.empty(nodes + 1, np.int64)  # and its nodes
    step = np.full(nodes, -1)  # the position of a node in the walk, -1 if it is not in it
    drawn = 0
    for root in range(nodes):
        node, length = root, 0
        while length > 0 or count[node] > 0:
            stops[length], step[node] = node, length
            if length > 0 and count[node] == 1:
                length -= 1
                edges[path[length]] = np.rint(edges[path[length]])
                _close(path[length], ends, count, first, listed, place)
                step[node] = -1
                node = stops[length]
                continue
            edge = listed[first[node]]
            if length > 0 and edge == path[length - 1]:
                edge = listed[first[node] + 1]
            path[length] = edge
            length += 1
            node = ends[edge, 0] + ends[edge, 1] - node
            if step[node] < 0:
                continue
            start = step[node]
            _shift(edges, path[start:length], uniforms[drawn])
            drawn += 1
            for i in range(start, length):
                step[stops[i]] = -1
                if edges[path[i]] == 0.0 or edges[path[i]] == 1.0:
                    _close(path[i], ends, count, first, listed, place)
            length = start
        step[root] = -1


@njit(cache=True, nogil=True)
def _shift(edges: FloatArray, cycle: IntArray, uniform: float) -> None:
    """Move the even edges of a cycle up and the odd ones down, or the reverse, as far as possible."""
    gain, loss = 1.0, 1.0
    for i in range(len(cycle)):
        up, down = 1.0 - edges[cycle[i]], edges[cycle[i]]
        if i % 2:
            up, down = down, up
        gain, loss = min(gain, up), min(loss, down)
    # +gain with probability loss / (gain + loss), else −loss: zero on average.
    move = gain if uniform * (gain + loss) < loss else -loss
    for i in range(len(cycle)):
        moved = edges[cycle[i]] + (-move if i % 2 else move)
        edges[cycle[i]] = np.rint(moved) if abs(moved - np.rint(moved)) <= _SPENT else moved


@njit(cache=True, nogil=True)
def _open_edges(ends: IntArray, nodes: int) -> Any:
    """Return each node's edges: `count` of them from `first` on; `place` is each edge's position."""
    count = np.zeros(nodes, np.int64)
    for node in ends.flat:
        count[node] += 1
    first = np.cumsum(count) - count
    count[:] = 0
    listed = np.empty(ends.size, np.int64)
    place = np.empty(ends.shape, np.int64)
    for edge in range(len(ends)):
        for side in range(2):
            node = ends[edge, side]
            place[edge, side] = first[node] + count[node]
            listed[place[edge, side]] = edge
            count[node] += 1
    return count, first, listed, place


@njit(cache=True, nogil=True)
def _close(
    edge: int, ends: IntArray, count: IntArray, first: IntArray, listed: IntArray, place: IntArray
) -> None:
    """Remove a settled edge from the lists of its two nodes; the last of each list fills the gap."""
    for side in range(2):
        node = ends[edge, side]
        count[node] -= 1
        last = listed[first[node] + count[node]]
        listed[place[edge, side]] = last
        place[last, side] = place[edge, side]
