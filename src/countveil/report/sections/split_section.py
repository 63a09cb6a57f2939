"""What the split of a plan's budget wastes, for the tables that the plan names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from countveil.assess.choose.split_comparison import SplitComparison, compare_splits
from countveil.base import words
from countveil.errors import InputError
from countveil.report.section_data import Section, SectionTable, Subject

if TYPE_CHECKING:
    from countveil.report.charts.chart import Chart

_TITLE = "The split of the budget"


def section(subject: Subject) -> Section | None:
    """Compare the plan's split of its budget with the best one; None if it names no tables."""
    plan = subject.plan
    if not plan.targets:
        return None
    release = subject.release
    places = None if release is None else release.geography
    try:
        comparison = compare_splits(plan, geography=places)
    except InputError as error:  # such as a limit on risk that no split keeps
        return Section("split", _TITLE, (f"No best split was computed: {error}.",))

    def draw() -> list[Chart]:
        from countveil.report import charts

        return [charts.two_splits(comparison)]

    return Section(
        "split",
        _TITLE,
        tuple(_sentences(comparison, plan.intruder.limit)),
        _tables(comparison),
        draw,
        _figures(comparison),
    )


def _sentences(comparison: SplitComparison, limit: float | None) -> list[str]:
    best, own, same = comparison.best, comparison.own, comparison.same_error
    named = words.listed([f"{row['query']} of {row['level']}" for row in best.table.to_pylist()])
    sentences = [f"The plan says that these tables matter: {named}."]
    if own is None or same is None or comparison.wasted is None:
        sentences.append("The queries that it measures do not determine all of them.")
    else:
        less = 1 - comparison.chosen.error / own.error
        sentences.append(
            f"With rho = {words.number(comparison.chosen.rho)}, the best split that was found has "
            f"{words.brief_percent(less)} less error in these tables, typically, than today's has with "
            f"rho = {words.number(own.rho)}."
        )
        sentences.append(
            f"It would be as accurate as the plan is now with rho = {words.number(same.rho)}: today's "
            f"split wastes {words.brief_percent(comparison.wasted)} of the budget. The largest risk "
            f"would then be {same.risk.times(limit=limit)} times the prior instead of "
            f"{own.risk.times(limit=limit)} times."
        )
    within = f"{words.rounded_up(max(100 * (best.gap + best.rounding_loss), 0.01))} %"
    kind = (
        "no other split of these queries lowers the mean squared error by more than"
        if best.proof == "proved"
        else "near it, no split that keeps the limit on risk lowers the mean squared error by more than"
    )
    return [*sentences, f"Under the same limits, {kind} {within}."]


def _tables(comparison: SplitComparison) -> tuple[SectionTable, ...]:
    rows = comparison.best.table.to_pylist()
    margins = SectionTable(
        "Margin of error of the tables that matter, in people",
        ("Level", "Table", "As it is", "Split best", "Wanted"),
        tuple(
            (
                *(row["level"], row["query"]),
                *(row["margin_before"], row["margin_after"], row["margin_wanted"]),
            )
            for row in rows
        ),
    )
    splits = (("as it is", comparison.now), ("split best", comparison.then))
    frontier = SectionTable(
        "Error of these tables, in units of their margins or of today's errors, and risk, by budget",
        ("Split", "rho", "Error", "Risk"),
        tuple(
            (name, point.rho, point.error, point.risk.times())
            for name, points in splits
            for point in points
        ),
    )
    return margins, frontier


def _figures(comparison: SplitComparison) -> dict[str, object]:
    best = comparison.best
    return {
        "wasted": comparison.wasted,
        "proof": best.proof,
        "gap": best.gap + best.rounding_loss,
        "risks": [point.risk.marginal_risk for point in (*comparison.now, *comparison.then)],
        "budget": {key: best.plan.document["budget"][key] for key in ("rho", "levels", "queries")},
    }
