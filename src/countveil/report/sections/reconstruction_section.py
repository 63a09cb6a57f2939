"""What exact tables would give away: places that could be reconstructed person by person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from countveil.assess.intruder.ladder import LevelRisk
from countveil.assess.reconstruction.level_reconstruction import (
    Reconstruction,
    reconstruct,
    record_risks,
)
from countveil.assess.reconstruction.published_lines import countable
from countveil.base import words
from countveil.plan.plans import Plan
from countveil.report.section_data import Cell, Section, SectionTable, Subject

MOST_REPORTED = 1_000  # units that a report examines: a few seconds
TITLE = "What exact tables would give away"
_FIGURES = ("prior", "posterior", "upper_bound", "settled")


def section(subject: Subject) -> Section | None:
    """Describe what the tables of a release would give away if its estimates were exact counts.

    Return None for a release without estimates, or whose tables count no attribute.
    """
    release, plan = subject.release, subject.plan
    level = plan.estimated_levels[-1]
    if release is None or "estimates" not in release.manifest or not countable(plan, level):
        return None
    result = reconstruct(
        plan,
        release.estimates.levels[level],
        level=level,
        audience="public",
        most_units=MOST_REPORTED,
    )
    return section_of(plan, result, record_risks(plan, geography=release.geography))


def realised(subject: Subject) -> Section | None:
    """Describe what the exact tables of the records would have given away; internal."""
    if subject.realised is None or subject.realised.reconstruction is None:
        return None
    places = None if subject.release is None else subject.release.geography
    risks = record_risks(subject.plan, geography=places)
    return section_of(subject.plan, subject.realised.reconstruction, risks)


def section_of(plan: Plan, result: Reconstruction, risks: Sequence[LevelRisk]) -> Section:
    """Return the section of a reconstruction and of what an intruder learns from the release."""
    internal = result.audience == "internal"
    source = "the exact counts" if internal else "the published estimates, as if they were exact"
    tables = words.listed(result.tables)
    intro = (
        f"An intruder who sees exact tables looks for all databases that agree with them. This uses "
        f"{source}, and these tables of each place: {tables}."
    )
    return Section(
        "realised-reconstruction" if internal else "reconstruction",
        f"{TITLE}, from the records" if internal else TITLE,
        (
            f"{_exactly(plan, result)} {_from_release(plan, risks)}",
            intro,
            *_more(plan, result),
        ),
        (
            _shares(plan, result),
            _classes(plan, result),
            _release_table(plan, risks),
        ),
        figures={
            "reconstruction": {**asdict(result), "shown": source},
            "release": [{name: getattr(item, name) for name in _FIGURES} for item in risks],
            "knows": plan.judged_level,
        },
        audience=result.audience,
    )


def _who(plan: Plan) -> str:
    return "people" if plan.rows_per_person == 1 else "rows"


def _exactly(plan: Plan, result: Reconstruction) -> str:
    if not result.units:
        return "No one is counted in any place."
    one_by_one = "person by person" if plan.rows_per_person == 1 else "row by row"
    if not result.one_units:
        return (
            f"Published exactly, no place at level {result.level} could be reconstructed {one_by_one}: "
            f"several databases agree with the tables of each."
        )
    places = words.brief_percent(result.one_units / result.units)
    people = words.brief_percent(result.one_people / result.people)
    return (
        f"Published exactly, {places} of the occupied places at level {result.level}, with {people} of "
        f"the {_who(plan)}, could be reconstructed {one_by_one}: only one database agrees with their "
        f"tables."
    )


def _from_release(plan: Plan, risks: Sequence[LevelRisk]) -> str:
    worst = risks[0]
    who = f"someone who knows everyone else in {words.article(plan.judged_level)}"
    if worst.settled:
        return f"In this release, exactly published counts give the answer to {who}."
    before = words.prior_percent(worst.prior)
    return (
        f"Take {who} and hesitates between two records of the remaining person. Before this release, "
        f"they give the true one {before}; after it, {worst.reached} on average."
    )


def _more(plan: Plan, result: Reconstruction) -> list[str]:
    """Say what is certain where several databases agree, and what the figures rest on."""
    sentences = []
    if result.units:
        least = "" if result.exact else "at least "
        true = "the exact counts" if result.audience == "internal" else "the estimates"
        certain = words.brief_percent(result.certain / result.people)
        differing = words.brief_percent(result.differing / result.people)
        sentences.append(
            f"In all databases that agree, {least}{certain} of the {_who(plan)} have the same record. "
            f"At most {differing} can have a different record than in {true}."
        )
    sentences.append(
        f"A record is {words.listed(result.attributes)}, without a name. The tables of larger places "
        f"are sums of these and add nothing; anything else an intruder knows leaves fewer databases."
    )
    if result.units < result.occupied:
        sentences.append(
            f"Of the {result.occupied:,} occupied places, {result.units:,} evenly spaced ones were "
            f"examined."
        )
    if result.lower_bounds:
        sentences.append(
            f"In {result.lower_bounds:,} of the places, the number of databases is a lower bound above "
            f"one."
        )
    if plan.method == "top-down":
        sentences.append(
            "The release also has an estimate of every cell: published exactly, those would be the "
            "records themselves."
        )
    return sentences


def _shares(plan: Plan, result: Reconstruction) -> SectionTable:
    everyone, places = max(result.people, 1), max(result.units, 1)
    certain, differing = ("", "") if result.exact else ("at least: ", "at most: ")
    rows: tuple[tuple[Cell, ...], ...] = (
        ("Occupied places", result.occupied, "", "", ""),
        ("Places examined", result.units, result.people, 1.0, 1.0),
        (
            "Only one database agrees",
            *(result.one_units, result.one_people),
            *(result.one_units / places, result.one_people / everyone),
        ),
        (
            f"{certain}Same record in all databases that agree",
            *("", result.certain, "", result.certain / everyone),
        ),
        (
            "Records that can differ, at most (solution variability, arXiv 2312.11283)",
            *("", result.differing, "", result.differing / everyone),
        ),
        (f"{differing}Largest range of one cell", "", result.widest, "", ""),
        ("Number of databases is a lower bound", result.lower_bounds, "", "", ""),
    )
    who = _who(plan).capitalize()
    return SectionTable(
        f"What exact tables would give away at level {result.level}",
        ("Figure", "Places", who, "Share of places", f"Share of {_who(plan)}"),
        rows,
    )


def _classes(plan: Plan, result: Reconstruction) -> SectionTable:
    rows = []
    for item in result.classes:
        if item.most is None:
            name = f"more than {result.limit:,}"
        else:
            name = (
                f"{item.least:,} to {item.most:,}" if item.most > item.least else f"{item.least:,}"
            )
        share = item.units / max(result.units, 1)
        rows.append((name, item.units, item.people, share))
    return SectionTable(
        f"Databases that agree with the exact tables of a place at level {result.level}",
        ("Databases", "Places", _who(plan).capitalize(), "Share of places"),
        tuple(rows),
    )


def _release_table(plan: Plan, risks: Sequence[LevelRisk]) -> SectionTable:
    return SectionTable(
        f"From this release: someone who knows everyone else in {words.article(plan.judged_level)} and "
        f"hesitates between two records",
        ("Probability of the true one before", "Afterwards, on average"),
        tuple((words.prior(item.prior), item.reached) for item in risks),
    )
