"""Which part of a graph a node belongs to."""

from __future__ import annotations

from numba import njit

from countveil.numerics import IntArray


@njit(cache=True, nogil=True)
def root_of(above: IntArray, node: int) -> int:
    """Return the node that stands for the part of `node`; paths are halved on the way."""
    while above[node] != node:
        above[node] = above[above[node]]
        node = above[node]
    return node
