"""The homogeneity risk of a file of records under several mechanisms, for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from countveil.assess.homogeneity.average_risk import MEASURES
from countveil.base.words import brief_percent
from countveil.report.audience import INTERNAL
from countveil.report.terminal.terminal_tables import plain_table


def homogeneity_view(about: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Return the homogeneity risks of a table of records under several mechanisms."""
    table = plain_table("Homogeneity risk, with cells weighted equally or by their people")
    table.add_column("measure", no_wrap=True)
    for row in rows:
        table.add_column(row["noise"], justify="right")
    for name in MEASURES:
        label = name.replace("_", " ")
        table.add_row(label, *(brief_percent(row[name]) for row in rows))
        if name != "marginal_shrinkage":  # the same for every cell
            table.add_row(
                f"{label}, weighted", *(brief_percent(row[f"{name}_weighted"]) for row in rows)
            )
    table.add_row("wrong value", *(brief_percent(row["wrong"]) for row in rows))
    summary = (
        f"{about['people']:,} people in {about['cells']:,} of {about['possible']:,} cells of "
        f"{', '.join(about['identifiers'])}. In {about['homogeneous']:,} cells everyone has the "
        f"same {about['sensitive']}: the exact table reveals it for "
        f"{brief_percent(about['before'])} of the people. The local risk is how often a noisy cell "
        f"shows a single value that someone in it has; the other risks average over possible tables. "
        f"Wrong value is how often it shows a single value that no one in it has."
    )
    return Group(Text(INTERNAL, style="bold"), Text(summary), table)
