"""Whom an attack may target: the cells in which the hypotheses put a person, one of each kind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Literal

import numpy as np

from countveil.base.numerics import IntArray
from countveil.errors import InputError
from countveil.plan.plans import Plan
from countveil.plan.public_facts import StructuralZeros
from countveil.plan.workload import Query, Schema

Attack = Literal["presence", "response", "honesty", "unknown attribute", "whole record"]

PRESENCE: tuple[Attack, ...] = ("presence", "response", "honesty")
"""Attacks on one cell (S1.2): were they counted, did they respond, did they report the truth."""

_CHUNK = 1 << 20  # cells examined at a time


@dataclass(frozen=True, slots=True)
class Target:
    """The cells of the full table in which the two hypotheses put the target.

    Without `other` the target is in `cell` or nowhere.
    """

    cell: int
    other: int | None = None

    def separating_cells(self, query: Query) -> int:
        """Return in how many cells of a query the hypotheses differ."""
        own = query.cells_at(self.cell)
        other = -1 if self.other is None else query.cells_at(self.other)
        return 0 if own == other else int(own >= 0) + int(other >= 0)


def targets_of(
    plan: Plan, attack: Attack, attribute: str | None, categories: tuple[str, str] | None
) -> list[Target]:
    """Return the targets an attack may have, one of each kind that queries can distinguish."""
    schema = plan.schema
    names = [item.name for item in schema.attributes]
    if attack in PRESENCE:
        if attribute is not None:
            raise InputError(
                f"attribute: got {attribute!r}, but the attack {attack!r} concerns no attribute; "
                f"leave it out"
            )
        return [Target(cell) for cell in _one_of_each(schema, plan.structural_zeros)]
    if attack == "unknown attribute":
        if attribute not in names:
            what = "is missing" if attribute is None else f"unknown attribute {attribute!r}"
            raise InputError(f"attribute: {what}; choose from {', '.join(names) or 'none'}")
        changed = [attribute]
    elif attack == "whole record":
        changed = names
    else:
        raise InputError(
            f"attack: unknown attack {attack!r}; choose presence, response, honesty, unknown "
            f"attribute or whole record"
        )
    if not changed or all(len(item.categories) < 2 for item in schema.attributes):
        raise InputError(f"attack: {attack!r} needs an attribute with two categories or more")
    fixed = None
    if categories is not None and attribute is not None:
        known = next(item.categories for item in schema.attributes if item.name == attribute)
        fixed = _numbers(attribute, known, categories)
    axes = tuple(names.index(name) for name in changed)
    pairs = list(_pairs(schema, plan.structural_zeros, axes, fixed))
    if not pairs:
        raise InputError(
            f"attack: {attack!r} needs two cells that differ in {' and '.join(changed)} and can "
            f"both hold people; structural zeros leave none"
        )
    return pairs


def signatures(schema: Schema, name: str) -> list[tuple[int, ...]]:
    """Return, for each category of an attribute, the groups into which recodes put it."""
    attribute = next(item for item in schema.attributes if item.name == name)
    groups = [recode.group_of(attribute) for recode in schema.recodes if recode.of == name]
    return [tuple(int(group[k]) for group in groups) for k in range(len(attribute.categories))]


def _kinds(schema: Schema) -> list[IntArray]:
    """Return the kind of each category of each attribute: no query distinguishes two of one kind."""
    kinds = []
    for attribute in schema.attributes:
        number: dict[tuple[int, ...], int] = {}
        along = [number.setdefault(key, len(number)) for key in signatures(schema, attribute.name)]
        kinds.append(np.array(along))
    return kinds


def _kinds_at(schema: Schema, cells: IntArray) -> IntArray:
    """Return the kinds of some cells, axes × cells."""
    where = np.unravel_index(cells, schema.shape) if schema.shape else ()
    kinds = np.empty((len(where), len(cells)), np.int64)
    for axis, along in enumerate(_kinds(schema)):
        kinds[axis] = along[where[axis]]
    return kinds


# Cells and kinds do not depend on the budget: both are searched once, however many plans are tried.
@lru_cache(maxsize=16)
def _one_of_each(schema: Schema, zeros: StructuralZeros) -> tuple[int, ...]:
    """Return the first cell of each kind that can hold people."""
    if not schema.shape:
        return (0,)
    if not zeros.blocks:  # each kind begins where its kinds along the axes begin
        begin = [np.unique(along, return_index=True)[1] for along in _kinds(schema)]
        cells = np.ravel_multi_index(np.ix_(*begin), schema.shape).ravel()
        return tuple(np.sort(cells).tolist())
    sizes = [int(along.max()) + 1 for along in _kinds(schema)]
    seen = np.zeros(math.prod(sizes), bool)
    first: list[int] = []
    for start in range(0, schema.cells, _CHUNK):  # all at once would be gigabytes
        cells = start + np.flatnonzero(zeros.possible[start : start + _CHUNK])
        kinds = np.ravel_multi_index(tuple(_kinds_at(schema, cells)), sizes)
        fresh = np.flatnonzero(~seen[kinds])
        new, where = np.unique(kinds[fresh], return_index=True)
        seen[new] = True
        first += np.sort(cells[fresh[where]]).tolist()
    return tuple(first)


@lru_cache(maxsize=16)
def _pairs(
    schema: Schema, zeros: StructuralZeros, changed: tuple[int, ...], fixed: tuple[int, int] | None
) -> tuple[Target, ...]:
    """Return one pair of cells for each pair of kinds.

    The cells differ along the axes `changed`, as far as these have two categories, and nowhere else;
    with `fixed` they have these two categories along the one axis that changes.
    """
    shape = np.array(schema.shape)
    possible = np.flatnonzero(zeros.possible)
    where = np.array(np.unravel_index(possible, schema.shape))
    kinds = _kinds_at(schema, possible)
    differ = [axis for axis in changed if shape[axis] > 1]
    same = [axis for axis in range(len(shape)) if axis not in differ]
    groups, member = np.unique(kinds, axis=1, return_inverse=True)
    pairs = []
    for a, b in product(range(groups.shape[1]), repeat=2):
        if (groups[same, a] != groups[same, b]).any():
            continue
        left, right = np.flatnonzero(member == a), np.flatnonzero(member == b)
        if fixed is not None:
            left = left[where[differ[0], left] == fixed[0]]
            right = right[where[differ[0], right] == fixed[1]]
        for one in left:
            fits = (where[same][:, right] == where[same, one][:, None]).all(axis=0)
            fits &= (where[differ][:, right] != where[differ, one][:, None]).all(axis=0)
            if fits.any():
                other = right[int(np.argmax(fits))]
                pairs.append(Target(int(possible[one]), int(possible[other])))
                break
    return tuple(pairs)


def _numbers(name: str, known: Sequence[str], categories: tuple[str, str]) -> tuple[int, int]:
    for category in categories:
        if category not in known:
            raise InputError(
                f"categories: unknown category {category!r} of {name}; choose from {', '.join(known)}"
            )
    if categories[0] == categories[1]:
        raise InputError(f"categories: {categories[0]!r} is named twice; name two different ones")
    return known.index(categories[0]), known.index(categories[1])
