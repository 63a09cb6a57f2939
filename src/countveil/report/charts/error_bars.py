"""The precision of estimates: standard errors by level, and areas with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pyarrow as pa

from countveil.base import words
from countveil.errors import InputError
from countveil.estimate.areas import AreaEstimates
from countveil.estimate.errors_by_level import LevelError
from countveil.estimate.result_tables import cell_name, cell_number
from countveil.report.charts import chart_inputs, theme
from countveil.report.charts.chart import Chart, described
from countveil.report.charts.line_charts import Axis, end_labels

_ESTIMATE, _NOISE = "least squares", "own noise"
_WIDE = 20.0  # largest over smallest value, from which the axis is logarithmic
_APART = 11  # pixels between the two marks of a level
_ROW = 22


def error_by_level(errors: Sequence[LevelError]) -> Chart:
    """Draw the standard error of a query's counts at each level, and the query's own noise.

    A dot is the median over all units and cells; its bar goes from the smallest to the largest.

    Parameters
    ----------
    errors
        What `estimate.errors_by_level.level_errors` returns for one query.

    Returns
    -------
    Chart

    """
    level_errors = [
        chart_inputs.of_kind(item, LevelError, "errors")
        for item in chart_inputs.nonempty(errors, "errors")
    ]
    queries = list(dict.fromkeys(item.query for item in level_errors))
    if len(queries) > 1:
        raise InputError(
            f"errors: got the queries {words.listed(queries)}; pass the errors of one query"
        )
    if all(item.median is None for item in level_errors):
        raise InputError(
            f"errors: all counts of {queries[0]} are exact or not determined; pass the errors of "
            f"another query"
        )
    rows = [
        {
            "level": item.level,
            "query": item.query,
            "units": item.units,
            "counts": item.counts,
            "exact": item.exact,
            "not_determined": item.undetermined,
            "smallest_standard_error": item.smallest,
            "median_standard_error": item.median,
            "largest_standard_error": item.largest,
            "own_noise": item.noise,
        }
        for item in level_errors
    ]
    summary = [_level_summary(item) for item in level_errors]
    worst = max(level_errors, key=lambda item: item.median or 0.0)
    return described(
        "error-by-level",
        f"Standard error of {theme.shortened(queries[0])}, by level",
        _by_level(level_errors),
        alt_text=[
            f"Dots of the standard error of {queries[0]} for each level, and of its own noise.",
            *summary,
        ],
        caption=[
            "A dot is the median over all places and cells of a level; its bar goes from the "
            "smallest to the largest. A square is the noise of the query alone, without the "
            "information from other queries and levels.",
            _level_summary(worst),
        ],
        table=pa.Table.from_pylist(rows),
    )


def areas_with_intervals(
    estimates: AreaEstimates, *, cell: str | Sequence[str] | None = None, most: int = 40
) -> Chart:
    """Draw the estimate of each area with its interval, largest first.

    Parameters
    ----------
    estimates
        Estimates of areas, as the method `areas` of unbiased estimates returns them.
    cell
        The categories of the cell to draw; needed if the query has more than one cell.
    most
        How many areas to draw; the table has all.

    Returns
    -------
    Chart

    """
    estimates = chart_inputs.of_kind(estimates, AreaEstimates, "estimates")
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise InputError(f"most: got {most!r}; pass a whole number of at least 1")
    number, what = _cell(estimates, cell)
    lower, upper = estimates.lower[:, number], estimates.upper[:, number]
    value, error = estimates.value[:, number], estimates.standard_error[:, number]
    known = np.isfinite(error)
    if not known.any():
        raise InputError(
            f"estimates: the release determines {what} in none of these areas; draw another cell"
        )
    order = sorted(range(len(value)), key=lambda i: (not known[i], -value[i] if known[i] else 0.0))
    rows: list[dict[str, Any]] = [
        {
            "area": estimates.names[i],
            "cell": what,
            "estimate": float(value[i]) if known[i] else None,
            "standard_error": float(error[i]) if known[i] else None,
            "lower": float(lower[i]) if known[i] else None,
            "upper": float(upper[i]) if known[i] else None,
            "confidence": estimates.confidence,
        }
        for i in order
    ]
    drawn = [row for row in rows if row["estimate"] is not None]
    first, last = drawn[0], drawn[-1]
    summary = [f"{_area_summary(row)}." for row in ([first, last] if len(drawn) > 1 else [first])]
    left = len(rows) - len(drawn)
    return described(
        "areas-with-intervals",
        f"{theme.shortened(what)} of each area",
        _with_intervals(drawn[:most], what),
        alt_text=[
            f"Dots of the estimate of each area, largest first, with bars for its "
            f"{words.percent(estimates.confidence)} interval.",
            *summary,
        ],
        caption=[
            f"Bars are {words.percent(estimates.confidence)} intervals, for each area on its own. If "
            f"the bars of two areas overlap, their order may be the other way round.",
            *summary,
            "Areas whose count the release does not determine are not drawn." if left else "",
            "The table also lists those not drawn." if len(drawn) > most else "",
        ],
        table=pa.Table.from_pylist(rows),
    )


def _level_summary(item: LevelError) -> str:
    if item.median is None:
        return (
            f"At level {item.level}, all counts are exact."
            if item.exact == item.counts
            else f"At level {item.level}, the release determines no count that is not exact."
        )
    assert item.smallest is not None
    assert item.largest is not None
    smallest, median, largest = map(words.brief, (item.smallest, item.median, item.largest))
    if smallest == largest:
        return f"At level {item.level}, the standard error is {median}."
    return (
        f"At level {item.level}, the median standard error is {median}, from {smallest} to "
        f"{largest}."
    )


def _area_summary(row: dict[str, Any]) -> str:
    if row["standard_error"] == 0:
        return f"{row['area']}: {words.number(row['estimate'])}, exact"
    return (
        f"{row['area']}: {words.brief(row['estimate'])}, between {words.brief(row['lower'])} and "
        f"{words.brief(row['upper'])}"
    )


def _cell(estimates: AreaEstimates, cell: str | Sequence[str] | None) -> tuple[int, str]:
    """Return the number and name of the cell to draw."""
    query = estimates.query
    if cell is None:
        if query.cells > 1:
            raise InputError(
                f"cell: {query.name} has {query.cells:,} cells, and a chart shows one; name it by "
                f"its categories"
            )
        return 0, query.name
    number = cell_number(query, cell)
    return number, cell_name(query, number)


def _by_level(errors: Sequence[LevelError]) -> alt.LayerChart:
    levels = [item.level for item in errors]
    drawn: list[dict[str, Any]] = []
    for at, item in enumerate(errors):
        if item.median is None:
            continue
        ends = {"low": item.smallest, "high": item.largest}
        for series, y in ((_ESTIMATE, item.median), (_NOISE, item.noise)):
            if y is not None:
                row = {"x": at, "level": item.level, "series": series, "y": y}
                row |= {"label": words.number(float(f"{y:.3g}"))}
                drawn.append(row | (ends if series == _ESTIMATE else {"low": y, "high": y}))
    names = [name for name in (_ESTIMATE, _NOISE) if any(r["series"] == name for r in drawn)]
    up = [value for row in drawn for value in (row["low"], row["high"])]
    log = min(up) * _WIDE < max(up)
    axis = (
        Axis("standard error", min(up) / 1.5, max(up) * 1.5, log=True)
        if log
        else Axis("standard error", 0.0, theme.padded(0.0, max(up))[1])
    )
    step = 104 if len(levels) <= 7 else 84
    across = alt.X(
        "level:N",
        sort=levels,
        title=None,
        axis=alt.Axis(labelAngle=0, labelLimit=step, grid=False),
        scale=alt.Scale(domain=levels),
    )
    layers: list[alt.Chart] = []
    for number, name in enumerate(names):
        aside = (2 * number - 1) * _APART if len(names) > 1 else 0
        base = theme.values([row for row in drawn if row["series"] == name]).encode(
            x=across,
            y=alt.Y("y:Q", scale=axis.scale(up), axis=axis.axis(up, grid=True)),
            color=theme.colour(names),
        )
        if name == _ESTIMATE:
            layers.append(
                base.mark_rule(xOffset=aside, strokeWidth=2).encode(y="low:Q", y2="high:Q")
            )
        layers.append(
            base.mark_point(xOffset=aside, size=60, opacity=1).encode(shape=theme.shape(names))
        )
        right = aside > 0 or len(names) == 1
        layers.append(
            base.mark_text(
                align="left" if right else "right", dx=aside + (7 if right else -7), color=theme.INK
            ).encode(text="label:N", color=alt.value(theme.INK))
        )
    without = [
        {"level": item.level, "label": "exact" if item.exact == item.counts else "not determined"}
        for item in errors
        if item.median is None
    ]
    if without:
        base = theme.values(without).encode(x=across, y=alt.value(theme.HEIGHT - 10))
        layers.append(base.mark_text(color=theme.FAINT).encode(text="label:N"))
    layers += end_labels(drawn, names, axis, up, theme.HEIGHT, right=len(levels))
    return theme.layered(*layers).properties(
        width=max(140, step * len(levels)), height=theme.HEIGHT
    )


def _with_intervals(rows: Sequence[dict[str, Any]], what: str) -> alt.LayerChart:
    drawn = [{**row, "label": words.number(row["estimate"])} for row in rows]
    ends = [value for row in rows for value in (row["lower"], row["upper"])]
    low, high = theme.padded(min(ends), max(ends))
    base = theme.values(drawn).encode(
        y=alt.Y(
            "area:N",
            sort=[row["area"] for row in rows],
            title=None,
            axis=alt.Axis(ticks=False, domain=False, labelLimit=220, grid=True),
        )
    )
    scale = alt.Scale(domain=[low, high], nice=False, zero=False)
    axis = alt.Axis(grid=False, tickCount=5, format=",~r", labelOverlap="greedy")
    across = alt.X("lower:Q", title=theme.shortened(what), scale=scale, axis=axis)
    blue = theme.COLOURS[0]
    return theme.layered(
        base.mark_rule(color=blue, strokeWidth=2).encode(x=across, x2="upper:Q"),
        base.mark_tick(color=blue, thickness=2, height=10, opacity=1).encode(x="lower:Q"),
        base.mark_tick(color=blue, thickness=2, height=10, opacity=1).encode(x="upper:Q"),
        base.mark_point(color=blue, size=36, opacity=1).encode(x="estimate:Q"),
        base.mark_text(align="left", dx=9).encode(x=alt.value("width"), text="label:N"),
    ).properties(width=theme.WIDTH, height=alt.Step(_ROW))
