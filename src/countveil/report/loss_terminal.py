"""Empirical privacy loss as a terminal table and plain sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from countveil.report.risk_terminal import INTERNAL

_COLUMNS = {
    "residuals": "residuals",
    "empirical_loss": "EPL",
    "tail_ratio": "tail ratio",
    "interval": "its interval",
    "audit_lower_bound": "audit bound",
    "geometric_fit": "geometric fit",
}


def loss_view(
    rows: Sequence[Mapping[str, Any]], names: Sequence[str], confidence: float, notes: Sequence[str]
) -> RenderableType:
    """Return the losses of groups as a table, and what to make of them."""
    table = Table(title="Empirical privacy loss, by group and size of the exact count")
    for name in (*names, "size_class"):
        table.add_column(name.replace("_", " "))
    for title in _COLUMNS.values():
        table.add_column(title, justify="right")
    told: list[str] = []
    for row in rows:
        shown = [row[name] for name in (*names, "size_class")]
        if row["note"] is not None:
            told.append(f"{', '.join(shown)}: {row['note']}.")
        if row["tail_ratio"] is None and row["empirical_loss"] is None:
            shown += [f"{row['residuals']:,}"]
        else:
            ends = (_number(row["lower"]), _number(row["upper"]))
            interval = "none" if row["lower"] is None else " to ".join(ends)
            shown += [f"{row['residuals']:,}", _number(row["empirical_loss"])]
            shown += [_number(row["tail_ratio"]), interval]
            shown += [_number(row[name]) for name in ("audit_lower_bound", "geometric_fit")]
        table.add_row(*shown)
    said = [
        f"EPL is the paper's estimate and bounds nothing. The tail ratio has a {100 * confidence:g} % "
        f"interval. With {100 * confidence:g} % confidence the loss is not below the audit bound, if "
        f"residuals have one law whatever the count.",
        *notes,
        *([f"Without an estimate: {len(told)} rows. {told[0]}"] if told else []),
    ]
    return Group(Text(INTERNAL, style="bold"), table, *(Text(line) for line in said))


def _number(value: float | None) -> str:
    if value is None:
        return "none"
    return "no limit" if value == float("inf") else f"{value:.4g}"
