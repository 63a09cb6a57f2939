"""Models of confidential counts: what they assume about counts, and about rates given the counts.

A model has one parameter per place, such as a rate or a share, and possibly parameters that all places
share. It knows the law of a count with the place's parameter integrated out, and the law of the
parameter given the count. A new model is one more class here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from scipy import special

from countveil.base.numerics import Array, FloatArray, IntArray
from countveil.congenial.inference.mixture import ParameterLaw
from countveil.congenial.inference.public_sums import PublicSums
from countveil.errors import InfeasibleError, InputError

Numbers: TypeAlias = float | Sequence[float] | FloatArray  # one for all places, or one per place

_MOST_POINTS = 10_000


class Model(Protocol):
    """Counts of places that are independent, given shared parameters and one parameter per place.

    `point` numbers the values that the shared parameters may have; a model without shared parameters
    has the single point 0.
    """

    @property
    def parameter(self) -> str:
        """The name of a place's parameter."""
        ...

    @property
    def log_points(self) -> FloatArray:
        """The prior log-probability of each value of the shared parameters."""
        ...

    def check(self, facts: PublicSums, *, deaths: bool) -> None:
        """Refuse places or facts that do not fit the model."""
        ...

    def most(self, place: int) -> int | None:
        """Return the largest count that a place can have, or None."""
        ...

    def log_marginal(
        self, place: int, cases: IntArray, deaths: IntArray, point: int | IntArray
    ) -> FloatArray:
        """Return log P(count), up to a constant of the place."""
        ...

    def law(
        self, place: int, cases: IntArray, deaths: IntArray, point: int, facts: PublicSums
    ) -> ParameterLaw:
        """Return the law of a place's parameter given its count."""
        ...

    def draw(self, tables: IntArray, points: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw the parameters of all places given tables (draws, places, 1 or 2)."""
        ...


class ProposalModel(Protocol):
    """A model whose parameters can be drawn first and weighted, as Algorithm 2 needs of a proposal."""

    def prior_draw(self, draws: int, places: int, rng: np.random.Generator) -> FloatArray:
        """Draw parameters of all places from the prior."""
        ...

    def log_prior(self, parameters: FloatArray) -> FloatArray:
        """Return the log-density of parameters (draws, places), up to a constant."""
        ...

    def log_given(self, place: int, cases: IntArray, parameter: FloatArray) -> FloatArray:
        """Return log P(count | parameter), up to a constant: (draws, counts)."""
        ...


@dataclass(frozen=True, eq=False, slots=True)
class GammaPoisson:
    """Rates: count ~ Poisson(exposure · rate), rate ~ Gamma(shape, rate).

    With the rate integrated out a count is negative binomial. Given its count, a rate is
    Gamma(shape + count, rate + exposure).

    Parameters
    ----------
    shape, rate
        Parameters of the prior, one number or one per place.
    exposure
        What a rate is per, such as the number of people; 1 if None.

    Examples
    --------
    >>> GammaPoisson(shape=2.0, rate=100.0, exposure=[900, 400, 50]).parameter
    'rate'
    """

    shape: Numbers
    rate: Numbers
    exposure: Numbers | None = None

    def __post_init__(self) -> None:
        _positive_array(self.shape, "shape")
        _positive_array(self.rate, "rate")
        _positive_array(1.0 if self.exposure is None else self.exposure, "exposure")

    @property
    def parameter(self) -> str:
        """The name of a place's parameter."""
        return "rate"

    @property
    def log_points(self) -> FloatArray:
        """A single point: there are no shared parameters."""
        return np.zeros(1)

    def check(self, facts: PublicSums, *, deaths: bool) -> None:
        """Refuse lists that do not fit the places, and deaths."""
        _refuse_deaths(deaths, "GammaPoisson")
        for name, values in self._arrays._asdict().items():
            _check_length(values, name, facts.places)

    def most(self, place: int) -> int | None:
        """Return None: counts have no largest value."""
        return None

    def log_marginal(
        self, place: int, cases: IntArray, deaths: IntArray, point: int | IntArray
    ) -> FloatArray:
        """Return the negative binomial log-probabilities."""
        shape, rate, exposure = (_value_at(values, place) for values in self._arrays)
        return _log_negative_binomial(cases, shape, rate, exposure)

    def law(
        self, place: int, cases: IntArray, deaths: IntArray, point: int, facts: PublicSums
    ) -> ParameterLaw:
        """Return Gamma(shape + count, rate + exposure)."""
        shape, rate, exposure = (_value_at(values, place) for values in self._arrays)
        return ParameterLaw(
            "gamma",
            shape + cases.astype(np.float64),
            np.full_like(cases, rate + exposure, float),
        )

    def draw(self, tables: IntArray, points: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw rates given counts."""
        shape, rate, exposure = self._arrays
        rates: FloatArray = rng.gamma(shape + tables[:, :, 0]) / (rate + exposure)
        return rates

    def prior_draw(self, draws: int, places: int, rng: np.random.Generator) -> FloatArray:
        """Draw rates from the prior."""
        shape, rate, _ = self._arrays
        rates: FloatArray = rng.gamma(np.broadcast_to(shape, (draws, places))) / rate
        return rates

    def log_prior(self, parameters: FloatArray) -> FloatArray:
        """Return the log-density of rates, up to a constant."""
        shape, rate, _ = self._arrays
        constant = shape * np.log(rate) - special.gammaln(shape)
        terms = constant + (shape - 1) * np.log(parameters) - rate * parameters
        logs: FloatArray = terms.sum(axis=1)
        return logs

    def log_given(self, place: int, cases: IntArray, parameter: FloatArray) -> FloatArray:
        """Return Poisson log-probabilities."""
        mean = parameter[:, None] * _value_at(self._arrays.exposure, place)
        logs: FloatArray = cases * np.log(mean) - mean - special.gammaln(cases + 1.0)
        return logs

    @property
    def _arrays(self) -> _GammaPoissonArrays:
        exposure = 1.0 if self.exposure is None else self.exposure
        return _GammaPoissonArrays(
            np.asarray(self.shape, float),
            np.asarray(self.rate, float),
            np.asarray(exposure, float),
        )


class _GammaPoissonArrays(NamedTuple):
    shape: FloatArray
    rate: FloatArray
    exposure: FloatArray


@dataclass(frozen=True, eq=False, slots=True)
class SmallAreaRates:
    """Rates that borrow strength: rate ~ Gamma(shape, shape/mean), with unknown mean and shape.

    Counts are Poisson(exposure · rate); all places share the mean and the shape. Before the release
    log mean and log shape are normal, and each is replaced by `steps` values, the medians of equally
    likely intervals. This finite law is the prior itself, so all methods have the same target.

    Parameters
    ----------
    exposure
        What a rate is per, one number or one per place.
    mean, shape
        The prior medians of the shared mean and shape.
    mean_spread, shape_spread
        The standard deviations of their logarithms.
    steps
        The number of values of each, from 1 to 100.
    """

    exposure: Numbers
    mean: float
    mean_spread: float = 1.0
    shape: float = 2.0
    shape_spread: float = 0.7
    steps: int = 15

    def __post_init__(self) -> None:
        _positive_array(self.exposure, "exposure")
        for name in ("mean", "mean_spread", "shape", "shape_spread"):
            if _positive_array(getattr(self, name), name).ndim:
                raise InputError(f"{name}: all places share it; give one number")
        if not isinstance(self.steps, int) or not 1 <= self.steps**2 <= _MOST_POINTS:
            raise InputError(
                f"steps: {self.steps!r} is not allowed; give 1 to 100 values of mean and of shape"
            )

    @property
    def parameter(self) -> str:
        """The name of a place's parameter."""
        return "rate"

    @property
    def means(self) -> FloatArray:
        """The shared mean at every point."""
        return np.repeat(self._values(self.mean, self.mean_spread), self.steps)

    @property
    def shapes(self) -> FloatArray:
        """The shared shape at every point."""
        return np.tile(self._values(self.shape, self.shape_spread), self.steps)

    @property
    def log_points(self) -> FloatArray:
        """Equal log-probabilities: all points are equally likely before the release."""
        return np.full(self.steps**2, -2 * np.log(self.steps))

    def check(self, facts: PublicSums, *, deaths: bool) -> None:
        """Refuse lists that do not fit the places, and deaths."""
        _refuse_deaths(deaths, "SmallAreaRates")
        _check_length(self._exposure, "exposure", facts.places)

    def most(self, place: int) -> int | None:
        """Return None: counts have no largest value."""
        return None

    def log_marginal(
        self, place: int, cases: IntArray, deaths: IntArray, point: int | IntArray
    ) -> FloatArray:
        """Return the negative binomial log-probabilities at one mean and shape, or at many."""
        shape = self.shapes[point]
        rate = shape / self.means[point]
        return _log_negative_binomial(cases, shape, rate, _value_at(self._exposure, place))

    def law(
        self, place: int, cases: IntArray, deaths: IntArray, point: int, facts: PublicSums
    ) -> ParameterLaw:
        """Return Gamma(shape + count, shape/mean + exposure)."""
        shape = float(self.shapes[point])
        rate = shape / float(self.means[point]) + _value_at(self._exposure, place)
        return ParameterLaw(
            "gamma", shape + cases.astype(np.float64), np.full_like(cases, rate, float)
        )

    def draw(self, tables: IntArray, points: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw rates given counts and the points of the shared parameters."""
        shape, mean = self.shapes[points][:, None], self.means[points][:, None]
        rates: FloatArray = rng.gamma(shape + tables[:, :, 0]) / (shape / mean + self._exposure)
        return rates

    def _values(self, median: float, log_deviation: float) -> FloatArray:
        probabilities = (np.arange(self.steps) + 0.5) / self.steps
        values: FloatArray = median * np.exp(log_deviation * special.ndtri(probabilities))
        return values

    @property
    def _exposure(self) -> FloatArray:
        return np.asarray(self.exposure, float)


@dataclass(frozen=True, eq=False, slots=True)
class BetaBinomial:
    """Rates with public denominators: count ~ Binomial(trials, rate), rate ~ Beta(a, b).

    Given its count, a rate is Beta(a + count, b + trials - count).

    Parameters
    ----------
    a, b
        Parameters of the prior, one number or one per place.
    trials
        The public denominators, one number or one per place.

    Examples
    --------
    >>> BetaBinomial(a=1, b=1, trials=[30, 40]).most(1)
    40
    """

    a: Numbers
    b: Numbers
    trials: int | Sequence[int] | IntArray

    def __post_init__(self) -> None:
        _positive_array(self.a, "a")
        _positive_array(self.b, "b")
        _positive_array(self.trials, "trials", whole=True)

    @property
    def parameter(self) -> str:
        """The name of a place's parameter."""
        return "rate"

    @property
    def log_points(self) -> FloatArray:
        """A single point: there are no shared parameters."""
        return np.zeros(1)

    def check(self, facts: PublicSums, *, deaths: bool) -> None:
        """Refuse lists that do not fit the places, deaths, and totals above all trials."""
        _refuse_deaths(deaths, "BetaBinomial")
        for name, values in self._arrays._asdict().items():
            _check_length(values, name, facts.places)
        for group in facts.groups:
            trials = sum(_value_at(self._arrays.trials, place) for place in group.members)
            if trials < group.total:
                raise InfeasibleError(
                    f"public: {len(group.members)} places have {trials:,.0f} trials and a total of "
                    f"{group.total:,}; no table has both"
                )

    def most(self, place: int) -> int | None:
        """Return the trials of a place."""
        return int(_value_at(self._arrays.trials, place))

    def log_marginal(
        self, place: int, cases: IntArray, deaths: IntArray, point: int | IntArray
    ) -> FloatArray:
        """Return the beta-binomial log-probabilities."""
        a, b, trials = (_value_at(values, place) for values in self._arrays)
        return _log_beta_binomial(cases, np.asarray(trials), a, b)

    def law(
        self, place: int, cases: IntArray, deaths: IntArray, point: int, facts: PublicSums
    ) -> ParameterLaw:
        """Return Beta(a + count, b + trials - count)."""
        a, b, trials = (_value_at(values, place) for values in self._arrays)
        count = cases.astype(np.float64)
        return ParameterLaw("beta", a + count, b + trials - count)

    def draw(self, tables: IntArray, points: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw rates given counts."""
        a, b, trials = self._arrays
        cases = tables[:, :, 0]
        return rng.beta(a + cases, b + trials - cases)

    def prior_draw(self, draws: int, places: int, rng: np.random.Generator) -> FloatArray:
        """Draw rates from the prior."""
        a, b, _ = self._arrays
        return rng.beta(np.broadcast_to(a, (draws, places)), b)

    def log_prior(self, parameters: FloatArray) -> FloatArray:
        """Return the log-density of rates."""
        a, b, _ = self._arrays
        terms = (
            (a - 1) * np.log(parameters) + (b - 1) * np.log1p(-parameters) - special.betaln(a, b)
        )
        logs: FloatArray = terms.sum(axis=1)
        return logs

    def log_given(self, place: int, cases: IntArray, parameter: FloatArray) -> FloatArray:
        """Return binomial log-probabilities."""
        trials, p = _value_at(self._arrays.trials, place), parameter[:, None]
        ways = special.gammaln(trials + 1) - special.gammaln(cases + 1.0)
        ways = ways - special.gammaln(trials - cases + 1.0)
        logs: FloatArray = ways + cases * np.log(p) + (trials - cases) * np.log1p(-p)
        return logs

    @property
    def _arrays(self) -> _BetaBinomialArrays:
        return _BetaBinomialArrays(
            np.asarray(self.a, float), np.asarray(self.b, float), np.asarray(self.trials, float)
        )


class _BetaBinomialArrays(NamedTuple):
    a: FloatArray
    b: FloatArray
    trials: FloatArray


@dataclass(frozen=True, eq=False, slots=True)
class DirichletMultinomialShares:
    """Shares of a public total: counts ~ Multinomial(total, shares), shares ~ Dirichlet(alpha).

    Parameters
    ----------
    alpha
        The prior, one number or one per place. It may come from an earlier private release, which is
        public once it is out, so a prior made from it costs nothing more.
    """

    alpha: Numbers

    def __post_init__(self) -> None:
        _positive_array(self.alpha, "alpha")

    @property
    def parameter(self) -> str:
        """The name of a place's parameter."""
        return "share"

    @property
    def log_points(self) -> FloatArray:
        """A single point: there are no shared parameters."""
        return np.zeros(1)

    def check(self, facts: PublicSums, *, deaths: bool) -> None:
        """Refuse deaths, and counts without a public total."""
        _refuse_deaths(deaths, "DirichletMultinomialShares")
        _check_length(self._alpha, "alpha", facts.places)
        if facts.total is None:
            raise InputError('public: shares need a public total; give public={"total": …}')

    def most(self, place: int) -> int | None:
        """Return None: only the total limits a count."""
        return None

    def log_marginal(
        self, place: int, cases: IntArray, deaths: IntArray, point: int | IntArray
    ) -> FloatArray:
        """Return log Γ(count + alpha) - log count!; given the total, the rest is constant."""
        logs: FloatArray = special.gammaln(cases + _value_at(self._alpha, place)) - special.gammaln(
            cases + 1.0
        )
        return logs

    def law(
        self, place: int, cases: IntArray, deaths: IntArray, point: int, facts: PublicSums
    ) -> ParameterLaw:
        """Return Beta(alpha + count, all other alphas and counts)."""
        if facts.total is None:
            raise InputError('public: shares need a public total; give public={"total": …}')
        own = _value_at(self._alpha, place) + cases.astype(np.float64)
        whole = float(np.broadcast_to(self._alpha, facts.places).sum()) + facts.total
        return ParameterLaw("beta", own, whole - own)

    def draw(self, tables: IntArray, points: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw shares given counts."""
        parts = rng.gamma(self._alpha + tables[:, :, 0])
        shares: FloatArray = parts / parts.sum(axis=1, keepdims=True)
        return shares

    def prior_draw(self, draws: int, places: int, rng: np.random.Generator) -> FloatArray:
        """Draw shares from the prior."""
        return rng.dirichlet(np.broadcast_to(self._alpha, places), draws)

    def log_prior(self, parameters: FloatArray) -> FloatArray:
        """Return the log-density of shares."""
        alpha = np.broadcast_to(self._alpha, parameters.shape[1])
        constant = float(special.gammaln(alpha.sum()) - special.gammaln(alpha).sum())
        logs: FloatArray = constant + ((alpha - 1) * np.log(parameters)).sum(axis=1)
        return logs

    def log_given(self, place: int, cases: IntArray, parameter: FloatArray) -> FloatArray:
        """Return the factors of the multinomial log-probability."""
        logs: FloatArray = cases * np.log(parameter[:, None]) - special.gammaln(cases + 1.0)
        return logs

    @property
    def _alpha(self) -> FloatArray:
        return np.asarray(self.alpha, float)


@dataclass(frozen=True, eq=False, slots=True)
class DeathRates:
    """Death rates, where cases and deaths were both released with noise.

    Deaths ~ Binomial(cases, rate) and rate ~ Beta(a, b).

    Parameters
    ----------
    a, b
        Parameters of the prior of death rates, one number or one per place.
    cases
        The model of the cases.
    """

    a: Numbers
    b: Numbers
    cases: GammaPoisson | DirichletMultinomialShares

    def __post_init__(self) -> None:
        _positive_array(self.a, "a")
        _positive_array(self.b, "b")

    @property
    def parameter(self) -> str:
        """The name of a place's parameter."""
        return "death_rate"

    @property
    def log_points(self) -> FloatArray:
        """A single point: there are no shared parameters."""
        return np.zeros(1)

    def check(self, facts: PublicSums, *, deaths: bool) -> None:
        """Refuse releases without deaths, and all that the model of cases refuses."""
        if not deaths:
            raise InputError("model: DeathRates is for releases of cases and deaths: (places, 2)")
        _check_length(np.asarray(self.a, float), "a", facts.places)
        _check_length(np.asarray(self.b, float), "b", facts.places)
        self.cases.check(facts, deaths=False)

    def most(self, place: int) -> int | None:
        """Return the largest number of cases that a place can have, or None."""
        return self.cases.most(place)

    def log_marginal(
        self, place: int, cases: IntArray, deaths: IntArray, point: int | IntArray
    ) -> FloatArray:
        """Return log P(cases, deaths); minus infinity where deaths exceed cases."""
        alive = np.maximum(cases - deaths, 0)
        a = _value_at(np.asarray(self.a, float), place)
        b = _value_at(np.asarray(self.b, float), place)
        of_deaths = _log_beta_binomial(np.minimum(deaths, cases), deaths + alive, a, b)
        logs = self.cases.log_marginal(place, cases, deaths, point) + of_deaths
        return np.where(deaths <= cases, logs, -np.inf)

    def law(
        self, place: int, cases: IntArray, deaths: IntArray, point: int, facts: PublicSums
    ) -> ParameterLaw:
        """Return Beta(a + deaths, b + cases - deaths)."""
        a = _value_at(np.asarray(self.a, float), place)
        b = _value_at(np.asarray(self.b, float), place)
        alive = np.maximum(cases - deaths, 0).astype(np.float64)
        return ParameterLaw("beta", a + deaths.astype(np.float64), b + alive)

    def draw(self, tables: IntArray, points: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw death rates given cases and deaths."""
        cases, deaths = tables[:, :, 0], tables[:, :, 1]
        return rng.beta(
            np.asarray(self.a, float) + deaths, np.asarray(self.b, float) + cases - deaths
        )


@dataclass(frozen=True, eq=False, slots=True)
class CaseRates(DeathRates):
    """Parameters of the model of cases, from a release of cases and deaths.

    Parameters
    ----------
    a, b, cases
        As for `DeathRates`.
    """

    @property
    def parameter(self) -> str:
        """The name of a place's parameter."""
        return self.cases.parameter

    def law(
        self, place: int, cases: IntArray, deaths: IntArray, point: int, facts: PublicSums
    ) -> ParameterLaw:
        """Return the law that the model of cases gives."""
        return self.cases.law(place, cases, deaths, point, facts)

    def draw(self, tables: IntArray, points: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw the parameters of the model of cases."""
        return self.cases.draw(tables, points, rng)


def _positive_array(value: object, name: str, *, whole: bool = False) -> FloatArray:
    """Return one number or one per place, all above 0."""
    array: Array = np.asarray(value)
    if array.dtype.kind not in "iuf" or array.ndim > 1 or not np.all(np.isfinite(array)):
        raise InputError(
            f"{name}: {value!r} is not allowed; give one number, or one for each place"
        )
    if np.any(array <= 0) or (whole and np.any(array != np.round(array))):
        kind = "whole numbers" if whole else "numbers"
        raise InputError(f"{name}: {value!r} is not allowed; give {kind} above 0")
    return array.astype(np.float64)


def _check_length(values: FloatArray, name: str, places: int) -> None:
    """Refuse a list that does not have one number per released place."""
    if values.ndim == 1 and len(values) != places:
        raise InputError(f"{name}: got {len(values)} numbers; the release has {places} places")


def _value_at(values: FloatArray, place: int) -> float:
    return float(values if values.ndim == 0 else values[place])


def _refuse_deaths(deaths: bool, name: str) -> None:
    if deaths:
        raise InputError(
            f"model: {name} is for one count per place; use DeathRates for cases and deaths"
        )


def _log_negative_binomial(
    count: Array, shape: float | FloatArray, rate: float | FloatArray, exposure: float
) -> FloatArray:
    """Return log P(count) of a Poisson count whose rate is Gamma(shape, rate)."""
    logs: FloatArray = (
        special.gammaln(count + shape)
        - special.gammaln(shape)
        - special.gammaln(count + 1.0)
        + shape * np.log(rate / (rate + exposure))
        + count * np.log(exposure / (rate + exposure))
    )
    return logs


def _log_beta_binomial(count: Array, of: Array, a: float, b: float) -> FloatArray:
    """Return the log-probability of `count` out of `of`, under a Beta(a, b) share."""
    logs: FloatArray = (
        special.gammaln(of + 1.0)
        - special.gammaln(count + 1.0)
        - special.gammaln(of - count + 1.0)
        + special.betaln(count + a, of - count + b)
        - special.betaln(a, b)
    )
    return logs
