"""The homogeneity attack on published tables: the share of people whom it reveals, between two ends.

The attack is a fixed reading: where a cell of place × identifiers shows one sensitive value, it is
believed. So each simulated release, post-processed by TopDown itself, gives one share of the
people, and the share expected over the noise is the mean of a law on [0, 1]. Both ends bound that mean
with the stated confidence for any such law: no normal approximation, valid for few releases too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from countveil.assess.homogeneity.single_values import attack_query, read_tables, value_count
from countveil.assess.published.bounded_mean import Ends, mean_between
from countveil.assess.published.many_releases import (
    SimulatedReleases,
    answers_of,
    lowest_counts,
    refuse_other_methods,
)
from countveil.base.numerics import Array, IntArray
from countveil.base.randomness import BitSource
from countveil.errors import InputError
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan

CONFIDENCE = 0.975
_NUMBERS = 4_000_000  # counts and values of releases that are simulated together
_LEAST_DRAWS = 50


class Attack(NamedTuple):
    """The attribute or recode that is attacked, and those that the intruder knows."""

    sensitive: str
    identifiers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PublishedHomogeneity:
    """Two ends of the share of people whose value the published tables reveal; neither is the share.

    Attributes
    ----------
    lower, upper : float
        The ends of the share of people to whom the attack attributes their own value, on average over
        releases.
    misled : Ends
        Both ends of the share of people to whom it attributes a wrong value.
    before : float
        The share of people whose value the exact table would reveal; it would mislead no one.
    confidence : float
        The probability that all four ends hold.
    level : str
        The level of the places.
    sensitive : str
        The attribute that is attacked.
    identifiers : tuple of str
        The attributes that the intruder knows.
    draws : int
        How many releases were simulated.
    audience : {"public", "internal"}
        "internal" if the counts are confidential.
    """

    lower: float
    upper: float
    misled: Ends
    before: float
    confidence: float
    level: str
    sensitive: str
    identifiers: tuple[str, ...]
    draws: int
    audience: Literal["public", "internal"] = "internal"


def published_homogeneity(
    plan: Plan,
    *,
    counts: Array,
    level: str,
    sensitive: str,
    identifiers: Sequence[str] = (),
    draws: int = 2_000,
    rng: BitSource,
    confidence: float = CONFIDENCE,
    geography: Geography | None = None,
    audience: Literal["public", "internal"] = "internal",
    progress: Callable[[int, int], None] = lambda done, all_: None,
) -> PublishedHomogeneity:
    """Return a bracket of the share of people whose sensitive value the published tables reveal.

    The intruder knows the place of a person at `level`, and their `identifiers`. They see the tables
    that TopDown publishes, and look up that cell. If it shows one sensitive value only, they believe
    it; otherwise they conclude nothing. The share is that of the people counted whom this reveals,
    on average over all releases that the plan can make of these counts. It is not how much anyone
    learns: always guessing the most frequent value is right about many people without any table. So
    compare it with `before`, the share that the exact table would reveal, and with `misled`.

    Parameters
    ----------
    plan : Plan
        The plan that releases the counts, with its noise, post-processing and public facts.
    counts : array, lowest units × cells
        Histograms of everyone, in the order of the crosswalk. Without a crosswalk, all units have the
        same parents.
    level : str
        The level of the place that the intruder knows.
    sensitive : str
        The attribute or recode that they want to know.
    identifiers : sequence of str
        The attributes or recodes that they know.
    draws : int
        How many releases are simulated.
    rng : BitSource
        The randomness of the simulation.
    confidence : float
        The probability that all ends hold.
    geography : Geography, optional
        The places; by default those of the plan's crosswalk.
    audience : {"public", "internal"}
        "public" only if the counts are: made up, or released estimates.
    progress : callable
        Called with the releases completed and all releases.

    Returns
    -------
    PublishedHomogeneity
        Both ends, those of the people misled, and what the exact table would reveal.

    Examples
    --------
    >>> attack = published_homogeneity(
    ...     plan, counts=counts, level="block", sensitive="RACE", identifiers=["AGE"], rng=Seeded(1)
    ... )  # doctest: +SKIP
    >>> attack.before, attack.lower, attack.upper  # doctest: +SKIP

    """
    (attack,) = published_attacks(
        plan,
        [Attack(sensitive, tuple(identifiers))],
        counts=counts,
        level=level,
        draws=draws,
        rng=rng,
        confidence=confidence,
        geography=geography,
        audience=audience,
        progress=progress,
    )
    return attack


def published_attacks(
    plan: Plan,
    attacks: Sequence[Attack],
    *,
    counts: Array,
    level: str,
    draws: int = 2_000,
    rng: BitSource,
    confidence: float = CONFIDENCE,
    geography: Geography | None = None,
    audience: Literal["public", "internal"] = "internal",
    progress: Callable[[int, int], None] = lambda done, all_: None,
) -> tuple[PublishedHomogeneity, ...]:
    """Return a bracket for each of several attacks, from the same simulated releases.

    Parameters
    ----------
    plan, counts, level, draws, rng, confidence, geography, audience, progress
        As for `published_homogeneity`; the confidence is that of all brackets together.
    attacks : sequence of Attack
        What the intruder wants to know, and what they know.

    Returns
    -------
    tuple of PublishedHomogeneity
        The brackets, in the order of the attacks.
    """
    queries = [attack_query(plan, level, item.sensitive, item.identifiers) for item in attacks]
    if isinstance(draws, bool) or not isinstance(draws, int) or draws < _LEAST_DRAWS:
        raise InputError(f"draws: {draws!r} is not allowed; use at least {_LEAST_DRAWS}")
    if not 0.5 <= confidence < 1:
        raise InputError(f"confidence: {confidence} is not allowed; use 0.5 to below 1")
    refuse_other_methods(plan)
    table, places = lowest_counts(plan, counts, geography)
    if (table != np.floor(table)).any() or not np.isfinite(table).all():
        raise InputError("counts: people must be whole numbers")
    histograms = table.astype(np.int64)
    if not histograms.any():
        raise InputError("counts: every count is 0, so there is no target")
    people = np.zeros((places.units(level), plan.schema.cells), np.int64)
    np.add.at(people, places.ancestors(plan.levels[-1], level), histograms)
    exact = [answers_of(query, people) for query in queries]
    ends = np.cumsum([query.cells for query in queries])[:-1]
    right = np.empty((len(attacks), draws))
    wrong = np.empty((len(attacks), draws))
    step = max(1, _NUMBERS // _numbers(plan, places, histograms))
    for start in range(0, draws, step):
        stop = min(start + step, draws)
        many = np.broadcast_to(histograms, (stop - start, *histograms.shape))
        releases = SimulatedReleases.draw(plan, places, many, rng=rng)
        shown = np.split(releases.tables(level, queries, rng=rng), ends, axis=2)
        for number, query in enumerate(queries):
            read = read_tables(exact[number], shown[number], value_count(query))
            right[number, start:stop] = read.right / people.sum()
            wrong[number, start:stop] = read.wrong / people.sum()
        progress(stop, draws)
    each = 1 - (1 - confidence) / (2 * len(attacks))
    return tuple(
        PublishedHomogeneity(
            *mean_between(right[number], confidence=each),
            misled=mean_between(wrong[number], confidence=each),
            before=_revealed(exact[number], value_count(query)) / int(people.sum()),
            confidence=confidence,
            level=level,
            sensitive=attack.sensitive,
            identifiers=attack.identifiers,
            draws=draws,
            audience=audience,
        )
        for number, (attack, query) in enumerate(zip(attacks, queries, strict=True))
    )


def _revealed(exact: IntArray, values: int) -> int:
    """Return how many people the exact table reveals."""
    return int(read_tables(exact, exact[None], values).right[0])


def _numbers(plan: Plan, places: Geography, histograms: IntArray) -> int:
    """Return how many counts and measured values a release has."""
    return 2 * histograms.size + sum(
        places.units(level) * sum(item.query.cells for item in plan.at(level))
        for level in plan.levels
    )
