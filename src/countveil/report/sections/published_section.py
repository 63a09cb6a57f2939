"""What the published tables reveal about one person, between two ends, in one sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from countveil.assess.published.many_releases import one_family, refuse_other_methods
from countveil.assess.published.simulation_cost import affordable_draws
from countveil.assess.published.tables_loss import PublishedLoss
from countveil.assess.published.tables_risk import PublishedRisk, published_risk
from countveil.assess.published.two_databases import TwoDatabases
from countveil.base import words
from countveil.base.numerics import IntArray
from countveil.base.randomness import BitSource, Seeded
from countveil.errors import InputError
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan
from countveil.publish.release_folder import Release
from countveil.report.section_data import Cell, Section, SectionTable, Subject

TITLE = "What the published tables reveal"
_SECONDS, _LEAST, _MOST = 3.5, 400, 1_000  # of simulation in a page, and how many releases it takes
_NUMBERS = 4_000_000  # counts that a page looks through for the rarest
_OTHERS, _SPELLED = 10, "ten"  # people in the other place of the example


@dataclass(frozen=True, slots=True)
class Person:
    """Whom the tables are attacked for: a lowest unit, and a cell of the full table."""

    unit: int
    cell: int


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
    two = TwoDatabases.of(
        plan, counts=counts, unit=person.unit, cell=person.cell, geography=geography
    )
    draws = draws_in_page(two)
    if draws == 0:
        return None
    risk = published_risk(
        plan,
        counts=counts,
        unit=person.unit,
        cell=person.cell,
        prior=min(subject.priors or plan.intruder.priors),
        draws=draws,
        rng=Seeded(1),
        geography=geography,
        audience="public",
    )
    return section_of(risk, plan, geography, person)


def draws_in_page(two: TwoDatabases) -> int:
    """Return how many releases of the target's tree a page simulates; 0 if that would take too long."""
    path: dict[str, Sequence[int]] = {level: [unit] for level, unit in two.path.items()}
    return affordable_draws(
        two.plan, two.geography, path, seconds=_SECONDS, least=_LEAST, most=_MOST
    )


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


def section_of(
    risk: PublishedRisk,
    plan: Plan,
    geography: Geography,
    person: Person,
    loss: PublishedLoss | None = None,
) -> Section:
    """Return the section of a bracket for one person, and of their epsilon if that was computed."""
    lowest = plan.levels[-1]
    place = geography.geocodes(lowest, person.unit, person.unit + 1)[0].as_py()
    around = "the whole tree"
    if risk.siblings == "prior":
        around = f"the {lowest}, has only a prior for everyone elsewhere"
    sentence = (
        f"Someone who knows everyone else in {around} and gives a "
        f"{words.prior_percent(risk.prior)} probability that a person with "
        f"{_description(plan, person.cell) or 'a record'} is counted in {lowest} {place} would, if it "
        f"is true, raise it {_both_ends(risk)}."
    )
    return _section(risk, plan, person, str(place), (sentence,), loss)


