"""`countveil assess published-homogeneity`: groups that the published tables show with one value."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from countveil.cli import showing
from countveil.cli.assess_commands.assess_group import (
    Internal,
    PlanOfRecords,
    Target,
    lens_command,
    show_section,
)
from countveil.cli.internal_files import write_internal
from countveil.cli.options import AsJson, EngineName, Quiet, ShowValues
from countveil.errors import InputError
from countveil.report.lenses import lens_named


@lens_command("published-homogeneity")
def assess_published_homogeneity(
    context: typer.Context,
    target: Target,
    sensitive: Annotated[
        str | None,
        typer.Option(help="Attribute the intruder wants to learn; default: each in turn."),
    ] = None,
    identifiers: Annotated[
        list[str] | None,
        typer.Option(
            help="Attribute the intruder knows; repeat for more; default: only the place, or all "
            "others if no --sensitive is given."
        ),
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(help="Level of the place they know; default: where the plan is judged."),
    ] = None,
    draws: Annotated[int, typer.Option(help="Releases to simulate.")] = 2_000,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 1,
    internal: Internal = False,
    plan: PlanOfRecords = None,
    engine: EngineName = "local",
    show_values: ShowValues = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Show how many people a homogeneity attack on the published tables reveals, between two ends.

    An intruder who knows a person's place and identifiers believes a value if the tables show no other
    there. Reads the release folder and writes nothing: releases are simulated as if its estimates were
    the truth. With --internal, it reads the records instead and writes the result to the internal
    folder. From a plan file, it shows a made-up example: someone alone in their place, and ten people
    in one other place. What would take more than ten minutes is refused.

    Example: `countveil assess published-homogeneity out --sensitive RACE --identifiers AGE`
    """
    import pyarrow as pa

    from countveil.assess.published.simulation_cost import refuse_long
    from countveil.assess.published.tables_homogeneity import Attack, published_attacks
    from countveil.base.randomness import Seeded
    from countveil.cli.records_again import counts_again, lowest_histograms
    from countveil.measure.run import internal_of
    from countveil.publish.release_folder import Release
    from countveil.report.sections.published_homogeneity_section import every_attack
    from countveil.report.sections.published_section import estimated_counts

    if plan is not None and not internal:
        raise InputError(
            "--plan: has no effect without --internal; add --internal or remove --plan"
        )
    if sensitive is None and identifiers is not None:
        raise InputError(
            "--sensitive: missing; name the attribute that the intruder wants to learn"
        )
    if not target.is_dir():
        showing.refuse_unused(context, {"draws", "seed"}, "a plan file")
        _show_example(target, draws, seed, as_json=as_json, quiet=quiet)
        return
    out = target
    release = Release.read(out)
    released, geography = release.plan, release.geography
    attacks = every_attack(released)
    if sensitive is not None:
        attacks = [Attack(sensitive, tuple(identifiers or ()))]
    if not attacks:
        raise InputError(f"{out}: no attribute has several values, so there is nothing to learn")
    if internal:
        exact = counts_again(release, plan, show_values, engine)
        table = lowest_histograms(released, geography, exact)
    else:
        table = estimated_counts(release)
    place = level or released.judged_level
    if place in released.estimated_levels:
        refuse_long(released, geography, {place: range(geography.units(place))}, draws)
    with showing.progress_bar("simulating releases", draws, quiet) as step:
        risks = published_attacks(
            released,
            attacks,
            counts=table,
            level=place,
            draws=draws,
            rng=Seeded(seed),
            geography=geography,
            audience="internal" if internal else "public",
            progress=lambda done, _: step(done),
        )
    section = lens_named("published-homogeneity").section_of(risks)
    if internal:
        figures = pa.Table.from_pylist(section.figures["attacks"])
        write_internal(internal_of(out), "published-homogeneity", section.document, figures)
    show_section(section, "published-homogeneity", as_json=as_json)


def _show_example(path: Path, draws: int, seed: int, *, as_json: bool, quiet: bool) -> None:
    """Print what the attack on the tables of a plan reveals in a made-up example."""
    from countveil.base.randomness import Seeded
    from countveil.cli.assess_commands.assess_group import subject_of
    from countveil.report.sections.published_homogeneity_section import example

    plan = subject_of(path, needs="plan").plan
    with showing.progress_bar("simulating releases", draws, quiet) as step:
        section = example(plan, draws=draws, rng=Seeded(seed), progress=lambda done, _: step(done))
    show_section(section, "published-homogeneity", as_json=as_json)
