"""What a protection is: it turns exact tables into published ones, and says what they disclose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.random import Generator

from countveil.assess.protections.exact_tables import ExactTables, TableKey
from countveil.assess.protections.known_others import Flags, Targets
from countveil.base.numerics import FloatArray


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class ProtectedTable:
    """A table as published: what a reader would take each count to be, and which are suppressed."""

    values: FloatArray
    hidden: Flags | None = None


class Between(NamedTuple):
    """A figure known to be between two ends, which are the same where it is exact."""

    lower: float
    upper: float


@dataclass(frozen=True, eq=False, slots=True)
class Disclosure:
    """What the intruder learns about each kind of person, at least and at most.

    Attributes
    ----------
    attack : str
        What they want to know.
    people : array of int
        How many people there are of each kind.
    lower, upper : array of float
        Priors × kinds: the expected posterior of the truth. The expectation is over the protection's
        own randomness.
    certain_lower, certain_upper : array of float
        The probability that they end up certain.
    sampled : bool
        Whether the kinds are a sample.

    """

    attack: str
    people: FloatArray
    lower: FloatArray
    upper: FloatArray
    certain_lower: FloatArray
    certain_upper: FloatArray
    sampled: bool = False

    @property
    def worst(self) -> list[Between]:
        """The largest expected posterior for each prior."""
        return [
            Between(float(low.max()), float(high.max()))
            for low, high in zip(self.lower, self.upper, strict=True)
        ]

    @property
    def mean(self) -> list[Between]:
        """The mean over people of the expected posterior, for each prior."""
        return [
            Between(*(float(np.average(end, weights=self.people)) for end in ends))
            for ends in zip(self.lower, self.upper, strict=True)
        ]

    @property
    def certain(self) -> Between:
        """The share of people about whom the intruder ends up certain."""
        ends = (self.certain_lower, self.certain_upper)
        return Between(*(float(np.average(end, weights=self.people)) for end in ends))


def certain_or_nothing(
    targets: Targets, least: Flags, most: Flags, priors: Sequence[float]
) -> Disclosure:
    """Return what a protection discloses that gives certainty, or leaves the prior as it was.

    `least` and `most` say for each alternative whether it is ruled out for sure, and perhaps.
    """
    low, high = (targets.worst(flags.astype(float)) for flags in (least, most))
    belief = np.array(priors)[:, None]
    return Disclosure(
        targets.attack,
        targets.people.astype(float),
        belief + (1 - belief) * low,
        belief + (1 - belief) * high,
        low,
        high,
        targets.sampled,
    )


class Protection(Protocol):
    """A way to protect tables, with its settings."""

    @property
    def label(self) -> str:
        """The protection and its settings, in a few words."""
        ...

    @property
    def limits(self) -> tuple[str, ...]:
        """What the reference implementation and its figures leave out, in sentences."""
        ...

    def protect(self, tables: ExactTables, rng: Generator) -> Mapping[TableKey, ProtectedTable]:
        """Return every table as it would be published."""
        ...

    def disclosure(
        self,
        tables: ExactTables,
        published: Mapping[TableKey, ProtectedTable],
        targets: Targets,
        priors: Sequence[float],
        rng: Generator,
    ) -> Disclosure:
        """Return what someone learns who knows everyone else in a unit, and sees these tables."""
        ...
