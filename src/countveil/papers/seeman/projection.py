"""Noise, then the nearest table that agrees with public totals: the usual approach, for comparison.

Cases of all counties sum to a public total, those of groups of counties to theirs, and cases >= deaths
>= 0. Least squares is solved exactly, by sorting; then each count is rounded up or down.

A table is an array of cases, one per county, or of two columns, cases and deaths. Many tables are
stacked in front: (tables, counties, 2), or (tables, counties, 1) for cases alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from countveil.base.numerics import Exact, FloatArray, IntArray, positive
from countveil.base.randomness import BitSource
from countveil.congenial.mechanism.loss_sensitivity import sensitivity
from countveil.congenial.mechanism.wasserstein import Wasserstein
from countveil.errors import InfeasibleError, InputError
from countveil.noise.discrete_laplace import DiscreteLaplace

NoiseNorm: TypeAlias = Literal["L1", "L2"]

_MOST = 2**40  # beyond it floats cannot hold a count with some decimals

# Fractions of a count closer than this are equal; only float rounding separates them.
_SAME = 1e-9


def noise_then_project(
    counts: ArrayLike,
    *,
    epsilon: Exact,
    total: int | None = None,
    groups: Sequence[int] | None = None,
    totals: Sequence[int] | None = None,
    loss: NoiseNorm = "L1",
    rng: BitSource,
    replicates: int | None = None,
) -> IntArray:
    """Return counts with noise, projected and rounded.

    Parameters
    ----------
    counts
        The true counts: (counties,) for cases, or (counties, 2) for cases and deaths.
    epsilon
        The privacy loss of the noise.
    total
        The public total of all counties; or give `groups` and `totals`.
    groups, totals
        The group of each county, from 0, and the public total of each group.
    loss
        The norm of the noise, "L1" or "L2".
    rng
        A seeded source of random bits.
    replicates
        The number of tables to draw; None for one, without a leading axis.

    Returns
    -------
    array of int
        Tables that have the public totals and cases >= deaths >= 0.
    """
    exact = true_counts(counts)
    public = public_totals(len(exact), total, groups, totals)
    for group, (rows, s) in enumerate(public):
        if s != exact[rows, 0].sum():
            raise InputError(
                f"{public.name(group)}: {s:,} is not {exact[rows, 0].sum():,}, the sum of the cases; "
                f"the public total must be that sum"
            )
    draws = 1 if replicates is None else replicates
    noisy = with_noise(counts, epsilon=epsilon, loss=loss, rng=rng, replicates=draws)
    whole = _round(_project(noisy.astype(np.float64), public), public)
    return whole.reshape(np.shape(counts)) if replicates is None else whole


def with_noise(
    counts: ArrayLike, *, epsilon: Exact, loss: NoiseNorm = "L1", rng: BitSource, replicates: int
) -> IntArray:
    """Return noisy tables, which may be negative and miss all totals.

    Noise k has the weight exp(-epsilon |k|/sigma) in the norm of the loss. Here sigma is how far one
    person moves the table by being counted in another county, dead or alive: 2 in L1 and √2 in L2, or 4
    and 2 with deaths. So the guarantee is epsilon, projected or not. In L1 each count has discrete
    Laplace noise. This is for simulations: a release of confidential counts goes through the door.

    Parameters
    ----------
    counts, epsilon, loss, rng
        As for `noise_then_project`.
    replicates
        The number of tables to draw.

    Returns
    -------
    array of int
        The tables: (replicates, counties, columns).
    """
    if not rng.reproducible:
        raise InputError(
            f"rng: {rng!r} is not allowed; this is for simulations only, with Seeded(7)"
        )
    if isinstance(replicates, bool) or not isinstance(replicates, int) or replicates < 1:
        raise InputError(f"replicates: {replicates!r} is not allowed; give 1 or more")
    exact = true_counts(counts)
    deaths = exact.shape[1] == 2
    shape = (replicates, *exact.shape)
    if loss == "L1":
        sigma = sensitivity("L1", fixed_total=True, deaths=deaths)
        noise = DiscreteLaplace(sigma / positive(epsilon, "epsilon"))
        return exact + noise.sample(math.prod(shape), rng=rng).reshape(shape)
    if loss != "L2":
        raise InputError(f'loss: unknown loss {loss!r}; choose "L1" or "L2"')
    # The weights have the same sum for all counts, so all of epsilon may go into the noise.
    naive = Wasserstein(
        loss="L2",
        epsilon=epsilon,
        total=int(exact[:, 0].sum()),
        base="naive",
        deaths=deaths,
        halved=False,
    )
    prepared = naive.prepared(exact)
    return np.stack([prepared.sample(rng=rng).reshape(exact.shape) for _ in range(replicates)])


def project(
    noisy: ArrayLike,
    *,
    total: int | None = None,
    groups: Sequence[int] | None = None,
    totals: Sequence[int] | None = None,
) -> FloatArray:
    """Return the nearest table, in least squares, with the public totals and cases >= deaths >= 0.

    Parameters
    ----------
    noisy
        One noisy table, or many.
    total, groups, totals
        As for `noise_then_project`.

    Returns
    -------
    array of float
        The projected tables, in the shape of `noisy`.

    Examples
    --------
    >>> project([[6, 1], [-2, 0]], total=5)
    array([[5., 1.],
           [0., 0.]])
    """
    values, shape = stack_tables(noisy, "noisy")
    public = public_totals(values.shape[1], total, groups, totals)
    return _project(values, public).reshape(shape)


def rounded(
    projected: ArrayLike,
    *,
    total: int | None = None,
    groups: Sequence[int] | None = None,
    totals: Sequence[int] | None = None,
) -> IntArray:
    """Return projected tables rounded to whole numbers that keep the public totals.

    Each count is rounded up or down so that the result is nearest in L1. Among equally near counties
    the first ones are rounded up. Ties are common after whole-number noise, as the projection subtracts
    the same amount from each count.

    Parameters
    ----------
    projected
        One projected table, or many.
    total, groups, totals
        As for `noise_then_project`.

    Returns
    -------
    array of int
        The rounded tables, in the shape of `projected`.
    """
    values, shape = stack_tables(projected, "projected")
    public = public_totals(values.shape[1], total, groups, totals)
    gap = _gap(values, public)
    if gap > _SAME * max(1, *public.sums):
        raise InputError(
            f"projected: it is off the totals, or cases >= deaths >= 0, by {gap:.3g}; project it first"
        )
    return _round(values, public).reshape(shape)


def consistency_gap(
    table: ArrayLike,
    *,
    total: int | None = None,
    groups: Sequence[int] | None = None,
    totals: Sequence[int] | None = None,
) -> float:
    """Return the largest violation of the totals, or of cases >= deaths >= 0."""
    values, _ = stack_tables(table, "table")
    return _gap(values, public_totals(values.shape[1], total, groups, totals))


def kkt_residual(
    projected: ArrayLike,
    noisy: ArrayLike,
    *,
    total: int | None = None,
    groups: Sequence[int] | None = None,
    totals: Sequence[int] | None = None,
) -> float:
    """Return the largest violation of the conditions that prove a projection nearest.

    With lambda = c - a + mu and kappa = d - b + lambda for cases c of noisy a and deaths d of noisy b,
    the multipliers lambda of c >= d and kappa of d >= 0 are not negative, and are 0 where the
    inequality is not tight. The result includes that of `consistency_gap`.

    Parameters
    ----------
    projected, noisy
        Projected tables, and the noisy ones they came from.
    total, groups, totals
        As for `noise_then_project`.

    Returns
    -------
    float
        The residual, 0 for an exact projection.
    """
    table, shape = stack_tables(projected, "projected")
    before, other = stack_tables(noisy, "noisy")
    if shape != other:
        raise InputError(
            f"projected: the shape is {shape}, and that of noisy is {other}; they must be equal"
        )
    public = public_totals(table.shape[1], total, groups, totals)
    slack = -np.diff(table, axis=2, append=0.0)  # c - d and d
    partial = np.cumsum(table - before, axis=2)  # lambda - mu and kappa - mu
    worst = _gap(table, public)
    for rows, _ in public:
        own, room = (x[:, rows].reshape(len(table), -1) for x in (partial, slack))
        loosest = room.argmax(axis=1)[:, None]
        inside = -np.take_along_axis(own, loosest, 1)  # where a multiplier is 0, this is mu
        outside = -own.min(axis=1, keepdims=True)  # all are tight: the smallest possible mu
        mu = np.where(np.take_along_axis(room, loosest, 1) > 0, inside, outside)
        multipliers = own + mu
        worst = max(worst, -multipliers.min(), np.minimum(multipliers, room).max())
    return float(worst)


def _gap(values: FloatArray, public: PublicTotals) -> float:
    gaps = [np.abs(values[:, rows, 0].sum(axis=1) - s).max() for rows, s in public]
    below = np.diff(values, axis=2, append=0.0).max()  # d - c and -d
    return float(max(*gaps, below, 0.0))


def _project(values: FloatArray, public: PublicTotals) -> FloatArray:
    """Project each group by itself.

    After subtracting mu from the cases, the nearest pair to (a, b) with c >= d >= 0 has c + d = a + b -
    mu and c - d = a - b - mu, all clipped at 0, b too. So projecting these sums and differences of all
    counties on a simplex of sum 2s gives the solution.
    """
    out = np.empty_like(values)
    for rows, s in public:
        cases = values[:, rows, 0]
        if values.shape[2] == 1:
            out[:, rows, 0] = _simplex(cases, s)
            continue
        deaths = np.maximum(values[:, rows, 1], 0)
        ends = _simplex(np.concatenate((cases + deaths, cases - deaths), axis=1), 2 * s)
        upper, lower = np.split(ends, 2, axis=1)
        out[:, rows] = np.stack((upper + lower, upper - lower), axis=2) / 2
    return out


def _simplex(values: FloatArray, s: int) -> FloatArray:
    """Project each row on the non-negative numbers that sum to s, by sorting."""
    down = -np.sort(-values, axis=1)
    gaps = down - down[:, :1]  # sums of the gaps above the cut are at most s
    cuts = (np.cumsum(gaps, axis=1) - s) / np.arange(1, values.shape[1] + 1)
    positive_values = np.maximum((gaps > cuts).sum(axis=1, keepdims=True), 1)
    cut = np.take_along_axis(cuts, positive_values - 1, 1)
    return np.maximum(values - down[:, :1] - cut, 0)


def _round(values: FloatArray, public: PublicTotals) -> IntArray:
    """Round down, then give the missing cases of each group to the counties where they cost least."""
    down = np.floor(values)
    parts = values - down
    # The cost in L1 of one more case, with deaths rounded as well as the cases then allow.
    price = 1 - 2 * parts[..., 0]
    tight = down[..., 0] == down[..., -1]
    if values.shape[2] == 2:
        price -= np.where(tight, np.maximum(2 * parts[..., 1] - 1, 0), 0)
    price = np.round(price / _SAME)
    up = np.zeros(values.shape, bool)
    for rows, s in public:
        missing = s - down[:, rows, 0].sum(axis=1).astype(np.int64)
        order = np.argsort(price[:, rows], axis=1, kind="stable")
        rank = np.argsort(order, axis=1, kind="stable")
        up[:, rows, 0] = rank < missing[:, None]
    if values.shape[2] == 2:
        up[..., 1] = (parts[..., 1] > 0.5) & (up[..., 0] | ~tight)
    return down.astype(np.int64) + up


# Tables and public totals, checked once.


@dataclass(frozen=True, slots=True)
class PublicTotals:
    """The public sum of cases of each group of counties; without groups all counties are one."""

    rows: tuple[tuple[int, ...], ...]
    sums: tuple[int, ...]

    def __iter__(self) -> Iterator[tuple[list[int], int]]:
        """Yield the rows of each group, and its total."""
        return zip(map(list, self.rows), self.sums, strict=True)

    def name(self, group: int) -> str:
        """Return the name of a group's total in messages."""
        return _total_name(group, len(self.sums))


