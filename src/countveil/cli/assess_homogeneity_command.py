"""`countveil assess homogeneity`: how often a cell gives a sensitive value away."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from countveil.cli import showing
from countveil.cli.assess_command import (
    Internal,
    KnownLevel,
    PlanOfRecords,
    assess_app,
    show_section,
    subject_of,
)
from countveil.cli.command_line import ending_well
from countveil.cli.commands import AsJson, EngineName, Quiet, ShowValues
from countveil.cli.internal_files import write_internal
from countveil.errors import InputError

if TYPE_CHECKING:
    from countveil.noise.law import Law
    from countveil.publish.release_folder import Release

_FILE = "With a file of records"
_RECORDS = "With --internal, or a file of records"


@assess_app.command("homogeneity")
@ending_well
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
            help="A column or attribute the intruder knows; repeat it for more.",
            rich_help_panel=_RECORDS,
        ),
    ] = None,
    sensitive: Annotated[
        str | None,
        typer.Option(
            help="The column or attribute the intruder is after.", rich_help_panel=_RECORDS
        ),
    ] = None,
    level: KnownLevel = None,
    releases: Annotated[
        int,
        typer.Option(
            min=1,
            help="Average over this many simulated releases instead.",
            rich_help_panel="With --internal",
        ),
    ] = 1,
    mechanism: Annotated[
        str,
        typer.Option(
            help="laplace, geometric, gaussian, gaussian-pdp or discrete-gaussian.",
            rich_help_panel=_FILE,
        ),
    ] = "laplace",
    epsilon: Annotated[
        list[float] | None,
        typer.Option(help="Of the noise; repeat it for more.", rich_help_panel=_FILE),
    ] = None,
    rho: Annotated[
        list[str] | None,
        typer.Option(help="Of discrete Gaussian noise.", rich_help_panel=_FILE),
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="Of Gaussian noise.", rich_help_panel=_FILE)
    ] = None,
    fit: Annotated[
        str,
        typer.Option(
            help="How shares of values are fitted: moments or likelihood.", rich_help_panel=_FILE
        ),
    ] = "moments",
    sizes: Annotated[
        str,
        typer.Option(
            help="How sizes of cells are fitted: poisson or negative-binomial.",
            rich_help_panel=_FILE,
        ),
    ] = "poisson",
    engine: EngineName = "local",
    show_values: ShowValues = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Groups in which everyone has the same value.

    Of a plan or a release, how often its noise gives such a group away. With --internal, the attack
    on a release. Of a file of records, the attack under some noise.

    Example: `countveil assess homogeneity out`, or
    `countveil assess homogeneity out --internal --identifiers AGE --sensitive RACE`, or
    `countveil assess homogeneity people.csv --identifiers AGE --sensitive RACE --epsilon 1`
    """
    of_file = target.is_file() and target.suffix != ".toml"
    if not of_file and not internal:
        showing.refuse_unused(context, {"plan", "level"}, "a plan or a release without --internal")
        subject = subject_of(target, needs="plan", plan=plan, level=level)
        from countveil.report.sections.homogeneity_section import section

        show_section(section(subject), "homogeneity", as_json=as_json)
        return
    known: dict[str, Any] = {"identifiers": identifiers or [], "as_json": as_json}
    if of_file:
        used = {"identifiers", "sensitive", "mechanism", "epsilon", "rho", "delta", "fit", "sizes"}
        showing.refuse_unused(context, used, "a file of records")
        known["sensitive"] = _named(sensitive)
        noises = noises_named(mechanism, epsilon or [], rho or [], delta)
        names = [f"rho = {x}" for x in rho or []] or [f"epsilon = {x:g}" for x in epsilon or []]
        _show_homogeneity_of_file(
            target, noises=noises, names=names, prior=fit, sizes=sizes, **known
        )
        return
    from countveil.cli.records_again import counts_again

    used = {"internal", "plan", "identifiers", "sensitive", "level", "releases", "engine"}
    showing.refuse_unused(context, used | {"show_values", "quiet"}, "--internal")
    known["sensitive"] = _named(sensitive)
    release, counts = counts_again(target, internal, plan, show_values, engine)
    _show_homogeneity_of_release(
        target, release, counts, level=level, releases=releases, quiet=quiet, **known
    )


