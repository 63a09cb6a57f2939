"""Commands about risk: what a release discloses, and what budget keeps a risk or an accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from countveil.cli import lenses, showing
from countveil.cli.application import command
from countveil.cli.commands import AsJson, Quiet, ShowValues
from countveil.errors import InputError

if TYPE_CHECKING:
    from countveil.release import Release

Priors = Annotated[
    list[float] | None,
    typer.Option("--prior", help="What the intruder believes before; may be given again."),
]


_LOSS, _HOMOGENEITY = "With --lens loss", "With --lens homogeneity"
_FROM_RECORDS = "From records, internal"


@command
def assess(
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="A release folder; with another lens also a CSV or Parquet file."
        ),
    ],
    lens: Annotated[str, typer.Option(help="intruder, loss or homogeneity.")] = "intruder",
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
    release.

    Example: `countveil assess out --prior 0.02 --places county`, or
    `countveil assess out --lens loss --internal`, or
    `countveil assess pairs.csv --lens loss --exact true --released published --by county`, or
    `countveil assess people.csv --lens homogeneity --identifiers AGE --sensitive RACE --epsilon 1`
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
    if lens != "intruder" and not out.exists():
        raise InputError(f"{out}: is neither a release folder nor a file")
    if lens == "loss":
        given: dict[str, Any] = {"bandwidth": bandwidth, "percentile": percentile}
        given |= {"confidence": confidence, "as_json": as_json}
        if out.is_dir():
            lenses.show_loss_of_release(
                out, *_internal_counts(out, internal, plan, show_values), of=of, **given
            )
        else:
            lenses.show_loss_of_file(out, exact=exact, released=released, by=by or (), **given)
        return
    if lens == "homogeneity":
        if sensitive is None:
            raise InputError("sensitive: name the attribute the attack is after with --sensitive")
        known: dict[str, Any] = {"identifiers": identifiers or [], "sensitive": sensitive}
        if out.is_dir():
            done, exact_counts = _internal_counts(out, internal, plan, show_values)
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
    from countveil.assess.risk_map import internal_map, public_map
    from countveil.assess.summary import summarise
    from countveil.release import Release
    from countveil.report import risk_terminal

    done = Release.read(out)
    if plan is not None and not internal:
        raise InputError(
            "assess: --plan names the records that --internal reads; give both, or none"
        )
    counts = _internal_counts(out, internal, plan, show_values)[1] if internal else None
    geography = done.geography
    _refuse_unknown_level(done.plan.measured_levels, level)
    _refuse_unknown_level(done.plan.levels, places)
    summary = summarise(
        done.plan, geography, measurements=done.measurements, priors=prior, level=level
    )
    lowest = min(item.prior for item in summary.attacks)
    how: dict[str, Any] = {"prior": lowest, "level": summary.level, "places": places}
    units = geography.units(summary.level)
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


@command
def choose(
    plan: Annotated[
        Path | None, typer.Argument(metavar="[PLAN]", help="A plan file; without, for one count.")
    ] = None,
    risk: Annotated[
        float | None, typer.Option(help="Largest expected posterior over prior.")
    ] = None,
    posterior: Annotated[float | None, typer.Option(help="Largest expected posterior.")] = None,
    correct: Annotated[
        float | None, typer.Option(help="Largest probability of a correct decision.")
    ] = None,
    accuracy: Annotated[
        str | None, typer.Option(help='Instead: "county TOTAL ±1% of 20,000 at 95%".')
    ] = None,
    prior: Priors = None,
    attack: Annotated[
        str, typer.Option(help="presence, unknown attribute or whole record; with a plan.")
    ] = "presence",
    attribute: Annotated[str | None, typer.Option(help="Of the unknown attribute.")] = None,
    total: Annotated[
        str | None, typer.Option(help="With a plan and --risk: spend no more rho than this.")
    ] = None,
    pure: Annotated[
        bool, typer.Option("--epsilon", help="Choose epsilon, for discrete Laplace noise.")
    ] = False,
    homogeneity: Annotated[
        float | None,
        typer.Option(
            help="Largest local homogeneity risk of --records, which are read.",
            rich_help_panel=_FROM_RECORDS,
        ),
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(
            help="A CSV or Parquet file, one row a person.", rich_help_panel=_FROM_RECORDS
        ),
    ] = None,
    identifiers: Annotated[
        list[str] | None,
        typer.Option(help="Column he knows; may be given again.", rich_help_panel=_FROM_RECORDS),
    ] = None,
    sensitive: Annotated[
        str | None, typer.Option(help="Column he wants.", rich_help_panel=_FROM_RECORDS)
    ] = None,
    weighted: Annotated[
        bool,
        typer.Option("--weighted", help="Weight cells by people.", rich_help_panel=_FROM_RECORDS),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Choose a budget: the largest that keeps a risk, or the smallest that reaches an accuracy.

    Without a plan it is for one count of sensitivity 1. With a plan, every level gets what keeps the
    risk of an intruder who knows everyone else in a unit and, where the plan has a crosswalk, sees
    the levels above it. No record is read.

    With --homogeneity records are read, so the answer is internal, and a plan that uses it says so.

    Example: `countveil choose --risk 1.5 --prior 0.02`
    """
    if homogeneity is not None:
        if plan is not None or accuracy is not None or prior or pure or total is not None:
            raise InputError("choose: --homogeneity goes with --records alone, and without a plan")
        if (risk, posterior, correct) != (None, None, None):
            raise InputError("choose: give --homogeneity or another limit, not both")
        if records is None or sensitive is None:
            raise InputError("choose: --homogeneity needs --records, --identifiers and --sensitive")
        lenses.choose_by_homogeneity(
            records,
            limit=homogeneity,
            identifiers=identifiers or [],
            sensitive=sensitive,
            weighted=weighted,
            as_json=as_json,
        )
        return
    if records is not None or identifiers or sensitive is not None or weighted:
        raise InputError(
            "choose: --records, --identifiers, --sensitive and --weighted go with --homogeneity"
        )
    with_plan = (attack, attribute, total) != ("presence", None, None)
    if with_plan and (plan is None or accuracy is not None):
        raise InputError("choose: --attack, --attribute and --total go with a plan and --risk")
    if accuracy is not None:
        if (risk, posterior, correct) != (None, None, None) or prior or pure:
            raise InputError("choose: give --accuracy or a limit on risk, not both")
        _choose_by_accuracy(plan, accuracy, as_json)
    elif plan is None:
        _choose_for_one_count(prior or [0.5], pure, as_json, risk, posterior, correct)
    else:
        if posterior is not None or correct is not None or pure or risk is None:
            raise InputError("choose: with a plan, give --risk; the others are for one count")
        _choose_for_plan(plan, risk, prior, attack, attribute, total, as_json)


