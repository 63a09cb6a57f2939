"""A chart: the plot, what it shows in words, and the numbers behind it."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import altair as alt
import pyarrow as pa
import vl_convert

from countveil.errors import InputError
from countveil.report.audience import INTERNAL, Audience
from countveil.report.charts import theme

_VERSION = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
_ADDRESSES = ("$schema",)  # only names the format; a strict page may hold no address


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Chart:
    """A plot with its title, a description for readers who cannot see it, a caption and its numbers.

    Attributes
    ----------
    name, title
        A short identifier, and the heading above the plot.
    plot
        The plot as Altair holds it.
    alt, caption
        The description for screen readers, and the text below the plot. Both are generated from
        `table`.
    table
        The plotted numbers.
    audience
        "internal" if anything was computed from confidential counts. The plot and the caption then
        say so.

    """

    name: str
    title: str
    plot: alt.TopLevelMixin
    alt: str
    caption: str
    table: pa.Table
    audience: Audience = "public"

    def __post_init__(self) -> None:
        """Refuse a chart without data."""
        if self.table.num_rows == 0:
            raise InputError(f"{self.name}: the result is empty; give one with values")

    def __repr__(self) -> str:
        return f"<{self.audience} chart {self.name}: {self.table.num_rows} rows>"

    def spec(self) -> dict[str, Any]:
        """Return the chart as a Vega-Lite specification with its data; embed it with `ast: true`."""
        spec: dict[str, Any] = copy.deepcopy(self.plot.to_dict(validate=False))
        for key in _ADDRESSES:
            spec.pop(key, None)
        spec["config"] = copy.deepcopy(theme.CONFIG)
        spec["title"] = self._title()
        spec["description"] = self.alt
        spec["usermeta"] = {
            "embedOptions": {"mode": "vega-lite", "renderer": "svg", "ast": True, "actions": False}
        }
        return spec

    def svg(self) -> str:
        """Return the chart as SVG without scripts; the same input gives the same bytes."""
        svg = vl_convert.vegalite_to_svg(
            json.dumps(self.spec()), vl_version=_VERSION, allowed_base_urls=[]
        )
        own = re.sub(r"[^A-Za-z0-9-]+", "-", self.name)
        # The renderer never restarts its numbering of clips, and a page holds several charts.
        for number, clip in enumerate(dict.fromkeys(re.findall(r'\bid="([^"]+)"', svg))):
            svg = svg.replace(f'id="{clip}"', f'id="{own}-part{number}"')
            svg = svg.replace(f"url(#{clip})", f"url(#{own}-part{number})")
        texts = (
            f'<title id="{own}-title">{escape(self.title)}</title>'
            f'<desc id="{own}-description">{escape(self.alt)}</desc>'
        )
        role = f'role="img" aria-labelledby="{own}-title {own}-description"'
        return re.sub(
            r"<svg ([^>]*)>", lambda match: f"<svg {role} {match[1]}>{texts}", svg, count=1
        )

    def png(self, scale: float = 2) -> bytes:
        """Return the chart as PNG, `scale` times its size on screen."""
        png: bytes = vl_convert.vegalite_to_png(
            json.dumps(self.spec()), vl_version=_VERSION, scale=scale, allowed_base_urls=[]
        )
        return png

    def html_table(self) -> str:
        """Return the plotted numbers as an HTML table with a caption and column headings."""
        names = [escape(name.replace("_", " ")) for name in self.table.column_names]
        sides = [
            "" if pa.types.is_string(kind) else ' class="number"'
            for kind in self.table.schema.types
        ]
        head = "".join(
            f'<th scope="col"{side}>{name}</th>' for name, side in zip(names, sides, strict=True)
        )
        rows = []
        for row in self.table.to_pylist():
            first, *rest = map(_cell, row.values())
            cells = "".join(f'<td class="{kind}">{text}</td>' for text, kind in rest)
            rows.append(f'<tr><th scope="row">{first[0]}</th>{cells}</tr>')
        mark = f"{INTERNAL} " if self.audience == "internal" else ""
        return (
            f"<table><caption>{escape(mark + self.title)}: the numbers</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        )

    def _title(self) -> dict[str, Any]:
        if self.audience == "public":
            return {"text": self.title}
        return {
            "text": self.title,
            "subtitle": "INTERNAL, not to be published",
            "subtitleColor": theme.INTERNAL_COLOUR,
            "subtitleFontWeight": "bold",
        }


def described(
    name: str,
    title: str,
    plot: alt.TopLevelMixin,
    *,
    alt_text: Sequence[str],
    caption: Sequence[str],
    table: pa.Table,
    audience: Audience = "public",
) -> Chart:
    """Make a chart from its sentences; those of an internal one start by saying so."""
    mark = (INTERNAL,) if audience == "internal" else ()
    joined = [" ".join(part for part in (*mark, *parts) if part) for parts in (alt_text, caption)]
    return Chart(name, title, plot, joined[0], joined[1], table, audience)


def _cell(value: Any) -> tuple[str, str]:
    """Return the text of a table cell, and whether it is a number or text."""
    if value is None:
        return "none", "text"
    if isinstance(value, bool):
        return ("yes" if value else "no"), "text"
    if isinstance(value, int):
        return f"{value:,}", "number"
    if isinstance(value, float):
        if math.isinf(value):
            return "no limit", "text"
        return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}", "number"
    return escape(str(value)), "text"
