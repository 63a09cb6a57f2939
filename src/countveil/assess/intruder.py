"""The Bayesian intruder: what he believes and knows before he sees the release."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from countveil.errors import InputError
from countveil.numerics import FloatArray


@dataclass(frozen=True, slots=True)
class Intruder:
    """He knows everyone in a cell but his target, who is there with probability `prior`.

    `known` is the count without the target; the target would add `rows` to it. Where he does not know
    all others, `others` has his probabilities that 0, 1, 2, … people beyond `known` are there. What is
    public of the count itself, a facility that holds somebody or a published total, is `at_least` and
    `at_most`: counts beyond are impossible.
    """

    prior: float
    known: int = 0
    rows: int = 1
    others: tuple[float, ...] = (1.0,)
    at_least: int = 0
    at_most: int | None = None

    def __post_init__(self) -> None:
        number = isinstance(self.prior, int | float) and not isinstance(self.prior, bool)
        if not number or not 0 < self.prior < 1:
            raise InputError(f"prior: {self.prior} is not allowed; it must be between 0 and 1")
        if isinstance(self.known, bool) or not isinstance(self.known, int) or self.known < 0:
            raise InputError(f"known: {self.known} is not allowed; it is a whole number, 0 or more")
        if isinstance(self.rows, bool) or not isinstance(self.rows, int) or self.rows < 1:
            raise InputError(f"rows: {self.rows} is not allowed; it is a whole number, 1 or more")
        for name, value in (("at_least", self.at_least), ("at_most", self.at_most)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise InputError(f"{name}: {value!r} is not allowed; it is a whole number")
        try:
            others = np.asarray(self.others, float)
        except (TypeError, ValueError):
            others = np.empty(0)
        proper = others.ndim == 1 and len(others) and np.isfinite(others).all()
        if not proper or (others < 0).any() or not math.isclose(others.sum(), 1.0, rel_tol=1e-9):
            raise InputError(
                "others: his probabilities of 0, 1, 2, … more people must not be negative and sum to 1"
            )
        object.__setattr__(self, "others", tuple(float(p) for p in others))
        if not any(np.isfinite(self.log_weights(there=there)).any() for there in (True, False)):
            raise InputError(
                f"at_least, at_most: no count that he thinks possible lies between {self.at_least} and "
                f"{self.at_most}; he knows of {self.known}"
            )

    @classmethod
    def knowing_all_but(
        cls,
        count: int,
        *,
        prior: float,
        known: int = 0,
        probability: float = 0.5,
        at_least: int = 0,
        at_most: int | None = None,
    ) -> Intruder:
        """Return one who is unsure of `count` others, each there with a probability (002, § 6)."""
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise InputError(f"count: {count} is not allowed; it is a whole number, 0 or more")
        if not 0 <= probability <= 1:
            raise InputError(f"probability: {probability} is not allowed; it is between 0 and 1")
        law = np.ones(1)
        for _ in range(count):
            law = np.convolve(law, [1 - probability, probability])
        others = tuple(law / law.sum())
        return cls(prior=prior, known=known, others=others, at_least=at_least, at_most=at_most)

    @property
    def log_odds(self) -> float:
        """Log prior/(1 - prior)."""
        return math.log(self.prior) - math.log1p(-self.prior)

    @property
    def certain(self) -> bool:
        """Whether he knows all others, and nothing is public of the count."""
        return len(self.others) == 1 and self.at_least <= 0 and self.at_most is None

    @property
    def informed_prior(self) -> float:
        """His probability that the target is there, once what is public of the count is taken in."""
        if self.at_least <= 0 and self.at_most is None:
            return self.prior
        there, away = (np.exp(self.log_weights(there=there)).sum() for there in (True, False))
        return float(self.prior * there / (self.prior * there + (1 - self.prior) * away))

    def log_weights(self, *, there: bool) -> FloatArray:
        """Return the log of his probabilities of 0, 1, 2, … more people; none where it cannot be."""
        counts = self.counts(there=there)
        possible = counts >= self.at_least
        if self.at_most is not None:
            possible &= counts <= self.at_most
        with np.errstate(divide="ignore"):
            weights = np.log(np.where(possible, np.array(self.others), 0.0))
        return np.asarray(weights, np.float64)

    def counts(self, *, there: bool) -> FloatArray:
        """Return the counts that he thinks possible, with his target or without."""
        first = self.known + (self.rows if there else 0)
        return np.arange(first, first + len(self.others), dtype=np.float64)
