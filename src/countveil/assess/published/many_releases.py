"""Many releases of one plan at once, by TopDown itself, in memory as far as it allows.

The trees of all releases stand side by side, as one crosswalk with a top of its own for each, so that
one descent post-processes them all with the code that makes real releases. Equal measurements have
equal estimates unless rounding is random, so each different release is estimated once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from countveil.base.numerics import Array, IntArray
from countveil.base.randomness import BitSource, Seeded
from countveil.errors import InputError
from countveil.measure.measurements import Measured
from countveil.noise.law import Mechanism
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan
from countveil.plan.workload import Query
from countveil.postprocess.estimates import Estimates
from countveil.postprocess.topdown import DescentJob, descend

_VALUES = 1_000_000  # measured values of all releases that are estimated together


class Place(NamedTuple):
    """One count of a published table: a cell of a query, in a unit of a level."""

    level: str
    unit: int
    query: Query
    cell: int


@dataclass(frozen=True, eq=False, slots=True)
class SimulatedReleases:
    """What several releases measured, and what they publish exactly.

    Attributes
    ----------
    plan : Plan
        The plan of all of them.
    geography : Geography
        The places of one release.
    values : dict of str to array
        By level: releases × units × values, all queries of the level side by side.
    exact : dict of (str, str) to array
        By level and invariant: releases × units × cells.

    """

    plan: Plan
    geography: Geography
    values: dict[str, IntArray]
    exact: dict[tuple[str, str], IntArray]

    @property
    def releases(self) -> int:
        """The number of releases."""
        return len(next(iter(self.values.values())))

    @classmethod
    def exactly(cls, plan: Plan, geography: Geography, histograms: IntArray) -> SimulatedReleases:
        """Answer the queries of the lowest units' histograms, releases × units × cells, exactly."""
        values, exact = {}, {}
        lowest = plan.levels[-1]
        for level in plan.levels:
            sums = _sums(histograms, geography.ancestors(lowest, level), geography.units(level))
            parts = [answers_of(item.query, sums) for item in plan.at(level)]
            if parts:
                values[level] = np.concatenate(parts, axis=2)
            for fact in plan.invariants:
                if fact.level == level:
                    exact[level, fact.query.name] = answers_of(fact.query, sums)
        return cls(plan, geography, values, exact)

    @classmethod
    def draw(
        cls, plan: Plan, geography: Geography, histograms: IntArray, *, rng: BitSource
    ) -> SimulatedReleases:
        """Measure the lowest units' histograms, releases × units × cells, with independent noise."""
        answers = cls.exactly(plan, geography, histograms)
        for level, values in answers.values.items():
            offset = 0
            for item in plan.at(level):
                part = values[:, :, offset : offset + item.query.cells]
                part += item.mechanism.sample(part.size, rng=rng).reshape(part.shape)
                offset += item.query.cells
        return answers

    def part(self, which: IntArray | slice) -> SimulatedReleases:
        """Return some of the releases."""
        return SimulatedReleases(
            self.plan,
            self.geography,
            {level: values[which] for level, values in self.values.items()},
            {name: values[which] for name, values in self.exact.items()},
        )

    def less(self, other: SimulatedReleases) -> SimulatedReleases:
        """Return by how much these values exceed those of as many other releases."""
        return SimulatedReleases(
            self.plan,
            self.geography,
            {name: values - other.values[name] for name, values in self.values.items()},
            {name: values - other.exact[name] for name, values in self.exact.items()},
        )

    @property
    def as_one(self) -> Measured:
        """All releases as one, in the places of `side_by_side`."""
        return _SideBySide(self)

    def joined(self, other: SimulatedReleases) -> SimulatedReleases:
        """Return these releases, then the others."""
        return SimulatedReleases(
            self.plan,
            self.geography,
            {name: np.concatenate([own, other.values[name]]) for name, own in self.values.items()},
            {name: np.concatenate([own, other.exact[name]]) for name, own in self.exact.items()},
        )

    def published(
        self,
        places: Sequence[Place],
        *,
        rng: BitSource,
        progress: Callable[[int, int], None] = lambda done, all_: None,
    ) -> IntArray:
        """Return counts of the published tables, releases × places, as TopDown makes them."""

        def read(estimates: Estimates, copies: int) -> IntArray:
            counts = np.empty((copies, len(places)), np.int64)
            known: dict[tuple[str, str], IntArray] = {}
            for number, place in enumerate(places):
                key = place.level, place.query.name
                if key not in known:
                    table = estimates.counts(place.level, place.query)
                    known[key] = table.reshape(copies, -1, place.query.cells)
                counts[:, number] = known[key][:, place.unit, place.cell]
            return counts

        units: dict[str, list[int]] = {}
        for place in places:
            units.setdefault(place.level, []).append(place.unit)
        return self._estimated(units, read, rng, progress)

    def tables(
        self,
        level: str,
        queries: Sequence[Query],
        *,
        rng: BitSource,
        progress: Callable[[int, int], None] = lambda done, all_: None,
    ) -> IntArray:
        """Return published tables, releases × units × cells of all queries, as TopDown makes them."""

        def read(estimates: Estimates, copies: int) -> IntArray:
            counts = [estimates.counts(level, query) for query in queries]
            return np.concatenate([item.reshape(copies, -1, item.shape[1]) for item in counts], 2)

        units = {level: range(self.geography.units(level))}
        return self._estimated(units, read, rng, progress)

    def several_tables(
        self, tables: Sequence[tuple[str, Query]], *, rng: BitSource
    ) -> list[IntArray]:
        """Return published tables of several levels, each releases × units × cells."""
        sizes = [self.geography.units(level) * query.cells for level, query in tables]

        def read(estimates: Estimates, copies: int) -> IntArray:
            counts = [estimates.counts(level, query) for level, query in tables]
            return np.concatenate([item.reshape(copies, -1) for item in counts], axis=1)

        units = {level: range(self.geography.units(level)) for level, _ in tables}
        together = self._estimated(units, read, rng, lambda done, all_: None)
        parts = np.split(together, np.cumsum(sizes)[:-1], axis=1)
        return [
            part.reshape(self.releases, -1, query.cells)
            for part, (_, query) in zip(parts, tables, strict=True)
        ]

    def _estimated(
        self,
        units: Mapping[str, Sequence[int]],
        read: Callable[[Estimates, int], IntArray],
        rng: BitSource,
        progress: Callable[[int, int], None],
    ) -> IntArray:
        """Post-process each different release as far as some units need it; return what is read."""
        needed = needed_units(self.geography, units) if leaves_out(self.plan) else None
        different, again = self._different()
        todo = self.part(different)
        size = sum(values[0].size for values in self.values.values())
        step = 1 if tied(self.plan) else max(1, _VALUES // max(size, 1))
        parts = []
        for start in range(0, todo.releases, step):
            stop = min(start + step, todo.releases)
            parts.append(_side_by_side_estimates(todo.part(slice(start, stop)), needed, read, rng))
            progress(stop, todo.releases)
        return np.concatenate(parts)[again]

    def _different(self) -> tuple[IntArray, IntArray]:
        """Return the first release of each kind, and the kind of every release."""
        if _rounds_at_random(self.plan):
            return np.arange(self.releases), np.arange(self.releases)
        flat = [
            item.reshape(self.releases, -1)
            for item in (*self.values.values(), *self.exact.values())
        ]
        rows = np.ascontiguousarray(np.concatenate(flat, axis=1))
        keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
        _, first, kind = np.unique(keys, return_index=True, return_inverse=True)
        return first, kind.ravel()


def answers_of(query: Query, histograms: IntArray) -> IntArray:
    """Return the exact counts of a query, … × its cells, of histograms over the full table."""
    place = query.cell_of
    counted = np.flatnonzero(place >= 0)
    exact = np.zeros((*histograms.shape[:-1], query.cells), np.int64)
    np.add.at(exact.T, place[counted], histograms[..., counted].T)
    return exact


def one_family(plan: Plan, units: int) -> Geography:
    """Return places for a plan without a crosswalk: all lowest units have the same parents."""
    numbers = [1] * (len(plan.levels) - 1) + [units]
    codes = tuple(pa.array([str(number) for number in range(size)]) for size in numbers)
    parents = tuple(np.zeros(size, np.int64) for size in numbers)
    return Geography(tuple(plan.levels), codes, parents)


def lowest_counts(
    plan: Plan, counts: Array, geography: Geography | None
) -> tuple[Array, Geography]:
    """Return the lowest units' histograms and their places; without a crosswalk, one family."""
    table, cells = np.asarray(counts), plan.schema.cells
    numeric = np.issubdtype(table.dtype, np.number) and not np.iscomplexobj(table)
    if table.ndim != 2 or table.shape[1] != cells or not numeric or not (table >= 0).all():
        raise InputError(
            f"counts: shape {table.shape} is not allowed; give lowest units × {cells:,} cells of "
            f"the full table, with no negative count"
        )
    places = geography or plan.places() or one_family(plan, len(table))
    units = places.units(plan.levels[-1])
    if len(table) != units:
        raise InputError(
            f"counts: {len(table):,} rows, but the crosswalk has {units:,} units of "
            f"{plan.levels[-1]}; give a row for each, in the crosswalk's order"
        )
    return table, places


def refuse_other_methods(plan: Plan) -> None:
    """Refuse a plan whose tables are not made by TopDown."""
    if plan.method != "top-down":
        raise InputError(
            f"{plan.name}: method {plan.method!r} publishes no tables other than the measurements; "
            f'write method = "top-down", or ask for the risk of the measurements'
        )


def _sums(histograms: IntArray, ancestors: IntArray, units: int) -> IntArray:
    """Return the histograms of a level: releases × units × cells."""
    starts = np.searchsorted(ancestors, np.arange(units))
    return np.add.reduceat(histograms, starts, axis=1)


def tied(plan: Plan) -> bool:
    """Whether public facts name units, or tie units at the top, so that each release stands alone."""
    return bool(plan.constraints) or any(
        item.level not in plan.measured_levels for item in plan.invariants
    )


def leaves_out(plan: Plan) -> bool:
    """Whether families that no one asks about can be left out: no public facts move their parents."""
    return not tied(plan) and all(item.level == plan.levels[0] for item in plan.invariants)


def needed_units(
    geography: Geography, units: Mapping[str, Sequence[int]]
) -> dict[str, NDArray[np.bool_]]:
    """Return, for each level, which units are among those named or above them."""
    needed = {level: np.zeros(geography.units(level), bool) for level in geography.levels}
    for level, own in units.items():
        numbers = np.array(own, np.int64)
        for above in geography.levels[: geography.index(level) + 1]:
            needed[above][geography.ancestors(level, above)[numbers]] = True
    return needed


def _side_by_side_estimates(
    releases: SimulatedReleases,
    needed: Mapping[str, NDArray[np.bool_]] | None,
    read: Callable[[Estimates, int], IntArray],
    rng: BitSource,
) -> IntArray:
    """Post-process releases side by side, as far as units are needed; return what is read of them."""
    copies, plan = releases.releases, releases.plan
    if _rounds_at_random(plan) and rng.reproducible:
        # Bits are addressed by unit, and the units of the next releases have the same names.
        rng = Seeded(int.from_bytes(rng.begin(8).tobytes(), "little"))
    if needed is not None:
        needed = {level: np.tile(units, copies) for level, units in needed.items()}
    with tempfile.TemporaryDirectory(prefix="countveil-") as folder:
        job = DescentJob(_SideBySide(releases), plan, Path(folder), rng, needed=needed)
        return read(descend(job, side_by_side(releases.geography, copies)), copies)


def _rounds_at_random(plan: Plan) -> bool:
    return any(passes.rounding == "unbiased" for passes in plan.passes.values())


def side_by_side(geography: Geography, copies: int) -> Geography:
    """Return a crosswalk with several copies of a tree."""
    if copies == 1:
        return geography
    codes, above = [], 1
    parents: list[IntArray] = []
    for own, up in zip(geography.codes, geography.parents, strict=True):
        names = own.to_pylist()
        codes.append(pa.array([f"{copy} {name}" for copy in range(copies) for name in names]))
        shifts = np.arange(copies)[:, None] * above if parents else np.zeros((copies, 1), np.int64)
        parents.append((shifts + up).reshape(-1))
        above = len(own)
    return Geography(geography.levels, tuple(codes), tuple(parents))


@dataclass(frozen=True, eq=False, slots=True)
class _SideBySide:
    """The measurements of several releases, as those of one."""

    releases: SimulatedReleases

    @property
    def plan(self) -> Plan:
        return self.releases.plan

    @property
    def mechanisms(self) -> dict[tuple[str, str], Mechanism]:
        return {
            (level, item.query.name): item.mechanism
            for level in self.plan.levels
            for item in self.plan.at(level)
        }

    def units(self, level: str, start: int, stop: int) -> NDArray[np.int32]:
        values = self.releases.values[level]
        return values.reshape(-1, values.shape[2])[start:stop].astype(np.int32)

    def invariant(self, level: str, query: str) -> IntArray:
        values = self.releases.exact[level, query]
        return values.reshape(-1, values.shape[2])
