"""From a privacy loss to noise: the law of a kind of mechanism at epsilon and delta."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TypeAlias

from countveil.errors import InputError
from countveil.noise.continuous import Gaussian, Laplace
from countveil.noise.discrete_laplace import DiscreteLaplace
from countveil.noise.law import Law, Mechanism
from countveil.noise.mechanisms import MECHANISMS, calibrate
from countveil.privacy.costs import ONE_COUNT, ApproxDP, Cost, Currency, PureDP, cost_of

NoiseFamily: TypeAlias = Callable[..., Law]
"""A kind of noise: a class that says what a privacy loss pays for, or a function of epsilon."""


def law_at(mechanism: NoiseFamily, epsilon: float, delta: float | None = None) -> Law:
    """Return the noise that spends (epsilon, delta) on counts of sensitivity 1.

    A class is asked. Laplace spends epsilon only; Gaussian is calibrated by (4) of 004, probabilistic
    DP; a mechanism of plans gets what its price allows: epsilon, or the rho that zCDP converts to
    (epsilon, delta). Any other function is called with epsilon, and with delta if there is one:
    functools.partial(Gaussian.calibrated, kind="DP") is (3) of 004.
    """
    spent = _above_zero(epsilon)
    if isinstance(mechanism, type) and hasattr(mechanism, "calibrated_for"):
        law: Law = mechanism.calibrated_for(epsilon=spent, delta=delta)
        return law
    kind = _of_plans(mechanism)
    if kind is not None:
        return calibrate(kind, _price(kind.currency, spent, delta), ONE_COUNT)
    if not callable(mechanism) or isinstance(mechanism, Law):
        raise InputError(
            f"mechanism: {mechanism!r} is not a kind of noise; give Laplace, Gaussian, a mechanism "
            f"such as {' or '.join(kind.__name__ for kind in MECHANISMS.values())}, or a function of "
            f"epsilon"
        )
    return mechanism(epsilon=spent) if delta is None else mechanism(epsilon=spent, delta=delta)


@dataclass(frozen=True, slots=True)
class NamedNoise:
    """A kind of noise by the name that people type: what scales it, and whether it needs a delta."""

    family: NoiseFamily
    scaled_by: Currency = "epsilon"
    needs_delta: bool = False

    def law(self, amount: float | str, delta: float | None = None) -> Law:
        """Return the noise that an epsilon, or a rho, pays for on counts of sensitivity 1."""
        kind = _of_plans(self.family)
        if kind is None or self.scaled_by == "epsilon":
            return law_at(self.family, float(amount), delta)
        return calibrate(kind, cost_of(self.scaled_by, str(amount)), ONE_COUNT)


def named_noises() -> dict[str, NamedNoise]:
    """Return the kinds of noise that have a name: continuous ones, and every mechanism of plans."""
    continuous = {
        "laplace": NamedNoise(Laplace),
        "geometric": NamedNoise(DiscreteLaplace),
        "gaussian": NamedNoise(partial(Gaussian.calibrated, kind="DP"), needs_delta=True),
        "gaussian-pdp": NamedNoise(Gaussian, needs_delta=True),
    }
    return continuous | {name: NamedNoise(kind, kind.currency) for name, kind in MECHANISMS.items()}


def as_written(value: float) -> Fraction:
    """Return a number as its shortest decimal reads."""
    return Fraction(repr(float(value)))


def _of_plans(family: NoiseFamily) -> type[Mechanism] | None:
    """Return a kind of noise as a mechanism if its class has a price, as those of plans have."""
    return family if isinstance(family, type) and hasattr(family, "for_cost") else None


def _price(currency: Currency, epsilon: float, delta: float | None) -> Cost:
    """Return what a mechanism with prices in a currency may cost to stay within (epsilon, delta)."""
    if currency == "epsilon":
        return PureDP(as_written(epsilon))
    if delta is None or not 0 < delta < 1:
        raise InputError(
            f"delta: {delta} is not allowed with noise priced in rho; give one between 0 and 1, such "
            f"as 1e-6"
        )
    return ApproxDP(as_written(epsilon), as_written(delta)).zcdp


def _above_zero(epsilon: float) -> float:
    if not 0 < float(epsilon) < float("inf"):
        raise InputError(f"epsilon: {epsilon} is not allowed; it must be a number above 0")
    return float(epsilon)
