"""Charts of the Pennsylvania study: they take the draws and compute only quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from countveil.base.numerics import FloatArray, IntArray

Rows = list[dict[str, Any]]

EFFECTS = ("case zeros", "death zeros", "contracted rates")
_COLOURS = {  # distinguishable for colour-blind readers
    "post-processing": "#d55e00",
    "naive": "#7f7f7f",
    "congenial": "#0072b2",
    "prior": "#009e73",
}
_SHARES = np.concatenate((np.arange(1, 100), [99.5, 99.9])) / 100


def save(chart: alt.TopLevelMixin, path: Path) -> None:
    """Write a chart as PNG and SVG."""
    chart.save(f"{path}.png", scale_factor=1.5)
    chart.save(f"{path}.svg")


def rate_rows(
    county: str,
    method: str,
    months: Sequence[str],
    released: IntArray,
    true: IntArray,
    people: int,
) -> Rows:
    """Return the quantiles of released rates of a county, month by month, and the true rate."""
    low, first, middle, third, high = (
        np.quantile(released, (0.05, 0.25, 0.5, 0.75, 0.95), axis=1) / people * 1e5
    )
    return [
        {
            "county": county,
            "method": method,
            "month": month,
            "low": low[i],
            "first": first[i],
            "middle": middle[i],
            "third": third[i],
            "high": high[i],
            "true": true[i] / people * 1e5,
        }
        for i, month in enumerate(months)
    ]


def rates(
    rows: Sequence[Rows], title: str, methods: Sequence[str], counties: Sequence[str]
) -> alt.VConcatChart:
    """Draw boxes of released rates, counties below each other, methods side by side."""
    parts = []
    for county in counties:
        values = [row for part in rows for row in part if row["county"] == county]
        month = alt.X("month:O", title=None, axis=alt.Axis(labelAngle=-90, labelOverlap=True))
        base = alt.Chart({"values": values}).encode(x=month)
        colour = alt.Color("method:N", scale=_scale(methods), legend=None)
        height = alt.Y(
            "low:Q",
            title=[county, "cases per 100,000"],
            scale=alt.Scale(type="symlog", constant=100),
            axis=alt.Axis(values=[-10_000, -1_000, -100, 0, 100, 1_000, 10_000, 100_000]),
        )
        whiskers = base.mark_rule().encode(y=height, y2="high:Q", color=colour)
        boxes = base.mark_bar(size=6).encode(y="first:Q", y2="third:Q", color=colour)
        line = base.mark_line(color="black", strokeWidth=1.2).encode(y="true:Q")
        layers = alt.layer(whiskers, boxes, line).properties(width=230, height=150)
        parts.append(layers.facet(column=alt.Column("method:N", sort=list(methods), title=None)))
    subtitle = "line: true; box: half of the draws; whiskers: 90 %; logarithmic above 100"
    return alt.vconcat(*parts).properties(title=_titled(title, subtitle))


def error_rows(method: str, epsilon: str, size: str, errors: FloatArray) -> Rows:
    """Return quantiles of the size of errors."""
    own = np.abs(errors[np.isfinite(errors)])
    return [
        {
            "method": method,
            "epsilon": f"epsilon {epsilon}",
            "population": size,
            "share": share,
            "error": max(100 * value, 0.01),
        }
        for share, value in zip(_SHARES, np.quantile(own, _SHARES), strict=True)
    ]


def errors(
    rows: Sequence[Rows], title: str, methods: Sequence[str], sizes: Sequence[str]
) -> alt.FacetChart:
    """Draw the errors from smallest to largest, with sizes of county side by side."""
    values = [row for part in rows for row in part]
    chart = (
        alt.Chart({"values": values})
        .mark_line()
        .encode(
            x=alt.X("share:Q", title="share of county months", axis=alt.Axis(format="%")),
            y=alt.Y("error:Q", title="relative error, percent", scale=alt.Scale(type="log")),
            color=alt.Color("method:N", scale=_scale(methods), title=None),
        )
        .properties(width=190, height=190)
    )
    found: alt.FacetChart = chart.facet(
        column=alt.Column("population:N", sort=list(sizes), title="population"),
        row=alt.Row("epsilon:N", title=None),
    )
    subtitle = "lower is better; errors below 0.01 % are drawn at 0.01 %"
    return found.properties(title=_titled(title, subtitle))


def effect_rows(
    county: str, method: str, epsilon: str, shares: FloatArray, true: FloatArray
) -> Rows:
    """Return the share of each effect in a county, in releases and in the true counts."""
    return [
        {
            "county": county,
            "method": method,
            "epsilon": f"epsilon {epsilon}",
            "effect": effect,
            "share": float(share),
            "true": float(own),
        }
        for effect, share, own in zip(EFFECTS, shares, true, strict=True)
    ]


def effects(rows: Sequence[Rows], title: str, methods: Sequence[str]) -> alt.FacetChart:
    """Draw how often each effect occurs, methods side by side, with a mark for the true counts."""
    values = [row for part in rows for row in part]
    drawn = [method for method in methods if any(row["method"] == method for row in values)]
    base = alt.Chart({"values": values}).encode(
        x=alt.X("effect:N", sort=list(EFFECTS), title=None, axis=alt.Axis(labelAngle=0)),
        xOffset=alt.XOffset("method:N", sort=drawn),
    )
    bars = base.mark_bar().encode(
        y=alt.Y("share:Q", title="share of releases", axis=alt.Axis(format="%")),
        color=alt.Color("method:N", scale=_scale(drawn), title=None),
    )
    marks = base.mark_tick(color="black", thickness=2).encode(y="true:Q")
    return (
        alt.layer(bars, marks)
        .properties(width=330, height=180)
        .facet(
            row=alt.Row("county:N", title=None),
            column=alt.Column("epsilon:N", title=None),
        )
        .properties(
            title=_titled(title, "black mark: share of months in which the true counts have it")
        )
    )


def _scale(methods: Sequence[str]) -> alt.Scale:
    return alt.Scale(domain=list(methods), range=[_COLOURS[method] for method in methods])


def _titled(title: str, subtitle: str) -> alt.TitleParams:
    return alt.TitleParams(title, subtitle=subtitle, anchor="start")
