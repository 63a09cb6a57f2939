"""Risk and decisions against rho, with the corresponding epsilon along the top."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import altair as alt
import pyarrow as pa

from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.intruder.whole_release import about
from countveil.assess.risk import Risk
from countveil.base import words
from countveil.base.numerics import Exact, exact
from countveil.errors import InputError
from countveil.privacy.costs import ZCDP
from countveil.report.charts import chart_inputs, theme
from countveil.report.charts.chart import Chart, described
from countveil.report.charts.line_charts import Axis, level_rule, line_chart, upright

_LABELS = 6  # along the top


def risk_by_rho(
    rhos: Sequence[Exact],
    risks: Mapping[Intruder, Sequence[Risk]],
    *,
    chosen: Exact | None = None,
    delta: Exact | None = None,
    limit: float | None = None,
) -> Chart:
    """Draw marginal risk against rho, one line per intruder.

    Parameters
    ----------
    rhos
        The budgets to draw.
    risks
        For each intruder, one marginal risk per budget.
    chosen
        The budget to mark, one of `rhos`.
    delta
        If given, the top of the chart shows the epsilon of each rho at this delta.
    limit
        If given, a horizontal line at the largest risk that the plan accepts.

    Returns
    -------
    Chart

    """
    swept = _swept(rhos, risks, "marginal risk", chosen, delta)
    most = max([*swept.table["marginal_risk"].to_pylist(), limit or 1.0])
    axis = Axis("marginal risk: posterior over prior, on average", 1.0, theme.padded(1.0, most)[1])
    if most == 1.0:
        axis = Axis(axis.title, 1.0, 2.0)
    plot = _drawn(swept, axis, limit)
    return described(
        "risk-by-rho",
        "Marginal risk against rho",
        plot,
        alt_text=[
            "Lines of marginal risk against rho on a logarithmic axis, one for each prior.",
            *swept.ends("marginal risk", partial(words.multiple, limit=limit)),
        ],
        caption=[
            f"Marginal risk is the intruder's expected posterior divided by their prior, "
            f"{swept.subject}; it is 1 if they learn nothing.",
            *swept.chosen_sentences("the marginal risk", partial(words.multiple, limit=limit)),
            ""
            if limit is None
            else f"The dashed horizontal line is the limit, {words.number(limit)}.",
        ],
        table=swept.table if limit is None else _with(swept.table, "limit", limit),
        audience=swept.audience,
    )


def decision_by_rho(
    rhos: Sequence[Exact],
    risks: Mapping[Intruder, Sequence[Risk]],
    *,
    chosen: Exact | None = None,
    delta: Exact | None = None,
) -> Chart:
    """Draw the probability of a correct decision against rho, one line per intruder.

    Parameters
    ----------
    rhos
        The budgets to draw.
    risks
        For each intruder, what `assess.correct_decision` returns for each budget.
    chosen
        The budget to mark, one of `rhos`.
    delta
        If given, the top of the chart shows the epsilon of each rho at this delta.

    Returns
    -------
    Chart

    """
    swept = _swept(rhos, risks, "correct decision", chosen, delta)
    axis = Axis("probability of a correct decision", 0.0, 1.0, format=".0%")
    return described(
        "decision-by-rho",
        "How often the intruder decides correctly, against rho",
        _drawn(swept, axis, None),
        alt_text=[
            "Lines of the probability of a correct decision against rho on a logarithmic axis, one "
            "for each prior.",
            *swept.ends("probability", words.brief_percent),
        ],
        caption=[
            f"The intruder picks the answer with the smaller expected loss. The line is how often "
            f"it is right, {swept.subject}.",
            *swept.chosen_sentences("that probability", words.brief_percent),
        ],
        table=swept.table,
        audience=swept.audience,
    )


def risk_and_error(
    rhos: Sequence[Exact],
    risks: Mapping[Intruder, Sequence[Risk]],
    errors: Sequence[float],
    *,
    chosen: Exact | None = None,
) -> Chart:
    """Draw marginal risk against the error of a count, one point per rho.

    Parameters
    ----------
    rhos
        The budgets to draw.
    risks
        For each intruder, one marginal risk per budget.
    errors
        The standard error of a count for each budget.
    chosen
        The budget to describe in the caption, one of `rhos`.

    Returns
    -------
    Chart

    """
    swept = _swept(rhos, risks, "marginal risk", chosen, None)
    error = chart_inputs.numbers(errors, "errors", above_zero=True)
    if len(error) != len(swept.rhos):
        raise InputError(f"errors: got {len(error)} for {len(swept.rhos)} rhos; pass one per rho")
    by_rho = [float(error[i]) for i in swept.order]
    table = swept.table.append_column("error", [by_rho * len(swept.names)])
    rows = [
        {"x": row["error"], "y": row["marginal_risk"], "series": row["series"], "rho": row["rho"]}
        for row in table.to_pylist()
    ]
    up = [row["y"] for row in rows]
    top = theme.padded(1.0, max(up))[1] if max(up) > 1 else 2.0
    ordered = [row for name in swept.names for row in reversed(rows) if row["series"] == name]
    across = Axis("standard error of a count", log=True)
    plot = line_chart(ordered, swept.names, across, Axis("marginal risk", 1.0, top))
    labels = theme.values(
        _some_rhos([row for row in ordered if row["series"] == _highest(ordered)])
    )
    plot = theme.layered(
        plot,
        labels.mark_text(align="left", dx=6, dy=-7, fontSize=11, color=theme.FAINT).encode(
            x="x:Q", y="y:Q", text="label:N"
        ),
    ).properties(width=theme.WIDTH, height=theme.HEIGHT)
    first = swept.names[0]
    ends = [row for row in table.to_pylist() if row["series"] == first]
    low, high = min(ends, key=lambda r: r["rho"]), max(ends, key=lambda r: r["rho"])
    return described(
        "risk-and-error",
        "Risk against error",
        plot,
        alt_text=[
            "Lines of marginal risk against the standard error of a count, one for each prior; "
            "less error means more risk.",
            f"With {first}, rho {words.number(low['rho'])} has an error of "
            f"{words.brief(low['error'])} and a risk of {swept.shown(low, words.multiple)}; "
            f"rho {words.number(high['rho'])} has an error of {words.brief(high['error'])} and a "
            f"risk of {swept.shown(high, words.multiple)}.",
        ],
        caption=[
            "Each point is one rho. Lower is safer, further left is more accurate.",
            *swept.chosen_sentences("the marginal risk", words.multiple),
        ],
        table=table,
        audience=swept.audience,
    )


def _some_rhos(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows that have room for a label with their rho."""
    some: list[dict[str, Any]] = []
    widest = max(row["x"] for row in rows) / min(row["x"] for row in rows)
    for row in rows:
        if not some or row["x"] / some[-1]["x"] >= widest**0.17:
            some.append({**row, "label": f"rho {row['rho']:.3g}"})
    return some if widest == 1 else [r for r in some if r["x"] < rows[-1]["x"] / widest**0.12]


