"""`countveil demo`: price, release and verify the counts of a synthetic population."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from countveil.cli import showing
from countveil.cli.command_line import command
from countveil.cli.options import AsJson, Quiet


@command("demo")
def run_demo(
    to: Annotated[Path, typer.Option("--to", help="A new folder to write to.")] = Path(
        "countveil-demo"
    ),
    people: Annotated[int, typer.Option(min=100, help="Number of synthetic people.")] = 100_000,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Price, release and verify the counts of a synthetic population.

    Reads nothing. Writes the population, a plan and a release to a new folder, and a ledger
    next to it.

    Example: `countveil demo --to demo`
    """
    from countveil import pipeline
    from countveil.base.randomness import Secure
    from countveil.demo import starter
    from countveil.plan.plans import Plan, require_counts
    from countveil.publish.release_folder import Release
    from countveil.report.terminal import price_tables

    with showing.progress_bar("generating people", people, quiet) as step:
        plan_path = starter.write_demo(to, people=people, seed=2020, progress=step)
    plan = require_counts(Plan.load(plan_path), "the demonstration")
    price = pipeline.price(plan)
    out = to / "out"
    with showing.levels(quiet) as progress:
        pipeline.release(plan, to=out, rng=Secure(), progress=progress)
    release = Release.read(out)
    verification = release.verify(plan.ledger_path)
    written = [
        plan_path,
        plan.ledger_path,
        out / "manifest.json",
        out / "measurements",
        out / "invariants",
        out / "estimates",
        out / "tables",
    ]
    if as_json:
        showing.print_json(
            {
                "price": price_tables.price_document(price),
                "verified": verification.checks,
                "written": [str(path) for path in written],
            }
        )
        return
    console = showing.console()
    console.print(price_tables.price_view(price))
    console.print()
    console.print(price_tables.released_totals(release, "county"))
    console.print()
    console.print(price_tables.certificate_table(release.certificate))
    console.print("\nVerified:")
    for line in verification.checks:
        console.print(f"  {line}", soft_wrap=True)
    console.print("\nWritten:")
    for path in written:
        console.print(f"  {path}", soft_wrap=True)
    console.print(f"\nNext: countveil price {plan_path} --every-query", soft_wrap=True)
