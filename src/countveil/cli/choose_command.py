"""`countveil choose`: the budget that stays within a risk, or reaches an accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from countveil.cli import showing
from countveil.cli.command_line import command
from countveil.cli.options import AsJson, Priors
from countveil.errors import InputError

if TYPE_CHECKING:
    from countveil.assess.choose.plan_budget import ChosenPlan

_FROM_RECORDS = "From records (internal)"
_FOR_TABLES = "The best split for some tables"


@command("choose")
def choose_budget(
    plan: Annotated[
        Path | None,
        typer.Argument(metavar="PLAN", help="A plan file; without one, choose for a single count."),
    ] = None,
    risk: Annotated[
        float | None, typer.Option(help="Largest marginal risk (expected posterior / prior).")
    ] = None,
    posterior: Annotated[float | None, typer.Option(help="Largest expected posterior.")] = None,
    correct: Annotated[
        float | None, typer.Option(help="Largest probability of a correct guess.")
    ] = None,
    accuracy: Annotated[
        str | None, typer.Option(help='A target, such as "county TOTAL ±1% of 20,000 at 95%".')
    ] = None,
    prior: Priors = None,
    attack: Annotated[
        str | None,
        typer.Option(
            help="With a plan: presence, unknown attribute or whole record; the worst by default."
        ),
    ] = None,
    attribute: Annotated[str | None, typer.Option(help="The attribute, if one is unknown.")] = None,
    total: Annotated[
        str | None, typer.Option(help="With a plan: the most to spend, in its currency.")
    ] = None,
    pure: Annotated[
        bool, typer.Option("--epsilon", help="Choose epsilon for discrete Laplace noise.")
    ] = False,
    homogeneity: Annotated[
        float | None,
        typer.Option(
            help="Largest local homogeneity risk of --records.",
            rich_help_panel=_FROM_RECORDS,
        ),
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(
            help="A CSV or Parquet file with one row per person.", rich_help_panel=_FROM_RECORDS
        ),
    ] = None,
    identifiers: Annotated[
        list[str] | None,
        typer.Option(
            help="Column the intruder knows; repeat for more.", rich_help_panel=_FROM_RECORDS
        ),
    ] = None,
    sensitive: Annotated[
        str | None,
        typer.Option(help="Column the intruder wants to learn.", rich_help_panel=_FROM_RECORDS),
    ] = None,
    weighted: Annotated[
        bool,
        typer.Option(
            "--weighted",
            help="Weight cells by their number of people.",
            rich_help_panel=_FROM_RECORDS,
        ),
    ] = False,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--for",
            metavar="TABLE",
            help='With a plan: a table that matters, such as "county TOTAL" or "zip Diagnosis within '
            '5"; repeat for more.',
            rich_help_panel=_FOR_TABLES,
        ),
    ] = None,
    minimise: Annotated[
        str,
        typer.Option(
            help="With --for: the weighted mean squared error (error), the largest error in units "
            "of its margin (worst), or the budget (rho) or the risk (risk) at which every margin is "
            "reached.",
            rich_help_panel=_FOR_TABLES,
        ),
    ] = "error",
    others: Annotated[
        float,
        typer.Option(
            help="With --for: how many times as large as today errors of other tables may become.",
            rich_help_panel=_FOR_TABLES,
        ),
    ] = 3.0,
    propose: Annotated[
        bool,
        typer.Option(
            "--propose",
            help="With --for: choose queries, too, from all margins of the attributes in use.",
            rich_help_panel=_FOR_TABLES,
        ),
    ] = False,
    write: Annotated[
        Path | None,
        typer.Option(help="With --for: write the plan to a new file.", rich_help_panel=_FOR_TABLES),
    ] = None,
    population: Annotated[
        str | None,
        typer.Option(
            help="With --for: also simulate releases, and compare published errors with forecasts: of "
            "a release folder, whose estimates are taken for the people, or of so many people per "
            "lowest place.",
            rich_help_panel=_FOR_TABLES,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Choose the largest budget within a risk, the smallest for an accuracy, or the best split.

    Without a plan, it chooses for one count of sensitivity 1. With a plan, it reads the plan and its
    crosswalk, but no records, and scales the budget until the limit is reached in some place, for an
    intruder who knows what the plan says and sees the whole release. Then 1 % more for any level breaks
    the limit; levels of which that is not true are named. It writes nothing and prints lines to put
    into the plan. The exit status is 1 if the risk of that plan is above its own limit, as
    it can be where exactly published counts give the answer.

    With --for, it splits the plan's budget over levels and queries so that the tables you name have the
    least error, proves that no other split does better, and can write the new plan. The plan's limit on
    risk, or that of --risk, is kept. Tables that the plan names as its targets need no --for.

    With --homogeneity, it reads records, so the result is internal and the plan has to say so.

    Example: `countveil choose --risk 1.5 --prior 0.02`, or
    `countveil choose plan.toml --for "block TOTAL within 5" --for "county TOTAL" --write best.toml`
    """
    limits_on = (posterior, correct, accuracy, prior, attack, attribute, total, homogeneity)
    another = any(value is not None for value in limits_on) or pure or records is not None
    options = minimise != "error" or others != 3.0 or propose or (write, population) != (None, None)
    # Without any other way to choose, the plan's own targets are what matters.
    if tables or options or (plan is not None and not another and risk is None):
        if plan is None:
            what = "--for needs" if tables else "--minimise, --others, --propose, --write … need"
            raise InputError(f"choose: {what} a plan; name a plan file")
        if another:
            raise InputError("choose: --for and another way to choose were given; give exactly one")
        from countveil.cli.split_command import choose_for_tables

        choose_for_tables(
            plan,
            tables or (),
            minimise=minimise,
            others=others,
            propose=propose,
            risk=risk,
            write=write,
            population=population,
            as_json=as_json,
        )
        return
    if homogeneity is not None:
        if plan is not None or accuracy is not None or prior or pure or total is not None:
            raise InputError(
                "choose: --homogeneity works on --records alone; leave out the plan and the other "
                "limits"
            )
        if (risk, posterior, correct) != (None, None, None):
            raise InputError("choose: --homogeneity and another limit were given; give exactly one")
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
            "choose: --records, --identifiers, --sensitive and --weighted need --homogeneity; add "
            "it"
        )
    with_plan = (attack, attribute, total) != (None, None, None)
    if with_plan and (plan is None or accuracy is not None):
        raise InputError(
            "choose: --attack, --attribute and --total need a plan and a limit on risk; add both"
        )
    if accuracy is not None:
        if (risk, posterior, correct) != (None, None, None) or prior or pure:
            raise InputError("choose: --accuracy and a limit on risk were given; give exactly one")
        _choose_by_accuracy(plan, accuracy, as_json)
    elif plan is None:
        _choose_for_one_count(prior or [0.5], pure, as_json, risk, posterior, correct)
    else:
        if pure or sum(limit is not None for limit in (risk, posterior, correct)) != 1:
            raise InputError(
                "choose: with a plan, give one of --risk, --posterior and --correct, without "
                "--epsilon: the plan has its own currency"
            )
        limits = _RiskLimits(risk, posterior, correct)
        _choose_for_plan(plan, limits, prior, attack, attribute, total, as_json)


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
    from countveil.base.words import brief_percent, multiple, prior_percent, times_out_of
    from countveil.noise.mechanisms import calibrate, mechanism_named
    from countveil.privacy.costs import ONE_COUNT, Currency, cost_of

    name: Currency = "epsilon" if pure else "rho"
    pick = choosing.largest_epsilon if pure else choosing.largest_rho
    amount = pick(risk=risk, posterior=posterior, correct=correct, prior=priors)
    noise = calibrate(mechanism_named(None, name), cost_of(name, amount), ONE_COUNT)
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
        showing.print_json({name: str(amount), "value": float(amount), "outcomes": outcomes})
        return
    print(f"{name} = {float(amount):.10g}, exactly {amount}")
    for item in outcomes:
        print(
            f"prior {prior_percent(item['prior'])}: if the target is there, the intruder's "
            f"posterior is {brief_percent(item['posterior'], other=item['prior'])} on average, "
            f"{multiple(item['marginal_risk'], limit=risk)} times the prior; they guess correctly "
            f"{times_out_of(item['correct_decision'])}"
        )


