"""From a privacy loss to noise: the law of a kind of mechanism at epsilon and delta."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias

from countveil.errors import InputError
from countveil.noise.continuous import Gaussian, Laplace
from countveil.noise.discrete_gaussian import DiscreteGaussian
from countveil.noise.discrete_laplace import DiscreteLaplace
from countveil.noise.law import Law
from countveil.privacy.costs import ApproxDP

NoiseFamily: TypeAlias = Callable[..., Law]
"""A kind of noise: Laplace, DiscreteLaplace, Gaussian, DiscreteGaussian, or a function of epsilon."""


def law_at(mechanism: NoiseFamily, epsilon: float, delta: float | None = None) -> Law:
    """Return the noise that spends (epsilon, delta) on counts of sensitivity 1.

    Laplace and DiscreteLaplace spend epsilon only; Gaussian is calibrated by (4) of 004, probabilistic
    DP; DiscreteGaussian by zCDP. Any other function is called with epsilon, and with delta if there is
    one: functools.partial(Gaussian.calibrated, kind="DP") is (3) of 004.
    """
    spent = _above_zero(epsilon)
    if mechanism is Laplace:
        return Laplace(spent)
    if mechanism is DiscreteLaplace:
        return DiscreteLaplace(epsilon=as_written(spent))
    if mechanism is Gaussian:
        return Gaussian.calibrated(epsilon=spent, delta=_needed(delta), kind="pDP")
    if mechanism is DiscreteGaussian:
        target = ApproxDP(as_written(spent), as_written(_needed(delta)))
        return DiscreteGaussian.from_rho(target.zcdp.rho)
    if not callable(mechanism) or isinstance(mechanism, Law):
        raise InputError(
            f"mechanism: {mechanism!r} is not a kind of noise; give Laplace, DiscreteLaplace, "
            f"Gaussian, DiscreteGaussian, or a function of epsilon"
        )
    return mechanism(epsilon=spent) if delta is None else mechanism(epsilon=spent, delta=delta)


def as_written(value: float) -> Fraction:
    """Return a number as its shortest decimal reads."""
    return Fraction(repr(float(value)))


def _above_zero(epsilon: float) -> float:
    if not 0 < float(epsilon) < float("inf"):
        raise InputError(f"epsilon: {epsilon} is not allowed; it must be a number above 0")
    return float(epsilon)


def _needed(delta: float | None) -> float:
    if delta is None or not 0 < delta < 1:
        raise InputError(
            f"delta: {delta} is not allowed with Gaussian noise; give one between 0 and 1, such as 1e-6"
        )
    return float(delta)
