"""What the published tables reveal about one person, between two ends, in one sentence.

The intruder is that of the plan: they know everyone else in a unit of the level `knows`, and about
other units what `[intruder] siblings` says. If that is nothing, the upper end is never above the risk
that the plan states, which is the largest over all attacks and places.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from countveil.assess.intruder.ladder import LevelRisk, risk_by_level
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.published.many_releases import one_family, refuse_other_methods
from countveil.assess.published.simulation_cost import affordable_draws, refuse_long
from countveil.assess.published.tables_loss import PublishedLoss, loss_of, refuse_delta
from countveil.assess.published.tables_risk import (
    PublishedRisk,
    needs_simulation,
    risk_of,
    simulated,
)
from countveil.assess.published.two_databases import Siblings, TwoDatabases
from countveil.base import words
from countveil.base.numerics import Array, IntArray
from countveil.base.randomness import BitSource, Seeded
from countveil.errors import InputError
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan
from countveil.publish.release_folder import Release
from countveil.report.audience import Audience
from countveil.report.section_data import Cell, Section, SectionTable, Subject

TITLE = "What the published tables reveal"
DELTA = 0.001
_SECONDS, _LEAST, _MOST = 3.5, 400, 1_000  # of simulation in a page, and how many releases it takes
_NUMBERS = 4_000_000  # counts that a page looks through for the rarest
_OTHERS, _SPELLED = 10, "ten"  # people in the other place of the example


@dataclass(frozen=True, slots=True)
class Person:
    """Whom the tables are attacked for: a lowest unit, and a cell of the full table."""

    unit: int
    cell: int


class Bracket(NamedTuple):
    """Both ends of the risk, and those of the epsilon unless people elsewhere have a prior."""

    risk: PublishedRisk
    loss: PublishedLoss | None


def section(subject: Subject) -> Section | None:
    """Describe what the tables of a release reveal, from its released estimates.

    Return None for a release that takes longer to simulate than a reader would wait.
    """
    release = subject.release
    if release is None or "estimates" not in release.manifest:
        return None
    plan, geography = release.plan, release.geography
    lowest = plan.levels[-1]
    if lowest not in release.estimates.levels:
        return None
    if geography.units(lowest) * plan.schema.cells > _NUMBERS:
        return None
    counts = estimated_counts(release)
    person = rarest(counts, plan)
    if person is None:
        return None
    two = own_intruder(plan, counts, person, geography)
    draws = draws_in_page(two)
    if draws == 0:
        return None
    bracket = brackets(
        two,
        prior=min(subject.priors or plan.intruder.priors),
        draws=draws,
        rng=Seeded(1),
        audience="public",
    )
    return section_of(bracket, plan, geography, person)


def own_intruder(
    plan: Plan,
    counts: Array,
    person: Person,
    geography: Geography,
    *,
    other: int | None = None,
    siblings: Siblings | None = None,
    knows: str | None = None,
) -> TwoDatabases:
    """Return both databases as the intruder of the plan sees them, or one with other knowledge.

    A number of people whom the plan says they expect in a cell of another unit replaces what `counts`
    has there. If public bounds name places, no one knows nothing about them, and the intruder counts as
    knowing everyone.
    """
    stated, level = plan.intruder.siblings, knows or plan.judged_level
    means: Array = counts
    if siblings is None and stated != "flat":
        above = geography.ancestors(plan.levels[-1], level)
        expected = np.where(plan.possible, float(stated), 0.0)
        inside = above == above[person.unit]
        means = np.where(inside[:, None], counts, expected)
        siblings = "prior"
    if siblings is None:
        siblings = "known" if plan.constraints else "flat"
    return TwoDatabases.of(
        plan,
        counts=means,
        unit=person.unit,
        cell=person.cell,
        other=other,
        knows=level,
        siblings=siblings,
        geography=geography,
    )


def brackets(
    two: TwoDatabases,
    *,
    prior: float,
    draws: int,
    rng: BitSource,
    audience: Audience,
    delta: float = DELTA,
    progress: Callable[[int, int], None] = lambda done, all_: None,
) -> Bracket:
    """Return both ends of the risk and of the epsilon, from the same simulated releases."""
    Intruder(prior=prior)  # refuses what is not allowed before the simulation, not after
    refuse_delta(delta)
    drawn = None
    if needs_simulation(two):
        refuse_other_methods(two.plan)
        drawn = simulated(two, draws, rng=rng, progress=progress)
    risk = risk_of(two, drawn, prior=prior, audience=audience)
    if drawn is None or two.siblings == "prior":
        return Bracket(risk, None)
    return Bracket(risk, loss_of(two, drawn, delta=delta, audience=audience))


def draws_in_page(two: TwoDatabases) -> int:
    """Return how many releases of the target's tree a page simulates; 0 if that would take too long."""
    return affordable_draws(
        two.plan, two.geography, _path(two), seconds=_SECONDS, least=_LEAST, most=_MOST
    )


