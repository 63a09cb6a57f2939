"""The largest budget of one count within a limit on risk, rounded down so that it keeps the limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from countveil.assess.intruder.decision import Ties
from countveil.assess.intruder.one_level import correct_decision, marginal_risk
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.base.numerics import FloatArray
from countveil.errors import InputError
from countveil.noise.discrete_gaussian import DiscreteGaussian
from countveil.noise.discrete_laplace import DiscreteLaplace
from countveil.noise.law import Mechanism

Noise = Callable[[Fraction], Mechanism]
Profile = Callable[[float], float]

_DIGITS = 12  # significant digits of a chosen budget, rounded down
_LARGEST = 1e6
_SMALLEST = 1e-15
_HALVINGS = 60
_MOST_STEPS = 1 << 40
_JUST_ABOVE = 1 + 1e-11


def largest_rho(
    *,
    risk: float | None = None,
    posterior: float | None = None,
    correct: float | None = None,
    prior: float | Sequence[float],
    rows: int = 1,
    ties: Ties = "split",
) -> Fraction:
    """Return the largest rho of one count with sensitivity 1 that keeps some limits.

    The noise is discrete Gaussian with sigma² = 1/(2 rho). Every smaller rho keeps the limits too: the
    probability of a correct decision may fall again where a prior is below one half.

    Parameters
    ----------
    risk : float, optional
        A limit on R, the expected posterior over prior.
    posterior : float, optional
        A limit on the expected posterior.
    correct : float, optional
        A limit on the probability of a correct decision.
    prior : float or sequence of float
        The intruder's prior, or several that must all keep the limits.
    rows : int
        How many rows the target adds to the count.
    ties : {"split", "yes", "no"}
        What the intruder says when both answers have the same expected loss.

    Returns
    -------
    Fraction
        A rho, rounded down.

    Examples
    --------
    >>> float(largest_rho(risk=1.5, prior=0.1))
    0.279490846465
    """

    def largest_loss(number: int) -> int:
        # A count e above known + rows has the loss rho rows (2 e + rows).
        return rows * (2 * (number - (rows - 1) // 2) + rows)

    limits = _Limits(risk, posterior, correct)
    steps = _Steps(largest_loss, _MOST_STEPS)
    return _largest(DiscreteGaussian.from_rho, steps, limits, prior, rows, ties)


def largest_epsilon(
    *,
    risk: float | None = None,
    posterior: float | None = None,
    correct: float | None = None,
    prior: float | Sequence[float],
    rows: int = 1,
    ties: Ties = "split",
) -> Fraction:
    """Return the largest epsilon of one count with sensitivity 1 that keeps some limits.

    The noise is discrete Laplace with scale 1/epsilon: pure differential privacy.

    Parameters
    ----------
    risk, posterior, correct, prior, rows, ties
        As for `largest_rho`.

    Returns
    -------
    Fraction
        An epsilon, rounded down.
    """

    def noise(epsilon: Fraction) -> Mechanism:
        return DiscreteLaplace(1 / epsilon)

    def largest_loss(number: int) -> int:
        # The loss goes in steps of 2 epsilon, up to rows epsilon.
        return 2 * number + (1 if rows % 2 else 2)

    limits = _Limits(risk, posterior, correct)
    return _largest(noise, _Steps(largest_loss, (rows + 1) // 2), limits, prior, rows, ties)


def safe_rho(*, risk: float, prior: float) -> Fraction:
    """Return a rho that keeps R within a limit for every rho-zCDP release: ½ ln((r - p)/(1 - p)).

    It holds where, to the intruder, everyone else is independent of their target. If they know a total
    that includes the target and others, twice the rho of all levels below that total must stay within
    it.

    Parameters
    ----------
    risk : float
        The limit on R, the expected posterior over prior.
    prior : float
        The intruder's prior.

    Returns
    -------
    Fraction
        A rho, rounded down.
    """
    _check_limit(risk, prior)
    return _rounded_down(0.5 * math.log((risk - prior) / (1 - prior)))


def epsilon_for_profile(profile: Profile, *, priors: Sequence[float] | None = None) -> Fraction:
    """Return the epsilon that keeps R'(x) below a limit r(p) for every prior p (Kazan & Reiter 2024).

    The minimum over p with r(p) < 1/p of log((1 - p)/(1/r(p) - p)): a bound on the posterior-to-prior
    ratio of every epsilon-differentially private release.

    Parameters
    ----------
    profile : callable
        The limit r(p) on posterior over prior, for each prior p.
    priors : sequence of float, optional
        The priors to check. By default a grid from 1e-9 to 1 - 1e-9, refined around the lowest points,
        and below it as if the limit stayed the same; a profile that dips between points is missed.

    Returns
    -------
    Fraction
        An epsilon, rounded down.
    """
    if priors is None:
        ends = np.geomspace(1e-9, 1e-3, 500)
        grid = np.concatenate([ends, np.linspace(1e-3, 1 - 1e-3, 9_999), 1 - ends[::-1]])
    else:
        grid = np.asarray(priors, float)
    if not len(grid) or (grid <= 0).any() or (grid >= 1).any():
        raise InputError("priors: give at least one, all between 0 and 1")
    limits = np.array([profile(float(p)) for p in grid])
    if not (limits > 1).all():
        raise InputError("profile: a limit of 1 or less allows no release; allow more than 1")
    bound = limits < 1 / grid
    if not bound.any():
        raise InputError("profile: has no effect: no posterior exceeds 1; lower it")
    least = _least_epsilon(grid, limits)
    if priors is None:
        if limits[0] < 1 / grid[0]:
            least = min(least, math.log(limits[0]))  # where the prior goes to 0
        for _ in range(6):
            order = np.argsort(_epsilons(grid, limits))[:5]
            near = [
                np.linspace(grid[max(i - 1, 0)], grid[min(i + 1, len(grid) - 1)], 41) for i in order
            ]
            grid = np.unique(np.concatenate(near))
            limits = np.array([profile(float(p)) for p in grid])
            least = min(least, _least_epsilon(grid, limits))
    return _rounded_down(least * (1 - 1e-9))


def _epsilons(priors: FloatArray, limits: FloatArray) -> FloatArray:
    """Return what each prior allows; infinite where its limit cannot be exceeded."""
    bound = limits < 1 / priors
    room = np.where(bound, 1 / limits - priors, 1.0)
    return np.where(bound, np.log((1 - priors) / room), np.inf)


def _least_epsilon(priors: FloatArray, limits: FloatArray) -> float:
    return float(_epsilons(priors, limits).min())


@dataclass(frozen=True, slots=True)
class _Steps:
    """The losses that can persuade the intruder, from the smallest, in units of the budget."""

    loss: Callable[[int], int]
    count: int

    def budget(self, prior: float, number: int) -> float:
        """Return the budget from which a loss persuades them."""
        return math.log((1 - prior) / prior) / self.loss(number)


def _largest(
    noise: Noise,
    steps: _Steps,
    limits: _Limits,
    prior: float | Sequence[float],
    rows: int,
    ties: Ties,
) -> Fraction:
    priors = [float(prior)] if isinstance(prior, int | float) else [float(p) for p in prior]
    if not priors:
        raise InputError("prior: give at least one")
    budgets = []
    for p in priors:
        who = Intruder(prior=p, rows=rows)
        most = limits.posterior_at(p)
        if most is not None:
            budgets.append(_rising(noise, who, most))
        if limits.correct is not None:
            budgets.append(_sawtooth(noise, who, limits.correct, ties, steps))
    return min(budgets)


@dataclass(frozen=True, slots=True)
class _Limits:
    risk: float | None
    posterior: float | None
    correct: float | None

    def __post_init__(self) -> None:
        if self.risk is None and self.posterior is None and self.correct is None:
            raise InputError("give a limit: risk, posterior or correct")

    def posterior_at(self, prior: float) -> float | None:
        """Return the largest expected posterior allowed to an intruder with this prior."""
        allowed = []
        if self.risk is not None:
            _check_limit(self.risk, prior)
            allowed.append(self.risk * prior)
        if self.posterior is not None:
            if not prior < self.posterior < 1:
                raise InputError(
                    f"posterior: {self.posterior} is not allowed; it must be above the prior "
                    f"{prior:g} and below 1"
                )
            allowed.append(self.posterior)
        return min(allowed, default=None)


def _after(law: Mechanism, who: Intruder) -> float:
    after = marginal_risk(law, intruder=who).posterior
    assert after is not None
    return float(after)


def _check_limit(risk: float, prior: float) -> None:
    Intruder(prior=prior)
    if not 1 < risk < 1 / prior:
        raise InputError(
            f"risk: {risk:g} is not allowed with prior {prior:g}; it must be above 1 and below "
            f"1/prior = {1 / prior:g}, which no release exceeds"
        )


def _rising(noise: Noise, who: Intruder, limit: float) -> Fraction:
    """Return the largest budget at which the posterior, which rises with it, keeps a limit."""

    def keeps(budget: float) -> bool:
        return _after(noise(_rounded_down(budget)), who) <= limit

    low, high = _SMALLEST, _SMALLEST
    while high < _LARGEST and keeps(high):
        low, high = high, high * 4
    if high >= _LARGEST:
        return _rounded_down(_LARGEST)
    if low == high:
        raise InputError(
            "the limit leaves no budget: even the smallest exceeds it; raise the limit"
        )
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return _rounded_down(low)


def _sawtooth(noise: Noise, who: Intruder, limit: float, ties: Ties, steps: _Steps) -> Fraction:
    """Return the largest budget up to which a correct decision never exceeds a limit.

    Below prior ½ the intruder always says no, until the budget lets some released count persuade them.
    Where a loss begins to persuade them the probability jumps up; from there to the next jump it falls
    as long as that needs more than the true count, and rises afterwards.
    """
    if not 0 < limit < 1 or (who.prior >= 0.5 and limit <= 0.5):
        raise InputError(
            f"correct: {limit:g} is not allowed with prior {who.prior:g}; it must be below 1, and "
            f"above 1/2 if the prior is 1/2 or more"
        )

    def exceeds(budget: float) -> bool:
        law = noise(_rounded_down(budget))
        return float(correct_decision(law, intruder=who, ties=ties).value) > limit

    low, high = _SMALLEST, _LARGEST
    if who.prior < 0.5:
        # The larger a loss, the rarer it is: find how many of them exceed the limit.
        passing, ahead = 0, 1
        while ahead <= steps.count and exceeds(steps.budget(who.prior, ahead - 1) * _JUST_ABOVE):
            passing, ahead = ahead, 2 * ahead
        ahead = min(ahead, steps.count + 1)
        while ahead - passing > 1:
            middle = (passing + ahead) // 2
            over = exceeds(steps.budget(who.prior, middle - 1) * _JUST_ABOVE)
            passing, ahead = (middle, ahead) if over else (passing, middle)
        if passing:
            high = steps.budget(who.prior, passing - 1) / _JUST_ABOVE
            if not exceeds(high):
                return _rounded_down(high)
        if passing < steps.count:
            low = steps.budget(who.prior, passing) * _JUST_ABOVE
    if exceeds(low):
        raise InputError(
            "the limit leaves no budget: even the smallest exceeds it; raise the limit"
        )
    while high / low > 1 + 1e-14:
        between = math.sqrt(low * high)
        low, high = (low, between) if exceeds(between) else (between, high)
    return _rounded_down(low)


def _rounded_down(value: float) -> Fraction:
    """Return the largest fraction with few digits that is at most the value."""
    if not value > 0:
        raise InputError("the limit leaves no budget; raise it")
    places = _DIGITS - 1 - math.floor(math.log10(value))
    scale = Fraction(10) ** places
    return Fraction(math.floor(Fraction(value) * scale)) / scale
