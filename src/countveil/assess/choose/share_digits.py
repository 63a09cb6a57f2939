"""Shares of a budget with few digits, which people can read and type."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial

import numpy as np

from countveil.base.numerics import FloatArray

_DENOMINATORS = (10, 20, 50, 100, 200, 500, 1_000)
_DIGITS = (1, 2, 3)  # significant ones, where shares differ too much for a common denominator
_LEAST = (1e-3, 1e-4, 1e-5)  # of a sum: what gets less gets nothing
_MOST_PLACES = 7


def short_shares(
    split: FloatArray,
    groups: Sequence[int],
    loss: Callable[[FloatArray], float],
    *,
    most: float = 0.005,
) -> list[tuple[Fraction, Fraction]]:
    """Return shares of at most three digits whose loss is within a limit.

    Multiples of 1/10, 1/20 … are tried first, then decimals with one, two and three significant digits;
    of those, the largest has as many as the others leave it.

    Parameters
    ----------
    split : array
        How much each item gets.
    groups : sequence of int
        The group of each item, from 0: a share is that of its group times that within the group.
    loss : callable
        The relative loss of another split with the same sum.
    most : float
        The loss to accept. If even three digits lose more, the ones that lose least are returned.

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
    ways = [partial(_rounded, denominator=number) for number in _DENOMINATORS]
    ways += [
        partial(_significant, digits=number, least=least) for least in _LEAST for number in _DIGITS
    ]
    for shares_of in ways:
        levels = shares_of(sums)
        within: list[Fraction] = [Fraction(0)] * len(split)
        for group in range(count):
            members = np.flatnonzero(numbers == group)
            own = split[members] if sums[group] > 0 else np.ones(len(members), float)
            for member, share in zip(members, shares_of(own), strict=True):
                within[member] = share
        yield [(levels[group], own) for group, own in zip(groups, within, strict=True)]


def _significant(values: FloatArray, digits: int, least: float) -> list[Fraction]:
    """Round shares to a number of significant digits; the largest is what the others leave."""
    parts = values / values.sum()
    shares = [
        Fraction(f"{part:.{digits - 1}e}") if part >= least else Fraction(0)
        for part in parts.tolist()
    ]
    largest = int(parts.argmax())
    shares[largest] += 1 - sum(shares)
    return shares


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
