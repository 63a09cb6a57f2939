"""How often noisy counts reveal the value of a group in which everyone has the same one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from countveil.assess.homogeneity.group_risk import GroupRisk, homogeneity_by_size
from countveil.base import words
from countveil.report.section_data import Cell, Section, SectionTable, Subject

if TYPE_CHECKING:
    from countveil.report.charts.chart import Chart

MOST_SERIES = 8  # lines that a chart can tell apart


def section(subject: Subject) -> Section | None:
    """Describe how often noisy counts reveal a value that a whole group shares.

    Return None for a plan without attributes.
    """
    risks = homogeneity_by_size(subject.plan)
    if not risks:
        return None
    names = list(dict.fromkeys(item.attribute for item in risks))
    first_risks = [item for item in risks if item.attribute in names[:MOST_SERIES]]
    sentences = [
        "If everyone in a group has the same value, the exact table reveals it for each of them. "
        "Noise can make other values appear in the group, and can hide its own.",
    ]
    if len(names) > MOST_SERIES:
        sentences.append(
            f"The chart shows the first {MOST_SERIES} of {len(names)} attributes; the table lists "
            f"all of them."
        )

    def draw() -> list[Chart]:
        from countveil.report import charts

        return [charts.uniform_groups(first_risks)]

    return Section(
        "homogeneity",
        "Groups in which everyone has the same value",
        tuple(sentences),
        (_groups(risks, names),),
        draw,
    )


def _groups(risks: Sequence[GroupRisk], names: Sequence[str]) -> SectionTable:
    sizes = list(dict.fromkeys(item.people for item in risks))
    shares = {(item.attribute, item.people): words.brief_percent(item.disclosed) for item in risks}
    values = {item.attribute: item.values for item in risks}
    rows: list[tuple[Cell, ...]] = [
        (name, values[name], *(shares[name, people] for people in sizes)) for name in names
    ]
    return SectionTable(
        f"How often noisy counts of {words.article(risks[0].level)} show only the value of a group",
        ("Attribute", "Values", *(f"Group of {people}" for people in sizes)),
        tuple(rows),
    )
