"""`countveil choose`: the budget that keeps a risk, or reaches an accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from countveil.cli import showing
from countveil.cli.application import command
from countveil.cli.commands import AsJson, Priors
from countveil.errors import InputError

_FROM_RECORDS = "From records, internal"


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
        _choose_by_homogeneity(
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
    from countveil.assess.choose import budget_for_risk as choosing
    from countveil.assess.intruder.one_level import correct_decision, marginal_risk
    from countveil.assess.intruder.prior_knowledge import Intruder
    from countveil.noise.discrete_gaussian import DiscreteGaussian
    from countveil.noise.discrete_laplace import DiscreteLaplace
    from countveil.noise.law import Mechanism

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
    from countveil.assess.choose.plan_budget import within_risk
    from countveil.assess.intruder.siblings import fewest_siblings
    from countveil.base.numerics import positive
    from countveil.plan.plans import Plan, require_counts

    plan = require_counts(Plan.load(path), "choose")
    priors = list(plan.intruder.priors) if prior is None else prior
    siblings = None if plan.crosswalk is None else fewest_siblings(plan.geography())
    above = (
        "without the levels above it"
        if siblings is None
        else "with the levels above it and in whatever unit"
    )
    with showing.busy("choosing"):
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
    settled = (
        f" What is published as counted settles it at {', '.join(chosen.settled)}, whatever the "
        f"budget; R there is of what it does not settle."
        if chosen.settled
        else ""
    )
    sentence = (
        f"With rho = {float(chosen.total):.6g} in all, R stays within {risk:g} at every level for "
        f"priors {', '.join(f'{p:g}' for p in priors)}, {above}: the largest is {worst:.6f}.{settled} "
        f"Put these lines into the plan:"
    )
    _show_chosen(chosen, sentence, as_json)


def _choose_by_accuracy(path: Path | None, text: str, as_json: bool) -> None:
    from countveil.assess.choose.plan_budget import SIZE, AccuracyTarget, within_accuracy
    from countveil.plan.plans import Plan, require_counts
    from countveil.report.sections.intruder_section import article

    wanted = AccuracyTarget.parse(text)
    named = Path("plan.toml") if path is None else path
    if path is None and not named.is_file():
        raise InputError(
            "choose: an accuracy is that of a plan; name one, or run where plan.toml is"
        )
    chosen = within_accuracy(require_counts(Plan.load(named), "choose"), wanted)
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
                "settled": chosen.settled,
                "above_limit": [
                    level
                    for level, value in chosen.risks.items()
                    if chosen.plan.intruder.limit is not None and value > chosen.plan.intruder.limit
                ],
            }
        )
        return
    showing.console().print(risk_terminal.chosen_view(chosen, sentence), soft_wrap=True)


def _choose_by_homogeneity(
    path: Path,
    *,
    limit: float,
    identifiers: Sequence[str],
    sensitive: str,
    weighted: bool,
    as_json: bool,
) -> None:
    """Print the largest epsilon of geometric noise that keeps a local homogeneity risk."""
    from countveil.assess import homogeneity
    from countveil.noise.discrete_laplace import DiscreteLaplace
    from countveil.report.section_data import INTERNAL

    table = homogeneity.Table.from_records(path, identifiers=identifiers, sensitive=sensitive)
    measure = homogeneity.Measure("local", weighted)
    before = table.given_away(weighted=weighted)
    if before <= limit:
        raise InputError(
            f"homogeneity: the exact table itself has a risk of {before:.4g}, within {limit:g}, so "
            f"that every epsilon keeps it; choose by another risk"
        )
    chosen = homogeneity.largest_epsilon(
        table, risk=limit, measure=measure, mechanism=DiscreteLaplace
    )
    noise = DiscreteLaplace(epsilon=chosen)
    risk = float(homogeneity.local_risk(table, mechanism=noise, weighted=weighted).value)
    if as_json:
        document = {"audience": "internal", "epsilon": str(chosen), "risk": risk, "limit": limit}
        showing.print_json({**document, "budget": {"chosen_from": "records"}})
        return
    print(INTERNAL)
    print(
        f"epsilon = {float(chosen):.10g}, exactly {chosen}: with geometric noise on every cell of "
        f"{', '.join((*identifiers, sensitive))} the local homogeneity risk is {risk:.4f}, within "
        f"{limit:g}.\nThe choice looked at the records, and no guarantee covers it. Say so in the plan:"
    )
    print(f'[budget]\nepsilon = "{chosen}"\nchosen_from = "records"')
