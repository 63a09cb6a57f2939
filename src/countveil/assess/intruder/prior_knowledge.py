"""The Bayesian intruder: what they believe and know before they see the release."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from countveil.base.numerics import FloatArray
from countveil.errors import InputError


@dataclass(frozen=True, slots=True)
class Intruder:
    """Someone who knows everyone in a cell except one person, their target.

    Parameters
    ----------
    prior : float
        Their probability, before the release, that the target is counted in the cell.
    known : int
        The count without the target.
    rows : int
        How many rows the target would add to the count.
    others : tuple of float
        Their probabilities that 0, 1, 2, … further people are there, if they do not know all others.
    at_least, at_most : int
        Public bounds on the count: a facility that houses someone, or a published total.

    Examples
    --------
    >>> Intruder(prior=0.02).known
    0
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
            raise InputError(
                f"known: {self.known} is not allowed; it must be a whole number, 0 or more"
            )
        if isinstance(self.rows, bool) or not isinstance(self.rows, int) or self.rows < 1:
            raise InputError(
                f"rows: {self.rows} is not allowed; it must be a whole number, 1 or more"
            )
        for name, value in (("at_least", self.at_least), ("at_most", self.at_most)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise InputError(f"{name}: {value!r} is not allowed; it must be a whole number")
        try:
            others = np.asarray(self.others, float)
        except (TypeError, ValueError):
            others = np.empty(0)
        proper = others.ndim == 1 and len(others) and np.isfinite(others).all()
        if not proper or (others < 0).any() or not math.isclose(others.sum(), 1.0, rel_tol=1e-9):
            raise InputError(
                "others: the probabilities of 0, 1, 2, … more people must be 0 or more and sum to 1"
            )
        object.__setattr__(self, "others", tuple(float(p) for p in others))
        if not any(np.isfinite(self.log_weights(there=there)).any() for there in (True, False)):
            most = "" if self.at_most is None else f" and at most {self.at_most}"
            raise InputError(
                f"at_least, at_most: no count of at least {self.at_least}{most} is possible to an "
                f"intruder who knows of {self.known} people; widen the bounds"
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
        """Return an intruder who is unsure about `count` other people (002, section 6).

        Parameters
        ----------
        count : int
            How many other people may or may not be there, independently of each other.
        prior, known, at_least, at_most
            As for `Intruder`.
        probability : float
            The probability that each of the others is there.

        Returns
        -------
        Intruder
            With binomial probabilities of how many others are there.

        Examples
        --------
        >>> Intruder.knowing_all_but(2, prior=0.1).others
        (0.25, 0.5, 0.25)
        """
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise InputError(f"count: {count} is not allowed; it must be a whole number, 0 or more")
        if not 0 <= probability <= 1:
            raise InputError(
                f"probability: {probability} is not allowed; it must be between 0 and 1"
            )
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
        """Whether they know all others, and no bound on the count is public."""
        return len(self.others) == 1 and self.at_least <= 0 and self.at_most is None

    @property
    def informed_prior(self) -> float:
        """Their probability that the target is there, given the public bounds on the count."""
        if self.at_least <= 0 and self.at_most is None:
            return self.prior
        there, away = (np.exp(self.log_weights(there=there)).sum() for there in (True, False))
        return float(self.prior * there / (self.prior * there + (1 - self.prior) * away))

    def log_weights(self, *, there: bool) -> FloatArray:
        """Return the log probabilities of 0, 1, 2, … more people, -inf where the bounds rule it out."""
        counts = self.counts(there=there)
        possible = counts >= self.at_least
        if self.at_most is not None:
            possible &= counts <= self.at_most
        with np.errstate(divide="ignore"):
            weights = np.log(np.where(possible, np.array(self.others), 0.0))
        return np.asarray(weights, np.float64)

    def counts(self, *, there: bool) -> FloatArray:
        """Return the counts they consider possible, with their target or without."""
        first = self.known + (self.rows if there else 0)
        return np.arange(first, first + len(self.others), dtype=np.float64)
