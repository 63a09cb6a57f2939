"""The risk of a plan before any record is read: the worst case, and the ladder of what they know."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa

from countveil.assess.intruder import whole_release
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.intruder.whole_release import Evidence
from countveil.assess.risk import Risk
from countveil.base import words
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan


@dataclass(frozen=True, slots=True)
class LevelRisk:
    """What someone learns from a whole release who knows everyone else in a unit of a level.

    The one record of the risk of a plan, and the one place that words it: verdicts, tables, pages and
    charts hold it and ask it. The target has as many rows as the plan allows a person.

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
    decision_upper_bound : bool
        Whether `correct_decision` is an upper bound.

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
    decision_upper_bound: bool = False

    @property
    def about(self) -> str:
        """What they learn about, in a word or two."""
        return whole_release.about(self.attack)

    def times(self, *, limit: float | None = None) -> str:
        """Return the ratio to the prior as people read it, on its side of a limit: "at most 2.2"."""
        return words.at_most(words.multiple(self.marginal_risk, limit=limit), self.upper_bound)

    def in_table(self, *, limit: float | None = None) -> str:
        """Return the ratio to the prior for a table of levels, where certainty is a word."""
        return "certain" if self.settled else self.times(limit=limit)

    @property
    def reached(self) -> str:
        """The probability that they reach, as people read it: "at most 4.4 %"."""
        share = words.brief_percent(self.posterior, other=self.prior)
        return words.at_most(share, self.upper_bound)

    def reached_and_times(self, *, limit: float | None = None) -> str:
        """Return both figures for a table: "at most 4.4 %, × 2.2"."""
        share = words.brief_percent(self.posterior, other=self.prior)
        times = words.multiple(self.marginal_risk, limit=limit)
        return words.at_most(f"{share}, ×\u00a0{times}", self.upper_bound)

    def gain(self, *, limit: float | None = None) -> str:
        """Return what the release does to their belief, as a clause."""
        return (
            f"would become more certain if they are right: from {words.prior_percent(self.prior)} to "
            f"{self.reached} on average, {self.times(limit=limit)} times their prior"
        )

    @property
    def guesses(self) -> str:
        """How often they then guess the truth, as people read it: "at most 66 times out of 100"."""
        often = words.times_out_of(self.correct_decision)
        return words.at_most(often, self.decision_upper_bound and 0 < self.correct_decision < 1)

    def finding(self, *, limit: float | None = None) -> str:
        """Return who learns what: a sentence without its full stop."""
        everyone = f"everyone else in {words.article(self.level)}"
        aim = whole_release.aim_of(self.attack)
        if self.settled:
            return f"Exactly published counts reveal {aim} to anyone who knows {everyone}"
        return (
            f"Someone who knows {everyone}, sees the whole release and tries to learn {aim} "
            f"{self.gain(limit=limit)}"
        )

    def as_risk(self, measure: Literal["marginal risk", "correct decision"]) -> Risk:
        """Return one of the two measures alone, as charts and other measures have it."""
        share = measure == "correct decision"
        return Risk(
            measure,
            self.correct_decision if share else self.marginal_risk,
            posterior=None if share else self.posterior,
            level=self.level,
            attack=self.attack,
            effective_rho=self.effective_rho,
            unit_kind=self.unit_kind,
            upper_bound=self.decision_upper_bound if share else self.upper_bound,
        )


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
    return [
        risk
        for level in (plan.estimated_levels if levels is None else levels)
        for risk in risks_of(
            plan,
            level,
            _views(plan, level, attack, geography, invariants),
            beliefs,
            decisions=decisions,
        )
    ]


def risks_of(
    plan: Plan,
    level: str,
    views: Sequence[tuple[str, Evidence]],
    priors: Sequence[float],
    *,
    decisions: bool = True,
) -> list[LevelRisk]:
    """Return the largest risk for each prior, of what reaches an intruder by some attacks.

    Parameters
    ----------
    plan : Plan
        The plan whose noise is assessed.
    level : str
        The level of the unit in which they know everyone else.
    views : sequence of (str, Evidence)
        What reaches them by each attack, as `whole_release.evidence` returns it.
    priors : sequence of float
        Their probabilities of the truth.
    decisions : bool
        Whether to compute how often they guess the truth, which takes most of the time.

    Returns
    -------
    list of LevelRisk
        One per prior.

    """
    rows = plan.rows_per_person
    # Where exactly published counts give one answer, no other attack reveals more.
    views = [view for view in views if view[1].settled][:1] or views
    risks = []
    for prior in priors:
        odds = Intruder(prior=prior, rows=rows).log_odds
        after = [item.posterior(odds, rows) for _, item in views]
        worst = max(range(len(after)), key=lambda number: after[number][0])
        (attack, item), (posterior, bound) = views[worst], after[worst]
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
                attack,
                item.unit_kind,
                None if item.settled else item.effective_rho(rows),
                bound,
                item.guesses_bounded,
            )
        )
    return risks


def decision_risks(
    plan: Plan, views: Sequence[Evidence], prior: float, *, attack: str = "presence"
) -> tuple[Risk, Risk]:
    """Return how often they guess correctly if their guess is true, and if it is not.

    Noise is symmetric: deciding about a guess that is false is deciding about a true one with the
    complementary prior.
    """
    bound = not any(item.settled for item in views) and any(item.guesses_bounded for item in views)
    there, away = (
        Risk("correct decision", value, level=plan.judged_level, attack=attack, upper_bound=bound)
        for value in whole_release.decisions_by_prior(plan, views, (prior, 1 - prior))
    )
    return there, away


def _views(
    plan: Plan, level: str, name: str | None, geography: Geography | None, invariants: bool
) -> list[tuple[str, Evidence]]:
    """Return what reaches an intruder by one attack, or by each."""
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
    return pairs


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
    return replace(
        worst.as_risk("marginal risk"),
        intruder=Intruder(prior=worst.prior, rows=plan.rows_per_person),
        ladder=ladder_table(ladder),
    )


def ladder_table(rungs: Sequence[LevelRisk]) -> pa.Table:
    """Return rungs as a table, the lowest level first."""
    columns = (
        *("level", "attack", "unit_kind", "prior", "posterior", "marginal_risk"),
        *("correct_decision", "effective_rho", "settled", "upper_bound", "decision_upper_bound"),
    )
    rows = list(reversed(rungs))
    return pa.table({name: [getattr(rung, name) for rung in rows] for name in columns})


def judged(plan: Plan, risks: list[LevelRisk]) -> list[LevelRisk]:
    """Return the risks the plan's limit applies to: those of the level its intruder knows."""
    return [risk for risk in risks if risk.level == plan.judged_level]
