"""How released counts vary over many simulated releases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import altair as alt
import numpy as np
import pyarrow as pa

from countveil.base import words
from countveil.base.numerics import Array
from countveil.errors import InputError
from countveil.report.audience import Audience
from countveil.report.charts import chart_inputs, theme
from countveil.report.charts.chart import Chart, described

_SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
_NAMES = ("percentile_05", "percentile_25", "median", "percentile_75", "percentile_95")

Scale = Literal["linear", "symlog"]


def replicates(
    places: Sequence[str],
    released: Mapping[str, Array],
    *,
    true: Array | None = None,
    audience: Audience,
    measure: str = "count",
    scale: Scale = "linear",
) -> Chart:
    """Draw a box of many releases for each place, one panel per method, with a line for the truth.

    Parameters
    ----------
    places
        The names of the places, each once.
    released
        For each method, an array of places × releases.
    true
        The exact counts, if they are to be drawn.
    audience
        "internal", unless the exact counts and the data behind the releases are public.
    measure
        What the counts are called.
    scale
        The scale of the vertical axis.

    Returns
    -------
    Chart

    """
    names = [str(place) for place in chart_inputs.nonempty(places, "places")]
    by_method = chart_inputs.mapping(released, "released")
    methods = [str(name) for name in chart_inputs.nonempty(list(by_method), "released")]
    theme.refuse_too_many(methods, "released")
    if len(set(names)) < len(names):
        raise InputError("places: two have the same name; give each a name of its own")
    if audience not in ("public", "internal"):
        raise InputError(f"audience: got {audience!r}; choose 'public' or 'internal'")
    truth = None if true is None else chart_inputs.numbers(true, "true")
    if truth is not None and len(truth) != len(names):
        raise InputError(f"true: got {len(truth)} for {len(names)} places; pass one per place")
    rows: list[dict[str, Any]] = []
    for method, values in zip(methods, by_method.values(), strict=True):
        each = _matrix(values, len(names))
        quantiles = np.quantile(each, _SHARES, axis=1)
        for i, place in enumerate(names):
            row: dict[str, Any] = {"method": method, "place": place}
            row |= dict(zip(_NAMES, quantiles[:, i].tolist(), strict=True))
            rows.append(row | {"true": None if truth is None else float(truth[i])})
            rows[-1]["releases"] = each.shape[1]
    if truth is None:
        rows = [{k: v for k, v in row.items() if k != "true"} for row in rows]
    summary = [_summary(row) for row in rows[:3]]
    return described(
        "replicates",
        "Released counts over many simulated releases",
        _panels(rows, methods, names, measure, scale),
        alt_text=[
            f"Boxes of the released {measure} of each place, one panel per method.",
            *summary,
        ],
        caption=[
            "A box holds half of the releases, its whiskers nine in ten; the tick is the median.",
            "" if truth is None else "The black line is the truth.",
            *summary,
        ],
        table=pa.Table.from_pylist(rows),
        audience=audience,
    )


def _matrix(values: Array, places: int) -> Any:
    matrix = np.asarray(values)
    if matrix.dtype.kind not in "iuf" or matrix.ndim != 2 or matrix.shape[0] != places:
        raise InputError(
            f"released: got {matrix.dtype} of shape {matrix.shape} for {places} places; pass an "
            f"array of places × releases"
        )
    if matrix.shape[1] == 0 or not np.isfinite(matrix).all():
        raise InputError(
            "released: some are missing or infinite, or there are none; pass finite numbers"
        )
    return matrix


def _summary(row: dict[str, Any]) -> str:
    text = (
        f"{row['place']}, {row['method']}: half of {words.number(row['releases'])} releases are "
        f"between {words.brief(row['percentile_25'])} and {words.brief(row['percentile_75'])}"
    )
    return f"{text}; the truth is {words.number(row['true'])}." if "true" in row else f"{text}."


def _panels(
    rows: list[dict[str, Any]],
    methods: Sequence[str],
    places: Sequence[str],
    measure: str,
    scale: Scale,
) -> alt.HConcatChart:
    numbers = [row[name] for row in rows for name in (*_NAMES, "true") if name in row]
    low, high = theme.padded(min(numbers), max(numbers))
    wide = max(90, min(300, 24 * len(places), 660 // len(methods)))
    panels = []
    for number, method in enumerate(methods):
        across = alt.X(
            "place:N",
            sort=list(places),
            title=None,
            axis=alt.Axis(labelAngle=-45, labelLimit=90, labelOverlap="greedy"),
        )
        up = alt.Y(
            "percentile_05:Q",
            title=measure if number == 0 else None,
            scale=alt.Scale(type=scale, domain=[low, high], nice=False, zero=False),
            axis=alt.Axis(format=",~r", tickCount=6, labelOverlap="greedy"),
        )
        base = theme.values([row for row in rows if row["method"] == method]).encode(x=across)
        tone = theme.COLOURS[number]
        box = {"band": 0.6}
        layers: list[Any] = [
            base.mark_rule(color=tone).encode(y=up, y2="percentile_95:Q"),
            base.mark_bar(
                color=tone,
                fillOpacity=0.35,
                stroke=tone,
                strokeWidth=1.2,
                width=box,
                strokeDash=list(theme.DASHES[number]),
            ).encode(y="percentile_25:Q", y2="percentile_75:Q"),
            base.mark_tick(color=tone, thickness=2, width=box).encode(y="median:Q"),
        ]
        if "true" in rows[0]:
            layers += [
                base.mark_line(color="#000000", strokeWidth=1.3).encode(y="true:Q"),
                base.mark_point(color="#000000", size=16, opacity=1).encode(y="true:Q"),
            ]
        heading = alt.TitleParams(theme.shortened(method), fontSize=12, fontWeight="normal")
        panels.append(
            theme.layered(*layers).properties(width=wide, height=220).properties(title=heading)
        )
    return alt.hconcat(*panels, spacing=12)
