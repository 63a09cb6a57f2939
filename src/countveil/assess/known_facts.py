"""What facts published beside the noise tell an intruder by themselves, and beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from countveil.assess.intruder import Intruder
from countveil.assess.one_level import marginal_risk
from countveil.measure.measurement import Measurements
from countveil.measure.strategy import mechanism_for
from countveil.mechanisms.law import Mechanism
from countveil.postprocess.bounds import UNBOUNDED, Bounds
from countveil.postprocess.constraints import read_facts
from countveil.schema.geography import Geography
from countveil.schema.plan import Plan


@dataclass(frozen=True, slots=True)
class FactRisk:
    """What is public of a query's counts at one level, and what it does to a belief.

    `counts` of the level's units × cells are bounded in some way; `settled` of them are known exactly,
    `somebody` must hold at least one person, `bounded` have a largest count. The belief is that of an
    intruder who knows everyone but his target and one other person, each there with the same prior, in
    a count that must hold somebody: before, with the fact, and with the fact and the release.
    """

    query: str
    counts: int
    settled: int
    somebody: int
    bounded: int
    prior: float
    with_fact: float | None
    with_release: float | None
    release_alone: float | None


def known_facts(
    plan: Plan,
    geography: Geography,
    measurements: Measurements | None,
    *,
    level: str,
    priors: Sequence[float],
) -> tuple[FactRisk, ...]:
    """Return what invariants and files of constraints say of the counts of a level."""
    if not plan.invariants and not plan.constraints:
        return ()
    facts = read_facts(plan, geography, measurements)[level]
    return tuple(
        _fact_risk(plan, level, bounds, prior) for bounds in facts.bounds for prior in priors
    )


def _fact_risk(plan: Plan, level: str, bounds: Bounds, prior: float) -> FactRisk:
    settled = bounds.lower == bounds.upper
    somebody = (bounds.lower > 0) & ~settled
    bounded = (bounds.upper < UNBOUNDED) & ~settled
    finest = mechanism_for(max(plan.at(level), key=lambda item: item.query.cells))
    told_prior = told = free = None
    if somebody.any():
        who = Intruder.knowing_all_but(1, prior=prior, probability=prior, at_least=1)
        told_prior, told = who.informed_prior, _posterior(finest, who)
        free = _posterior(finest, Intruder.knowing_all_but(1, prior=prior, probability=prior))
    return FactRisk(
        query=bounds.query.name,
        counts=int(np.count_nonzero(settled | somebody | bounded)),
        settled=int(np.count_nonzero(settled)),
        somebody=int(np.count_nonzero(somebody)),
        bounded=int(np.count_nonzero(bounded)),
        prior=prior,
        with_fact=told_prior,
        with_release=told,
        release_alone=free,
    )


def _posterior(noise: Mechanism, who: Intruder) -> float:
    after = marginal_risk(noise, intruder=who).posterior
    assert after is not None
    return float(after)
