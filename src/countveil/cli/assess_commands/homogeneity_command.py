"""`countveil assess homogeneity`: how often a group reveals its shared value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from countveil.cli import showing
from countveil.cli.assess_commands.assess_group import (
    Internal,
    KnownLevel,
    PlanOfRecords,
    lens_command,
    show_section,
    subject_of,
)
from countveil.cli.internal_files import write_internal
from countveil.cli.options import AsJson, EngineName, Quiet, ShowValues
from countveil.errors import InputError
from countveil.report.lenses import lens_named

if TYPE_CHECKING:
    from countveil.assess.homogeneity.topdown_attack import ReleasedAttack
    from countveil.engines.counts import Counts
    from countveil.noise.law import Law
    from countveil.publish.release_folder import Release

_FILE = "With a file of records"
_RECORDS = "With --internal, or a file of records"


@dataclass(frozen=True, slots=True)
class _Attack:
    """What the intruder knows of a person, and what they want to learn."""

    identifiers: tuple[str, ...]
    sensitive: str

    @classmethod
    def named(cls, identifiers: Sequence[str] | None, sensitive: str | None) -> _Attack:
        if sensitive is None:
            raise InputError(
                "--sensitive: missing; name the attribute that the intruder wants to learn"
            )
        return cls(tuple(identifiers or ()), sensitive)


@lens_command("homogeneity")
def assess_homogeneity(
    context: typer.Context,
    target: Annotated[
        Path,
        typer.Argument(
            metavar="TARGET",
            help="A plan file (.toml), a release folder, or a CSV or Parquet file of records.",
        ),
    ],
    internal: Internal = False,
    plan: PlanOfRecords = None,
    identifiers: Annotated[
        list[str] | None,
        typer.Option(
            help="Column or attribute the intruder knows; repeat for more.",
            rich_help_panel=_RECORDS,
        ),
    ] = None,
    sensitive: Annotated[
        str | None,
        typer.Option(
            help="Column or attribute the intruder wants to learn.", rich_help_panel=_RECORDS
        ),
    ] = None,
    level: KnownLevel = None,
    releases: Annotated[
        int,
        typer.Option(
            min=1,
            help="If above 1, average over this many simulated releases.",
            rich_help_panel="With --internal",
        ),
    ] = 1,
    mechanism: Annotated[
        str,
        typer.Option(
            help="laplace, geometric, gaussian, gaussian-pdp, or a mechanism of plans, such as "
            "discrete-gaussian.",
            rich_help_panel=_FILE,
        ),
    ] = "laplace",
    epsilon: Annotated[
        list[float] | None,
        typer.Option(help="Epsilon of the noise; repeat for more.", rich_help_panel=_FILE),
    ] = None,
    rho: Annotated[
        list[str] | None,
        typer.Option(
            help="Rho of discrete Gaussian noise; repeat for more.", rich_help_panel=_FILE
        ),
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="Delta of Gaussian noise.", rich_help_panel=_FILE)
    ] = None,
    fit: Annotated[
        str,
        typer.Option(help="Fit shares of values by moments or likelihood.", rich_help_panel=_FILE),
    ] = "moments",
    sizes: Annotated[
        str,
        typer.Option(
            help="Fit cell sizes with poisson or negative-binomial.",
            rich_help_panel=_FILE,
        ),
    ] = "poisson",
    engine: EngineName = "local",
    show_values: ShowValues = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run the lens `homogeneity`, or its attack on records.

    Reads a plan or a release, and shows how often its noise reveals such a group. With --internal, it
    also reads the records, attacks the release and writes the result to the internal folder. From a
    file of records, it shows the attack under noise of your choice.

    Example: `countveil assess homogeneity out`, or
    `countveil assess homogeneity out --internal --identifiers AGE --sensitive RACE`, or
    `countveil assess homogeneity people.csv --identifiers AGE --sensitive RACE --epsilon 1`
    """
    of_file = target.is_file() and target.suffix != ".toml"
    if not of_file and not internal:
        showing.refuse_unused(context, {"plan", "level"}, "a plan or a release without --internal")
        subject = subject_of(target, needs="plan", plan=plan, level=level)
        show_section(lens_named("homogeneity").section(subject), "homogeneity", as_json=as_json)
        return
    if of_file:
        used = {"identifiers", "sensitive", "mechanism", "epsilon", "rho", "delta", "fit", "sizes"}
        showing.refuse_unused(context, used, "a file of records")
        attack = _Attack.named(identifiers, sensitive)
        noises = noises_named(mechanism, epsilon or [], rho or [], delta)
        names = [f"rho = {x}" for x in rho or []] or [f"epsilon = {x:g}" for x in epsilon or []]
        _show_homogeneity_of_file(
            target, attack, noises=noises, names=names, prior=fit, sizes=sizes, as_json=as_json
        )
        return
    from countveil.cli.records_again import counts_again
    from countveil.publish.release_folder import Release

    used = {"internal", "plan", "identifiers", "sensitive", "level", "releases", "engine"}
    showing.refuse_unused(context, used | {"show_values", "quiet"}, "--internal")
    attack = _Attack.named(identifiers, sensitive)
    release = Release.read(target)
    counts = counts_again(release, plan, show_values, engine)
    level = level or release.plan.judged_level
    result = _attack_on(release, counts, attack, level, releases, quiet)
    _show_attack(release, result, as_json=as_json)


