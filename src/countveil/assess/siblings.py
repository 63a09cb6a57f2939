"""How many siblings units have: on average, and where they are fewest."""

from __future__ import annotations

import numpy as np

from countveil.numerics import IntArray
from countveil.schema.geography import Geography


def typical_siblings(geography: Geography) -> dict[str, int]:
    """Return how many siblings a unit of each level has, on average over units."""
    found = {}
    for index, name in enumerate(geography.levels):
        if index:
            sizes = np.bincount(geography.parents[index])
            found[name] = round(float((sizes * (sizes - 1)).sum() / sizes.sum()))
    return found


def fewest_siblings(geography: Geography) -> list[dict[str, int]]:
    """Return how many siblings units have, level by level, where none has fewer at all levels.

    Fewer siblings hide less: whatever is told of a unit, one of these is told as much or more.
    """
    lowest = geography.levels[-1]
    chains = np.empty((geography.units(lowest), len(geography.levels) - 1), np.int64)
    for index, name in enumerate(geography.levels[1:], 1):
        sizes = np.bincount(geography.parents[index])
        own = sizes[geography.parents[index]] - 1
        chains[:, index - 1] = own[geography.ancestors(lowest, name)]
    # In order of the sum, nothing later can be below what was kept.
    chains = np.unique(chains, axis=0)
    chains = chains[np.argsort(chains.sum(axis=1), kind="stable")]
    kept: list[IntArray] = []
    while len(chains):
        first, chains = chains[0], chains[(chains < chains[0]).any(axis=1)]
        kept.append(first)
    return [dict(zip(geography.levels[1:], map(int, chain), strict=True)) for chain in kept]
