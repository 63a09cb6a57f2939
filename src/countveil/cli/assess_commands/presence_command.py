"""`countveil assess presence`: what someone who knows everyone else in a place would learn."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from countveil.cli.assess_commands.assess_group import (
    Internal,
    KnownLevel,
    PlanOfRecords,
    Target,
    lens_command,
    show_lens,
    show_section,
)
from countveil.cli.options import AsJson, EngineName, Priors, Quiet, ShowValues
from countveil.errors import InputError
from countveil.report.lenses import lens_named

_UNIT = "One released unit"


@lens_command("presence")
def assess_presence(
    target: Target,
    prior: Priors = None,
    level: KnownLevel = None,
    unit: Annotated[
        str | None,
        typer.Option(
            metavar="GEOCODE",
            help="Answer for this unit, with its released counts.",
            rich_help_panel=_UNIT,
        ),
    ] = None,
    table: Annotated[
        str, typer.Option(help="Table in which the target may be counted.", rich_help_panel=_UNIT)
    ] = "TOTAL",
    cell: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CATEGORY",
            help="Category of the target; repeat for each attribute of the table.",
            rich_help_panel=_UNIT,
        ),
    ] = None,
    known: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Number of others in that cell, whom the intruder knows.",
            rich_help_panel=_UNIT,
        ),
    ] = None,
    internal: Internal = False,
    plan: PlanOfRecords = None,
    engine: EngineName = "local",
    show_values: ShowValues = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run the lens `presence`, or answer for one released unit.

    Reads a plan file or a release folder. With --unit, it answers for one released unit: from its
    counts, those of its siblings and of every larger unit, exactly. Writes nothing.

    Example: `countveil assess presence out`

    Example: `countveil assess presence out --unit 0101 --table SEX --cell female --known 3`
    """
    if unit is None:
        if cell is not None or known is not None or table != "TOTAL":
            raise InputError(
                "--table, --cell, --known: have no effect without --unit; name a unit or remove them"
            )
        show_lens(
            lens_named("presence"),
            target,
            priors=prior,
            level=level,
            internal=internal,
            plan=plan,
            engine=engine,
            show_values=show_values,
            as_json=as_json,
            quiet=quiet,
        )
        return
    if internal or plan is not None:
        raise InputError(
            "--internal, --plan: have no effect with --unit, which reads no records; remove them"
        )
    if known is None:
        raise InputError(
            "--known: missing; with --unit, say how many others in that cell the intruder knows"
        )
    from countveil.publish.release_folder import Release
    from countveil.report.sections.unit_section import section_of

    if not target.is_dir():
        raise InputError(f"{target}: --unit needs released counts; name a release folder")
    release = Release.read(Path(target))
    section = section_of(
        release,
        unit=unit,
        level=level,
        table=table,
        cell=tuple(cell or ()),
        known=known,
        priors=tuple(prior) if prior else tuple(release.plan.intruder.priors),
    )
    show_section(section, "presence", as_json=as_json)
