"""Tables and sections as the terminal shows them."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from countveil.report.audience import INTERNAL
from countveil.report.html_parts import cell
from countveil.report.section_data import Section, SectionTable


def plain_table(title: str | Text = "") -> Table:
    """Return an empty table in the style that all our tables share."""
    return Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
    )


def render_section(section: Section) -> RenderableType:
    """Render a section for rich; an internal one says so first."""
    parts: list[RenderableType] = []
    if section.audience == "internal":
        parts.append(Text(INTERNAL, style="bold"))
    parts.append(Text(section.title, style="bold"))
    parts += [Text(sentence) for sentence in section.sentences]
    for table in section.tables:
        parts += [Text(), render_table(table)]
    return Group(*parts)


def render_table(content: SectionTable) -> Table:
    """Render a table for rich, with numbers aligned right and the rest left."""
    table = plain_table(Text(content.caption))
    for number, name in enumerate(content.columns):
        values = [row[number] for row in content.rows]
        numeric = any(isinstance(value, int | float) for value in values)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in content.rows:
        table.add_row(*map(cell, row))
    return table
