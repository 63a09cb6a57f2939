"""A cost beside public information: a currency of its own, never added to differential privacy."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from countveil.errors import InputError
from countveil.numerics import Exact, positive
from countveil.privacy.costs import show


@dataclass(frozen=True, slots=True, init=False)
class BesidePublic:
    """epsilon of paper 003, and the coupling it holds along: costs add up along one coupling only."""

    epsilon: Fraction
    coupling: str

    def __init__(self, epsilon: Exact, coupling: str) -> None:
        if not coupling or any(sign.isspace() for sign in coupling):
            raise InputError(f"coupling: {coupling!r} is not allowed; it is a name without spaces")
        object.__setattr__(self, "epsilon", positive(epsilon, "epsilon"))
        object.__setattr__(self, "coupling", coupling)

    def __str__(self) -> str:
        return f"epsilon = {show(self.epsilon)} beside public information"
