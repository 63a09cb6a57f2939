"""The risk of the tables that are published, between two ends, for one and the same intruder.

They know everyone else in their target's unit. About people in other units they know everything, what
a prior says, or nothing. Let t be their posterior if they saw the measurements, and s if they see the
published tables. Tables are made from measurements, so s is the mean of t over all measurements that
end in the same tables. With M the law of measurements as they expect it, and p their prior,

    R of measurements = E_M t² / p²,    R of tables = E_M s² / p² = (E_M t² - E_M (t - s)²) / p².

The upper end is the first. For the lower end, releases are simulated with the real post-processing:
some teach which posterior f to draw from the tables, and others show how large E_M (t - f)² is at most.
It is smallest for f = s, so that any f gives a lower end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

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
_PARTS = 6
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
    siblings : {"known", "prior", "flat"}
        What they know about other units, or count as knowing.
    draws : int
        How many releases were simulated, half of them without the target.
    knows : str
        The level of the unit in which they know everyone else.
    audience : {"public", "internal"}
        "internal" if the counts are confidential.
    """

    lower: float
    upper: float
    confidence: float
    prior: float
    siblings: Siblings
    draws: int
    knows: str
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
    knows: str | None = None,
    draws: int = 20_000,
    rng: BitSource,
    confidence: float = CONFIDENCE,
    geography: Geography | None = None,
    audience: Literal["public", "internal"] = "internal",
    progress: Callable[[int, int], None] = lambda done, all_: None,
) -> PublishedRisk:
    """Return a bracket of how much the published tables raise an intruder's probability, on average.

    The intruder knows everyone else in the target's unit of the level `knows`. They see the tables
    that TopDown publishes, at every level. The risk is their expected posterior, if the target is
    there, over their prior.

    Parameters
    ----------
    plan : Plan
        The plan that releases the counts, with its noise, post-processing and public facts.
    counts : array, lowest units × cells
        Histograms of everyone, the target included, in the order of the crosswalk. Without a crosswalk,
        all units have the same parents. With siblings="prior", units that the intruder does not know
        have means here; with "flat", what they have makes no difference.
    unit, cell : int
        The target's unit, and their cell of the full table.
    prior : float
        The intruder's probability that the target is there.
    other : int, optional
        The cell in which the target is otherwise; nowhere by default.
    siblings : {"known", "prior", "flat"}
        Whether the intruder knows everyone in other units too, expects a Poisson number of people in
        each of their cells, with the means in `counts`, or knows nothing about them, like the intruder
        that a plan is judged by. Both ends are for the same intruder. Where noise is too small or not
        Gaussian, "flat" is "known", as it is for plans.
    knows : str, optional
        The level of the unit in which they know everyone else; by default that of the plan.
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
    two = TwoDatabases.of(
        plan,
        counts=counts,
        unit=unit,
        cell=cell,
        other=other,
        knows=knows,
        siblings=siblings,
        geography=geography,
    )
    refuse_low_confidence(confidence)
    Intruder(prior=prior)  # refuses what is not allowed before the simulation, not after
    drawn = None
    if needs_simulation(two):
        refuse_other_methods(plan)
        drawn = simulated(two, draws, rng=rng, progress=progress)
    return risk_of(two, drawn, prior=prior, confidence=confidence, audience=audience)


def needs_simulation(two: TwoDatabases) -> bool:
    """Whether the tables are not the measurements, whose risk is known without drawing any."""
    return two.plan.method != "none" or two.siblings == "prior"


def simulated(
    two: TwoDatabases,
    draws: int,
    *,
    rng: BitSource,
    progress: Callable[[int, int], None] = lambda done, all_: None,
) -> Simulation:
    """Simulate releases from which the risk of tables can be bracketed."""
    unsure = two.siblings == "prior" and two.target.other is None and can_be_summed(two)
    return two.simulate(draws, rng=rng, seen=log_ratio if unsure else None, progress=progress)


def risk_of(
    two: TwoDatabases,
    drawn: Simulation | None,
    *,
    prior: float,
    confidence: float = CONFIDENCE,
    audience: Literal["public", "internal"] = "internal",
) -> PublishedRisk:
    """Return the bracket that simulated releases give; without any, tables are the measurements."""
    who = Intruder(prior=prior, rows=two.plan.rows_per_person)
    most, draws = 1 / prior, 0
    if not two.settled:
        most = two.measured_posterior(who.log_odds) / prior
    lower = upper = most
    if drawn is not None:
        draws = drawn.loss.size
        each = confidence if drawn.seen is None else 1 - (1 - confidence) / 2
        if drawn.seen is not None:
            upper = min(most, _mean_risk_at_most(drawn.seen, who, each))
        lower = _risk_at_least(two, drawn, who, each, None if drawn.seen is not None else most)
        lower = min(max(lower, 1.0), upper)
    return PublishedRisk(lower, upper, confidence, prior, two.siblings, draws, two.knows, audience)


def refuse_low_confidence(confidence: float) -> None:
    """Refuse a confidence that no bracket has."""
    if not 0.5 <= confidence < 1:
        raise InputError(f"confidence: {confidence} is not allowed; use 0.5 to below 1")


class _Tested(NamedTuple):
    """Losses of draws that played no part in choosing what was tested, and how much each counts."""

    losses: FloatArray
    rates: FloatArray


def _risk_at_least(
    two: TwoDatabases, drawn: Simulation, who: Intruder, confidence: float, measured: float | None
) -> float:
    """Return a lower bound on E_M s²/p², the risk of the tables.

    It is the risk of the measurements, if that is known, less a bound on E_M (t - f)²/p². Otherwise it
    is a bound on E_M (2 t f - f²)/p², which is the same but for E_M t². Each part of the draws tests a
    posterior f that was learned from the parts before, cut off where rare tables would widen the bound.
    No f does better than s, so all tests together bound what s would do.
    """
    most = 2 / who.prior if measured is None else measured
    posterior = sigmoid(who.log_odds + (drawn.loss if drawn.seen is None else drawn.seen))
    weights = weights_of(posterior, who.prior)
    draws = posterior.shape[1]
    cuts = [draws * number // _PARTS for number in range(_PARTS + 1)]

    def learned(stop: int) -> LearnedPosterior:
        return LearnedPosterior.of(
            drawn.published[:, :stop].reshape(2 * stop, -1),
            posterior[:, :stop].ravel(),
            weights[:, :stop].ravel(),
            narrow=two.whole_cells,
        )

    def guesses(model: LearnedPosterior, start: int, stop: int) -> FloatArray:
        return model(drawn.published[:, start:stop].reshape(2 * (stop - start), -1))

    def losses(guess: FloatArray, cap: float, start: int, stop: int) -> FloatArray:
        f, t = np.minimum(guess, cap), posterior[:, start:stop].ravel()
        times = weights[:, start:stop].ravel() / who.prior**2
        if measured is None:
            return np.asarray(np.maximum(most - times * (2 * t * f - f**2), 0.0))
        return np.asarray(times * (t - f) ** 2)

    tested: list[_Tested] = []
    start, stop = cuts[0], cuts[1]
    guess = guesses(learned(start + (stop - start) // 2), (start + stop) // 2, stop)
    start = (start + stop) // 2
    for begin, end in pairwise(cuts[1:]):
        choices = {
            cap: best_rate(
                losses(guess, cap, start, stop),
                largest=_largest_loss(cap, who.prior) + (most if measured is None else 0.0),
                size=2 * (draws - cuts[1]),
                confidence=confidence,
            )
            for cap in _CAPS
        }
        cap = min(choices, key=lambda item: choices[item].bound)
        start, stop = begin, end
        guess = guesses(learned(begin), begin, end)
        tested_losses = losses(guess, cap, begin, end)
        tested.append(_Tested(tested_losses, np.full(len(tested_losses), choices[cap].rate)))
    return most - mean_at_most(
        np.concatenate([item.losses for item in tested]),
        np.concatenate([item.rates for item in tested]),
        confidence=confidence,
    )


def _mean_risk_at_most(loss: FloatArray, who: Intruder, confidence: float) -> float:
    """Return an upper bound on E_M t²/p², from draws of the loss; some of them choose the rate."""
    posterior = sigmoid(who.log_odds + loss)
    gains = weights_of(posterior, who.prior) * posterior**2 / who.prior**2
    few = gains.shape[1] // _PARTS
    pilot, rest = gains[:, :few].ravel(), gains[:, few:].ravel()
    rate, _ = best_rate(pilot, largest=2 / who.prior, size=len(rest), confidence=confidence)
    return mean_at_most(rest, rate, confidence=confidence)


def weights_of(posterior: FloatArray, prior: float) -> FloatArray:
    """Return M/N at draws from N, half of which have the target: 2/(t/p + (1 - t)/(1 - p))."""
    return np.asarray(2 / (posterior / prior + (1 - posterior) / (1 - prior)))


def _largest_loss(cap: float, prior: float) -> float:
    """Return the largest weighted (t - f)²/p² with f up to `cap`: convex in t, so at t = 0 or 1."""
    return max(2 * (1 - prior) * cap**2 / prior**2, 2 / prior)
