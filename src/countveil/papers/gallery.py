"""The gallery: one page that shows every item, printed beside ours. No script, no external request."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from countveil import storage
from countveil.papers.catalogue import PAPERS
from countveil.papers.item import Item, Value
from countveil.papers.pictures import description, svg
from countveil.papers.wording import printed, shown

_MANY = 25  # values after which a table is folded, so that the page can be skimmed
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif;
  color: #1a1a1a; background: #fff; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin-bottom: .3rem; }
h2 { font-size: 1.25rem; margin-top: 3rem; border-top: 2px solid #1a1a1a; padding-top: .8rem; }
h3 { font-size: 1.05rem; margin: 2.2rem 0 .4rem; }
p { max-width: 46rem; }
.missing { border-left: 4px solid #8a6d00; padding-left: .8rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; margin: .6rem 0 1rem; }
caption { text-align: left; font-size: .85rem; color: #4a4a4a; padding-bottom: .3rem; }
th, td { text-align: left; vertical-align: top; padding: .28rem .8rem .28rem 0;
  border-bottom: 1px solid #dcdcdc; }
th[scope=row] { font-weight: 400; width: 34%; }
td.number { font-variant-numeric: tabular-nums; }
tr.off td.printed { color: #9d2b00; }
td.why { color: #4a4a4a; font-size: .85rem; width: 34%; }
.pictures { display: flex; flex-wrap: wrap; gap: .5rem 1rem; }
figure { margin: .5rem 0; flex: 0 1 29rem; min-width: 0; }
figure svg { max-width: 100%; height: auto; }
figcaption { font-size: .8rem; color: #4a4a4a; }
nav ul { columns: 3; font-size: .9rem; padding-left: 1.1rem; }
a { color: #00508a; }
@media (max-width: 44rem) { nav ul { columns: 1; } }
@media print { h2 { break-before: page; } details { display: block; } }
"""


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
    papers = list(dict.fromkeys(item.paper for item in items))
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">',
        "<title>The papers, reproduced</title>",
        f"<style>{_STYLE}</style></head><body><main>",
        "<h1>The papers, reproduced</h1>",
        f"<p>{escape(_summary(items))}</p>",
    ]
    for paper in papers:
        of_paper = [item for item in items if item.paper == paper]
        parts.append(f'<h2 id="{paper}">{paper}: {escape(PAPERS[paper])}</h2>')
        links = "".join(f'<li><a href="#{_anchor(i)}">{escape(i.name)}</a></li>' for i in of_paper)
        parts.append(f'<nav aria-label="Items of paper {paper}"><ul>{links}</ul></nav>')
        parts += [_section(item) for item in of_paper]
    parts.append("</main></body></html>\n")
    return "\n".join(parts)


def _summary(items: Sequence[Item]) -> str:
    values = [value for item in items for value in item.values]
    compared = [value for value in values if value.printed is not None]
    off = sum(value.differs for value in compared)
    said = f"{len(items)} items, {len(values):,} numbers, computed by the public API of countveil."
    if not compared:
        return f"{said} The papers print none of them."
    return (
        f"{said} The papers print {len(compared):,} of them: {len(compared) - off:,} agree within "
        f"rounding or the paper's own simulation error, {off:,} do not, and the last column says why."
    )


def _anchor(item: Item) -> str:
    return f"p{item.paper}-{item.slug}"


def _section(item: Item) -> str:
    parts = [
        f'<section aria-labelledby="{_anchor(item)}">',
        f'<h3 id="{_anchor(item)}">{escape(item.name)}. {escape(item.title)}</h3>',
    ]
    if item.note:
        parts.append(f"<p>{escape(item.note)}</p>")
    if item.needs is not None:
        parts.append(f'<p class="missing">{escape(item.needs)}</p>')
    if item.pictures:
        drawn = "".join(_figure(item, number) for number in range(len(item.pictures)))
        parts.append(f'<div class="pictures">{drawn}</div>')
    if item.values:
        table = _table(item)
        if len(item.values) > _MANY:
            table = f"<details><summary>{len(item.values)} values</summary>{table}</details>"
        parts.append(table)
    parts.append("</section>")
    return "\n".join(parts)


def _figure(item: Item, number: int) -> str:
    picture = item.pictures[number]
    drawn = svg(picture, prefix=f"{_anchor(item)}-{number}-")
    return f"<figure>{drawn}<figcaption>{escape(description(picture))}</figcaption></figure>"


def _table(item: Item) -> str:
    rows = "\n".join(_row(value) for value in item.values)
    head = "".join(f'<th scope="col">{name}</th>' for name in ("", "printed", "ours", "erratum"))
    caption = f"{item.name} of paper {item.paper}: as printed, and as computed here"
    return (
        f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>\n"
        f"<tbody>{rows}</tbody></table>"
    )


def _row(value: Value) -> str:
    off = ' class="off"' if value.differs else ""
    return (
        f'<tr{off}><th scope="row">{escape(value.label)}</th>'
        f'<td class="number printed">{escape(printed(value))}</td>'
        f'<td class="number">{escape(shown(value.ours))}</td>'
        f'<td class="why">{escape(value.erratum or "")}</td></tr>'
    )
