"""INTERNAL: the homogeneity attack against epsilon, and against the loss of accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pyarrow as pa

from countveil.base import words
from countveil.errors import InputError
from countveil.report.charts import chart_inputs, theme
from countveil.report.charts.chart import Chart, described
from countveil.report.charts.line_charts import Axis, line_chart


def homogeneity_by_epsilon(
    epsilons: Sequence[float], curve: pa.Table, *, weighted: bool = False
) -> Chart:
    """Draw homogeneity risk against epsilon, one line per measure. Internal.

    Parameters
    ----------
    epsilons
        The epsilon of each mechanism.
    curve
        What `assess.homogeneity.curve` returns for these mechanisms.
    weighted
        Whether to weight cells by their people.

    Returns
    -------
    Chart

    """
    across = chart_inputs.numbers(epsilons, "epsilons", above_zero=True)
    table = _filled(curve, "curve")
    if table.num_rows != len(across):
        raise InputError(
            f"curve: got {table.num_rows} rows for {len(across)} epsilons; pass one per epsilon"
        )
    measures = _measures(table, weighted)
    theme.refuse_too_many(measures, "curve")
    order = np.argsort(across, kind="stable")
    rows = [
        {
            "series": _shown(measure),
            "epsilon": float(across[i]),
            "risk": float(table[measure][int(i)].as_py()),
        }
        for measure in measures
        for i in order
    ]
    drawn = [{"x": row["epsilon"], "y": row["risk"], "series": row["series"]} for row in rows]
    names = [_shown(measure) for measure in measures]
    plot = line_chart(
        drawn,
        names,
        Axis("epsilon", log=True),
        Axis("homogeneity risk", 0.0, _top(drawn), format="~%"),
    )
    summary = []
    for name in names:
        own = [row for row in rows if row["series"] == name]
        first, last = own[0], own[-1]
        summary.append(
            f"{name}: {words.brief_percent(_risk(first))} at epsilon "
            f"{words.number(_epsilon(first))}"
            + (
                f", {words.brief_percent(_risk(last))} at {words.number(_epsilon(last))}."
                if len(own) > 1
                else "."
            )
        )
    return described(
        "homogeneity-by-epsilon",
        "Homogeneity risk against epsilon",
        plot,
        alt_text=["Lines of homogeneity risk against epsilon, one per measure.", *summary],
        caption=[
            "The risk is how often a noisy cell shows a single value that someone in it has, with "
            "cells " + ("weighted by their people." if weighted else "weighted equally."),
            *summary,
        ],
        table=pa.Table.from_pylist(rows),
        audience="internal",
    )


def frontier(
    frontiers: pa.Table, *, risk: str = "local_weighted", distance: str | None = None
) -> Chart:
    """Draw homogeneity risk against the distance of noisy marginals. Internal.

    Each point is an epsilon; there is one line per delta.

    Parameters
    ----------
    frontiers
        What `assess.homogeneity.frontier` returns.
    risk, distance
        The columns to draw.

    Returns
    -------
    Chart

    """
    table = _filled(frontiers, "frontiers")
    ways = [name for name in table.column_names if _is_distance(name)]
    distance = ways[-1] if distance is None and ways else distance
    for name in ("epsilon", "delta", risk, distance):
        if name is None or name not in table.column_names:
            raise InputError(
                f"frontiers: column {name!r} is missing; choose risk and distance from "
                f"{', '.join(table.column_names)}"
            )
    assert distance is not None
    rows = [
        {
            "series": "noise" if row["delta"] is None else f"delta {row['delta']:g}",
            "epsilon": row["epsilon"],
            "delta": row["delta"],
            "distance": row[distance],
            "risk": row[risk],
        }
        for row in table.to_pylist()
    ]
    rows.sort(key=lambda row: (row["series"], -row["epsilon"]))
    names = list(dict.fromkeys(str(row["series"]) for row in rows))
    theme.refuse_too_many(names, "frontiers")
    drawn = [
        {**row, "x": row["distance"], "y": row["risk"], "label": f"epsilon {row['epsilon']:.3g}"}
        for row in rows
    ]
    far = max(row["x"] for row in drawn)
    across = Axis(f"{_way(distance)} distance of noisy shares from exact ones", 0.0, far or 1.0)
    # Distance does not always fall with epsilon, so points are joined in the order of epsilon.
    plot = _path(drawn, names, across, Axis(f"{_shown(risk)} risk", 0.0, _top(drawn), format="~%"))
    first = [row for row in rows if row["series"] == names[0]]
    summary = words.sentences(
        *(
            f"At epsilon {words.number(float(row['epsilon']))} the risk is "
            f"{words.brief_percent(float(row['risk']))} and the distance "
            f"{words.brief(float(row['distance']))}."
            for row in ([first[0], first[-1]] if len(first) > 1 else first)
        )
    )
    return described(
        "frontier",
        "Risk against loss of accuracy",
        plot,
        alt_text=["Points of homogeneity risk against the distance of noisy marginals.", summary],
        caption=[
            "Lower is safer, further left is more useful; each point is one epsilon.",
            summary,
        ],
        table=pa.Table.from_pylist(rows),
        audience="internal",
    )


def _path(
    rows: Sequence[dict[str, Any]], names: Sequence[str], across: Axis, up: Axis
) -> alt.LayerChart:
    xs, ys = [row["x"] for row in rows], [row["y"] for row in rows]
    base = theme.values(rows).encode(
        x=alt.X("x:Q", scale=across.scale(xs), axis=across.axis(xs, grid=False)),
        y=alt.Y("y:Q", scale=up.scale(ys), axis=up.axis(ys, grid=True)),
        color=theme.colour(names),
    )
    labelled = [row for row in rows if row["series"] == names[0]]
    last = [next(row for row in reversed(rows) if row["series"] == name) for name in names]
    near, far = (pick(labelled, key=lambda row: row["x"])["y"] for pick in (min, max))
    top = up.ends(ys)[1]
    offset = -0.05 if far > near else 0.035  # on the side away from the line
    labelled = [{**row, "at": max(row["y"] + offset * top, 0.035 * top)} for row in labelled]
    layers: list[Any] = [
        base.mark_line().encode(strokeDash=theme.dash(names), order="epsilon:Q"),
        base.mark_point(opacity=1).encode(shape=theme.shape(names)),
        theme.values(_with_room(labelled, across.ends(xs)[1], top))
        .mark_text(align="left", dx=7, fontSize=11, color=theme.FAINT)
        .encode(x="x:Q", y="at:Q", text="label:N"),
    ]
    if len(names) > 1:
        layers.append(
            theme.values(last)
            .mark_text(align="left", dx=8, dy=9)
            .encode(x="x:Q", y="y:Q", text="series:N")
        )
    return theme.layered(*layers).properties(width=theme.WIDTH, height=theme.HEIGHT)


def _with_room(rows: Sequence[dict[str, Any]], far: float, top: float) -> list[dict[str, Any]]:
    """Return the rows whose labels do not overlap."""
    roomy: list[dict[str, Any]] = []
    for row in rows:
        apart = [
            abs(row["at"] - other["at"]) / top * theme.HEIGHT >= 15
            or abs(row["x"] - other["x"]) / far * theme.WIDTH >= 75
            for other in roomy
        ]
        if all(apart):
            roomy.append(row)
    return roomy


def _filled(table: Any, what: str) -> pa.Table:
    rows = chart_inputs.of_kind(table, pa.Table, what)
    if not rows.num_rows:
        raise InputError(f"{what}: the table has no rows; pass one that has some")
    return rows


def _top(rows: Sequence[dict[str, Any]]) -> float:
    return theme.padded(0.0, max(row["y"] for row in rows) or 1.0)[1]


def _way(name: str) -> str:
    return name.removeprefix("distance_").replace("_", "-")


def _is_distance(name: str) -> bool:
    return name.startswith("distance_") and not name.endswith("_error")


def _measures(table: pa.Table, weighted: bool) -> list[str]:
    names = [name for name in table.column_names if name != "mechanism"]
    measures = [name for name in names if name.endswith("_weighted") == weighted]
    if not measures:
        raise InputError(
            "curve: the table has no measure; pass what assess.homogeneity.curve returns"
        )
    return measures


def _shown(name: str) -> str:
    return name.replace("_", " ").replace(" weighted", ", weighted")


def _risk(row: dict[str, Any]) -> float:
    return float(row["risk"])


def _epsilon(row: dict[str, Any]) -> float:
    return float(row["epsilon"])
