"""INTERNAL: the errors and disclosures of a release, compared with the counts it was made from."""

from __future__ import annotations

from typing import Any

from countveil.assess.empirical_loss.residual_groups import reach_of
from countveil.assess.empirical_loss.smoothed_density import kde
from countveil.assess.intruder.attacks import published_exactly
from countveil.assess.realised_disclosure import Realised
from countveil.base import words
from countveil.errors import InputError
from countveil.plan.plans import Plan
from countveil.plan.workload import TOTAL
from countveil.report import charts
from countveil.report.charts.chart import Chart
from countveil.report.charts.theme import MOST_SERIES
from countveil.report.section_data import Section, SectionTable, Subject

_ALL = "all"
_WIDEST = 100_000  # range of residuals, in people, beyond which smoothing their density is too slow
_MOST_CURVES = 4
_WORSE = 1.25  # times the forecast: a quarter above it
_ENOUGH = 30  # counts that a root mean square needs to be compared


def error(subject: Subject) -> Section | None:
    """Describe how far the published totals are from the exact ones."""
    disclosure = subject.realised
    if disclosure is None or disclosure.accuracy is None:
        return None
    rows = [
        row
        for row in disclosure.accuracy.errors.to_pylist()
        if row["query"] == TOTAL and row["size_class"] == _ALL
    ]
    sentences = [
        f"The totals of the {words.number(row['cells'])} places at level {row['level']} are off by "
        f"{words.brief(row['mean_absolute_error'])} on average; their mean error, the bias, is "
        f"{words.brief(row['bias'])}."
        for row in rows
    ]
    columns = ("mean_absolute_error", "bias", "root_mean_squared_error", "error_05", "error_95")
    table = SectionTable(
        "Estimated minus exact totals, by level",
        (
            *("Level", "Places", "Mean absolute", "Bias", "Root mean square"),
            *("5th percentile", "95th percentile"),
        ),
        tuple((row["level"], row["cells"], *(row[name] for name in columns)) for row in rows),
    )
    levels = list(dict.fromkeys(row["level"] for row in rows))
    forecasts, dropped = (
        disclosure.accuracy.forecasts.to_pylist(),
        disclosure.accuracy.dropped.to_pylist(),
    )
    sentences += [*_against_forecast(forecasts), *_dropped(dropped)]
    tables = [table, _forecast_table(forecasts)]
    if dropped:
        tables.append(_dropped_table(dropped))
    if len(levels) > MOST_SERIES:
        sentences.append(
            f"The chart by size shows the lowest {MOST_SERIES} of {len(levels)} levels; the table "
            f"lists all of them."
        )
    section_charts: list[Chart] = [
        charts.error_by_size(disclosure.accuracy, levels=levels[-MOST_SERIES:]),
    ]
    if disclosure.totals is not None:
        exact, released = disclosure.totals.exact, disclosure.totals.released
        section_charts.append(charts.exact_and_released(exact, released, audience="internal"))
    return Section(
        "realised-error",
        "Realised error",
        tuple(sentences),
        tuple(tables),
        lambda: section_charts,
        audience="internal",
    )


def _against_forecast(rows: list[dict[str, Any]]) -> list[str]:
    """Say how far errors are from their forecast, and where they differ most."""
    judged = [row for row in rows if row["ratio"] is not None and row["cells"] >= _ENOUGH]
    if not judged:
        return []
    worse = [row for row in judged if row["ratio"] > _WORSE]
    if not worse:
        return [
            f"No query with at least {_ENOUGH} published counts at a level has an error of more than a "
            f"quarter above its forecast."
        ]
    worst = max(worse, key=lambda row: float(row["ratio"]))
    return [
        f"Errors are more than a quarter above their forecast for {len(worse)} of {len(judged)} "
        f"queries and levels with at least {_ENOUGH} published counts. The worst is "
        f"{worst['query']} at level {worst['level']}: forecast "
        f"{words.brief(worst['expected'])}, realised {words.brief(worst['realised'])}."
    ]


def _forecast_table(rows: list[dict[str, Any]]) -> SectionTable:
    columns = ("level", "query", "cells", "expected", "realised", "ratio", "largest_departure")
    return SectionTable(
        "Root mean square error of one count, forecast and realised, by level and query",
        ("Level", "Query", "Counts", "Forecast", "Realised", "Ratio", "Moved by rounding, at most"),
        tuple(tuple(row[name] for name in columns) for row in rows),
    )


def _dropped(rows: list[dict[str, Any]]) -> list[str]:
    """Say how many rows were not counted."""
    if not rows:
        return []
    rows_dropped = rows[0]["rows_dropped"]
    if not rows_dropped:
        return ["No rows were dropped: no person exceeds the plan's limit."]
    lowest = rows[-1]
    return [
        f"{words.number(rows_dropped)} rows were read but not counted, because some people have more "
        f"rows than the plan allows: {words.brief(lowest['mean_dropped'])} per place at level "
        f"{lowest['level']} on average, and {words.number(lowest['most_dropped'])} in the place that "
        f"lost most. The errors here do not include them."
    ]


def _dropped_table(rows: list[dict[str, Any]]) -> SectionTable:
    return SectionTable(
        "Rows that were read but not counted, by level",
        ("Level", "Places", "Places with dropped rows", "Rows dropped", "Mean", "Most"),
        tuple(tuple(row.values()) for row in rows),
    )


