"""What an intruder learns who knows everyone else in a unit: the sentences, tables and charts of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from countveil.assess.intruder import attacks
from countveil.assess.intruder.joint_precision import WITHOUT_LIMIT
from countveil.assess.intruder.one_level import disclosure_risk
from countveil.assess.intruder.plan_risk import risk_by_level
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.intruder.summary import AttackRisk, Summary
from countveil.assess.risk import Risk
from countveil.assess.risk_maps import public_map
from countveil.base import words
from countveil.base.words import article, percent
from countveil.errors import InputError
from countveil.noise.law import central_half_width
from countveil.plan.plans import Plan
from countveil.privacy.costs import ZCDP
from countveil.publish.release_folder import Release
from countveil.report.budget_steps import OtherBudgets
from countveil.report.section_data import Cell, Section, SectionTable, Subject

if TYPE_CHECKING:
    from countveil.report.charts.chart import Chart

__all__ = ["SETTLED", "added", "article", "percent", "summary_sentences", "worst_attack"]


# What a summary of risks says in plain sentences, on a terminal and on a page.

SETTLED = "settled by what is public"


def summary_sentences(summary: Summary) -> list[str]:
    """Return what the worst attack gains, then what public counts, levels above and facts add."""
    found = [worst_attack(summary)]
    settled = {item.attack for item in summary.attacks if item.settled}
    found += [
        f"What the plan publishes as counted settles '{name}' for whoever knows everyone else "
        f"in {article(summary.level)}: no noise protects against it."
        for name in sorted(settled)
    ]
    first = summary.attacks[0]
    if first.with_invariants is not None and first.attack not in settled:
        found += _levels_above(first, summary.most_above)
    return found + _facts(summary)


def worst_attack(summary: Summary) -> str:
    """Return what the attack that gains most comes to, in one sentence."""
    worst = max(summary.attacks, key=lambda item: item.marginal_risk)
    return (
        f"Of all attacks, an intruder who knows everyone in {article(summary.level)} but his target, "
        f"and sees all its queries, gains most by '{worst.attack}': where he is right, he comes from a "
        f"probability of {percent(worst.prior)} to {percent(worst.posterior)} on average, "
        f"{worst.marginal_risk:.3f} times what he believed before."
    )


def added(item: AttackRisk) -> tuple[float | None, float | None]:
    """Return what levels above, and counts published as they are, add to the evidence of a level.

    The second is infinite where what is public settles it.
    """
    own, above, counted = item.effective_rho, item.with_levels_above, item.with_invariants
    if not own or above is None or counted is None:  # no evidence of its own to compare with
        return None, None
    more = max(0.0, above - own) / own
    if item.settled or counted > WITHOUT_LIMIT * above:
        return more, math.inf
    return more, max(0.0, counted - above) / own


def _levels_above(first: AttackRisk, most: float | None) -> list[str]:
    above, counted = added(first)
    if above is None or counted is None:
        return []
    told = (
        "what is published as counted settles it"
        if math.isinf(counted)
        else f"what is published as counted adds {100 * counted:.1f} % more"
    )
    own = first.effective_rho
    least = f", {100 * (most - own) / own:.1f} % where siblings are fewest" if most and own else ""
    return [
        f"Where counts are large, the levels above add {100 * above:.1f} % to his evidence about "
        f"presence in a unit with as many siblings as the average{least}; {told}. Near zero his belief "
        f"about the siblings decides: see the documentation."
    ]


def _facts(summary: Summary) -> list[str]:
    """Say what public facts settle, and what they add to a belief, for the smallest prior."""
    found = []
    for item in summary.facts:
        if item.prior != min(other.prior for other in summary.facts):
            continue
        kinds = [
            (item.settled, "are known exactly"),
            (item.somebody, "must hold somebody"),
            (item.bounded, "have a largest count"),
        ]
        listed = ", ".join(f"{number:,} {what}" for number, what in kinds if number)
        text = f"Public facts bound {item.counts:,} counts of {item.query}: {listed}."
        if item.with_fact is not None and item.with_release is not None:
            text += (
                f" Who is unsure of one other person beside his target, each there with probability "
                f"{percent(item.prior)}, comes to {percent(item.with_fact)} by knowing that somebody "
                f"is there, and to {percent(item.with_release)} with the most detailed noisy count as "
                f"well; by that count alone he would come to {percent(item.release_alone or 0.0)}."
            )
        found.append(text)
    return found


# The tables of attacks: where they end, how often single people are told much, what facts
# bound.


def attack_tables(summary: Summary) -> tuple[SectionTable, ...]:
    """Return what a summary lists: attacks, how often R' passes a threshold, and public facts."""
    return (_attacks(summary), _exceedances(summary), *_facts_tables(summary))


