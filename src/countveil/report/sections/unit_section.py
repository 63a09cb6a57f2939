"""What a release says about one person in one unit: sentences and tables."""

from __future__ import annotations

from collections.abc import Sequence

from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.intruder.released_unit import UnitPosterior, find_unit, unit_posterior
from countveil.base import words
from countveil.errors import InputError
from countveil.estimate.result_tables import cell_number
from countveil.publish.release_folder import Release
from countveil.report.section_data import Section, SectionTable


def section_of(
    release: Release,
    *,
    unit: str,
    level: str | None,
    table: str,
    cell: Sequence[str],
    known: int,
    priors: Sequence[float],
) -> Section:
    """Return what intruders with these priors believe about a target in a unit."""
    place = find_unit(release.plan, release.geography, unit, level)
    query = release.plan.schema.query(table)
    if not cell and query.cells > 1:
        raise InputError(
            f"--cell: missing; {query.name} has {query.cells} cells, such as "
            f"{' × '.join(query.labels_of(0))}"
        )
    number = cell_number(query, tuple(cell)) if cell else 0
    answers = [
        unit_posterior(
            release,
            unit=unit,
            table=table,
            cell=number,
            intruder=Intruder(prior=prior, known=known, rows=release.plan.rows_per_person),
            level=place.level,
        )
        for prior in priors
    ]
    first = answers[0]
    return Section(
        "presence",
        f"What the release reveals about one person in {place.level} {unit}",
        tuple(_sentences(first) + _assumed(release)),
        (_posteriors(answers), _counts(first)),
        figures={
            "unit": unit,
            "level": first.level,
            "table": first.table,
            "cell": list(first.cell),
            "known": known,
            "settled_by": first.settled_by,
            "left_out": list(first.left_out),
            "posteriors": [
                {
                    "prior": item.intruder.prior,
                    "posterior": item.posterior.value,
                    "error_bound": item.posterior.error_bound,
                    "upper_bound": item.posterior.upper_bound,
                }
                for item in answers
            ],
        },
    )


def _sentences(answer: UnitPosterior) -> list[str]:
    before = answer.intruder.prior
    where = " × ".join(answer.cell) or answer.table
    known = answer.intruder.known
    others = "no one else" if not known else "1 other" if known == 1 else f"{known:,} others"
    lines = [
        f"Someone who knows everyone else in {answer.level} {answer.unit}, including {others} in "
        f"{where}, and thinks it {words.prior_percent(before)} likely that their target is counted "
        f"there would give that a probability of {_reached(answer)} after this release."
    ]
    if answer.seen[0].exact:
        lines.append("This count is published exactly, so no noise protects it.")
    elif answer.settled_by is not None:
        lines.append(
            f"{answer.settled_by} is published exactly, so anyone who knows everyone else can subtract "
            f"them from it. No noise protects against that; the figure is an upper bound."
        )
    else:
        lines.append(
            f"They see {answer.table} of the {answer.level}, of its siblings, and of every larger unit "
            f"listed below. The calculation considers every possible count. Other tables of the "
            f"release can reveal more; the plan's risk includes all of them."
        )
    if answer.strange:
        lines.append(
            "The released count is so far from what they know that one of the two must be wrong; "
            "check --known before you use this figure."
        )
    if answer.left_out:
        lines.append(
            f"Not used: {words.listed(answer.left_out)}, because {answer.table} is not measured at a "
            f"level in between."
        )
    return lines


def _reached(answer: UnitPosterior) -> str:
    share = words.brief_percent(float(answer.posterior.value), other=answer.intruder.prior)
    return words.at_most(share, answer.posterior.upper_bound)


def _times(answer: UnitPosterior) -> float | str:
    times = float(answer.posterior.value) / answer.intruder.prior
    return words.at_most(words.multiple(times), True) if answer.posterior.upper_bound else times


def _assumed(release: Release) -> list[str]:
    """Say what the figure takes for granted about the target, and what it does not use."""
    lines = []
    if release.plan.rows_per_person > 1:
        lines.append(
            "The target is assumed to have as many rows as a person may have, all of them here."
        )
    if release.plan.constraints:
        lines.append("Public bounds from the plan's files are not used; they would reveal more.")
    return lines


def _posteriors(answers: Sequence[UnitPosterior]) -> SectionTable:
    return SectionTable(
        "What they believe",
        ("Prior", "Posterior", "Times the prior", "Error, at most"),
        tuple(
            (
                words.prior(item.intruder.prior),
                _reached(item),
                _times(item),
                _error(item.posterior.error_bound),
            )
            for item in answers
        ),
    )


def _error(bound: float | None) -> float | str | None:
    return "below 1e-12" if bound is not None and bound < 1e-12 else bound


def _counts(answer: UnitPosterior) -> SectionTable:
    return SectionTable(
        f"What they see and know: {answer.intruder.known:,} others in {answer.level} {answer.unit}",
        ("Level", "Unit", "Released count", "Siblings", "Their released counts together"),
        tuple(
            (
                item.level,
                item.geocode,
                item.released,
                item.siblings if item.sibling_sum is not None else None,
                item.sibling_sum,
            )
            for item in answer.seen
        ),
    )