def _choose_for_one_count(
    priors: list[float],
    pure: bool,
    as_json: bool,
    risk: float | None,
    posterior: float | None,
    correct: float | None,
) -> None:
    from countveil.assess import choose as choosing
    from countveil.assess.intruder import Intruder
    from countveil.assess.one_level import correct_decision, marginal_risk
    from countveil.mechanisms.discrete_gaussian import DiscreteGaussian
    from countveil.mechanisms.discrete_laplace import DiscreteLaplace
    from countveil.mechanisms.law import Mechanism

    pick = choosing.largest_epsilon if pure else choosing.largest_rho
    chosen = pick(risk=risk, posterior=posterior, correct=correct, prior=priors)
    noise: Mechanism = DiscreteLaplace(1 / chosen) if pure else DiscreteGaussian.from_rho(chosen)
    name = "epsilon" if pure else "rho"
    outcomes = []
    for p in priors:
        who = Intruder(prior=p)
        after = marginal_risk(noise, intruder=who)
        right = correct_decision(noise, intruder=who)
        outcomes.append(
            {
                "prior": p,
                "marginal_risk": float(after.value),
                "posterior": float(after.posterior or 0.0),
                "correct_decision": float(right.value),
            }
        )
    if as_json:
        showing.print_json({name: str(chosen), "value": float(chosen), "outcomes": outcomes})
        return
    print(f"{name} = {float(chosen):.10g}, exactly {chosen}")
    for item in outcomes:
        print(
            f"prior {item['prior']:g}: his posterior comes to {item['posterior']:.5g} on average, "
            f"{item['marginal_risk']:.4f} times his prior; he decides rightly with probability "
            f"{item['correct_decision']:.4g} if his target is there"
        )


