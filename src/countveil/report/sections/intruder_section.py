"""What someone who knows everyone else in a unit learns: sentences, tables and charts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from countveil.assess.intruder.ladder import LevelRisk, decision_risks, risk_by_level
from countveil.assess.intruder.one_level import disclosure_risk
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.intruder.summary import Summary
from countveil.assess.intruder.whole_release import evidence
from countveil.assess.risk import Risk
from countveil.assess.risk_maps import public_map
from countveil.base import words
from countveil.base.words import article
from countveil.errors import InputError
from countveil.noise.law import central_half_width
from countveil.plan.plans import Plan
from countveil.publish.release_folder import Release
from countveil.report.budget_steps import OtherBudgets
from countveil.report.section_data import Cell, Section, SectionTable, Subject

if TYPE_CHECKING:
    from countveil.report.charts.chart import Chart

__all__ = ["SETTLED", "article", "summary_sentences", "worst_attack"]


# A summary of risks in sentences, for the terminal and for pages.

SETTLED = "revealed by public counts"


def summary_sentences(summary: Summary) -> list[str]:
    """Return what the worst attack gains, then what public counts and facts add."""
    lines = [worst_attack(summary)]
    certain = {item.attack: item for item in summary.attacks if item.settled}
    lines += [f"{certain[name].finding()}." for name in certain if name != summary.worst.attack]
    lines += ["No noise protects against that."] if certain else []
    return lines + _facts(summary)


def worst_attack(summary: Summary) -> str:
    """Say what the attack with the largest gain achieves."""
    worst = summary.worst
    return f"The most revealing attack is on {worst.about}. {worst.finding(limit=summary.limit)}."


def _facts(summary: Summary) -> list[str]:
    """Say what public facts bound, and how they change a belief, for the smallest prior."""
    lines = []
    for item in summary.facts:
        if item.prior != min(other.prior for other in summary.facts):
            continue
        kinds = [
            (item.settled, "is known exactly", "are known exactly"),
            (item.not_empty, "cannot be zero", "cannot be zero"),
            (item.bounded, "has an upper bound", "have an upper bound"),
        ]
        listed = ", ".join(
            f"{number:,} {one if number == 1 else many}" for number, one, many in kinds if number
        )
        text = f"Public facts bound {item.counts:,} counts of {item.query}: {listed}."
        if item.with_fact is not None and item.with_release is not None:
            text += (
                f" Suppose someone is unsure about two people. That the count is not zero raises "
                f"{words.prior_percent(item.prior)} to {words.brief_percent(item.with_fact)}; the "
                f"most detailed noisy count raises it further, to "
                f"{words.brief_percent(item.with_release)}. That count alone would raise it to "
                f"{words.brief_percent(item.release_alone or 0.0)}."
            )
        lines.append(text)
    return lines


# The tables: what each attack achieves, how many people are at high risk, what facts bound.


def attack_tables(summary: Summary) -> tuple[SectionTable, ...]:
    """Return the tables of a summary: attacks, how often R' exceeds a threshold, and public facts."""
    return (_attacks(summary), _exceedances(summary), *_facts_tables(summary))


def _attacks(summary: Summary) -> SectionTable:
    priors = list(dict.fromkeys(item.prior for item in summary.attacks))
    columns = ("Attack", *(f"Prior {words.prior(prior)}" for prior in priors))
    rows: dict[str, tuple[Cell, ...]] = {}
    for item in summary.attacks:
        reached = _reached(item, summary.limit)
        rows[item.attack] = (*rows.get(item.attack, (item.attack,)), reached)
    if any(item.effective_rho is not None for item in summary.attacks):
        columns = (*columns, "Own counts (rho)", "Whole release (rho)", "Worst in")
        for item in {each.attack: each for each in summary.attacks}.values():
            more = (summary.own_rho[item.attack], item.effective_rho, item.unit_kind)
            rows[item.attack] = (*rows[item.attack], *more)
    return SectionTable(
        "Average probability after the release if the suspicion is true, and its ratio to the prior",
        columns,
        tuple(rows.values()),
    )


def _reached(item: LevelRisk, limit: float | None) -> str:
    """Show the probability that an attack reaches, and how many times the prior that is."""
    return f"{item.reached_and_times(limit=limit)}{f', {SETTLED}' if item.settled else ''}"


def _exceedances(summary: Summary) -> SectionTable:
    """Return the share of people whose risk exceeds each threshold."""
    above = list(dict.fromkeys(item.above for item in summary.exceedances))
    rows: dict[float, tuple[Cell, ...]] = {}
    for item in summary.exceedances:
        first = (words.prior(item.prior),)
        rows[item.prior] = (*rows.get(item.prior, first), words.brief_percent(item.share))
    return SectionTable(
        "Share of people whose most detailed count alone raises the prior by more than this factor",
        ("Prior", *(f"Above × {each:g}" for each in above)),
        tuple(rows.values()),
    )


def _facts_tables(summary: Summary) -> list[SectionTable]:
    """Return what public facts bound, if the plan has any."""
    beliefs = ("with_fact", "with_release", "release_alone")
    rows = [
        (
            *(item.query, item.counts, item.settled, item.not_empty, item.bounded),
            words.prior(item.prior),
            *(_belief(getattr(item, name)) for name in beliefs),
        )
        for item in summary.facts
    ]
    if not rows:
        return []
    names = (
        *("Query", "Counts bounded", "Known exactly", "Not zero", "Bounded above"),
        *("Prior", "With the fact", "With fact and release", "Release alone"),
    )
    return [SectionTable("Public facts, and how they change a belief", names, tuple(rows))]