def refuse_long_simulation(two: TwoDatabases, draws: int) -> None:
    """Refuse more draws than can be simulated while someone waits."""
    if needs_simulation(two):
        refuse_long(two.plan, two.geography, _path(two), draws)


def _path(two: TwoDatabases) -> dict[str, Sequence[int]]:
    return {level: [unit] for level, unit in two.path.items()}


def estimated_counts(release: Release) -> IntArray:
    """Return the released histograms of the lowest units, units × cells."""
    plan = release.plan
    return release.estimates.counts(plan.levels[-1], plan.schema.every_cell)


def rarest(counts: IntArray, plan: Plan) -> Person | None:
    """Return the first cell with the fewest people; None if all are empty."""
    enough = np.where(counts >= plan.rows_per_person, counts, np.iinfo(np.int64).max)
    if not len(enough) or enough.min() == np.iinfo(np.int64).max:
        return None
    unit, cell = np.unravel_index(int(enough.argmin()), counts.shape)
    return Person(int(unit), int(cell))


def section_of(bracket: Bracket, plan: Plan, geography: Geography, person: Person) -> Section:
    """Return the section of the brackets for one person."""
    risk, lowest = bracket.risk, plan.levels[-1]
    place = geography.geocodes(lowest, person.unit, person.unit + 1)[0].as_py()
    known = {
        "known": "the whole tree",
        "prior": f"the {risk.knows}, expects a certain number of people in each cell elsewhere",
        "flat": f"the {risk.knows} but nothing about people elsewhere,",
    }
    sentence = (
        f"Someone who knows everyone else in {known[risk.siblings]} and gives a "
        f"{words.prior_percent(risk.prior)} probability that a person with "
        f"{_description(plan, person.cell) or 'a record'} is counted in {lowest} {place} would, if it "
        f"is true, raise it {_both_ends(risk)}."
    )
    return _section(bracket, plan, person, str(place), (sentence,))


def made_up(plan: Plan) -> tuple[Person, IntArray]:
    """Return the person of a made-up example, alone in one of two places, and everyone's counts."""
    possible = np.flatnonzero(plan.possible)
    counts = np.zeros((2, plan.schema.cells), np.int64)
    cell, rows = int(possible[0]), plan.rows_per_person
    counts[0, cell] = rows
    counts[1] = np.bincount(np.resize(possible, _OTHERS), minlength=plan.schema.cells) * rows
    return Person(0, cell), counts


def refuse_no_example(plan: Plan) -> None:
    """Refuse a plan of which there is no made-up example."""
    refuse_other_methods(plan)
    if plan.constraints:
        raise InputError(
            "constraints: they name places of the crosswalk, so a made-up example cannot follow them; "
            "make a release and run `countveil assess published` on it"
        )


