"""The risk of a plan before any record is read: the worst case, and the ladder of what they know."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from countveil.assess.intruder import whole_release
from countveil.assess.intruder.attacks import expected_posterior
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.intruder.whole_release import Evidence
from countveil.assess.risk import Risk
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan


@dataclass(frozen=True, slots=True)
class LevelRisk:
    """A rung of the ladder: what someone learns who knows everyone else in a unit of a level.

    They see the whole release. The target has as many rows as the plan allows a person.

    Attributes
    ----------
    level : str
        The level of the unit.
    prior, posterior, marginal_risk : float
        Their probability of the truth before, on average after the release, and the ratio of the two.
    correct_decision : float
        How often they then guess the truth; NaN if it was not asked for.
    settled : bool
        Whether counts published exactly give the answer, regardless of the noise.
    attack : str
        What they want to find out: that from which they learn most.
    unit_kind : str
        The kind of unit in which they learn most.
    effective_rho : float, optional
        The rho of one count that would reveal as much; None if settled, or if noise is not Gaussian.
    upper_bound : bool
        Whether the risk is an upper bound.

    """

    level: str
    prior: float
    marginal_risk: float
    posterior: float
    correct_decision: float
    settled: bool = False
    attack: str = "presence"
    unit_kind: str = ""
    effective_rho: float | None = None
    upper_bound: bool = False


def risk_by_level(
    plan: Plan,
    priors: Sequence[float] | None = None,
    *,
    invariants: bool = False,
    levels: Sequence[str] | None = None,
    attack: str | None = None,
    geography: Geography | None = None,
    decisions: bool = True,
) -> list[LevelRisk]:
    """Return the largest risk of a plan by level and prior; read no record.

    At each level the intruder knows everyone else in a unit, and sees the whole release. The risk is
    that of the worst attack, target and unit.

    Parameters
    ----------
    plan : Plan
        The plan whose noise is assessed.
    priors : sequence of float, optional
        The intruder's probabilities of the truth; the plan's priors by default.
    invariants : bool
        Whether they also see what the plan publishes exactly.
    levels : sequence of str, optional
        The levels to assess; by default all down to the lowest measured one.
    attack : str, optional
        One attack by its name, such as "presence" or "unknown attribute: AGE"; all by default.
    geography : Geography, optional
        The places; by default those of the plan's crosswalk.
    decisions : bool
        Whether to compute how often they guess the truth, which takes most of the time.

    Returns
    -------
    list of LevelRisk
        For each level and prior.

    """
    beliefs = plan.intruder.priors if priors is None else priors
    rows = plan.rows_per_person
    risks = []
    for level in plan.estimated_levels if levels is None else levels:
        items = _evidence(plan, level, attack, geography, invariants)
        losses = [None if item.settled else item.loss(rows) for _, item in items]
        for prior in beliefs:
            odds = Intruder(prior=prior, rows=rows).log_odds
            after = [1.0 if loss is None else expected_posterior(loss, odds) for loss in losses]
            posterior = max(after)
            name, item = items[after.index(posterior)]
            right = 1.0 if decisions else math.nan
            if decisions and not item.settled:
                right = item.right(odds, rows)
            risks.append(
                LevelRisk(
                    level,
                    prior,
                    posterior / prior,
                    posterior,
                    right,
                    item.settled,
                    name,
                    item.unit_kind,
                    None if item.settled else item.effective_rho(rows),
                    item.siblings_known,
                )
            )
    return risks


def _evidence(
    plan: Plan, level: str, name: str | None, geography: Geography | None, invariants: bool
) -> list[tuple[str, Evidence]]:
    """Return what reaches an intruder by each attack; what adds nothing to another is left out."""
    pairs = []
    for attack, attribute in whole_release.attacks_on(plan):
        called = whole_release.name_of(attack, attribute)
        if name is None or name == called:
            items = whole_release.evidence(
                plan,
                level,
                attack=attack,
                attribute=attribute,
                geography=geography,
                invariants=invariants,
            )
            pairs += [(called, item) for item in items]
    certain = [pair for pair in pairs if pair[1].settled]
    return certain[:1] or pairs


def plan_risk(
    plan: Plan, *, prior: float | None = None, geography: Geography | None = None
) -> Risk:
    """Return the largest risk of a plan, with the ladder of what the intruder may know.

    They know everyone else in a unit of the level that the plan says, and see the whole release with
    everything that is published exactly.

    Parameters
    ----------
    plan : Plan
        The plan to assess; no record is read.
    prior : float, optional
        Their probability of the truth; by default that of the plan's priors at which the risk is
        largest.
    geography : Geography, optional
        The places; by default those of the plan's crosswalk.

    Returns
    -------
    Risk
        "marginal risk", with level, attack and kind of unit. `ladder` has the same figure if they knew
        everyone else in a unit of each level.

    Examples
    --------
    >>> risk = plan.risk(prior=0.02)  # doctest: +SKIP
    >>> risk.value, risk.attack, risk.unit_kind  # doctest: +SKIP

    """
    priors = plan.intruder.priors if prior is None else [prior]
    rungs = risk_by_level(plan, priors, invariants=True, geography=geography)
    worst = max(judged(plan, rungs), key=lambda rung: rung.marginal_risk)
    ladder = [rung for rung in rungs if rung.prior == worst.prior]
    return Risk(
        "marginal risk",
        worst.marginal_risk,
        posterior=worst.posterior,
        intruder=Intruder(prior=worst.prior, rows=plan.rows_per_person),
        level=worst.level,
        attack=worst.attack,
        effective_rho=worst.effective_rho,
        unit_kind=worst.unit_kind,
        upper_bound=worst.upper_bound,
        ladder=ladder_table(ladder),
    )


def ladder_table(rungs: Sequence[LevelRisk]) -> pa.Table:
    """Return rungs as a table, the lowest level first."""
    columns = (
        *("level", "attack", "unit_kind", "prior", "posterior", "marginal_risk"),
        *("correct_decision", "effective_rho", "settled", "upper_bound"),
    )
    rows = list(reversed(rungs))
    return pa.table({name: [getattr(rung, name) for rung in rows] for name in columns})


def judged(plan: Plan, risks: list[LevelRisk]) -> list[LevelRisk]:
    """Return the risks the plan's limit applies to: those of the level its intruder knows."""
    return [risk for risk in risks if risk.level == plan.judged_level]