def everyone(subject: Subject) -> Section | None:
    """Describe what an intruder learns about each person counted, from the noise that was drawn."""
    plan, disclosure = subject.plan, subject.realised
    if disclosure is None:
        return None
    groups = [row for row in disclosure.everyone.groups.to_pylist() if row["by"] == "size"]
    worst = max(groups, key=lambda row: row["largest_risk"]) if groups else None
    level, prior = (
        words.article(disclosure.everyone.level),
        words.prior_percent(disclosure.everyone.prior),
    )
    sentences = [
        f"Someone who knows everyone else in {level} thinks it {prior} likely that a person is "
        f"counted there, and then sees all noisy counts. The person's realised risk is the "
        f"probability they reach, divided by that prior.",
    ]
    if worst is not None:
        sentences.append(
            f"The largest is {words.multiple(worst['largest_risk'])}, in a cell with "
            f"{_people(worst['group'])}."
        )
    if published_exactly(plan, disclosure.everyone.level):
        sentences.append(
            "Exactly published counts reveal presence by themselves; they are left out here."
        )
    table = SectionTable(
        "Realised risk by the number of people in a cell",
        ("People in the cell", "Cells", "People", "Mean risk", "Largest risk"),
        tuple(
            (row["group"], row["cells"], row["people"], row["mean_risk"], row["largest_risk"])
            for row in groups
        ),
    )
    section_charts = (
        [charts.risk_map(disclosure.everyone)] if disclosure.everyone.groups.num_rows else []
    )
    return Section(
        "everyone",
        "Risk of everyone counted",
        tuple(sentences),
        (table,),
        lambda: section_charts,
        audience="internal",
    )


def _people(group: str) -> str:
    return "1 person" if group == "1" else f"{group} people"


def loss(subject: Subject) -> Section | None:
    """Describe the privacy loss that the residuals show."""
    plan, disclosure = subject.plan, subject.realised
    if disclosure is None:
        return None
    rows = disclosure.residuals.losses(by_size=False, widest=_WIDEST).to_pylist()
    columns = ("empirical_loss", "tail_ratio", "lower", "upper", "audit_lower_bound")
    table = SectionTable(
        "Privacy loss from residuals, by level and query",
        (
            "Level",
            "Query",
            "Residuals",
            "Empirical loss",
            "Tail ratio",
            "Lower",
            "Upper",
            "At least",
        ),
        tuple(
            (row["level"], row["query"], row["residuals"], *(row[name] for name in columns))
            for row in rows
        ),
    )
    curves = _curves(plan, disclosure)
    section_charts: list[Chart] = [charts.loss_of_residuals(curves)] if curves else []
    for level, query in disclosure.residuals.groups:
        if level == plan.judged_level:  # one chart: of its first query
            name = f"released {query} of {level}"
            section_charts.append(
                charts.residuals(disclosure.residuals.of((level, query)), name=name)
            )
            break
    sentences = [
        "Residuals are released minus exact counts. The empirical loss is an estimate from their "
        "smoothed density, not a bound. For each query on its own, the loss is at least the last "
        "column with 95 % confidence, if residuals have the same distribution for every count."
    ]
    if any(reach_of(disclosure.residuals.of(key)) > _WIDEST for key in disclosure.residuals.groups):
        sentences.append("It is not estimated where residuals spread too widely to be smoothed.")
    return Section(
        "realised-loss",
        "Privacy loss estimated from residuals",
        tuple(sentences),
        (table,),
        lambda: section_charts,
        audience="internal",
    )


def _curves(plan: Plan, disclosure: Realised) -> dict[str, Any]:
    """Return the smoothed losses of the judged level's queries that have enough residuals."""
    curves: dict[str, Any] = {}
    for key in disclosure.residuals.groups:
        residuals = disclosure.residuals.of(key)
        if key[0] != plan.judged_level or reach_of(residuals) > _WIDEST:
            continue
        try:
            curves[key[1]] = kde(residuals)
        except InputError:
            continue  # too few residuals or no spread: the table says so
        if len(curves) == _MOST_CURVES:
            break
    return curves


def attack(subject: Subject) -> Section | None:
    """Describe how many people the homogeneity attack on this release reveals."""
    disclosure = subject.realised
    if disclosure is None or not disclosure.attacks:
        return None
    worst = max(disclosure.attacks, key=lambda name: disclosure.attacks[name].disclosed)
    shares = disclosure.attacks[worst]
    sentence = (
        f"Someone who knows a person's place and every attribute except {worst} infers it "
        f"correctly for {words.brief_percent(shares.disclosed)} of the people and wrongly for "
        f"{words.brief_percent(shares.misled)}; the exact table would reveal it for "
        f"{words.brief_percent(shares.before)}."
    )
    table = SectionTable(
        "The homogeneity attack on this release: shares of people",
        ("Attribute", "Revealed by the exact table", "Inferred correctly", "Wrongly", "Cells"),
        tuple(
            (name, item.before, item.disclosed, item.misled, item.cells)
            for name, item in disclosure.attacks.items()
        ),
    )
    return Section(
        "realised-attack",
        "Groups in which everyone has the same value, as released",
        (sentence,),
        (table,),
        audience="internal",
    )
