"""Empirical privacy loss along the residuals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from countveil.assess.empirical_loss.smoothed_density import EmpiricalLoss
from countveil.base import words
from countveil.errors import InputError
from countveil.report.audience import Audience
from countveil.report.charts import chart_inputs, theme
from countveil.report.charts.chart import Chart, described
from countveil.report.charts.line_charts import Axis, level_rule, line_chart

_MOST_POINTS = 300  # of one line, always including the largest loss


def loss_of_residuals(
    losses: Mapping[str, EmpiricalLoss],
    *,
    epsilon: float | None = None,
    audience: Audience = "internal",
) -> Chart:
    """Draw the log-ratio of the density of residuals along them, one line per name.

    Parameters
    ----------
    losses
        The empirical loss of each group of residuals, by name.
    epsilon
        If given, a horizontal line to compare with.
    audience
        "internal", unless the records are public: residuals are released minus exact counts.

    Returns
    -------
    Chart

    """
    by_name = chart_inputs.mapping(losses, "losses")
    if audience not in ("public", "internal"):
        raise InputError(f"audience: got {audience!r}; choose 'public' or 'internal'")
    names = [str(name) for name in chart_inputs.nonempty(list(by_name), "losses")]
    theme.refuse_too_many(names, "losses")
    rows: list[dict[str, Any]] = []
    for name, loss in zip(names, by_name.values(), strict=True):
        rows += _rows(name, chart_inputs.of_kind(loss, EmpiricalLoss, "losses"))
    if epsilon is not None:
        rows = [{**row, "epsilon": float(epsilon)} for row in rows]
    drawn = [{"x": row["residual"], "y": row["loss"], "series": row["series"]} for row in rows]
    finite = [row["y"] for row in drawn if row["y"] is not None]
    if not finite:
        raise InputError("losses: none is finite; use a larger bandwidth")
    ends = (*finite, *(() if epsilon is None else (epsilon,)))
    up = Axis("log-ratio of densities", *theme.padded(min(ends), max(ends)))
    across = Axis("residual: released minus exact")
    layers: list[Any] = [line_chart(drawn, names, across, up)]
    tops = [row for row in rows if row["largest"] and row["loss"] is not None]
    layers.append(
        theme.values([{"x": row["residual"], "y": row["loss"]} for row in tops])
        .mark_point(size=130, filled=False, color=theme.INK, strokeWidth=1.5)
        .encode(x="x:Q", y="y:Q")
    )
    if epsilon is not None:
        left = min(row["x"] for row in drawn)
        layers += level_rule(epsilon, f"epsilon {epsilon:g}", left=left)
    summary = [_summary(name, loss) for name, loss in zip(names, by_name.values(), strict=True)]
    return described(
        "empirical-loss",
        "Empirical privacy loss",
        theme.layered(*layers).properties(width=theme.WIDTH, height=theme.HEIGHT),
        alt_text=[
            "Lines of the log-ratio of the smoothed density of residuals, one step apart.",
            *summary,
        ],
        caption=[
            *summary,
            "A ring marks the largest ratio. The estimate is neither an upper nor a lower bound "
            "of the loss.",
            "" if epsilon is None else f"The dashed line is epsilon {words.number(epsilon)}.",
        ],
        table=pa.Table.from_pylist(rows),
        audience=audience,
    )


def _rows(name: str, loss: EmpiricalLoss) -> list[dict[str, Any]]:
    curve = loss.curve
    x, values = np.asarray(curve["x"]), np.asarray(curve["loss"])
    top = int(np.argmax(np.abs(values)))
    every = -(-len(x) // _MOST_POINTS)
    places = sorted({*range(0, len(x), every), top})
    return [
        {
            "series": name,
            "residual": float(x[i]),
            "loss": float(values[i]) if np.isfinite(values[i]) else None,
            "size_of_loss": float(abs(values[i])),
            "largest": i == top,
            "residuals": loss.residuals,
            "bandwidth": loss.bandwidth,
        }
        for i in places
    ]


def _summary(name: str, loss: EmpiricalLoss) -> str:
    if not np.isfinite(loss.value):
        return f"{name}: the density is zero somewhere in the range, so the loss has no limit."
    return (
        f"{name}: the loss is {words.brief(loss.value)}, at residual {words.number(loss.at)}, from "
        f"{words.number(loss.residuals)} residuals with bandwidth {words.number(loss.bandwidth)}."
    )