def _choose_for_plan(
    path: Path,
    risk: float,
    prior: list[float] | None,
    attack: str,
    attribute: str | None,
    total: str | None,
    as_json: bool,
) -> None:
    from countveil.assess.choose_plan import within_risk
    from countveil.assess.summary import typical_siblings
    from countveil.numerics import positive
    from countveil.schema.plan import Plan

    plan = Plan.load(path)
    priors = list(plan.intruder.priors) if prior is None else prior
    siblings = None if plan.crosswalk is None else typical_siblings(plan.geography())
    above = "without" if siblings is None else "with"
    chosen = within_risk(
        plan,
        risk=risk,
        prior=priors,
        attack=attack,  # type: ignore[arg-type]
        attribute=attribute,
        siblings=siblings,
        total=None if total is None else positive(total, "total"),
    )
    worst = max(chosen.risks.values())
    sentence = (
        f"With rho = {float(chosen.total):.6g} in all, R stays within {risk:g} at every level for "
        f"priors {', '.join(f'{p:g}' for p in priors)}, {above} the levels above it: the largest is "
        f"{worst:.6f}. Put these lines into the plan:"
    )
    _show_chosen(chosen, sentence, as_json)


def _choose_by_accuracy(path: Path | None, text: str, as_json: bool) -> None:
    from countveil.assess.choose_plan import SIZE, Accuracy, within_accuracy
    from countveil.report.risk_terminal import article
    from countveil.schema.plan import Plan

    wanted = Accuracy.parse(text)
    named = Path("plan.toml") if path is None else path
    if path is None and not named.is_file():
        raise InputError(
            "choose: an accuracy is that of a plan; name one, or run where plan.toml is"
        )
    chosen = within_accuracy(Plan.load(named), wanted)
    of = ""
    if wanted.size is not None:
        said = "as said" if "of" in text.split() else f"{SIZE:,} where none are named"
        of = f" ({100 * wanted.half_width / wanted.size:g} % of {wanted.size:,} people, {said})"
    sentence = (
        f"With rho = {float(chosen.total):.6g} in all, {wanted.query} of {article(wanted.level)} is "
        f"within ±{wanted.half_width:g}{of} with {100 * wanted.confidence:g} % confidence, before "
        f"post-processing. R is the largest over the plan's priors. Put these lines into the plan:"
    )
    _show_chosen(chosen, sentence, as_json)


def _show_chosen(chosen: Any, sentence: str, as_json: bool) -> None:
    from countveil.report import risk_terminal

    if as_json:
        shares = {level: str(value / chosen.total) for level, value in chosen.rho.items()}
        showing.print_json(
            {
                "rho": str(chosen.total),
                "levels": {level: str(value) for level, value in chosen.rho.items()},
                "shares": shares,
                "effective_rho": chosen.effective,
                "marginal_risk": chosen.risks,
                "above_limit": [
                    level
                    for level, value in chosen.risks.items()
                    if chosen.plan.intruder.limit is not None and value > chosen.plan.intruder.limit
                ],
            }
        )
        return
    showing.console().print(risk_terminal.chosen_view(chosen, sentence), soft_wrap=True)


def _internal_counts(
    out: Path, internal: bool, plan: Path | None, show_values: bool
) -> tuple[Release, Any]:
    """Return a release and the counts it was made from, once more from the records of its plan."""
    from countveil.engines.registry import open_engine
    from countveil.release import Release
    from countveil.schema.plan import Plan

    done = Release.read(out)
    if not internal:
        raise InputError(
            f"assess: {out} is compared with its records, so the result is internal; say --internal"
        )
    path = _plan_of(out, done.plan.measuring_digest) if plan is None else plan
    loaded = Plan.load(path)
    if loaded.measuring_digest != done.plan.measuring_digest:
        raise InputError(f"{path}: measures something else than {out}; name that release's plan")
    return done, open_engine("local", show_values=show_values).tabulate(loaded)


def _plan_of(out: Path, digest: str) -> Path:
    """Find the plan of a release beside it or here."""
    from countveil.errors import CountveilError
    from countveil.schema.plan import Plan

    for path in (out.absolute().parent / "plan.toml", Path("plan.toml")):
        try:
            if path.is_file() and Plan.load(path).measuring_digest == digest:
                return path
        except CountveilError:
            continue  # a plan of something else, or none
    raise InputError(
        f"assess: --internal reads records, and no plan.toml beside {out} or here is that of the "
        f"release; name it with --plan"
    )


def _refuse_unknown_level(known: tuple[str, ...], level: str | None) -> None:
    if level is not None and level not in known:
        raise InputError(f"no level {level!r}; choose from {', '.join(known)}")
