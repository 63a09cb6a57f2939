"""A comparison of two plans as terminal tables, plain sentences and JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from countveil.assess.comparison import ComparedPlan, Comparison
from countveil.assess.intruder.plan_risk import LevelRisk
from countveil.base.words import prior, upwards
from countveil.report.sections.intruder_section import SETTLED
from countveil.report.terminal import plain_table


def comparison_document(found: Comparison) -> dict[str, Any]:
    """Return a comparison as JSON."""
    return {"audience": "public", **asdict(found)}


def comparison_view(found: Comparison) -> RenderableType:
    """Return what differs, and cost, risk and error of both."""
    parts: list[RenderableType] = [Text(_sentence(found)), Text()]
    if found.changes:
        parts += [_changes(found), Text()]
    parts += [_risks(found), Text(), _errors(found)]
    return Group(*parts)


def _sentence(found: Comparison) -> str:
    """Say in one sentence what the second costs and what it does to risk and error."""
    first, second = found.first, found.second
    told = [f"{_cost(first)} became {_cost(second)}" if first.cost != second.cost else _same(first)]
    both = [(a, b) for _, a, b in found.risks if a is not None and b is not None]
    if both:
        worst = max(both, key=lambda pair: pair[1].marginal_risk)
        before, after = (f"{item.marginal_risk:.3f}" for item in worst)
        moved = f"went from {before} to {after}" if before != after else f"is {after} in both"
        told.append(f"the risk with prior {prior(worst[1].prior)} {moved}")
    ratios = [
        b.standard_error / a.standard_error
        for _, _, a, b in found.errors
        if a is not None and b is not None and a.standard_error and b.standard_error
    ]
    if ratios:
        least, most = (f"{end(ratios):.3g}" for end in (min, max))
        times = f"{least} to {most}" if least != most else least
        told.append(
            "standard errors are the same"
            if least == most == "1"
            else f"standard errors are {times} times what they were"
        )
    return f"{told[0][0].upper()}{'; '.join(told)[1:]}."


def _cost(side: ComparedPlan) -> str:
    if side.epsilon is None:
        return side.cost
    return f"{side.cost} (epsilon {upwards(side.epsilon)})"


def _same(side: ComparedPlan) -> str:
    return f"both cost {_cost(side)}"


def _changes(found: Comparison) -> Table:
    table = plain_table("Settings that differ")
    for name in ("setting", found.first.name, found.second.name):
        table.add_column(Text(name), overflow="fold")
    for change in found.changes:
        table.add_row(*map(Text, (change.key, change.first or "", change.second or "")))
    return table


def _risks(found: Comparison) -> Table:
    levels = dict.fromkeys((found.first.judged_level, found.second.judged_level))
    title = f"Marginal risk, and how often a person is named rightly, at {' and '.join(levels)}"
    table = plain_table(Text(title))
    table.add_column("prior", justify="right")
    for side in (found.first, found.second):
        table.add_column(Text(side.name), justify="right")
    table.add_column("difference", justify="right")
    for before, *both in found.risks:
        cells = ["" if item is None else _risk(item) for item in both]
        more = _difference(both, lambda item: float(item.marginal_risk))
        table.add_row(prior(before), *cells, more)
    return table


def _risk(item: LevelRisk) -> str:
    settled = f", {SETTLED}" if item.settled else ""
    return f"{item.marginal_risk:.3f} ({item.correct_decision:.3g}){settled}"


def _errors(found: Comparison) -> Table:
    table = plain_table("Standard error of one cell, by least squares over its level")
    for name in ("level", "query"):
        table.add_column(name, overflow="fold")
    for side in (found.first, found.second):
        table.add_column(Text(side.name), justify="right")
    table.add_column("difference", justify="right")
    for level, query, *both in found.errors:
        cells = ["" if item is None else _error(item) for item in both]
        table.add_row(Text(level), Text(query), *cells, _difference(both, _standard_error))
    return table


def _error(item: Any) -> str:
    if item.as_counted:
        return "exact"
    return "none" if item.standard_error is None else f"{item.standard_error:.4g}"


def _standard_error(item: Any) -> float | None:
    return 0.0 if item.as_counted else item.standard_error


def _difference(both: list[Any], of: Callable[[Any], float | None]) -> str:
    values = [None if item is None else of(item) for item in both]
    if values[0] is None or values[1] is None:
        return ""
    return f"{values[1] - values[0]:+.3g}" if values[0] != values[1] else "same"
