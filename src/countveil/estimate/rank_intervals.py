"""Ranks of areas, with intervals that hold for all areas at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from countveil.base.intervals import checked
from countveil.base.numerics import FloatArray, IntArray
from countveil.errors import InputError
from countveil.estimate.contrasts import DRAWS, LEAST_DRAWS
from countveil.estimate.joint_variance import Estimated, covariance_of_areas, variance_difference
from countveil.estimate.result_tables import cell_name, cell_number, labelled_rows
from countveil.plan.attributes import choices

_MOST_COMPARED = 2**33  # differences drawn per step
_DRAWS_AT_ONCE = 128  # so that the differences of one area stay in the processor's cache
_SAME = 1e-9  # relative differences below this are only rounding


@dataclass(frozen=True, eq=False, slots=True)
class Ranking:
    """Areas ranked by one cell. An area's rank is one plus the number of areas with more people.

    An area whose cell is not determined may have any rank: its `rank` and probabilities are NaN, and
    those of the other areas are among the determined ones.

    Attributes
    ----------
    names : tuple of str
        The names of the areas.
    cell : str
        The cell they are ranked by.
    value, standard_error : array of areas
        The estimates of the cell.
    rank : array of areas
        The rank by estimated value.
    rank_lower, rank_upper : array of areas
        Intervals that contain the true ranks of all areas at once, with probability `confidence`.
    probability : array of areas × ranks
        How often an area has a rank when counts are drawn from the normal law of the estimates, one
        area at a time. Where areas are nearly equal it is too confident: noise spreads the estimates,
        and so the draws, further apart than the counts are.
    confidence : float
        The confidence of the intervals.

    """

    names: tuple[str, ...]
    cell: str
    value: FloatArray
    standard_error: FloatArray
    rank: FloatArray
    rank_lower: IntArray
    rank_upper: IntArray
    probability: FloatArray
    confidence: float

    def table(self) -> pa.Table:
        """Return a row per area, by rank: area, value, standard_error, rank, rank_lower, rank_upper."""
        columns = {
            "value": self.value,
            "standard_error": self.standard_error,
            "rank": pa.array(self.rank, from_pandas=True).cast(pa.int64()),
            "rank_lower": self.rank_lower,
            "rank_upper": self.rank_upper,
        }
        table = labelled_rows({"area": self.names}, None, columns)
        return table.take(pa.array(np.argsort(self.rank, kind="stable")))  # NaN comes last


def ranking(
    estimates: Estimated,
    *,
    cell: str | Sequence[str] | None = None,
    confidence: float | None = None,
    draws: int = DRAWS,
    seed: int = 1,
) -> Ranking:
    """Rank areas by one cell of a query, with intervals that hold for all areas at once.

    Whether area i has more than area j is tested for all i and j at once: (x_i - x_j) / s_ij is
    compared with the largest value that noise alone gives any pair, by simulation; then with the
    largest among the remaining pairs, until no more pairs differ. With probability `confidence` no pair
    is declared different wrongly, and then every true rank is inside its interval: the stepwise method
    of Mogstad, Romano, Shaikh and Wilhelm (2024, Review of Economic Studies 91, 476-518).

    Parameters
    ----------
    estimates : AreaEstimates or Rates
        Estimates of areas.
    cell : str or sequence of str, optional
        A category, or one per attribute; not needed if the query has only one cell.
    confidence : float, optional
        That of the estimates by default.
    draws, seed : int
        How many draws to take from the joint law, and the seed.

    Returns
    -------
    Ranking

    """
    level = estimates.confidence if confidence is None else checked(confidence)
    number = _cell(estimates, cell)
    value, error = estimates.value[:, number], estimates.standard_error[:, number]
    known = np.flatnonzero(np.isfinite(error))
    _refuse_draws(draws, len(known), level)
    drawn = _draw(
        value[known], covariance_of_areas(estimates, number)[np.ix_(known, known)], draws, seed
    )
    above = _significantly_above(drawn, level)
    areas = len(value)
    rank = np.full(areas, np.nan)
    lower, upper = np.ones(areas, np.int64), np.full(areas, areas, np.int64)
    lower[known] += above.sum(axis=0)
    upper[known] -= above.sum(axis=1)
    rank[known] = _ranks(drawn.value[:, None])[:, 0]
    probability = np.full((areas, areas), np.nan)
    for area, ranks in zip(known, _ranks(drawn.value[:, None] + drawn.noise), strict=True):
        probability[area] = np.bincount(ranks - 1, minlength=areas) / draws
    name = cell_name(estimates.query, number) or estimates.query.name
    return Ranking(estimates.names, name, value, error, rank, lower, upper, probability, level)


class _Drawn(NamedTuple):
    """Values, areas × draws of their noise, and the standard errors of all differences."""

    value: FloatArray
    noise: FloatArray
    apart: FloatArray


def _cell(estimates: Estimated, cell: str | Sequence[str] | None) -> int:
    if cell is not None:
        return cell_number(estimates.query, cell)
    if estimates.query.cells > 1:
        shown = choices(" × ".join(labels) for labels in estimates.query.cell_labels())
        raise InputError(
            f"query {estimates.query.name!r}: has {estimates.query.cells} cells; name the one to rank "
            f"by, cell=…; choose from {shown}"
        )
    return 0


def _refuse_draws(draws: int, areas: int, confidence: float) -> None:
    least = max(LEAST_DRAWS, math.ceil(10 / (1 - confidence)))
    if draws < least:
        raise InputError(f"draws: {draws} is too few; at this confidence use {least:,} or more")
    if areas**2 * draws > _MOST_COMPARED:
        raise InputError(
            f"{areas:,} areas in {draws:,} draws are {areas**2 * draws:,} comparisons, and "
            f"{_MOST_COMPARED:,} is the limit; rank fewer areas, or use fewer draws"
        )


def _draw(value: FloatArray, covariance: FloatArray, draws: int, seed: int) -> _Drawn:
    """Draw the noise of all areas; areas known to be equal share their draws."""
    own = np.diag(covariance)
    sums = own[:, None] + own
    apart = np.sqrt(variance_difference(sums - 2 * covariance, sums))
    sizes = np.abs(value)
    close = np.abs(value[:, None] - value) <= _SAME * (sizes[:, None] + sizes)
    first = np.argmax((apart == 0) & close, axis=0)
    roots, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(roots, 0.0))
    noise = root @ np.random.default_rng(seed).standard_normal((len(value), draws))
    return _Drawn(value[first], noise[first], apart)


def _significantly_above(drawn: _Drawn, confidence: float) -> NDArray[np.bool_]:
    """Return which areas have more than which others, areas × areas, by the stepwise test."""
    value, noise, apart = drawn
    more = value[:, None] - value
    above: NDArray[np.bool_] = (apart == 0) & (more > 0)  # certain, without noise
    left: NDArray[np.bool_] = apart > 0
    place = math.ceil((noise.shape[1] + 1) * confidence) - 1  # rank of the critical value
    while left.any():
        critical = np.partition(_largest(noise, apart, left), place)[place]
        newly = left & (more > critical * apart)
        if not newly.any():
            break
        above, left = above | newly, left & ~newly
    return above


def _largest(noise: FloatArray, apart: FloatArray, left: NDArray[np.bool_]) -> FloatArray:
    """Return the largest (x_i - x_j) / s_ij of noise alone in each draw, over all pairs left, or 0."""
    weight = np.divide(1.0, apart, out=np.zeros_like(apart), where=left)
    largest = np.zeros(noise.shape[1])
    for start in range(0, noise.shape[1], _DRAWS_AT_ONCE):
        some = np.ascontiguousarray(noise[:, start : start + _DRAWS_AT_ONCE])
        ratios, part = np.empty_like(some), largest[start : start + _DRAWS_AT_ONCE]
        for area in np.flatnonzero(left.any(axis=1)):
            np.subtract(some[area], some, out=ratios)
            np.multiply(ratios, weight[area, :, None], out=ratios)
            np.maximum(part, ratios.max(axis=0), out=part)
    return largest


def _ranks(values: FloatArray) -> IntArray:
    """Return one plus the number of larger values, along the first axis."""
    order = np.argsort(-values, axis=0, kind="stable")
    ordered = np.take_along_axis(values, order, axis=0)
    places = np.arange(len(values))[:, None]
    fresh = np.ones(values.shape, bool)
    fresh[1:] = ordered[1:] != ordered[:-1]
    first = np.maximum.accumulate(np.where(fresh, places, 0), axis=0)
    ranks = np.empty(values.shape, np.int64)
    np.put_along_axis(ranks, order, first + 1, axis=0)
    return ranks
