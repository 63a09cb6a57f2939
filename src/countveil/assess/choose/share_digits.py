"""Shares of a budget with few digits, which people can read and type."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import numpy as np

from countveil.base.numerics import FloatArray

_DENOMINATORS = (10, 20, 50, 100, 200, 500, 1_000, 10_000, 100_000)
_MOST_PLACES = 5


def short_shares(
    split: FloatArray,
    groups: Sequence[int],
    loss: Callable[[FloatArray], float],
    *,
    most: float = 0.005,
) -> list[tuple[Fraction, Fraction]]:
    """Return shares with few digits whose loss is within a limit.

    Parameters
    ----------
    split : array
        How much each item gets.
    groups : sequence of int
        The group of each item, from 0: a share is that of its group times that within the group.
    loss : callable
        The relative loss of another split with the same sum.
    most : float
        The loss to accept. If even five digits lose more, the ones that lose least are returned.

    Returns
    -------
    list of (Fraction, Fraction)
        For each item the share of its group and its share within the group. Each sums to 1.

    """
    best: tuple[float, list[tuple[Fraction, Fraction]]] | None = None
    for shares in _candidates(split, groups):
        whole = np.array([float(group * own) for group, own in shares]) * split.sum()
        lost = loss(whole)
        if lost <= most:
            return shares
        if best is None or lost < best[0]:
            best = lost, shares
    assert best is not None
    return best[1]


def _candidates(
    split: FloatArray, groups: Sequence[int]
) -> Iterator[list[tuple[Fraction, Fraction]]]:
    """Yield rounded shares, from few digits to many."""
    numbers = np.asarray(groups)
    count = int(numbers.max()) + 1
    sums = np.bincount(numbers, weights=split, minlength=count).astype(float)
    for denominator in _DENOMINATORS:
        levels = _rounded(sums, denominator)
        within: list[Fraction] = [Fraction(0)] * len(split)
        for group in range(count):
            members = np.flatnonzero(numbers == group)
            own = split[members] if sums[group] > 0 else np.ones(len(members), float)
            for member, share in zip(members, _rounded(own, denominator), strict=True):
                within[member] = share
        yield [(levels[group], own) for group, own in zip(groups, within, strict=True)]


def _rounded(values: FloatArray, denominator: int) -> list[Fraction]:
    """Round shares to multiples of 1/denominator with sum 1, by largest remainders."""
    exact = values / values.sum() * denominator
    low = np.floor(exact + 1e-9).astype(int)
    missing = denominator - int(low.sum())
    for number in np.argsort(low - exact, kind="stable")[:missing]:
        low[number] += 1
    return [Fraction(int(n), denominator) for n in low]


def decimals(value: Fraction) -> str:
    """Return a share as text: a decimal where that is exact, a fraction otherwise."""
    if value.denominator == 1:
        return str(value.numerator)
    for places in range(1, _MOST_PLACES + 1):
        if (value * 10**places).denominator == 1:
            return f"{float(value):.{places}f}"
    return str(value)
