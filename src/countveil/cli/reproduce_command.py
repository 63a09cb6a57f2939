"""`countveil reproduce`: tables and figures of the five papers, next to our numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from countveil.cli import showing
from countveil.cli.command_line import command
from countveil.cli.options import AsJson, Quiet
from countveil.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from countveil.papers.item import Entry, Item


@command("reproduce")
def reproduce(
    paper: Annotated[
        str | None, typer.Argument(metavar="PAPER", help="000, 001, 002, 003 or 004; default: all.")
    ] = None,
    item: Annotated[
        str | None, typer.Argument(metavar="ITEM", help="An item, such as table-3; default: all.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write a gallery page to this folder.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Folder with data that countveil may not redistribute."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use fewer draws for simulated items.")
    ] = False,
    list_only: Annotated[bool, typer.Option("--list", help="Only list the items.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Recompute tables and figures of the papers, and compare them with the printed numbers.

    Reads nothing, or the data in --data. Writes a page only with --out.

    Example: `countveil reproduce 002 table-3 --out gallery`
    """
    from countveil.papers import catalogue

    if item is not None and paper is None:
        raise InputError("PAPER: missing; name the paper of the item, such as 002")
    entries = catalogue.items(paper)
    if list_only:
        _list(entries, as_json)
        return
    names = [(e.paper, e.name) for e in entries] if item is None else [(str(paper), item)]
    results: list[Item] = []
    with showing.progress_bar("reproducing", len(names), quiet) as step:
        for number, (of_paper, name) in enumerate(names):
            results.append(catalogue.reproduce(of_paper, name, data=data, quick=quick))
            step(number + 1)
    page = None
    if out is not None:
        from countveil.papers import gallery

        page = gallery.write(results, out)
    if as_json:
        from countveil.papers.item_text import item_json

        items = [item_json(result) for result in results]
        showing.print_json({"items": items, "gallery": None if page is None else str(page)})
        return
    console = showing.console()
    for result in results:
        console.print(_view(result))
        for remark in filter(None, (result.note, result.needs)):
            console.print(remark)
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
    from countveil.report.terminal.terminal_tables import plain_table

    table = plain_table()
    for name in ("paper", "item", "title", "needs"):
        table.add_column(name)
    for entry in entries:
        table.add_row(entry.paper, entry.slug, entry.title, entry.needs or "")
    showing.console().print(table)


def _view(item: Item) -> Table:
    from rich.text import Text

    from countveil.papers.item_text import display, display_printed
    from countveil.report.terminal.terminal_tables import plain_table

    table = plain_table(Text(f"{item.paper} {item.name}. {item.title}"))
    for name in ("", "printed", "ours", "erratum"):
        table.add_column(name)
    for value in item.values:
        # As Text: a bracket in a label is not markup.
        cells = (value.label, display_printed(value), display(value.ours), value.erratum or "")
        table.add_row(*map(Text, cells))
    for chart in item.charts:
        table.add_row(Text(f"chart: {chart.title}"), "", "", "")
    return table
