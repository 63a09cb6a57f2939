"""The best split of a budget, for a terminal and as JSON."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from countveil.assess.choose.optimal_split import BestSplit
from countveil.assess.verdict import Verdict
from countveil.base.words import figure, listed
from countveil.report.terminal.risk_terminal import verdict_line
from countveil.report.terminal.terminal_tables import plain_table


def view(best: BestSplit, verdict: Verdict, *, lines: bool) -> RenderableType:
    """Return the errors before and after, the shares, the proof, and lines for the plan file."""
    parts: list[RenderableType] = [
        Text(headline(best), style="bold"),
        Text(),
        _errors(best),
        Text(),
    ]
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
    if best.minimise == "rho":
        return (
            f"rho = {best.after:.4g} reaches every margin; split as before, the plan would need "
            f"{best.before:.4g}."
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
    loss = best.gap + best.rounding_loss
    within = "0.01 %" if loss < 1e-4 else f"{100 * loss:.2f} %"
    better = {
        "rho": "needs less rho",
        "worst": "has a smaller largest error",
        "error": "has less error",
    }
    stops = f"What stops it: {listed(best.binding)}."
    if best.proof == "local":
        return (
            f"A local optimum: no split near it that keeps tangents of the limit on risk "
            f"{better[best.minimise]}, by more than {within}. {stops}"
        )
    return (
        f"No other split of these queries {better[best.minimise]} under the same limits, by more than "
        f"{within} (proved by convex duality). {stops}"
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
        "before": best.before,
        "after": best.after,
        "proof": best.proof,
        "gap": best.gap,
        "rounding_loss": best.rounding_loss,
        "binding": list(best.binding),
        "targets": best.table.to_pylist(),
        "shares": best.shares.to_pylist(),
        "budget": best.plan.document["budget"],
    }


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
        margins = (figure(row["margin_before"]), figure(row["margin_after"]))
        table.add_row(row["level"], row["query"], *(f"± {margin}" for margin in margins), aim)
    return table


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
