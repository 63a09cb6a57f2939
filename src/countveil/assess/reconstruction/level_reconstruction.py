"""What the exact tables of a level would give away, and the same about the noisy release.

The reconstructing intruder sees exact tables of every unit and nothing else. Tables of the levels
above are sums of these, so they add nothing. A unit with which only one database agrees is
reconstructed: its tables give away every record in it, though not the names. Counts of databases up to
the limit are exact; above it, they may be lower bounds.

The method is that of arXiv 2312.11283: of all databases that agree with the tables, how many there are,
and how far the farthest is from a known one. It shows what follows from tables alone. What an intruder
knows otherwise about the people, or about how they are likely to be distributed, comes on top of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from countveil.assess.intruder import whole_release
from countveil.assess.intruder.ladder import LevelRisk, risks_of
from countveil.assess.intruder.targets import Attack
from countveil.assess.reconstruction.published_lines import PublishedLines
from countveil.assess.reconstruction.solutions import LIMIT, Solutions, solution_count
from countveil.base.histograms import Histograms
from countveil.base.numerics import IntArray
from countveil.errors import InputError
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan

MOST_UNITS = 100_000

Progress = Callable[[int, int], None]  # called with the units done so far and all units


@dataclass(frozen=True, slots=True)
class SolutionClass:
    """The units with a number of databases in one range; `most` is None above the limit."""

    least: int
    most: int | None
    units: int
    people: int


@dataclass(frozen=True, slots=True, repr=False)
class Reconstruction:
    """What the exact tables of a level would give away.

    Attributes
    ----------
    level : str
        The level of the units.
    tables : tuple of str
        The tables that are taken to be published exactly for each unit.
    attributes : tuple of str
        What a record consists of: the attributes that these tables count.
    occupied, units, people : int
        The units that have people, those that were examined, and the people in these.
    one_units, one_people : int
        The units with which a single database agrees, and the people in them.
    classes : tuple of SolutionClass
        How many databases agree: 1, 2 to 10, 11 to 100 and so on, more than the limit.
    lower_bounds : int
        The units counted in a class by a lower bound that does not exceed the limit.
    certain : int
        The people whose record is the same in all databases that agree; a lower bound if not `exact`.
    differing : int
        The people whose record can differ from the true one in a database that agrees; an upper bound
        if not `exact`.
    widest : int
        The largest difference between two databases in one cell; an upper bound if not `exact`.
    exact : bool
        Whether these figures are exact in every unit.
    limit : int
        The number above which databases are not counted.
    audience : {"public", "internal"}
        "internal" if computed from confidential counts.

    """

    level: str
    tables: tuple[str, ...]
    attributes: tuple[str, ...]
    occupied: int
    units: int
    people: int
    one_units: int
    one_people: int
    classes: tuple[SolutionClass, ...]
    lower_bounds: int
    certain: int
    differing: int
    widest: int
    exact: bool
    limit: int
    audience: Literal["public", "internal"]

    def __repr__(self) -> str:
        return f"<{self.audience}: reconstruction of {self.units:,} units of level {self.level}>"


def reconstruct(
    plan: Plan,
    histograms: Histograms,
    *,
    level: str,
    audience: Literal["public", "internal"],
    tables: Sequence[str] = (),
    limit: int = LIMIT,
    most_units: int = MOST_UNITS,
    progress: Progress = lambda done, units: None,
) -> Reconstruction:
    """Return what the tables of a level would give away if they were published exactly.

    Parameters
    ----------
    plan : Plan
        What is counted, and by default which tables are published.
    histograms : Histograms
        The people in each cell of each unit of the level: exact counts, or estimates taken for exact.
    level : str
        The level of the units.
    audience : {"public", "internal"}
        "internal" if the histograms are exact counts.
    tables : sequence of str
        Other tables than those of the plan, by name.
    limit : int
        The number above which databases are not counted.
    most_units : int
        If more units have people, this many of them are examined, evenly spaced.
    progress : callable
        Called with the units done so far and all units.

    Returns
    -------
    Reconstruction
        Shares and distribution of the number of databases that agree.

    Examples
    --------
    >>> estimates = release.estimates  # doctest: +SKIP
    >>> found = reconstruct(
    ...     release.plan, estimates.levels["block"], level="block", audience="public"
    ... )  # doctest: +SKIP
    >>> found.one_units / found.units  # doctest: +SKIP

    """
    if most_units < 1:
        raise InputError(f"units: {most_units} is not allowed; give at least 1")
    if limit < 1:
        raise InputError(f"limit: {limit} is not allowed; give at least 1")
    lines = PublishedLines.of_plan(plan, level, tables)
    occupied = np.flatnonzero(np.diff(histograms.offsets) > 0)
    sample = _spaced(occupied, most_units)
    results: list[tuple[int, Solutions]] = []
    for done, known in enumerate(_databases(lines, histograms, sample), 1):
        results.append((sum(known.values()), solution_count(lines, known=known, limit=limit)))
        if not done % 100:
            progress(done, len(sample))
    progress(len(sample), len(sample))
    one = [people for people, item in results if item.count == 1]
    return Reconstruction(
        level,
        lines.tables,
        lines.attributes,
        len(occupied),
        len(sample),
        sum(people for people, _ in results),
        len(one),
        sum(one),
        _classes(results, limit),
        sum(not item.exact and item.count <= limit for _, item in results),
        sum(item.certain for _, item in results),
        round(sum(min(item.differing or 0.0, people) for people, item in results)),
        max((item.widest for _, item in results), default=0),
        all(item.exact for _, item in results),
        limit,
        audience,
    )


def record_risks(
    plan: Plan, *, level: str | None = None, geography: Geography | None = None
) -> list[LevelRisk]:
    """Return what someone learns from the noisy release about the whole record of a person.

    They know everyone else in a unit of the level, see the whole release with everything published
    exactly, and hesitate between two records. From exact tables that distinguish the two, they would be
    certain. If the plan has only one attribute value, the question is whether the person is there.

    Parameters
    ----------
    plan : Plan
        The plan whose noise is assessed; no record is read.
    level : str, optional
        The level of the unit in which they know everyone else; by default the plan's.
    geography : Geography, optional
        The places; by default those of the plan's crosswalk.

    Returns
    -------
    list of LevelRisk
        One per prior of the plan, the largest posterior first.

    """
    whole = whole_release.possible_attack(plan, "whole record", None)
    attack: Attack = "whole record" if whole else "presence"
    name = plan.judged_level if level is None else level
    views = whole_release.evidence(plan, name, attack=attack, geography=geography)
    priors = tuple(dict.fromkeys(plan.intruder.priors))
    risks = risks_of(plan, name, [(attack, item) for item in views], priors, decisions=False)
    return sorted(risks, key=lambda item: -item.posterior)


def _spaced(units: IntArray, most: int) -> IntArray:
    """Return all units, or `most` of them, evenly spaced."""
    if len(units) <= most:
        return units
    return units[np.linspace(0, len(units) - 1, most).round().astype(np.int64)]


def _databases(
    lines: PublishedLines, histograms: Histograms, units: IntArray
) -> Iterator[dict[int, int]]:
    """Yield the people in each cell of each unit."""
    for unit in units.tolist():
        first, last = int(histograms.offsets[unit]), int(histograms.offsets[unit + 1])
        cells, counts = histograms.cells[first:last], histograms.counts[first:last]
        yield lines.database(cells.tolist(), counts.tolist())


def _classes(results: Sequence[tuple[int, Solutions]], limit: int) -> tuple[SolutionClass, ...]:
    """Count units and people by the number of databases: 1, then by powers of ten to the limit."""
    ends = [1]
    while ends[-1] < limit:
        ends.append(min(10 * ends[-1], limit))
    classes = []
    for least, most in zip([1, *(end + 1 for end in ends)], [*ends, None], strict=True):
        inside = [
            people
            for people, item in results
            if item.count >= least and (most is None or item.count <= most)
        ]
        classes.append(SolutionClass(least, most, len(inside), sum(inside)))
    return tuple(classes)
