"""`countveil init`: a commented plan and a small synthetic data set to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from countveil.cli import showing
from countveil.cli.command_line import command
from countveil.cli.options import AsJson


@command("init")
def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new or empty folder.")],
    people: Annotated[int, typer.Option(min=50, help="Number of synthetic people.")] = 2_000,
    as_json: AsJson = False,
) -> None:
    """Write a commented plan and a small synthetic data set to start from.

    Reads nothing. Writes plan.toml, people.csv, blocks.csv and plan.schema.json to FOLDER.

    Example: `countveil init my-release && countveil price my-release/plan.toml`
    """
    from countveil.demo import starter

    written = [str(path) for path in starter.write_start(folder, people=people, seed=1)]
    ledger = showing.shorter_path(starter.ledger_of(folder))
    if as_json:
        showing.print_json({"written": written, "ledger": ledger})
        return
    for path in written:
        print(path)
    print(f"\nThe first release will create the ledger outside this folder: {ledger}")
    print(f"Next: countveil price {written[0]}")
