"""Exact costs of releases in pure, zero-concentrated and approximate differential privacy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from typing import ClassVar, Literal, TypeAlias

from countveil.base.numerics import Exact, exact, positive, shortened
from countveil.errors import InputError

Currency: TypeAlias = Literal["rho", "epsilon"]

_DIGITS = 60
_SLACK = Decimal(10) ** -40  # far above the rounding of 60 digits, far below what is reported


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """How much one person can change a query: the L1 norm, and the square of the L2 norm."""

    l1: Fraction
    l2_squared: Fraction


ONE_COUNT = Sensitivity(Fraction(1), Fraction(1))


@dataclass(frozen=True, slots=True, init=False)
class PureDP:
    """A cost in pure differential privacy.

    Parameters
    ----------
    epsilon
        Exact, 0 or more: text such as "0.5", an integer or a fraction.

    Examples
    --------
    >>> print(PureDP("0.5") + PureDP("1/3"))
    epsilon = 5/6

    """

    epsilon: Fraction
    currency: ClassVar[Currency] = "epsilon"

    def __init__(self, epsilon: Exact) -> None:
        object.__setattr__(self, "epsilon", _not_negative(epsilon, "epsilon"))

    def __add__(self, other: PureDP) -> PureDP:
        if not isinstance(other, PureDP):
            return NotImplemented
        return PureDP(self.epsilon + other.epsilon)

    def __mul__(self, count: int) -> PureDP:
        return PureDP(self.epsilon * _whole(count))

    __rmul__ = __mul__

    def __le__(self, other: PureDP) -> bool:
        return self.epsilon <= other.epsilon

    @property
    def amount(self) -> Fraction:
        """Epsilon: the cost in its own currency."""
        return self.epsilon

    @property
    def rho(self) -> Fraction:
        """The rho it implies, epsilon²/2 (002, Theorem 2)."""
        return self.epsilon**2 / 2

    @property
    def pure_epsilon(self) -> Fraction | None:
        """Epsilon: it bounds every privacy loss."""
        return self.epsilon

    def epsilon_at(self, delta: Exact) -> float:
        """Return epsilon, which holds at every delta."""
        return float(self.epsilon)

    @property
    def implied_epsilon(self) -> float:
        """Epsilon, rounded up."""
        with localcontext(prec=_DIGITS):
            return _round_up(_decimal(self.epsilon))

    def of_group(self, people: int) -> PureDP:
        """Return the cost where several people differ: epsilon times their number."""
        return PureDP(self.epsilon * people)

    def __str__(self) -> str:
        return f"epsilon = {show(self.epsilon)}"


@dataclass(frozen=True, slots=True, init=False)
class ZCDP:
    """A cost in zero-concentrated differential privacy (zCDP).

    Parameters
    ----------
    rho
        Exact, 0 or more: text such as "2.56", an integer or a fraction.

    Examples
    --------
    >>> round(ZCDP("2.56").epsilon("1e-10"), 2)
    17.16

    """

    rho: Fraction
    currency: ClassVar[Currency] = "rho"

    def __init__(self, rho: Exact) -> None:
        object.__setattr__(self, "rho", _not_negative(rho, "rho"))

    def __add__(self, other: ZCDP) -> ZCDP:
        if not isinstance(other, ZCDP):
            return NotImplemented
        return ZCDP(self.rho + other.rho)

    def __mul__(self, count: int) -> ZCDP:
        return ZCDP(self.rho * _whole(count))

    __rmul__ = __mul__

    def __le__(self, other: ZCDP) -> bool:
        return self.rho <= other.rho

    @property
    def amount(self) -> Fraction:
        """Rho: the cost in its own currency."""
        return self.rho

    @property
    def pure_epsilon(self) -> Fraction | None:
        """None: no epsilon bounds every privacy loss."""
        return None

    def epsilon_at(self, delta: Exact) -> float:
        """Return an epsilon with (epsilon, delta)-DP, as `epsilon` does."""
        return self.epsilon(delta)

    def of_group(self, people: int) -> ZCDP:
        """Return the cost where several people differ: rho times their number squared."""
        return ZCDP(self.rho * people**2)

    @property
    def implied_epsilon(self) -> float:
        """sqrt(2 rho), rounded up: the pure epsilon that would imply this rho (002, Theorem 2)."""
        with localcontext(prec=_DIGITS):
            return _round_up(_decimal(2 * self.rho).sqrt())

    def epsilon(self, delta: Exact) -> float:
        """Return an epsilon with (epsilon, delta)-DP, rounded up (002, Theorem 3).

        epsilon = inf over alpha > 1 of rho alpha + log(1 - 1/alpha) - log(alpha delta)/(alpha - 1)
        """
        bound = _probability(delta)
        if self.rho == 0:
            return 0.0
        return _round_up(
            max(_epsilon_at(self.rho, bound, _best_order(self.rho, bound)), Decimal(0))
        )

    def delta(self, epsilon: Exact) -> float:
        """Return a delta with (epsilon, delta)-DP, rounded up: the inverse of `epsilon`."""
        target = exact(epsilon, "epsilon")
        low, high = -800.0, 0.0  # log10 delta
        if self.epsilon(_power_of_ten(low)) <= target:
            return math.nextafter(0.0, 1.0)  # the smallest float above 0
        while high - low > 1e-13 * max(1.0, -low):
            middle = (low + high) / 2
            if self.epsilon(_power_of_ten(middle)) <= target:
                high = middle
            else:
                low = middle
        return math.nextafter(float(_power_of_ten(high)), math.inf) if high < 0 else 1.0

    def __str__(self) -> str:
        return f"rho = {show(self.rho)}"


@dataclass(frozen=True, slots=True, init=False)
class ApproxDP:
    """(epsilon, delta)-differential privacy: a target to calibrate a rho from; it is never added up.

    Parameters
    ----------
    epsilon, delta
        Exact; epsilon is 0 or more, delta is between 0 and 1.

    Examples
    --------
    >>> ApproxDP("1", "1e-10").zcdp.epsilon("1e-10") <= 1
    True

    """

    epsilon: Fraction
    delta: Fraction

    def __init__(self, epsilon: Exact, delta: Exact) -> None:
        object.__setattr__(self, "epsilon", _not_negative(epsilon, "epsilon"))
        object.__setattr__(self, "delta", _probability(delta))

    @property
    def zcdp(self) -> ZCDP:
        """The largest rho that gives this guarantee, rounded down to twelve digits."""
        if self.epsilon == 0:
            return ZCDP(0)
        low, high = 0.0, float(self.epsilon)  # epsilon >= rho for every delta < 1
        for _ in range(200):
            middle = (low + high) / 2
            rho = Fraction(middle)
            if rho == 0 or self._kept_by(rho):
                low = middle
            else:
                high = middle
        rounded, unit = _round_down(Fraction(low))
        # The search uses floats; directed arithmetic decides.
        while rounded > 0 and not self._kept_by(rounded):
            rounded -= unit
        if rounded <= 0:
            raise InputError(f"no rho above 0 gives {self}; choose a larger epsilon or delta")
        return ZCDP(rounded)

    def _kept_by(self, rho: Fraction) -> bool:
        """Return whether rho certainly gives this guarantee."""
        return _epsilon_at(rho, self.delta, _best_order(rho, self.delta)) <= self.epsilon

    def __str__(self) -> str:
        return f"epsilon = {show(self.epsilon)}, delta = {show(self.delta)}"


Cost: TypeAlias = PureDP | ZCDP


def cost_of(currency: Currency, amount: Exact) -> Cost:
    """Return an amount of a currency as a cost."""
    return PureDP(amount) if currency == "epsilon" else ZCDP(amount)


def total(costs: list[Cost]) -> Cost:
    """Return the sum of costs; in a mixture, pure costs count as epsilon²/2."""
    pure = [cost for cost in costs if isinstance(cost, PureDP)]
    if pure and len(pure) == len(costs):
        return PureDP(sum((cost.epsilon for cost in pure), Fraction(0)))
    return ZCDP(sum((cost.rho for cost in costs), Fraction(0)))


def _epsilon_at(rho: Fraction, delta: Fraction, order: Fraction) -> Decimal:
    """Return an upper bound of the expression of Theorem 3 at one order; any order is valid."""
    with localcontext(prec=_DIGITS, rounding=ROUND_CEILING):
        log_shrink = _decimal(1 - 1 / order).ln()
        log_mass = _decimal(order * delta).ln()
        return _decimal(rho * order) + log_shrink - log_mass / _decimal(order - 1) + _SLACK


def _best_order(rho: Fraction, delta: Fraction) -> Fraction:
    """Return the best order by golden section on log(alpha - 1); a float will do, as any is valid."""
    r, log_delta = float(rho), math.log(delta.numerator) - math.log(delta.denominator)

    def bound(t: float) -> float:
        a = math.exp(t)  # alpha - 1
        return r * (1 + a) + (t - math.log1p(a)) - (math.log1p(a) + log_delta) / a

    low, high = -40.0, 0.5 * (math.log(-log_delta + 1) - math.log(r)) + 40
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(200):
        left, right = high - golden * (high - low), low + golden * (high - low)
        if bound(left) <= bound(right):
            high = right
        else:
            low = left
    return 1 + Fraction(math.exp((low + high) / 2))


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def _round_up(value: Decimal) -> float:
    nearest = float(value)
    return nearest if Decimal(nearest) >= value else math.nextafter(nearest, math.inf)


def _round_down(value: Fraction) -> tuple[Fraction, Fraction]:
    """Return `value` rounded down to twelve significant digits, and the size of the last digit."""
    if value <= 0:
        return Fraction(0), Fraction(1)
    unit = Fraction(10) ** (math.floor(math.log10(float(value))) - 12)
    return math.floor(value / unit) * unit, unit


def _power_of_ten(log10: float) -> Fraction:
    whole = math.floor(log10)
    return Fraction(10 ** (log10 - whole)) * Fraction(10) ** whole


def _not_negative(value: Exact, name: str) -> Fraction:
    fraction = exact(value, name)
    if fraction < 0:
        raise InputError(f"{name}: {shortened(value)} is not allowed; a cost must be 0 or more")
    return fraction


def _probability(delta: Exact) -> Fraction:
    fraction = positive(delta, "delta")
    if fraction >= 1:
        raise InputError(f"delta: {shortened(delta)} is not allowed; it must be between 0 and 1")
    return fraction


def _whole(count: int) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise InputError(
            f"a cost cannot be multiplied by {count!r}; give a whole number, 0 or more"
        )
    return count


def show(value: Fraction) -> str:
    """Return an amount for messages: exact if that is short, otherwise with twelve digits."""
    if value.denominator < 10**9 and abs(value.numerator) < 10**30:
        return str(value)
    try:
        return f"{float(value):.12g}"
    except OverflowError:
        with localcontext(prec=12):
            return f"{_decimal(value):.12g}"


@dataclass(frozen=True, slots=True, init=False)
class BesidePublic:
    """A cost given public information (paper 003), in a currency separate from differential privacy.

    `coupling` names the coupling of the guarantee; only costs along the same coupling add up.
    """

    epsilon: Fraction
    coupling: str

    def __init__(self, epsilon: Exact, coupling: str) -> None:
        if not coupling or any(sign.isspace() for sign in coupling):
            raise InputError(f"coupling: {coupling!r} is not allowed; give a name without spaces")
        object.__setattr__(self, "epsilon", positive(epsilon, "epsilon"))
        object.__setattr__(self, "coupling", coupling)

    def __str__(self) -> str:
        return f"epsilon = {show(self.epsilon)} given public information"
