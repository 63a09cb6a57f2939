"""What the published tables reveal about one person, between two ends, in one sentence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from countveil.assess.published.tables_risk import PublishedRisk, published_risk
from countveil.base import words
from countveil.base.numerics import IntArray
from countveil.base.randomness import Seeded
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan
from countveil.publish.release_folder import Release
from countveil.report.section_data import Section, SectionTable, Subject

_DRAWS = 1_000
_MOST_UNITS, _MOST_CELLS = 12, 100  # of a release that the report simulates


@dataclass(frozen=True, slots=True)
class Person:
    """Whom the tables are attacked for: a lowest unit, and a cell of the full table."""

    unit: int
    cell: int


def section(subject: Subject) -> Section | None:
    """Describe what the tables of a small release reveal, from its released estimates."""
    release = subject.release
    if release is None or "estimates" not in release.manifest:
        return None
    plan, geography = release.plan, release.geography
    units = sum(geography.units(level) for level in plan.levels)
    if units > _MOST_UNITS or plan.schema.cells > _MOST_CELLS or plan.constraints:
        return None
    if plan.levels[-1] not in release.estimates.levels:
        return None
    counts = estimated_counts(release)
    person = rarest(counts, plan)
    if person is None:
        return None
    risk = published_risk(
        plan,
        counts=counts,
        unit=person.unit,
        cell=person.cell,
        prior=min(subject.priors or plan.intruder.priors),
        draws=_DRAWS,
        rng=Seeded(1),
        geography=geography,
        audience="public",
    )
    return section_of(risk, plan, geography, person)


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


def section_of(risk: PublishedRisk, plan: Plan, geography: Geography, person: Person) -> Section:
    """Return the section of a bracket for one person."""
    lowest = plan.levels[-1]
    place = geography.geocodes(lowest, person.unit, person.unit + 1)[0].as_py()
    labels = plan.schema.every_cell.labels_of(person.cell)
    names = [item.name for item in plan.schema.attributes]
    who = ", ".join(f"{name} = {label}" for name, label in zip(names, labels, strict=True))
    around = "the whole tree"
    if risk.siblings == "prior":
        around = f"the {lowest} and has a guess about everyone elsewhere"
    sentence = (
        f"Someone who knows everyone else in {around} and gives a "
        f"{words.prior_percent(risk.prior)} chance that a person with {who or 'a record'} is "
        f"counted in {lowest} {place}: if that is true, the published tables raise this probability "
        f"on average between {words.rounded_down(risk.lower, 3)} and "
        f"{words.rounded_up(risk.upper, 3)} times."
    )
    table = SectionTable(
        "Average factor by which the published tables raise the probability, and by which the "
        "measurements would",
        ("Unit", "Prior", "Tables, at least", "Measurements", "Share retained, at least"),
        ((str(place), risk.prior, risk.lower, risk.upper, risk.retained),),
    )
    return Section(
        "published",
        "What the published tables reveal",
        (
            sentence,
            "The upper end is exact for the measurements, which reveal at least as much as tables "
            "made from them; the lower end comes from simulated releases. Neither is the risk "
            "itself.",
        ),
        (table,),
        figures={
            "lower": risk.lower,
            "upper": risk.upper,
            "confidence": risk.confidence,
            "retained": risk.retained,
            "prior": risk.prior,
            "siblings": risk.siblings,
            "draws": risk.draws,
            "unit": str(place),
            "cell": list(labels),
        },
        audience=risk.audience,
    )
