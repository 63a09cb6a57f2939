"""How far off a count is expected to be, before anything is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from countveil.base import words
from countveil.plan.workload import TOTAL
from countveil.postprocess.unmeasured import unmeasured_in_words
from countveil.report.section_data import Section, SectionTable, Subject

if TYPE_CHECKING:
    from countveil.report.charts.chart import Chart


def section(subject: Subject) -> Section:
    """Describe how far off a count is expected to be, from the plan alone."""
    plan, errors = subject.plan, subject.errors
    noise = {
        item.level: words.brief(item.absolute_error)
        for item in errors
        if item.query == TOTAL and not item.as_counted and item.absolute_error is not None
    }
    sentences = ["The expected errors follow from the plan alone."]
    if noise:
        averages = [f"{words.article(level)} total by {size}" for level, size in noise.items()]
        sentences.append(f"On average, noise moves {words.listed(averages)}.")
    sentences += unmeasured_in_words(plan)
    table = SectionTable(
        f"Error of one cell of each query: its own noise, and {errors[0].basis_in_words}",
        ("Level", "Query", "Cells", "Mean absolute noise", "Standard deviation", "Estimate"),
        tuple(
            (
                *(item.level, item.query, item.cells),
                *(item.absolute_error, item.standard_deviation, item.standard_error),
            )
            for item in errors
            if not item.as_counted
        ),
    )

    def draw() -> list[Chart]:
        from countveil.report import charts

        allocation = charts.budget_allocation(plan)
        if any(item.as_counted or item.standard_error is not None for item in errors):
            return [charts.expected_error(errors), allocation]
        return [allocation]

    return Section("error", "Expected error", tuple(sentences), (table,), draw)
