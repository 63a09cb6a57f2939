"""Whom an attack may target: the cells in which the hypotheses put a person, one of each kind."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Literal, NamedTuple

import numpy as np

from countveil.base.numerics import IntArray
from countveil.errors import InputError, PlanError
from countveil.plan.plans import Plan
from countveil.plan.public_facts import StructuralZeros
from countveil.plan.workload import Query, Schema

Attack = Literal["presence", "response", "honesty", "unknown attribute", "whole record"]

PRESENCE: tuple[Attack, ...] = ("presence", "response", "honesty")
"""Attacks on one cell (S1.2): were they counted, did they respond, did they report the truth."""

_MOST_PATTERNS = 1_000_000  # times queries
_MOST_BLOCKS = 4_000_000  # of cells that neither queries nor zeros tell apart
_MOST_TRIED = 2**33  # pairs of blocks that are compared: about a minute
MOST_TARGETS = 1_000_000  # kinds of people, or of pairs of people, that an attack is tried on


@dataclass(frozen=True, slots=True)
class AttackTarget:
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


class SeparatingCells(NamedTuple):
    """In how many cells of each query hypotheses differ: by pattern; and the pattern of each target."""

    cells: dict[Query, IntArray]
    pattern: IntArray


def separation_of(targets: Sequence[AttackTarget], queries: Iterable[Query]) -> SeparatingCells:
    """Return how queries separate the hypotheses about targets; refuse too many patterns.

    Patterns are in order of appearance.
    """
    own = np.array([item.cell for item in targets])
    others = None if targets[0].other is None else np.array([item.other for item in targets])

    def separating(query: Query, some: IntArray) -> IntArray:
        one = query.cells_at(own[some])
        other = np.full_like(one, -1) if others is None else query.cells_at(others[some])
        return np.where(one == other, 0, (one >= 0).astype(np.int64) + (other >= 0))

    different = dict.fromkeys(queries)
    every = np.arange(len(targets))
    pattern = np.zeros(len(targets), np.int64)
    for query in different:
        cells = separating(query, every)
        if (cells != cells[0]).any():
            pattern = np.unique(3 * pattern + cells, return_inverse=True)[1]
    _, first, pattern = np.unique(pattern, return_index=True, return_inverse=True)
    if len(first) * len(different) > _MOST_PATTERNS:
        raise PlanError(
            f"budget.queries: {len(different):,} queries separate {len(first):,} kinds of people, each "
            f"in other cells; the limit is {_MOST_PATTERNS:,} for queries times kinds: remove queries, "
            f"or merge groups of recodes"
        )
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    shown = first[order]
    return SeparatingCells({query: separating(query, shown) for query in different}, place[pattern])


def targets_of(
    plan: Plan, attack: Attack, attribute: str | None, categories: tuple[str, str] | None
) -> tuple[AttackTarget, ...]:
    """Return the targets an attack may have, one of each kind that queries can distinguish."""
    schema = plan.schema
    names = [item.name for item in schema.attributes]
    if attack in PRESENCE:
        if attribute is not None:
            raise InputError(
                f"attribute: got {attribute!r}, but the attack {attack!r} concerns no attribute; "
                f"leave it out"
            )
        return _one_of_each(schema, plan.structural_zeros)
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
    pairs = _pairs(schema, plan.structural_zeros, axes, fixed)
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
def _one_of_each(schema: Schema, zeros: StructuralZeros) -> tuple[AttackTarget, ...]:
    """Return the first cell of each kind that can hold people."""
    if not schema.shape:
        return (AttackTarget(0),)
    begin = [np.unique(along, return_index=True)[1] for along in zeros.refined(_kinds(schema))]
    _refuse_many(math.prod(map(len, begin)), _MOST_BLOCKS, "kinds of people")
    cells = np.sort(np.ravel_multi_index(np.ix_(*begin), schema.shape).ravel())
    if zeros.blocks:
        cells = cells[zeros.possible[cells]]
        _, first = np.unique(_kinds_at(schema, cells), axis=1, return_index=True)
        cells = cells[np.sort(first)]
    _refuse_many(len(cells), MOST_TARGETS, "kinds of people")
    return tuple(map(AttackTarget, cells.tolist()))


@lru_cache(maxsize=64)
def _pairs(
    schema: Schema, zeros: StructuralZeros, changed: tuple[int, ...], fixed: tuple[int, int] | None
) -> tuple[AttackTarget, ...]:
    """Return one pair of cells for each pair of kinds.

    The cells differ along the axes `changed`, as far as these have two categories, and nowhere else;
    with `fixed` they have these two categories along the one axis that changes.
    """
    differ = [axis for axis in changed if schema.shape[axis] > 1]
    kinds = _kinds(schema)
    refined = zeros.refined(kinds)
    free = [] if fixed is not None else differ
    _refuse_many(_pairs_along(kinds, free), MOST_TARGETS, "pairs of kinds of people")
    if fixed is None and _pairs_along(refined, free) > MOST_TARGETS:
        return _searched_pairs(schema, zeros, kinds, refined, differ)
    steps = []
    for axis, along in enumerate(refined):
        if axis in differ and fixed is not None:
            steps.append(np.array([fixed]))
        else:
            steps.append(_steps(along, apart=axis in differ))
    number = math.prod(map(len, steps))
    _refuse_many(number, _MOST_BLOCKS, "kinds of people")
    at = np.unravel_index(np.arange(number), [len(step) for step in steps])
    ends = np.array([step[choice].T for step, choice in zip(steps, at, strict=True)])
    one, other = (np.ravel_multi_index(tuple(ends[:, end]), schema.shape) for end in range(2))
    if zeros.blocks:
        both = zeros.possible[one] & zeros.possible[other]
        ends, one, other = ends[..., both], one[both], other[both]
    of = [along[ends[axis]] for axis, along in enumerate(kinds)]  # axes × (2 × pairs)
    keys = [*(item[0] for item in of), *(item[1] for item in of)]
    order = np.lexsort((other, one, *reversed(keys)))
    sorted_keys = np.array(keys)[:, order]
    first = np.ones(len(order), bool)
    first[1:] = (sorted_keys[:, 1:] != sorted_keys[:, :-1]).any(axis=0)
    chosen = order[first]
    return tuple(map(AttackTarget, one[chosen].tolist(), other[chosen].tolist()))


def _steps(along: IntArray, *, apart: bool) -> IntArray:
    """Return the first categories in which cells of two kinds may differ along an axis, or agree.

    One row per pair of kinds: the category of each of the two cells.
    """
    first = np.unique(along, return_index=True)[1]
    if not apart:
        return np.stack([first, first], axis=1)
    steps = np.stack([np.repeat(first, len(first)), np.tile(first, len(first))], axis=1)
    equal = np.flatnonzero(steps[:, 0] == steps[:, 1])
    rest = np.delete(np.arange(len(along)), first)
    kind, where = np.unique(along[rest], return_index=True)  # kinds with a second category
    steps[equal[kind], 1] = rest[where]
    return np.delete(steps, np.delete(equal, kind), axis=0)


def _pairs_along(kinds: Sequence[IntArray], differ: Sequence[int]) -> int:
    """Return how many pairs of kinds there are at most."""
    numbers = [int(along.max()) + 1 for along in kinds]
    return math.prod(n * n if axis in differ else n for axis, n in enumerate(numbers))


def _searched_pairs(
    schema: Schema,
    zeros: StructuralZeros,
    kinds: Sequence[IntArray],
    refined: Sequence[IntArray],
    differ: Sequence[int],
) -> tuple[AttackTarget, ...]:
    """Return what `_pairs` returns where zeros tell far more cells apart than queries do.

    Blocks are cells that neither queries nor zeros tell apart: one class of categories per axis.
    """
    first = [np.unique(along, return_index=True)[1] for along in refined]
    _refuse_many(math.prod(map(len, first)), _MOST_BLOCKS, "kinds of people")
    second = []  # another category of each class, -1 if it has one only
    for along, begin in zip(refined, first, strict=True):
        rest = np.delete(np.arange(len(along)), begin)
        of, where = np.unique(along[rest], return_index=True)
        second.append(np.full(len(begin), -1))
        second[-1][of] = rest[where]
    blocks = np.indices([len(begin) for begin in first], np.int32).reshape(len(first), -1)
    at = [begin[along] for begin, along in zip(first, blocks, strict=True)]
    cells = np.ravel_multi_index(tuple(at), schema.shape)
    order = np.argsort(cells)
    order = order[zeros.possible[cells[order]]]
    if not len(order):
        return ()
    blocks, cells = blocks[:, order], cells[order]
    rows = [along[begin[of]] for along, begin, of in zip(kinds, first, blocks, strict=True)]
    groups, member = np.unique(np.array(rows), axis=1, return_inverse=True)
    _refuse_many(groups.shape[1] ** 2, MOST_TARGETS, "pairs of kinds of people")
    sizes = np.bincount(member.reshape(-1))
    members = np.split(np.argsort(member.reshape(-1), kind="stable"), np.cumsum(sizes)[:-1])
    same = [axis for axis in range(len(first)) if axis not in differ]
    pairs, tried = [], 0
    for a, b in product(range(len(members)), repeat=2):
        if (groups[same, a] != groups[same, b]).any():
            continue
        right = members[b]
        for one in members[a]:
            tried += len(right)
            _refuse_many(tried, _MOST_TRIED, "pairs of kinds of people")
            equal = blocks[:, right] == blocks[:, one][:, None]
            fits = equal[same].all(axis=0)
            for axis in differ:
                if second[axis][blocks[axis, one]] < 0:
                    fits &= ~equal[axis]
            if fits.any():
                chosen = right[fits]
                ends = [begin[of] for begin, of in zip(first, blocks[:, chosen], strict=True)]
                for axis in differ:
                    again = equal[axis, fits]
                    ends[axis] = np.where(again, second[axis][blocks[axis, one]], ends[axis])
                other = np.ravel_multi_index(tuple(ends), schema.shape).min()
                pairs.append(AttackTarget(int(cells[one]), int(other)))
                break
    return tuple(pairs)


def _refuse_many(number: int, limit: int, what: str) -> None:
    if number > limit:
        raise PlanError(
            f"recodes: together with structural zeros, they distinguish {number:,} {what} that an "
            f"intruder could look for; the limit is {limit:,}: remove recodes, or merge groups"
        )


def _numbers(name: str, known: Sequence[str], categories: tuple[str, str]) -> tuple[int, int]:
    for category in categories:
        if category not in known:
            raise InputError(
                f"categories: unknown category {category!r} of {name}; choose from {', '.join(known)}"
            )
    if categories[0] == categories[1]:
        raise InputError(f"categories: {categories[0]!r} is named twice; name two different ones")
    return known.index(categories[0]), known.index(categories[1])
