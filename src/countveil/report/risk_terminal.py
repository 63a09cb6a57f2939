"""Risks and choices as terminal tables and plain sentences."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from countveil.assess.choose_plan import ChosenPlan
from countveil.assess.risk_map import RiskMap
from countveil.assess.summary import Summary
from countveil.report.summary_words import article, percent, summary_sentences

INTERNAL = "INTERNAL: computed from confidential counts; not to be published."


def summary_view(summary: Summary, title: str) -> RenderableType:
    """Return a summary as sentences and tables."""
    priors = list(dict.fromkeys(item.prior for item in summary.attacks))
    first, *rest = summary_sentences(summary)
    parts: list[RenderableType] = [Text(title, style="bold"), Text(first), Text()]
    parts += [_attack_table(summary, priors), *map(Text, rest)]
    parts += [Text(), _level_table(summary, priors), Text(), _exceedance_table(summary)]
    return Group(*parts)


def _attack_table(summary: Summary, priors: Sequence[float]) -> Table:
    table = Table(
        title=f"Attacks on a person of {article(summary.level)}: R, and P(correct) in brackets"
    )
    table.add_column("attack")
    table.add_column("effective rho", justify="right")
    for prior in priors:
        table.add_column(f"prior {prior:g}", justify="right")
    for attack in dict.fromkeys(item.attack for item in summary.attacks):
        rows = [item for item in summary.attacks if item.attack == attack]
        rho = rows[0].effective_rho
        table.add_row(
            attack,
            "" if rho is None else f"{rho:.5f}",
            *(f"{row.marginal_risk:.3f} ({row.correct_decision:.3f})" for row in rows),
        )
    return table


def _level_table(summary: Summary, priors: Sequence[float]) -> Table:
    table = Table(title="Presence, by level, from noisy counts alone: R of who knows everyone else")
    table.add_column("level")
    for prior in priors:
        table.add_column(f"prior {prior:g}", justify="right")
    for level in dict.fromkeys(item.level for item in summary.levels):
        rows = [item for item in summary.levels if item.level == level]
        table.add_row(level, *(f"{row.marginal_risk:.3f}" for row in rows))
    return table


def _exceedance_table(summary: Summary) -> Table:
    table = Table(
        title=f"How often R' will pass a limit, by the most detailed {summary.level} query"
    )
    table.add_column("prior")
    limits = list(dict.fromkeys(item.above for item in summary.exceedances))
    for limit in limits:
        table.add_column(f"above {limit:g}", justify="right")
    for prior in dict.fromkeys(item.prior for item in summary.exceedances):
        rows = [item for item in summary.exceedances if item.prior == prior]
        table.add_row(f"{prior:g}", *(percent(row.share) for row in rows))
    return table


def map_view(found: RiskMap) -> RenderableType:
    """Return a risk map as a table of its groups."""
    note = (
        INTERNAL
        if found.audience == "internal"
        else "From published values alone: R' if a target were alone in each cell that reads 1 or more."
    )
    table = Table(title=f"Risk map of level {found.level}, prior {found.prior:g}")
    for name in found.groups.column_names:
        table.add_column(
            name.replace("_", " "), justify="left" if name in ("by", "group") else "right"
        )
    for row in found.groups.to_pylist():
        table.add_row(*(_cell(value) for value in row.values()))
    return Group(Text(note, style="bold"), table)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def chosen_view(chosen: ChosenPlan, sentence: str) -> RenderableType:
    """Return the levels of a chosen plan, and the lines that put it into a plan file."""
    table = Table(title="By level")
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
    """Return [budget] as a plan file holds it."""
    lines = ["[budget]", f'rho = "{chosen.total}"', "[budget.levels]"]
    total = chosen.total
    lines += [
        f'{level} = "{chosen.rho.get(level, Fraction(0)) / total}"' for level in chosen.plan.levels
    ]
    return "\n".join(lines)
