"""Privacy loss of several releases, composed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from countveil.assess.homogeneity.families import as_written
from countveil.errors import InputError
from countveil.privacy.costs import ZCDP, ApproxDP


@dataclass(frozen=True, slots=True)
class Loss:
    """(epsilon, delta) of one release, or of several together."""

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what is no privacy loss."""
        if not 0 < self.epsilon < math.inf:
            raise InputError(f"epsilon: {self.epsilon} is not allowed; it must be above 0")
        if not 0 <= self.delta < 1:
            raise InputError(f"delta: {self.delta} is not allowed; it must be from 0 to below 1")


Composition: TypeAlias = Callable[[Sequence[Loss]], Loss]


def basic(losses: Sequence[Loss]) -> Loss:
    """Add up."""
    return Loss(sum(item.epsilon for item in losses), sum(item.delta for item in losses))


def advanced(slack: float) -> Composition:
    """Return advanced composition with `slack` added to delta (Kairouz, Oh & Viswanath 2015).

    Theorem 3.5: epsilon is the smallest of Σ ε and, with drift = Σ ε (e^ε - 1)/(e^ε + 1),
    drift + sqrt(2 log(e + sqrt(Σ ε²)/slack) Σ ε²) and drift + sqrt(2 log(1/slack) Σ ε²);
    delta = 1 - (1 - slack) Π (1 - δ).
    """
    _refuse_no_probability("slack", slack)

    def compose(losses: Sequence[Loss]) -> Loss:
        drift = sum(item.epsilon * math.tanh(item.epsilon / 2) for item in losses)
        squares = sum(item.epsilon**2 for item in losses)
        log_slack = min(-math.log(slack), math.log(math.e + math.sqrt(squares) / slack))
        plain = basic(losses)
        epsilon = min(plain.epsilon, drift + math.sqrt(2 * log_slack * squares))
        kept = math.log1p(-slack) + sum(math.log1p(-item.delta) for item in losses)
        return _smaller(plain, Loss(epsilon, -math.expm1(kept)))

    return compose


def concentrated(delta: float) -> Composition:
    """Return composition in zCDP, turned into epsilon at `delta`.

    A loss without delta has rho = ε²/2; one with delta is that of Gaussian noise, whose rho gives it.
    """
    _refuse_no_probability("delta", delta)

    def compose(losses: Sequence[Loss]) -> Loss:
        rho = sum((_rho(item) for item in losses), Fraction(0))
        found = Loss(ZCDP(rho).epsilon(as_written(delta)), delta)
        return _smaller(basic(losses), found)

    return compose


def _rho(loss: Loss) -> Fraction:
    if loss.delta == 0:
        return as_written(loss.epsilon) ** 2 / 2
    return ApproxDP(as_written(loss.epsilon), as_written(loss.delta)).zcdp.rho


def _smaller(plain: Loss, other: Loss) -> Loss:
    """Return the sum where it is no worse in either number."""
    better = plain.epsilon <= other.epsilon and plain.delta <= other.delta
    return plain if better else other


def _refuse_no_probability(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise InputError(f"{name}: {value} is not allowed; it must be between 0 and 1")
