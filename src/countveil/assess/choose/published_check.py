"""Whether published errors follow their forecast: both splits, simulated on a population.

Forecasts are of unbiased estimates. Published counts are whole and never negative, so that sparse
tables are more accurate than forecast, and detail may be worth more. A population is needed to see
that: a release's published estimates taken for the truth, or people spread evenly. No record is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from countveil.assess.choose.optimal_split import BestSplit, errors_of_targets
from countveil.assess.protections.exact_tables import from_release
from countveil.assess.published.many_releases import SimulatedReleases, answers_of
from countveil.base.numerics import IntArray
from countveil.base.randomness import BitSource
from countveil.errors import InputError
from countveil.plan.accuracy_target import Target
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan
from countveil.publish.release_folder import Release
from countveil.tree.tree_shape import tree_of

_MOST_CELLS = 20_000_000  # of all lowest units of a population together
_AT_ONCE = 4_000_000  # cells of the releases that are simulated together
_APART = 0.1  # how far errors may be from their forecast to be called close to it


@dataclass(frozen=True, eq=False, slots=True)
class SimulatedPeople:
    """People by lowest unit and cell, and in words where they come from.

    Attributes
    ----------
    geography : Geography
        The places.
    people : array of int
        Lowest units × cells of the full table.
    source : str
        Where they come from.

    """

    geography: Geography
    people: IntArray
    source: str

    @classmethod
    def of_release(cls, release: Release, plan: Plan) -> SimulatedPeople:
        """Return the published estimates of a release as the people of a plan with its attributes.

        Only those of a publishable release are public.
        """
        own, other = (item.document["attributes"] for item in (plan, release.plan))
        if plan.levels != release.plan.levels or own != other:
            raise InputError(
                f"{release.folder}: its levels or attributes differ from those of {plan.name}; name a "
                f"release of the same places and attributes"
            )
        tables = from_release(release)
        if tables.internal:
            raise InputError(
                f"{release.folder}: was drawn from a seed, so its estimates are confidential; name a "
                f"publishable release, or a number of people per place"
            )
        people = _empty(release.plan, tables.geography)
        np.add.at(people, (tables.unit, tables.cell), tables.people)
        return cls(tables.geography, people, f"the published estimates in {release.folder.name}")

    @classmethod
    def even(cls, plan: Plan, people: float, *, seed: int = 1) -> SimulatedPeople:
        """Return people spread at random over the possible cells of every lowest unit.

        Parameters
        ----------
        plan : Plan
            The plan.
        people : float
            How many there are in a lowest unit on average.
        seed : int
            Another seed gives other people.

        """
        if not (math.isfinite(people) and people > 0):
            raise InputError(f"population: {people:g} people per place is not possible; give more")
        geography = plan.geography()
        drawn = _empty(plan, geography)
        possible = np.flatnonzero(plan.possible)
        means = people / len(possible)
        random = np.random.default_rng(seed)
        drawn[:, possible] = random.poisson(means, (len(drawn), len(possible)))
        where = f"{people:g} people per {plan.levels[-1]}, spread evenly over the cells"
        return cls(geography, drawn, where)


@dataclass(frozen=True, eq=False, slots=True)
class PublishedCheck:
    """Forecast and published errors of the tables that matter, for both splits.

    Attributes
    ----------
    table : pyarrow.Table
        One row per target: its forecast and published standard errors, before and after.
    population : str
        Where the people come from.
    people : int
        How many they are.
    releases : int
        How many releases of each plan were simulated.

    """

    table: pa.Table
    population: str
    people: int
    releases: int

    @property
    def sentences(self) -> tuple[str, ...]:
        """What the errors show, in words."""
        rows = self.table.to_pylist()
        below = [
            row for row in rows if row["published_after"] < (1 - _APART) * row["forecast_after"]
        ]
        above = [
            row for row in rows if row["published_after"] > (1 + _APART) * row["forecast_after"]
        ]
        sentences = []
        if not below and not above:
            sentences.append("Published errors are within 10 % of their forecast.")
        if below:
            sentences.append(
                f"Better than forecast when published: {_named(below)}. Counts cannot be negative, and "
                f"where they are small, that says much; more detail may cost less than it seems."
            )
        if above:
            sentences.append(
                f"Worse than forecast when published: {_named(above)}. Rounding to whole numbers, and "
                f"cells elsewhere that cannot be negative, add to the noise."
            )
        worse = [row for row in rows if row["published_after"] > row["published_before"] * 1.02]
        expected = [row for row in worse if row["forecast_after"] <= row["forecast_before"]]
        if expected:
            sentences.append(
                f"Although forecast to gain, these tables lose with the best split: {_named(expected)}."
            )
        return tuple(sentences)


def check_forecasts(
    before: Plan,
    best: BestSplit,
    targets: Sequence[Target],
    population: SimulatedPeople,
    *,
    rng: BitSource,
    releases: int = 20,
    progress: Callable[[int, int], None] = lambda done, all_: None,
) -> PublishedCheck:
    """Simulate releases of two plans on a population, and compare errors with their forecasts.

    Parameters
    ----------
    before : Plan
        The plan as it is.
    best : BestSplit
        Its best split.
    targets : sequence of Target
        The tables that matter.
    population : SimulatedPeople
        Who is counted.
    rng : BitSource
        The noise of the simulated releases.
    releases : int
        How many releases of each plan to simulate.
    progress : callable
        Called with the number of releases done and in all.

    Returns
    -------
    PublishedCheck
        Standard errors: root mean squares over units, cells and releases.

    """
    for plan in (before, best.plan):
        if plan.method != "top-down":
            raise InputError(
                f"{plan.name}: method {plan.method!r} publishes no tables to compare with their "
                f"forecast; set postprocess.method to top-down, or leave the population out"
            )
    tree = tree_of(population.geography)
    columns: dict[str, list[float]] = {}
    for number, (when, plan) in enumerate((("before", before), ("after", best.plan))):

        def moved(done: int, start: int = number * releases) -> None:
            progress(start + done, 2 * releases)

        columns[f"forecast_{when}"] = errors_of_targets(plan, targets, tree)
        columns[f"published_{when}"] = _simulated(plan, targets, population, releases, rng, moved)
    table = pa.table(
        {
            "level": [item.level for item in targets],
            "query": [item.query for item in targets],
            **columns,
        }
    )
    return PublishedCheck(table, population.source, int(population.people.sum()), releases)


def _simulated(
    plan: Plan,
    targets: Sequence[Target],
    population: SimulatedPeople,
    releases: int,
    rng: BitSource,
    moved: Callable[[int], None],
) -> list[float]:
    """Return the root mean squared error of each target's published table."""
    geography, people = population.geography, population.people
    tables = [(item.level, plan.schema.query(item.query)) for item in targets]
    lowest = plan.levels[-1]
    exact = []
    for level, query in tables:
        sums = np.zeros((geography.units(level), people.shape[1]), np.int64)
        np.add.at(sums, geography.ancestors(lowest, level), people)
        exact.append(answers_of(query, sums))
    squares = np.zeros(len(tables))
    step = max(1, _AT_ONCE // people.size)
    for start in range(0, releases, step):
        copies = min(step, releases - start)
        many = np.broadcast_to(people, (copies, *people.shape))
        drawn = SimulatedReleases.draw(plan, geography, many, rng=rng)
        for number, counts in enumerate(drawn.several_tables(tables, rng=rng)):
            squares[number] += float(((counts - exact[number]) ** 2).mean(axis=(1, 2)).sum())
        moved(start + copies)
    return [math.sqrt(total / releases) for total in squares]


def _empty(plan: Plan, geography: Geography) -> IntArray:
    units = geography.units(plan.levels[-1])
    if units * plan.schema.cells > _MOST_CELLS:
        raise InputError(
            f"population: {units:,} places of {plan.schema.cells:,} cells are too many to simulate; "
            f"the limit is {_MOST_CELLS:,} cells: take a plan of part of the places"
        )
    return np.zeros((units, plan.schema.cells), np.int64)


def _named(rows: Sequence[dict[str, float]]) -> str:
    return ", ".join(
        f"{row['level']} {row['query']} "
        f"({100 * row['published_after'] / row['forecast_after']:.0f} % of its forecast)"
        for row in rows
    )
