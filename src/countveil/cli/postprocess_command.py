"""`countveil postprocess`: the tables of a release, made again from its measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from countveil.cli import showing
from countveil.cli.command_line import command
from countveil.cli.options import AsJson, EngineName, OutPath, Quiet, Workers


@command("postprocess")
def postprocess_release(
    out: OutPath,
    plan: Annotated[
        Path | None,
        typer.Option("--plan", help="A plan with a different [postprocess] or constraints."),
    ] = None,
    engine: EngineName = "local",
    workers: Workers = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Make the tables of a release again from its measurements.

    Reads the release folder, but no records. Replaces its estimates and tables; charges nothing.

    Example: `countveil postprocess out --plan plan.toml`
    """
    from countveil import pipeline
    from countveil.engines.engine import open_engine
    from countveil.plan.plans import Plan, require_counts

    other = None if plan is None else require_counts(Plan.load(plan), "post-processing")
    with (
        showing.levels(quiet, counting=False) as progress,
        open_engine(engine).workers(workers) as team,
    ):
        release = pipeline.make_estimates(
            out, other, engine=engine, workers=team, progress=progress
        )
    if as_json:
        showing.print_json({"folder": str(out), "estimates": release.manifest.get("estimates")})
    elif "estimates" not in release.manifest:
        print(
            f'{out}: its plan has method = "none"; to make estimates, name a plan with method = '
            f'"top-down"'
        )
    else:
        from countveil.report.terminal import price_tables

        showing.console().print(price_tables.certificate_table(release.certificate))
