"""Numbers by level and query, as tiles: shares of the budget, and expected errors."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import altair as alt
import pyarrow as pa

from countveil.base import words
from countveil.errors import InputError
from countveil.estimate.plan_error import ExpectedError
from countveil.plan.plans import Plan
from countveil.report.charts import chart_inputs, theme
from countveil.report.charts.chart import Chart, described

_LIGHT, _DARK, _TURN = "#eef4fa", "#08519c", 0.74


def budget_allocation(plan: Plan) -> Chart:
    """Draw how a plan shares its budget among levels and queries.

    Parameters
    ----------
    plan
        A plan of counts.

    Returns
    -------
    Chart

    """
    plan = chart_inputs.of_kind(plan, Plan, "plan")
    currency = plan.allocations[0].cost.currency
    costs = [
        (item.level, item.query.name, item.cost.amount)
        for item in sorted(plan.allocations, key=lambda item: item.query.cells)
    ]
    total = sum((amount for _, _, amount in costs), Fraction(0))
    rows: list[dict[str, Any]] = [
        {
            "level": level,
            "query": query,
            currency: float(amount),
            "share_of_all": float(amount / total),
        }
        for level, query, amount in costs
    ]
    levels = [level for level in plan.levels if any(row["level"] == level for row in rows)]
    by_level: list[dict[str, Any]] = [
        {
            "level": level,
            "query": "all queries",
            currency: float(sum(amount for own, _, amount in costs if own == level)),
            "share_of_all": float(sum(a for own, _, a in costs if own == level) / total),
        }
        for level in levels
    ]
    whole: dict[str, Any] = {
        "level": "all levels",
        "query": "all queries",
        currency: float(total),
        "share_of_all": 1.0,
    }
    for row in (*rows, *by_level):
        row["value"], row["label"] = row["share_of_all"], _short_percent(row["share_of_all"])
    plot = alt.vconcat(
        _bars(by_level, levels, f"share of {currency}"), _tiles(rows, levels), spacing=14
    )
    largest = max(by_level, key=lambda row: row["share_of_all"])
    top = max(rows, key=lambda row: row["share_of_all"])
    shares = words.first_few(
        [f"{row['level']} {words.brief_percent(row['share_of_all'])}" for row in by_level], 8
    )
    table = pa.Table.from_pylist([{k: row[k] for k in whole} for row in (*rows, *by_level, whole)])
    return described(
        "budget-allocation",
        "How the budget is shared",
        plot,
        alt_text=[
            f"Bars of each level's share of {currency}, and tiles of each query's share. By level: "
            f"{shares}.",
        ],
        caption=[
            f"All levels together spend {currency} {words.number(float(total))}.",
            f"The largest part, {words.brief_percent(largest['share_of_all'])}, goes to "
            f"{largest['level']}; the largest single share is "
            f"{words.brief_percent(top['share_of_all'])}, for {top['query']} of {top['level']}.",
        ],
        table=table,
    )


def expected_error(errors: Sequence[ExpectedError]) -> Chart:
    """Draw the expected error of a count by level and query.

    Parameters
    ----------
    errors
        What `estimate.plan_error.expected_error` returns for a plan.

    Returns
    -------
    Chart

    """
    query_errors = [
        chart_inputs.of_kind(item, ExpectedError, "errors")
        for item in chart_inputs.nonempty(errors, "errors")
    ]
    rows: list[dict[str, Any]] = []
    for item in query_errors:
        rows.append(
            {
                "level": item.level,
                "query": item.query,
                "cells": item.cells,
                "standard_error": 0.0 if item.as_counted else item.standard_error,
                "noise_standard_deviation": item.standard_deviation,
                "as_counted": item.as_counted,
            }
        )
    levels = list(dict.fromkeys(item.level for item in query_errors))
    drawn = [
        {**row, "value": row["standard_error"], "label": _error_label(row)}
        for row in rows
        if row["standard_error"] is not None
    ]
    if not drawn:
        raise InputError("errors: these queries determine none; measure TOTAL as well")
    known = [row for row in drawn if not row["as_counted"]]
    if known:
        least = min(known, key=lambda row: row["value"])
        most = max(known, key=lambda row: row["value"])
        summary = (
            f"The smallest standard error is {words.brief(least['value'])}, of {least['query']} "
            f"at level {least['level']}; the largest is {words.brief(most['value'])}, of "
            f"{most['query']} at level {most['level']}."
        )
    else:
        summary = "All of these counts are published exactly."
    return described(
        "expected-error",
        "Expected standard error of a count",
        _tiles(drawn, levels, log=True),
        alt_text=["Tiles of the standard error of one count, by query and level.", summary],
        caption=[
            summary,
            f"Errors are standard errors of {query_errors[0].basis_in_words}.",
        ],
        table=pa.Table.from_pylist(rows),
    )


def _error_label(row: dict[str, Any]) -> str:
    if row["as_counted"]:
        return "exact"
    return (
        f"{row['standard_error']:,.3g}"
        if row["standard_error"] < 1000
        else (f"{row['standard_error']:,.0f}")
    )


def _short_percent(share: float) -> str:
    percent = 100 * share
    if 0 < percent < 0.01:
        return "<0.01%"
    return f"{percent:.3g}%" if percent < 10 else f"{percent:.1f}%"


def _width(levels: Sequence[str]) -> int:
    return 76 if len(levels) <= 8 else 60


def _bars(rows: Sequence[dict[str, Any]], levels: Sequence[str], title: str) -> alt.LayerChart:
    """Draw one labelled bar per level."""
    most = max(row["value"] for row in rows)
    base = theme.values(rows).encode(
        x=alt.X("level:N", sort=list(levels), title=None, axis=None),
        y=alt.Y(
            "value:Q",
            title=title,
            scale=alt.Scale(domain=[0, theme.padded(0.0, most)[1]], nice=False),
            axis=alt.Axis(format=".0%", tickCount=4, grid=True),
        ),
    )
    return theme.layered(
        base.mark_bar(color=theme.COLOURS[0], width=30),
        base.mark_text(dy=-4, baseline="bottom").encode(text="label:N"),
    ).properties(width=alt.Step(_width(levels)), height=110)


def _tiles(
    rows: Sequence[dict[str, Any]], levels: Sequence[str], *, log: bool = False
) -> alt.LayerChart:
    """Draw a labelled tile for each level and query, darker where the number is larger."""
    queries = list(dict.fromkeys(row["query"] for row in rows))
    positive = [row["value"] for row in rows if row["value"] > 0] or [1.0]
    low, high = (min(positive), max(positive)) if log else (0.0, max(positive))
    if log and low == high:
        low = high / 2
    kind: Any = "log" if log else "sqrt"
    # Beyond this value, white text on blue is easier to read than black.
    middle = low * (high / low) ** _TURN if log else high * _TURN**2
    drawn = [
        {**row, "shown": max(row["value"], low), "dark": row["value"] > middle} for row in rows
    ]
    base = theme.values(drawn).encode(
        x=alt.X(
            "level:N",
            sort=list(levels),
            title=None,
            axis=alt.Axis(
                orient="bottom",
                labelAngle=0 if len(levels) <= 8 else -35,
                domain=False,
                ticks=False,
                labelLimit=_width(levels) if len(levels) <= 8 else 120,
            ),
        ),
        y=alt.Y(
            "query:N",
            sort=queries,
            title=None,
            axis=alt.Axis(domain=False, ticks=False, labelLimit=230),
        ),
    )
    tiles = base.mark_rect(stroke="#ffffff", strokeWidth=1.5).encode(
        color=alt.Color(
            "shown:Q",
            scale=alt.Scale(type=kind, domain=[low, high], range=[_LIGHT, _DARK]),
            legend=None,
        )
    )
    words_on = [
        base.transform_filter(alt.FieldEqualPredicate(field="dark", equal=dark))
        .mark_text(color="#ffffff" if dark else "#000000")
        .encode(text="label:N")
        for dark in (False, True)
    ]
    return theme.layered(tiles, *words_on).properties(
        width=alt.Step(_width(levels)), height=alt.Step(25)
    )
