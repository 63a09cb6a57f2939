"""What a release discloses, summed up for a reader: levels, attacks, what invariants add. Public."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from countveil.assess.intruder import attacks
from countveil.assess.intruder.one_level import exceedance, marginal_risk
from countveil.assess.intruder.plan_risk import LevelRisk, risk_by_level
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.intruder.siblings import fewest_siblings, typical_siblings
from countveil.assess.intruder.targets import Attack
from countveil.assess.risk import THRESHOLDS
from countveil.measure.measurements import Measurements
from countveil.noise.law import Mechanism
from countveil.plan.budget import noise_is_gaussian
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan
from countveil.postprocess.facts.fact_bounds import UNBOUNDED, Bounds
from countveil.postprocess.facts.family_facts import read_facts

# What facts published beside the noise tell an intruder by themselves, and beside it.


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
    finest = max(plan.at(level), key=lambda item: item.query.cells).mechanism
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


# What a release discloses, summed up for a reader: levels, attacks, what invariants add.
# Public.


@dataclass(frozen=True, slots=True)
class AttackRisk:
    """An attack with all queries of the judged level and what is published as counted, for one prior.

    `settled`: what is published as counted tells him all, whatever the noise.
    """

    attack: str
    prior: float
    marginal_risk: float
    posterior: float
    correct_decision: float
    effective_rho: float | None
    with_levels_above: float | None
    with_invariants: float | None
    settled: bool = False


@dataclass(frozen=True, slots=True)
class Exceedance:
    """How often R' of a person will pass a threshold, in the most detailed query of the level."""

    prior: float
    above: float
    share: float


@dataclass(frozen=True, slots=True)
class Summary:
    """The risks of a plan on its places; nothing of it depends on a record.

    `siblings` are those of an average unit, and so is what the levels above add to attacks;
    `most_above` is the effective rho of presence with them in the unit that they tell most of.
    """

    level: str
    siblings: dict[str, int]
    levels: tuple[LevelRisk, ...]
    attacks: tuple[AttackRisk, ...]
    exceedances: tuple[Exceedance, ...]
    facts: tuple[FactRisk, ...] = ()
    most_above: float | None = None

    @property
    def document(self) -> dict[str, Any]:
        """The summary as JSON holds it."""
        return {
            "level": self.level,
            "siblings": self.siblings,
            "levels": [_document(item) for item in self.levels],
            "attacks": [_document(item) for item in self.attacks],
            "exceedances": [_document(item) for item in self.exceedances],
            "facts": [_document(item) for item in self.facts],
            "most_above": self.most_above,
        }


def summarise(
    plan: Plan,
    geography: Geography | None = None,
    *,
    measurements: Measurements | None = None,
    priors: Sequence[float] | None = None,
    level: str | None = None,
) -> Summary:
    """Sum up what a plan lets an intruder learn, who knows everyone else in a unit.

    With places, siblings are as many as a unit has on average, and the levels above are counted in, and
    files of constraints; with measurements, what was published as counted, too.
    """
    level = plan.judged_level if level is None else level
    chosen = tuple(dict.fromkeys(plan.intruder.priors if priors is None else priors))
    siblings = {} if geography is None else typical_siblings(geography)
    gaussian = noise_is_gaussian(plan.allocations)
    found = []
    for attack, attribute in _attacks(plan):
        given: dict[str, Any] = {"attack": attack, "attribute": attribute, "level": level}
        rho = above = informed = None
        settled = attacks.is_settled(plan, level, attack=attack, attribute=attribute)
        if gaussian:
            rho = float(attacks.effective_rho(plan, **given).value)
            if siblings:
                above = float(
                    attacks.effective_rho(plan, siblings=siblings, invariants=False, **given).value
                )
                informed = above
                if plan.invariants:
                    informed = float(attacks.effective_rho(plan, siblings=siblings, **given).value)
        for prior in chosen:
            risk = attacks.marginal_risk(plan, prior=prior, **given)
            right = attacks.correct_decision(plan, prior=prior, **given)
            name = attack if attribute is None else f"{attack}: {attribute}"
            assert risk.posterior is not None
            found.append(
                AttackRisk(
                    *(name, prior, float(risk.value), float(risk.posterior), float(right.value)),
                    *(rho, above, informed, settled),
                )
            )
    levels = tuple(risk_by_level(plan, priors=chosen))
    facts: tuple[FactRisk, ...] = ()
    if geography is not None:
        facts = known_facts(plan, geography, measurements, level=level, priors=chosen)
    most = None
    if geography is not None and siblings and gaussian:
        most = max(
            float(
                attacks.effective_rho(
                    plan, attack="presence", level=level, siblings=family, invariants=False
                ).value
            )
            for family in fewest_siblings(geography)
        )
    exceeded = _exceedances(plan, level, chosen)
    return Summary(level, siblings, levels, tuple(found), exceeded, facts, most)


def _attacks(plan: Plan) -> list[tuple[Attack, str | None]]:
    several = [item.name for item in plan.schema.attributes if len(item.categories) > 1]
    listed: list[tuple[Attack, str | None]] = [("presence", None)]
    listed += [("unknown attribute", name) for name in several]
    if several:
        listed.append(("whole record", None))
    return listed


def _exceedances(plan: Plan, level: str, priors: Sequence[float]) -> tuple[Exceedance, ...]:
    finest = max(plan.at(level), key=lambda item: item.query.cells)
    noise = finest.mechanism
    found = []
    for prior in priors:
        who = Intruder(prior=prior, rows=plan.rows_per_person)
        for above in THRESHOLDS:
            share = float(exceedance(noise, above=above, intruder=who).value)
            found.append(Exceedance(prior, above, share))
    return tuple(found)


def _document(item: Any) -> Mapping[str, Any]:
    return {name: getattr(item, name) for name in item.__slots__}
