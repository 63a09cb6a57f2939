"""`countveil check`: whether a plan can be released."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from countveil.cli import showing
from countveil.cli.command_line import command
from countveil.cli.options import AsJson, EngineName, ShowValues
from countveil.errors import InputError


@command("check")
def check(
    plan: Annotated[Path | None, typer.Argument(metavar="PLAN", help="A plan file (TOML).")] = None,
    engine: EngineName = "local",
    show_values: ShowValues = False,
    schema: Annotated[
        bool, typer.Option("--json-schema", help="Print the JSON Schema of plan files and exit.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check that a plan can be released.

    Reads the plan with its crosswalk, records and ledger. Writes nothing and charges nothing. It also
    rehearses post-processing on simulated people, so that no release is charged for tables that
    cannot be made.

    Example: `countveil check plan.toml`
    """
    if schema:
        from countveil.plan.plan_file import json_schema

        showing.print_json(json_schema())
        return
    if plan is None:
        raise InputError("check: PLAN is missing; name a plan file: countveil check plan.toml")
    from countveil import pipeline
    from countveil.plan.plans import Plan

    loaded = Plan.load(plan)
    with showing.levels(as_json or not sys.stderr.isatty()) as progress:
        pipeline.check(loaded, engine=engine, show_values=show_values, progress=progress)
    if isinstance(loaded, Plan):
        pipeline.refuse_risk_above_limit(loaded)
    if as_json:
        showing.print_json({"plan": str(plan), "fine": True, "cost": loaded.price})
    else:
        print(f"{plan}: valid; a release would cost {loaded.price}")
