"""The first lens of a report: what someone learns who knows everyone else in a unit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np

from countveil.assess import attacks
from countveil.assess.intruder import Intruder
from countveil.assess.one_level import disclosure_risk
from countveil.assess.plan_risk import risk_by_level
from countveil.assess.risk import Risk
from countveil.assess.risk_map import public_map
from countveil.assess.summary import Summary, summarise
from countveil.errors import InputError
from countveil.measure.strategy import mechanism_for
from countveil.mechanisms.law import central_half_width
from countveil.privacy.costs import ZCDP
from countveil.release import Release
from countveil.report import charts, words
from countveil.report.attack_listings import attack_listings
from countveil.report.charts import MOST_SERIES, Picture
from countveil.report.section import Section
from countveil.report.summary_words import summary_sentences
from countveil.report.what_if import WhatIf
from countveil.schema.plan import Plan

_MOST_PLACES = 30
_MOST_VALUES = 60  # that one line is drawn through


def intruder_section(
    release: Release,
    others: WhatIf,
    shapes: Mapping[str, Any] | None = None,
    summary: Summary | None = None,
) -> Section:
    """Say what someone learns who knows everyone else in a unit of the judged level.

    With GeoJSON `shapes` of the places of a level, whose property or id is their code, risks are drawn
    on a map as well. `summary` is that of the release, made here if it is not given.
    """
    plan = release.plan
    found = summary or summarise(plan, release.geography, measurements=release.measurements)
    drawn = _drawn(plan)
    pictures = [
        charts.risk_by_level(risk_by_level(plan, drawn, invariants=True)),
        *_by_budget(plan, others),
        _against_released_value(plan, drawn),
        charts.two_hundred_intruders(*_worst(plan)),
        *_places(release, found.level, shapes),
    ]
    return Section(
        "intruder",
        "The intruder",
        (*summary_sentences(found), *_left_out(plan, drawn)),
        attack_listings(found),
        tuple(pictures),
    )


def _drawn(plan: Plan) -> tuple[float, ...]:
    """Return the priors that pictures show: the first ones, as many as can be told apart."""
    return tuple(dict.fromkeys(plan.intruder.priors))[:MOST_SERIES]


def _left_out(plan: Plan, drawn: tuple[float, ...]) -> list[str]:
    every = len(set(plan.intruder.priors))
    if every == len(drawn):
        return []
    return [
        f"Pictures by prior show the first {len(drawn)} of {every} priors; the listings have all of "
        f"them."
    ]


def _by_budget(plan: Plan, others: WhatIf) -> list[Picture]:
    """Return risk and decisions against rho; a plan that is priced in epsilon has none."""
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


def _against_released_value(plan: Plan, priors: tuple[float, ...]) -> Picture:
    """Return what each value of the most detailed count tells of a target who would be alone in it."""
    noise = mechanism_for(max(plan.at(plan.judged_level), key=lambda item: item.query.cells))
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


def _places(release: Release, level: str, shapes: Mapping[str, Any] | None) -> list[Picture]:
    """Return where published values are at which a lone person would be known; none without any."""
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
