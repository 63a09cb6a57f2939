"""The guarantee beside public information, as text for a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from countveil.assess.public_information import PublicGuarantee


def public_view(found: PublicGuarantee) -> RenderableType:
    """Return what is public, a table of secrets, and sentences."""
    parts: list[RenderableType] = [Text(found.title, style="bold"), Text("")]
    parts.append(Text("Public, beside the release:"))
    parts += [Text(f"  {line}") for line in found.public or ("nothing",)]
    parts += [Text(""), Text(f"What remains is {found.currency}.")]
    table = Table(box=None, pad_edge=False)
    for name, justify in (
        *(("secret", "left"), ("people", "right"), ("guarantee", "left")),
        *(("odds, at most", "right"), ("because", "left")),
    ):
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for item in found.secrets:
        odds = "no bound" if item.odds is None else f"× {item.odds:,.4g}"
        table.add_row(item.what, str(item.records), item.guarantee, odds, item.why)
    parts += [Text(""), table]
    if found.sentences:
        parts.append(Text(""))
        parts += [Text(line) for line in found.sentences]
    return Group(*parts)