def _show_homogeneity_of_file(
    path: Path,
    attack: _Attack,
    *,
    noises: Sequence[Law],
    names: Sequence[str],
    prior: str,
    sizes: str,
    as_json: bool,
) -> None:
    """Print the homogeneity risk of records under each noise."""
    from countveil.assess import homogeneity
    from countveil.report.terminal import homogeneity_terminal

    table = homogeneity.Table.from_records(
        path, identifiers=attack.identifiers, sensitive=attack.sensitive
    )
    risks = homogeneity.curve(table, mechanisms=noises, prior=prior, sizes=sizes).to_pylist()
    for row, noise, name in zip(risks, noises, names, strict=True):
        row["noise"] = name
        row["wrong"] = float(homogeneity.scenarios(table, mechanism=noise).wrong.mean())
    about = {
        "people": int(table.sizes.sum()),
        "cells": len(table.sizes),
        "possible": table.possible,
        "homogeneous": int(table.homogeneous.sum()),
        "before": table.given_away(weighted=True),
        "identifiers": list(attack.identifiers),
        "sensitive": attack.sensitive,
    }
    if as_json:
        showing.print_json({"audience": "internal", **about, "risks": risks})
        return
    showing.console().print(homogeneity_terminal.homogeneity_view(about, risks))


def _attack_on(
    release: Release, counts: Counts, attack: _Attack, level: str, releases: int, quiet: bool
) -> ReleasedAttack:
    """Attack a release, or as many simulated ones."""
    from countveil.assess.homogeneity import topdown_attack

    if releases == 1:
        return topdown_attack.attack(
            release.estimates,
            counts,
            level=level,
            sensitive=attack.sensitive,
            identifiers=attack.identifiers,
        )
    with showing.progress_bar("simulating releases", releases, quiet) as step:
        return topdown_attack.simulated(
            release.plan,
            counts,
            level=level,
            sensitive=attack.sensitive,
            identifiers=attack.identifiers,
            releases=releases,
            progress=lambda done, _: step(done),
        )


def _show_attack(release: Release, result: ReleasedAttack, *, as_json: bool) -> None:
    """Print how well an attack works, and write it to the internal folder."""
    import pyarrow as pa

    from countveil.measure.run import internal_of

    section = lens_named("realised-attack").section_of([result])
    (figures,) = section.figures["attacks"]
    section = replace(section, figures=figures)
    table = pa.Table.from_pylist([{"audience": section.audience, **figures}])
    write_internal(internal_of(release.folder), "homogeneity", section.document, table)
    show_section(section, "homogeneity", as_json=as_json)


def noises_named(
    name: str, epsilons: Sequence[float], rhos: Sequence[str], delta: float | None
) -> list[Law]:
    """Return the noise laws named on the command line."""
    from countveil.assess.homogeneity.noise_families import named_noises

    known = named_noises()
    if name not in known:
        raise InputError(f"--mechanism: unknown mechanism {name!r}; choose from {', '.join(known)}")
    for epsilon in epsilons:
        if not 1e-12 <= epsilon <= 1e12:
            raise InputError(
                f"--epsilon: {epsilon} is not allowed; give a number from 1e-12 to 1e12"
            )
    noise = known[name]
    if noise.scaled_by == "rho":
        if not rhos:
            raise InputError(f"--mechanism: {name} is scaled by rho; add --rho, such as --rho 0.5")
        return [noise.law(rho) for rho in rhos]
    if rhos:
        raise InputError(f"--rho: {name} noise is scaled by epsilon; use --epsilon instead")
    if not epsilons:
        raise InputError(
            f"--epsilon: missing; {name} noise is scaled by it: add --epsilon, such as --epsilon 1"
        )
    if noise.needs_delta and delta is None:
        raise InputError(
            f"--delta: missing; {name} noise needs it: add --delta, such as --delta 0.001"
        )
    return [noise.law(epsilon, delta) for epsilon in epsilons]
