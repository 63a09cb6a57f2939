"""What an intruder believes after each possible released value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import numpy as np
import pyarrow as pa

from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.risk import Risk
from countveil.base import words
from countveil.base.numerics import Array, FloatArray
from countveil.errors import InputError
from countveil.report.charts import chart_inputs
from countveil.report.charts.chart import Chart, described
from countveil.report.charts.line_charts import Axis, line_chart


def posterior(observed: Sequence[int] | Array, risks: Mapping[Intruder, Risk]) -> Chart:
    """Draw posterior and risk against the released value, one line per intruder.

    Parameters
    ----------
    observed
        The released values to draw.
    risks
        For each intruder, what `assess.disclosure_risk` returns for all of `observed`.

    Returns
    -------
    Chart

    """
    releases = chart_inputs.numbers(observed, "observed")
    by_intruder = chart_inputs.by_intruder(risks, "risks")
    names = chart_inputs.names_of(by_intruder)
    order = np.argsort(releases, kind="stable")
    columns: dict[str, list[object]] = {
        name: [] for name in ("series", "prior", "released_value", "posterior", "risk")
    }
    for who, risk in by_intruder.items():
        after, ratio = _both(risk, len(releases))
        columns["series"] += [names[who]] * len(releases)
        columns["prior"] += [who.prior] * len(releases)
        columns["released_value"] += releases[order].tolist()
        columns["posterior"] += after[order].tolist()
        columns["risk"] += ratio[order].tolist()
    table = pa.table(columns)
    panels = [
        _panel(table, list(names.values()), column, axis, labels=column == "risk")
        for column, axis in (
            ("posterior", Axis("posterior probability", 0.0, 1.0, format=".0%")),
            ("risk", Axis("risk: posterior over prior", low=0.0)),
        )
    ]
    return described(
        "posterior",
        "What the intruder believes after each released value",
        alt.hconcat(*panels, spacing=36),
        alt_text=[
            "Two panels of lines against the released value: the posterior probability that the "
            "target is counted, and the risk, posterior over prior.",
            *(_range(table, name) for name in names.values()),
        ],
        caption=[
            "After seeing a released value, the intruder moves from their prior to the posterior; "
            "the risk is the posterior divided by the prior.",
            *(_largest(table, name) for name in names.values()),
        ],
        table=table,
        audience=chart_inputs.audience_of(by_intruder.values()),
    )


def _both(risk: Risk, length: int) -> tuple[FloatArray, FloatArray]:
    chart_inputs.of_kind(risk, Risk, "risks")
    if risk.measure != "disclosure risk" or risk.posterior is None:
        raise InputError(
            f"risks: got the measure {risk.measure!r}; pass what assess.disclosure_risk returns"
        )
    after, ratio = np.atleast_1d(risk.posterior), np.atleast_1d(risk.value)
    if len(after) != length:
        raise InputError(
            f"risks: got {len(after)} values for {length} released values; pass one per value"
        )
    return after, ratio


def _panel(
    table: pa.Table, names: list[str], column: str, axis: Axis, *, labels: bool
) -> alt.LayerChart:
    rows = [
        {"x": row["released_value"], "y": row[column], "series": row["series"]}
        for row in table.select(["series", "released_value", column]).to_pylist()
    ]
    across = Axis("released value", whole=_whole(table))
    return line_chart(rows, names, across, axis, width=270, height=240, labels=labels)


def _whole(table: pa.Table) -> bool:
    return all(float(value).is_integer() for value in table["released_value"].to_pylist())


def _of(table: pa.Table, name: str) -> list[dict[str, float]]:
    return [row for row in table.to_pylist() if row["series"] == name]


def _range(table: pa.Table, name: str) -> str:
    rows = _of(table, name)
    first, last = rows[0], rows[-1]
    if len(rows) == 1:
        return (
            f"With {name}, the value {words.number(first['released_value'])} leads to a posterior "
            f"of {words.brief_percent(first['posterior'])} and a risk of "
            f"{words.multiple(first['risk'])}."
        )
    return (
        f"With {name}, the posterior goes from {words.brief_percent(first['posterior'])} at "
        f"{words.number(first['released_value'])} to {words.brief_percent(last['posterior'])} at "
        f"{words.number(last['released_value'])}."
    )


def _largest(table: pa.Table, name: str) -> str:
    top = max(_of(table, name), key=lambda row: row["risk"])
    return (
        f"With {name}, the largest risk among these values is {words.multiple(top['risk'])}, at "
        f"{words.number(top['released_value'])}."
    )
