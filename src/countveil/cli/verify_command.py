"""`countveil verify`: the files, costs, sums and tables of a release."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from countveil.cli import showing
from countveil.cli.command_line import command
from countveil.cli.options import AsJson, OutPath


@command("verify")
def verify(
    out: OutPath,
    ledger: Annotated[
        Path | None, typer.Option("--ledger", help="Also check the charge in this ledger.")
    ] = None,
    simulation: Annotated[
        bool, typer.Option("--simulation", help="Accept noise that was drawn from a seed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check the files, costs, sums and tables of a release.

    Reads the release folder and, with --ledger, its charge. Writes nothing. Without --ledger, it shows
    that the folder is consistent, not that its numbers were drawn once and charged.

    Example: `countveil verify out --ledger ledger.sqlite`
    """
    from countveil.publish.release_folder import open_release

    verification = open_release(out).verify(ledger, simulation=simulation)
    if as_json:
        document = {"verified": verification.checks, "limits": verification.limits}
        showing.print_json({"folder": str(out), **document})
    else:
        for line in verification.checks:
            print(f"{out}: {line}")
        for line in verification.limits:
            print(f"{out}: limit: {line}")
