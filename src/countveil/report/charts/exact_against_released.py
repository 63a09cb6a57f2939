"""INTERNAL: a release compared with the confidential counts it was made from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pyarrow as pa

from countveil.assess.empirical_loss.residual_values import Residuals
from countveil.base import words
from countveil.base.numerics import Array
from countveil.errors import InputError
from countveil.estimate.release_error import SIZE_CLASSES, Accuracy
from countveil.plan.workload import TOTAL
from countveil.report.charts import chart_inputs, theme
from countveil.report.charts.chart import Chart, described

_MOST_POINTS = 3_000
_MOST_BARS = 101


def error_by_size(
    accuracy: Accuracy, *, query: str = TOTAL, levels: Sequence[str] | None = None
) -> Chart:
    """Draw the mean absolute error of a query by level and size of the place. Internal.

    Parameters
    ----------
    accuracy
        What `estimate.release_error.accuracy` returns.
    query
        The query to draw.
    levels
        The levels to draw; all of them by default.

    Returns
    -------
    Chart

    """
    measured_accuracy = chart_inputs.of_kind(accuracy, Accuracy, "accuracy")
    everything = measured_accuracy.errors.to_pylist()
    rows = [
        {
            "level": row["level"],
            "size_class": row["size_class"],
            "mean_absolute_error": row["mean_absolute_error"],
            "bias": row["bias"],
            "cells": row["cells"],
        }
        for row in everything
        if row["query"] == query
        and row["size_class"] in SIZE_CLASSES
        and (levels is None or row["level"] in levels)
    ]
    if not rows:
        known = ", ".join(dict.fromkeys(row["query"] for row in everything)) or "none at all"
        raise InputError(f"query: there are no errors of {query!r}; choose from {known}")
    drawn_levels = list(dict.fromkeys(row["level"] for row in rows))
    theme.refuse_too_many(drawn_levels, "accuracy, its levels")
    sizes = [name for name in SIZE_CLASSES if any(row["size_class"] == name for row in rows)]
    drawn = [
        {
            "x": row["size_class"],
            "y": row["mean_absolute_error"],
            "series": row["level"],
        }
        for row in rows
    ]
    worst = max(rows, key=lambda row: row["mean_absolute_error"])
    least = min(rows, key=lambda row: row["mean_absolute_error"])
    summary = (
        f"The largest mean absolute error is {words.brief(worst['mean_absolute_error'])}, at level "
        f"{worst['level']} with {worst['size_class']} people; the smallest is "
        f"{words.brief(least['mean_absolute_error'])}, at level {least['level']} with "
        f"{least['size_class']} people."
    )
    return described(
        "error-by-size",
        f"Error of {query}, by level and size",
        _by_size(drawn, drawn_levels, sizes),
        alt_text=[
            "Points of mean absolute error by size of the place, joined for each level.",
            summary,
        ],
        caption=[summary, "Size is the exact number of people in a place."],
        table=pa.Table.from_pylist(rows),
        audience="internal",
    )


def exact_and_released(exact: Array, released: Array, *, audience: str) -> Chart:
    """Draw released counts and their residuals against exact counts. Internal.

    Parameters
    ----------
    exact, released
        The counts, in the same order.
    audience
        Must be "internal".

    Returns
    -------
    Chart

    """
    if audience != "internal":
        raise InputError(
            f"audience: got {audience!r}; exact counts may only be drawn for 'internal'"
        )
    true, noisy = chart_inputs.numbers(exact, "exact"), chart_inputs.numbers(released, "released")
    if len(true) != len(noisy):
        raise InputError(
            f"released: got {len(noisy)} for {len(true)} exact counts; pass one per count"
        )
    often = Counter(zip(true.tolist(), noisy.tolist(), strict=True))
    if len(often) > _MOST_POINTS:
        raise InputError(
            f"exact: {len(often):,} different points are too many to draw, at most "
            f"{_MOST_POINTS:,} fit; use a higher level, or error_by_size"
        )
    rows = [
        {"exact": a, "released": b, "residual": b - a, "times": times}
        for (a, b), times in sorted(often.items())
    ]
    size = np.abs(noisy - true)
    worst = rows[int(np.argmax([abs(row["residual"]) for row in rows]))]
    summary = {
        "pairs": len(true),
        "mean_absolute_residual": float(size.mean()),
    }
    table = pa.Table.from_pylist([{**row, **summary} for row in rows])
    sentence = (
        f"Over {words.number(len(true))} counts, the residual is "
        f"{words.brief(summary['mean_absolute_residual'])} in size on average; the largest is "
        f"that of a count of {words.number(worst['exact'])}, released as "
        f"{words.number(worst['released'])}."
    )
    return described(
        "exact-and-released",
        "Released against exact counts",
        alt.hconcat(_scatter(rows, "released"), _scatter(rows, "residual"), spacing=36),
        alt_text=["Points of released counts, and of residuals, against exact counts.", sentence],
        caption=[sentence, "On the line, released and exact counts are equal."],
        table=table,
        audience="internal",
    )


def residuals(differences: Residuals, *, name: str = "released") -> Chart:
    """Draw how often each residual, released minus exact, occurs. Internal.

    Parameters
    ----------
    differences
        The residuals of one group.
    name
        What the title calls the released counts.

    Returns
    -------
    Chart

    """
    differences = chart_inputs.of_kind(differences, Residuals, "differences")
    if not len(differences.values):
        raise InputError("differences: there are no residuals; pass a group that has some")
    low, high = float(differences.values[0]), float(differences.values[-1])
    width = max(1.0, np.ceil((high - low + 1) / _MOST_BARS))
    place = ((differences.values - np.floor(low)) // width).astype(int)
    sums = np.bincount(place, differences.counts)
    rows = [
        {
            "from": float(np.floor(low) + i * width),
            "to": float(np.floor(low) + (i + 1) * width - (1 if differences.whole else 0)),
            "residuals": int(number),
            "share": float(number / differences.total),
            "all_residuals": differences.total,
            "mean": differences.mean,
            "smallest": low,
            "largest": high,
        }
        for i, number in enumerate(sums)
    ]
    top = max(rows, key=lambda row: row["residuals"])
    half = 0.5 if differences.whole else 0.0
    drawn = [
        {"left": row["from"] - half, "right": row["to"] + half, "share": row["share"]}
        for row in rows
    ]
    plot = (
        theme.values(drawn)
        .mark_bar(color=theme.COLOURS[0], stroke="#ffffff", strokeWidth=0.4)
        .encode(
            x=alt.X(
                "left:Q",
                title="residual: released minus exact",
                scale=alt.Scale(
                    domain=[drawn[0]["left"], drawn[-1]["right"]], nice=False, zero=False
                ),
                axis=alt.Axis(grid=False, format=",~r", labelOverlap="greedy"),
            ),
            x2="right:Q",
            y=alt.Y(
                "share:Q",
                title="share of residuals",
                scale=alt.Scale(domain=[0, theme.padded(0.0, top["share"])[1]], nice=False),
                axis=alt.Axis(format="~%", tickCount=5),
            ),
            y2=alt.datum(0),
        )
        .properties(width=theme.WIDTH, height=220)
    )
    summary = (
        f"{words.number(differences.total)} residuals range from {words.number(low)} to "
        f"{words.number(high)}, with a mean of {words.brief(differences.mean)}; the most frequent, "
        f"{words.brief_percent(top['share'])} of them, are {_between(top)}."
    )
    return described(
        "residuals",
        f"Residuals: {name} minus exact",
        plot,
        alt_text=["Bars of how often each residual occurs.", summary],
        caption=[summary],
        table=pa.Table.from_pylist(rows),
        audience="internal",
    )


def _between(bar: dict[str, Any]) -> str:
    """Return the range of a bar in words."""
    if bar["from"] == bar["to"]:
        return words.number(bar["from"])
    return f"from {words.number(bar['from'])} to {words.number(bar['to'])}"


def _by_size(rows: list[dict[str, Any]], levels: list[str], sizes: list[str]) -> alt.LayerChart:
    """Draw points over size classes, with each level labelled at its last point."""
    high = max(row["y"] for row in rows)
    base = theme.values(rows).encode(
        x=alt.X("x:N", sort=sizes, title="people in the place", axis=alt.Axis(labelAngle=0)),
        y=alt.Y(
            "y:Q",
            title="mean absolute error",
            scale=alt.Scale(domain=[0, theme.padded(0.0, high or 1.0)[1]], nice=False),
            axis=alt.Axis(format=",~r", tickCount=6),
        ),
        color=theme.colour(levels),
    )
    step = theme.padded(0.0, high or 1.0)[1]
    ends = [next(row for row in reversed(rows) if row["series"] == level) for level in levels]
    labels = []
    for size in dict.fromkeys(end["x"] for end in ends):
        own = [end for end in ends if end["x"] == size]
        moved = theme.move_apart([end["y"] for end in own], 15 * step / theme.HEIGHT, 0.0, step)
        moved = [max(y, 0.03 * step) for y in moved]  # clear of the axis
        labels += [{**end, "y": y} for end, y in zip(own, moved, strict=True)]
    return theme.layered(
        base.mark_line().encode(strokeDash=theme.dash(levels)),
        base.mark_point(size=60, opacity=1).encode(shape=theme.shape(levels)),
        theme.values(labels)
        .mark_text(align="left", dx=9, baseline="middle")
        .encode(x=alt.X("x:N", sort=sizes), y="y:Q", text="series:N"),
    ).properties(width=alt.Step(100 if len(sizes) < 6 else 85), height=theme.HEIGHT)


def _scatter(rows: list[dict[str, Any]], column: str) -> alt.LayerChart:
    xs, ys = [row["exact"] for row in rows], [row[column] for row in rows]
    left, right = theme.padded(min(xs), max(xs))
    low, high = theme.padded(min(*ys, left if column == "released" else 0), max(ys))
    if column == "released":
        low, high = min(low, left), max(high, right)
    base = theme.values([{"x": x, "y": y} for x, y in zip(xs, ys, strict=True)])
    points = base.mark_point(size=28, opacity=0.55, color=theme.COLOURS[0]).encode(
        x=alt.X(
            "x:Q",
            title="exact count",
            scale=alt.Scale(domain=[left, right], nice=False, zero=False),
            axis=alt.Axis(grid=False, format=",~r", tickCount=5, labelOverlap="greedy"),
        ),
        y=alt.Y(
            "y:Q",
            title="released count" if column == "released" else "residual",
            scale=alt.Scale(domain=[low, high], nice=False, zero=False),
            axis=alt.Axis(format=",~r", tickCount=5),
        ),
    )
    ends = [(left, left), (right, right)] if column == "released" else [(left, 0), (right, 0)]
    line = (
        theme.values([{"x": x, "y": y} for x, y in ends])
        .mark_line(color=theme.INK, strokeDash=[4, 3], strokeWidth=1.2)
        .encode(x="x:Q", y="y:Q")
    )
    return theme.layered(line, points).properties(width=270, height=240)
