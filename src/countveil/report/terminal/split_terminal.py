"""The best split of a budget, for a terminal and as JSON."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from countveil.assess.choose.optimal_split import BestSplit
from countveil.assess.choose.published_check import PublishedCheck
from countveil.assess.verdict import Verdict
from countveil.base.words import at_most, figure, listed, multiple, rounded_up
from countveil.report.terminal.risk_terminal import verdict_line
from countveil.report.terminal.terminal_tables import plain_table

_WHEN = ("before", "after")


def view(
    best: BestSplit, verdict: Verdict, check: PublishedCheck | None = None, *, lines: bool
) -> RenderableType:
    """Return the errors before and after, the shares, the proof, and lines for the plan file."""
    parts: list[RenderableType] = [
        Text(headline(best), style="bold"),
        Text(),
        _errors(best),
        Text(),
    ]
    if check is not None:
        parts += [_published(check), Text(" ".join(check.sentences)), Text()]
    parts += [_shares(best), Text(), Text(proof(best)), verdict_line(verdict)]
    if lines:
        parts.append(
            Text(f"\nPut these lines into the plan, or use --write:\n{budget_lines(best)}")
        )
    return Group(*parts)


def headline(best: BestSplit) -> str:
    """Say in a sentence what was gained."""
    if math.isinf(best.before):
        return (
            f"With {best.plan.cost} and other queries, every table that you named can be estimated; "
            f"today's queries do not determine them all."
        )
    goals = best.table["margin_wanted"]
    goal = (
        "margin is reached"
        if goals.null_count == 0
        else "margin is reached, or today's error kept,"
    )
    if best.minimise == "rho":
        return (
            f"Every {goal} with rho = {best.after:.4g}; split as before, the plan would need "
            f"{best.before:.4g}."
        )
    if best.minimise == "risk":
        before, after = (
            at_most(multiple(risk), bound)
            for risk, bound in zip((best.before, best.after), best.upper_bounds, strict=True)
        )
        return (
            f"Every {goal} at a risk of {after} times the prior, with {best.plan.cost}; split as "
            f"before, it would be {before} times."
        )
    if best.minimise == "worst":
        return (
            f"With {best.plan.cost}, the largest error falls to {_of(best)} of what it is today: "
            f"{figure(best.before)} to {figure(best.after)} times its unit."
        )
    return (
        f"With {best.plan.cost}, the weighted mean squared error falls to {_of(best)} of what it is "
        f"today."
    )


def proof(best: BestSplit) -> str:
    """Say how good the split is at most, and what stops it from being better."""
    within = f"{rounded_up(max(100 * (best.gap + best.rounding_loss), 0.01))} %"
    gain = {
        "rho": f"saves more than {within} of rho",
        "risk": f"lowers the precision behind the risk by more than {within}",
        "worst": f"lowers the largest error by more than {within}",
        "error": f"lowers the error by more than {within}",
    }[best.minimise]
    stops = f"What stops it: {listed(best.binding)}."
    if best.proof == "local":
        tangents = "the limit on risk, which keep it but are stricter elsewhere"
        if best.minimise == "risk":
            tangents = "the risk, which are above it elsewhere"
        return f"A local optimum: no split within tangents of {tangents}, {gain}. {stops}"
    return (
        f"Under the same limits, no other split of these queries {gain} (proved by convex duality). "
        f"{stops}"
    )


def budget_lines(best: BestSplit) -> str:
    """Return the lines of [budget] that change in a plan file."""
    budget = best.plan.document["budget"]
    lines = ["[budget]", f'rho = "{budget["rho"]}"', "[budget.levels]"]
    lines += [f'{level} = "{share}"' for level, share in budget["levels"].items()]
    for level, queries in budget["queries"].items():
        lines.append(f"[budget.queries.{level}]")
        lines += [f'"{query}" = "{share}"' for query, share in queries.items()]
    return "\n".join(lines)


def document(best: BestSplit) -> dict[str, Any]:
    """Return everything as data."""
    return {
        "minimise": best.minimise,
        "before": _finite(best.before),
        "after": best.after,
        "proof": best.proof,
        "gap": best.gap,
        "rounding_loss": best.rounding_loss,
        "binding": list(best.binding),
        "targets": [
            {name: _finite(value) for name, value in row.items()} for row in best.table.to_pylist()
        ],
        "shares": best.shares.to_pylist(),
        "budget": best.plan.document["budget"],
    }


def _finite(value: Any) -> Any:
    """Return a value for JSON, which has no infinity: what today's queries do not determine is null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _of(best: BestSplit) -> str:
    return f"{100 * best.after / best.before:.0f} %"


def _errors(best: BestSplit) -> RenderableType:
    table = plain_table("Margin of error of the tables that matter, in people")
    for name in ("level", "table"):
        table.add_column(name, overflow="fold")
    for name in ("now", "then", "wanted"):
        table.add_column(name, justify="right")
    for row in best.table.to_pylist():
        goal = row["margin_wanted"]
        aim = "" if goal is None else f"{figure(goal)} {'✓' if row['reached'] else '✗ not met'}"
        margins = (row["margin_before"], row["margin_after"])
        shown = [f"± {figure(item)}" if math.isfinite(item) else "unknown" for item in margins]
        table.add_row(row["level"], row["query"], *shown, aim)
    return table


def _published(check: PublishedCheck) -> RenderableType:
    table = plain_table(
        f"Standard errors, and those of {check.releases} simulated releases of {check.people:,} "
        f"people: {check.population}"
    )
    for name in ("level", "table"):
        table.add_column(name, overflow="fold")
    for name in ("now: forecast", "published", "then: forecast", "published"):
        table.add_column(name, justify="right")
    for row in check.table.to_pylist():
        numbers = [row[f"{kind}_{when}"] for when in _WHEN for kind in ("forecast", "published")]
        table.add_row(row["level"], row["query"], *map(figure, numbers))
    return table


def check_document(check: PublishedCheck) -> dict[str, Any]:
    """Return what simulated releases show, as data."""
    return {
        "population": check.population,
        "people": check.people,
        "releases": check.releases,
        "sentences": list(check.sentences),
        "targets": [
            {name: _finite(value) for name, value in row.items()} for row in check.table.to_pylist()
        ],
    }


def _shares(best: BestSplit) -> RenderableType:
    table = plain_table("What each query gets, in rho")
    for name in ("level", "query"):
        table.add_column(name, overflow="fold")
    for name in ("now", "then"):
        table.add_column(name, justify="right")
    for row in best.shares.to_pylist():
        after = "dropped" if row["rho_after"] == 0 else f"{row['rho_after']:.3g}"
        before = "new" if row["rho_before"] == 0 else f"{row['rho_before']:.3g}"
        if (before, after) != ("new", "dropped"):
            table.add_row(row["level"], row["query"], before, after)
    return table
