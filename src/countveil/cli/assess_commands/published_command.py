"""`countveil assess published`: what the published tables reveal about one person, between two ends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

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
from countveil.cli.options import AsJson, EngineName, Priors, Quiet, ShowValues
from countveil.errors import InputError
from countveil.report.lenses import lens_named

if TYPE_CHECKING:
    from countveil.plan.geography import Geography
    from countveil.plan.plans import Plan
    from countveil.report.audience import Audience


@lens_command("published")
def assess_published(
    context: typer.Context,
    target: Target,
    unit: Annotated[
        str | None,
        typer.Option(help="Geocode of the lowest unit; default: where the rarest count is."),
    ] = None,
    cell: Annotated[
        str | None,
        typer.Option(help='Category of each attribute, such as "AGE=old,SEX=f".'),
    ] = None,
    prior: Priors = None,
    knows: Annotated[
        str | None,
        typer.Option(
            help="Level of the place in which they know everyone else; default: that of the plan."
        ),
    ] = None,
    siblings: Annotated[
        str | None,
        typer.Option(
            help="What they know about other places: flat (nothing), prior (a Poisson number of "
            "people, with these means) or known; default: what the plan says."
        ),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            help="The delta at which to show the epsilon of the tables for this person; default: "
            "0.001."
        ),
    ] = None,
    draws: Annotated[int, typer.Option(help="Releases to simulate.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 1,
    internal: Internal = False,
    plan: PlanOfRecords = None,
    engine: EngineName = "local",
    show_values: ShowValues = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run the lens `published` for a person and a prior of choice.

    The intruder is that of the plan: they know everyone else in a place of the level that `knows`
    names. Reads the release folder and writes nothing: releases are simulated as if its estimates were
    the truth. With --internal, it reads the records instead and writes the result to the internal
    folder. From a plan file, it shows a made-up example: someone alone in their place, next to one
    other place. What would take more than ten minutes is refused.

    Example: `countveil assess published out --unit 1001 --cell "AGE=old,SEX=f" --prior 0.02`, or
    `countveil assess published out --siblings known --delta 0.01`, or
    `countveil assess published plan.toml`
    """
    import pyarrow as pa

    from countveil.base.randomness import Seeded
    from countveil.cli.records_again import counts_again, lowest_histograms
    from countveil.measure.run import internal_of
    from countveil.publish.release_folder import Release
    from countveil.report.sections.published_section import (
        DELTA,
        Person,
        brackets,
        estimated_counts,
        own_intruder,
        rarest,
        refuse_long_simulation,
    )

    if plan is not None and not internal:
        raise InputError(
            "--plan: has no effect without --internal; add --internal or remove --plan"
        )
    if not target.is_dir():
        showing.refuse_unused(context, {"prior", "delta", "draws", "seed"}, "a plan file")
        _show_example(target, prior, delta, draws, seed, as_json=as_json, quiet=quiet)
        return
    out, known = target, _siblings(siblings)
    release = Release.read(out)
    released, geography = release.plan, release.geography
    stated = "flat" if released.intruder.siblings == "flat" else "prior"
    if delta is not None and (known or stated) == "prior":
        raise InputError(
            "--delta: epsilon is not computed where other places have a prior; add --siblings flat "
            "or known, or remove --delta"
        )
    lowest = released.levels[-1]
    if internal:
        exact = counts_again(release, plan, show_values, engine)
        table = lowest_histograms(released, geography, exact)
    else:
        table = estimated_counts(release)
    person = rarest(table, released)
    if person is None:
        raise InputError(f"{out}: every count is 0, so there is no target")
    if unit is not None or cell is not None:
        number = person.unit if unit is None else _unit(geography, lowest, unit)
        place = person.cell if cell is None else _cell(released, cell)
        if table[number, place] < released.rows_per_person:
            # The target is added: what the intruder suspects need not be what is estimated.
            table[number, place] = released.rows_per_person
        person = Person(number, place)
    audience: Audience = "internal" if internal else "public"
    two = own_intruder(released, table, person, geography, siblings=known, knows=knows)
    refuse_long_simulation(two, draws)
    with showing.progress_bar("simulating releases", draws // 2, quiet) as step:
        bracket = brackets(
            two,
            prior=min(released.intruder.priors if prior is None else prior),
            draws=draws,
            delta=DELTA if delta is None else delta,
            rng=Seeded(seed),
            audience=audience,
            progress=lambda done, _: step(done),
        )
    section = lens_named("published").section_of(bracket, released, geography, person)
    if internal:
        row = {name: value for name, value in section.figures.items() if name != "epsilon"}
        row |= {
            f"epsilon_{key}": value for key, value in section.figures.get("epsilon", {}).items()
        }
        figures = pa.Table.from_pylist([row])
        write_internal(internal_of(out), "published", section.document, figures)
    show_section(section, "published", as_json=as_json)


def _show_example(
    path: Path,
    prior: Sequence[float] | None,
    delta: float | None,
    draws: int,
    seed: int,
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Print what the tables of a plan reveal in a made-up example."""
    from countveil.base.randomness import Seeded
    from countveil.cli.assess_commands.assess_group import subject_of
    from countveil.report.sections.published_section import DELTA, example

    plan = subject_of(path, needs="plan").plan
    with showing.progress_bar("simulating releases", draws // 2, quiet) as step:
        section = example(
            plan,
            prior=min(plan.intruder.priors if prior is None else prior),
            draws=draws,
            delta=DELTA if delta is None else delta,
            rng=Seeded(seed),
            progress=lambda done, _: step(done),
        )
    show_section(section, "published", as_json=as_json)


def _siblings(name: str | None) -> Literal["known", "prior", "flat"] | None:
    if name is None or name in ("known", "prior", "flat"):
        return name  # type: ignore[return-value]
    raise InputError(f"--siblings: {name!r} is not allowed; choose flat, prior or known")


def _unit(geography: Geography, level: str, code: str) -> int:
    codes = geography.geocodes(level).to_pylist()
    if code not in codes:
        raise InputError(f"--unit: unknown geocode {code!r} of {level}; see the crosswalk")
    return int(codes.index(code))


def _cell(plan: Plan, text: str) -> int:
    """Return the cell of the full table that names a category of each attribute."""
    import numpy as np

    named = {}
    for part in text.split(","):
        name, equals, category = (word.strip() for word in part.partition("="))
        if not equals:
            raise InputError(f'--cell: {part!r} is not allowed; write "AGE=old,SEX=f"')
        named[name] = category
    names = [item.name for item in plan.schema.attributes]
    if set(named) != set(names):
        raise InputError(
            f"--cell: got {', '.join(named)}; name a category of each of {', '.join(names)}"
        )
    codes = []
    for item in plan.schema.attributes:
        if named[item.name] not in item.categories:
            raise InputError(
                f"--cell: unknown category {named[item.name]!r} of {item.name}; choose from "
                f"{', '.join(item.categories)}"
            )
        codes.append(item.categories.index(named[item.name]))
    return int(np.ravel_multi_index(codes, plan.schema.shape)) if codes else 0
