"""Is a rate above theta0? A test from the release and the public facts, and its power.

The rate theta of one place is fixed; the other places keep their priors. The place's count k has a law
of one parameter, for which k is sufficient. The test rejects where E[k | release, facts] at theta0 is
large. It is the locally most powerful test and, for a single count whose release has a monotone
likelihood ratio (Theorem 15 of paper 003), the uniformly most powerful one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from countveil.base.numerics import FloatArray, IntArray
from countveil.congenial.inference.count_models import (
    BetaBinomial,
    DirichletMultinomialShares,
    GammaPoisson,
)
from countveil.congenial.inference.posterior_problem import PosteriorProblem, read_problem
from countveil.congenial.inference.public_sums import StatedSums
from countveil.congenial.inference.table_listing import compositions, list_tables
from countveil.congenial.inference.tables_given_sums import weights_from_logs
from countveil.congenial.mechanism.wasserstein import Wasserstein
from countveil.errors import InputError
from countveil.papers.seeman import projection

TestedModel: TypeAlias = GammaPoisson | BetaBinomial | DirichletMultinomialShares

_MOST_ENTRIES = 30_000_000
_LOG_IGNORED = 32.0  # noise and counts beyond this have a probability below 1e-13
_SAME = 1e-9  # statistics closer than this are one value: they differ by rounding


@dataclass(frozen=True, slots=True)
class Power:
    """The probability that a test rejects.

    Parameters
    ----------
    released
        Of the test from the release and the public facts.
    projected
        Of the test from the projected release alone, at the same level.
    """

    released: float
    projected: float


@dataclass(frozen=True, eq=False, slots=True)
class RateTest:
    """A test of H0: theta <= theta0 against theta > theta0.

    Parameters
    ----------
    theta0
        The largest rate of H0.
    component
        The place that is tested.
    statistic
        E[count | release, facts] at theta0.
    p_value
        Valid for all of H0: the probability of a statistic this large is taken at theta0, given each
        count, and raised where it does not increase with the count.
    monotone
        Whether it increased by itself.
    """

    theta0: float
    component: int
    statistic: float
    p_value: float
    monotone: bool
    _problem: PosteriorProblem

    def power(self, theta: float, *, level: float = 0.05) -> Power:
        """Return the power of both tests at theta, randomised to have this level at theta0."""
        if not 0 < level < 1:
            raise InputError(f"level: {level} is not allowed; it must be between 0 and 1")
        check_theta(self._model, theta)
        experiment = Experiment(self._problem, self.component, max(theta, self.theta0))
        null, other = experiment.law(self.theta0), experiment.law(theta)
        powers = []
        for cells in (experiment.probabilities, experiment.projected):
            at_null, at_other = null @ cells, other @ cells
            order = _statistics(null, cells)
            powers.append(_randomised_power(order, at_null, at_other, level))
        return Power(*powers)

    @property
    def _model(self) -> TestedModel:
        return tested_model(self._problem)


def test_at_most(
    *,
    model: TestedModel,
    released: ArrayLike,
    mechanism: Wasserstein,
    public: StatedSums | None = None,  # noqa: PT028
    theta0: float,
    component: int = 0,  # noqa: PT028
) -> RateTest:
    """Test whether the rate, or share, of one place is at most theta0; exact, for small tables.

    The place's own prior is not used; the priors of the others describe their counts.

    Parameters
    ----------
    model
        A model of the confidential counts with one rate per place.
    released
        The released table: (places,).
    mechanism
        The mechanism that drew it.
    public
        Public sums and bounds, as for `congenial.posterior`.
    theta0
        The largest rate of the null hypothesis.
    component
        The place to test, from 0.

    Returns
    -------
    RateTest
        The statistic, its p-value, and its power on request.
    """
    problem = read_problem(model, released, mechanism, public)
    check_theta(tested_model(problem), theta0)
    if not 0 <= component < problem.places:
        raise InputError(
            f"component: there is no place {component}; places are numbered 0 to {problem.places - 1}"
        )
    experiment = Experiment(problem, component, theta0)
    null = experiment.law(theta0)
    statistics = _statistics(null, experiment.probabilities)
    likelihoods = experiment.release_likelihoods()
    weights = null * likelihoods
    statistic = float((weights * np.arange(len(null))).sum() / weights.sum())
    larger = experiment.probabilities[
        :, statistics >= statistic - _SAME * (1 + abs(statistic))
    ].sum(axis=1)
    rising = np.maximum.accumulate(larger)
    return RateTest(
        float(theta0),
        component,
        statistic,
        min(1.0, float((null * rising).sum())),
        bool((rising - larger <= _SAME).all()),
        problem,
    )


test_at_most.__test__ = False  # type: ignore[attr-defined]  # not for pytest to collect


def _statistics(law: FloatArray, probabilities: FloatArray) -> FloatArray:
    """Return E[count | release] at the law of the count, for every release."""
    joint = law[:, None] * probabilities
    with np.errstate(invalid="ignore"):
        means = (np.arange(len(law))[:, None] * joint).sum(axis=0) / joint.sum(axis=0)
    return np.where(np.isfinite(means), means, -1.0)


def _randomised_power(
    statistics: FloatArray, at_null: FloatArray, at_other: FloatArray, level: float
) -> float:
    """Return the power of the test that rejects for large statistics, randomised at its border."""
    order = np.argsort(-statistics)
    sorted_statistics = statistics[order]
    starts = np.flatnonzero(np.diff(sorted_statistics, prepend=np.inf) < -_SAME)
    null, other = (np.add.reduceat(part[order], starts) for part in (at_null, at_other))
    before = np.concatenate(([0.0], np.cumsum(null)[:-1]))
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(null > 0, np.clip((level - before) / null, 0.0, 1.0), before < level)
    return float((parts * other).sum())


class _WeightedTables(NamedTuple):
    tables: IntArray
    log_others: FloatArray  # the log-weight of the other places of each table


class Experiment:
    """All possible releases of a small table, with their probability given the count of one place."""

    def __init__(self, problem: PosteriorProblem, component: int, largest: float) -> None:
        self._problem, self._component = problem, component
        self._model = tested_model(problem)
        tables, log_others = self._tables(largest)
        self._count = tables[:, component, 0]
        self.length = int(self._count.max()) + 1
        log_sums = np.full(self.length, -math.inf)
        np.logaddexp.at(log_sums, self._count, log_others)
        self._log_others = log_sums  # log P(others | public sum), by the place's count
        # The probability of a table given the place's count.
        self._table_probabilities = np.exp(log_others - log_sums[self._count])
        self._rows = tables
        releases = self._releases(tables)
        if len(releases) * len(tables) > _MOST_ENTRIES:
            raise InputError(
                f"released: {len(tables):,} tables and {len(releases):,} releases are too many; "
                f"this test is for one count or a small table"
            )
        sums = np.zeros((self.length, len(releases)))
        for count in range(self.length):
            for row in np.flatnonzero(self._count == count):
                sums[count] += self._table_probabilities[row] * self._densities(
                    releases, tables[row]
                )
        self.probabilities: FloatArray = sums / sums.sum(axis=1, keepdims=True)
        cells, which = np.unique(self._project(releases), axis=0, return_inverse=True)
        self.projected: FloatArray = np.zeros((self.length, len(cells)))
        np.add.at(self.projected.T, which.reshape(-1), self.probabilities.T)

    def law(self, theta: float) -> FloatArray:
        """Return the law of the place's count at theta, given the public facts."""
        counts = np.arange(self.length)
        model, facts = self._model, self._problem.facts
        if isinstance(model, DirichletMultinomialShares):
            # The others share the rest, so their own sums cancel.
            rest = (facts.total or 0) - counts
            logs = special.xlogy(counts, theta) + special.xlog1py(rest, -theta)
            logs = logs - special.gammaln(counts + 1.0) - special.gammaln(rest + 1.0)
            return weights_from_logs(logs)
        log_likelihoods = model.log_given(self._component, counts, np.array([theta]))[0]
        return weights_from_logs(log_likelihoods + self._log_others)

    def release_likelihoods(self) -> FloatArray:
        """Return the probability of the actual release for each count, up to a factor."""
        problem = self._problem
        logs = problem.mechanism.log_densities(problem.released, self._rows)
        likelihoods = np.zeros(self.length)
        np.add.at(likelihoods, self._count, self._table_probabilities * np.exp(logs - logs.max()))
        return likelihoods

    def _tables(self, largest: float) -> _WeightedTables:
        """Return all possible tables."""
        problem, own = self._problem, self._component
        if own in problem.facts.free:
            if problem.places > 1:
                raise InputError(
                    "public: the tested count is in no public sum, so the others say nothing about it; "
                    "give it alone"
                )
            top = problem.most(own)
            if top is None:
                mean = float(np.exp(_log_mean(self._model, own, largest)))
                top = math.ceil(mean + _LOG_IGNORED + 2 * math.sqrt(_LOG_IGNORED * mean))
            return _WeightedTables(np.arange(top + 1)[:, None, None], np.zeros(top + 1))
        if problem.facts.free or len(problem.facts.groups) > 1:
            raise InputError("public: this test is for places with one public total")
        tables = list_tables(problem)
        logs = np.zeros(len(tables))
        for place in range(problem.places):
            if place != own:
                counts = tables[:, place, 0]
                logs += self._model.log_marginal(place, counts, counts, 0)
        return _WeightedTables(tables, logs)

    def _releases(self, tables: IntArray) -> IntArray:
        """Return the releases, up to a probability of 1e-13: (releases, places)."""
        problem = self._problem
        mechanism = problem.mechanism
        if not mechanism.constant_normalizer:
            parts = [
                compositions([group.total] * len(group.members), group.total)
                for group in mechanism.groups(problem.places)
            ]
            order = np.argsort(
                [place for group in mechanism.groups(problem.places) for place in group.members]
            )
            return np.array([np.concatenate(choice) for choice in product(*parts)])[:, order]
        rate = float(mechanism.rate)
        reach = _LOG_IGNORED / rate
        far = math.ceil(math.sqrt(reach) if mechanism.loss == "squared L2" else reach)
        lows, highs = tables[:, :, 0].min(axis=0) - far, tables[:, :, 0].max(axis=0) + far
        size = math.prod(int(high - low + 1) for low, high in zip(lows, highs, strict=True))
        if size * len(tables) > _MOST_ENTRIES:
            raise InputError(
                f"released: {size:,} releases are too many to list; this test is for one count, for "
                f"two places with a public total, or for congenial releases of a few places"
            )
        ranges = [np.arange(low, high + 1) for low, high in zip(lows, highs, strict=True)]
        grid = np.meshgrid(*ranges, indexing="ij")
        return np.stack([part.reshape(-1) for part in grid], axis=1)

    def _densities(self, releases: IntArray, table: IntArray) -> FloatArray:
        """Return the probabilities of many releases of one table."""
        mechanism = self._problem.mechanism
        distances = np.abs(releases - table[:, 0]).astype(np.float64)
        if mechanism.loss == "L1":
            losses = distances.sum(axis=1)
        else:
            losses = (distances**2).sum(axis=1)
            losses = np.sqrt(losses) if mechanism.loss == "L2" else losses
        logs = -float(mechanism.rate) * losses
        if not mechanism.constant_normalizer:
            logs = logs + mechanism.log_base(np.arange(len(table)), releases).sum(axis=1)
        densities: FloatArray = np.exp(logs - mechanism.log_normalizer(table))
        return densities

    def _project(self, releases: IntArray) -> IntArray:
        total = self._problem.facts.total
        if total is None:
            return np.maximum(releases, 0)
        return projection.rounded(
            projection.project(releases[:, :, None], total=total), total=total
        )[:, :, 0]


def tested_model(problem: PosteriorProblem) -> TestedModel:
    """Return the model, if it has one rate per place that can be set."""
    model = problem.model
    if not isinstance(model, GammaPoisson | BetaBinomial | DirichletMultinomialShares):
        raise InputError(
            f"model: {type(model).__name__} has no single rate to test; use GammaPoisson, BetaBinomial "
            f"or DirichletMultinomialShares"
        )
    return model


def check_theta(model: TestedModel, theta: float) -> None:
    """Refuse a number that is not a rate, or not a share."""
    top = math.inf if isinstance(model, GammaPoisson) else 1.0
    if not 0 < theta < top:
        raise InputError(f"theta: {theta} is not allowed; it must be between 0 and {top:g}")


def _log_mean(model: TestedModel, place: int, theta: float) -> float:
    """Return log of the mean count at theta, from the ratio of the probabilities of 1 and 0."""
    logs = model.log_given(place, np.array([0, 1]), np.array([theta]))[0]
    return float(logs[1] - logs[0])
