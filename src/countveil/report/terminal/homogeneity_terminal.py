"""The homogeneity attack as terminal tables and plain sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from countveil.assess.homogeneity.average_risk import MEASURES
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
        table.add_row(label, *(f"{row[name]:.4f}" for row in rows))
        if name != "marginal_shrinkage":  # the same for every cell
            table.add_row(f"{label}, weighted", *(f"{row[f'{name}_weighted']:.4f}" for row in rows))
    table.add_row("wrong value", *(f"{row['nobodys']:.4f}" for row in rows))
    summary = (
        f"{about['people']:,} people in {about['cells']:,} of {about['possible']:,} cells of "
        f"{', '.join(about['identifiers'])}. In {about['homogeneous']:,} cells everyone has the "
        f"same {about['sensitive']}: the exact table reveals it for {about['before']:.1%} of the "
        f"people. The local risk is how often a noisy cell shows a single value that someone in "
        f"it has; the other risks average over possible tables. Wrong value: how often it shows a "
        f"single value that no one in it has."
    )
    return Group(Text(INTERNAL, style="bold"), Text(summary), table)


def released_view(attack: Mapping[str, Any]) -> RenderableType:
    """Return what the attack on a release reveals, as sentences."""
    one = attack["releases"] == 1
    over = "In this release" if one else f"On average over {attack['releases']} simulated releases"
    lines = [
        f"The exact table reveals the value of {attack['before']:.1%} of the people: everyone in "
        f"their cell has the same one. There are {attack['cells']:,} cells with people.",
        f"{over}, {attack['disclosed']:.1%} of the people are in a cell that shows a single "
        f"value, which is theirs; {attack['misled']:.1%} are in a cell that shows a single value, "
        f"which is not.",
        f"{attack['cells_right']:.1%} of the cells show a single value that occurs there, "
        f"{attack['cells_wrong']:.1%} a single value that does not.",
    ]
    return Group(Text(INTERNAL, style="bold"), *(Text(line) for line in lines))
