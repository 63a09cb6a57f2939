"""The risk of the tables that are published, between two ends, for one and the same intruder.

They know everyone else in their target's unit. About people in other units they know everything, or what
a prior says. Let t be their posterior if they saw the measurements, and s if they see the published
tables. Tables are made from measurements, so s is the mean of t over all measurements that end in the
same tables. With M the law of measurements as they expect it, and p their prior,

    R of measurements = E_M t² / p²,    R of tables = E_M s² / p² = (E_M t² - E_M (t - s)²) / p².

The upper end is the first. For the lower end, releases are simulated with the real post-processing: half
of them teach which posterior f to draw from the tables, and the others show how large E_M (t - f)² is at
most. It is smallest for f = s, so that any f gives a lower end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from countveil.assess.intruder.attacks import expected_posterior
from countveil.assess.intruder.decision import sigmoid
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.published.bounded_mean import best_rate, mean_at_most
from countveil.assess.published.learned_posterior import LearnedPosterior
from countveil.assess.published.many_releases import refuse_other_methods
from countveil.assess.published.two_databases import Siblings, Simulation, TwoDatabases
from countveil.assess.published.unknown_siblings import can_be_summed, log_ratio
from countveil.base.numerics import Array, FloatArray
from countveil.base.randomness import BitSource
from countveil.errors import InputError
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan

CONFIDENCE = 0.975
_CAPS = (1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01)


@dataclass(frozen=True, slots=True)
class PublishedRisk:
    """Two ends between which the marginal risk of the published tables is; neither is the risk itself.

    Attributes
    ----------
    lower, upper : float
        The ends, as multiples of the prior. The upper one is the risk of the measurements on the
        target's path, to the same intruder.
    confidence : float
        The probability that the risk is between them.
    prior : float
        The intruder's probability that the target is there, before they see the tables.
    siblings : {"known", "prior"}
        What they know about other units.
    draws : int
        How many releases were simulated, half of them without the target.
    audience : {"public", "internal"}
        "internal" if the counts are confidential.
    """

    lower: float
    upper: float
    confidence: float
    prior: float
    siblings: Siblings
    draws: int
    audience: Literal["public", "internal"] = "internal"

    @property
    def retained(self) -> float:
        """The share of the measurements' risk above 1 that the tables retain, at least."""
        return (self.lower - 1) / (self.upper - 1) if self.upper > 1 else 1.0