def _named(sensitive: str | None) -> str:
    if sensitive is None:
        raise InputError("--sensitive: name the attribute that the attack is after")
    return sensitive


def _show_homogeneity_of_file(
    path: Path,
    *,
    identifiers: Sequence[str],
    sensitive: str,
    noises: Sequence[Law],
    names: Sequence[str],
    prior: str,
    sizes: str,
    as_json: bool,
) -> None:
    """Print the homogeneity risk of records under some noises."""
    from countveil.assess import homogeneity
    from countveil.report import homogeneity_terminal

    table = homogeneity.Table.from_records(path, identifiers=identifiers, sensitive=sensitive)
    found = homogeneity.curve(table, mechanisms=noises, prior=prior, sizes=sizes).to_pylist()
    for row, noise, name in zip(found, noises, names, strict=True):
        row["noise"] = name
        row["nobodys"] = float(homogeneity.scenarios(table, mechanism=noise).wrong.mean())
    about = {
        "people": int(table.sizes.sum()),
        "cells": len(table.sizes),
        "possible": table.possible,
        "homogeneous": int(table.homogeneous.sum()),
        "before": table.given_away(weighted=True),
        "identifiers": list(identifiers),
        "sensitive": sensitive,
    }
    if as_json:
        showing.print_json({"audience": "internal", **about, "risks": found})
        return
    showing.console().print(homogeneity_terminal.homogeneity_view(about, found))


def _show_homogeneity_of_release(
    out: Path,
    release: Release,
    counts: Any,
    *,
    level: str | None,
    identifiers: Sequence[str],
    sensitive: str,
    releases: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Print what the attack on a release tells, or on average over simulated ones."""
    from dataclasses import asdict

    import pyarrow as pa

    from countveil.assess.homogeneity.topdown_attack import attack, simulated
    from countveil.measure.run import internal_of
    from countveil.report import homogeneity_terminal

    given: dict[str, Any] = {"level": level or release.plan.judged_level, "sensitive": sensitive}
    given["identifiers"] = identifiers
    if releases == 1:
        found = attack(release.estimates, counts, **given)
    else:
        with showing.progress_bar("simulating releases", releases, quiet) as step:
            found = simulated(
                release.plan,
                counts,
                releases=releases,
                progress=lambda done, _: step(done),
                **given,
            )
    document = {"audience": found.audience, **given, **asdict(found)}
    document["errors"] = None if found.errors is None else list(found.errors)
    write_internal(internal_of(out), "homogeneity", document, pa.Table.from_pylist([document]))
    if as_json:
        showing.print_json(document)
        return
    showing.console().print(homogeneity_terminal.released_view(document))


def noises_named(
    name: str, epsilons: Sequence[float], rhos: Sequence[str], delta: float | None
) -> list[Law]:
    """Return the noises that the command line names."""
    from fractions import Fraction

    from countveil.noise.continuous import Gaussian, Laplace
    from countveil.noise.discrete_gaussian import DiscreteGaussian
    from countveil.noise.discrete_laplace import DiscreteLaplace

    known = ("laplace", "geometric", "gaussian", "gaussian-pdp", "discrete-gaussian")
    if name not in known:
        raise InputError(f"mechanism: {name!r} is not known; choose from {', '.join(known)}")
    for epsilon in epsilons:
        if not 1e-12 <= epsilon <= 1e12:
            raise InputError(f"epsilon: {epsilon} is not allowed; it is a number above 0")
    if name == "discrete-gaussian":
        if not rhos:
            raise InputError("mechanism: discrete-gaussian is scaled by rho; give --rho")
        return [DiscreteGaussian.from_rho(rho) for rho in rhos]
    if rhos:
        raise InputError(f"rho: {name} is scaled by epsilon; give --epsilon")
    if not epsilons:
        raise InputError(f"epsilon: {name} is scaled by it; give one or more")
    kinds = {"gaussian": "DP", "gaussian-pdp": "pDP"}
    if name in kinds:
        if delta is None:
            raise InputError(f"delta: {name} needs one, such as --delta 0.001")
        kind = kinds[name]
        return [Gaussian.calibrated(epsilon=e, delta=delta, kind=kind) for e in epsilons]
    if name == "laplace":
        return [Laplace(epsilon=e) for e in epsilons]
    return [DiscreteLaplace(epsilon=Fraction(str(e))) for e in epsilons]
