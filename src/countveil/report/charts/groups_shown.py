"""How often noisy counts give away a group whose people are all alike, by its size."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from countveil.assess.plan_lenses import GroupRisk
from countveil.base import words
from countveil.report.charts import chart_inputs, theme
from countveil.report.charts.chart import Chart, described
from countveil.report.charts.line_charts import Axis, line_chart


def uniform_groups(risks: Sequence[GroupRisk]) -> Chart:
    """Draw the chance that a group's one value shows against its size, a line for each attribute."""
    found = [
        chart_inputs.of_kind(item, GroupRisk, "risks") for item in chart_inputs.some(risks, "risks")
    ]
    rows = [
        {
            "attribute": item.attribute,
            "values": item.values,
            "people": item.people,
            "disclosed": item.disclosed,
        }
        for item in found
    ]
    names = list(dict.fromkeys(item.attribute for item in found))
    theme.refuse_too_many(names, "risks")
    drawn = [
        {"x": item.people, "y": item.disclosed, "series": item.attribute}
        for item in sorted(found, key=lambda item: (names.index(item.attribute), item.people))
    ]
    worst = max(found, key=lambda item: item.disclosed)
    least = min(item.people for item in found)
    alone = max((item for item in found if item.people == least), key=lambda item: item.disclosed)
    told = [
        f"It is largest for {worst.attribute} in a group of {words.number(worst.people)}: "
        f"{words.percent(worst.disclosed)}.",
        f"Of groups of {words.number(alone.people)} it is largest for {alone.attribute}: "
        f"{words.percent(alone.disclosed)}.",
    ]
    return described(
        "uniform-groups",
        "Groups that are all alike, and how often that shows",
        line_chart(
            drawn,
            names,
            Axis("people in the group", log=True),
            Axis("probability that just their value shows", 0.0, 1.0, format="~%"),
        ),
        alt_text=["Lines of a probability against the size of a group, one an attribute.", *told],
        caption=[
            f"Everybody in the group, who share {words.article(found[0].level)} and all other "
            f"attributes, has the same value. The line is how often the noisy counts show that "
            f"value and no other.",
            *told,
        ],
        table=pa.Table.from_pylist(rows),
    )
