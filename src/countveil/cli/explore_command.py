"""`countveil explore`: a local page that shows risk, error and cost as you change a plan."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Annotated

import typer

from countveil.cli.command_line import command
from countveil.errors import MissingExtra, Stopped


@command("explore")
def explore(
    plan: Annotated[
        Path | None,
        typer.Argument(metavar="PLAN", help="A plan file; default: the starter plan."),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to serve on; 0 picks a free one.")
    ] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")
    ] = True,
) -> None:
    """Serve a local page that shows risk, error and cost as you change a plan.

    Reads plan files only: no records, no ledger, no release. Writes nothing. Press Ctrl-C to stop.

    Example: `countveil explore plan.toml`
    """
    try:
        from countveil.explorer.browser import browser_at
        from countveil.explorer.server import Explorer
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn", "anyio", "h11"):
            raise
        raise MissingExtra(
            "the explorer needs starlette and uvicorn: pip install 'countveil[explore]'"
        ) from None
    explorer = Explorer.start(plan, port=port)
    with suppress(KeyboardInterrupt, Stopped):
        print(f"The explorer is at {explorer.address}\nPress Ctrl-C to stop.", flush=True)
        with browser_at(explorer.opening) if browser else nullcontext():
            explorer.run()
    print("The explorer has stopped.")
