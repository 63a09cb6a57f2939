"""Risk maps and chosen budgets as terminal tables."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from countveil.assess.choose.plan_budget import ChosenPlan
from countveil.assess.risk_maps import RiskMap
from countveil.report.audience import INTERNAL
from countveil.report.terminal.terminal_tables import plain_table


def map_view(risk_map: RiskMap) -> RenderableType:
    """Return a risk map as a table of its groups."""
    note = (
        INTERNAL
        if risk_map.audience == "internal"
        else "From published values alone: R' of a target alone in a cell that reads 1 or more."
    )
    table = plain_table(f"Risk map of level {risk_map.level}, prior {risk_map.prior:g}")
    for name in risk_map.groups.column_names:
        table.add_column(
            name.replace("_", " "), justify="left" if name in ("by", "group") else "right"
        )
    for row in risk_map.groups.to_pylist():
        table.add_row(*(_cell(value) for value in row.values()))
    return Group(Text(note, style="bold"), table)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def chosen_view(chosen: ChosenPlan, sentence: str) -> RenderableType:
    """Return the levels of a chosen plan, and its [budget] lines for a plan file."""
    table = plain_table("By level")
    for name in ("level", "rho", "effective rho", "R"):
        table.add_column(name, justify="left" if name == "level" else "right")
    for level, rho in chosen.rho.items():
        table.add_row(
            level,
            f"{float(rho):.6g}",
            f"{chosen.effective[level]:.6g}",
            f"{chosen.risks[level]:.4f}",
        )
    return Group(Text(sentence), table, Text(budget_lines(chosen)))


def budget_lines(chosen: ChosenPlan) -> str:
    """Return the [budget] section for a plan file."""
    lines = ["[budget]", f'rho = "{chosen.total}"', "[budget.levels]"]
    total = chosen.total
    lines += [
        f'{level} = "{chosen.rho.get(level, Fraction(0)) / total}"' for level in chosen.plan.levels
    ]
    return "\n".join(lines)
