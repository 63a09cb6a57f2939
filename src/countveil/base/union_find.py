"""Union-find: which connected part of a graph a node belongs to."""

from __future__ import annotations

from numba import njit

from countveil.base.numerics import IntArray


@njit(cache=True, nogil=True)
def root_of(above: IntArray, node: int) -> int:
    """Return the representative of the part that holds `node`, halving the path on the way."""
    while above[node] != node:
        above[node] = above[above[node]]
        node = above[node]
    return node