def _attacks(summary: Summary) -> SectionTable:
    priors = list(dict.fromkeys(item.prior for item in summary.attacks))
    columns = ("Attack", *(f"Prior {words.prior(prior)}" for prior in priors))
    rows: dict[str, tuple[Cell, ...]] = {}
    for item in summary.attacks:
        rows[item.attack] = (*rows.get(item.attack, (item.attack,)), _ends_at(item))
    if summary.attacks[0].effective_rho is not None:
        columns = (*columns, "Evidence (rho)", "Levels above add", "Public counts add")
        for item in {each.attack: each for each in summary.attacks}.values():
            rows[item.attack] = (*rows[item.attack], item.effective_rho, *map(_more, added(item)))
    return SectionTable(
        f"Where someone who knows everyone else in {words.article(summary.level)} ends on average if "
        f"he is right, and how many times his prior that is",
        columns,
        tuple(rows.values()),
    )


def _ends_at(item: AttackRisk) -> str:
    """Return where he ends, and how many times his prior that is."""
    if item.settled:
        return f"1, ×\u00a0{item.marginal_risk:.3f}, {SETTLED}"
    return f"{item.posterior:.4g}, ×\u00a0{item.marginal_risk:.3f}"


def _more(share: float | None) -> str | None:
    if share is None:
        return None
    return SETTLED if math.isinf(share) else f"{100 * share:.1f} %"


def _exceedances(summary: Summary) -> SectionTable:
    """Return how often single people are told more than so much."""
    above = list(dict.fromkeys(item.above for item in summary.exceedances))
    rows: dict[float, tuple[Cell, ...]] = {}
    for item in summary.exceedances:
        first = (words.prior(item.prior),)
        rows[item.prior] = (*rows.get(item.prior, first), words.percent(item.share))
    return SectionTable(
        "Share of the people counted whom the most detailed count alone takes beyond so many times "
        "the prior",
        ("Prior", *(f"Above × {each:g}" for each in above)),
        tuple(rows.values()),
    )


def _facts_tables(summary: Summary) -> list[SectionTable]:
    """Return what files of public facts bound, if the plan has some."""
    columns = ("settled", "somebody", "bounded", "prior", "with_fact", "with_release")
    rows = [
        (item.query, item.counts, *(getattr(item, name) for name in columns), item.release_alone)
        for item in summary.facts
    ]
    if not rows:
        return []
    names = (
        *("Query", "Counts bounded", "Known exactly", "Hold somebody", "Have a largest count"),
        *("Prior", "With the fact", "With the release, too", "Release alone"),
    )
    return [SectionTable("Public facts, and what they add to a belief", names, tuple(rows))]


# The first lens of a report: what someone learns who knows everyone else in a unit.

MOST_SERIES = 8  # lines that a chart can tell apart
_MOST_PLACES = 30
_MOST_VALUES = 60  # that one line is drawn through


def section(subject: Subject) -> Section:
    """Say what someone learns who knows everyone else in a unit of the judged level."""
    plan, found = subject.plan, subject.summary
    drawn = _drawn(plan)

    def draw() -> list[Chart]:
        from countveil.report import charts

        section_charts = [
            charts.risk_by_level(risk_by_level(plan, drawn, invariants=True)),
            *_by_budget(plan, subject.other_budgets),
            _against_released_value(plan, drawn),
            charts.two_hundred_intruders(*_worst(plan)),
        ]
        if subject.release is not None:
            section_charts += _places(subject.release, found.level, subject.shapes)
        return section_charts

    return Section(
        "presence",
        "What an intruder learns",
        (*summary_sentences(found), *_left_out(plan, drawn)),
        attack_tables(found),
        draw,
        figures=found.document,
    )