def _highest(rows: Sequence[dict[str, Any]]) -> str:
    return str(max(rows, key=lambda row: row["y"])["series"])


@dataclass(frozen=True, slots=True, eq=False)
class _Swept:
    """The result at each rho for each intruder."""

    rhos: list[float]
    names: list[str]
    table: pa.Table
    order: list[int]
    column: str
    chosen: float | None
    audience: Any

    @property
    def subject(self) -> str:
        """What the risks are about: one attack, or the one that reveals most at each rho."""
        if "attack" not in self.table.column_names:
            return "if the target is counted"
        attacks = list(dict.fromkeys(map(about, self.table["attack"].to_pylist())))
        if attacks == ["presence"]:
            return "if the target is counted"
        which = attacks[0] if len(attacks) == 1 else f"{words.listed(attacks)}, as the table lists"
        return f"for the attack that reveals most ({which}), if what they suspect is true"

    def rows(self, name: str) -> list[dict[str, Any]]:
        return [row for row in self.table.to_pylist() if row["series"] == name]

    def shown(self, row: dict[str, Any], describe: Any) -> str:
        """Return the figure of a row, as a bound if it is one."""
        return words.at_most(describe(row[self.column]), bool(row.get("upper_bound")))

    def ends(self, what: str, describe: Any) -> list[str]:
        """Say where each line starts and ends."""
        sentences = []
        for name in self.names:
            first, last = self.rows(name)[0], self.rows(name)[-1]
            if first is last or first["rho"] == last["rho"]:
                text = f"With {name}, {what} {self.shown(first, describe)} at rho {_rho(first)}."
            else:
                text = (
                    f"With {name}, {what} {self.shown(first, describe)} at rho {_rho(first)} and "
                    f"{self.shown(last, describe)} at rho {_rho(last)}."
                )
            sentences.append(text)
        return sentences

    def chosen_sentences(self, what: str, describe: Any) -> list[str]:
        """Say what the result is at the chosen rho."""
        if self.chosen is None:
            return []
        at = [row for row in self.table.to_pylist() if row["rho"] == self.chosen]
        items = words.listed([f"{self.shown(row, describe)} with {row['series']}" for row in at])
        text = f"At the chosen rho {words.number(self.chosen)}"
        if "epsilon" in at[0]:
            text += f", epsilon {words.upwards(at[0]['epsilon'])} with delta {at[0]['delta']:g}"
        return [f"{text}, {what} is {items}."]


def _with(table: pa.Table, name: str, value: float) -> pa.Table:
    return table.append_column(name, [[float(value)] * table.num_rows])