class _RiskLimits(NamedTuple):
    """The limit on risk that was given; the others are None."""

    risk: float | None
    posterior: float | None
    correct: float | None

    @property
    def words(self) -> str:
        """The limit in words."""
        if self.risk is not None:
            return f"the marginal risk stays within {self.risk:g}"
        if self.posterior is not None:
            return f"the expected posterior stays within {self.posterior:g}"
        return f"guesses are correct at most {100 * (self.correct or 0.0):g} % of the time"


def _choose_for_plan(
    path: Path,
    limits: _RiskLimits,
    prior: list[float] | None,
    attack: str | None,
    attribute: str | None,
    total: str | None,
    as_json: bool,
) -> None:
    from countveil.assess.choose.plan_budget import within_risk
    from countveil.assess.intruder.targets import targets_of
    from countveil.assess.intruder.whole_release import name_of
    from countveil.base.numerics import positive
    from countveil.base.words import listed
    from countveil.plan.plans import Plan, require_counts
    from countveil.report.sections.intruder_section import article

    plan = require_counts(Plan.load(path), "choose")
    priors = list(plan.intruder.priors) if prior is None else prior
    name = None
    if attack is not None or attribute is not None:
        kind: Any = attack or "unknown attribute"
        targets_of(plan, kind, attribute, None)  # refuses attacks the plan lacks
        name = name_of(kind, attribute)
    with showing.busy("choosing"):
        choice = within_risk(
            plan,
            risk=limits.risk,
            posterior=limits.posterior,
            correct=limits.correct,
            prior=priors,
            attack=name,
            total=None if total is None else positive(total, "total"),
        )
    worst = max(choice.risks, key=lambda rung: rung.marginal_risk)
    certain = (
        " Exactly published counts give them the answer at any budget. The limit applies only to what "
        "the noisy counts add."
        if choice.settled
        else ""
    )
    sentence = (
        f"With {choice.currency} = {float(choice.total):g}, {limits.words} for someone who knows "
        f"everyone else in any {worst.level} and sees the whole release, with "
        f"{'a prior' if len(priors) == 1 else 'priors'} of {listed([f'{p:g}' for p in priors])}. The "
        f"largest marginal risk is {worst.times(limit=limits.risk)}, about "
        f"{worst.about}, in {worst.unit_kind or article(worst.level)}.{certain}{_used_up(choice)}"
    )
    _show_chosen(choice, sentence, as_json)


