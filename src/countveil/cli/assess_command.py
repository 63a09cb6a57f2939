"""`countveil assess`: what a release discloses, through one lens or another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from countveil.cli import lenses, showing
from countveil.cli.application import command
from countveil.cli.commands import AsJson, EngineName, Priors, Quiet, ShowValues, Workers
from countveil.cli.records_again import counts_again
from countveil.errors import InputError

_LOSS, _HOMOGENEITY = "With --lens loss", "With --lens homogeneity"
_ALWAYS = {"out", "lens", "as_json", "quiet"}
_READ = {"internal", "plan", "engine", "workers", "show_values"}  # how records are read again
_BOUNDS = {"bandwidth", "percentile", "confidence"}
_ATTACK = {"identifiers", "sensitive"}
# What each lens uses, of a release and of a file.
_USED = {
    ("intruder", False): _READ | {"prior", "level", "places"},
    ("loss", False): _READ | _BOUNDS | {"of", "strata"},
    ("loss", True): _BOUNDS | {"exact", "released", "by"},
    ("homogeneity", False): _READ | _ATTACK | {"level", "releases"},
    ("homogeneity", True): _ATTACK | {"mechanism", "epsilon", "rho", "delta", "fit", "sizes"},
    ("public", False): set(),
}


@command
def assess(
    context: typer.Context,
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="A release folder; with another lens also a CSV or Parquet file."
        ),
    ],
    lens: Annotated[str, typer.Option(help="intruder, loss, homogeneity or public.")] = "intruder",
    internal: Annotated[
        bool,
        typer.Option("--internal", help="Also map the risk of everyone counted; reads records."),
    ] = False,
    plan: Annotated[
        Path | None,
        typer.Option("--plan", help="Whose records --internal reads; plan.toml beside OUT if not."),
    ] = None,
    prior: Priors = None,
    level: Annotated[
        str | None, typer.Option(help="The level he knows; the lowest measured if not said.")
    ] = None,
    places: Annotated[
        str | None, typer.Option(help="The level that maps are summed up by; the highest if not.")
    ] = None,
    engine: EngineName = "local",
    workers: Workers = None,
    exact: Annotated[
        str, typer.Option(help="Column of exact counts in a file.", rich_help_panel=_LOSS)
    ] = "exact",
    released: Annotated[
        str, typer.Option(help="Column of released counts in a file.", rich_help_panel=_LOSS)
    ] = "released",
    by: Annotated[
        list[str] | None,
        typer.Option(help="Column that groups a file; may be given again.", rich_help_panel=_LOSS),
    ] = None,
    of: Annotated[
        str | None,
        typer.Option(help="measurements or estimates of a release.", rich_help_panel=_LOSS),
    ] = None,
    strata: Annotated[
        bool,
        typer.Option("--strata", help="Each cell of a query apart.", rich_help_panel=_LOSS),
    ] = False,
    bandwidth: Annotated[
        float, typer.Option(help="A factor of the standard deviation.", rich_help_panel=_LOSS)
    ] = 0.1,
    percentile: Annotated[
        float, typer.Option(help="How far out the loss is looked for.", rich_help_panel=_LOSS)
    ] = 95.0,
    confidence: Annotated[
        float, typer.Option(help="Of intervals and bounds.", rich_help_panel=_LOSS)
    ] = 0.95,
    identifiers: Annotated[
        list[str] | None,
        typer.Option(
            help="Column or attribute he knows; may be given again.", rich_help_panel=_HOMOGENEITY
        ),
    ] = None,
    sensitive: Annotated[
        str | None,
        typer.Option(help="Column or attribute he wants.", rich_help_panel=_HOMOGENEITY),
    ] = None,
    mechanism: Annotated[
        str,
        typer.Option(
            help="Of a file: laplace, geometric, gaussian, gaussian-pdp or discrete-gaussian.",
            rich_help_panel=_HOMOGENEITY,
        ),
    ] = "laplace",
    epsilon: Annotated[
        list[float] | None,
        typer.Option(help="Of a file; may be given again.", rich_help_panel=_HOMOGENEITY),
    ] = None,
    rho: Annotated[
        list[str] | None,
        typer.Option(help="Of discrete-gaussian noise.", rich_help_panel=_HOMOGENEITY),
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="Of Gaussian noise.", rich_help_panel=_HOMOGENEITY)
    ] = None,
    fit: Annotated[
        str,
        typer.Option(
            help="moments or likelihood, for shares of values.", rich_help_panel=_HOMOGENEITY
        ),
    ] = "moments",
    sizes: Annotated[
        str,
        typer.Option(
            help="poisson or negative-binomial, for sizes of cells.", rich_help_panel=_HOMOGENEITY
        ),
    ] = "poisson",
    releases: Annotated[
        int,
        typer.Option(
            min=1, help="Of a folder: simulate so many, not this one.", rich_help_panel=_HOMOGENEITY
        ),
    ] = 1,
    show_values: ShowValues = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Say what a release lets an intruder learn about a person.

    Without --internal it uses published values alone. With it, records are read again, and a map of the
    realised risk of everyone counted is written to the internal folder. --lens loss estimates the
    privacy loss from residuals, of a release with --internal or of two columns of a file. --lens
    homogeneity asks how often a cell gives a sensitive value away, in records under some noise or in a
    release. --lens public says what guarantee remains beside the invariants of a release or a plan
    file.

    Example: `countveil assess out --prior 0.02 --places county`, or
    `countveil assess out --lens loss --internal`, or
    `countveil assess pairs.csv --lens loss --exact true --released published --by county`, or
    `countveil assess people.csv --lens homogeneity --identifiers AGE --sensitive RACE --epsilon 1`, or
    `countveil assess plan.toml --lens public`
    """
    if lens not in lenses.LENSES:
        raise InputError(f"lens: {lens!r} is not known; choose from {', '.join(lenses.LENSES)}")
    for name, given_for, value in (
        *(("by", "loss", by), ("of", "loss", of), ("identifiers", "homogeneity", identifiers)),
        *(("sensitive", "homogeneity", sensitive), ("epsilon", "homogeneity", epsilon)),
        *(("rho", "homogeneity", rho), ("delta", "homogeneity", delta)),
    ):
        if value is not None and lens != given_for:
            raise InputError(f"{name}: goes with --lens {given_for}; this is --lens {lens}")
    _refuse_unused(context, lens, out)
    if lens != "intruder" and not out.exists():
        raise InputError(f"{out}: is neither a release folder nor a file")
    if lens == "public":
        lenses.show_public(out, as_json=as_json)
        return
    if lens in ("loss", "homogeneity") and out.is_dir():
        _refuse_one_table(out)
    if lens == "loss":
        given: dict[str, Any] = {"bandwidth": bandwidth, "percentile": percentile}
        given |= {"confidence": confidence, "as_json": as_json}
        if out.is_dir():
            lenses.show_loss_of_release(
                *(out, *counts_again(out, internal, plan, show_values, engine)),
                of=of,
                strata=strata,
                **given,
            )
        else:
            lenses.show_loss_of_file(out, exact=exact, released=released, by=by or (), **given)
        return
    if lens == "homogeneity":
        if sensitive is None:
            raise InputError("sensitive: name the attribute the attack is after with --sensitive")
        known: dict[str, Any] = {"identifiers": identifiers or [], "sensitive": sensitive}
        if out.is_dir():
            done, exact_counts = counts_again(out, internal, plan, show_values, engine)
            known |= {"level": level, "releases": releases, "as_json": as_json, "quiet": quiet}
            lenses.show_homogeneity_of_release(out, done, exact_counts, **known)
        else:
            noises = lenses.noises_named(mechanism, epsilon or [], rho or [], delta)
            scales = [f"rho = {x}" for x in rho or []] or [
                f"epsilon = {x:g}" for x in epsilon or []
            ]
            known |= {
                "noises": noises,
                "names": scales,
                "prior": fit,
                "sizes": sizes,
                "as_json": as_json,
            }
            lenses.show_homogeneity_of_file(out, **known)
        return
    from countveil import open_engine
    from countveil.assess.risk_map import internal_map, public_map
    from countveil.assess.summary import summarise
    from countveil.release import Release
    from countveil.report import risk_terminal

    _refuse_one_table(out)
    done = Release.read(out)
    if plan is not None and not internal:
        raise InputError(
            "assess: --plan names the records that --internal reads; give both, or none"
        )
    counts = counts_again(out, internal, plan, show_values, engine)[1] if internal else None
    geography = done.geography
    _refuse_unknown_level(done.plan.measured_levels, level)
    _refuse_unknown_level(done.plan.levels, places)
    summary = summarise(
        done.plan, geography, measurements=done.measurements, priors=prior, level=level
    )
    lowest = min(item.prior for item in summary.attacks)
    how: dict[str, Any] = {"prior": lowest, "level": summary.level, "places": places}
    units = geography.units(summary.level)
    # Processes take longer to start than most maps take; executors are there already.
    alone = 1 if engine == "local" and workers is None else workers
    with open_engine(engine).workers(alone) as team:
        how["workers"] = team
        with showing.progress("mapping published values", units, quiet) as step:
            found = public_map(done.measurements, geography, progress=lambda at, _: step(at), **how)
        maps = [found]
        if counts is not None:
            from countveil.measure.run import internal_of

            with showing.progress("mapping everyone", units, quiet) as step:
                realised = internal_map(
                    done.measurements, counts, progress=lambda at, _: step(at), **how
                )
            realised.write(internal_of(out))
            maps.append(realised)
    if as_json:
        document = {**summary.document, "maps": [item.document for item in maps]}
        document["audience"] = maps[-1].audience
        showing.print_json(document)
        return
    console = showing.console()
    console.print(risk_terminal.summary_view(summary, done.plan.title))
    for item in maps:
        console.print()
        console.print(risk_terminal.map_view(item))
    if counts is not None:
        console.print(
            f"\nWritten: {internal_of(out)}/risk.json and tables beside it", soft_wrap=True
        )


def _refuse_unused(context: typer.Context, lens: str, out: Path) -> None:
    """Refuse options that were given and do nothing: an answer would be taken for another one."""
    of_file = out.is_file() and lens in ("loss", "homogeneity")
    used = _USED[lens, of_file]
    for name in context.params:
        given = context.get_parameter_source(name)
        if given is not None and given.name == "COMMANDLINE" and name not in used | _ALWAYS:
            raise InputError(
                f"--{name.replace('_', '-')}: does nothing with --lens {lens} of a "
                f"{'file' if of_file else 'release'}; leave it out"
            )


def _refuse_one_table(out: Path) -> None:
    from countveil.release import Release

    if Release.read(out).plan.one_table is not None:
        raise InputError(
            f"{out}: is a table drawn beside public information, whose guarantee bounds what an "
            f"intruder learns; see it with --lens public"
        )


def _refuse_unknown_level(known: tuple[str, ...], level: str | None) -> None:
    if level is not None and level not in known:
        raise InputError(f"no level {level!r}; choose from {', '.join(known)}")
