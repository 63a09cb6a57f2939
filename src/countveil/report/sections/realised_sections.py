"""INTERNAL: the errors and disclosures of a release, compared with the counts it was made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from countveil.assess.empirical_loss.residual_groups import reach_of
from countveil.assess.empirical_loss.smoothed_density import kde
from countveil.assess.homogeneity.topdown_attack import ReleasedAttack
from countveil.assess.intruder.attacks import published_exactly
from countveil.assess.realised_disclosure import Realised
from countveil.base import words
from countveil.errors import InputError
from countveil.plan.plans import Plan
from countveil.plan.workload import TOTAL
from countveil.report.section_data import Section, SectionTable, Subject

if TYPE_CHECKING:
    from countveil.report.charts.chart import Chart

MOST_SERIES = 8  # lines that a chart can tell apart
_ALL = "all"
_CONFIDENCE = 0.95
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
    accuracy, totals = disclosure.accuracy, disclosure.totals

    def draw() -> list[Chart]:
        from countveil.report import charts

        by_size = charts.error_by_size(accuracy, levels=levels[-MOST_SERIES:])
        if totals is None:
            return [by_size]
        both = charts.exact_and_released(totals.exact, totals.released, audience="internal")
        return [by_size, both]

    return Section(
        "realised-error",
        "Realised error",
        tuple(sentences),
        tuple(tables),
        draw,
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
    risk_map = disclosure.everyone

    def draw() -> list[Chart]:
        from countveil.report import charts

        return [charts.risk_map(risk_map)] if risk_map.groups.num_rows else []

    return Section(
        "everyone",
        "Risk of everyone counted",
        tuple(sentences),
        (table,),
        draw,
        audience="internal",
    )


def _people(group: str) -> str:
    return "1 person" if group == "1" else f"{group} people"


def loss(subject: Subject) -> Section | None:
    """Describe the privacy loss that the residuals show."""
    plan, disclosure = subject.plan, subject.realised
    if disclosure is None:
        return None
    residuals = disclosure.residuals
    rows = residuals.losses(by_size=False, widest=_WIDEST).to_pylist()
    notes = []
    if any(reach_of(residuals.of(key)) > _WIDEST for key in residuals.groups):
        notes.append("It is not estimated where residuals spread too widely to be smoothed.")
    section = loss_of(rows, residuals.names, notes=notes)

    def draw() -> list[Chart]:
        from countveil.report import charts

        curves = _curves(plan, disclosure)
        drawn: list[Chart] = [charts.loss_of_residuals(curves)] if curves else []
        for level, query in residuals.groups:
            if level == plan.judged_level:  # one chart: of its first query
                name = f"released {query} of {level}"
                drawn.append(charts.residuals(residuals.of((level, query)), name=name))
                break
        return drawn

    return replace(section, draw=draw)


def loss_of(
    rows: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    *,
    confidence: float = _CONFIDENCE,
    notes: Sequence[str] = (),
    reasons: bool = False,
    figures: Mapping[str, Any] | None = None,
) -> Section:
    """Return the section of estimated losses: a row per group, and per size class if there are any.

    `rows` are those of `Tallies.losses`, and `names` what its groups are named by. With `reasons`, it
    says why something could not be estimated.
    """
    columns = ("empirical_loss", "tail_ratio", "lower", "upper", "audit_lower_bound")
    by_size = any(row["size_class"] != _ALL for row in rows)
    if by_size:  # one column, so that a table with these rows fits a terminal
        groups = [(_group(row, names),) for row in rows]
        heading: tuple[str, ...] = ("Group, size of the exact count",)
        by = "group and size"
    else:
        by = words.listed(names)
        groups = [tuple(row[name] for name in names) for row in rows]
        heading = tuple(name.replace("_", " ").capitalize() for name in names)
    table = SectionTable(
        f"Privacy loss from residuals, by {by}" if by else "Privacy loss from residuals",
        (*heading, "Residuals", "Empirical loss", "Tail ratio", "Lower", "Upper", "At least"),
        tuple(
            (*group, row["residuals"], *(row[name] for name in columns))
            for group, row in zip(groups, rows, strict=True)
        ),
    )
    sure = words.percent(confidence)
    sentences = [
        f"Residuals are released minus exact counts. The empirical loss is an estimate from their "
        f"smoothed density, not a bound. The tail ratio is between the lower and the upper end with "
        f"{sure} confidence. For each row on its own, the loss is at least the last column with "
        f"{sure} confidence, if residuals have the same distribution for every count.",
        *notes,
        *(_reasons(rows, names) if reasons else ()),
    ]
    return Section(
        "realised-loss",
        "Privacy loss estimated from residuals",
        tuple(sentences),
        (table,),
        figures={} if figures is None else figures,
        audience="internal",
    )


def _reasons(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    """Say how many rows lack an estimate, and why the first does."""
    without = [row for row in rows if row["note"] is not None]
    if not without:
        return []
    first = without[0]
    return [f"Rows without an estimate: {len(without)}. {_group(first, names)}: {first['note']}."]


def _group(row: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return the name of a group and its size class."""
    group = " ".join(str(row[name]) for name in names) or "everything"
    return f"{group}, {row['size_class']}"


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
    return attack_of(list(disclosure.attacks.values()))


def attack_of(attacks: Sequence[ReleasedAttack]) -> Section:
    """Return the section of attacks on a release or on simulated ones; it words the worst of them."""
    worst = max(attacks, key=lambda item: item.disclosed)
    known = words.listed([worst.level, *worst.identifiers])
    several = f"On average over {worst.releases:,} simulated releases, someone"
    sentences = (
        f"{'Someone' if worst.releases == 1 else several} who knows a person's {known} and believes a "
        f"cell that shows a single value infers their {worst.sensitive} correctly for "
        f"{words.brief_percent(worst.disclosed)} of the people and wrongly for "
        f"{words.brief_percent(worst.misled)}; the exact table would reveal it for "
        f"{words.brief_percent(worst.before)}.",
        f"Of the {worst.cells:,} cells with people, {words.brief_percent(worst.cells_right)} show a "
        f"single value that occurs there, and {words.brief_percent(worst.cells_wrong)} one that does "
        f"not.",
    )
    of = "this release" if worst.releases == 1 else f"{worst.releases:,} simulated releases"
    table = SectionTable(
        f"The homogeneity attack on {of}: shares of people, and of cells with people",
        (
            *("Attribute", "Revealed by the exact table", "Inferred correctly", "Wrongly"),
            *("Cells", "Showing a value that occurs", "Showing one that does not"),
        ),
        tuple(
            (
                *(item.sensitive, item.before, item.disclosed, item.misled),
                *(item.cells, item.cells_right, item.cells_wrong),
            )
            for item in attacks
        ),
    )
    return Section(
        "realised-attack",
        "Groups in which everyone has the same value, as released",
        sentences,
        (table,),
        figures={"attacks": [_figures(item) for item in attacks]},
        audience="internal",
    )


def _figures(item: ReleasedAttack) -> dict[str, Any]:
    errors = None if item.errors is None else list(item.errors)
    return {**asdict(item), "identifiers": list(item.identifiers), "errors": errors}