def example(
    plan: Plan,
    *,
    prior: float,
    draws: int | None = None,
    delta: float = DELTA,
    rng: BitSource | None = None,
    progress: Callable[[int, int], None] = lambda done, all_: None,
) -> Section:
    """Return the section of a made-up example that everyone may see: someone alone in their place.

    Their place and one other have the same parents. The intruder is that of the plan, who does not know
    whether the person is counted; where counts that are published exactly reveal that, they do not know
    which of two kinds the person is. No record is read.

    Parameters
    ----------
    plan : Plan
        The plan that is simulated.
    prior : float
        The intruder's probability of what is true.
    draws : int, optional
        How many releases are simulated; by default as many as a reader would wait for.
    delta : float
        The delta at which epsilon is bracketed.
    rng : BitSource, optional
        The randomness of the simulation; a seed by default.
    progress : callable
        Called with the draws completed and all draws.

    Returns
    -------
    Section
        Both ends, and the example in words.

    Raises
    ------
    InputError
        If the plan's public facts name places, or if simulating it takes too long.
    """
    refuse_no_example(plan)
    person, counts = made_up(plan)
    places, other = one_family(plan, 2), None
    two = own_intruder(plan, counts, person, places)
    possible = np.flatnonzero(plan.possible)
    if two.settled_inside and len(possible) > 1:
        other = int(possible[-1])
        two = own_intruder(plan, counts, person, places, other=other)
    if draws is None:
        draws = draws_in_page(two)
        if draws == 0:
            raise InputError(
                f"{plan.name}: takes too long to simulate while you wait; run `countveil assess "
                f"published {plan.name}`"
            )
    refuse_long_simulation(two, draws)
    bracket = brackets(
        two,
        prior=prior,
        draws=draws,
        delta=delta,
        rng=Seeded(1) if rng is None else rng,
        audience="public",
        progress=progress,
    )
    lowest = plan.levels[-1]
    setting = f"A made-up example: a person is alone in one {lowest}, and "
    if two.siblings == "known":
        setting += f"{_SPELLED} others are counted in the only other {lowest}."
        known = "all others"
    else:
        setting += f"there is one other {lowest}."
        known = f"that no one else is counted there, but nothing about the other {lowest},"
        if two.siblings == "prior":
            known = (
                f"that no one else is counted there, expects {plan.intruder.siblings} people in each "
                f"cell of the other {lowest}"
            )
    guess = words.prior_percent(prior)
    if other is None:
        sentence = (
            f"Someone who knows {known} and gives a {guess} probability that the person is counted "
            f"there would, if it is true, raise it {_both_ends(bracket.risk)}."
        )
    else:
        sentence = (
            f"Someone who knows {known} and that the person has either "
            f"{_description(plan, person.cell)} or {_description(plan, other)}, and gives the "
            f"first, which is true, a {guess} probability would raise it {_both_ends(bracket.risk)}."
        )
    return _section(bracket, plan, person, f"made-up {lowest}", (setting, sentence))


def _both_ends(risk: PublishedRisk) -> str:
    lower, upper = words.rounded_down(risk.lower), _upper(risk)
    return f"{lower if lower == upper else f'{lower} to {upper}'} times on average"


def _description(plan: Plan, cell: int) -> str:
    labels = plan.schema.every_cell.labels_of(cell)
    names = [item.name for item in plan.schema.attributes]
    return ", ".join(f"{name} = {label}" for name, label in zip(names, labels, strict=True))


def _upper(risk: PublishedRisk) -> str:
    """Return the upper end, rounded as page one rounds it; upwards if it was simulated."""
    if risk.siblings == "prior":
        return words.rounded_up(risk.upper)
    return words.multiple(risk.upper)


def _section(
    bracket: Bracket, plan: Plan, person: Person, place: str, sentences: tuple[str, ...]
) -> Section:
    risk, loss = bracket
    upper = "is for the measurements" if risk.siblings == "prior" else "is that of the measurements"
    sentences += (
        f"The upper end {upper}, which reveal at least as much as tables made from them; the lower "
        f"end comes from {risk.draws:,} simulated releases. The risk lies between these two values "
        f"with a confidence of {words.percent(risk.confidence)}.",
        stated_by_plan(plan, risk, made_up=place.startswith("made-up ")),
    )
    tables = [
        SectionTable(
            "Times the prior, on average",
            ("Unit", "Prior", "Tables, at least", "Measurements", "Share retained, at least"),
            (
                (
                    *(place, risk.prior),
                    *(words.rounded_down(risk.lower), _upper(risk)),
                    words.rounded_down(risk.retained),
                ),
            ),
        ),
        _plan_table(plan, risk.prior),
        simulation_table(risk.draws, risk.confidence),
    ]
    figures: dict[str, Any] = {
        "lower": risk.lower,
        "upper": risk.upper,
        "confidence": risk.confidence,
        "retained": risk.retained,
        "prior": risk.prior,
        "knows": risk.knows,
        "siblings": risk.siblings,
        "draws": risk.draws,
        "unit": place,
        "cell": list(plan.schema.every_cell.labels_of(person.cell)),
    }
    if loss is not None:
        sentences += (_loss_sentence(loss),)
        tables.append(_loss_table(loss))
        figures["epsilon"] = _loss_figures(loss)
    return Section(
        "published", TITLE, sentences, tuple(tables), figures=figures, audience=risk.audience
    )


