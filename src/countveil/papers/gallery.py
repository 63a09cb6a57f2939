"""The gallery: one page that shows every item, printed beside ours. No script, no external request."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from jinja2 import Template
from markupsafe import Markup

from countveil import storage
from countveil.papers.catalogue import PAPERS
from countveil.papers.item import Item, Picture
from countveil.papers.pictures import description, svg
from countveil.papers.wording import printed, shown
from countveil.report.page import environment, part, policy

_TEMPLATES = "countveil.papers.templates"
_MANY = 25  # values after which a table is folded, so that the page can be skimmed


def write(items: Sequence[Item], to: str | Path) -> Path:
    """Write the gallery of some items into a folder; return the page."""
    folder = Path(to)
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / "index.html"
    with storage.replacing(page) as temporary:
        temporary.write_text(html(items), encoding="utf-8")
    return page


def html(items: Sequence[Item]) -> str:
    """Return the page."""
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
    found = environment()
    found.filters |= {
        "anchor": _anchor,
        "drawn": _drawn,
        "description": description,
        "explained": _explained,
        "printed": printed,
        "shown": shown,
    }
    return found.from_string(part("gallery.html", _TEMPLATES))


def _summary(items: Sequence[Item]) -> str:
    values = [value for item in items for value in item.values]
    compared = [value for value in values if value.printed is not None]
    off = sum(value.differs for value in compared)
    agree = len(compared) - off
    said = (
        f"{_counted(len(items), 'item')}, {_counted(len(values), 'number')}, computed by the public "
        f"API of countveil."
    )
    if not compared:
        return f"{said} The papers print none of them."
    said += f" The papers print {len(compared):,} of them"
    if off == 0:
        return f"{said}, and all agree within rounding or the paper's own simulation error."
    return (
        f"{said}: {agree:,} {'agrees' if agree == 1 else 'agree'} within rounding or the paper's own "
        f"simulation error, {off:,} {'does' if off == 1 else 'do'} not, and the last column says why."
    )


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _anchor(item: Item) -> str:
    return f"p{item.paper}-{item.slug}"


def _explained(item: Item) -> bool:
    return any(value.erratum for value in item.values)


def _drawn(picture: Picture, item: Item, number: int) -> Markup:
    return Markup(svg(picture, prefix=f"{_anchor(item)}-{number}-"))  # noqa: S704  # it escapes
