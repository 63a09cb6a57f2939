"""A public summary of what a release discloses: by level, by attack, and through public facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
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

# What public facts reveal by themselves, and together with noisy counts.


@dataclass(frozen=True, slots=True)
class FactRisk:
    """What is public about a query's counts at one level, and how that changes a belief.

    Of the level's units × cells, `counts` are bounded in some way: `settled` of them are known exactly,
    `somebody` must include at least one person, and `bounded` have an upper bound. The belief is that
    of an intruder who knows everyone except their target and one other person, each there with
    probability `prior`, in a count that must include somebody. Their probability that the target is
    there is `prior` before, `with_fact` given the fact, `with_release` on average given the fact and
    the release, and `release_alone` given the release without the fact. The last three are None where
    no count must include somebody.
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
    """Return what invariants and files of constraints say about the counts of a level."""
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
    with_fact = with_release = release_alone = None
    if somebody.any():
        informed = Intruder.knowing_all_but(1, prior=prior, probability=prior, at_least=1)
        uninformed = Intruder.knowing_all_but(1, prior=prior, probability=prior)
        with_fact = informed.informed_prior
        with_release = _posterior(finest, informed)
        release_alone = _posterior(finest, uninformed)
    return FactRisk(
        query=bounds.query.name,
        counts=int(np.count_nonzero(settled | somebody | bounded)),
        settled=int(np.count_nonzero(settled)),
        somebody=int(np.count_nonzero(somebody)),
        bounded=int(np.count_nonzero(bounded)),
        prior=prior,
        with_fact=with_fact,
        with_release=with_release,
        release_alone=release_alone,
    )


def _posterior(noise: Mechanism, who: Intruder) -> float:
    after = marginal_risk(noise, intruder=who).posterior
    assert after is not None
    return float(after)


@dataclass(frozen=True, slots=True)
class AttackRisk:
    """What an attack achieves at one prior, given all queries of a level and exactly published counts.

    `effective_rho` is that of the level's noisy counts, `with_levels_above` adds the noisy counts of
    the levels above it, and `with_invariants` adds what is published exactly; each is None where it
    was not computed. Where `settled`, exactly published counts reveal the answer, regardless of the
    noise.
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
    """The probability that a person's R' will exceed a threshold, in a level's most detailed query."""

    prior: float
    above: float
    share: float


@dataclass(frozen=True, slots=True)
class Summary:
    """The risks of a plan, computed without reading a record.

    `siblings` has the number of siblings of an average unit, for which `attacks` count in the levels
    above. `most_above` is the effective rho of the presence attack in the unit about which the levels
    above reveal most.
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
        """The summary as JSON."""
        return {
            "level": self.level,
            "siblings": self.siblings,
            "levels": [asdict(item) for item in self.levels],
            "attacks": [asdict(item) for item in self.attacks],
            "exceedances": [asdict(item) for item in self.exceedances],
            "facts": [asdict(item) for item in self.facts],
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
    """Summarise what a plan lets someone learn who knows everyone else in a unit.

    Parameters
    ----------
    plan : Plan
        The plan to assess; no record is read.
    geography : Geography, optional
        Its places. With them, the summary counts in the levels above a unit, for the average number of
        siblings, and the plan's files of constraints.
    measurements : Measurements, optional
        Those of a release. With them, the summary counts in the values of the invariants.
    priors : sequence of float, optional
        The intruder's priors; those of the plan by default.
    level : str, optional
        The level of the unit in which they know everyone else; the plan's judged level by default.

    Returns
    -------
    Summary
        Risks by level and by attack, and what public facts reveal.
    """
    level = plan.judged_level if level is None else level
    chosen = tuple(dict.fromkeys(plan.intruder.priors if priors is None else priors))
    siblings = {} if geography is None else typical_siblings(geography)
    gaussian = noise_is_gaussian(plan.allocations)
    risks: list[AttackRisk] = []
    for attack, attribute in _attacks(plan):
        risks += _attack_risks(
            plan, level, attack, attribute, chosen, siblings if gaussian else None
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
    return Summary(level, siblings, levels, tuple(risks), exceeded, facts, most)


def _attack_risks(
    plan: Plan,
    level: str,
    attack: Attack,
    attribute: str | None,
    priors: Sequence[float],
    siblings: Mapping[str, int] | None,
) -> list[AttackRisk]:
    """Return the risk of one attack for each prior; without `siblings`, leave out effective rhos."""

    def rho(siblings: Mapping[str, int] | None = None, *, invariants: bool = True) -> float:
        return float(
            attacks.effective_rho(
                plan,
                attack=attack,
                attribute=attribute,
                level=level,
                siblings=siblings,
                invariants=invariants,
            ).value
        )

    own = above = informed = None
    if siblings is not None:
        own = rho()
        if siblings:
            above = rho(siblings, invariants=False)
            informed = rho(siblings) if plan.invariants else above
    settled = attacks.is_settled(plan, level, attack=attack, attribute=attribute)
    name = attack if attribute is None else f"{attack}: {attribute}"
    risks = []
    for prior in priors:
        risk = attacks.marginal_risk(
            plan, attack=attack, attribute=attribute, level=level, prior=prior
        )
        right = attacks.correct_decision(
            plan, attack=attack, attribute=attribute, level=level, prior=prior
        )
        assert risk.posterior is not None
        risks.append(
            AttackRisk(
                *(name, prior, float(risk.value), float(risk.posterior), float(right.value)),
                *(own, above, informed, settled),
            )
        )
    return risks


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
    shares = []
    for prior in priors:
        who = Intruder(prior=prior, rows=plan.rows_per_person)
        for above in THRESHOLDS:
            share = float(exceedance(noise, above=above, intruder=who).value)
            shares.append(Exceedance(prior, above, share))
    return tuple(shares)
