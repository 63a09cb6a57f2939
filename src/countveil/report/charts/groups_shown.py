"""How often noisy counts reveal the value of a group in which everyone has the same one."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from countveil.assess.homogeneity.group_risk import GroupRisk
from countveil.base import words
from countveil.report.charts import chart_inputs, theme
from countveil.report.charts.chart import Chart, described
from countveil.report.charts.line_charts import Axis, line_chart


def uniform_groups(risks: Sequence[GroupRisk]) -> Chart:
    """Draw how often a group's only value shows, by the size of the group, one line per attribute.

    Parameters
    ----------
    risks
        What `assess.homogeneity.group_risk.homogeneity_by_size` returns.

    Returns
    -------
    Chart

    """
    groups = [
        chart_inputs.of_kind(item, GroupRisk, "risks")
        for item in chart_inputs.nonempty(risks, "risks")
    ]
    rows = [
        {
            "attribute": item.attribute,
            "values": item.values,
            "people": item.people,
            "disclosed": item.disclosed,
        }
        for item in groups
    ]
    names = list(dict.fromkeys(item.attribute for item in groups))
    theme.refuse_too_many(names, "risks")
    drawn = [
        {"x": item.people, "y": item.disclosed, "series": item.attribute}
        for item in sorted(groups, key=lambda item: (names.index(item.attribute), item.people))
    ]
    worst = max(groups, key=lambda item: item.disclosed)
    least = min(item.people for item in groups)
    alone = max((item for item in groups if item.people == least), key=lambda item: item.disclosed)
    summary = [
        f"It is highest for {worst.attribute} in a group of {words.number(worst.people)}: "
        f"{words.brief_percent(worst.disclosed)}.",
        f"In groups of {words.number(alone.people)} it is highest for {alone.attribute}: "
        f"{words.brief_percent(alone.disclosed)}.",
    ]
    return described(
        "uniform-groups",
        "How often the value of a whole group shows",
        line_chart(
            drawn,
            names,
            Axis("people in the group", log=True),
            Axis("probability that the shared value is revealed", 0.0, 1.0, format="~%"),
        ),
        alt_text=[
            "Lines of a probability against the size of a group, one per attribute.",
            *summary,
        ],
        caption=[
            f"Everyone in the group has the same value; they also share "
            f"{words.article(groups[0].level)} and all other attributes. A line is how often the "
            f"noisy counts show that value alone.",
            *summary,
        ],
        table=pa.Table.from_pylist(rows),
    )
