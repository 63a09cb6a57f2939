"""How often intervals contained the true count, in simulated releases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pyarrow as pa

from countveil.base import words
from countveil.errors import InputError
from countveil.report.audience import Audience
from countveil.report.charts import chart_inputs, theme
from countveil.report.charts.chart import Chart, described

_MOST_ROWS = 60
_NEEDED = ("level", "intervals", "covered", "standard_error")
_REACH = 2.0  # standard errors that a bar extends either way
_ROW = 22


def coverage(table: pa.Table, *, confidence: float, audience: Audience) -> Chart:
    """Draw how often intervals contained the true count in simulated releases.

    Parameters
    ----------
    table
        One row per `level`, and per `query`, `size_class` and `method` if it has these columns, with
        the number of `intervals`, the share `covered`, and its `standard_error`.
    confidence
        How often they should contain it.
    audience
        "internal", unless the counts behind the releases are public.

    Returns
    -------
    Chart

    """
    table = chart_inputs.of_kind(table, pa.Table, "table")
    if audience not in ("public", "internal"):
        raise InputError(f"audience: got {audience!r}; choose 'public' or 'internal'")
    if not 0 < confidence < 1:
        raise InputError(f"confidence: got {confidence}; pass a number between 0 and 1")
    rows = _coverage_rows(table, confidence)
    least, most = (pick(rows, key=lambda row: row["covered"]) for pick in (min, max))
    summary = [
        f"{row['of']}: {words.brief_percent(row['covered'])} of {words.number(row['intervals'])} "
        f"intervals contained the count, with a standard error of "
        f"{words.brief_percent(row['standard_error'])}."
        for row in ([least] if least is most else [least, most])
    ]
    return described(
        "interval-coverage",
        "How often intervals contained the count",
        _covered(rows, confidence),
        alt_text=[
            f"Dots of the share of intervals that contained the count, with bars for its error, "
            f"and a line at {words.percent(confidence)}.",
            *summary,
        ],
        caption=[
            f"From simulated releases of known counts. Intervals should contain the count in "
            f"{words.percent(confidence)} of cases. Bars extend two standard errors either way.",
            *summary,
        ],
        table=pa.Table.from_pylist(rows),
        audience=audience,
    )


def _coverage_rows(table: pa.Table, confidence: float) -> list[dict[str, Any]]:
    for name in _NEEDED:
        if name not in table.column_names:
            raise InputError(
                f"table: column {name!r} is missing; it needs {', '.join(_NEEDED)}, and has "
                f"{', '.join(table.column_names) or 'none'}"
            )
    if not 0 < table.num_rows <= _MOST_ROWS:
        raise InputError(f"table: got {table.num_rows} rows; pass between 1 and {_MOST_ROWS}")
    chart_inputs.numbers(table["intervals"].to_pylist(), "table, intervals", above_zero=True)
    shares = chart_inputs.numbers(table["covered"].to_pylist(), "table, covered")
    errors = chart_inputs.numbers(table["standard_error"].to_pylist(), "table, standard_error")
    if not ((shares >= 0) & (shares <= 1)).all() or (errors < 0).any():
        raise InputError(
            "table: a share is outside 0 to 1, or an error is negative; pass shares, not "
            "percentages"
        )
    several = [
        name
        for name in ("query", "level", "size_class", "method")
        if name in table.column_names and (name == "level" or len(set(table[name].to_pylist())) > 1)
    ]
    rows = []
    for row in table.to_pylist():
        settings = {name: str(row[name]) for name in several}
        rows.append(
            {
                "of": ", ".join(settings.values()),
                **settings,
                "intervals": int(row["intervals"]),
                "covered": float(row["covered"]),
                "standard_error": float(row["standard_error"]),
                "nominal": confidence,
            }
        )
    names = [row["of"] for row in rows]
    if len(set(names)) < len(names):
        raise InputError(
            "table: two rows have the same level, query, size class and method; pass each once"
        )
    return rows


def _covered(rows: Sequence[dict[str, Any]], confidence: float) -> alt.LayerChart:
    drawn = [
        {
            **row,
            "low": max(0.0, row["covered"] - _REACH * row["standard_error"]),
            "high": min(1.0, row["covered"] + _REACH * row["standard_error"]),
            "label": words.brief_percent(row["covered"]),
        }
        for row in rows
    ]
    ends = [confidence, *(value for row in drawn for value in (row["low"], row["high"]))]
    low, high = theme.padded(min(ends), max(ends))
    base = theme.values(drawn).encode(
        y=alt.Y(
            "of:N",
            sort=[row["of"] for row in rows],
            title=None,
            axis=alt.Axis(ticks=False, domain=False, labelLimit=260, grid=True),
        )
    )
    across = alt.X(
        "low:Q",
        title="intervals that contained the count",
        scale=alt.Scale(domain=[max(0.0, low), min(1.0, high)], nice=False, zero=False),
        axis=alt.Axis(grid=False, tickCount=5, format="~%", labelOverlap="greedy"),
    )
    blue = theme.COLOURS[0]
    nominal = theme.values([{"x": confidence, "label": f"should be {words.percent(confidence)}"}])
    return theme.layered(
        nominal.mark_rule(color=theme.INK, strokeDash=[3, 3], strokeWidth=1.2).encode(x="x:Q"),
        nominal.mark_text(dy=-4, baseline="bottom").encode(x="x:Q", y=alt.value(0), text="label:N"),
        base.mark_rule(color=blue, strokeWidth=2).encode(x=across, x2="high:Q"),
        base.mark_point(color=blue, size=60, opacity=1).encode(x="covered:Q"),
        base.mark_text(align="left", dx=9).encode(x=alt.value("width"), text="label:N"),
    ).properties(width=theme.WIDTH, height=alt.Step(_ROW))
