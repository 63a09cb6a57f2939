"""What is known of the parameters after the release: means, variances, intervals, diagnostics."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from countveil.errors import InputError
from countveil.infer import diagnostics
from countveil.infer.mixture import Mixture
from countveil.numerics import FloatArray, IntArray

Method = Literal["exact", "rejection", "importance", "augmented"]


@dataclass(frozen=True, eq=False, slots=True)
class Posterior:
    """The law of every place's parameter given the release and the public facts.

    `exact`: the law itself, as a mixture of Gamma or Beta laws; no draws are held. Otherwise `draws`,
    (chains, draws, places), with `weights` of sum 1 for "importance". `effective_sample_size` is, of
    "importance", that of the weights; of "augmented", the smallest bulk size of all places.
    """

    method: Method
    parameter: str
    exact: bool
    mean: FloatArray
    variance: FloatArray
    counts: FloatArray  # the mean of the confidential counts
    mixtures: tuple[Mixture, ...] = ()
    draws: FloatArray | None = None
    weights: FloatArray | None = None
    acceptance: float | None = None
    effective_sample_size: float | None = None
    log_evidence: float | None = None
    points: FloatArray | None = None  # the chance of each value of the shared parameters
    tables: IntArray | None = None  # of "augmented": the counts drawn with the parameters

    def interval(self, confidence: float = 0.9) -> FloatArray:
        """Return the equal-tailed interval of each place: (places, 2)."""
        if not 0 < confidence < 1:
            raise InputError(f"confidence: {confidence} is not allowed; it lies between 0 and 1")
        ends = ((1 - confidence) / 2, (1 + confidence) / 2)
        return np.stack([self.quantile(end) for end in ends], axis=1)

    def quantile(self, probability: float) -> FloatArray:
        """Return the value of each place that its parameter is below with this probability."""
        if self.draws is None:
            return np.array([mixture.quantile(probability) for mixture in self.mixtures])
        draws = self.draws.reshape(-1, self.draws.shape[-1])
        if self.weights is None:
            return np.quantile(draws, probability, axis=0)
        found = []
        for column in draws.T:
            order = np.argsort(column)
            place = int(np.searchsorted(np.cumsum(self.weights[order]), probability))
            found.append(column[order[min(place, len(order) - 1)]])
        return np.array(found)

    def above(self, value: float) -> FloatArray:
        """Return the probability, of each place, that its parameter is above a value."""
        if self.draws is None:
            return np.array([1 - mixture.cdf(value) for mixture in self.mixtures])
        draws = self.draws.reshape(-1, self.draws.shape[-1])
        shares: FloatArray = np.average(draws > value, axis=0, weights=self.weights)
        return shares

    @property
    def r_hat(self) -> FloatArray:
        """The split, rank-normalised R-hat of each place; near 1 where chains agree."""
        return self._each(diagnostics.r_hat)

    @property
    def bulk_size(self) -> FloatArray:
        """How many independent draws the chains are worth, for the middle of each law."""
        return self._each(diagnostics.bulk_size)

    @property
    def tail_size(self) -> FloatArray:
        """The same for the 5 and 95 percent quantiles, whichever is less."""
        return self._each(diagnostics.tail_size)

    def with_size(self) -> Posterior:
        """Return the same with the smallest bulk size of all places as its effective sample size."""
        return replace(self, effective_sample_size=float(self.bulk_size.min()))

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return draws in the form that arviz.from_dict reads: (chain, draw, place)."""
        if self.draws is None:
            raise InputError('draws: an exact posterior has none; use method="augmented"')
        posterior: dict[str, Any] = {self.parameter: self.draws}
        if self.tables is not None:
            posterior["counts"] = self.tables
        stats: dict[str, Any] = {}
        if self.weights is not None:
            with np.errstate(divide="ignore"):
                stats["log_weight"] = np.log(self.weights).reshape(self.draws.shape[:2])
        return {"posterior": posterior, "sample_stats": stats}

    def _each(self, measure: Any) -> FloatArray:
        if self.method != "augmented" or self.draws is None:
            raise InputError(
                f'method: "{self.method}" runs no chains; these figures are of method="augmented"'
            )
        return np.array([measure(self.draws[:, :, place]) for place in range(self.draws.shape[2])])