def example(
    plan: Plan,
    *,
    prior: float,
    draws: int | None = None,
    rng: BitSource | None = None,
    progress: Callable[[int, int], None] = lambda done, all_: None,
) -> Section:
    """Return the section of a made-up example that everyone may see: someone alone in their place.

    Their place and one other, with ten people, have the same parents. The intruder knows everyone
    else, but not whether the person is counted; where counts that are published exactly reveal that,
    they do not know which of two kinds the person is. No record and no crosswalk is read.

    Parameters
    ----------
    plan : Plan
        The plan that is simulated.
    prior : float
        The intruder's probability of what is true.
    draws : int, optional
        How many releases are simulated; by default as many as a reader would wait for.
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
    refuse_other_methods(plan)
    if plan.constraints:
        raise InputError(
            "constraints: they name places of the crosswalk, so a made-up example cannot follow them; "
            "make a release and run `countveil assess published` on it"
        )
    possible = np.flatnonzero(plan.possible)
    counts = np.zeros((2, plan.schema.cells), np.int64)
    cell, rows = int(possible[0]), plan.rows_per_person
    counts[0, cell] = rows
    counts[1] = np.bincount(np.resize(possible, _OTHERS), minlength=plan.schema.cells) * rows
    places, other = one_family(plan, 2), None
    two = TwoDatabases.of(plan, counts=counts, unit=0, cell=cell, geography=places)
    if two.settled and len(possible) > 1:
        other = int(possible[-1])
        two = TwoDatabases.of(plan, counts=counts, unit=0, cell=cell, other=other, geography=places)
    if draws is None:
        draws = draws_in_page(two)
    if draws == 0:
        raise InputError(
            f"{plan.name}: takes too long to simulate while you wait; run `countveil assess published "
            f"{plan.name}`"
        )
    risk = published_risk(
        plan,
        counts=counts,
        unit=0,
        cell=cell,
        other=other,
        prior=prior,
        draws=draws,
        rng=Seeded(1) if rng is None else rng,
        geography=places,
        audience="public",
        progress=progress,
    )
    lowest = plan.levels[-1]
    setting = (
        f"A made-up example: a person is alone in one {lowest}, and {_SPELLED} others are counted in "
        f"the only other {lowest}."
    )
    guess = words.prior_percent(prior)
    if other is None:
        sentence = (
            f"Someone who knows all others and gives a {guess} probability that the person is counted "
            f"there would, if it is true, raise it {_both_ends(risk)}."
        )
    else:
        sentence = (
            f"Someone who knows all others, and that the person has either {_description(plan, cell)} "
            f"or {_description(plan, other)}, and gives the first, which is true, a {guess} "
            f"probability would raise it {_both_ends(risk)}."
        )
    return _section(risk, plan, Person(0, cell), f"made-up {lowest}", (setting, sentence), None)


def _both_ends(risk: PublishedRisk) -> str:
    lower, upper = words.rounded_down(risk.lower), words.rounded_up(risk.upper)
    return f"{lower if lower == upper else f'{lower} to {upper}'} times on average"


def _description(plan: Plan, cell: int) -> str:
    labels = plan.schema.every_cell.labels_of(cell)
    names = [item.name for item in plan.schema.attributes]
    return ", ".join(f"{name} = {label}" for name, label in zip(names, labels, strict=True))


def _section(
    risk: PublishedRisk,
    plan: Plan,
    person: Person,
    place: str,
    sentences: tuple[str, ...],
    loss: PublishedLoss | None,
) -> Section:
    upper = (
        "is exact for the measurements" if risk.siblings == "known" else "is for the measurements"
    )
    sentences += (
        f"The upper end {upper}, which reveal at least as much as tables made from them; the lower "
        f"end comes from {risk.draws:,} simulated releases. The risk lies between these two values "
        f"with a confidence of {words.percent(risk.confidence)}.",
    )
    tables = [
        SectionTable(
            "Times the prior, on average",
            ("Unit", "Prior", "Tables, at least", "Measurements", "Share retained, at least"),
            (
                (
                    *(place, risk.prior),
                    *(words.rounded_down(risk.lower), words.rounded_up(risk.upper)),
                    words.rounded_down(risk.retained),
                ),
            ),
        ),
        simulation_table(risk.draws, risk.confidence),
    ]
    figures: dict[str, Any] = {
        "lower": risk.lower,
        "upper": risk.upper,
        "confidence": risk.confidence,
        "retained": risk.retained,
        "prior": risk.prior,
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


def simulation_table(draws: int, confidence: float) -> SectionTable:
    """Return how many releases were simulated, and with which confidence both ends hold."""
    return SectionTable(
        "The simulation", ("Releases", "Confidence"), ((draws, words.percent(confidence)),)
    )


def _loss_sentence(loss: PublishedLoss) -> str:
    """Say both ends of the epsilon of the published tables."""
    start = (
        f"To someone who knows everyone else, the epsilon of the published tables for this person, at "
        f"a delta of {loss.delta:g}, is"
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
