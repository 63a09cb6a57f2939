"""Which released values make the intruder decide that the target is counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import altair as alt
import numpy as np
import pyarrow as pa

from countveil.assess.intruder.decision import EVEN, Losses, decide
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.risk import Risk
from countveil.base import words
from countveil.base.numerics import Array, FloatArray
from countveil.errors import InputError
from countveil.report.audience import Audience
from countveil.report.charts import chart_inputs, theme
from countveil.report.charts.chart import Chart, described

_WORDS = {1.0: "there", 0.0: "not there", 0.5: "undecided"}
_COLOURS = {"not there": "#d9d9d9", "undecided": "#e69f00", "there": "#0072b2"}
_TEXT = {"not there": theme.INK, "undecided": theme.INK, "there": "#ffffff"}
_MOST_ROWS = 60
_ROOM = 12  # values that a label needs


def decision_map(
    observed: Sequence[int] | Array,
    posteriors: Mapping[Intruder, Risk],
    *,
    losses: Losses = EVEN,
) -> Chart:
    """Draw which released values lead to which decision, one row per intruder.

    Parameters
    ----------
    observed
        The released values to draw.
    posteriors
        For each intruder, what `assess.posterior` returns for all of `observed`.
    losses
        The losses by which they decide.

    Returns
    -------
    Chart

    """
    by_intruder = chart_inputs.by_intruder(posteriors, "posteriors")
    names = chart_inputs.names_of(by_intruder)
    rows = {names[who]: _values(risk, "posteriors") for who, risk in by_intruder.items()}
    return _map(
        "decision-map",
        "What the intruder decides after each released value",
        observed,
        rows,
        losses,
        heading=None,
        about="Each row is one prior.",
        rows_of=("With", "prior", [who.prior for who in by_intruder]),
        audience=chart_inputs.audience_of(by_intruder.values()),
    )


def decision_map_two_levels(
    observed: Sequence[int] | Array,
    posteriors: Mapping[int, Sequence[Risk]],
    *,
    losses: Losses = EVEN,
) -> Chart:
    """Draw the decision by the released value of a unit, one row per released value of its parent.

    Parameters
    ----------
    observed
        The released values of the unit.
    posteriors
        For each released value of the parent, what `assess.hierarchy.posterior` returns for each of
        `observed`.
    losses
        The losses by which the intruder decides.

    Returns
    -------
    Chart

    """
    by_parent = chart_inputs.mapping(posteriors, "posteriors")
    decisions = {
        key: chart_inputs.nonempty(value, "posteriors")
        for key, value in sorted(by_parent.items(), reverse=True)
    }
    each = [risk for items in decisions.values() for risk in items]
    rows = {
        f"{key:,}": np.array(
            [float(chart_inputs.of_kind(risk, Risk, "posteriors").value) for risk in items]
        )
        for key, items in decisions.items()
    }
    return _map(
        "decision-map-two-levels",
        "What the intruder decides, seeing two levels",
        observed,
        rows,
        losses,
        heading="released value of the parent",
        about="Each row is one released value of the parent.",
        rows_of=("Where the parent reads", "parent_value", list(decisions)),
        audience=chart_inputs.audience_of(each),
    )


def _values(risk: Risk, what: str) -> FloatArray:
    answer = chart_inputs.of_kind(risk, Risk, what)
    if answer.posterior is None:
        raise InputError(
            f"{what}: got the measure {answer.measure!r}; pass what assess.posterior returns"
        )
    return np.atleast_1d(answer.posterior)


def _map(
    name: str,
    title: str,
    observed: Sequence[int] | Array,
    rows: dict[str, FloatArray],
    losses: Losses,
    *,
    heading: str | None,
    about: str,
    rows_of: tuple[str, str, list[float]],
    audience: Audience,
) -> Chart:
    releases = chart_inputs.numbers(observed, "observed")
    if not rows or len(rows) > _MOST_ROWS:
        raise InputError(f"posteriors: got {len(rows)} rows; pass between 1 and {_MOST_ROWS}")
    opening, column, numbers = rows_of
    runs = [
        {**run, column: number}
        for (row, after), number in zip(rows.items(), numbers, strict=True)
        for run in _runs(row, releases, after, losses)
    ]
    drawn = [
        {
            **run,
            "from": run["first_value"] - 0.5,
            "to": run["last_value"] + 0.5,
            "word": f"{run['decision']}" if run["decision"] != "undecided" else "",
        }
        for run in runs
    ]
    across = alt.X(
        "from:Q",
        title="released value",
        scale=alt.Scale(
            domain=[releases.min() - 0.5, releases.max() + 0.5], nice=False, zero=False
        ),
        axis=alt.Axis(grid=False, format=",~r", tickMinStep=1, labelOverlap="greedy"),
    )
    down = alt.Y(
        "row:N",
        sort=list(rows),
        title=heading,
        axis=alt.Axis(domain=False, ticks=False, labelOverlap="greedy"),
        scale=alt.Scale(paddingInner=0.12 if len(rows) <= 12 else 0.0),
    )
    kinds = list(_COLOURS)
    base = theme.values(drawn)
    bars = base.mark_bar(stroke="#ffffff", strokeWidth=0.5).encode(
        x=across,
        x2="to:Q",
        y=down,
        color=alt.Color(
            "decision:N",
            scale=alt.Scale(domain=kinds, range=list(_COLOURS.values())),
            legend=None,
        ),
    )
    labels = _labels([run for run in drawn if run["word"]], len(releases))
    text = (
        theme.values(labels)
        .mark_text(baseline="middle", fontSize=11)
        .encode(
            x="middle:Q",
            y=alt.Y("row:N", sort=list(rows)),
            text="word:N",
            color=alt.Color(
                "decision:N",
                scale=alt.Scale(domain=kinds, range=[_TEXT[kind] for kind in kinds]),
                legend=None,
            ),
        )
    )
    plot = theme.layered(bars, text).resolve_scale(color="independent")
    step = 26 if len(rows) <= 12 else 10
    plot = plot.properties(width=theme.WIDTH, height=alt.Step(step))
    table = pa.Table.from_pylist(runs)
    starts = _starts(runs, opening)
    return described(
        name,
        title,
        plot,
        alt_text=[
            f"Rows of bars along the released value, dark where the intruder decides that the "
            f"target is there, light where they decide that it is not. {about}",
            *starts,
        ],
        caption=[
            "The intruder decides for the smaller expected loss; if both are equal, they are "
            "undecided.",
            *starts,
        ],
        table=table,
        audience=audience,
    )


def _runs(
    row: str, releases: FloatArray, after: FloatArray, losses: Losses
) -> list[dict[str, Any]]:
    """Return runs of released values with the same decision."""
    if len(after) != len(releases):
        raise InputError(
            f"posteriors: got {len(after)} values for {len(releases)} released values; pass one per "
            f"value"
        )
    order = np.argsort(releases, kind="stable")
    points = [(float(releases[i]), _WORDS[decide(float(after[i]), losses=losses)]) for i in order]
    runs = []
    for decision, group in groupby(points, key=lambda point: point[1]):
        values = [value for value, _ in group]
        runs.append(
            {"row": row, "decision": decision, "first_value": values[0], "last_value": values[-1]}
        )
    return runs


def _labels(runs: list[dict[str, Any]], values: int) -> list[dict[str, Any]]:
    """Place one label per decision, in its longest run, if there is room."""
    labels = []
    for decision in dict.fromkeys(run["decision"] for run in runs):
        longest = max(
            (run for run in runs if run["decision"] == decision),
            key=lambda run: run["to"] - run["from"],
        )
        if longest["to"] - longest["from"] >= values * _ROOM / 60:
            labels.append({**longest, "middle": (longest["from"] + longest["to"]) / 2})
    return labels


def _starts(runs: list[dict[str, Any]], opening: str) -> list[str]:
    """Say from which value on the intruder decides "there", for a few rows."""
    rows = list(dict.fromkeys(run["row"] for run in runs))
    some = rows if len(rows) <= 6 else [rows[0], rows[len(rows) // 2], rows[-1]]
    starts = []
    for row in some:
        own = [run for run in runs if run["row"] == row]
        yes = [run for run in own if run["decision"] == "there"]
        if yes:
            starts.append(
                f"{opening} {row}, they decide there from {words.number(yes[0]['first_value'])} on."
            )
        else:
            starts.append(f"{opening} {row}, they never decide there among these values.")
    return starts
