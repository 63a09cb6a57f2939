"""What a release really tells of a secret, by going through all databases and all outcomes.

P(y | s, theta) is the mechanism averaged over the databases in which s is true. The loss is the
largest |log P(y | s1, theta)/P(y | s2, theta)| over outcomes and secret pairs (003, Definition 3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from fractions import Fraction
from typing import TypeAlias, TypeVar

from countveil.errors import InfeasibleError, InputError

Database = TypeVar("Database", bound=Hashable)
Outcome: TypeAlias = Hashable
Law: TypeAlias = Mapping[Outcome, float]

_NEAR_ONE = 1e-9


def realised_loss(
    mechanism: Callable[[Database], Law],
    law: Mapping[Database, Fraction],
    pairs: Iterable[tuple[Callable[[Database], bool], Callable[[Database], bool]]],
) -> float:
    """Return the loss; infinite if an outcome is possible under one secret of a pair only.

    `mechanism` gives the probability of every outcome for a database, `law` that of every database
    given what is public, `pairs` the secrets as tests of a database. Pairs of which one is
    impossible are left out.
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
    mechanism: Callable[[Database], Law],
    law: Mapping[Database, Fraction],
    pairs: Iterable[tuple[Callable[[Database], bool], Callable[[Database], bool]]],
    *,
    order: float,
) -> float:
    """Return the largest Rényi divergence of this order, above 1, in either direction of a pair."""
    if not order > 1:
        raise InputError(f"order: {order} is not allowed; it is a number above 1")
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
    mechanism: Callable[[Database], Law], event: Callable[[Outcome], bool]
) -> Callable[[Database], Law]:
    """Return the mechanism whose outcomes are drawn again until the event holds (003, Lemma 8)."""

    def kept(database: Database) -> Law:
        found = {y: p for y, p in mechanism(database).items() if event(y)}
        whole = math.fsum(found.values())
        if whole <= 0:
            raise InfeasibleError(
                f"event: no outcome that agrees with it is possible for {database}"
            )
        return {y: p / whole for y, p in found.items()}

    return kept


def _both_sides(
    mechanism: Callable[[Database], Law],
    law: Mapping[Database, Fraction],
    pairs: Iterable[tuple[Callable[[Database], bool], Callable[[Database], bool]]],
) -> list[tuple[dict[Outcome, float], dict[Outcome, float]]]:
    if any(p < 0 for p in law.values()) or sum(law.values()) != 1:
        raise InputError("law: its probabilities must not be negative, and sum to 1 exactly")
    outcomes = {x: mechanism(x) for x, p in law.items() if p}
    for x, found in outcomes.items():
        if min(found.values()) < 0 or abs(math.fsum(found.values()) - 1) > _NEAR_ONE:
            raise InputError(
                f"mechanism: for {x} its probabilities sum to {math.fsum(found.values())}; they "
                f"must be 0 or more and sum to 1"
            )
    averages: dict[Callable[[Database], bool], dict[Outcome, float] | None] = {}
    sides = []
    for pair in pairs:
        for secret in pair:
            if secret not in averages:
                averages[secret] = _averaged(outcomes, law, secret)
        first, second = (averages[secret] for secret in pair)
        if first is not None and second is not None:
            sides.append((first, second))
    if not sides:
        raise InfeasibleError(
            "pairs: under this law one secret of every pair is certain; no secret pair remains"
        )
    return sides


def _averaged(
    outcomes: Mapping[Database, Law],
    law: Mapping[Database, Fraction],
    secret: Callable[[Database], bool],
) -> dict[Outcome, float] | None:
    """Return P(y | s), or none if s is impossible."""
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
