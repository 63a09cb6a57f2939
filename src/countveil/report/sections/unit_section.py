"""What a release says about one person in one unit: sentences and tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from scipy.special import ndtri

from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.intruder.released_unit import (
    DRAWS,
    Expected,
    UnitPosterior,
    expected_of,
    find_unit,
    unit_posteriors,
)
from countveil.assess.risk import ConfidenceInterval, Risk
from countveil.base import words
from countveil.base.randomness import Seeded
from countveil.errors import InputError
from countveil.estimate.result_tables import cell_number
from countveil.publish.release_folder import Release
from countveil.report.section_data import Section, SectionTable

_DEVIATIONS = float(ndtri(0.975))


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
    rows = release.plan.rows_per_person
    answers = unit_posteriors(
        release,
        unit=unit,
        table=table,
        cell=number,
        intruders=[Intruder(prior=prior, known=known, rows=rows) for prior in priors],
        level=place.level,
    )
    expected = expected_of(release, answers, rng=Seeded(1))
    first = answers[0]
    return Section(
        "presence",
        f"What the release reveals about one person in {place.level} {unit}",
        tuple(_sentences(first) + _assumed(release) + _before(expected)),
        (
            _posteriors(answers),
            *(() if expected is None else (_expected(answers, expected),)),
            _counts(first),
        ),
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
            "expected": [
                {
                    "prior": answer.intruder.prior,
                    **_with_interval("marginal_risk", item.risk, math.inf),
                    **_with_interval("correct_decision", item.decision, 1.0),
                }
                for answer, item in zip(answers, expected or (), strict=False)
            ],
        },
    )


def _with_interval(name: str, risk: Risk, most: float) -> dict[str, float | list[float] | None]:
    ends = _interval(risk, most)
    return {
        name: float(risk.value),
        f"{name}_error_bound": risk.error_bound,
        f"{name}_interval": None if ends is None else list(ends),
    }


def _interval(risk: Risk, most: float) -> ConfidenceInterval | None:
    """Return the 95 % confidence interval of a simulated figure; None if it was summed."""
    if risk.standard_error is None:
        return None
    width = _DEVIATIONS * risk.standard_error
    return ConfidenceInterval(
        max(0.0, float(risk.value) - width), min(most, float(risk.value) + width)
    )


def _before(expected: Sequence[Expected] | None) -> list[str]:
    """Say what the averages are of, and whether they were simulated."""
    if expected is None:
        return []
    lines = [
        "Averages over all releases that the plan could have produced are given for a target who is "
        "there, with the released counts, at least 0, taken for the counts of the other units."
    ]
    if any(item.risk.standard_error is not None for item in expected):
        lines.append(
            f"The noise above the unit takes too many values to be summed, so {DRAWS} releases were "
            f"simulated; the ranges are 95 % confidence intervals."
        )
    return lines


def _expected(answers: Sequence[UnitPosterior], expected: Sequence[Expected]) -> SectionTable:
    return SectionTable(
        "On average over the noise, if the target is there",
        ("Prior", "Times the prior", "Correct guesses"),
        tuple(
            (
                words.prior(answer.intruder.prior),
                _range(item.risk, math.inf, words.multiple),
                _range(item.decision, 1.0, words.brief_percent),
            )
            for answer, item in zip(answers, expected, strict=True)
        ),
    )


def _range(risk: Risk, most: float, text: Callable[[float], str]) -> str:
    """Return a figure in words, and the ends of its interval if they differ."""
    shown, ends = text(float(risk.value)), _interval(risk, most)
    if ends is None or text(ends.lower) == text(ends.upper):
        return shown
    return f"{shown} ({text(ends.lower)} to {text(ends.upper)})"


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
