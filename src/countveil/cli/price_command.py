"""`countveil price`: the cost, noise and risk of a plan."""

from __future__ import annotations

from typing import Annotated

import typer

from countveil.cli import showing
from countveil.cli.command_line import command
from countveil.cli.options import AsJson, PlanPath


@command("price")
def price(
    plan: PlanPath,
    every_query: Annotated[
        bool, typer.Option("--every-query", help="Show the noise of every query.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a plan costs, how noisy its counts are and what an intruder would learn.

    Reads the plan file, but no records. Writes nothing. The exit status is 1 if the risk is above the
    plan's limit.

    Example: `countveil price plan.toml --json`
    """
    from countveil import pipeline
    from countveil.plan.plans import Plan, require_counts
    from countveil.report.terminal import price_tables

    priced = pipeline.price(require_counts(Plan.load(plan), "price"))
    if as_json:
        showing.print_json(price_tables.price_document(priced))
    else:
        showing.console().print(price_tables.price_view(priced, every_query=every_query))
    if priced.verdict.status == "above":
        raise typer.Exit(1)