def _used_up(choice: ChosenPlan) -> str:
    """Say at which levels the limit leaves no more."""
    from countveil.base.words import listed

    if not choice.used_up:
        return ""
    if not choice.free:
        return " 1 % more for any level would break the limit."
    if len(choice.free) == len(choice.costs):
        return " Every level could have 1 % more by itself."
    levels = listed(choice.free)
    return (
        f" 1 % more for any level except {levels} would break the limit. The budget of {levels} could "
        f"grow: hardly any of it reaches this intruder."
    )


def _choose_by_accuracy(path: Path | None, text: str, as_json: bool) -> None:
    from countveil.assess.choose.plan_budget import AccuracyTarget, within_accuracy
    from countveil.plan.plans import Plan, require_counts
    from countveil.report.sections.intruder_section import article

    target = AccuracyTarget.parse(text)
    plan_path = Path("plan.toml") if path is None else path
    if path is None and not plan_path.is_file():
        raise InputError(
            "choose: --accuracy needs a plan, and there is no plan.toml here; name a plan file"
        )
    choice = within_accuracy(require_counts(Plan.load(plan_path), "choose"), target)
    of = ""
    if target.size is not None:
        origin = "" if "of" in text.split() else ", the default size"
        of = f" ({100 * target.half_width / target.size:g} % of {target.size:,} people{origin})"
    sentence = (
        f"With rho = {float(choice.total):g}, {target.query} of "
        f"{article(target.level)} is within ±{target.half_width:g}{of} with "
        f"{100 * target.confidence:g} % confidence, before rounding. The marginal risks are the "
        f"largest over the plan's priors."
    )
    _show_chosen(choice, sentence, as_json)


def _show_chosen(choice: ChosenPlan, sentence: str, as_json: bool) -> None:
    from countveil.assess.verdict import judge
    from countveil.report.terminal import risk_terminal

    verdict = judge(choice.plan)
    if as_json:
        showing.print_json(
            {
                choice.currency: str(choice.total),
                "levels": {level: str(value) for level, value in choice.costs.items()},
                "risks": [asdict(rung) for rung in choice.risks],
                "ladder": [asdict(rung) for rung in choice.ladder],
                "settled": choice.settled,
                "used_up": choice.used_up,
                "free": list(choice.free),
                "shares": {level: str(share) for level, share in choice.shares.items()},
                "limit": verdict.limit,
                "above_limit": verdict.status == "above",
                "verdict": verdict.sentence,
            }
        )
    else:
        view = risk_terminal.chosen_view(choice, sentence, verdict)
        showing.console().print(view, soft_wrap=True)
    if verdict.status == "above":
        raise typer.Exit(1)


def _choose_by_homogeneity(
    path: Path,
    *,
    limit: float,
    identifiers: Sequence[str],
    sensitive: str,
    weighted: bool,
    as_json: bool,
) -> None:
    """Print the largest epsilon of geometric noise within a local homogeneity risk."""
    from countveil.assess import homogeneity
    from countveil.noise.mechanisms import calibrate, mechanism_named
    from countveil.privacy.costs import ONE_COUNT, PureDP
    from countveil.report.audience import INTERNAL

    table = homogeneity.Table.from_records(path, identifiers=identifiers, sensitive=sensitive)
    measure = homogeneity.Measure("local", weighted)
    before = table.given_away(weighted=weighted)
    if before <= limit:
        raise InputError(
            f"--homogeneity: the exact table already has a risk of {before:.4g}, within {limit:g}, "
            f"so any epsilon would do; set a lower limit, or choose by another risk"
        )
    kind = mechanism_named(None, "epsilon")
    epsilon = homogeneity.largest_epsilon(table, risk=limit, measure=measure, mechanism=kind)
    noise = calibrate(kind, PureDP(epsilon), ONE_COUNT)
    risk = float(homogeneity.local_risk(table, mechanism=noise, weighted=weighted).value)
    if as_json:
        document = {"audience": "internal", "epsilon": str(epsilon), "risk": risk, "limit": limit}
        showing.print_json({**document, "budget": {"chosen_from": "records"}})
        return
    print(INTERNAL)
    print(
        f"epsilon = {float(epsilon):.10g}, exactly {epsilon}: with geometric noise on every cell of "
        f"{', '.join((*identifiers, sensitive))}, the local homogeneity risk is {risk:.4f}, within "
        f"{limit:g}.\nThis choice used the records, and no guarantee covers it. State that in the "
        f"plan:"
    )
    print(f'[budget]\nepsilon = "{epsilon}"\nchosen_from = "records"')
