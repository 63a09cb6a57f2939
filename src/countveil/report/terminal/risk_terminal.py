"""Risk maps and chosen budgets as terminal tables."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from countveil.assess.choose.plan_budget import ChosenPlan
from countveil.assess.risk_maps import RiskMap
from countveil.assess.verdict import Verdict
from countveil.base.numerics import decimal
from countveil.base.words import multiple
from countveil.report.audience import INTERNAL
from countveil.report.terminal.terminal_tables import plain_table


def map_view(risk_map: RiskMap) -> RenderableType:
    """Return a risk map as a table of its groups."""
    note = (
        INTERNAL
        if risk_map.audience == "internal"
        else "From published values alone: the risk of someone who would be alone in a cell that "
        "reads 1 or more."
    )
    table = plain_table(f"Risk by group at level {risk_map.level}, prior {risk_map.prior:g}")
    for name in risk_map.groups.column_names:
        table.add_column(
            name.replace("_", " "), justify="left" if name in ("by", "group") else "right"
        )
    for row in risk_map.groups.to_pylist():
        table.add_row(*(_cell(value) for value in row.values()))
    return Group(Text(note, style="bold"), table)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return multiple(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def chosen_view(choice: ChosenPlan, sentence: str, verdict: Verdict) -> RenderableType:
    """Return the levels of a chosen plan, its verdict, and its [budget] lines for a plan file."""
    table = plain_table(
        "By level: its budget, and the marginal risk of someone who knows everyone else in a "
        "place there"
    )
    for name in ("level", choice.currency, "risk", "learns most about"):
        numeric = name in (choice.currency, "risk")
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for level in choice.plan.estimated_levels:
        rungs = [rung for rung in choice.ladder if rung.level == level]
        worst = max(rungs, key=lambda rung: rung.marginal_risk)
        risk = worst.in_table(limit=verdict.limit)
        cost = f"{float(choice.costs[level]):.4g}" if level in choice.costs else "0"
        table.add_row(level, cost, risk, worst.about)
    lines = Text(f"\nPut these lines into the plan:\n{budget_lines(choice)}")
    return Group(Text(f"{sentence}\n"), table, Text(), verdict_line(verdict), lines)


def verdict_line(verdict: Verdict) -> Text:
    """Return the verdict, in red if the risk is above the limit."""
    return Text(verdict.sentence, style="bold red" if verdict.status == "above" else "bold")


def budget_lines(choice: ChosenPlan) -> str:
    """Return the lines of [budget] that change in a plan file."""
    lines = [f'[budget]\n{choice.currency} = "{decimal(choice.total)}"']
    if choice.shares:
        shares = {level: choice.shares.get(level, 0) for level in choice.plan.levels}
        lines += ["[budget.levels]", *(f'{level} = "{own}"' for level, own in shares.items())]
    return "\n".join(lines)