def public_totals(
    counties: int,
    total: int | None,
    groups: Sequence[int] | None,
    totals: Sequence[int] | None,
) -> PublicTotals:
    """Return one total of all counties, or one per group; `groups` is the group of each county."""
    if (total is None) == (totals is None) or (groups is None) != (totals is None):
        raise InputError("give exactly one of total=, or groups= with totals=")
    members = np.zeros(counties, np.int64) if groups is None else np.asarray(groups)
    if members.shape != (counties,) or members.dtype.kind not in "iu":
        raise InputError(
            f"groups: the shape is {members.shape}; give the number of the group, from 0, of each of "
            f"{counties} counties"
        )
    numbers = sorted(set(members.tolist()))
    if numbers != list(range(len(numbers))):
        raise InputError(f"groups: {numbers} are not consecutive; number them 0, 1, 2 …")
    sums = [total] if totals is None else list(totals)
    if len(sums) != len(numbers):
        raise InputError(f"totals: got {len(sums)} for {len(numbers)} groups; give one for each")
    rows = tuple(tuple(np.flatnonzero(members == group).tolist()) for group in numbers)
    checked = tuple(_whole(s, _total_name(group, len(sums))) for group, s in enumerate(sums))
    return PublicTotals(rows, checked)


class StackedTables(NamedTuple):
    """Tables as (tables, counties, columns), and the shape of the input."""

    values: FloatArray
    shape: tuple[int, ...]


