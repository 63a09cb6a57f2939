"""Two hundred intruders: how many decide correctly before the release, and after."""

from __future__ import annotations

import math
from typing import Any

import altair as alt
import pyarrow as pa

from countveil.assess.intruder.decision import EVEN, Losses, decide
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.intruder.whole_release import about
from countveil.assess.risk import Risk
from countveil.base import words
from countveil.errors import InputError
from countveil.report.charts import chart_inputs, theme
from countveil.report.charts.chart import Chart, described

_ACROSS = 20


def two_hundred_intruders(
    intruder: Intruder,
    there: Risk,
    away: Risk | None = None,
    *,
    losses: Losses = EVEN,
    intruders: int = 200,
) -> Chart:
    """Draw intruders as dots, filled if they decide correctly, before the release and after it.

    Parameters
    ----------
    intruder
        What each of them knows.
    there, away
        What `assess.correct_decision` returns for a target who is counted, and for one who is not.
        With both, the share of targets who are counted is the prior; without `away`, all are.
    losses
        The losses by which they decide.
    intruders
        How many dots to draw.

    Returns
    -------
    Chart

    """
    who = chart_inputs.of_kind(intruder, Intruder, "intruder")
    if isinstance(intruders, bool) or not isinstance(intruders, int) or intruders < 1:
        raise InputError(f"intruders: got {intruders!r}; pass a whole number of at least 1")
    after_there = _probability(there, "there")
    yes = decide(who.informed_prior, losses=losses)
    if away is None:
        shares = {"before": yes, "after": after_there}
    else:
        after_away = _probability(away, "away")
        p = who.informed_prior
        shares = {
            "before": p * yes + (1 - p) * (1 - yes),
            "after": p * after_there + (1 - p) * after_away,
        }
    bounded = there.upper_bound or (away is not None and away.upper_bound)
    rows = [
        _row(when, who.prior, intruders, share, bounded and when == "after")
        for when, share in shares.items()
    ]
    before, after = (_at_most(row) for row in rows)
    targets = (
        "whose target is counted"
        if away is None
        else "whose targets are counted with the prior's probability"
        if there.attack in (None, "presence")
        else f"whose guess about {about(there.attack)} is true with the prior's probability"
    )
    summary = (
        f"Of {words.number(intruders)} intruders with prior {words.number(who.prior)}, {targets}, "
        f"{before} decide correctly before the release and {after} after it."
    )
    return described(
        "intruders",
        f"Of {intruders:,} intruders, how many decide correctly",
        alt.hconcat(*(_panel(row) for row in rows), spacing=40),
        alt_text=["Two fields of dots, filled if an intruder decides correctly.", summary],
        caption=[summary, "A filled dot is a correct decision, a ring a wrong one."],
        table=pa.Table.from_pylist(rows),
        audience=chart_inputs.audience_of([there] if away is None else [there, away]),
    )


def _probability(risk: Risk, what: str) -> float:
    answer = chart_inputs.of_kind(risk, Risk, what)
    if answer.measure != "correct decision":
        raise InputError(
            f"{what}: got the measure {answer.measure!r}; pass what assess.correct_decision returns"
        )
    return float(answer.value)


def _row(when: str, prior: float, intruders: int, share: float, bound: bool) -> dict[str, Any]:
    # An upper bound is not rounded down, and whole numbers that floats miss are not rounded up.
    right = math.ceil(intruders * share - 1e-9) if bound else round(intruders * share)
    return {
        "when": when,
        "prior": prior,
        "intruders": intruders,
        "decide_rightly": right,
        "decide_wrongly": intruders - right,
        "probability_of_a_right_decision": float(share),
        "upper_bound": bound,
    }


def _at_most(row: dict[str, Any]) -> str:
    """Return how many decide correctly, as people read it."""
    return words.at_most(words.number(row["decide_rightly"]), row["upper_bound"])


def _panel(row: dict[str, Any]) -> alt.LayerChart:
    dots = [
        {"x": i % _ACROSS, "y": i // _ACROSS, "right": i < row["decide_rightly"]}
        for i in range(row["intruders"])
    ]
    lines = -(-row["intruders"] // _ACROSS)
    base = theme.values(dots).encode(
        x=alt.X("x:Q", axis=None, scale=alt.Scale(domain=[-0.5, _ACROSS - 0.5], nice=False)),
        y=alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[lines - 0.5, -0.5], nice=False)),
    )
    full, empty = (
        base.transform_filter(alt.FieldEqualPredicate(field="right", equal=right))
        for right in (True, False)
    )
    title = f"{row['when']} the release: {_at_most(row)} decide correctly"
    return (
        theme.layered(
            full.mark_point(size=95, filled=True, opacity=1, color=theme.COLOURS[0]),
            empty.mark_point(size=80, filled=False, opacity=1, color="#767676", strokeWidth=1.2),
        )
        .properties(width=15 * _ACROSS, height=15 * lines)
        .properties(title=alt.TitleParams(title, fontSize=12, fontWeight="normal", anchor="start"))
    )
