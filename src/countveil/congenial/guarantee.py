"""What is promised beside public information, as data: epsilon-TP of paper 003, and its zCDP analogue.

These statements are a currency of their own. They are never added to differential privacy, and to
each other only along one coupling (composition.py).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from countveil.congenial.public_information import Dependence, Fact, JointLaw
from countveil.congenial.semantics import largest_shift, odds_bounds, posterior_to_posterior
from countveil.errors import InputError
from countveil.numerics import Exact, exact, positive
from countveil.privacy.costs import ZCDP

_RECORDS = {
    "facts": "facts such as FixedTotal(…)",
    "dependence": "a Dependence, a JointLaw or a sentence",
    "secrets": "what secret_pairs(…) returns",
}


class Described(Protocol):
    """Anything that says what it is in a sentence."""

    @property
    def sentence(self) -> str:
        """What it says."""
        ...


@dataclass(frozen=True, slots=True)
class Theta:
    """What a promise is about: what is public, what is assumed of others, which secrets remain."""

    public: tuple[str, ...]
    dependence: str
    secrets: str

    @classmethod
    def of(cls, *facts: Fact, secrets: Described, dependence: Dependence | JointLaw | str) -> Theta:
        """Describe it from the records themselves."""
        assumed = dependence if isinstance(dependence, str) else _said("dependence", dependence)
        public = tuple(_said("facts", fact) for fact in facts)
        return cls(public, assumed, _said("secrets", secrets))

    @property
    def sentence(self) -> str:
        """All three in one."""
        known = "; ".join(self.public) or "nothing"
        return f"Public: {known}. Assumed: {self.dependence}. Secrets: {self.secrets}."


@dataclass(frozen=True, slots=True, init=False)
class PartialPrivacy:
    """epsilon-TP: P(Y in B | s1) <= e^epsilon P(Y in B | s2) for every secret pair of theta (003, 11).

    `coupling` names the plan that moves the databases under one secret to those under the other,
    along which every pair of databases was bounded. Without one, nothing can be composed with this
    promise.
    """

    epsilon: Fraction
    theta: Theta
    coupling: str | None

    def __init__(self, epsilon: Exact, theta: Theta, coupling: str | None = None) -> None:
        object.__setattr__(self, "epsilon", _not_negative(epsilon, "epsilon"))
        object.__setattr__(self, "theta", theta)
        object.__setattr__(self, "coupling", coupling)

    @classmethod
    def of_exponential(
        cls,
        rate: Exact,
        sensitivity: Fraction,
        theta: Theta,
        coupling: str,
        *,
        constant_normaliser: bool = False,
    ) -> PartialPrivacy:
        """Return the promise of a density ∝ exp(-rate·L_x(y)), where L moves by `sensitivity` at most.

        The weights and the normaliser each change by a factor up to e^(rate·sensitivity) (003,
        Theorem 9). A normaliser that is the same for every x, as for noise that is added, does not
        change.
        """
        times = 1 if constant_normaliser else 2
        return cls(times * positive(rate, "rate") * sensitivity, theta, coupling)

    @classmethod
    def of_conditioning(
        cls, epsilon: Exact, theta: Theta, coupling: str | None = None, *, people: int = 1
    ) -> PartialPrivacy:
        """Return the promise of an epsilon-DP release, conditioned on an event of the release.

        Databases that differ in `people` persons, Delta_z of databases, change probabilities by a
        factor up to e^(people·epsilon), and that of the event by as much (003, Lemma 8, which
        prints 2 epsilon whatever Delta_z is).
        """
        if isinstance(people, bool) or not isinstance(people, int) or people < 1:
            raise InputError(f"people: {people!r} is not allowed; it is Delta_z, 1 or more")
        return cls(2 * people * _not_negative(epsilon, "epsilon"), theta, coupling)

    @property
    def digest(self) -> str | None:
        """What theta and the coupling are told by; none without a coupling."""
        return _digest(self.theta, self.coupling)

    @property
    def coupling_digest(self) -> str:
        """What the ledger knows its coupling by."""
        if self.coupling is None:
            raise InputError("guarantee: it has no coupling, so that nothing could be added to it")
        return hashlib.sha256(self.coupling.encode()).hexdigest()

    @property
    def posterior_odds(self) -> tuple[float, float]:
        """The least and the largest factor by which a release changes the odds of a pair (Lemma 4)."""
        return odds_bounds(self.epsilon)

    @property
    def largest_shift(self) -> float:
        """By how much the probability of a secret, beside the other of its pair, can move at most."""
        return largest_shift(self.epsilon)

    @property
    def posterior_to_posterior(self) -> float:
        """The largest distance of beliefs after this release, and after that of a coupled database."""
        return posterior_to_posterior(self.epsilon)

    @property
    def sentence(self) -> str:
        """The promise in words."""
        low, high = self.posterior_odds
        return (
            f"Whoever sees the release changes his odds between the two secrets of a pair by a "
            f"factor from {low:.4g} to {high:.4g} (epsilon = {_shown(self.epsilon)}, beside public "
            f"information; this is not differential privacy). {self.theta.sentence}"
        )


@dataclass(frozen=True, slots=True, init=False)
class PartialZCDP:
    """rho-zCDP between the secrets of a pair: D_a(Y | s1 ‖ Y | s2) <= rho·a for every order a > 1.

    Let g couple the databases under s1 and s2. Then Y | s1 and Y | s2 are mixtures, over the same
    g, of the mechanism at x and at x'. Rényi divergence is jointly quasi-convex: it is at most the
    largest divergence between the mechanism at x and at x', over pairs that g has.
    """

    rho: Fraction
    theta: Theta
    coupling: str | None

    def __init__(self, rho: Exact, theta: Theta, coupling: str | None = None) -> None:
        object.__setattr__(self, "rho", _not_negative(rho, "rho"))
        object.__setattr__(self, "theta", theta)
        object.__setattr__(self, "coupling", coupling)

    @classmethod
    def of_gaussian(
        cls, sigma2: Exact, distance_squared: Exact, theta: Theta, coupling: str
    ) -> PartialZCDP:
        """Return the promise of Gaussian noise, continuous or on the integers: distance²/(2 sigma²).

        `distance_squared` is that of W∞ in the L2 norm. The noise is added, on all numbers: cut or
        conditioned, its normaliser depends on x, and this does not hold.
        """
        distance = _not_negative(distance_squared, "distance_squared")
        return cls(distance / (2 * positive(sigma2, "sigma2")), theta, coupling)

    @classmethod
    def of_exponential(
        cls, epsilon: Exact, theta: Theta, coupling: str, *, constant_normaliser: bool = False
    ) -> PartialZCDP:
        """Return the promise of a release by Theorem 9 or 10 that is epsilon-TP: epsilon²/8.

        Where a constant normaliser spared the factor 2, the interval is twice as long: epsilon²/2.

        log f_x(y)/f_x'(y) lies in an interval of length epsilon. With K(a) = log E_x'[e^(a log
        f_x/f_x')], K(0) = K(1) = 0 and K'' is a variance in that interval, so K(a) <= a(a - 1)
        epsilon²/8.
        """
        parts = 2 if constant_normaliser else 8
        return cls(_not_negative(epsilon, "epsilon") ** 2 / parts, theta, coupling)

    @property
    def digest(self) -> str | None:
        """What theta and the coupling are told by; none without a coupling."""
        return _digest(self.theta, self.coupling)

    def epsilon(self, delta: Exact) -> float:
        """Return epsilon with P(Y in B | s1) <= e^epsilon P(Y in B | s2) + delta, rounded up."""
        return ZCDP(self.rho).epsilon(delta)

    @property
    def sentence(self) -> str:
        """The promise in words."""
        return (
            f"The laws of the release under the two secrets of a pair are within rho = "
            f"{_shown(self.rho)} of each other (zero-concentrated, beside public information; this "
            f"is not differential privacy). {self.theta.sentence}"
        )


def _digest(theta: Theta, coupling: str | None) -> str | None:
    if coupling is None:
        return None
    parts = (*theta.public, "", theta.dependence, theta.secrets, coupling)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _not_negative(value: Exact, name: str) -> Fraction:
    found = exact(value, name)
    if found < 0:
        raise InputError(f"{name}: {value} is not allowed; it is 0 or more")
    return found


def _shown(value: Fraction) -> str:
    return str(value) if value.denominator < 10**6 else f"{float(value):.6g}"


def _said(name: str, item: Described) -> str:
    """Return what a record says of itself; refuse what says nothing, such as plain text."""
    sentence = getattr(item, "sentence", None)
    if not isinstance(sentence, str):
        raise InputError(
            f"{name}: {item!r} is not allowed; give {_RECORDS[name]}, or write the sentences yourself: "
            f'Theta(public=("…",), dependence="…", secrets="…")'
        )
    return sentence
