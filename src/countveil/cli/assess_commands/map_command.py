"""`countveil assess map`: where the risk is, place by place."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from countveil.cli import showing
from countveil.cli.assess_commands.assess_group import (
    Internal,
    KnownLevel,
    PlanOfRecords,
    assess_app,
)
from countveil.cli.command_line import ending_well
from countveil.cli.options import AsJson, EngineName, OutPath, Priors, Quiet, ShowValues, Workers
from countveil.errors import InputError


@assess_app.command("map")
@ending_well
def assess_map(
    out: OutPath,
    internal: Internal = False,
    plan: PlanOfRecords = None,
    prior: Priors = None,
    level: KnownLevel = None,
    places: Annotated[
        str | None,
        typer.Option(help="Level whose places are listed; default: the highest."),
    ] = None,
    engine: EngineName = "local",
    workers: Workers = None,
    show_values: ShowValues = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Show the risk place by place.

    Reads the release folder and writes nothing. With --internal, it also reads the records and maps
    the risk of everyone counted; that map is written to the internal folder.

    Example: `countveil assess map out --prior 0.02 --places county`
    """
    from countveil.assess.risk_maps import internal_map, public_map
    from countveil.cli.records_again import counts_again
    from countveil.engines.engine import open_engine
    from countveil.measure.run import internal_of
    from countveil.publish.release_folder import Release
    from countveil.report.terminal import risk_terminal

    release = Release.read(out)
    if plan is not None and not internal:
        raise InputError(
            "--plan: has no effect without --internal; add --internal or remove --plan"
        )
    for known, name in ((release.plan.measured_levels, level), (release.plan.levels, places)):
        if name is not None and name not in known:
            raise InputError(f"unknown level {name!r}; choose from {', '.join(known)}")
    counts = counts_again(release, plan, show_values, engine) if internal else None
    geography = release.geography
    how: dict[str, Any] = {
        "prior": min(release.plan.intruder.priors if prior is None else prior),
        "level": release.plan.judged_level if level is None else level,
        "places": places,
    }
    units = geography.units(how["level"])
    # Starting processes takes longer than most maps; Spark executors are already running.
    alone = 1 if engine == "local" and workers is None else workers
    with open_engine(engine).workers(alone) as team:
        how["workers"] = team
        with showing.progress_bar("mapping published values", units, quiet) as step:
            maps = [
                public_map(
                    release.measurements, geography, progress=lambda done, _: step(done), **how
                )
            ]
        if counts is not None:
            with showing.progress_bar("mapping everyone counted", units, quiet) as step:
                realised = internal_map(
                    release.measurements, counts, progress=lambda done, _: step(done), **how
                )
            realised.write(internal_of(out))
            maps.append(realised)
    if as_json:
        showing.print_json(
            {"audience": maps[-1].audience, "maps": [item.document for item in maps]}
        )
        return
    console = showing.console()
    for item in maps:
        console.print(risk_terminal.map_view(item))
    if counts is not None:
        console.print(f"\nWritten: {internal_of(out)}/risk.json and its tables", soft_wrap=True)