def stack_tables(table: ArrayLike, name: str) -> StackedTables:
    """Return a table, or many, as (tables, counties, columns)."""
    try:
        values = np.asarray(table, np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"{name}: not an array of numbers; give cases, or cases and deaths"
        ) from None
    shape = values.shape
    if values.ndim == 1:
        values = values[None, :, None]
    elif values.ndim == 2:
        values = values[None]
    if values.ndim != 3 or values.shape[2] not in (1, 2) or 0 in values.shape:
        raise InputError(
            f"{name}: the shape is {shape}; give (counties,) for cases, (counties, 2) for cases and "
            f"deaths, or many of them as (tables, counties, 2)"
        )
    if not np.isfinite(values).all() or np.abs(values).max() > _MOST:
        raise InputError(f"{name}: give finite numbers of size at most {_MOST:,}")
    return StackedTables(values, shape)


def true_counts(counts: ArrayLike) -> IntArray:
    """Return counts as (counties, columns); refuse impossible counts of cases and deaths."""
    values, _ = stack_tables(counts, "counts")
    if len(values) != 1:
        raise InputError(f"counts: got {len(values):,} tables; give one")
    table: FloatArray = values[0]
    if (table != np.floor(table)).any():
        raise InputError("counts: some are not whole numbers; counts are numbers of people")
    if (table < 0).any():
        county, column = np.argwhere(table < 0)[0]
        raise InputError(
            f"counts: {table[county, column]:.0f} {('cases', 'deaths')[column]} in row {county}; "
            f"negative counts are corrections of earlier months: set them to 0, or correct those months"
        )
    if table.shape[1] == 2 and (table[:, 1] > table[:, 0]).any():
        county = int(np.argmax(table[:, 1] > table[:, 0]))
        raise InputError(
            f"counts: {table[county, 1]:.0f} deaths and {table[county, 0]:.0f} cases in row {county}; "
            f"deaths are at most the cases: count both in the same month, or lower the deaths"
        )
    whole: IntArray = table.astype(np.int64)
    return whole


def _whole(value: int | None, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InputError(f"{name}: {value!r} is not a whole number; a total is a number of people")
    if value < 0:
        raise InfeasibleError(f"{name}: {value:,} is negative, and counts cannot sum to it")
    if value > _MOST:
        raise InputError(
            f"{name}: {value:,} is too large; the largest supported total is {_MOST:,}"
        )
    return int(value)


def _total_name(group: int, groups: int) -> str:
    return "total" if groups == 1 else f"total of group {group}"
