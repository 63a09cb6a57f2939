"""All that may be released, listed: the chance of each release given the count of one place.

The place's rate is a number theta; the other places keep their priors. For one count or a small table.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from scipy import special

from countveil.congenial import projection
from countveil.errors import InputError
from countveil.infer.beta_binomial import BetaBinomial
from countveil.infer.conditional_tables import normalized
from countveil.infer.evidence import Evidence
from countveil.infer.gamma_poisson import GammaPoisson
from countveil.infer.listing import compositions, listed_tables
from countveil.infer.shares import DirichletMultinomialShares
from countveil.numerics import FloatArray, IntArray

TestedModel = GammaPoisson | BetaBinomial | DirichletMultinomialShares

_MOST_ENTRIES = 30_000_000
_LOG_LEFT_OUT = 32.0  # noise and counts beyond have a chance below 1e-13


class Experiment:
    """All that may be released: the chance of each release given the count of one place."""

    def __init__(self, evidence: Evidence, component: int, largest: float) -> None:
        self._evidence, self._component = evidence, component
        self._model = tested_model(evidence)
        tables, log_others = self._tables(largest)
        self._count = tables[:, component, 0]
        self.length = int(self._count.max()) + 1
        log_sums = np.full(self.length, -math.inf)
        np.logaddexp.at(log_sums, self._count, log_others)
        self._log_others = log_sums  # log P(others | public sum), by the place's count
        self._given = np.exp(
            log_others - log_sums[self._count]
        )  # of a table given the place's count
        self._rows = tables
        releases = self._releases(tables)
        if len(releases) * len(tables) > _MOST_ENTRIES:
            raise InputError(
                f"released: {len(tables):,} tables and {len(releases):,} releases are too many to "
                f"list; this test is for one count or a small table"
            )
        chances = np.zeros((self.length, len(releases)))
        for count in range(self.length):
            for row in np.flatnonzero(self._count == count):
                chances[count] += self._given[row] * self._densities(releases, tables[row])
        self.chances: FloatArray = chances / chances.sum(axis=1, keepdims=True)
        cells, which = np.unique(self._project(releases), axis=0, return_inverse=True)
        self.projected: FloatArray = np.zeros((self.length, len(cells)))
        np.add.at(self.projected.T, which.reshape(-1), self.chances.T)

    def law(self, theta: float) -> FloatArray:
        """Return the law of the place's count at theta, given the public facts."""
        counts = np.arange(self.length)
        model, facts = self._model, self._evidence.facts
        if isinstance(model, DirichletMultinomialShares):
            # The others share what is left: their own sums cancel.
            rest = (facts.total or 0) - counts
            logs = special.xlogy(counts, theta) + special.xlog1py(rest, -theta)
            logs = logs - special.gammaln(counts + 1.0) - special.gammaln(rest + 1.0)
            return normalized(logs)
        given = model.log_given(self._component, counts, np.array([theta]))[0]
        return normalized(given + self._log_others)

    def given_release(self) -> FloatArray:
        """Return the chance of the release itself for each count, up to a factor."""
        evidence = self._evidence
        logs = evidence.mechanism.log_densities(evidence.released, self._rows)
        chances = np.zeros(self.length)
        np.add.at(chances, self._count, self._given * np.exp(logs - logs.max()))
        return chances

    def _tables(self, largest: float) -> tuple[IntArray, FloatArray]:
        """Return all tables, and the log-weight of each one's other places."""
        evidence, own = self._evidence, self._component
        if own in evidence.facts.free:
            if evidence.places > 1:
                raise InputError(
                    "public: the count tested is in no public sum, so the others say nothing of it; "
                    "give it alone"
                )
            top = evidence.most(own)
            if top is None:
                mean = float(np.exp(_log_mean(self._model, own, largest)))
                top = math.ceil(mean + _LOG_LEFT_OUT + 2 * math.sqrt(_LOG_LEFT_OUT * mean))
            return np.arange(top + 1)[:, None, None], np.zeros(top + 1)
        if evidence.facts.free or len(evidence.facts.groups) > 1:
            raise InputError("public: this test is for places with one public total")
        tables = listed_tables(evidence)
        logs = np.zeros(len(tables))
        for place in range(evidence.places):
            if place != own:
                counts = tables[:, place, 0]
                logs += self._model.log_marginal(place, counts, counts, 0)
        return tables, logs

    def _releases(self, tables: IntArray) -> IntArray:
        """List the releases, all or all but 1e-13 of them: (releases, places)."""
        evidence = self._evidence
        mechanism = evidence.mechanism
        if not mechanism.constant_normalizer:
            parts = [
                compositions([group.total] * len(group.members), group.total)
                for group in mechanism.groups(evidence.places)
            ]
            order = np.argsort(
                [place for group in mechanism.groups(evidence.places) for place in group.members]
            )
            return np.array([np.concatenate(choice) for choice in product(*parts)])[:, order]
        rate = float(mechanism.rate)
        reach = _LOG_LEFT_OUT / rate
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
        mechanism = self._evidence.mechanism
        apart = np.abs(releases - table[:, 0]).astype(np.float64)
        if mechanism.loss == "L1":
            losses = apart.sum(axis=1)
        else:
            losses = (apart**2).sum(axis=1)
            losses = np.sqrt(losses) if mechanism.loss == "L2" else losses
        logs = -float(mechanism.rate) * losses
        if not mechanism.constant_normalizer:
            logs = logs + mechanism.log_base(np.arange(len(table)), releases).sum(axis=1)
        chances: FloatArray = np.exp(logs - mechanism.log_normalizer(table))
        return chances

    def _project(self, releases: IntArray) -> IntArray:
        total = self._evidence.facts.total
        if total is None:
            return np.maximum(releases, 0)
        return projection.rounded(
            projection.project(releases[:, :, None], total=total), total=total
        )[:, :, 0]


def tested_model(evidence: Evidence) -> TestedModel:
    """Return the model, if it has one rate a place that can be set."""
    model = evidence.model
    if not isinstance(model, GammaPoisson | BetaBinomial | DirichletMultinomialShares):
        raise InputError(
            f"model: {type(model).__name__} has no single rate to test; use GammaPoisson, BetaBinomial "
            f"or DirichletMultinomialShares"
        )
    return model


def check_theta(model: TestedModel, theta: float) -> None:
    """Refuse what is no rate, or no share."""
    top = math.inf if isinstance(model, GammaPoisson) else 1.0
    if not 0 < theta < top:
        raise InputError(f"theta: {theta} is not allowed; it lies between 0 and {top:g}")


def _log_mean(model: TestedModel, place: int, theta: float) -> float:
    """Return log of the mean count at theta, from the ratio of the chances of 1 and 0."""
    logs = model.log_given(place, np.array([0, 1]), np.array([theta]))[0]
    return float(logs[1] - logs[0])
