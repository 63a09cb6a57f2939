"""Error against risk for two splits of a budget: as it is, and as well as it can be."""

from __future__ import annotations

from typing import Literal

import altair as alt
import pyarrow as pa

from countveil.assess.choose.split_comparison import SplitComparison, SplitPoint
from countveil.base import words
from countveil.report.charts import chart_inputs, theme
from countveil.report.charts.chart import Chart, described
from countveil.report.charts.line_charts import Axis, line_chart

_AS_IT_IS, _BEST = "as it is", "split best"


def two_splits(comparison: SplitComparison) -> Chart:
    """Draw the risk of a plan against the error of the tables that matter, for two splits.

    Parameters
    ----------
    comparison
        What `compare_splits` returns.

    Returns
    -------
    Chart

    """
    chart_inputs.of_kind(comparison, SplitComparison, "comparison")
    listed = [
        (_AS_IT_IS, point, point.rho == (comparison.own and comparison.own.rho))
        for point in comparison.now
    ]
    listed += [(_BEST, point, point.rho == comparison.chosen.rho) for point in comparison.then]
    rows = [
        {
            "series": name,
            "rho": at.rho,
            "error": at.error,
            "risk": at.risk.marginal_risk,
            "upper_bound": at.risk.upper_bound,
            "chosen": chosen,
        }
        for name, at, chosen in listed
    ]
    names = list(dict.fromkeys(name for name, _, _ in listed))
    drawn = [{**row, "x": row["error"], "y": row["risk"]} for row in reversed(rows)]
    across = Axis("error of the tables that matter", log=True)
    plot = theme.layered(
        line_chart(drawn, names, across, Axis("largest risk", log=True)),
        _label(comparison.chosen, align="right", dx=-8, dy=10),
        *([] if comparison.own is None else [_label(comparison.own, align="left", dx=8, dy=-8)]),
    ).properties(width=theme.WIDTH, height=theme.HEIGHT)
    sentences = [
        _said(name, at)
        for name, at in (("As it is", comparison.own), ("Split best", comparison.chosen))
        if at is not None
    ]
    return described(
        "two-splits",
        "Risk against error, for two splits of the budget",
        plot,
        alt_text=[
            "Lines of the largest risk against the error of the tables that matter, from an eighth "
            "of the budget to eight times as much.",
            *sentences,
        ],
        caption=[
            "Each point is a budget. Lower is safer, further left is more accurate. Errors are "
            "roots of weighted sums of squares, in units of the margins or of today's errors.",
            *sentences,
        ],
        table=pa.Table.from_pylist(rows),
    )


def _label(at: SplitPoint, *, align: Literal["left", "right"], dx: int, dy: int) -> alt.Chart:
    """Write the budget of a plan next to its point."""
    text = theme.values(
        [{"x": at.error, "y": at.risk.marginal_risk, "label": f"rho {words.number(at.rho)}"}]
    )
    mark = text.mark_text(align=align, dx=dx, dy=dy, fontSize=11, color=theme.FAINT)
    label: alt.Chart = mark.encode(x="x:Q", y="y:Q", text="label:N")
    return label


def _said(name: str, at: SplitPoint) -> str:
    return (
        f"{name}, rho {words.number(at.rho)} has an error of {words.brief(at.error)} and a risk of "
        f"{at.risk.times()}."
    )
