"""`countveil reproduce`: tables and figures of the five papers, printed beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from countveil.cli import showing
from countveil.cli.command_line import command
from countveil.cli.commands import AsJson, Quiet
from countveil.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from countveil.papers.item import Entry, Item


@command("reproduce")
def reproduce(
    paper: Annotated[
        str | None, typer.Argument(metavar="[PAPER]", help="002, 000, 001, 003 or 004; all if not.")
    ] = None,
    item: Annotated[
        str | None, typer.Argument(metavar="[ITEM]", help="Such as table-3; all if not given.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write a gallery page into this folder.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="A folder with files that cannot be shipped.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer draws where an item is simulated.")
    ] = False,
    listing: Annotated[bool, typer.Option("--list", help="Only name the items.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compute tables and figures of the papers, and show what is printed beside what is right.

    Example: `countveil reproduce 002 table-3 --out gallery`
    """
    from countveil.papers import catalogue

    if item is not None and paper is None:
        raise InputError("paper: name the paper of the item, such as 002")
    entries = catalogue.items(paper)
    if listing:
        _list(entries, as_json)
        return
    wanted = [(e.paper, e.name) for e in entries] if item is None else [(str(paper), item)]
    found: list[Item] = []
    with showing.progress_bar("reproducing", len(wanted), quiet) as step:
        for number, (of_paper, name) in enumerate(wanted):
            found.append(catalogue.reproduce(of_paper, name, data=data, quick=quick))
            step(number + 1)
    page = None
    if out is not None:
        from countveil.papers import gallery

        page = gallery.write(found, out)
    if as_json:
        from countveil.papers.item_text import item_json

        items = [item_json(result) for result in found]
        showing.print_json({"items": items, "gallery": None if page is None else str(page)})
        return
    console = showing.console()
    for result in found:
        console.print(_view(result))
        for said in filter(None, (result.note, result.needs)):
            console.print(said)
        console.print()
    if page is not None:
        print(f"Written: {page}")


def _list(entries: tuple[Entry, ...], as_json: bool) -> None:
    if as_json:
        rows = [
            {"paper": e.paper, "item": e.slug, "title": e.title, "needs": e.needs} for e in entries
        ]
        showing.print_json({"items": rows})
        return
    from countveil.report.terminal import plain_table

    table = plain_table()
    for name in ("paper", "item", "title", "needs"):
        table.add_column(name)
    for entry in entries:
        table.add_row(entry.paper, entry.slug, entry.title, entry.needs or "")
    showing.console().print(table)


def _view(item: Item) -> Table:
    from rich.text import Text

    from countveil.papers.item_text import display, display_printed
    from countveil.report.terminal import plain_table

    table = plain_table(Text(f"{item.paper} {item.name}. {item.title}"))
    for name in ("", "printed", "ours", "erratum"):
        table.add_column(name)
    for value in item.values:
        # Text, so that no bracket of a label is read as markup.
        cells = (value.label, display_printed(value), display(value.ours), value.erratum or "")
        table.add_row(*map(Text, cells))
    for chart in item.charts:
        table.add_row(Text(f"chart: {chart.title}"), "", "", "")
    return table