def _largest_of(plan: Plan, prior: float) -> LevelRisk:
    """Return the largest risk that the plan states for a prior."""
    risks = risk_by_level(
        plan, [prior], invariants=True, levels=(plan.judged_level,), decisions=False
    )
    return max(risks, key=lambda item: item.marginal_risk)


def _plan_table(plan: Plan, prior: float) -> SectionTable:
    stated = _largest_of(plan, prior)
    return SectionTable(
        "The largest risk that the plan states",
        ("Times the prior", "About", "Unit"),
        ((stated.times(limit=plan.intruder.limit), stated.about, stated.unit_kind),),
    )


def stated_by_plan(plan: Plan, risk: PublishedRisk, *, made_up: bool) -> str:
    """Say what the plan states for its intruder, and why it is not the same figure."""
    stated = _largest_of(plan, risk.prior)
    largest = (
        f"{stated.times(limit=plan.intruder.limit)} times the prior, about {stated.about}, in "
        f"{stated.unit_kind}"
    )
    own = "flat" if plan.intruder.siblings == "flat" else "prior"
    bound = risk.siblings == "known" and stated.upper_bound
    if risk.knows == plan.judged_level and (risk.siblings == "flat" == own or bound):
        places = "its own places, not this example" if made_up else "all its places"
        return (
            f"To this intruder, the largest risk that the plan states, over all attacks and {places}, "
            f"is {largest}."
        )
    return (
        f"The risk that the plan states is for someone who knows everyone else in "
        f"{words.article(plan.judged_level)} and nothing about people elsewhere, and is the largest "
        f"over all attacks and places: {largest}."
    )


def simulation_table(draws: int, confidence: float) -> SectionTable:
    """Return how many releases were simulated, and with which confidence both ends hold."""
    return SectionTable(
        "The simulation", ("Releases", "Confidence"), ((draws, words.percent(confidence)),)
    )


def _loss_sentence(loss: PublishedLoss) -> str:
    """Say both ends of the epsilon of the published tables."""
    start = (
        f"To the same intruder, the epsilon of the published tables for this person, at a delta of "
        f"{loss.delta:g}, is"
    )
    confidence = f"with a confidence of {words.percent(loss.confidence)}"
    lower = words.rounded_down(loss.lower)
    if math.isinf(loss.upper):
        return (
            f"{start} at least {lower}, {confidence}, and has no upper limit: counts that are "
            f"published exactly give them away."
        )
    return f"{start} between {lower} and {words.rounded_up(loss.upper)}, {confidence}."


def _loss_table(loss: PublishedLoss) -> SectionTable:
    row: tuple[Cell, ...] = (
        loss.delta,
        words.rounded_down(loss.lower),
        "no limit" if math.isinf(loss.upper) else words.rounded_up(loss.upper),
        words.percent(loss.confidence),
    )
    return SectionTable(
        "Epsilon of the published tables for this person, and of the measurements behind them",
        ("Delta", "Tables, at least", "Measurements", "Confidence"),
        (row,),
    )


def _loss_figures(loss: PublishedLoss) -> Mapping[str, Any]:
    return {
        "lower": loss.lower,
        "upper": None if math.isinf(loss.upper) else loss.upper,
        "delta": loss.delta,
        "confidence": loss.confidence,
        "draws": loss.draws,
    }
