"""How many siblings the units of a geography have: on average, and where they have fewest."""

from __future__ import annotations

import numpy as np

from countveil.base.numerics import IntArray
from countveil.plan.geography import Geography


def typical_siblings(geography: Geography) -> dict[str, int]:
    """Return how many siblings a unit of each level below the top has, on average over units."""
    typical = {}
    for index, name in enumerate(geography.levels):
        if index:
            sizes = np.bincount(geography.parents[index])
            typical[name] = round(float((sizes * (sizes - 1)).sum() / sizes.sum()))
    return typical


def fewest_siblings(geography: Geography) -> list[dict[str, int]]:
    """Return the numbers of siblings, level by level, that no other unit undercuts at all levels.

    Fewer siblings hide less, so whatever levels above reveal about some unit, they reveal at least as
    much about one of these.
    """
    lowest = geography.levels[-1]
    chains = np.empty((geography.units(lowest), len(geography.levels) - 1), np.int64)
    for index, name in enumerate(geography.levels[1:], 1):
        sizes = np.bincount(geography.parents[index])
        own = sizes[geography.parents[index]] - 1
        chains[:, index - 1] = own[geography.ancestors(lowest, name)]
    # In order of the sum, no later chain can be below one that was kept.
    chains = np.unique(chains, axis=0)
    chains = chains[np.argsort(chains.sum(axis=1), kind="stable")]
    kept: list[IntArray] = []
    while len(chains):
        first, chains = chains[0], chains[(chains < chains[0]).any(axis=1)]
        kept.append(first)
    return [dict(zip(geography.levels[1:], map(int, chain), strict=True)) for chain in kept]
