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

INTERNAL = "INTERNAL: computed from confidential counts; not to be published."


def summary_view(summary: Summary, title: str) -> RenderableType:
    """Return a summary as sentences and tables."""
    priors = list(dict.fromkeys(item.prior for item in summary.attacks))
    worst = max(summary.attacks, key=lambda item: item.marginal_risk)
    parts: list[RenderableType] = [
        Text(title, style="bold"),
        Text(
            f"An intruder who knows everyone in {article(summary.level)} but his target, and sees "
            f"all its queries, gains most by the attack '{worst.attack}': from a probability of "
            f"{_percent(worst.prior)} he comes to {_percent(worst.posterior)} on average, "
            f"{worst.marginal_risk:.3f} times what he believed before."
        ),
        Text(),
        _attack_table(summary, priors),
    ]
    settled = {item.attack for item in summary.attacks if item.posterior == 1.0}
    for name in sorted(settled):
        parts.append(
            Text(
                f"What the plan publishes as counted settles '{name}' for whoever knows everyone else "
                f"in {article(summary.level)}: no noise protects against it."
            )
        )
    informed = [item for item in summary.attacks if item.with_invariants is not None]
    if informed and informed[0].attack not in settled:
        first = informed[0]
        assert first.effective_rho is not None
        assert first.with_levels_above is not None
        assert first.with_invariants is not None
        parts.append(
            Text(
                f"Where counts are large, the levels above add {_more(first.with_levels_above, first)} "
                f"to his evidence about presence, and what is published as counted adds "
                f"{_more(first.with_invariants, first, first.with_levels_above)} more. Near zero his "
                f"belief about the siblings decides: see the documentation."
            )
        )
    parts += [Text(sentence) for sentence in _fact_sentences(summary)]
    parts += [Text(), _level_table(summary, priors), Text(), _exceedance_table(summary)]
    return Group(*parts)


def _fact_sentences(summary: Summary) -> list[str]:
    """Say what public facts settle, and what they add to a belief, for the smallest prior."""
    found = []
    for item in summary.facts:
        if item.prior != min(other.prior for other in summary.facts):
            continue
        kinds = [
            (item.settled, "are known exactly"),
            (item.somebody, "must hold somebody"),
            (item.bounded, "have a largest count"),
        ]
        listed = ", ".join(f"{number:,} {what}" for number, what in kinds if number)
        text = f"Public facts bound {item.counts:,} counts of {item.query}: {listed}."
        if item.with_fact is not None and item.with_release is not None:
            text += (
                f" Who is unsure of one other person beside his target, each there with probability "
                f"{_percent(item.prior)}, comes to {_percent(item.with_fact)} by knowing that somebody "
                f"is there, and to {_percent(item.with_release)} with the most detailed noisy count as "
                f"well; by that count alone he would come to {_percent(item.release_alone or 0.0)}."
            )
        found.append(text)
    return found


def article(word: str) -> str:
    """Return a word with "a" or "an" before it."""
    return f"an {word}" if word[:1].lower() in "aeio" else f"a {word}"


def _more(value: float, item: Any, base: float | None = None) -> str:
    start = item.effective_rho if base is None else base
    return f"{100 * (value - start) / item.effective_rho:.1f} %"


def _percent(value: float) -> str:
    return f"{100 * value:.4g} %"


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
        table.add_row(f"{prior:g}", *(_percent(row.share) for row in rows))
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
