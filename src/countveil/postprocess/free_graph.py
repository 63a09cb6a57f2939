"""Which entries of a family are free, as a graph of children and cells: its parts, and joining them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from countveil.numerics import FloatArray, IntArray
from countveil.postprocess.union_find import root_of


@njit(cache=True, nogil=True)
def components_of(free: Any, above: IntArray) -> None:
    """Join children (first) and cells (after them) that share a free entry."""
    children, cells = free.shape
    for node in range(children + cells):
        above[node] = node
    for c in range(children):
        for j in range(cells):
            if free[c, j]:
                above[root_of(above, c)] = root_of(above, children + j)
    for node in range(children + cells):
        above[node] = root_of(above, node)


@njit(cache=True, nogil=True)
def balance(
    free: Any,
    allowed: Any,
    parent: FloatArray,
    totals: FloatArray,
    price: FloatArray,
) -> None:
    """Free the cheapest entries between parts of the free graph whose two sides do not add up."""
    children, cells = free.shape
    above = np.empty(children + cells, np.int64)
    negligible = 1e-12 * max(parent.max(), 1.0)  # counts are whole: any true excess is 1 or more
    for _ in range(children + cells):
        components_of(free, above)
        excess = np.zeros(children + cells)
        for c in range(children):
            excess[above[c]] -= totals[c]
        for j in range(cells):
            excess[above[children + j]] += parent[j]
        best_c, best_j, best = -1, -1, np.inf
        for c in range(children):
            if totals[c] == 0.0:
                continue
            for j in range(cells):
                here, there = above[c], above[children + j]
                if (
                    allowed[c, j]
                    and here != there
                    and excess[here] < -negligible  # its children need more than its cells hold
                    and price[c, j] < best
                ):
                    best_c, best_j, best = c, j, price[c, j]
        if best_c < 0:
            return
        free[best_c, best_j] = True


@njit(cache=True, nogil=True)
def cover(free: Any, allowed: Any, price: FloatArray, summed: bool, totals: FloatArray) -> None:
    """Free the cheapest entry of every cell, and of every child with a total, that has none."""
    children, cells = free.shape
    for j in range(cells if summed else 0):
        best, some = -1, False
        for c in range(children):
            some = some or free[c, j]
            if allowed[c, j] and (best < 0 or price[c, j] < price[best, j]):
                best = c
        if not some and best >= 0:
            free[best, j] = True
    for c in range(len(totals)):
        best, some = -1, False
        for j in range(cells):
            free[c, j] = free[c, j] and totals[c] > 0.0
            some = some or free[c, j]
            if allowed[c, j] and (best < 0 or price[c, j] < price[c, best]):
                best = j
        if not some and best >= 0 and totals[c] > 0.0:
            free[c, best] = True
