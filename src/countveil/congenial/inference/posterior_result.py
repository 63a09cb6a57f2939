"""What is known about the parameters after the release: means, variances, intervals, diagnostics."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from scipy import special

from countveil.base.numerics import FloatArray, IntArray
from countveil.congenial.inference.mixture import Mixture
from countveil.errors import InputError

PosteriorMethod: TypeAlias = Literal["exact", "rejection", "importance", "augmented"]


@dataclass(frozen=True, eq=False, slots=True)
class Posterior:
    """The law of every place's parameter, given the release and the public facts.

    Parameters
    ----------
    method
        How it was computed.
    parameter
        The name of the parameter.
    exact
        Whether it is the law itself, as `mixtures`; otherwise there are `draws`.
    mean, variance
        Of each place's parameter.
    counts
        The posterior mean of the confidential counts.
    mixtures
        The law of each place's parameter, if exact.
    draws
        Draws (chains, draws, places), unless exact.
    weights
        Of the draws of "importance"; they sum to 1.
    acceptance
        The share of proposals that were accepted.
    effective_sample_size
        For "importance", that of the weights; for "augmented", the smallest bulk size of all places.
    log_evidence
        The log-probability of the release, if exact.
    points
        The probability of each value of the shared parameters.
    tables
        For "augmented", the counts drawn with the parameters.
    """

    method: PosteriorMethod
    parameter: str
    exact: bool
    mean: FloatArray
    variance: FloatArray
    counts: FloatArray
    mixtures: tuple[Mixture, ...] = ()
    draws: FloatArray | None = None
    weights: FloatArray | None = None
    acceptance: float | None = None
    effective_sample_size: float | None = None
    log_evidence: float | None = None
    points: FloatArray | None = None
    tables: IntArray | None = None

    def interval(self, confidence: float = 0.9) -> FloatArray:
        """Return the equal-tailed interval of each place: (places, 2)."""
        if not 0 < confidence < 1:
            raise InputError(f"confidence: {confidence} is not allowed; it must be between 0 and 1")
        ends = ((1 - confidence) / 2, (1 + confidence) / 2)
        return np.stack([self.quantile(end) for end in ends], axis=1)

    def quantile(self, probability: float) -> FloatArray:
        """Return, for each place, the value that its parameter is below with this probability."""
        if self.draws is None:
            return np.array([mixture.quantile(probability) for mixture in self.mixtures])
        draws = self.draws.reshape(-1, self.draws.shape[-1])
        if self.weights is None:
            return np.quantile(draws, probability, axis=0)
        values = []
        for column in draws.T:
            order = np.argsort(column)
            rank = int(np.searchsorted(np.cumsum(self.weights[order]), probability))
            values.append(column[order[min(rank, len(order) - 1)]])
        return np.array(values)

    def above(self, value: float) -> FloatArray:
        """Return, for each place, the probability that its parameter is above a value."""
        if self.draws is None:
            return np.array([1 - mixture.cdf(value) for mixture in self.mixtures])
        draws = self.draws.reshape(-1, self.draws.shape[-1])
        shares: FloatArray = np.average(draws > value, axis=0, weights=self.weights)
        return shares

    @property
    def r_hat(self) -> FloatArray:
        """The split, rank-normalized R-hat of each place; near 1 where chains agree."""
        return self._each_place(r_hat)

    @property
    def bulk_size(self) -> FloatArray:
        """The number of independent draws the chains are worth, for the middle of each law."""
        return self._each_place(bulk_size)

    @property
    def tail_size(self) -> FloatArray:
        """The same for the 5 or the 95 percent quantile, whichever is smaller."""
        return self._each_place(tail_size)

    def with_size(self) -> Posterior:
        """Return a copy whose effective sample size is the smallest bulk size of all places."""
        return replace(self, effective_sample_size=float(self.bulk_size.min()))

    def to_dict(self) -> dict[str, dict[str, FloatArray | IntArray]]:
        """Return the draws in the form that arviz.from_dict reads: (chain, draw, place)."""
        if self.draws is None:
            raise InputError('draws: an exact posterior has none; use method="augmented"')
        posterior: dict[str, FloatArray | IntArray] = {self.parameter: self.draws}
        if self.tables is not None:
            posterior["counts"] = self.tables
        stats: dict[str, FloatArray | IntArray] = {}
        if self.weights is not None:
            with np.errstate(divide="ignore"):
                stats["log_weight"] = np.log(self.weights).reshape(self.draws.shape[:2])
        return {"posterior": posterior, "sample_stats": stats}

    def _each_place(self, measure: Callable[[FloatArray], float]) -> FloatArray:
        if self.method != "augmented" or self.draws is None:
            raise InputError(
                f'method: "{self.method}" runs no chains; only method="augmented" has these figures'
            )
        return np.array([measure(self.draws[:, :, place]) for place in range(self.draws.shape[2])])


# Whether chains have converged and what they are worth: rank-normalized split R-hat, bulk and tail
# sizes of Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), with the same results as ArviZ.


def r_hat(draws: FloatArray) -> float:
    """Return R-hat of draws (chains, draws): the larger of those of location and of spread."""
    halves = _split(draws)
    folded = np.abs(halves - np.median(halves))
    return max(_plain_r_hat(_rank_normalized(halves)), _plain_r_hat(_rank_normalized(folded)))


def bulk_size(draws: FloatArray) -> float:
    """Return the effective sample size of the ranks of draws (chains, draws)."""
    return effective_size(_rank_normalized(_split(draws)))


def tail_size(draws: FloatArray) -> float:
    """Return the smaller of the effective sizes for the 5 and the 95 percent quantile."""
    below = ((draws <= np.quantile(draws, p)).astype(np.float64) for p in (0.05, 0.95))
    return min(effective_size(_split(indicator)) for indicator in below)


def effective_size(chains: FloatArray) -> float:
    """Return the number of independent draws that chains are worth: Geyer's monotone sequence."""
    count, length = chains.shape
    if np.ptp(chains) == 0:
        return float(chains.size)
    covariances = np.array([_autocovariance(chain) for chain in chains])
    within = float(covariances[:, 0].mean()) * length / (length - 1)
    overall = within * (length - 1) / length
    if count > 1:
        overall += float(chains.mean(axis=1).var(ddof=1))
    correlation = 1 - (within - covariances.mean(axis=0)) / overall
    correlation[0] = 1.0
    # Sums of two neighbouring lags are positive and decrease. Keep them while they do.
    pairs = [1.0 + float(correlation[1])]
    lag, even = 2, 1.0
    while lag + 1 < length - 1 and pairs[-1] > 0:
        even = float(correlation[lag])
        pairs.append(even + float(correlation[lag + 1]))
        lag += 2
    last = pairs.pop()
    if not pairs:
        pairs = [max(last, 0.0)]
    sums = np.minimum.accumulate(np.array(pairs))
    # Of the pair after the last one kept, the even lag counts once.
    correlation_time = -1 + 2 * float(sums.sum()) + max(even, 0.0)
    return float(chains.size / max(correlation_time, 1 / math.log10(chains.size)))


def _split(draws: FloatArray) -> FloatArray:
    half = draws.shape[1] // 2
    return np.concatenate((draws[:, :half], draws[:, -half:]))


def _rank_normalized(chains: FloatArray) -> FloatArray:
    # Ties share the mean of their ranks, which start at 1.
    _, place, times = np.unique(chains, return_inverse=True, return_counts=True)
    ends = np.cumsum(times)
    ranks = (ends - (times - 1) / 2)[place].reshape(chains.shape)
    scores: FloatArray = special.ndtri((ranks - 0.375) / (chains.size + 0.25))
    return scores


def _plain_r_hat(chains: FloatArray) -> float:
    length = chains.shape[1]
    within = float(chains.var(axis=1, ddof=1).mean())
    between = float(chains.mean(axis=1).var(ddof=1))
    if within == 0:
        return 1.0 if between == 0 else float("inf")
    return float(np.sqrt((length - 1) / length + between / within))


def _autocovariance(chain: FloatArray) -> FloatArray:
    length = len(chain)
    size = 1 << (2 * length - 1).bit_length()
    transform = np.fft.rfft(chain - chain.mean(), size)
    covariances: FloatArray = np.fft.irfft(np.abs(transform) ** 2, size)[:length] / length
    return covariances
