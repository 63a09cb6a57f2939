"""Posterior means and intervals of places as a terminal table."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from rich.console import Group, RenderableType
from rich.text import Text

from countveil.report.terminal.terminal_tables import plain_table

_MOST_ROWS = 40


def posterior_view(
    posteriors: pa.Table, level: str, parameter: str, confidence: float, notes: Sequence[str]
) -> RenderableType:
    """Return a table of the first forty places, and notes."""
    table = plain_table()
    heads = {
        "geocode": level,
        "released": "released",
        "released_part": "part",
        "mean": parameter,
        "standard_deviation": "sd",
        "lower": f"{confidence:.0%} from",
        "upper": "to",
        "above": "above",
    }
    for name in posteriors.column_names:
        table.add_column(heads[name], justify="left" if name == "geocode" else "right")
    for row in posteriors.slice(0, _MOST_ROWS).to_pylist():
        table.add_row(
            *(
                f"{value:,.4g}"
                if isinstance(value, float)
                else f"{value:,}"
                if isinstance(value, int)
                else str(value)
                for value in row.values()
            )
        )
    parts: list[RenderableType] = [table]
    if posteriors.num_rows > _MOST_ROWS:
        parts.append(
            Text(f"… and {posteriors.num_rows - _MOST_ROWS:,} more; --to writes all of them.")
        )
    if notes:
        parts.append(Text(""))
        parts += [Text(line) for line in notes]
    return Group(*parts)
