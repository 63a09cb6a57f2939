"""The gallery: one page with every item, printed next to ours; no script, no external request."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from jinja2 import Template
from markupsafe import Markup

from countveil.base import storage
from countveil.papers.catalogue import PAPERS
from countveil.papers.item import Item, ItemChart
from countveil.papers.item_charts import describe, svg
from countveil.papers.item_text import display, display_printed
from countveil.report.html_parts import environment, part, policy

_TEMPLATES = "countveil.papers.gallery_templates"
_MANY = 25  # longer tables are folded, so that the page can be skimmed


def write(items: Sequence[Item], to: str | Path) -> Path:
    """Write the gallery of some items into a folder; return the path of the page."""
    folder = Path(to)
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / "index.html"
    with storage.replacing(page) as temporary:
        temporary.write_text(html(items), encoding="utf-8")
    return page


def html(items: Sequence[Item]) -> str:
    """Return the page as text."""
    style = part("style.css") + part("gallery.css", _TEMPLATES)
    papers = [
        (paper, PAPERS[paper], [item for item in items if item.paper == paper])
        for paper in dict.fromkeys(item.paper for item in items)
    ]
    return _template().render(
        style=Markup(style),  # noqa: S704  # ours, and hashed in the policy
        policy=policy(styles=[style], scripts=[], img_src="data:"),
        summary=_summary(items),
        papers=papers,
        many=_MANY,
    )


@cache
def _template() -> Template:
    templates = environment()
    templates.filters |= {
        "anchor": _anchor,
        "describe": describe,
        "display": display,
        "display_printed": display_printed,
        "has_erratum": _has_erratum,
        "svg": _svg,
    }
    return templates.from_string(part("gallery.html", _TEMPLATES))


def _summary(items: Sequence[Item]) -> str:
    values = [value for item in items for value in item.values]
    compared = [value for value in values if value.printed is not None]
    off = sum(value.differs for value in compared)
    agree = len(compared) - off
    text = (
        f"{_plural(len(items), 'item')}, {_plural(len(values), 'number')}, computed by the public "
        f"API of countveil."
    )
    if not compared:
        return f"{text} The papers print none of them."
    text += f" The papers print {len(compared):,} of them"
    if off == 0:
        return f"{text}, and all agree within rounding or the paper's own simulation error."
    return (
        f"{text}: {agree:,} {'agrees' if agree == 1 else 'agree'} within rounding or the paper's own "
        f"simulation error, {off:,} {'does' if off == 1 else 'do'} not, and the last column says why."
    )


def _plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _anchor(item: Item) -> str:
    return f"p{item.paper}-{item.slug}"


def _has_erratum(item: Item) -> bool:
    return any(value.erratum for value in item.values)


def _svg(chart: ItemChart, item: Item, number: int) -> Markup:
    return Markup(svg(chart, prefix=f"{_anchor(item)}-{number}-"))  # noqa: S704  # it escapes
