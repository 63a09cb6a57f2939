"""Random plans on random small trees: attributes, recodes, queries, invariants, zeros."""

from __future__ import annotations

import itertools

import numpy as np
from tests.estimate import released_trees

_MOST_CHILDREN = 3


def draw(seed: int) -> tuple[str, str, list[str]]:
    """Return a plan, a crosswalk and all queries that can be asked."""
    rng = np.random.default_rng(seed)
    levels = [f"l{number}" for number in range(rng.integers(1, 5))]
    count = int(rng.integers(1, 4))
    attributes = {
        f"A{number}": [f"c{code}" for code in range(rng.integers(1, 5 if count > 1 else 9))]
        for number in range(count)
    }
    recodes, omit = {}, {}
    for name, categories in attributes.items():
        for number in range(rng.integers(0, 3)):
            least = -1 if rng.random() < 0.4 else 0
            group = rng.integers(least, max(1, len(categories) - 1), size=len(categories))
            group[0] = max(group[0], 0)
            members = {
                f"g{label}": [c for c, g in zip(categories, group, strict=True) if g == label]
                for label in sorted(set(group[group >= 0].tolist()))
            }
            recodes[f"R{name}{number}"] = (name, members)
            omit[f"R{name}{number}"] = [c for c, g in zip(categories, group, strict=True) if g < 0]
    views = [
        [None, name, *(recode for recode, (of, _) in recodes.items() if of == name)]
        for name in attributes
    ]
    asked = []
    for combination in itertools.product(*views):
        names = [name for name in combination if name]
        rng.shuffle(names)
        asked.append("*".join(names) or "TOTAL")
    measured = rng.random(len(levels)) < 0.75
    measured[rng.integers(len(levels))] = True
    queries = {}
    for level, chosen in zip(levels, measured, strict=True):
        picked = rng.choice(len(asked), int(rng.integers(1, min(5, len(asked)) + 1)), replace=False)
        queries[level] = {asked[query]: int(rng.integers(1, 20)) for query in picked if chosen}
    invariants = {
        (str(rng.choice(levels)), asked[rng.integers(len(asked))])
        for _ in range(rng.integers(0, 3))
    }
    zeros = []
    if rng.random() < 0.4:
        kept = rng.random(count) < 0.5
        kept[rng.integers(count)] = True
        zeros.append(
            {
                name: [str(c) for c in rng.choice(categories, len(categories) // 2 or 1, False)]
                for (name, categories), use in zip(attributes.items(), kept, strict=True)
                if use and len(categories) > 1
            }
        )
    children = [[int(rng.integers(1, 3))]]
    for _ in levels[1:]:
        children.append(rng.integers(1, _MOST_CHILDREN + 1, sum(children[-1])).tolist())
    plan = released_trees.plan_text(
        attributes,
        queries,
        recodes=recodes,
        omit=omit,
        invariants=sorted(invariants),
        zeros=[zero for zero in zeros if zero],
    )
    return plan, released_trees.places(*children), asked
