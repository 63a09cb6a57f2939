"""The public lenses of a report: intruder, error, loss, homogeneity, and what is public beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from countveil.assess import attacks
from countveil.assess.intruder import Intruder
from countveil.assess.one_level import disclosure_risk
from countveil.assess.plan_error import ExpectedError
from countveil.assess.plan_lenses import homogeneity_by_size, loss_by_level
from countveil.assess.public_information import beside_public
from countveil.assess.risk import Risk
from countveil.assess.risk_map import public_map
from countveil.assess.summary import Summary, summarise
from countveil.errors import InputError
from countveil.measure.strategy import mechanism_for
from countveil.mechanisms.law import central_half_width
from countveil.privacy.costs import ZCDP
from countveil.release import Release
from countveil.report import charts
from countveil.report.charts import Picture, words
from countveil.report.section import Cell, Listing, Section
from countveil.report.summary_words import added, article, summary_sentences
from countveil.report.what_if import WhatIf
from countveil.schema.plan import Plan

_MOST_PLACES = 30


def intruder_section(
    release: Release, others: WhatIf, shapes: Mapping[str, Any] | None = None
) -> Section:
    """Say what someone learns who knows everyone else in a unit of the judged level.

    With GeoJSON `shapes` of the places of a level, whose property or id is their code, risks are drawn
    on a map as well.
    """
    plan, geography = release.plan, release.geography
    summary = summarise(plan, geography, measurements=release.measurements)
    pictures = [charts.risk_by_level(summary.levels), *_by_budget(plan, others)]
    pictures += [_against_released_value(plan), charts.two_hundred_intruders(*_worst(plan))]
    found = public_map(
        release.measurements,
        geography,
        prior=min(plan.intruder.priors),
        level=summary.level,
        places=_mapped_level(release, shapes),
    )
    if found.groups.num_rows:
        pictures.append(charts.risk_map(found, shapes=shapes))
    return Section(
        "intruder",
        "The intruder",
        tuple(summary_sentences(summary)),
        (_attacks(summary), _exceedances(summary), *_facts(summary)),
        tuple(pictures),
    )


def error_section(plan: Plan, errors: tuple[ExpectedError, ...]) -> Section:
    """Say how far off a count is expected to be, from the plan alone."""
    measured = [item for item in errors if item.query == "TOTAL" and not item.as_counted]
    sentences = ["The plan alone says how far off a count will be."]
    sentences += [
        f"The noise of a {item.level}'s total is off by {words.number(item.absolute_error)} people on "
        f"average, either way."
        for item in measured
        if item.absolute_error is not None
    ]
    listing = Listing(
        "Error of a cell of each query: of its own noise, and after least squares over its level",
        ("Level", "Query", "Cells", "Mean absolute noise", "Standard deviation", "Least squares"),
        tuple(
            (item.level, item.query, item.cells, *_own_error(item), item.standard_error)
            for item in errors
            if not item.as_counted
        ),
    )
    pictures = (charts.expected_error(errors), charts.budget_allocation(plan))
    return Section("error", "Error", tuple(sentences), (listing,), pictures)


def loss_section(plan: Plan) -> Section:
    """Say what privacy loss the noise of single queries has, where most of it falls."""
    found = loss_by_level(plan)
    worst = max(found, key=lambda item: item.loss)
    sentences = (
        "The loss of a value is the logarithm of how much likelier it is with a person counted than "
        "without. Residuals, released less exact counts, show it; whoever has them sees no more than "
        "the law of the noise already says.",
        f"It is largest for {worst.query} of {article(worst.level)}: {words.number(worst.loss)} at a "
        f"noise of {words.number(worst.half_width)}, which {words.percent(worst.share)} of its noise "
        f"does not pass. All queries a person is in add up to the budget.",
    )
    listing = Listing(
        f"Loss of one value at the edge of {words.percent(found[0].share)} of the noise",
        ("Level", "Query", "Standard deviation", "Noise at most", "Loss there"),
        tuple(
            (item.level, item.query, item.standard_deviation, item.half_width, item.loss)
            for item in found
        ),
    )
    return Section("loss", "Privacy loss", sentences, (listing,))


def homogeneity_section(plan: Plan) -> Section | None:
    """Say how often groups that are all alike are given away; none where there is no attribute."""
    found = homogeneity_by_size(plan)
    if not found:
        return None
    sentence = (
        "Where all people of a group have one value, the exact table tells it of each of them. Noise "
        "hides that: other values seem to occur, and the value itself may seem not to."
    )
    pictures = (charts.uniform_groups(found),)
    return Section("homogeneity", "Groups that are all alike", (sentence,), (), pictures)


def public_section(release: Release) -> Section:
    """Say what guarantee remains beside what is published as counted."""
    found = beside_public(release)
    listing = Listing(
        "Secrets, and what protects them beside what is public",
        ("Secret", "People who must differ", "Guarantee", "Odds, at most", "Because"),
        tuple(
            (item.what, item.records, item.guarantee, _odds(item.odds), item.why)
            for item in found.secrets
        ),
    )
    public = "; ".join(found.public) or "nothing"
    sentences = (f"Public beside the release: {public}.", f"What remains is {found.currency}.")
    return Section("remains", "Beside what is public", (*sentences, *found.sentences), (listing,))


def _odds(odds: float | None) -> str:
    return "no bound" if odds is None else f"× {odds:,.4g}"


def _own_error(item: ExpectedError) -> tuple[float | None, float | None]:
    return item.absolute_error, item.standard_deviation


def _attacks(summary: Summary) -> Listing:
    priors = list(dict.fromkeys(item.prior for item in summary.attacks))
    columns = ("Attack", *(f"Prior {prior:g}" for prior in priors))
    rows: dict[str, tuple[Cell, ...]] = {}
    for item in summary.attacks:
        # Where he ends, and how many times his prior that is.
        found = f"{item.posterior:.4g}, ×\u00a0{item.marginal_risk:.3f}"
        rows[item.attack] = (*rows.get(item.attack, (item.attack,)), found)
    if summary.attacks[0].effective_rho is not None:
        columns = (*columns, "Evidence (rho)", "Levels above add", "Public counts add")
        for item in {each.attack: each for each in summary.attacks}.values():
            above, counted = (
                None if more is None else f"{100 * more:.1f} %" for more in added(item)
            )
            rows[item.attack] = (*rows[item.attack], item.effective_rho, above, counted)
    return Listing(
        f"Where someone who knows everyone else in {article(summary.level)} ends on average, and how "
        f"many times his prior that is",
        columns,
        tuple(rows.values()),
    )


def _facts(summary: Summary) -> list[Listing]:
    """Return what files of public facts bound, if the plan has some."""
    columns = ("settled", "somebody", "bounded", "prior", "with_fact", "with_release")
    rows = [
        (item.query, item.counts, *(getattr(item, name) for name in columns), item.release_alone)
        for item in summary.facts
    ]
    if not rows:
        return []
    names: tuple[str, ...] = (
        "Query",
        "Counts bounded",
        "Known exactly",
        "Hold somebody",
        "Have a largest count",
    )
    names = (*names, "Prior", "With the fact", "With the release, too", "Release alone")
    return [Listing("Public facts, and what they add to a belief", names, tuple(rows))]


def _exceedances(summary: Summary) -> Listing:
    """Return how often single people are told more than so much."""
    above = list(dict.fromkeys(item.above for item in summary.exceedances))
    rows: dict[float, tuple[Cell, ...]] = {}
    for item in summary.exceedances:
        rows[item.prior] = (*rows.get(item.prior, (item.prior,)), words.percent(item.share))
    return Listing(
        "People who are counted, and whom the most detailed count takes beyond so many times the prior",
        ("Prior", *(f"Above × {each:g}" for each in above)),
        tuple(rows.values()),
    )


def _by_budget(plan: Plan, others: WhatIf) -> list[Picture]:
    """Return risk and decisions against rho; a plan that is priced in epsilon has none."""
    if not isinstance(plan.cost, ZCDP):
        return []
    rhos, chosen = [step.amount for step in others.steps], others.chosen.amount
    rows = plan.rows_per_person
    return [
        charts.risk_by_rho(
            rhos,
            others.by_intruder("marginal risk", rows),
            chosen=chosen,
            delta=plan.delta,
            limit=plan.intruder.limit,
        ),
        charts.decision_by_rho(
            rhos, others.by_intruder("correct decision", rows), chosen=chosen, delta=plan.delta
        ),
    ]


def _against_released_value(plan: Plan) -> Picture:
    """Return what each value of the most detailed count tells of a target who would be alone in it."""
    noise = mechanism_for(max(plan.at(plan.judged_level), key=lambda item: item.query.cells))
    reach = central_half_width(noise, 0.999)
    step = max(1, (2 * reach) // 60)
    observed = np.arange(-reach, reach + plan.rows_per_person + 1, step)
    who = [
        Intruder(prior=p, rows=plan.rows_per_person) for p in dict.fromkeys(plan.intruder.priors)
    ]
    return charts.posterior(
        observed, {each: disclosure_risk(noise, observed=observed, intruder=each) for each in who}
    )


def _mapped_level(release: Release, shapes: Mapping[str, Any] | None) -> str:
    """Return the level whose places are shown: that of the shapes, or the lowest with few enough."""
    plan, geography = release.plan, release.geography
    upper = plan.levels[: plan.levels.index(plan.judged_level) + 1]
    if shapes is None:
        fitting = [level for level in upper if geography.units(level) <= _MOST_PLACES]
        return fitting[-1] if fitting else upper[0]
    named = set(charts.places_of(shapes))
    for level in upper:
        if named & set(geography.geocodes(level).to_pylist()):
            return level
    raise InputError(
        f"shapes: no property geocode or id is the code of a place of {', '.join(upper)}; give shapes "
        f"of one of these levels"
    )


def _worst(plan: Plan) -> tuple[Intruder, Risk, Risk]:
    """Return the intruder of the plan who gains most, for a target who is counted and for one not."""
    found = []
    for prior in plan.intruder.priors:
        # Noise is symmetric: a target who is not counted is as one who is, with the prior turned round.
        there, away = (
            attacks.correct_decision(
                plan, attack="presence", level=plan.judged_level, prior=p, invariants=False
            )
            for p in (prior, 1 - prior)
        )
        right = prior * float(there.value) + (1 - prior) * float(away.value)
        who = Intruder(prior=prior, rows=plan.rows_per_person)
        found.append((right - max(prior, 1 - prior), who, there, away))
    return max(found, key=lambda item: item[0])[1:]
