"""Adding up promises beside public information: along one shared coupling, or not at all.

Releases that are epsilon_i for each pair of databases which one coupling has are, together, the sum
for each of these pairs, and so for the mixtures. Without a shared coupling each release may hide
the secret behind other people's values, and all of them together may not: Lemmas 6 and 7 of paper
003 are false.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TypeVar

from countveil.congenial.guarantee import PartialPrivacy, PartialZCDP
from countveil.errors import InputError

Guarantee = TypeVar("Guarantee", PartialPrivacy, PartialZCDP)


def compose(*guarantees: Guarantee) -> Guarantee:
    """Return the promise of several releases together, each with randomness of its own."""
    if not guarantees:
        raise InputError("guarantees: none came; give one or more")
    first = guarantees[0]
    if any(type(other) is not type(first) for other in guarantees):
        raise InputError(
            "guarantees: epsilon and rho came together; state all of them as PartialZCDP, with "
            "of_exponential where the release is by Theorem 9"
        )
    if len(guarantees) > 1 and any(one.coupling is None for one in guarantees):
        raise InputError(
            "guarantees: one has no coupling, so nothing is known of it together with others: two "
            "releases that each tell nothing of a secret can tell it together (paper 003, Lemmas "
            "6 and 7, are false). Bound each along the same coupling of databases, or release "
            "everything at once"
        )
    if len({one.digest for one in guarantees}) > 1:
        raise InputError(
            "guarantees: they do not share one theta and one coupling, and only along a shared "
            "coupling do losses add up: two releases that each tell nothing of a secret can tell "
            "it together (paper 003, Lemmas 6 and 7, are false). Use Delta_z of databases for all "
            "of them, or release everything at once"
        )
    if isinstance(first, PartialPrivacy):
        epsilon = sum((one.epsilon for one in guarantees), Fraction(0))
        return PartialPrivacy(epsilon, first.theta, first.coupling)
    rho = sum((one.rho for one in guarantees), Fraction(0))
    return PartialZCDP(rho, first.theta, first.coupling)
