"""Ranks of areas, with intervals that hold for all of them at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from countveil.errors import InputError
from countveil.infer.interval import checked
from countveil.infer.joint_variance import Estimated, covariance_of_areas, settled_variance
from countveil.infer.labelled_rows import cell_name, cell_number, labelled_rows
from countveil.infer.quotients import DRAWS, LEAST_DRAWS
from countveil.numerics import FloatArray, IntArray
from countveil.schema.attributes import listed

_MOST_COMPARED = 2**33  # differences drawn in one step
_DRAWS_AT_ONCE = 128  # so that the differences of one area stay in the processor's cache
_SAME = 1e-9  # values closer than this part of them differ by rounding alone


@dataclass(frozen=True, eq=False, slots=True)
class Ranking:
    """Areas ranked by a cell, rank 1 having most: a rank is 1 and the number of areas with more.

    `rank_lower` … `rank_upper` hold the true ranks of all areas at once, with the confidence asked for.
    `probability` is areas × ranks: how often an area has a rank when counts are drawn from the
    estimates' normal law. It describes one area at a time, and where areas are nearly equal it is
    surer than it should be: noise spreads estimates, and so the draws, further apart than the counts.
    An area whose cell is not determined may have any rank; its `rank` and probabilities are NaN, and
    those of the others are among the areas determined.
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
        """Return a row per area, first ranks first: value, standard_error, rank and its ends."""
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
    found: Estimated,
    *,
    cell: str | Sequence[str] | None = None,
    confidence: float | None = None,
    draws: int = DRAWS,
    seed: int = 1,
) -> Ranking:
    """Rank areas by one cell of the query, or by the only one it has.

    Whether area i has more than area j is tested for all i and j at once: (x_i - x_j) / s_ij against
    the largest that noise makes of any, by `draws` draws from the joint law; then again against the
    largest of what is left, until no more is found. With the confidence asked for nothing is found
    wrongly, and then every true rank is inside its interval: the stepwise method of Mogstad, Romano,
    Shaikh and Wilhelm (2024, Review of Economic Studies 91, 476-518).
    """
    level = found.confidence if confidence is None else checked(confidence)
    number = _cell(found, cell)
    value, error = found.value[:, number], found.standard_error[:, number]
    known = np.flatnonzero(np.isfinite(error))
    _refuse_draws(draws, len(known), level)
    drawn = _draw(
        value[known], covariance_of_areas(found, number)[np.ix_(known, known)], draws, seed
    )
    above = _told_apart(drawn, level)
    areas = len(value)
    rank = np.full(areas, np.nan)
    lower, upper = np.ones(areas, np.int64), np.full(areas, areas, np.int64)
    lower[known] += above.sum(axis=0)
    upper[known] -= above.sum(axis=1)
    rank[known] = _ranks(drawn.value[:, None])[:, 0]
    probability = np.full((areas, areas), np.nan)
    for area, ranks in zip(known, _ranks(drawn.value[:, None] + drawn.noise), strict=True):
        probability[area] = np.bincount(ranks - 1, minlength=areas) / draws
    name = cell_name(found.query, number) or found.query.name
    return Ranking(found.names, name, value, error, rank, lower, upper, probability, level)


class _Drawn(NamedTuple):
    """Values, areas × draws of their noise, and the standard errors of all differences."""

    value: FloatArray
    noise: FloatArray
    apart: FloatArray


def _cell(found: Estimated, cell: str | Sequence[str] | None) -> int:
    if cell is not None:
        return cell_number(found.query, cell)
    if found.query.cells > 1:
        shown = listed(" × ".join(labels) for labels in found.query.cell_labels())
        raise InputError(
            f"query {found.query.name!r}: has {found.query.cells} cells, and areas are ranked by one; "
            f"name it, cell=…; choose from {shown}"
        )
    return 0


def _refuse_draws(draws: int, areas: int, confidence: float) -> None:
    least = max(LEAST_DRAWS, math.ceil(10 / (1 - confidence)))
    if draws < least:
        raise InputError(
            f"draws: {draws} is not allowed; at this confidence take {least:,} or more"
        )
    if areas**2 * draws > _MOST_COMPARED:
        raise InputError(
            f"{areas:,} areas in {draws:,} draws are {areas**2 * draws:,} comparisons, and "
            f"{_MOST_COMPARED:,} is the limit; rank fewer areas, or with fewer draws"
        )


def _draw(value: FloatArray, covariance: FloatArray, draws: int, seed: int) -> _Drawn:
    """Draw the noise of all areas; areas that are known to be equal are drawn as one."""
    own = np.diag(covariance)
    sums = own[:, None] + own
    apart = np.sqrt(settled_variance(sums - 2 * covariance, sums))
    sizes = np.abs(value)
    close = np.abs(value[:, None] - value) <= _SAME * (sizes[:, None] + sizes)
    first = np.argmax((apart == 0) & close, axis=0)
    roots, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(roots, 0.0))
    noise = root @ np.random.default_rng(seed).standard_normal((len(value), draws))
    return _Drawn(value[first], noise[first], apart)


def _told_apart(drawn: _Drawn, confidence: float) -> NDArray[np.bool_]:
    """Return which areas have more than which, areas × areas, none wrongly with the confidence."""
    value, noise, apart = drawn
    more = value[:, None] - value
    above: NDArray[np.bool_] = (apart == 0) & (more > 0)  # without noise, and so certain
    left: NDArray[np.bool_] = apart > 0
    place = math.ceil((noise.shape[1] + 1) * confidence) - 1  # of the critical value among all
    while left.any():
        critical = np.partition(_largest(noise, apart, left), place)[place]
        found = left & (more > critical * apart)
        if not found.any():
            break
        above, left = above | found, left & ~found
    return above


def _largest(noise: FloatArray, apart: FloatArray, left: NDArray[np.bool_]) -> FloatArray:
    """Return the largest (x_i - x_j) / s_ij of noise alone in each draw, of all i and j left, or 0."""
    weight = np.divide(1.0, apart, out=np.zeros_like(apart), where=left)
    largest = np.zeros(noise.shape[1])
    for start in range(0, noise.shape[1], _DRAWS_AT_ONCE):
        some = np.ascontiguousarray(noise[:, start : start + _DRAWS_AT_ONCE])
        made, part = np.empty_like(some), largest[start : start + _DRAWS_AT_ONCE]
        for area in np.flatnonzero(left.any(axis=1)):
            np.subtract(some[area], some, out=made)
            np.multiply(made, weight[area, :, None], out=made)
            np.maximum(part, made.max(axis=0), out=part)
    return largest


def _ranks(values: FloatArray) -> IntArray:
    """Return 1 and how many have more, along the first axis."""
    order = np.argsort(-values, axis=0, kind="stable")
    ordered = np.take_along_axis(values, order, axis=0)
    places = np.arange(len(values))[:, None]
    fresh = np.ones(values.shape, bool)
    fresh[1:] = ordered[1:] != ordered[:-1]
    first = np.maximum.accumulate(np.where(fresh, places, 0), axis=0)
    ranks = np.empty(values.shape, np.int64)
    np.put_along_axis(ranks, order, first + 1, axis=0)
    return ranks
