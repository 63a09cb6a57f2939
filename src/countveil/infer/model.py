"""What a model must say: the law of a count, its rate summed over, and of the rate given the count."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy import special

from countveil.errors import InputError
from countveil.infer.mixture import Family
from countveil.infer.public_facts import PublicFacts
from countveil.numerics import Array, FloatArray, IntArray


class Model(Protocol):
    """Counts of places that are independent given shared parameters and one parameter a place.

    `point` numbers the values that the shared parameters may have; models without any have point 0.
    """

    @property
    def parameter(self) -> str:
        """What the parameter of a place is called."""
        ...

    @property
    def log_points(self) -> FloatArray:
        """The log-probabilities of the shared parameters' values, before anything is released."""
        ...

    def check(self, facts: PublicFacts, *, deaths: bool) -> None:
        """Refuse places or facts that the model is not for."""
        ...

    def most(self, place: int) -> int | None:
        """Return the largest count that a place can have, or none."""
        ...

    def log_marginal(
        self, place: int, cases: IntArray, deaths: IntArray, point: int | IntArray
    ) -> FloatArray:
        """Return log P(count), up to what all counts of a place have in common."""
        ...

    def law(
        self, place: int, cases: IntArray, deaths: IntArray, point: int, facts: PublicFacts
    ) -> tuple[Family, FloatArray, FloatArray]:
        """Return the law of a place's parameter given its count."""
        ...

    def draw(self, tables: IntArray, points: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw the parameters of all places given tables (draws, places, 1 or 2)."""
        ...


class Single(Protocol):
    """A model whose parameters can be drawn first and weighed: what Algorithm 2 needs of a proposal."""

    def prior_draw(self, draws: int, places: int, rng: np.random.Generator) -> FloatArray:
        """Draw parameters of all places from the prior."""
        ...

    def log_prior(self, parameters: FloatArray) -> FloatArray:
        """Return the log-density of parameters (draws, places), up to a constant."""
        ...

    def log_given(self, place: int, cases: IntArray, parameter: FloatArray) -> FloatArray:
        """Return log P(count | parameter) up to what all parameters share: (draws, counts)."""
        ...


def positive_array(value: object, name: str, *, whole: bool = False) -> FloatArray:
    """Return one number or one for each place, all above 0."""
    found: Array = np.asarray(value)
    if found.dtype.kind not in "iuf" or found.ndim > 1 or not np.all(np.isfinite(found)):
        raise InputError(f"{name}: {value!r} came; give one number, or one for each place")
    if np.any(found <= 0) or (whole and np.any(found != np.round(found))):
        kind = "whole numbers" if whole else "numbers"
        raise InputError(f"{name}: {value!r} is not allowed; give {kind} above 0")
    result = found.astype(np.float64)
    result.flags.writeable = False
    return result


def check_length(values: FloatArray, name: str, places: int) -> None:
    """Refuse a list that is not for as many places as the release."""
    if values.ndim == 1 and len(values) != places:
        raise InputError(f"{name}: {len(values)} came, and the release has {places} places")


def at(values: FloatArray, place: int) -> float:
    """Return the number of a place."""
    return float(values if values.ndim == 0 else values[place])


def log_beta_binomial(count: Array, of: Array, a: float, b: float) -> FloatArray:
    """Return the log-probability of `count` of `of` under a share that is Beta(a, b)."""
    found: FloatArray = (
        special.gammaln(of + 1.0)
        - special.gammaln(count + 1.0)
        - special.gammaln(of - count + 1.0)
        + special.betaln(count + a, of - count + b)
        - special.betaln(a, b)
    )
    return found
