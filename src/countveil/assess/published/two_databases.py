"""Two databases that differ in one person, released many times: what is measured and published."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np

from countveil.assess.intruder.attacks import determined, each_noise
from countveil.assess.intruder.combined_loss import joint_loss
from countveil.assess.intruder.targets import Target
from countveil.assess.intruder.whole_release import path_laws
from countveil.assess.published.many_releases import (
    Place,
    SimulatedReleases,
    answers_of,
    lowest_counts,
    tied,
)
from countveil.base.numerics import Array, FloatArray, IntArray
from countveil.base.randomness import BitSource
from countveil.errors import InputError
from countveil.noise.law import LossLaw
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan
from countveil.plan.workload import Query

Siblings = Literal["known", "prior"]

_NUMBERS = 4_000_000  # counts and values of releases that are simulated together
_LEAST_DRAWS = 400


class Simulation(NamedTuple):
    """Simulated releases of both databases, first with the target in `cell`.

    `published` has the counts on the target's path, 2 × draws × places. `loss` is what the measurements
    say to someone who knows everyone else: log P(measurements | first)/P(measurements | second).
    `seen` is the same for someone who has a prior on other units, where that was asked for.
    """

    published: IntArray
    loss: FloatArray
    seen: FloatArray | None = None


@dataclass(frozen=True, eq=False)
class TwoDatabases:
    """A target who is in `cell` of a lowest unit, or in another cell, or nowhere.

    Attributes
    ----------
    plan : Plan
        The plan that releases them.
    geography : Geography
        The places.
    counts : array, lowest units × cells
        Everyone, with the target in `cell`. With a prior on other units, those have means here.
    unit : int
        The target's unit.
    target : Target
        The cells of the two hypotheses.
    siblings : {"known", "prior"}
        Whether the intruder knows everyone in other units, or expects a Poisson number in each cell.

    """

    plan: Plan
    geography: Geography
    counts: Array
    unit: int
    target: Target
    siblings: Siblings = "known"

    @classmethod
    def of(
        cls,
        plan: Plan,
        *,
        counts: Array,
        unit: int,
        cell: int,
        other: int | None = None,
        siblings: Siblings = "known",
        geography: Geography | None = None,
    ) -> TwoDatabases:
        """Check the inputs; without a crosswalk, all units have the same parents."""
        if siblings not in get_args(Siblings):
            raise InputError(f'siblings: {siblings!r} is not allowed; choose "known" or "prior"')
        table, places = lowest_counts(plan, counts, geography)
        units, cells = table.shape
        _refuse_outside("unit", unit, units)
        _refuse_outside("cell", cell, cells)
        if other is not None:
            _refuse_outside("other", other, cells)
        whole = table[unit] if siblings == "prior" else table
        if (whole != np.floor(whole)).any() or not np.isfinite(table).all():
            raise InputError("counts: people whom the intruder knows must be whole numbers")
        if table[unit, cell] < plan.rows_per_person:
            raise InputError(
                f"counts: the target is not counted: cell {cell} of unit {unit} has "
                f"{table[unit, cell]:g} and needs {plan.rows_per_person}, the rows of a person; add "
                f"the target to counts"
            )
        impossible = [
            item for item in (cell, other) if item is not None and not plan.possible[item]
        ]
        if impossible or other == cell:
            raise InputError(
                f"cell, other: {cell}, {other} are not allowed; choose two different cells that can "
                f"have people, or leave out `other`"
            )
        two = cls(plan, places, table, unit, Target(cell, other), siblings)
        return two if tied(plan) else two._in_own_tree()

    def _in_own_tree(self) -> TwoDatabases:
        """Leave out the units under other tops: nothing there depends on the target."""
        geography, (_, members, top) = self.geography, self.units_of_path()[0]
        if len(members) == len(self.counts):
            return self
        codes, above = [], 0
        parents: list[IntArray] = []
        for level, own, up in zip(
            geography.levels, geography.codes, geography.parents, strict=True
        ):
            inside = np.flatnonzero(geography.ancestors(level, geography.levels[0]) == top)
            first, last = int(inside[0]), int(inside[-1]) + 1
            codes.append(own.slice(first, last - first))
            parents.append(up[first:last] - above if parents else up[:1] * 0)
            above = first
        tree = Geography(geography.levels, tuple(codes), tuple(parents))
        return replace(
            self, geography=tree, counts=self.counts[members], unit=self.unit - int(members[0])
        )

    @property
    def settled(self) -> bool:
        """Whether counts published exactly reveal the target to someone who knows everyone else."""
        return determined(self.plan, self.plan.levels[0], (self.target,))

    @cached_property
    def measured_loss(self) -> LossLaw:
        """The law of what the measurements on the target's path say, on the integer lattice."""
        noises = each_noise(path_laws(self.plan, self.plan.levels[0], self.target))
        if not noises:
            return LossLaw(np.zeros(1), np.ones(1))
        return joint_loss(noises, self.plan.rows_per_person)

    @cached_property
    def path(self) -> dict[str, int]:
        """The target's unit at each level, from the top."""
        lowest = self.plan.levels[-1]
        return {
            level: int(self.geography.ancestors(lowest, level)[self.unit])
            for level in self.plan.levels
        }

    @cached_property
    def places(self) -> list[Place]:
        """The published counts on the target's path that contain the target; whole cells first."""
        plan, cells = self.plan, [self.target.cell]
        if self.target.other is not None:
            cells.append(self.target.other)
        full, sums = plan.schema.every_cell, []
        published = plan.levels[: plan.levels.index(plan.measured_levels[-1]) + 1]
        each = [Place(level, self.path[level], full, cell) for level in published for cell in cells]
        for level in published:
            queries = [item.query for item in plan.at(level)] + [item.query for item in plan.tables]
            queries += [item.query for item in plan.invariants if item.level == level]
            for query in dict.fromkeys(queries):
                if query.cells < full.cells:
                    inside = dict.fromkeys(int(query.cells_at(cell)) for cell in cells)
                    sums += [Place(level, self.path[level], query, at) for at in inside if at >= 0]
        return each + sums

    @property
    def whole_cells(self) -> int:
        """How many of the places are whole cells."""
        full = self.plan.schema.every_cell.name
        return sum(place.query.name == full for place in self.places)

    def simulate(
        self,
        draws: int,
        *,
        rng: BitSource,
        seen: Callable[[TwoDatabases, IntArray, SimulatedReleases], FloatArray] | None = None,
        progress: Callable[[int, int], None] = lambda done, all_: None,
    ) -> Simulation:
        """Release each database `draws`/2 times with noise of its own: whole trees, by TopDown."""
        if isinstance(draws, bool) or not isinstance(draws, int) or draws < _LEAST_DRAWS:
            raise InputError(f"draws: {draws!r} is not allowed; use at least {_LEAST_DRAWS}")
        draws //= 2
        published = np.empty((2, draws, len(self.places)), np.int64)
        loss = np.empty((2, draws))
        said = None if seen is None else np.empty((2, draws))
        scalars = sum(
            self.geography.units(level) * sum(item.query.cells for item in self.plan.at(level))
            for level in self.plan.levels
        )
        step = max(1, _NUMBERS // (2 * (scalars + 2 * self.counts.size)))
        source = np.random.default_rng(rng.for_unit("people", "siblings", "draws").begin(16))
        for start in range(0, draws, step):
            stop = min(start + step, draws)
            there = self._people(2 * (stop - start), source)
            first = np.arange(len(there)) < stop - start
            releases = SimulatedReleases.draw(
                self.plan, self.geography, self.released(there, first), rng=rng
            )
            shape = (2, stop - start)
            loss[:, start:stop] = self._loss(there, releases, first).reshape(shape)
            if seen is not None and said is not None:
                said[:, start:stop] = seen(self, there, releases).reshape(shape)
            counts = releases.published(self.places, rng=rng)
            published[:, start:stop] = counts.reshape(*shape, -1)
            progress(stop, draws)
        return Simulation(published, loss, said)

    def _people(self, releases: int, source: np.random.Generator) -> IntArray:
        """Return everyone, target included: releases × units × cells."""
        shape = (releases, *self.counts.shape)
        if self.siblings == "known":
            return np.broadcast_to(self.counts.astype(np.int64), shape)
        people = source.poisson(self.counts, shape)
        people[:, self.unit] = self.counts[self.unit]
        return people

    def released(self, there: IntArray, first: Array) -> IntArray:
        """Return the histograms that are released: the first database where `first`, else the other."""
        truth, rows = there.copy(), self.plan.rows_per_person
        truth[~first, self.unit, self.target.cell] -= rows
        if self.target.other is not None:
            truth[~first, self.unit, self.target.other] += rows
        return truth

    def _loss(self, there: IntArray, releases: SimulatedReleases, first: Array) -> FloatArray:
        """Return log P(measurements | first)/P(measurements | second) of each release."""
        loss, rows = np.zeros(len(there)), self.plan.rows_per_person
        if self.settled:
            return np.where(first, np.inf, -np.inf)
        for level, members, unit in self.units_of_path():
            people = there[:, members].sum(axis=1)
            offset = 0
            for item in self.plan.at(level):
                exact = answers_of(item.query, people)
                for cell, sign in self.moves(item.query):
                    noise = releases.values[level][:, unit, offset + cell] - exact[:, cell]
                    loss += item.mechanism.loss_at(sign * noise.astype(float), rows)
                offset += item.query.cells
        return loss

    def units_of_path(self) -> list[tuple[str, IntArray, int]]:
        """Return, level by level, the lowest units in the target's unit there, and its number."""
        lowest = self.plan.levels[-1]
        return [
            (level, np.flatnonzero(self.geography.ancestors(lowest, level) == unit), unit)
            for level, unit in self.path.items()
        ]

    def moves(self, query: Query) -> list[tuple[int, int]]:
        """Return the cells of a query in which the first database has more, +1, or fewer people, -1."""
        own = int(query.cells_at(self.target.cell))
        other = -1 if self.target.other is None else int(query.cells_at(self.target.other))
        if own == other:
            return []
        return [(cell, sign) for cell, sign in ((own, 1), (other, -1)) if cell >= 0]


def _refuse_outside(name: str, number: int, size: int) -> None:
    whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
    if not whole or not 0 <= number < size:
        raise InputError(f"{name}: {number!r} is not allowed; choose from 0 to {size - 1:,}")
