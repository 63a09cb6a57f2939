"""The promise that holds given public information: epsilon-TP of paper 003, and its zCDP analogue.

Such a promise is a currency of its own. It is never added to differential privacy. Two of them add
up only along a shared coupling (`compose`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol, TypeVar

from countveil.base import words
from countveil.base.numerics import Exact, exact, positive
from countveil.congenial.guarantee.public_information import Dependence, JointLaw, PublicFact
from countveil.congenial.guarantee.semantics import (
    OddsBounds,
    largest_shift,
    odds_bounds,
    posterior_to_posterior,
)
from countveil.errors import InputError
from countveil.privacy.costs import ZCDP

_RECORDS = {
    "facts": "facts such as FixedTotal(…)",
    "dependence": "a Dependence, a JointLaw or a sentence",
    "secrets": "what secret_pairs(…) returns",
}


class Described(Protocol):
    """Anything that describes itself in a sentence."""

    @property
    def sentence(self) -> str:
        """The description."""
        ...


@dataclass(frozen=True, slots=True)
class Theta:
    """What a promise is about: what is public, what is assumed, and which secrets remain.

    Parameters
    ----------
    public
        What everyone knows, one sentence per fact.
    dependence
        What is assumed about how people's records depend on each other.
    secrets
        Which secrets the promise protects.
    identity
        Assumption and secrets in words that never change: ledgers identify a coupling by a digest of
        them. By default `dependence` and `secrets`.

    Examples
    --------
    >>> theta = Theta(("the total is 5",), "people are independent", "all pairs remain")
    >>> theta.sentence
    'Public: the total is 5. Assumed: people are independent. Secrets: all pairs remain.'
    """

    public: tuple[str, ...]
    dependence: str
    secrets: str
    identity: tuple[str, str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.public, tuple) or not all(
            isinstance(fact, str) for fact in self.public
        ):
            raise InputError(
                f"public: {self.public!r} is not allowed; give a tuple of sentences, or use Theta.of "
                f"for facts such as FixedTotal(…)"
            )
        for name in ("dependence", "secrets"):
            if not isinstance(getattr(self, name), str):
                raise InputError(
                    f"{name}: {getattr(self, name)!r} is not allowed; give a sentence, or use Theta.of "
                    f"for {_RECORDS[name]}"
                )

    @classmethod
    def of(
        cls, *facts: PublicFact, secrets: Described, dependence: Dependence | JointLaw | str
    ) -> Theta:
        """Return the theta that these records describe.

        Parameters
        ----------
        *facts
            Public facts, such as ``FixedTotal(5)``.
        secrets
            The remaining secrets, as ``secret_pairs`` returns them.
        dependence
            The assumed dependence, as a record or as a sentence.

        Returns
        -------
        Theta
            The sentences of all records.
        """
        assumption = (
            dependence if isinstance(dependence, str) else _sentence_of("dependence", dependence)
        )
        public = tuple(_sentence_of("facts", fact) for fact in facts)
        return cls(public, assumption, _sentence_of("secrets", secrets))

    @property
    def sentence(self) -> str:
        """All three parts as one text."""
        known = "; ".join(self.public) or "nothing"
        return f"Public: {known}. Assumed: {self.dependence}. Secrets: {self.secrets}."


@dataclass(frozen=True, slots=True, init=False)
class PartialPrivacy:
    """epsilon-TP: P(Y in B | s1) <= e^epsilon P(Y in B | s2) for every secret pair (003, equation 11).

    Parameters
    ----------
    epsilon
        The bound, exact.
    theta
        What is public, what is assumed, and which secrets are protected.
    coupling
        The name of the plan that moves the databases under one secret to those under the other, and
        along which every pair of databases was bounded. Without a coupling this promise cannot be
        composed with another.

    Examples
    --------
    >>> theta = Theta(("the total is 5",), "people are independent", "all pairs remain")
    >>> promise = PartialPrivacy("1/2", theta, coupling="nearest databases")
    >>> round(promise.largest_shift, 4)
    0.1244
    """

    epsilon: Fraction
    theta: Theta
    coupling: str | None

    def __init__(self, epsilon: Exact, theta: Theta, coupling: str | None = None) -> None:
        object.__setattr__(self, "epsilon", _not_negative(epsilon, "epsilon"))
        _check(theta, coupling)
        object.__setattr__(self, "theta", theta)
        object.__setattr__(self, "coupling", coupling)

    @classmethod
    def of_exponential(
        cls,
        rate: Exact,
        sensitivity: Exact,
        theta: Theta,
        coupling: str,
        *,
        constant_normalizer: bool = False,
    ) -> PartialPrivacy:
        """Return the promise of a density proportional to exp(-rate·L_x(y)) (003, Theorem 9).

        The weights and the normalizer each change by a factor of at most e^(rate·sensitivity). A
        normalizer that is the same for every x, as for added noise, does not change.

        Parameters
        ----------
        rate
            The factor of the loss in the exponent.
        sensitivity
            How far the loss L moves at most along the coupling.
        theta, coupling
            As for the class.
        constant_normalizer
            Whether the normalizer is the same for every x.

        Returns
        -------
        PartialPrivacy
            The promise, with epsilon = 2·rate·sensitivity, or half of it for a constant normalizer.
        """
        times = 1 if constant_normalizer else 2
        distance = _not_negative(sensitivity, "sensitivity")
        return cls(times * positive(rate, "rate") * distance, theta, coupling)

    @classmethod
    def of_conditioning(
        cls, epsilon: Exact, theta: Theta, coupling: str | None = None, *, delta_z: int = 1
    ) -> PartialPrivacy:
        """Return the promise of an epsilon-DP release, conditioned on an event of the release.

        Between databases that differ in delta_z records, probabilities change by a factor of at most
        e^(delta_z·epsilon), and so does the probability of the event (003, Lemma 8, which prints
        2 epsilon for any Delta_z).

        Parameters
        ----------
        epsilon
            The differential privacy of the release before conditioning.
        theta, coupling
            As for the class.
        delta_z
            Delta_z of databases: the largest number of records that change together.

        Returns
        -------
        PartialPrivacy
            The promise, with epsilon multiplied by 2·delta_z.
        """
        if isinstance(delta_z, bool) or not isinstance(delta_z, int) or delta_z < 1:
            raise InputError(
                f"delta_z: {delta_z!r} is not allowed; it must be a number of records, 1 or more"
            )
        return cls(2 * delta_z * _not_negative(epsilon, "epsilon"), theta, coupling)

    @property
    def digest(self) -> str | None:
        """A hash that identifies theta and the coupling; None without a coupling."""
        return _digest(self.theta, self.coupling)

    @property
    def coupling_digest(self) -> str:
        """A hash by which the ledger recognises the coupling."""
        if self.coupling is None:
            raise InputError("guarantee: it has no coupling, so nothing can be added to it")
        return hashlib.sha256(self.coupling.encode()).hexdigest()

    @property
    def posterior_odds(self) -> OddsBounds:
        """The smallest and largest factor by which a release changes the odds of a pair (Lemma 4)."""
        return odds_bounds(self.epsilon)

    @property
    def epsilon_in_words(self) -> str:
        """The bound as sentences show it: exact if that is short."""
        return _display(self.epsilon)

    @property
    def largest_shift(self) -> float:
        """The most by which the probability of one secret of a pair can move."""
        return largest_shift(self.epsilon)

    @property
    def posterior_to_posterior(self) -> float:
        """The largest distance of beliefs after this release and after that of a coupled database."""
        return posterior_to_posterior(self.epsilon)

    @property
    def sentence(self) -> str:
        """The promise in words."""
        odds = self.posterior_odds
        low, high = words.rounded_down(odds.low, 4), words.rounded_up(odds.high, 4)
        return (
            f"Seeing the release changes the odds between the two secrets of a pair by a factor from "
            f"{low} to {high} (epsilon = {self.epsilon_in_words}, given public information; this is "
            f"not differential privacy). {self.theta.sentence}"
        )


@dataclass(frozen=True, slots=True, init=False)
class PartialZCDP:
    """rho-zCDP between the secrets of a pair: D_a(Y | s1 ‖ Y | s2) <= rho·a for every order a > 1.

    Let g couple the databases under s1 and s2. Then Y | s1 and Y | s2 are mixtures, over the same g,
    of the mechanism at x and at x'. Rényi divergence is jointly quasi-convex, so it is at most the
    largest divergence between the mechanism at x and at x', over the pairs in g.

    Parameters
    ----------
    rho
        The bound, exact.
    theta, coupling
        As for `PartialPrivacy`.
    """

    rho: Fraction
    theta: Theta
    coupling: str | None

    def __init__(self, rho: Exact, theta: Theta, coupling: str | None = None) -> None:
        object.__setattr__(self, "rho", _not_negative(rho, "rho"))
        _check(theta, coupling)
        object.__setattr__(self, "theta", theta)
        object.__setattr__(self, "coupling", coupling)

    @classmethod
    def of_gaussian(
        cls, sigma2: Exact, distance_squared: Exact, theta: Theta, coupling: str
    ) -> PartialZCDP:
        """Return the promise of added Gaussian noise, continuous or discrete.

        The noise must be added on all numbers. If it is truncated or conditioned, its normalizer
        depends on x and this promise does not hold.

        Parameters
        ----------
        sigma2
            The variance parameter of the noise.
        distance_squared
            The square of W∞ in the L2 norm.
        theta, coupling
            As for `PartialPrivacy`.

        Returns
        -------
        PartialZCDP
            The promise, with rho = distance²/(2 sigma²).
        """
        distance = _not_negative(distance_squared, "distance_squared")
        return cls(distance / (2 * positive(sigma2, "sigma2")), theta, coupling)

    @classmethod
    def of_exponential(
        cls, epsilon: Exact, theta: Theta, coupling: str, *, constant_normalizer: bool = False
    ) -> PartialZCDP:
        """Return the promise of a release by Theorem 9 or 10 that is epsilon-TP.

        log f_x(y)/f_x'(y) lies in an interval of length epsilon. With K(a) = log E_x'[e^(a log
        f_x/f_x')], K(0) = K(1) = 0 and K'' is a variance in that interval, so K(a) <= a(a - 1)
        epsilon²/8. Where a constant normalizer saved the factor 2, the interval is twice as long.

        Parameters
        ----------
        epsilon
            The epsilon-TP of the release.
        theta, coupling
            As for `PartialPrivacy`.
        constant_normalizer
            Whether the normalizer is the same for every x.

        Returns
        -------
        PartialZCDP
            The promise, with rho = epsilon²/8, or epsilon²/2 for a constant normalizer.
        """
        divisor = 2 if constant_normalizer else 8
        return cls(_not_negative(epsilon, "epsilon") ** 2 / divisor, theta, coupling)

    @property
    def digest(self) -> str | None:
        """A hash that identifies theta and the coupling; None without a coupling."""
        return _digest(self.theta, self.coupling)

    def epsilon(self, delta: Exact) -> float:
        """Return epsilon with P(Y in B | s1) <= e^epsilon P(Y in B | s2) + delta, rounded up."""
        return ZCDP(self.rho).epsilon(delta)

    @property
    def sentence(self) -> str:
        """The promise in words."""
        return (
            f"The distributions of the release under the two secrets of a pair are within rho = "
            f"{_display(self.rho)} of each other (zero-concentrated, next to public information; this "
            f"is not differential privacy). {self.theta.sentence}"
        )


Guarantee = TypeVar("Guarantee", PartialPrivacy, PartialZCDP)


def compose(*guarantees: Guarantee) -> Guarantee:
    """Return the promise of several releases together, each with its own randomness.

    Releases that are epsilon_i for each pair of databases in one coupling are, together, the sum for
    each of these pairs, and therefore for the mixtures. Without a shared coupling each release may
    hide the secret behind other people's values while all of them together do not: Lemmas 6 and 7 of
    paper 003 are false.

    Parameters
    ----------
    *guarantees
        Promises of one kind, with one theta and one coupling.

    Returns
    -------
    PartialPrivacy or PartialZCDP
        The promise whose epsilon or rho is the sum.

    Examples
    --------
    >>> theta = Theta(("the total is 5",), "people are independent", "all pairs remain")
    >>> one = PartialPrivacy("1/2", theta, coupling="nearest databases")
    >>> compose(one, one, one).epsilon
    Fraction(3, 2)
    """
    if not guarantees:
        raise InputError("guarantees: none given; give one or more")
    first = guarantees[0]
    for one in guarantees:
        if not isinstance(one, PartialPrivacy | PartialZCDP):
            raise InputError(
                f"guarantees: {one!r} is not allowed; give PartialPrivacy or PartialZCDP"
            )
    if any(type(other) is not type(first) for other in guarantees):
        raise InputError(
            "guarantees: epsilon and rho cannot be mixed; state all of them as PartialZCDP, with "
            "of_exponential where the release is by Theorem 9"
        )
    if len(guarantees) > 1 and any(one.coupling is None for one in guarantees):
        raise InputError(
            "guarantees: one has no coupling, so nothing is known about it together with others: two "
            "releases that reveal nothing about a secret by themselves can reveal it together (paper "
            "003, Lemmas 6 and 7, are false). Bound each along the same coupling of databases, or "
            "release everything at once"
        )
    if len({one.digest for one in guarantees}) > 1:
        raise InputError(
            "guarantees: they do not share one theta and one coupling, and only along a shared "
            "coupling do losses add up: two releases that reveal nothing about a secret by themselves "
            "can reveal it together (paper 003, Lemmas 6 and 7, are false). Use Delta_z of databases "
            "for all of them, or release everything at once"
        )
    if isinstance(first, PartialPrivacy):
        epsilon = sum((one.epsilon for one in guarantees), Fraction(0))
        return PartialPrivacy(epsilon, first.theta, first.coupling)
    rho = sum((one.rho for one in guarantees), Fraction(0))
    return PartialZCDP(rho, first.theta, first.coupling)


def _digest(theta: Theta, coupling: str | None) -> str | None:
    if coupling is None:
        return None
    parts = (*theta.public, "", *(theta.identity or (theta.dependence, theta.secrets)), coupling)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _check(theta: Theta, coupling: str | None) -> None:
    if not isinstance(theta, Theta):
        raise InputError(
            f"theta: {theta!r} is not allowed; give Theta(…), which says what is public, what is "
            f"assumed and which secrets remain"
        )
    if coupling is not None and not isinstance(coupling, str):
        raise InputError(f"coupling: {coupling!r} is not allowed; give its name, or None")


def _not_negative(value: Exact, name: str) -> Fraction:
    fraction = exact(value, name)
    if fraction < 0:
        raise InputError(f"{name}: {value} is not allowed; it must be 0 or more")
    return fraction


def _display(value: Fraction) -> str:
    return str(value) if value.denominator < 10**6 else f"{float(value):.6g}"


def _sentence_of(name: str, item: Described) -> str:
    """Return the sentence of a record; refuse anything without one, such as plain text."""
    sentence = getattr(item, "sentence", None)
    if not isinstance(sentence, str):
        raise InputError(
            f"{name}: {item!r} is not allowed; give {_RECORDS[name]}, or write the sentences yourself: "
            f'Theta(public=("…",), dependence="…", secrets="…")'
        )
    return sentence
