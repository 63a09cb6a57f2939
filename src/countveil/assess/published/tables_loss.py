"""The privacy loss that published tables show, between two ends, for one person in given counts.

Upper end: the smallest epsilon that the measurements on the person's path satisfy at a delta; tables
are made from measurements, so they satisfy it too. Lower end, from simulated releases: for any event E
in the tables, delta at epsilon is at least P(E | with) - exp(epsilon) P(E | without), and the same with
both exchanged. The best E is a posterior above some value; it is learned from some releases and tested
on others. Epsilons are tried from 0 upwards until one is not refuted, so that passing the true one
takes a false refutation at it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import brentq

from countveil.assess.intruder.combined_loss import lattice_loss
from countveil.assess.intruder.decision import sigmoid
from countveil.assess.published.bounded_mean import mean_at_most
from countveil.assess.published.learned_posterior import LearnedPosterior
from countveil.assess.published.many_releases import refuse_other_methods
from countveil.assess.published.two_databases import Simulation, TwoDatabases
from countveil.base.numerics import Array, FloatArray
from countveil.base.randomness import BitSource
from countveil.errors import InputError
from countveil.noise.law import LossLaw, hockey_stick_of
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan

CONFIDENCE = 0.975
_STEPS = 200  # epsilons tried, up to the upper end
_LARGEST = 20.0  # epsilon that is tried where no epsilon holds


@dataclass(frozen=True, slots=True)
class PublishedLoss:
    """Two ends of the epsilon of the published tables at a delta, for one person.

    Attributes
    ----------
    lower, upper : float
        The ends; the upper one is the epsilon of the measurements on the person's path, infinite if
        counts that are published exactly give the person away.
    delta : float
        The delta at which both are computed.
    confidence : float
        The probability that the lower end holds.
    draws : int
        How many releases were simulated, half of them without the person.
    audience : {"public", "internal"}
        "internal" if the counts are confidential.
    """

    lower: float
    upper: float
    delta: float
    confidence: float
    draws: int
    audience: Literal["public", "internal"] = "internal"


def published_loss(
    plan: Plan,
    *,
    counts: Array,
    unit: int,
    cell: int,
    delta: float,
    other: int | None = None,
    siblings: Literal["known", "flat"] = "known",
    knows: str | None = None,
    draws: int = 20_000,
    rng: BitSource,
    confidence: float = CONFIDENCE,
    geography: Geography | None = None,
    audience: Literal["public", "internal"] = "internal",
    progress: Callable[[int, int], None] = lambda done, all_: None,
) -> PublishedLoss:
    """Return a bracket of the epsilon at which published tables hide one person from an intruder.

    Parameters
    ----------
    plan, counts, unit, cell, other, siblings, knows, draws, rng, geography, audience, progress
        As for `published_risk`; siblings="prior" is not possible.
    delta : float
        The delta at which epsilon is bracketed, from above 0 to below 1.
    confidence : float
        The confidence of the lower end.

    Returns
    -------
    PublishedLoss
        Both ends.

    Examples
    --------
    >>> loss = published_loss(
    ...     plan, counts=counts, unit=0, cell=0, delta=1e-3, rng=Seeded(1)
    ... )  # doctest: +SKIP
    >>> loss.lower, loss.upper  # doctest: +SKIP

    """
    if siblings not in ("known", "flat"):
        raise InputError(f'siblings: {siblings!r} is not allowed; choose "known" or "flat"')
    refuse_other_methods(plan)
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
    refuse_delta(delta)
    drawn = two.simulate(draws, rng=rng, progress=progress)
    return loss_of(two, drawn, delta=delta, confidence=confidence, audience=audience)


def loss_of(
    two: TwoDatabases,
    drawn: Simulation,
    *,
    delta: float,
    confidence: float = CONFIDENCE,
    audience: Literal["public", "internal"] = "internal",
) -> PublishedLoss:
    """Return the bracket that simulated releases give."""
    refuse_delta(delta)
    upper = np.inf if two.settled else _epsilon(_measured(two), delta)
    half = drawn.loss.shape[1] // 2
    posterior = sigmoid(drawn.loss)
    learned = LearnedPosterior.of(
        drawn.published[:, :half].reshape(2 * half, -1),
        posterior[:, :half].ravel(),
        np.ones(2 * half),
        narrow=two.whole_cells,
    )
    guess = learned(drawn.published.reshape(-1, drawn.published.shape[2])).reshape(posterior.shape)
    each = 1 - (1 - confidence) / 2
    lower = max(
        _refuted(one, other, half, min(upper, _LARGEST), delta, each)
        for one, other in ((posterior, guess), (1 - posterior, 1 - guess))
    )
    return PublishedLoss(
        min(lower, float(upper)), float(upper), delta, confidence, drawn.loss.size, audience
    )


def refuse_delta(delta: float) -> None:
    """Refuse a delta at which no epsilon can be given."""
    if not 0 < delta < 1:
        raise InputError(f"delta: {delta} is not allowed; it must be above 0 and below 1")


def _measured(two: TwoDatabases) -> LossLaw:
    """Return the law of what the measurements say, exactly where all of it is on the lattice."""
    if two.siblings == "flat":
        return two.measured_loss
    return lattice_loss(two.measured_laws, two.plan.rows_per_person)


def _refuted(
    posterior: FloatArray,
    guess: FloatArray,
    half: int,
    largest: float,
    delta: float,
    confidence: float,
) -> float:
    """Return the last of the epsilons from 0 on that the second half of the draws refutes."""
    last = 0.0
    for epsilon in np.linspace(0.0, largest, _STEPS + 1)[:-1]:
        # P(E | with) - exp(epsilon) P(E | without), on average over draws from both databases.
        event = guess > sigmoid(np.array(epsilon))
        gain = 2 * event * (posterior - np.exp(epsilon) * (1 - posterior))
        short = 2 - gain
        most, goal = 2 + 2 * np.exp(epsilon), -np.log1p(-confidence)
        pilot, tested = short[:, :half].ravel(), short[:, half:].ravel()
        rate = min(0.9 / most, np.sqrt(2 * goal / len(tested) / max(pilot.var(), 1e-12)))
        if 2 - mean_at_most(tested, float(rate), confidence=confidence) <= delta:
            break
        last = float(epsilon)
    return last


def _epsilon(loss: LossLaw, delta: float) -> float:
    """Return the smallest epsilon at a delta, 0 or more."""

    def excess(epsilon: float) -> float:
        return float(hockey_stick_of(loss.points, loss.weights, np.array(epsilon))) - delta

    if excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, float(loss.points.max()) + 1.0, xtol=1e-12))
