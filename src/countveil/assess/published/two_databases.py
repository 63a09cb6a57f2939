"""Two databases that differ in one person, released many times: what is measured and published.

The intruder knows everyone else in one unit. With siblings="flat" they know nothing about other people,
which is the limit of priors ever more spread out: in it, almost everyone else is in cells with so many
people that no estimate is cut off at 0. There, adding people elsewhere moves the tables of other places
by as many, and leaves those of the unit as they are (but for ties in rounding), so that the intruder
learns from the tables of the unit alone. Simulated releases therefore have many people everywhere else,
a different number in each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from countveil.assess.intruder.attacks import determined, each_noise, expected_posterior
from countveil.assess.intruder.combined_loss import NoisyCells, joint_loss
from countveil.assess.intruder.targets import AttackTarget
from countveil.assess.intruder.whole_release import Evidence, evidence_in, path_laws
from countveil.assess.published.many_releases import (
    Place,
    SimulatedReleases,
    answers_of,
    lowest_counts,
    side_by_side,
    tied,
)
from countveil.base.numerics import Array, FloatArray, IntArray
from countveil.base.randomness import BitSource
from countveil.errors import InputError
from countveil.noise.law import LossLaw
from countveil.plan.attributes import choices
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan
from countveil.plan.workload import Query
from countveil.tree.unit_information import said_around

Siblings = Literal["known", "prior", "flat"]

_FAR, _SPREAD = 30, 1_000  # standard deviations from 0, and how far numbers there differ
_MOST_PEOPLE = 10**9  # in a simulated release
_NUMBERS = 4_000_000  # counts and values of releases that are simulated together
_LEAST_DRAWS = 400


class Simulation(NamedTuple):
    """Simulated releases of both databases, first with the target in `cell`.

    `published` has the counts on the target's path, 2 × draws × places. `loss` is what the measurements
    say: log P(measurements | first)/P(measurements | second), to someone who knows everyone else, or
    with siblings="flat" everyone else in their unit. `seen` is the same for someone who has a prior on
    other units, where that was asked for.
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
    target : AttackTarget
        The cells of the two hypotheses.
    knows : str
        The level of the unit in which the intruder knows everyone else.
    siblings : {"known", "prior", "flat"}
        Whether the intruder knows everyone outside of that unit, expects a Poisson number in each cell,
        or knows nothing about them.

    """

    plan: Plan
    geography: Geography
    counts: Array
    unit: int
    target: AttackTarget
    knows: str
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
        knows: str | None = None,
        siblings: Siblings = "known",
        geography: Geography | None = None,
    ) -> TwoDatabases:
        """Check the inputs; without a crosswalk, all units have the same parents.

        Where noise is too small or of a kind that someone who knows nothing about other units cannot be
        simulated, they count as knowing them, as `whole_release` has it.
        """
        if siblings not in get_args(Siblings):
            raise InputError(
                f'siblings: {siblings!r} is not allowed; choose "known", "prior" or "flat"'
            )
        level = plan.judged_level if knows is None else knows
        if level not in plan.levels:
            raise InputError(f"knows: unknown level {level!r}; choose from {choices(plan.levels)}")
        table, places = lowest_counts(plan, counts, geography)
        units, cells = table.shape
        _refuse_outside("unit", unit, units)
        _refuse_outside("cell", cell, cells)
        if other is not None:
            _refuse_outside("other", other, cells)
        above = places.ancestors(plan.levels[-1], level)
        known = above == above[unit]
        whole = table if siblings == "known" else table[known]
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
        if siblings == "flat" and plan.constraints:
            raise InputError(
                "constraints: they bound counts of named places, so an intruder knows something "
                'about the people there; choose siblings "known" or "prior"'
            )
        two = cls(plan, places, table, unit, AttackTarget(cell, other), level, siblings)
        if not tied(plan):
            two = two._in_own_tree()
        if siblings == "flat":
            return two._without_siblings(known.all())
        return two

    def _without_siblings(self, alone: bool) -> TwoDatabases:
        """Put many people everywhere else; let the intruder know them if they must count as knowing."""
        if alone or self.evidence.siblings_known:
            return replace(self, siblings="known")
        widest = max(math.sqrt(item.mechanism.variance) for item in self.plan.allocations)
        many = min(_FAR * math.ceil(widest), _MOST_PEOPLE // self.counts.size)
        counts = np.where(self.plan.possible, many, 0)
        counts = np.where(self.known[:, None], self.counts, counts[None, :])
        return replace(self, counts=counts.astype(np.int64))

    @cached_property
    def known(self) -> NDArray[np.bool_]:
        """Which lowest units are in the unit in which the intruder knows everyone else."""
        above = self.geography.ancestors(self.plan.levels[-1], self.knows)
        return np.asarray(above == above[self.unit])

    @cached_property
    def evidence(self) -> Evidence:
        """What reaches an intruder who knows nothing about the people outside of their unit."""
        return evidence_in(
            self.plan, self.knows, self.path[self.knows], self.target, self.geography
        )

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
        """Whether counts published exactly reveal the target to someone who knows as much."""
        return determined(self.plan, self.own_levels[0], (self.target,))

    @property
    def settled_inside(self) -> bool:
        """Whether exact counts of the unit that they know reveal the target by themselves."""
        if self.siblings == "prior":
            return determined(self.plan, self.knows, (self.target,))
        return self.settled

    @cached_property
    def measured_laws(self) -> tuple[NoisyCells, ...]:
        """The noise of the counts on the target's path of which they know all but the target."""
        return path_laws(self.plan, self.own_levels[0], self.target)

    def measured_posterior(self, log_odds: float) -> float:
        """Return the expected posterior of the truth given the measurements, or an upper bound."""
        rows = self.plan.rows_per_person
        if self.siblings == "flat":
            return self.evidence.posterior(log_odds, rows)[0]
        return expected_posterior(self.measured_loss, log_odds)

    @cached_property
    def measured_loss(self) -> LossLaw:
        """The law of what the measurements say: of the target's path, and with "flat" of all others."""
        if self.siblings == "flat":
            return self.evidence.loss(self.plan.rows_per_person)
        noises = each_noise(self.measured_laws)
        if not noises:
            return LossLaw(np.zeros(1), np.ones(1))
        return joint_loss(noises, self.plan.rows_per_person)

    @property
    def own_levels(self) -> tuple[str, ...]:
        """The levels of the path at which they know everyone else, or count as knowing them."""
        if self.siblings != "flat":
            return self.plan.levels
        return self.plan.levels[self.plan.levels.index(self.evidence.highest) :]

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
        """The published counts on the target's path that contain the target; whole cells first.

        With siblings="flat", those of places in which other people live say nothing more.
        """
        plan, cells = self.plan, [self.target.cell]
        if self.target.other is not None:
            cells.append(self.target.other)
        full, sums = plan.schema.every_cell, []
        published = [level for level in self.own_levels if level in plan.estimated_levels]
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
            released = self.released(there, first)
            releases = SimulatedReleases.draw(self.plan, self.geography, released, rng=rng)
            shape = (2, stop - start)
            said_there = self._loss(there, releases, first)
            if self.siblings == "flat":
                said_there += self._said_around(releases, released, first)
            loss[:, start:stop] = said_there.reshape(shape)
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
        if self.siblings == "flat":
            people = self.counts + source.integers(0, _SPREAD, shape) * self.plan.possible
        else:
            people = source.poisson(self.counts, shape)
        people[:, self.known] = self.counts[self.known]
        return people

    def _said_around(
        self, releases: SimulatedReleases, released: IntArray, first: Array
    ) -> FloatArray:
        """Return what the rest of the tree says about the unit, a part of the loss: normal noise."""
        rows, outside = self.plan.rows_per_person, self.evidence.outside
        if not outside:
            return np.zeros(len(first))
        noise = releases.less(SimulatedReleases.exactly(self.plan, self.geography, released))
        level = self.evidence.highest
        said = said_around(
            noise.as_one,
            side_by_side(self.geography, noise.releases),
            self.geography,
            level=level,
            unit=self.path[level],
            cell=self.target.cell,
            other=self.target.other,
        )
        return np.asarray(rows * said + np.where(first, 0.5, -0.5) * rows**2 * outside)

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
            if level not in self.own_levels:
                continue
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