def published_risk(
    plan: Plan,
    *,
    counts: Array,
    unit: int,
    cell: int,
    prior: float,
    other: int | None = None,
    siblings: Siblings = "known",
    draws: int = 20_000,
    rng: BitSource,
    confidence: float = CONFIDENCE,
    geography: Geography | None = None,
    audience: Literal["public", "internal"] = "internal",
    progress: Callable[[int, int], None] = lambda done, all_: None,
) -> PublishedRisk:
    """Return a bracket of how much the published tables raise an intruder's probability, on average.

    The intruder knows everyone else in the target's lowest unit. They see the tables that TopDown
    publishes, at every level. The risk is their expected posterior, if the target is there, over their
    prior.

    Parameters
    ----------
    plan : Plan
        The plan that releases the counts, with its noise, post-processing and public facts.
    counts : array, lowest units × cells
        Histograms of everyone, the target included, in the order of the crosswalk. Without a crosswalk,
        all units have the same parents. With siblings="prior", the other units have means here.
    unit, cell : int
        The target's unit, and their cell of the full table.
    prior : float
        The intruder's probability that the target is there.
    other : int, optional
        The cell in which the target is otherwise; nowhere by default.
    siblings : {"known", "prior"}
        Whether the intruder knows everyone in other units too, or expects a Poisson number of people in
        each of their cells, with the means in `counts`. Both ends are for the same intruder.
    draws : int
        How many releases are simulated, half of them without the target.
    rng : BitSource
        The randomness of the simulation.
    confidence : float
        The probability that the bracket contains the risk.
    geography : Geography, optional
        The places; by default those of the plan's crosswalk.
    audience : {"public", "internal"}
        "public" only if the counts are: made up, or released estimates.
    progress : callable
        Called with the draws completed and all draws.

    Returns
    -------
    PublishedRisk
        Both ends, the confidence, and the share that the tables retain of what measurements reveal.

    Examples
    --------
    >>> risk = published_risk(
    ...     plan, counts=counts, unit=0, cell=0, prior=0.3, rng=Seeded(1)
    ... )  # doctest: +SKIP
    >>> risk.lower, risk.upper, risk.retained  # doctest: +SKIP

    """
    who = Intruder(prior=prior, rows=plan.rows_per_person)
    if not 0.5 <= confidence < 1:
        raise InputError(f"confidence: {confidence} is not allowed; use 0.5 to below 1")
    two = TwoDatabases.of(
        plan,
        counts=counts,
        unit=unit,
        cell=cell,
        other=other,
        siblings=siblings,
        geography=geography,
    )
    most = 1 / prior
    if not two.settled:
        most = expected_posterior(two.measured_loss, who.log_odds) / prior
    if plan.method == "none" and siblings == "known":  # the measurements are what is published
        return PublishedRisk(most, most, confidence, prior, siblings, 0, audience)
    refuse_other_methods(plan)
    unsure = siblings == "prior" and other is None and can_be_summed(two)
    drawn = two.simulate(draws // 2, rng=rng, seen=log_ratio if unsure else None, progress=progress)
    each = confidence if drawn.seen is None else 1 - (1 - confidence) / 2
    upper = most
    if drawn.seen is not None:
        upper = min(most, _mean_risk_at_most(drawn.seen, who, each))
    lower = most - _lost_at_most(two, drawn, who, each)
    return PublishedRisk(
        min(max(lower, 1.0), upper), upper, confidence, prior, siblings, draws, audience
    )


def _lost_at_most(
    two: TwoDatabases, drawn: Simulation, who: Intruder, confidence: float
) -> float:
    """Return an upper bound on E_M (t - s)²/p²: what someone loses who sees only the tables.

    The first half of the draws teaches a posterior, and at which value to cut it off so that rare
    tables do not widen the bound; the second half tests it.
    """
    posterior = sigmoid(who.log_odds + drawn.loss)
    weights = _weights(posterior, who.prior)
    draws = posterior.shape[1]
    quarter, half = draws // 4, draws // 2

    def learned(stop: int) -> LearnedPosterior:
        return LearnedPosterior.of(
            drawn.published[:, :stop].reshape(2 * stop, -1),
            posterior[:, :stop].ravel(),
            weights[:, :stop].ravel(),
            narrow=two.whole_cells,
        )

    def losses(model: LearnedPosterior, cap: float, start: int, stop: int) -> FloatArray:
        shown = drawn.published[:, start:stop].reshape(2 * (stop - start), -1)
        guess = np.minimum(model(shown), cap).reshape(2, -1)
        miss = (posterior[:, start:stop] - guess) ** 2
        return np.asarray((weights[:, start:stop] * miss).mean(axis=0) / who.prior**2)

    pilot = learned(quarter)
    best, chosen = np.inf, (1.0, 0.0)
    for cap in _CAPS:
        largest = _largest_loss(cap, who.prior)
        rate, bound = best_rate(
            losses(pilot, cap, quarter, half),
            largest=largest,
            size=draws - half,
            confidence=confidence,
        )
        if bound < best:
            best, chosen = bound, (cap, rate)
    cap, rate = chosen
    return mean_at_most(
        losses(learned(half), cap, half, draws),
        largest=_largest_loss(cap, who.prior),
        rate=rate,
        confidence=confidence,
    )


def _mean_risk_at_most(loss: FloatArray, who: Intruder, confidence: float) -> float:
    """Return an upper bound on E_M t²/p², from draws of the loss: half of them choose the rate."""
    posterior = sigmoid(who.log_odds + loss)
    gains = (_weights(posterior, who.prior) * posterior**2).mean(axis=0) / who.prior**2
    half, largest = len(gains) // 2, 2 / who.prior
    rate, _ = best_rate(
        gains[:half], largest=largest, size=len(gains) - half, confidence=confidence
    )
    return mean_at_most(gains[half:], largest=largest, rate=rate, confidence=confidence)


def _weights(posterior: FloatArray, prior: float) -> FloatArray:
    """Return M/N at draws from N, half of which have the target: 2/(t/p + (1 - t)/(1 - p))."""
    return np.asarray(2 / (posterior / prior + (1 - posterior) / (1 - prior)))


def _largest_loss(cap: float, prior: float) -> float:
    """Return the largest weighted (t - f)²/p² with f up to `cap`: convex in t, so at t = 0 or 1."""
    return max(2 * (1 - prior) * cap**2 / prior**2, 2 / prior)