def _rho(row: dict[str, Any]) -> str:
    return words.number(float(row["rho"]))


def _swept(
    rhos: Sequence[Exact],
    risks: Mapping[Intruder, Sequence[Risk]],
    measure: str,
    chosen: Exact | None,
    delta: Exact | None,
) -> _Swept:
    costs = [ZCDP(exact(rho, "rhos")) for rho in chart_inputs.nonempty(rhos, "rhos")]
    values = chart_inputs.numbers(
        [float(cost.rho) for cost in costs], "rhos", above_zero=True
    ).tolist()
    by_intruder = chart_inputs.by_intruder(risks, "risks")
    names = chart_inputs.names_of(by_intruder)
    order = sorted(range(len(values)), key=lambda i: values[i])
    risk_lists = {
        who: chart_inputs.risks(item, len(values), "risks", measure)
        for who, item in by_intruder.items()
    }
    own = None if chosen is None else float(exact(chosen, "chosen"))
    if own is not None and own not in values:
        raise InputError(f"chosen: rho {own:g} is not one of rhos; add it to `rhos` and `risks`")
    column = measure.replace(" ", "_").replace("correct_decision", "probability")
    columns: dict[str, list[Any]] = {"series": [], "prior": [], "rho": [], column: []}
    for who, items in risk_lists.items():
        columns["series"] += [names[who]] * len(values)
        columns["prior"] += [who.prior] * len(values)
        columns["rho"] += [values[i] for i in order]
        columns[column] += [float(items[i].value) for i in order]
    if any(item.attack for items in risk_lists.values() for item in items):
        columns["attack"] = [
            items[i].attack or "presence" for items in risk_lists.values() for i in order
        ]
    if any(item.upper_bound for items in risk_lists.values() for item in items):
        columns["upper_bound"] = [
            items[i].upper_bound for items in risk_lists.values() for i in order
        ]
    if delta is not None:
        epsilons = [costs[i].epsilon(delta) for i in order]
        columns["epsilon"] = epsilons * len(risk_lists)
        columns["delta"] = [float(exact(delta, "delta"))] * (len(values) * len(risk_lists))
    everyone = [risk for items in risk_lists.values() for risk in items]
    return _Swept(
        [values[i] for i in order],
        list(names.values()),
        pa.table(columns),
        order,
        column,
        own,
        chart_inputs.audience_of(everyone),
    )


def _drawn(swept: _Swept, axis: Axis, limit: float | None) -> alt.LayerChart:
    rows = [
        {"x": row["rho"], "y": row[swept.column], "series": row["series"]}
        for row in swept.table.to_pylist()
    ]
    across = Axis("rho", log=True)
    layers: list[Any] = [line_chart(rows, swept.names, across, axis)]
    if swept.chosen is not None:
        ends = across.tight(swept.rhos).ends(swept.rhos)
        left = swept.chosen**2 > ends[0] * ends[1]  # the side with more room
        layers += upright(swept.chosen, f"chosen rho {swept.chosen:.4g}", left=left)
        marks = theme.values([row for row in rows if row["x"] == swept.chosen])
        layers.append(
            marks.mark_point(size=70, opacity=1).encode(
                x="x:Q", y="y:Q", color=theme.colour(swept.names), shape=theme.shape(swept.names)
            )
        )
    if limit is not None:
        layers += level_rule(
            limit, f"limit {limit:g}", left=across.tight(swept.rhos).ends(swept.rhos)[0]
        )
    if "epsilon" in swept.table.column_names:
        layers += _top(swept, across)
    return theme.layered(*layers).properties(width=theme.WIDTH, height=theme.HEIGHT)


def _top(swept: _Swept, across: Axis) -> list[alt.Chart]:
    """Write epsilon above some of the rhos."""
    rows = swept.rows(swept.names[0])
    low, high = across.tight(swept.rhos).ends(swept.rhos)
    tops: list[dict[str, Any]] = []
    for tick in theme.log_ticks(low, high) or [low]:
        near = min(rows, key=lambda row: abs(row["rho"] / tick - 1))
        if near not in tops:
            tops.append(near)
    every = -(-len(tops) // _LABELS)
    labels = [{"x": row["rho"], "label": words.upwards(row["epsilon"])} for row in tops[::every]]
    base = theme.values(labels)
    heading = theme.values([{"x": low, "label": f"epsilon, at delta {rows[0]['delta']:g}"}])
    return [
        base.mark_tick(orient="vertical", size=6, thickness=1, color=theme.FAINT).encode(
            x="x:Q", y=alt.value(-4)
        ),
        base.mark_text(baseline="bottom").encode(x="x:Q", y=alt.value(-9), text="label:N"),
        heading.mark_text(align="left", baseline="bottom", color=theme.FAINT).encode(
            x="x:Q", y=alt.value(-25), text="label:N"
        ),
    ]
