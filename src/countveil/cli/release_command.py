"""`countveil release`: charge, draw once, publish."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from countveil.cli import showing
from countveil.cli.command_line import command
from countveil.cli.options import (
    AsJson,
    EngineName,
    LedgerPath,
    PlanPath,
    Quiet,
    ShowValues,
    Workers,
)
from countveil.errors import InputError


@command("release")
def release(
    plan: PlanPath,
    to: Annotated[Path, typer.Option("--to", help="The release folder to write.")] = Path("out"),
    ledger: LedgerPath = None,
    engine: EngineName = "local",
    show_values: ShowValues = False,
    above_limit: Annotated[
        bool,
        typer.Option("--above-limit", help="Release even if the risk is above the plan's limit."),
    ] = False,
    restart: Annotated[
        bool,
        typer.Option(
            "--restart/--resume",
            help="Start an unfinished release over, or continue it.",
        ),
    ] = False,
    charge_again: Annotated[
        bool,
        typer.Option("--charge-again", help="With --restart: accept a second charge in full."),
    ] = False,
    workers: Workers = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Charge the ledger, draw the noise once, and publish the tables of a plan.

    Reads the plan with its crosswalk and records. Writes a charge to the ledger, the release to the
    folder OUT of --to, and what is confidential to OUT-internal.

    After an interruption, run the same command again: it resumes, and neither charges nor draws
    twice. --restart sets the unfinished run aside in a private folder and starts a new release. If
    noise was already charged, it also needs --charge-again, and the new release is charged in full.

    Example: `countveil release plan.toml --to out`

    On a Spark cluster: `countveil release plan.toml --to out --engine spark`

    Start over and pay again: `countveil release plan.toml --to out --restart --charge-again`
    """
    from countveil import pipeline
    from countveil.base import storage
    from countveil.base.randomness import Secure
    from countveil.measure.run import copied_along
    from countveil.plan.plans import Plan

    if charge_again and not restart:
        raise InputError(
            "--charge-again: needs --restart; add it, or leave out --charge-again to resume"
        )
    loaded = Plan.load(plan)
    manifest = to / "manifest.json"
    before = storage.read_file(manifest) if manifest.exists() else None
    path = loaded.ledger_path if ledger is None else ledger
    warnings = []
    together = copied_along(path, to, loaded.folder) if before is None else None
    if together is not None:
        place, what = together
        near, shared = showing.shorter_path(path), showing.shorter_path(place)
        warnings.append(
            f"{near} is in the same folder as {what} ({shared}), so a copy "
            f"or snapshot of that folder includes the ledger, and each copy could draw for the same "
            f"charge; move the ledger elsewhere and give its new path in the plan ([ledger] path) or "
            f"with --ledger"
        )
    if not as_json:
        for warning in warnings:
            showing.warn(warning)
    with showing.levels(quiet) as progress:
        release = pipeline.release(
            loaded,
            to=to,
            rng=Secure(),
            ledger=ledger,
            engine=engine,
            show_values=show_values,
            above_limit=above_limit,
            restart=restart,
            charge_again=charge_again,
            workers=workers,
            progress=progress,
        )
    book = loaded.ledger(ledger)
    left = loaded.left_in(book)
    if as_json:
        showing.print_json(
            {
                "folder": str(to),
                "release": release.manifest["release"],
                "cost": release.manifest.get("cost") or release.manifest["guarantee"],
                "released_before": before is not None,
                "left": left,
                "warnings": warnings,
                "files": list(release.manifest["files"]),
            }
        )
    elif before == storage.read_file(manifest):
        print(f"{to}: already released; nothing was charged or drawn")
    elif before is not None:
        print(f"{to}: already measured; its tables were made again, nothing was charged or drawn")
    else:
        near = showing.shorter_path(book.path)
        print(f"{to}: released for {loaded.price}; {near} has {left} left")
