"""`countveil assess reconstruction`: what exact tables would give away."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from countveil.cli import showing
from countveil.cli.assess_commands.assess_group import (
    Internal,
    PlanOfRecords,
    Target,
    lens_command,
    show_section,
)
from countveil.cli.options import AsJson, EngineName, Quiet, ShowValues
from countveil.errors import InputError
from countveil.report.lenses import lens_named

if TYPE_CHECKING:
    from countveil.base.histograms import Histograms
    from countveil.plan.geography import Geography
    from countveil.plan.plans import Plan


@lens_command("reconstruction")
def assess_reconstruction(
    context: typer.Context,
    target: Target,
    internal: Internal = False,
    plan: PlanOfRecords = None,
    level: Annotated[
        str | None,
        typer.Option("--level", help="Level of the places; default: the lowest measured one."),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            help="Table to take as exact, such as P1 or AGE*SEX; repeat for more; default: the plan's.",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, help="Count databases up to this number.")
    ] = 1_000_000,
    units: Annotated[
        int, typer.Option(min=1, help="Examine at most this many places, evenly spaced.")
    ] = 100_000,
    engine: EngineName = "local",
    show_values: ShowValues = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run the lens `reconstruction` on the tables, level and places of choice.

    For each place, it counts the databases that agree with its tables. Where there is only one, every
    record could be reconstructed. Next to that, it shows what can be inferred from the noisy release.

    Reads a release folder and treats its estimates as exact. With --internal, it reads the
    records of a release or of a plan instead; do not publish that result. Writes nothing.

    Example: `countveil assess reconstruction out`, or
    `countveil assess reconstruction plan.toml --internal --table AGE --table RACE`
    """
    from countveil.assess.reconstruction.level_reconstruction import reconstruct, record_risks

    if not internal:
        used = {"level", "table", "limit", "units"}
        showing.refuse_unused(context, used, "a release without --internal")
    subject, histograms, places = _counted(target, internal, plan, engine, show_values)
    place_level = subject.estimated_levels[-1] if level is None else level
    if place_level not in histograms:
        raise InputError(f"unknown level {place_level!r}; choose from {', '.join(histograms)}")
    places_shown = min(units, histograms[place_level].units)
    with showing.progress_bar("counting databases", places_shown, quiet) as step:
        reconstruction = reconstruct(
            subject,
            histograms[place_level],
            level=place_level,
            audience="internal" if internal else "public",
            tables=table or (),
            limit=limit,
            most_units=units,
            progress=lambda done, of: step(done),
        )
    risks = record_risks(subject, geography=places)
    section = lens_named("reconstruction").section_of(subject, reconstruction, risks)
    show_section(section, "reconstruction", as_json=as_json)


def _counted(
    target: Path, internal: bool, plan: Path | None, engine: str, show_values: bool
) -> tuple[Plan, dict[str, Histograms], Geography]:
    """Return a plan, the histograms of its levels, exact ones if internal, and its places."""
    from countveil.cli.records_again import counts_again
    from countveil.engines.engine import open_engine
    from countveil.plan.plans import Plan, require_counts
    from countveil.publish.release_folder import Release

    if target.is_dir():
        release = Release.read(target)
        if internal:
            counts = counts_again(release, plan, show_values, engine)
            return release.plan, counts.levels, counts.geography
        return release.plan, release.estimates.levels, release.geography
    if target.suffix != ".toml" or not target.is_file():
        raise InputError(f"{target}: not found; name a release folder or a plan file (.toml)")
    if not internal:
        raise InputError(
            f"{target}: a plan has no counts; name a release folder, or add --internal to read its "
            f"records"
        )
    if plan is not None:
        raise InputError("--plan: has no effect with a plan file; remove it")
    loaded = require_counts(Plan.load(target), "reconstruction")
    tabulated = open_engine(engine, show_values=show_values).tabulate(loaded)
    return loaded, tabulated.levels, tabulated.geography
