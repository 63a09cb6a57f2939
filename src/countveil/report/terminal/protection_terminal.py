"""A plan next to other protections: sentences, tables for the terminal, and JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from countveil.assess.protection_comparison import ProtectedSide, ProtectionComparison
from countveil.assess.protections.protection import Between
from countveil.base import words
from countveil.estimate.plan_error import ExpectedError
from countveil.estimate.release_error import WATERMARK
from countveil.report.terminal.terminal_tables import plain_table

_BASES = {
    "records": "confidential records",
    "public records": "records that the user attests to be public",
    "published estimates": "published estimates",
    "simulated release": "the estimates of a release with seeded noise, which must not be published",
}


def protection_document(comparison: ProtectionComparison) -> dict[str, Any]:
    """Return a comparison as a JSON document; an internal one says so first."""
    notice = {"notice": WATERMARK} if comparison.audience == "internal" else {}
    document = asdict(comparison)
    document["made_from"] = _BASES[comparison.basis]
    return {**notice, "audience": comparison.audience, **document}


def protection_view(comparison: ProtectionComparison) -> RenderableType:
    """Return the risk and error of a plan and of other protections of the same tables."""
    parts: list[RenderableType] = []
    if comparison.audience == "internal":
        parts += [Text(WATERMARK, style="bold"), Text()]
    parts += [Text(_sentence(comparison)), Text(), _risks(comparison), Text()]
    parts += [_certainty(comparison), Text(), _errors(comparison), Text()]
    parts += [Text(f"- {limit}") for limit in _limits(comparison)]
    return Group(*parts)


def _sentence(comparison: ProtectionComparison) -> str:
    return (
        f"{comparison.title}: the plan ({comparison.cost}) and other protections of the same tables, "
        f"made from {_BASES[comparison.basis]}, with seed {comparison.seed}. The intruder knows "
        f"everyone else in {words.article(comparison.level)}."
    )


def _limits(comparison: ProtectionComparison) -> tuple[str, ...]:
    return (
        "Plan: worst unit and target; no release needed. The forecast of the "
        "error is that of unbiased estimates. Published counts are never negative, so small ones are "
        "closer.",
        "Other protections: the risk is for the person about whom the intruder learns most, against "
        "the alternative that is easiest to rule out.",
        "Errors other than the forecast come from one run with this seed.",
        *comparison.limits,
    )


def _risks(comparison: ProtectionComparison) -> Table:
    title = "Largest risk: expected posterior over prior (mean over people)"
    table = plain_table(title)
    table.add_column("protection", overflow="fold")
    priors = [risk.prior for risk in comparison.risks]
    for prior in priors:
        table.add_column(f"prior {words.prior(prior)}", justify="right")
    cells = [risk.times(limit=comparison.limit) for risk in comparison.risks]
    table.add_row("this plan", *cells)
    for side in comparison.sides:
        cells = [
            f"{_between(side.worst(prior))} ({_between(side.mean(prior))})" for prior in priors
        ]
        table.add_row(Text(side.label), *cells)
    return table


def _certainty(comparison: ProtectionComparison) -> Table:
    table = plain_table("People about whom the intruder becomes certain")
    table.add_column("protection", overflow="fold")
    for name in ("that they are there", "that a category is not theirs"):
        table.add_column(name, justify="right")
    certain = any(risk.settled for risk in comparison.risks)
    table.add_row("this plan", *(["all: published exactly"] if certain else ["none"]) * 2)
    for side in comparison.sides:
        table.add_row(
            Text(side.label), _certain(side, presence=True), _certain(side, presence=False)
        )
    return table


def _certain(side: ProtectedSide, *, presence: bool) -> str:
    share = side.certain(presence=presence)
    if share is None:
        return "no attribute"
    ends = [_share(end) for end in share]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def _errors(comparison: ProtectionComparison) -> Table:
    table = plain_table("Mean absolute error of a count (share suppressed)")
    for name in ("level", "query"):
        table.add_column(name, overflow="fold")
    table.add_column("plan, forecast", justify="right")
    run = {(item.level, item.query): item for item in comparison.run_errors}
    if run:
        table.add_column("plan", justify="right")
    for side in comparison.sides:
        table.add_column(Text(side.label), justify="right", overflow="fold")
    planned = {(item.level, item.query): item for item in comparison.errors}
    others = [{(item.level, item.query): item for item in side.errors} for side in comparison.sides]
    for key in dict.fromkeys([*planned, *others[0]]):
        row = [_planned(planned.get(key))]
        row += [_number(run[key].absolute_error)] if run else []
        for side_errors in others:
            error = side_errors[key]
            hidden = error.suppressed
            share = "" if not hidden else f" ({_share(hidden)})"
            row.append(f"{_number(error.absolute_error)}{share}")
        table.add_row(*map(Text, key), *row)
    return table


def _planned(item: ExpectedError | None) -> str:
    """Return the mean absolute error of an estimate, as if it were normal."""
    if item is None or item.as_counted:
        return "exact"
    if item.overall_standard_error is None:
        return "none"
    return _number(math.sqrt(2 / math.pi) * item.overall_standard_error)


def _between(ends: Between) -> str:
    low, high = _ratio(ends.lower), _ratio(ends.upper)
    return low if low == high else f"{low} to {high}"


def _ratio(value: float) -> str:
    return words.multiple(value)


def _share(value: float) -> str:
    return words.brief_percent(value)


def _number(value: float) -> str:
    return "exact" if value == 0 else words.brief(value)
