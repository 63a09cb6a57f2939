"""The exact intruder of paper 002 on a released unit: its counts and its siblings', level by level.

They know everyone else in the unit, and so its count but for their target. About the siblings, and the
siblings of the units above, they know what a prior says. They see the noisy counts of one cell of one
table: of the unit, of every larger unit that contains it, and of all their siblings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc

from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.intruder.several_levels import hierarchy
from countveil.assess.intruder.several_levels.hierarchy_level import (
    FLAT,
    Exactly,
    Level,
    ParentPrior,
    SiblingsPoisson,
)
from countveil.assess.risk import Risk
from countveil.base.numerics import IntArray
from countveil.base.randomness import BitSource
from countveil.errors import InputError
from countveil.plan.attributes import choices
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan
from countveil.plan.workload import Query
from countveil.publish.release_folder import Release

_STRANGE = 6.0  # standard deviations


class PlacedUnit(NamedTuple):
    """A unit by the name of its level and its number there."""

    level: str
    number: int


class SeenLevel(NamedTuple):
    """What the intruder sees at one level: a released count, and the sum of its siblings'.

    `exact` says that the count is published without noise. `sibling_sum` is None at the top.
    """

    level: str
    geocode: str
    released: int
    siblings: int
    sibling_sum: int | None
    exact: bool


@dataclass(frozen=True, slots=True)
class UnitPosterior:
    """What a release says about one person in one unit.

    Attributes
    ----------
    unit, level, table, cell
        The unit, its level, and the cell of the table that would count the target.
    intruder : Intruder
        What they believed and knew before the release.
    posterior : Risk
        Their probability afterwards, with a bound on its error.
    seen : tuple of SeenLevel
        What they saw, from the unit upwards.
    left_out : tuple of str
        Levels above that add nothing, because a level in between is not measured for this table.
    settled_by : str or None
        Another table that is published exactly and counts the target: the posterior is then a bound,
        because someone who knows everyone else can subtract them from it.
    strange : bool
        Whether no noise explains how far the released count is from what they know.

    """

    unit: str
    level: str
    table: str
    cell: tuple[str, ...]
    intruder: Intruder
    posterior: Risk
    seen: tuple[SeenLevel, ...]
    left_out: tuple[str, ...]
    settled_by: str | None = None
    strange: bool = False


DRAWS = 150
"""How many releases are simulated to say what was to be expected of one."""


class Expected(NamedTuple):
    """What an intruder was to expect of a release before its noise was drawn, if the target is there.

    `risk` is their average posterior over the prior, `decision` how often they guess correctly: exact,
    or simulated with a standard error.
    """

    risk: Risk
    decision: Risk


def expected_of(
    release: Release,
    answers: Sequence[UnitPosterior],
    *,
    rng: BitSource,
    draws: int = DRAWS,
) -> list[Expected] | None:
    """Return the risk and the share of correct guesses behind `unit_posterior`, for several priors.

    Other units are taken to have the counts that were released, at least 0. One and two levels are
    summed; so are more, if the noise above takes few values. Otherwise the noise above is drawn.

    Parameters
    ----------
    release : Release
        The release; only its public measurements are read.
    answers : sequence of UnitPosterior
        Of one unit and cell, for intruders who differ in their priors.
    rng : BitSource
        The randomness of the simulation.
    draws : int
        How many releases to simulate where they cannot be summed.

    Returns
    -------
    list of Expected, optional
        One per answer; None if counts published exactly give the answer, or contradict what they know.

    Examples
    --------
    >>> expected_of(release, [answer], rng=Seeded(1))[0].risk.value  # doctest: +SKIP

    """
    first = answers[0]
    sights, who = first.seen, first.intruder
    if sights[0].exact or first.settled_by is not None:
        return None
    truth = [who.known + who.rows]
    for item, above in pairwise(sights):
        assert item.sibling_sum is not None
        rest = above.released - truth[-1] if above.exact else max(item.sibling_sum, 0)
        if rest < 0 or (rest and not item.siblings and above.exact):
            return None
        truth.append(truth[-1] + (rest if item.siblings else 0))
    levels = _levels(release, sights, release.plan.schema.query(first.table))
    pairs = hierarchy.before_release(
        levels,
        truth=truth,
        intruders=[item.intruder for item in answers],
        simulated=draws,
        rng=rng,
    )
    return [Expected(*pair) for pair in pairs]


def unit_posterior(
    release: Release,
    *,
    unit: str,
    table: str,
    cell: int,
    intruder: Intruder,
    level: str | None = None,
) -> UnitPosterior:
    """Return what an intruder believes after seeing a table at all levels, exactly.

    Parameters
    ----------
    release : Release
        A release of counts; only its public measurements are read.
    unit : str
        The geocode of the unit in which they know everyone else.
    table : str
        A query that the plan measures at the unit's level.
    cell : int
        The number of the cell that would count the target.
    intruder : Intruder
        What they believe and know; `known` is never read from the records.
    level : str, optional
        The level of the unit, needed if units of several levels have this geocode.

    Returns
    -------
    UnitPosterior
        The posterior with a certified error, and the counts behind it.

    Examples
    --------
    >>> from countveil import Release, assess
    >>> release = Release.read("out")  # doctest: +SKIP
    >>> who = assess.Intruder(prior=0.1, known=3)  # doctest: +SKIP
    >>> unit_posterior(release, unit="0101", table="SEX", cell=0, intruder=who)  # doctest: +SKIP

    """
    who = (intruder,)
    return unit_posteriors(release, unit=unit, table=table, cell=cell, intruders=who, level=level)[
        0
    ]


def unit_posteriors(
    release: Release,
    *,
    unit: str,
    table: str,
    cell: int,
    intruders: Sequence[Intruder],
    level: str | None = None,
) -> list[UnitPosterior]:
    """Return `unit_posterior` for several intruders; the release is read once."""
    plan, geography = release.plan, release.geography
    place = find_unit(plan, geography, unit, level)
    query = _measured(plan, place.level, table)
    if not 0 <= cell < query.cells:
        raise InputError(
            f"cell: {cell} is not allowed; {query.name} has cells 0 to {query.cells - 1}"
        )
    chain = _chain(plan, place.level, query)
    sights = _seen(release, chain, place, query, cell)
    settled_by = _settled_by(plan, place.level, query, cell)
    exact = sights[0].exact
    answers = []
    for who in intruders:
        if exact:
            posterior = _settled(sights[0].released, who)
        elif settled_by is not None:
            posterior = Risk("posterior", 1.0, posterior=1.0, intruder=who, upper_bound=True)
        else:
            posterior = hierarchy.posterior(
                _levels(release, sights, query),
                observed=[item.released for item in sights],
                sibling_sums=[item.sibling_sum or 0 for item in sights[:-1]],
                intruder=who,
            )
        answers.append(
            UnitPosterior(
                unit,
                place.level,
                query.name,
                query.labels_of(cell),
                who,
                posterior,
                sights,
                chain.left_out,
                None if exact else settled_by,
                not exact and _strange(release, sights[0], query, who),
            )
        )
    return answers


def find_unit(
    plan: Plan, geography: Geography, geocode: str, level: str | None = None
) -> PlacedUnit:
    """Return where a geocode is; refuse one that no unit has, or units of several levels."""
    published = {*plan.measured_levels, *(item.level for item in plan.invariants)}
    levels = [name for name in plan.levels if name in published]
    if level is not None:
        if level not in levels:
            raise InputError(
                f"level: {level!r} has no counts in the release; choose from {choices(levels)}"
            )
        levels = [level]
    places = []
    for name in levels:
        number = pc.index(geography.geocodes(name), geocode).as_py()
        if number >= 0:
            places.append(PlacedUnit(name, number))
    if not places:
        raise InputError(
            f"unit: no unit of {choices(levels)} has the geocode {geocode!r}; codes are those of the "
            f"crosswalk, with leading zeros"
        )
    if len(places) > 1:
        raise InputError(
            f"unit: {geocode!r} is a geocode of several levels; say which: "
            f"{choices(item.level for item in places)}"
        )
    return places[0]


class _LevelChain(NamedTuple):
    """The levels that are seen, from the unit upwards, and those above that add nothing.

    At most the last is published exactly.
    """

    levels: tuple[str, ...]
    exact: frozenset[str]
    left_out: tuple[str, ...]


def _chain(plan: Plan, level: str, query: Query) -> _LevelChain:
    """Follow a table upwards until it is published exactly or not measured."""
    above = plan.levels[: plan.levels.index(level) + 1][::-1]
    exact = {item.level for item in plan.invariants if item.query.name == query.name}
    measured = {name for name in above if query.name in (a.query.name for a in plan.at(name))}
    levels: list[str] = []
    for name in above:
        if name not in exact and name not in measured:
            break
        levels.append(name)
        if name in exact:  # what is above adds nothing to a known count
            break
    left_out = tuple(name for name in above[len(levels) :] if name in measured | exact)
    if levels and levels[-1] in exact:
        left_out = ()
    return _LevelChain(tuple(levels), frozenset(exact), left_out)


def _seen(
    release: Release, chain: _LevelChain, place: PlacedUnit, query: Query, cell: int
) -> tuple[SeenLevel, ...]:
    """Return the released counts of the unit, of its siblings, and so on upwards."""
    geography, number = release.geography, place.number
    sights = []
    for name in chain.levels:
        family, exact = _family(geography, name, number), name in chain.exact
        counts = _counts(release, name, query, cell, family, exact=exact)
        own = int(counts[number - family.start])
        code = geography.geocodes(name, number, number + 1)[0].as_py()
        if name == chain.levels[-1]:
            sights.append(SeenLevel(name, code, own, len(counts) - 1, None, exact))
            break
        rest = int(counts.sum()) - own
        sights.append(SeenLevel(name, code, own, len(counts) - 1, rest, exact))
        number = int(geography.parents[geography.index(name)][number])
    return tuple(sights)


def _levels(release: Release, sights: Sequence[SeenLevel], query: Query) -> list[Level]:
    """Return the levels as the exact intruder sees them."""
    levels: list[Level] = []
    for item, above in zip_longest(sights, sights[1:]):
        # A count that is published exactly is known before its noise, which then says nothing.
        noise = (
            levels[-1].noise
            if item.exact
            else release.measurements.mechanisms[item.level, query.name]
        )
        prior = _prior(release.plan, item.siblings)
        if above is not None and above.exact:
            prior = Exactly(above.released)
        levels.append(Level(noise, 0 if above is None else item.siblings, prior))
    return levels


def _measured(plan: Plan, level: str, table: str) -> Query:
    exact = [item.query.name for item in plan.invariants if item.level == level]
    names = list(dict.fromkeys([*(item.query.name for item in plan.at(level)), *exact]))
    if table not in names:
        raise InputError(
            f"table: {table!r} is not measured at level {level}; choose from {choices(names)}"
        )
    return plan.schema.query(table)


def _settled_by(plan: Plan, level: str, query: Query, cell: int) -> str | None:
    """Return a table of the unit, or of smaller units, that is published exactly with the target."""
    inside = plan.levels[plan.levels.index(level) :]
    cells = np.flatnonzero(query.cells_at(np.arange(plan.schema.cells)) == cell)
    for item in plan.invariants:
        if item.level in inside and (item.query.cells_at(cells) >= 0).any():
            return f"{item.query.name} of {item.level}"
    return None


def _family(geography: Geography, level: str, number: int) -> range:
    """Return the numbers of all units with the same parent."""
    index = geography.index(level)
    if index == 0:
        return range(number, number + 1)
    parents = geography.parents[index]
    first, last = np.searchsorted(parents, [parents[number], parents[number] + 1])
    return range(int(first), int(last))


def _counts(
    release: Release, level: str, query: Query, cell: int, family: range, *, exact: bool
) -> IntArray:
    """Return the released counts of a family."""
    if exact:
        every = release.measurements.invariant(level, query.name)
        return np.asarray(every[family.start : family.stop, cell], np.int64)
    before = 0
    for item in release.plan.at(level):
        if item.query.name == query.name:
            break
        before += item.query.cells
    values = release.measurements.units(level, family.start, family.stop)
    return np.asarray(values[:, before + cell], np.int64)


def _prior(plan: Plan, siblings: int) -> ParentPrior:
    """Return what the plan's intruder believes about the siblings together."""
    each = plan.intruder.siblings
    if each == "flat" or siblings == 0:
        return FLAT
    return SiblingsPoisson(float(each) * siblings)


def _strange(release: Release, sight: SeenLevel, query: Query, intruder: Intruder) -> bool:
    most = intruder.known + intruder.rows + len(intruder.others) - 1
    off = max(intruder.known - sight.released, sight.released - most, 0)
    variance = float(release.measurements.mechanisms[sight.level, query.name].variance)
    return off > _STRANGE * math.sqrt(variance)


def _settled(count: int, intruder: Intruder) -> Risk:
    """Return the posterior of someone who sees the count itself."""
    there = count - intruder.rows - intruder.known
    away = count - intruder.known
    weights = []
    for further, is_there in ((there, True), (away, False)):
        inside = 0 <= further < len(intruder.others)
        log_weights = intruder.log_weights(there=is_there)
        weights.append(float(np.exp(log_weights[further])) if inside else 0.0)
    yes, no = intruder.prior * weights[0], (1 - intruder.prior) * weights[1]
    if yes + no == 0:
        raise InputError(
            f"known: {intruder.known} is impossible: the unit's count is published exactly, and is "
            f"{count}; give the number of others, {max(count - intruder.rows, 0)} or {count}"
        )
    value = yes / (yes + no)
    return Risk("posterior", value, posterior=value, error_bound=0.0, intruder=intruder)
