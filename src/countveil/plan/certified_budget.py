"""A budget in (epsilon, delta), met by certified composition instead of a conversion from rho."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from countveil.base.numerics import shortened
from countveil.errors import InputError, PlanError
from countveil.noise.law import Mechanism
from countveil.plan.budget import allocate
from countveil.plan.plan_basis import PlanBasis
from countveil.plan.plan_file import PlanFile
from countveil.privacy.certified_loss import CurvePoint, certified_curve
from countveil.privacy.costs import ZCDP, ApproxDP

_SMALLEST_DELTA = Fraction(1, 10**30)
_MOST_ROWS = 10
_MOST_NOISES = 500
_WIDEST = 50_000  # standard deviations of all noises together, which set time and memory
_DIGITS = 4  # of the rho that is looked for
_EIGHTHS = (2, 4, 6, 7, 8, 9, 10)  # of epsilon, where the curve is stated
_AT_EPSILON = _EIGHTHS.index(8)


def certify(checked: PlanFile, basis: PlanBasis) -> tuple[ZCDP, tuple[CurvePoint, ...]]:
    """Return the rho of a plan that states (epsilon, delta), and its certified curve.

    If the plan states rho, too, that rho must keep (epsilon, delta); otherwise it is the largest of
    four digits that does.
    """
    epsilon, delta, rho = checked.budget.epsilon, checked.budget.delta, checked.budget.rho
    assert epsilon is not None
    assert delta is not None
    rows = basis.rows_per_person
    cells = 2 if basis.neighbors == "change-one" else 1
    _refuse_what_is_not_certified(delta, rows)

    def curve(rho: Fraction) -> tuple[CurvePoint, ...]:
        allocations = allocate(
            checked, basis.schema, basis.levels, ZCDP(rho), basis.neighbors, rows
        )
        noises = tuple(Counter(item.mechanism for item in allocations).items())
        return _curve(noises, epsilon, delta, rows, cells)

    def holds(rho: Fraction) -> bool:
        return curve(rho)[_AT_EPSILON].delta <= delta

    guess = _gaussian_rho(float(epsilon), float(delta))
    if rho is None:
        rho = _largest(holds, guess)
    elif rho > 2 * guess or not holds(rho):  # the first needs no long computation
        raise PlanError(
            f"budget.rho: {shortened(rho)} is not certified to give {ApproxDP(epsilon, delta)}; remove "
            f"it, and the largest that is will be found"
        )
    return ZCDP(rho), curve(rho)


def without_certificate(budget: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section of a budget in rho alone: a certificate is for the noise it was made for."""
    if budget.get("accounting") != "certified":
        return dict(budget)
    return {key: value for key, value in budget.items() if key not in ("accounting", "epsilon")}


def _largest(holds: Callable[[Fraction], bool], guess: float) -> Fraction:
    """Return the largest rho of four digits that holds: around a guess in steps that double."""
    unit = Fraction(10) ** (math.floor(math.log10(guess)) - _DIGITS + 1)
    low, width = math.floor(guess / float(unit)), 1
    high = low + 1
    while not holds(low * unit):
        low, high, width = low - width, low, 2 * width
        if low <= 0:
            raise PlanError(
                "budget: no rho above 0 is certified for so small an epsilon; raise epsilon or delta"
            )
    if width == 1:
        while holds(high * unit):
            low, high, width = high, high + width, 2 * width
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle * unit) else (low, middle)
    return low * unit


def _refuse_what_is_not_certified(delta: Fraction, rows: int) -> None:
    """Refuse budgets for which the certificate would be empty or take too long."""
    if delta < _SMALLEST_DELTA:
        raise PlanError(
            "budget.delta: below 1e-30, the smallest for which composition is certified; choose a "
            "larger one, or remove budget.accounting to convert from rho"
        )
    if rows > _MOST_ROWS:
        raise PlanError(
            f"budget.accounting: composition is certified for at most {_MOST_ROWS} rows per person, "
            f"and max_rows is {rows}; lower it, or remove budget.accounting to convert from rho"
        )


@lru_cache(maxsize=64)
def _curve(
    noises: tuple[tuple[Mechanism, int], ...],
    epsilon: Fraction,
    delta: Fraction,
    rows: int,
    cells: int,
) -> tuple[CurvePoint, ...]:
    """Return certified pairs around epsilon for queries with these noises."""
    _refuse_long_work(noises, rows)
    losses = []
    for noise, queries in noises:
        laws = [noise.loss_masses(shift) for shift in range(1, rows + 1)]
        exact = [law for law in laws if law is not None]
        if len(exact) < len(laws):
            raise PlanError(
                f"budget.accounting: {noise.label} noise this wide has no certified loss; give small "
                f"shares more, or remove budget.accounting to convert from rho"
            )
        losses.append((exact, queries * cells))
    try:
        return certified_curve(losses, epsilon, resolution=delta, eighths=_EIGHTHS)
    except InputError as error:
        raise PlanError(f"budget.accounting: {error}") from error


def _refuse_long_work(noises: tuple[tuple[Mechanism, int], ...], rows: int) -> None:
    wide = rows * sum(math.sqrt(noise.variance) for noise, _ in noises)
    if len(noises) > _MOST_NOISES or wide > _WIDEST:
        raise PlanError(
            f"budget.accounting: composition is certified for at most {_MOST_NOISES} different noises, "
            f"with standard deviations that sum to at most {_WIDEST:,}; this plan has {len(noises):,}, "
            f"with {wide:,.0f}: give queries equal shares, small shares more, or remove accounting"
        )


def _gaussian_rho(epsilon: float, delta: float) -> float:
    """Return the rho for which continuous Gaussian noise would meet (epsilon, delta)."""
    from scipy.special import log_ndtr

    def log_delta(rho: float) -> float:
        mu = math.sqrt(2 * rho)
        first, second = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
        apart = float(second - first)  # of logs: their difference may be lost to rounding
        return float(first) + math.log(-math.expm1(apart)) if apart < 0 else -math.inf

    low, high = 1e-12, max(2 * epsilon, 1e-6)
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if log_delta(middle) <= math.log(delta) else (low, middle)
    return float(low)