def _drawn(plan: Plan) -> tuple[float, ...]:
    """Return the priors that charts show: the first ones, as many as can be told apart."""
    return tuple(dict.fromkeys(plan.intruder.priors))[:MOST_SERIES]


def _left_out(plan: Plan, drawn: tuple[float, ...]) -> list[str]:
    every = len(set(plan.intruder.priors))
    if every == len(drawn):
        return []
    return [
        f"Charts by prior show the first {len(drawn)} of {every} priors; the tables have all of "
        f"them."
    ]


def _by_budget(plan: Plan, others: OtherBudgets) -> list[Chart]:
    """Return risk and decisions against rho; a plan that is priced in epsilon has none."""
    from countveil.report import charts

    if not isinstance(plan.cost, ZCDP):
        return []
    rhos, chosen = [step.amount for step in others.steps], others.chosen.amount
    risks, decisions = (
        dict(islice(others.by_intruder(measure, plan.rows_per_person).items(), MOST_SERIES))
        for measure in ("marginal risk", "correct decision")
    )
    limit = plan.intruder.limit
    return [
        charts.risk_by_rho(rhos, risks, chosen=chosen, delta=plan.delta, limit=limit),
        charts.decision_by_rho(rhos, decisions, chosen=chosen, delta=plan.delta),
    ]


def _against_released_value(plan: Plan, priors: tuple[float, ...]) -> Chart:
    """Return what each value of the most detailed count tells of a target who would be alone in it."""
    from countveil.report import charts

    noise = max(plan.at(plan.judged_level), key=lambda item: item.query.cells).mechanism
    reach, rows = central_half_width(noise, 0.999), plan.rows_per_person
    step = max(1, (2 * reach) // _MOST_VALUES)
    observed = np.arange(-reach, reach + rows + 1, step)
    who = [Intruder(prior=prior, rows=rows) for prior in priors]
    return charts.posterior(
        observed, {each: disclosure_risk(noise, observed=observed, intruder=each) for each in who}
    )


def _worst(plan: Plan) -> tuple[Intruder, Risk, Risk]:
    """Return the intruder of the plan who gains most, for a target who is counted and for one not."""
    found = []
    for prior in plan.intruder.priors:
        # Noise is symmetric: a target who is not counted is as one who is, with the prior turned round.
        there, away = (
            attacks.correct_decision(plan, attack="presence", level=plan.judged_level, prior=p)
            for p in (prior, 1 - prior)
        )
        right = prior * float(there.value) + (1 - prior) * float(away.value)
        who = Intruder(prior=prior, rows=plan.rows_per_person)
        found.append((right - max(prior, 1 - prior), who, there, away))
    return max(found, key=lambda item: item[0])[1:]


def _places(release: Release, level: str, shapes: Mapping[str, Any] | None) -> list[Chart]:
    """Return where published values are at which a lone person would be known; none without any."""
    from countveil.report import charts

    found = public_map(
        release.measurements,
        release.geography,
        prior=min(release.plan.intruder.priors),
        level=level,
        places=_mapped_level(release, shapes),
    )
    if not found.groups.num_rows:
        return []
    read = {row["group"] for row in found.groups.to_pylist() if row["by"] == "place"}
    drawn = shapes is not None and read.intersection(charts.places_of(shapes))
    return [charts.risk_map(found, shapes=shapes if drawn else None)]


def _mapped_level(release: Release, shapes: Mapping[str, Any] | None) -> str:
    """Return the level whose places are shown: that of most shapes, or the lowest with few enough."""
    from countveil.report import charts

    plan, geography = release.plan, release.geography
    upper = plan.levels[: plan.levels.index(plan.judged_level) + 1]
    if shapes is None:
        fitting = [level for level in upper if geography.units(level) <= _MOST_PLACES]
        return fitting[-1] if fitting else upper[0]
    named = set(charts.places_of(shapes))
    matches = Counter(
        {level: len(named & set(geography.geocodes(level).to_pylist())) for level in upper}
    )
    level, places = matches.most_common(1)[0]
    if not places:
        raise InputError(
            f"shapes: no feature with a geometry has, as its property geocode or its id, the code of a "
            f"place of {words.listed(upper)}; give shapes of one of these levels"
        )
    return level
