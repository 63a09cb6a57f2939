"""A comparison of two plans as a sentence, terminal tables and JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from countveil.assess.comparison import ComparedPlan, Comparison
from countveil.assess.intruder.ladder import LevelRisk
from countveil.base.words import at_most, brief, brief_percent, multiple, prior, upwards
from countveil.report.sections.intruder_section import SETTLED
from countveil.report.terminal.terminal_tables import plain_table


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as a JSON document."""
    return {"audience": "public", **asdict(comparison)}


def comparison_view(comparison: Comparison) -> RenderableType:
    """Return the settings that differ, and the cost, risk and error of both plans."""
    parts: list[RenderableType] = [Text(_sentence(comparison)), Text()]
    if comparison.changes:
        parts += [_changes(comparison), Text()]
    parts += [_risks(comparison), Text(), _errors(comparison)]
    return Group(*parts)


def _sentence(comparison: Comparison) -> str:
    """Say in one sentence how cost, risk and error differ."""
    first, second = comparison.first, comparison.second
    clauses = [
        f"the cost goes from {_cost(first)} to {_cost(second)}"
        if first.cost != second.cost
        else f"both cost {_cost(first)}"
    ]
    both = [(a, b) for _, a, b in comparison.risks if a is not None and b is not None]
    if both:
        worst = max(both, key=lambda pair: pair[1].marginal_risk)
        before, after = (
            item.times(limit=side.limit) for item, side in zip(worst, (first, second), strict=True)
        )
        change = f"goes from {before} to {after}" if before != after else f"is {after} in both"
        clauses.append(f"the risk with prior {prior(worst[1].prior)} {change}")
    ratios = [
        b.standard_error / a.standard_error
        for _, _, a, b in comparison.errors
        if a is not None and b is not None and a.standard_error and b.standard_error
    ]
    if ratios:
        least, most = (multiple(end(ratios)) for end in (min, max))
        times = f"{least} to {most}" if least != most else least
        clauses.append(
            "standard errors are the same"
            if least == most == "1"
            else f"standard errors are {times} times as large"
        )
    return f"{clauses[0][0].upper()}{'; '.join(clauses)[1:]}."


def _cost(side: ComparedPlan) -> str:
    if side.epsilon is None:
        return side.cost
    return f"{side.cost} (epsilon {upwards(side.epsilon)})"


def _changes(comparison: Comparison) -> Table:
    table = plain_table("Settings that differ")
    for name in ("setting", comparison.first.name, comparison.second.name):
        table.add_column(Text(name), overflow="fold")
    for change in comparison.changes:
        table.add_row(*map(Text, (change.key, change.first or "", change.second or "")))
    return table


def _risks(comparison: Comparison) -> Table:
    levels = dict.fromkeys((comparison.first.judged_level, comparison.second.judged_level))
    title = f"Marginal risk (how often they guess correctly) at level {' and '.join(levels)}"
    table = plain_table(Text(title))
    table.add_column("prior", justify="right")
    for side in (comparison.first, comparison.second):
        table.add_column(Text(side.name), justify="right")
    table.add_column("difference", justify="right")
    sides = (comparison.first, comparison.second)
    for before, *both in comparison.risks:
        cells = [
            "" if item is None else _risk(item, side.limit)
            for item, side in zip(both, sides, strict=True)
        ]
        more = _difference(both, lambda item: float(item.marginal_risk))
        table.add_row(prior(before), *cells, more)
    return table


def _risk(item: LevelRisk, limit: float | None) -> str:
    note = f", {SETTLED}" if item.settled else ""
    guesses = at_most(brief_percent(item.correct_decision), item.decision_upper_bound)
    return f"{item.times(limit=limit)} ({guesses}){note}"


def _errors(comparison: Comparison) -> Table:
    table = plain_table("Expected standard error of one cell")
    for name in ("level", "query"):
        table.add_column(name, overflow="fold")
    for side in (comparison.first, comparison.second):
        table.add_column(Text(side.name), justify="right")
    table.add_column("difference", justify="right")
    for level, query, *both in comparison.errors:
        cells = ["" if item is None else _error(item) for item in both]
        table.add_row(Text(level), Text(query), *cells, _difference(both, _standard_error))
    return table


def _error(item: Any) -> str:
    if item.as_counted:
        return "exact"
    return "none" if item.standard_error is None else brief(item.standard_error)


def _standard_error(item: Any) -> float | None:
    return 0.0 if item.as_counted else item.standard_error


def _difference(both: list[Any], of: Callable[[Any], float | None]) -> str:
    values = [None if item is None else of(item) for item in both]
    if values[0] is None or values[1] is None:
        return ""
    change = values[1] - values[0]
    return f"{'+' if change > 0 else '-'}{brief(abs(change))}" if change else "same"
