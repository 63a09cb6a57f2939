"""Whom the intruder attacks in a table, and the counts that depend on the answer.

They know everyone else in a unit of the plan's judged level, as for the plan itself, and want to know
whether someone is there, or which of two categories they have. Each person counted is a target once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from countveil.assess.intruder.targets import Attack
from countveil.assess.intruder.whole_release import attacks_on, name_of
from countveil.assess.protections.exact_tables import ExactTables, TableKey
from countveil.base.numerics import FloatArray, IntArray

Flags = NDArray[np.bool_]
_Kind = TypeVar("_Kind", bound=np.generic)

MOST_PAIRS = 200_000
"""Pairs of a kind of person and an alternative that are examined. Larger numbers are sampled."""


@dataclass(frozen=True, eq=False, slots=True)
class Targets:
    """People of one kind and place, each with the alternatives an intruder considers.

    Attributes
    ----------
    attack : str
        What the intruder wants to know.
    unit, cell, people : array of int
        The lowest unit and the cell of each kind of person, and how many they are.
    entry, other : array of int
        For each alternative, the number of its kind of person, and the cell that they would be in
        instead: -1 if they would be absent. Sorted by `entry`; each kind has at least one.
    sampled : bool
        Whether these are a sample of all kinds.

    """

    attack: str
    unit: IntArray
    cell: IntArray
    people: IntArray
    entry: IntArray
    other: IntArray
    sampled: bool = False

    def worst(self, values: FloatArray) -> FloatArray:
        """Return the largest value over the alternatives of each kind of person (last axis)."""
        starts = np.searchsorted(self.entry, np.arange(len(self.unit)))
        return np.asarray(np.maximum.reduceat(values, starts, axis=-1), float)

    def sample(self, pairs: int, rng: Generator) -> Targets:
        """Return a random sample of the kinds of people with about this many alternatives."""
        if len(self.entry) <= pairs:
            return self
        size = max(1, pairs * len(self.unit) // len(self.entry))
        sample = np.sort(rng.choice(len(self.unit), size, replace=False))
        kept = np.isin(self.entry, sample)
        return replace(
            self,
            unit=self.unit[sample],
            cell=self.cell[sample],
            people=self.people[sample],
            entry=np.searchsorted(sample, self.entry[kept]),
            other=self.other[kept],
            sampled=True,
        )


@dataclass(frozen=True, eq=False, slots=True)
class Separation:
    """The counts of one table that depend on the answer, for each alternative.

    `unit` is the place; `own` and `other` are the cells that count the target if the truth, or the
    alternative, holds: -1 if none does or both are the same. `known` says whether everyone else in
    the unit is known to the intruder.
    """

    key: TableKey
    unit: IntArray
    own: IntArray
    other: IntArray
    known: Flags

    @property
    def differs(self) -> Flags:
        """Whether the table depends on the answer."""
        return (self.own >= 0) | (self.other >= 0)

    def at_own(self, values: NDArray[_Kind]) -> NDArray[_Kind]:
        """Return a table's values in the own cells; meaningless where there is none."""
        return values[self.unit, np.maximum(self.own, 0)]

    def at_other(self, values: NDArray[_Kind]) -> NDArray[_Kind]:
        """Return a table's values in the other cells; meaningless where there is none."""
        return values[self.unit, np.maximum(self.other, 0)]


def targets_in(tables: ExactTables, rng: Generator) -> list[Targets]:
    """Return the targets of every attack that the plan is judged by."""
    return [
        _targets(tables, attack, attribute, rng) for attack, attribute in attacks_on(tables.plan)
    ]


def _targets(tables: ExactTables, attack: Attack, attribute: str | None, rng: Generator) -> Targets:
    schema, possible = tables.plan.schema, tables.plan.possible
    name = name_of(attack, attribute)
    entries = np.arange(len(tables.unit))
    if attack == "presence":
        sample = _sample_of(entries, MOST_PAIRS, rng)
        pairs = [np.full(1, -1, np.int64) for _ in sample]
    else:
        names = [item.name for item in schema.attributes]
        axes = [names.index(attribute)] if attribute is not None else list(range(len(names)))
        axes = [axis for axis in axes if schema.shape[axis] > 1]
        per_entry = int(np.prod([schema.shape[axis] - 1 for axis in axes]))
        sample = _sample_of(entries, max(MOST_PAIRS // per_entry, 1), rng)
        alternatives = {
            cell: _alternatives(schema.shape, int(cell), axes, possible)
            for cell in np.unique(tables.cell[sample])
        }
        pairs = [alternatives[cell] for cell in tables.cell[sample]]
    kept = np.array([len(others) > 0 for others in pairs], bool)
    sizes = [len(others) for others in pairs if len(others)]
    own = sample[kept]
    return Targets(
        name,
        tables.unit[own],
        tables.cell[own],
        tables.people[own],
        np.repeat(np.arange(len(sizes)), sizes),
        np.concatenate([*(others for others in pairs), np.zeros(0, np.int64)]),
        len(sample) < len(entries),
    )


def _sample_of(entries: IntArray, most: int, rng: Generator) -> IntArray:
    if len(entries) <= most:
        return entries
    return np.sort(rng.choice(entries, most, replace=False))


def _alternatives(
    shape: Sequence[int], cell: int, axes: Sequence[int], possible: Flags
) -> IntArray:
    """Return the possible cells that differ from one along all of some axes, and only there."""
    where = [int(number) for number in np.unravel_index(cell, tuple(shape))]
    along = [
        [number for number in range(size) if number != where[axis]]
        if axis in axes
        else [where[axis]]
        for axis, size in enumerate(shape)
    ]
    cells = np.ravel_multi_index(np.ix_(*along), tuple(shape)).ravel()
    return np.asarray(cells[possible[cells]], np.int64)


def separations(tables: ExactTables, targets: Targets) -> Iterator[Separation]:
    """Yield, for each table, the counts that depend on the answer."""
    plan, unit = tables.plan, targets.unit[targets.entry]
    judged = plan.levels.index(plan.judged_level)
    for key in tables.counts:
        query = tables.query(key)
        own = query.cells_at(targets.cell[targets.entry])
        other = np.where(targets.other >= 0, query.cells_at(np.maximum(targets.other, 0)), -1)
        same = own == other
        place = tables.place(key.level)
        if plan.levels.index(key.level) >= judged:
            known = np.ones(len(unit), bool)
        else:  # a unit that is all of the unit above it
            inside = tables.geography.ancestors(plan.judged_level, key.level)
            known = (np.bincount(inside, minlength=tables.geography.units(key.level)) == 1)[
                place[unit]
            ]
        yield Separation(
            key, place[unit], np.where(same, -1, own), np.where(same, -1, other), known
        )
