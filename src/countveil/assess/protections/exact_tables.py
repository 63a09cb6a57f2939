"""The tables that a protection starts from: the plan's own tables, counted exactly.

From records they are confidential, and so is everything made from them. From the estimates of a
release, or from records that are public, they may be shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from countveil.base.histograms import Entries
from countveil.base.numerics import IntArray
from countveil.engines.counts import Counts
from countveil.errors import InputError
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan
from countveil.plan.workload import TOTAL, Query
from countveil.publish.release_folder import Release

Basis = Literal["records", "public records", "published estimates", "simulated release"]

MOST_COUNTS = 30_000_000
"""Counts in all tables together that are held in memory at once."""


class TableKey(NamedTuple):
    """One table: a query for every unit of a level."""

    level: str
    query: str


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class ExactTables:
    """The people of the lowest units, and the tables that a plan publishes about them.

    Attributes
    ----------
    plan : Plan
        The plan whose tables are protected.
    geography : Geography
        The places.
    basis : {"records", "public records", "published estimates", "simulated release"}
        What the people were counted from. "records" are confidential, and so are the estimates of a
        release with seeded noise, which anyone who has the seed could subtract.
    unit, cell, people : array of int
        The people in each cell of each lowest unit, zeros left out.
    counts : dict of TableKey to array of int
        Each table, units × cells: total, measured queries and what is published exactly.

    """

    plan: Plan
    geography: Geography
    basis: Basis
    unit: IntArray
    cell: IntArray
    people: IntArray
    counts: dict[TableKey, IntArray]

    def __repr__(self) -> str:
        return f"<{len(self.counts)} exact tables from {self.basis}>"

    @property
    def internal(self) -> bool:
        """Whether what follows from them is confidential."""
        return self.basis in ("records", "simulated release")

    @property
    def lowest(self) -> str:
        """The lowest level with a table."""
        return self.plan.estimated_levels[-1]

    def query(self, key: TableKey) -> Query:
        """Return the query of a table."""
        return self.plan.schema.query(key.query)

    def exact(self, key: TableKey) -> bool:
        """Whether the plan publishes the table exactly: then every protection leaves it so."""
        return any((item.level, item.query.name) == key for item in self.plan.invariants)

    def place(self, level: str) -> IntArray:
        """Return the unit of a level in which each lowest unit is."""
        return self.geography.ancestors(self.lowest, level)

    def of_people(self, unit: IntArray, cell: IntArray, people: IntArray) -> ExactTables:
        """Return the same tables of other people."""
        return tabulated(
            self.plan, self.geography, self.basis, (unit, cell, people), list(self.counts)
        )


def tables_of(plan: Plan) -> list[TableKey]:
    """Return the tables of a plan: totals and measured queries, and what is published exactly."""
    keys = [
        TableKey(level, name)
        for level in plan.measured_levels
        for name in (TOTAL, *(item.query.name for item in plan.at(level)))
    ]
    exact = [TableKey(item.level, item.query.name) for item in plan.invariants]
    known = plan.estimated_levels
    return list(dict.fromkeys([*keys, *(key for key in exact if key.level in known)]))


def from_counts(plan: Plan, counts: Counts, *, public: bool = False) -> ExactTables:
    """Return the tables of a plan from counted records.

    Parameters
    ----------
    plan : Plan
        The plan whose tables are wanted.
    counts : Counts
        The counts, tabulated for the same plan.
    public : bool
        Whether the user attests that the records are public. Otherwise the result is internal.

    Returns
    -------
    ExactTables
        The tables, confidential unless `public`.

    """
    if counts.counted_as != plan.counting_digest:
        raise InputError(
            "counts: tabulated for another plan; tabulate the records for the plan to be compared"
        )
    lowest = plan.estimated_levels[-1]
    entries = counts.entries(lowest, 0, counts.geography.units(lowest))
    basis: Basis = "public records" if public else "records"
    return tabulated(plan, counts.geography, basis, entries, tables_of(plan))


def from_release(release: Release) -> ExactTables:
    """Return the tables of a release, made from its published estimates as if they were people.

    Parameters
    ----------
    release : Release
        A release with estimates.

    Returns
    -------
    ExactTables
        Tables that may be shown if the release may: nothing else is read.

    """
    plan = release.plan
    if "estimates" not in release.manifest:
        raise InputError(
            f"{release.folder}: has no estimates to make the other protections from; run `countveil "
            f"postprocess` first, or name the plan and add --internal"
        )
    lowest = plan.estimated_levels[-1]
    histograms = release.estimates.levels[lowest]
    return tabulated(
        plan,
        release.geography,
        "published estimates" if release.publishable else "simulated release",
        histograms.entries(0, histograms.units),
        tables_of(plan),
    )


def tabulated(
    plan: Plan, geography: Geography, basis: Basis, entries: Entries, keys: Iterable[TableKey]
) -> ExactTables:
    """Count people by the tables listed; `entries` are (unit, cell, people) of the lowest level."""
    lowest = plan.estimated_levels[-1]
    tables = list(keys)
    size = sum(geography.units(key.level) * plan.schema.query(key.query).cells for key in tables)
    if size > MOST_COUNTS:
        raise InputError(
            f"{plan.name}: its tables have {size:,} counts; other protections are compared for up to "
            f"{MOST_COUNTS:,}: name a plan for part of the places, or with fewer cells"
        )
    unit, cell, people = entries
    counts = {}
    for key in tables:
        query = plan.schema.query(key.query)
        where, place = query.cells_at(cell), geography.ancestors(lowest, key.level)[unit]
        kept = where >= 0
        flat = np.bincount(
            place[kept] * query.cells + where[kept],
            people[kept],
            geography.units(key.level) * query.cells,
        )
        counts[key] = flat.astype(np.int64).reshape(-1, query.cells)
    return ExactTables(plan, geography, basis, unit, cell, people, counts)