def _belief(probability: float | None) -> str | None:
    return None if probability is None else words.brief_percent(probability)


# The section: what someone who knows everyone else in a unit learns.

MOST_SERIES = 8  # lines that a chart can tell apart
_MOST_PLACES = 30
_MOST_VALUES = 60  # points of one line


def section(subject: Subject) -> Section:
    """Describe what someone who knows everyone else in a unit of the judged level learns."""
    plan, summary = subject.plan, subject.summary
    priors = _charted_priors(plan)

    def draw() -> list[Chart]:
        from countveil.report import charts

        section_charts = [
            charts.risk_by_level(
                risk_by_level(plan, priors, invariants=True), limit=plan.intruder.limit
            ),
            *_by_budget(plan, subject.other_budgets),
            _against_released_value(plan, priors),
            charts.two_hundred_intruders(*_worst(plan)),
        ]
        if subject.release is not None:
            section_charts += _places(subject.release, summary.level, subject.shapes)
        return section_charts

    return Section(
        "presence",
        "What an intruder learns",
        (*summary_sentences(summary), *_left_out(plan, priors)),
        attack_tables(summary),
        draw,
        figures=summary.document,
    )


def _charted_priors(plan: Plan) -> tuple[float, ...]:
    """Return the priors that charts show: as many of the first as readers can tell apart."""
    return tuple(dict.fromkeys(plan.intruder.priors))[:MOST_SERIES]


def _left_out(plan: Plan, priors: tuple[float, ...]) -> list[str]:
    every = len(set(plan.intruder.priors))
    if every == len(priors):
        return []
    return [
        f"Charts by prior show the first {len(priors)} of {every} priors; the tables list all of "
        f"them."
    ]


def _by_budget(plan: Plan, others: OtherBudgets) -> list[Chart]:
    """Chart risk and decisions against rho; a plan priced in epsilon has no such charts."""
    from countveil.report import charts

    if plan.cost.currency != "rho":
        return []
    rhos, own = [step.amount for step in others.steps], others.chosen.amount
    risks, decisions = (
        dict(islice(others.by_intruder(measure, plan.rows_per_person).items(), MOST_SERIES))
        for measure in ("marginal risk", "correct decision")
    )
    limit = plan.intruder.limit
    return [
        charts.risk_by_rho(rhos, risks, chosen=own, delta=plan.delta, limit=limit),
        charts.decision_by_rho(rhos, decisions, chosen=own, delta=plan.delta),
    ]


def _against_released_value(plan: Plan, priors: tuple[float, ...]) -> Chart:
    """Chart what each value of the most detailed count reveals about someone alone in its cell."""
    from countveil.report import charts

    level = plan.judged_level if plan.at(plan.judged_level) else plan.measured_levels[-1]
    noise = max(plan.at(level), key=lambda item: item.query.cells).mechanism
    reach, rows = central_half_width(noise, 0.999), plan.rows_per_person
    step = max(1, (2 * reach) // _MOST_VALUES)
    observed = np.arange(-reach, reach + rows + 1, step)
    who = [Intruder(prior=prior, rows=rows) for prior in priors]
    return charts.posterior(
        observed, {each: disclosure_risk(noise, observed=observed, intruder=each) for each in who}
    )


def _worst(plan: Plan) -> tuple[Intruder, Risk, Risk]:
    """Return the intruder who gains most, and their risks if the target is counted and if not."""
    candidates, items = [], evidence(plan, plan.judged_level)
    for prior in plan.intruder.priors:
        there, away = decision_risks(plan, items, prior)
        right = prior * float(there.value) + (1 - prior) * float(away.value)
        who = Intruder(prior=prior, rows=plan.rows_per_person)
        candidates.append((right - max(prior, 1 - prior), who, there, away))
    return max(candidates, key=lambda item: item[0])[1:]


def _places(release: Release, level: str, shapes: Mapping[str, Any] | None) -> list[Chart]:
    """Chart the risk of a lone target by place, from published values; empty if none is positive."""
    from countveil.report import charts

    risk_map = public_map(
        release.measurements,
        release.geography,
        prior=min(release.plan.intruder.priors),
        level=level,
        places=_mapped_level(release, shapes),
    )
    if not risk_map.groups.num_rows:
        return []
    places = {row["group"] for row in risk_map.groups.to_pylist() if row["by"] == "place"}
    on_map = shapes is not None and places.intersection(charts.places_of(shapes))
    return [charts.risk_map(risk_map, shapes=shapes if on_map else None)]


def _mapped_level(release: Release, shapes: Mapping[str, Any] | None) -> str:
    """Return the level to show: the one most shapes belong to, or the lowest with few enough places."""
    from countveil.report import charts

    plan, geography = release.plan, release.geography
    upper = plan.levels[: plan.levels.index(plan.judged_level) + 1]
    if shapes is None:
        fitting = [level for level in upper if geography.units(level) <= _MOST_PLACES]
        return fitting[-1] if fitting else upper[0]
    names = set(charts.places_of(shapes))
    matches = Counter(
        {level: len(names & set(geography.geocodes(level).to_pylist())) for level in upper}
    )
    level, places = matches.most_common(1)[0]
    if not places:
        raise InputError(
            f"shapes: no feature with a geometry has the geocode of a place as its property "
            f"geocode or its id; give shapes of one of the levels {words.listed(upper)}"
        )
    return level
