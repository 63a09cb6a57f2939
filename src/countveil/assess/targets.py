"""Whom an attack may be on: the cells that hypotheses put a person in, one of each kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from countveil.errors import InputError
from countveil.schema.plan import Plan
from countveil.schema.workload import Query

Attack = Literal["presence", "response", "honesty", "unknown attribute", "whole record"]

PRESENCE: tuple[Attack, ...] = ("presence", "response", "honesty")
"""Attacks on one cell (S1.2): was he counted, did he respond, did he report the truth."""


@dataclass(frozen=True, slots=True)
class Target:
    """The cells of the full table that the hypotheses put the target in: his own, and the other's.

    Without `other` he is in his cell or nowhere.
    """

    cell: int
    other: int | None = None

    def told_apart(self, query: Query) -> int:
        """Return in how many cells of a query the hypotheses differ."""
        own = query.cell_of[self.cell]
        other = -1 if self.other is None else query.cell_of[self.other]
        return 0 if own == other else int(own >= 0) + int(other >= 0)


def targets_of(
    plan: Plan, attack: Attack, attribute: str | None, categories: tuple[str, str] | None
) -> list[Target]:
    """Return the kinds of targets an attack may have: one for each choice that queries tell apart."""
    schema = plan.schema
    names = [item.name for item in schema.attributes]
    if attack in PRESENCE:
        if attribute is not None:
            raise InputError(
                f"attribute: an attack on {attack} is not about an attribute; leave it out"
            )
        choices = [_kinds(plan, name) for name in names]
        return [Target(_cell(plan, chosen)) for chosen in product(*choices)]
    if attack == "unknown attribute":
        if attribute not in names:
            raise InputError(
                f"attribute: no attribute {attribute!r}; choose from {', '.join(names) or 'none'}"
            )
        changed = [attribute]
    elif attack == "whole record":
        changed = names
    else:
        raise InputError(
            f"attack: {attack!r} is not known; choose presence, response, honesty, unknown attribute "
            f"or whole record"
        )
    if not changed or all(len(item.categories) < 2 for item in schema.attributes):
        raise InputError(f"attack: {attack!r} needs an attribute of two categories or more")
    pairs: list[list[tuple[int, int]]] = []
    for item in schema.attributes:
        if item.name not in changed or len(item.categories) < 2:
            pairs.append([(kind, kind) for kind in _kinds(plan, item.name)])
        elif categories is not None and item.name == attribute:
            pairs.append([_numbers(item.name, item.categories, categories)])
        else:
            pairs.append(_pairs(plan, item.name))
    return [
        Target(_cell(plan, [a for a, _ in chosen]), _cell(plan, [b for _, b in chosen]))
        for chosen in product(*pairs)
    ]


def signatures(plan: Plan, name: str) -> list[tuple[int, ...]]:
    """Return how recodes see each category of an attribute."""
    attribute = next(item for item in plan.schema.attributes if item.name == name)
    groups = [recode.group_of(attribute) for recode in plan.schema.recodes if recode.of == name]
    return [tuple(int(group[k]) for group in groups) for k in range(len(attribute.categories))]


def _kinds(plan: Plan, name: str) -> list[int]:
    """Return one category for each way that recodes see categories."""
    first: dict[tuple[int, ...], int] = {}
    for number, signature in enumerate(signatures(plan, name)):
        first.setdefault(signature, number)
    return list(first.values())


def _pairs(plan: Plan, name: str) -> list[tuple[int, int]]:
    """Return one pair of categories for each way that recodes see two of them."""
    seen = signatures(plan, name)
    found: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[int, int]] = {}
    for a, b in product(range(len(seen)), repeat=2):
        if a != b:
            found.setdefault((seen[a], seen[b]), (a, b))
    return list(found.values())


def _numbers(name: str, known: Sequence[str], given: tuple[str, str]) -> tuple[int, int]:
    for category in given:
        if category not in known:
            raise InputError(
                f"categories: no category {category!r} of {name}; choose from {', '.join(known)}"
            )
    if given[0] == given[1]:
        raise InputError(f"categories: {given[0]!r} is given twice; name two")
    return known.index(given[0]), known.index(given[1])


def _cell(plan: Plan, chosen: Sequence[int]) -> int:
    return int(np.ravel_multi_index(tuple(chosen), plan.schema.shape)) if len(chosen) else 0
