"""Risk by level: each level alone, and several levels together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pyarrow as pa

from countveil.assess.intruder.ladder import LevelRisk
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.risk import Risk
from countveil.base import words
from countveil.errors import InputError
from countveil.report.charts import chart_inputs, theme
from countveil.report.charts.chart import Chart, described
from countveil.report.charts.line_charts import Axis, end_labels


def risk_by_levels_known(levels: Sequence[str], risks: Mapping[Intruder, Sequence[Risk]]) -> Chart:
    """Draw marginal risk as the intruder sees more and more levels, the lowest first.

    Parameters
    ----------
    levels
        The levels, from the lowest up.
    risks
        For each intruder and each of `levels`, what `assess.hierarchy.marginal_risk` returns for that
        level and those before it.

    Returns
    -------
    Chart

    """
    names_of_levels = _names(levels)
    by_intruder = chart_inputs.by_intruder(risks, "risks")
    names = chart_inputs.names_of(by_intruder)
    posteriors = {
        who: chart_inputs.risks(item, len(names_of_levels), "risks", "marginal risk")
        for who, item in by_intruder.items()
    }
    rows: list[dict[str, Any]] = [
        {
            "series": names[who],
            "prior": who.prior,
            "levels_known": level if number == 0 else f"and {level}",
            "number_of_levels": number + 1,
            "marginal_risk": float(item.value),
            "error": item.error_bound if item.standard_error is None else item.standard_error,
        }
        for who, items in posteriors.items()
        for number, (level, item) in enumerate(zip(names_of_levels, items, strict=True))
    ]
    several = [
        f"With {name}, it goes from {words.multiple(own[0]['marginal_risk'])} to "
        f"{words.multiple(own[-1]['marginal_risk'])} when they see {own[-1]['number_of_levels']} "
        f"levels."
        if len(own) > 1
        else f"With {name}, it is {words.multiple(own[0]['marginal_risk'])}."
        for name in names.values()
        for own in [[row for row in rows if row["series"] == name]]
    ]
    return described(
        "risk-by-levels-known",
        "Marginal risk by the levels that the intruder sees",
        _dots(rows, list(names.values()), "levels_known", connected=True),
        alt_text=["Dots of marginal risk for each number of levels seen, lowest first.", *several],
        caption=[
            "From left to right, the intruder sees one more level, with the sums of siblings.",
            *several,
            "Vertical bars show the uncertainty of a value."
            if any(row["error"] for row in rows)
            else "",
        ],
        table=pa.Table.from_pylist(rows),
        audience=chart_inputs.audience_of(
            [risk for items in posteriors.values() for risk in items]
        ),
    )


def risk_by_level(risks: Sequence[LevelRisk], *, limit: float | None = None) -> Chart:
    """Draw the marginal risk if the intruder knows everyone else in a unit of each level.

    A level where exactly published counts give the answer has no dot if other levels have one, as it
    would dwarf them; the level is marked, and the table lists it.

    Parameters
    ----------
    risks
        What `assess.intruder.ladder.risk_by_level` returns for a plan.
    limit
        The largest risk that the plan accepts, if it states one.

    Returns
    -------
    Chart

    """
    rungs = [
        chart_inputs.of_kind(item, LevelRisk, "risks")
        for item in chart_inputs.nonempty(risks, "risks")
    ]
    rows: list[dict[str, Any]] = [
        {
            "series": f"prior {words.prior(item.prior)}",
            "prior": item.prior,
            "level": item.level,
            "marginal_risk": item.marginal_risk,
            "posterior": item.posterior,
            "correct_decision": item.correct_decision,
            "settled": item.settled,
            "attack": item.attack,
            "upper_bound": item.upper_bound,
        }
        for item in rungs
    ]
    names = list(dict.fromkeys(str(row["series"]) for row in rows))
    theme.refuse_too_many(names, "risks")
    exact_levels = list(dict.fromkeys(item.level for item in rungs if item.settled))
    answered = list(dict.fromkeys(item.about for item in rungs if item.settled))
    noisy = [row for row in rows if not row["settled"]]
    unsettled = [item for item in rungs if not item.settled]
    public = (
        f"Exactly published counts reveal {words.listed(answered)} at level "
        f"{words.listed(exact_levels)} with certainty."
        if exact_levels
        else ""
    )
    by = "from noisy counts " if exact_levels else ""
    summary = _largest(unsettled, by, limit) if unsettled else ""
    return described(
        "risk-by-level",
        "Marginal risk of each level",
        _dots(
            noisy or rows,
            names,
            "level",
            connected=False,
            exact_levels=exact_levels if noisy else [],
        ),
        alt_text=["Dots of marginal risk for each level, one for each prior.", summary, public],
        caption=[
            "At each level, the intruder knows everyone else in the place and sees the whole "
            "release.",
            summary,
            public,
        ],
        table=pa.Table.from_pylist(rows),
    )


def _largest(rungs: Sequence[LevelRisk], by: str, limit: float | None) -> str:
    worst = max(rungs, key=lambda item: item.marginal_risk)
    return (
        f"The largest risk {by}is {worst.times(limit=limit)}, at level {worst.level} with prior "
        f"{words.prior(worst.prior)}, about {worst.about}: the posterior is {worst.reached} on average."
    )


def _names(levels: Sequence[str]) -> list[str]:
    names = [str(level) for level in chart_inputs.nonempty(levels, "levels")]
    if len(set(names)) < len(names):
        raise InputError("levels: two have the same name; pass each once")
    return names


def _dots(
    rows: Sequence[dict[str, Any]],
    names: Sequence[str],
    place: str,
    *,
    connected: bool,
    exact_levels: Sequence[str] = (),
) -> alt.LayerChart:
    """Draw a dot for each row above the name of its level, with series labelled on the right.

    Levels in `settled` come first and are marked as revealed.
    """
    places = list(dict.fromkeys([*exact_levels, *(row[place] for row in rows)]))
    drawn = [
        {
            "x": places.index(row[place]),
            "place": row[place],
            "y": row["marginal_risk"],
            "series": row["series"],
            "low": row["marginal_risk"] - (row.get("error") or 0.0),
            "high": row["marginal_risk"] + (row.get("error") or 0.0),
        }
        for row in rows
    ]
    up = [value for row in drawn for value in (row["low"], row["high"])]
    axis = Axis("marginal risk", min(1.0, *up), theme.padded(1.0, max(*up, 1.0))[1])
    step = 88 if len(places) <= 6 else 60
    across = alt.X(
        "place:N",
        sort=places,
        title=None,
        axis=alt.Axis(labelAngle=0 if step == 88 else -35, labelLimit=150, grid=False),
        scale=alt.Scale(domain=places),
    )
    base = theme.values(drawn).encode(
        x=across,
        y=alt.Y("y:Q", scale=axis.scale(up), axis=axis.axis(up, grid=True)),
        color=theme.colour(names),
    )
    layers: list[alt.Chart] = []
    if connected:
        layers.append(base.mark_line().encode(strokeDash=theme.dash(names)))
    if any(row["low"] < row["high"] for row in drawn):
        layers.append(base.mark_rule().encode(y="low:Q", y2="high:Q"))
    layers.append(base.mark_point(size=60, opacity=1).encode(shape=theme.shape(names)))
    layers += end_labels(drawn, names, axis, up, theme.HEIGHT, right=len(places))
    if exact_levels:
        mark = theme.values([{"place": name, "label": "revealed"} for name in exact_levels])
        layers.append(
            mark.mark_text(baseline="top", color=theme.FAINT).encode(
                x=across, y=alt.value(4), text="label:N"
            )
        )
    width = max(140, step * len(places))
    return theme.layered(*layers).properties(width=width, height=theme.HEIGHT)
