"""How often noisy counts give away a group in which everyone has the same value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from countveil.assess.plan_lenses import GroupRisk, homogeneity_by_size
from countveil.base import words
from countveil.report.section_data import Cell, Section, SectionTable, Subject

if TYPE_CHECKING:
    from countveil.report.charts.chart import Chart

MOST_SERIES = 8  # lines that a chart can tell apart


def section(subject: Subject) -> Section | None:
    """Say how often groups that are all alike are given away; none where there is no attribute."""
    found = homogeneity_by_size(subject.plan)
    if not found:
        return None
    names = list(dict.fromkeys(item.attribute for item in found))
    drawn = [item for item in found if item.attribute in names[:MOST_SERIES]]
    sentences = [
        "Where all people of a group have one value, the exact table tells it of each of them. With "
        "noise other values may seem to occur in the group, and its own may seem not to.",
    ]
    if len(names) > MOST_SERIES:
        sentences.append(
            f"The chart shows the first {MOST_SERIES} of {len(names)} attributes; the table has "
            f"all of them."
        )

    def draw() -> list[Chart]:
        from countveil.report import charts

        return [charts.uniform_groups(drawn)]

    return Section(
        "homogeneity",
        "Groups in which everyone has the same value",
        tuple(sentences),
        (_groups(found, names),),
        draw,
    )


def _groups(found: Sequence[GroupRisk], names: Sequence[str]) -> SectionTable:
    sizes = list(dict.fromkeys(item.people for item in found))
    shown = {(item.attribute, item.people): words.percent(item.disclosed) for item in found}
    values = {item.attribute: item.values for item in found}
    rows: list[tuple[Cell, ...]] = [
        (name, values[name], *(shown[name, people] for people in sizes)) for name in names
    ]
    return SectionTable(
        f"How often noisy counts of {words.article(found[0].level)} show just the one value of a group",
        ("Attribute", "Values", *(f"Group of {people}" for people in sizes)),
        tuple(rows),
    )
