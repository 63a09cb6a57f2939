"""Noise, then the nearest table that agrees with what is public: what everyone does, for comparison.

Cases of all counties sum to a public total, those of groups of counties to theirs, and cases >= deaths
>= 0. Least squares is exact, by sorting; then each count goes up or down to a whole number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from countveil.congenial.county_tables import PublicTotals, public_totals, stacked, true_counts
from countveil.congenial.loss_sensitivity import sensitivity
from countveil.congenial.wasserstein_mechanism import Wasserstein
from countveil.errors import InputError
from countveil.mechanisms.discrete_laplace import DiscreteLaplace
from countveil.numerics import Exact, FloatArray, IntArray, positive
from countveil.randomness import BitSource

Loss: TypeAlias = Literal["L1", "L2"]

# Fractions of a count closer than this are the same: what tells them apart is rounding of floats.
_SAME = 1e-9


def noise_then_project(
    counts: ArrayLike,
    *,
    epsilon: Exact,
    total: int | None = None,
    groups: Sequence[int] | None = None,
    totals: Sequence[int] | None = None,
    loss: Loss = "L1",
    rng: BitSource,
    replicates: int | None = None,
) -> IntArray:
    """Add noise to each count, project, and round; with `replicates`, that many times."""
    exact = true_counts(counts)
    public = public_totals(len(exact), total, groups, totals)
    for group, (rows, s) in enumerate(public):
        if s != exact[rows, 0].sum():
            raise InputError(
                f"{public.name(group)}: {s:,} came, and the cases sum to {exact[rows, 0].sum():,}; the "
                f"public total is that of the counts"
            )
    draws = 1 if replicates is None else replicates
    noisy = with_noise(counts, epsilon=epsilon, loss=loss, rng=rng, replicates=draws)
    whole = _round(_project(noisy.astype(np.float64), public), public)
    return whole.reshape(np.shape(counts)) if replicates is None else whole


def with_noise(
    counts: ArrayLike, *, epsilon: Exact, loss: Loss = "L1", rng: BitSource, replicates: int
) -> IntArray:
    """Return noisy tables (replicates, counties, columns), which may be negative and miss all totals.

    Noise k weighs exp(-epsilon |k|/sigma) in the norm of the loss; sigma is how far one person moves
    the table who is counted in another county, dead or alive: 2 in L1 and √2 in L2, with deaths 4 and
    2. So the guarantee is epsilon, projected or not. In L1 each count has discrete Laplace noise. For
    simulations: counts are confidential, and a release of them goes through the door.
    """
    if not rng.reproducible:
        raise InputError(
            f"rng: {rng!r} came; this is for simulations, with Seeded(7), and no release is made here"
        )
    if isinstance(replicates, bool) or not isinstance(replicates, int) or replicates < 1:
        raise InputError(f"replicates: {replicates!r} is not allowed; draw 1 table or more")
    exact = true_counts(counts)
    deaths = exact.shape[1] == 2
    shape = (replicates, *exact.shape)
    if loss == "L1":
        sigma = sensitivity("L1", fixed_total=True, deaths=deaths)
        noise = DiscreteLaplace(sigma / positive(epsilon, "epsilon"))
        return exact + noise.sample(math.prod(shape), rng=rng).reshape(shape)
    if loss != "L2":
        raise InputError(f'loss: {loss!r} is not known; choose "L1" or "L2"')
    # The weights have the same sum whatever the counts, so all of epsilon may go into the noise.
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
    """Return the table nearest in least squares of those with the total and cases >= deaths >= 0.

    With `groups`, the group of each county, from 0, every group has its own of the `totals`.
    """
    values, shape = stacked(noisy, "noisy")
    public = public_totals(values.shape[1], total, groups, totals)
    return _project(values, public).reshape(shape)


def rounded(
    projected: ArrayLike,
    *,
    total: int | None = None,
    groups: Sequence[int] | None = None,
    totals: Sequence[int] | None = None,
) -> IntArray:
    """Return each count up or down, nearest in L1 of the tables that keep what is public.

    Of counties that are as near, those that come first go up. After noise of whole numbers most are as
    near, for the projection takes the same from each.
    """
    values, shape = stacked(projected, "projected")
    public = public_totals(values.shape[1], total, groups, totals)
    gap = _gap(values, public)
    if gap > _SAME * max(1, *public.sums):
        raise InputError(
            f"projected: it misses the totals, or cases >= deaths >= 0, by {gap:.3g}; project it first"
        )
    return _round(values, public).reshape(shape)


def consistency_gap(
    table: ArrayLike,
    *,
    total: int | None = None,
    groups: Sequence[int] | None = None,
    totals: Sequence[int] | None = None,
) -> float:
    """Return by how much a table misses its totals, or cases >= deaths >= 0, at most."""
    values, _ = stacked(table, "table")
    return _gap(values, public_totals(values.shape[1], total, groups, totals))


def kkt_residual(
    projected: ArrayLike,
    noisy: ArrayLike,
    *,
    total: int | None = None,
    groups: Sequence[int] | None = None,
    totals: Sequence[int] | None = None,
) -> float:
    """Return by how much a projection misses the conditions that prove it nearest, at most.

    With lambda = c - a + mu and kappa = d - b + lambda for cases c of noisy a and deaths d of noisy b,
    the multipliers lambda of c >= d and kappa of d >= 0 are not negative, and 0 where the inequality is
    not tight. It also counts what `consistency_gap` does.
    """
    table, shape = stacked(projected, "projected")
    before, other = stacked(noisy, "noisy")
    if shape != other:
        raise InputError(
            f"projected: its shape is {shape}, that of noisy {other}; give a projection of that shape"
        )
    public = public_totals(table.shape[1], total, groups, totals)
    slack = -np.diff(table, axis=2, append=0.0)  # c - d and d
    partial = np.cumsum(table - before, axis=2)  # lambda - mu and kappa - mu
    worst = _gap(table, public)
    for rows, _ in public:
        own, room = (x[:, rows].reshape(len(table), -1) for x in (partial, slack))
        loosest = room.argmax(axis=1)[:, None]
        inside = -np.take_along_axis(own, loosest, 1)  # where a multiplier is 0, this is mu
        outside = -own.min(axis=1, keepdims=True)  # all are tight: the least mu that can do
        mu = np.where(np.take_along_axis(room, loosest, 1) > 0, inside, outside)
        multipliers = own + mu
        worst = max(worst, -multipliers.min(), np.minimum(multipliers, room).max())
    return float(worst)


def _gap(values: FloatArray, public: PublicTotals) -> float:
    missed = [np.abs(values[:, rows, 0].sum(axis=1) - s).max() for rows, s in public]
    below = np.diff(values, axis=2, append=0.0).max()  # d - c and -d
    return float(max(*missed, below, 0.0))


def _project(values: FloatArray, public: PublicTotals) -> FloatArray:
    """Project each group for itself.

    Less mu in the cases, a county's pair (a, b) has its nearest with c >= d >= 0 where c + d and c - d
    are a + b - mu and a - b - mu, all with 0 in place of what is negative, b too. So these ends of all
    counties are projected on a simplex of sum 2s, which finds mu.
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
    """Project each row on the numbers that are not negative and sum to s, by sorting."""
    down = -np.sort(-values, axis=1)
    gaps = down - down[:, :1]  # sums of gaps that stay above the cut are no larger than s
    cuts = (np.cumsum(gaps, axis=1) - s) / np.arange(1, values.shape[1] + 1)
    kept = np.maximum((gaps > cuts).sum(axis=1, keepdims=True), 1)
    cut = np.take_along_axis(cuts, kept - 1, 1)
    return np.maximum(values - down[:, :1] - cut, 0)


def _round(values: FloatArray, public: PublicTotals) -> IntArray:
    """Give the missing cases of each group to the counties where they cost least."""
    down = np.floor(values)
    parts = values - down
    # What a case more costs in L1, deaths being rounded as well as cases then allow.
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
