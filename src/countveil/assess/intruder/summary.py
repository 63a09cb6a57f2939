"""A public summary of what a release discloses: by level, by attack, and through public facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from countveil.assess.intruder import attacks
from countveil.assess.intruder.ladder import LevelRisk, risk_by_level
from countveil.assess.intruder.one_level import exceedance, marginal_risk
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.intruder.targets import Attack
from countveil.assess.intruder.whole_release import attacks_on, name_of
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
    `not_empty` must include at least one person, and `bounded` have an upper bound. The belief is that
    of an intruder who knows everyone except their target and one other person, each there with
    probability `prior`, in a count that must include someone. Their probability that the target is
    there is `prior` before, `with_fact` given the fact, `with_release` on average given the fact and
    the release, and `release_alone` given the release without the fact. The last three are None where
    no count must include someone.
    """

    query: str
    counts: int
    settled: int
    not_empty: int
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
    certain = bounds.lower == bounds.upper
    not_empty = (bounds.lower > 0) & ~certain
    bounded = (bounds.upper < UNBOUNDED) & ~certain
    finest = max(plan.at(level), key=lambda item: item.query.cells).mechanism
    with_fact = with_release = release_alone = None
    if not_empty.any():
        informed = Intruder.knowing_all_but(1, prior=prior, probability=prior, at_least=1)
        uninformed = Intruder.knowing_all_but(1, prior=prior, probability=prior)
        with_fact = informed.informed_prior
        with_release = _posterior(finest, informed)
        release_alone = _posterior(finest, uninformed)
    return FactRisk(
        query=bounds.query.name,
        counts=int(np.count_nonzero(certain | not_empty | bounded)),
        settled=int(np.count_nonzero(certain)),
        not_empty=int(np.count_nonzero(not_empty)),
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
class Exceedance:
    """The probability that a person's R' will exceed a threshold, in a level's most detailed query."""

    prior: float
    above: float
    share: float


@dataclass(frozen=True, slots=True)
class Summary:
    """The risks of a plan to someone who sees the whole release, computed without reading a record.

    `levels` are those of noisy counts alone, `attacks` those of each attack at one level with what is
    published exactly. `own_rho` has, for each attack, the rho of one count that would reveal as much as
    the level's own noisy counts; None where noise is not Gaussian. `limit` is the plan's own.
    """

    level: str
    levels: tuple[LevelRisk, ...]
    attacks: tuple[LevelRisk, ...]
    own_rho: Mapping[str, float | None]
    exceedances: tuple[Exceedance, ...]
    facts: tuple[FactRisk, ...] = ()
    limit: float | None = None

    @property
    def worst(self) -> LevelRisk:
        """The attack and prior with the largest risk."""
        return max(self.attacks, key=lambda risk: risk.marginal_risk)

    @property
    def document(self) -> dict[str, Any]:
        """The summary as JSON."""
        return {
            "level": self.level,
            "levels": [asdict(item) for item in self.levels],
            "attacks": [
                {**asdict(item), "own_rho": self.own_rho[item.attack]} for item in self.attacks
            ],
            "exceedances": [asdict(item) for item in self.exceedances],
            "facts": [asdict(item) for item in self.facts],
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
        Its places; by default those of the plan's crosswalk. With them, the summary counts in the
        plan's files of constraints.
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
    beliefs = tuple(dict.fromkeys(plan.intruder.priors if priors is None else priors))
    by_name = {name_of(*pair): pair for pair in attacks_on(plan)}
    risks = [
        risk
        for name in by_name
        for risk in risk_by_level(
            plan, beliefs, invariants=True, levels=(level,), attack=name, geography=geography
        )
    ]
    levels = tuple(risk_by_level(plan, priors=beliefs, geography=geography))
    facts: tuple[FactRisk, ...] = ()
    if geography is not None:
        facts = known_facts(plan, geography, measurements, level=level, priors=beliefs)
    return Summary(
        level,
        levels,
        tuple(risks),
        {name: _own_rho(plan, level, *pair) for name, pair in by_name.items()},
        _exceedances(plan, level, beliefs),
        facts,
        plan.intruder.limit,
    )


def _own_rho(plan: Plan, level: str, attack: Attack, attribute: str | None) -> float | None:
    """Return the rho of one count that reveals as much as the level's own noisy counts."""
    if not plan.at(level) or not noise_is_gaussian(plan.allocations):
        return None
    rho = attacks.effective_rho(plan, attack=attack, attribute=attribute, level=level)
    return float(rho.value)


def _exceedances(plan: Plan, level: str, priors: Sequence[float]) -> tuple[Exceedance, ...]:
    if not plan.at(level):
        return ()
    finest = max(plan.at(level), key=lambda item: item.query.cells)
    noise = finest.mechanism
    shares = []
    for prior in priors:
        who = Intruder(prior=prior, rows=plan.rows_per_person)
        for above in THRESHOLDS:
            share = float(exceedance(noise, above=above, intruder=who).value)
            shares.append(Exceedance(prior, above, share))
    return tuple(shares)
