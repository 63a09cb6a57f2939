"""`countveil report`: one page for a review board, written into the release."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from countveil.cli import showing
from countveil.cli.application import command
from countveil.cli.commands import AsJson, OutPath


@command
def report(
    out: OutPath,
    ledger: Annotated[
        Path | None, typer.Option("--ledger", help="Also say what is spent and left.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", help="Write it there, and not into the release.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the public report of a release: risk, error, guarantee and method on one HTML page.

    It is made from what is published alone, needs no network, and is added to the release.

    Example: `countveil report out --ledger ledger.sqlite`
    """
    from countveil import storage
    from countveil.release import Release
    from countveil.release.attachment import REPORT, attach
    from countveil.report.document import public_report

    release = Release.read(out)
    book = None if ledger is None else release.plan.ledger(ledger)
    page = public_report(release, ledger=book).encode()
    target = out / REPORT if to is None else to
    if to is None:
        attach(release, REPORT, page)
    else:
        storage.write_bytes(to, page)
    if as_json:
        showing.print_json({"report": str(target), "bytes": len(page)})
    else:
        print(target)
