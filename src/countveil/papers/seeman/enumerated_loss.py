"""What a release actually reveals about a secret, by going through all databases and all outcomes.

P(y | s, theta) is the mechanism averaged over the databases in which s is true. The loss is the largest
|log P(y | s1, theta)/P(y | s2, theta)| over outcomes and secret pairs (003, Definition 3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from fractions import Fraction
from typing import TypeAlias, TypeVar

from countveil.errors import InfeasibleError, InputError

DatabaseT = TypeVar("DatabaseT", bound=Hashable)
Outcome: TypeAlias = Hashable
OutcomeLaw: TypeAlias = Mapping[Outcome, float]

_NEAR_ONE = 1e-9


def realised_loss(
    mechanism: Callable[[DatabaseT], OutcomeLaw],
    law: Mapping[DatabaseT, Fraction],
    pairs: Iterable[tuple[Callable[[DatabaseT], bool], Callable[[DatabaseT], bool]]],
) -> float:
    """Return the privacy loss of a mechanism between the secrets of all pairs.

    Pairs with an impossible secret are skipped.

    Parameters
    ----------
    mechanism
        From a database to the probability of every outcome.
    law
        The probability of every database, given what is public.
    pairs
        Secrets as tests of a database, two and two.

    Returns
    -------
    float
        The loss; infinite if an outcome is possible under only one secret of a pair.

    Examples
    --------
    >>> from countveil.papers.seeman import secret_pairs
    >>> coin = {(0,): {"heads": 0.75, "tails": 0.25}, (1,): {"heads": 0.25, "tails": 0.75}}
    >>> law = {(0,): Fraction(1, 2), (1,): Fraction(1, 2)}
    >>> round(realised_loss(coin.__getitem__, law, secret_pairs(people=1).pairs), 4)
    1.0986
    """
    worst = 0.0
    for first, second in _both_sides(mechanism, law, pairs):
        for outcome in first.keys() | second.keys():
            p, q = first.get(outcome, 0.0), second.get(outcome, 0.0)
            if p and q:
                worst = max(worst, abs(math.log(p) - math.log(q)))
            elif p or q:
                return math.inf
    return worst


def realised_divergence(
    mechanism: Callable[[DatabaseT], OutcomeLaw],
    law: Mapping[DatabaseT, Fraction],
    pairs: Iterable[tuple[Callable[[DatabaseT], bool], Callable[[DatabaseT], bool]]],
    *,
    order: float,
) -> float:
    """Return the largest Rényi divergence between the secrets of a pair, in either direction.

    Parameters
    ----------
    mechanism, law, pairs
        As for `realised_loss`.
    order
        The order of the divergence, above 1.

    Returns
    -------
    float
        The divergence; infinite if an outcome is possible under only one secret of a pair.
    """
    if not order > 1:
        raise InputError(f"order: {order} is not allowed; give a number above 1")
    worst = 0.0
    for sides in _both_sides(mechanism, law, pairs):
        for above, below in (sides, sides[::-1]):
            if any(p and not below.get(y, 0.0) for y, p in above.items()):
                return math.inf
            log_terms = [
                order * math.log(p) + (1 - order) * math.log(below[y])
                for y, p in above.items()
                if p
            ]
            top = max(log_terms)
            log_sum = top + math.log(math.fsum(math.exp(term - top) for term in log_terms))
            worst = max(worst, log_sum / (order - 1))
    return worst


def conditioned(
    mechanism: Callable[[DatabaseT], OutcomeLaw], event: Callable[[Outcome], bool]
) -> Callable[[DatabaseT], OutcomeLaw]:
    """Return the mechanism that draws again until the event holds (003, Lemma 8).

    Parameters
    ----------
    mechanism
        From a database to the probability of every outcome.
    event
        A test of an outcome.

    Returns
    -------
    callable
        From a database to the probability of every outcome, given the event.
    """

    def of_database(database: DatabaseT) -> OutcomeLaw:
        agreeing = {y: p for y, p in mechanism(database).items() if event(y)}
        whole = math.fsum(agreeing.values())
        if whole <= 0:
            raise InfeasibleError(
                f"event: no outcome that agrees with it is possible for {database}"
            )
        return {y: p / whole for y, p in agreeing.items()}

    return of_database


def _both_sides(
    mechanism: Callable[[DatabaseT], OutcomeLaw],
    law: Mapping[DatabaseT, Fraction],
    pairs: Iterable[tuple[Callable[[DatabaseT], bool], Callable[[DatabaseT], bool]]],
) -> list[tuple[dict[Outcome, float], dict[Outcome, float]]]:
    """Return the law of outcomes under either secret, for each pair whose secrets are possible."""
    if any(p < 0 for p in law.values()) or sum(law.values()) != 1:
        raise InputError("law: its probabilities must not be negative, and must sum to 1 exactly")
    outcomes = {x: mechanism(x) for x, p in law.items() if p}
    for x, of_database in outcomes.items():
        total = math.fsum(of_database.values())
        if min(of_database.values()) < 0 or abs(total - 1) > _NEAR_ONE:
            raise InputError(
                f"mechanism: for {x} its probabilities sum to {total}; they must be 0 or more and sum "
                f"to 1"
            )
    averages: dict[Callable[[DatabaseT], bool], dict[Outcome, float] | None] = {}
    sides = []
    for pair in pairs:
        for secret in pair:
            if secret not in averages:
                averages[secret] = _average(outcomes, law, secret)
        first, second = (averages[secret] for secret in pair)
        if first is not None and second is not None:
            sides.append((first, second))
    if not sides:
        raise InfeasibleError(
            "pairs: under this law one secret of every pair is certain; no secret pair remains"
        )
    return sides


def _average(
    outcomes: Mapping[DatabaseT, OutcomeLaw],
    law: Mapping[DatabaseT, Fraction],
    secret: Callable[[DatabaseT], bool],
) -> dict[Outcome, float] | None:
    """Return P(y | s), or None if s is impossible."""
    where = [x for x in outcomes if secret(x)]
    whole = sum((law[x] for x in where), Fraction(0))
    if not whole:
        return None
    terms: dict[Outcome, list[float]] = {}
    for x in where:
        share = float(law[x] / whole)
        for outcome, p in outcomes[x].items():
            terms.setdefault(outcome, []).append(share * p)
    return {outcome: math.fsum(parts) for outcome, parts in terms.items()}
