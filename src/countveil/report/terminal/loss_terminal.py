"""Empirical privacy loss as a terminal table and plain sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from countveil.assess.empirical_loss.residual_groups import ALL
from countveil.base.words import brief
from countveil.report.audience import INTERNAL
from countveil.report.terminal.terminal_tables import plain_table


def loss_view(
    rows: Sequence[Mapping[str, Any]], names: Sequence[str], confidence: float, notes: Sequence[str]
) -> RenderableType:
    """Return the losses of groups as a table, and how to read it."""
    table = plain_table("Empirical privacy loss, by size of the exact count")
    table.add_column("group, and size class", overflow="fold", min_width=17)
    for title in ("count", "EPL", "tail\nratio", "interval", "audit\nbound"):
        table.add_column(title, justify="right", no_wrap=title == "interval")
    without: list[str] = []
    for row in rows:
        group, size = " ".join(row[name] for name in names) or "everything", row["size_class"]
        if row["note"] is not None:
            without.append(f"{group}, {size}: {row['note']}.")
        ends = [_number(row[end]) for end in ("lower", "upper") if row[end] is not None]
        table.add_row(
            Text(group, style="bold") if size == ALL else f"  {size}",
            f"{row['residuals']:,}",
            *(_number(row[name]) for name in ("empirical_loss", "tail_ratio")),
            " to ".join(ends),
            _number(row["audit_lower_bound"]),
        )
    sentences = [
        f"EPL, the empirical privacy loss, is the paper's estimate, not a bound. The interval is a "
        f"{100 * confidence:g} % interval of the tail ratio. With {100 * confidence:g} % confidence "
        f"the loss is at least the audit bound, if residuals have the same distribution for every "
        f"count.",
        *notes,
        *([f"Rows without an estimate: {len(without)}. {without[0]}"] if without else []),
    ]
    return Group(Text(INTERNAL, style="bold"), table, *(Text(line) for line in sentences))


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return "no limit" if value == float("inf") else brief(value)
