"""The homogeneity attack as terminal tables and plain sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from countveil.assess.homogeneity.average_risk import MEASURES
from countveil.report.section_data import INTERNAL
from countveil.report.terminal import plain_table


def homogeneity_view(about: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Return the risks of a table of records under several noises."""
    table = plain_table("Homogeneity risk, all cells alike or weighted by their people")
    table.add_column("measure", no_wrap=True)
    for row in rows:
        table.add_column(row["noise"], justify="right")
    for name in MEASURES:
        shown = name.replace("_", " ")
        table.add_row(shown, *(f"{row[name]:.4f}" for row in rows))
        if name != "marginal_shrinkage":  # the same for every cell
            table.add_row(f"{shown}, weighted", *(f"{row[f'{name}_weighted']:.4f}" for row in rows))
    table.add_row("nobody's", *(f"{row['nobodys']:.4f}" for row in rows))
    said = (
        f"{about['people']:,} people in {about['cells']:,} of {about['possible']:,} cells of "
        f"{', '.join(about['identifiers'])}. In {about['homogeneous']:,} cells all have the same "
        f"{about['sensitive']}: the exact table gives away {about['before']:.1%} of the people. The "
        f"local risk is how often a noisy cell shows one value that somebody in it has; the others "
        f"average over tables that might have been. Nobody's: how often it shows one that nobody has."
    )
    return Group(Text(INTERNAL, style="bold"), Text(said), table)


def released_view(found: Mapping[str, Any]) -> RenderableType:
    """Return what the attack on a release tells, as sentences."""
    one = found["releases"] == 1
    over = "In this release" if one else f"On average over {found['releases']} simulated releases"
    lines = [
        f"The exact table gives away {found['before']:.1%} of the people: all others in their cell, of "
        f"{found['cells']:,} with people, have the same value.",
        f"{over}, {found['disclosed']:.1%} of the people are in a cell that shows one value, which is "
        f"theirs; {found['misled']:.1%} are in one that shows a value that is not.",
        f"{found['cells_right']:.1%} of the cells show one value that occurs there, "
        f"{found['cells_wrong']:.1%} one that does not.",
    ]
    return Group(Text(INTERNAL, style="bold"), *(Text(line) for line in lines))
