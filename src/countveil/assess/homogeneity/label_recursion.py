"""Cells that might have been counted: the local risk, averaged over how n people get their labels.

A generating function has a factor for each label. Two states pass over the labels: no label kept so
far, and one. With B(m) = W(m)(1 - u(m)) and A(m) = W(m) u(m) for m > 0, none ← none * B and
one ← one * B + none * A; the coefficient of n, over that of ΠW, is the average. Nothing is subtracted,
so small risks keep their digits.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numba import njit

from countveil.assess.homogeneity.cell_risk import Keeping
from countveil.assess.homogeneity.label_splits import log_poisson
from countveil.base.numerics import Array, FloatArray, IntArray
from countveil.errors import InputError

_LARGEST = 100_000
_LOG_TINY = -690.0  # weights below exp of it, 1e-300, are left out
_LOG_SCALED = -300.0  # how far below the largest a coefficient may be in one pass


class LabelWeights(Protocol):
    """How n people get their labels: weights W(m) of each label, whose product has known coefficients.

    Multinomial shares and the Dirichlet prior are splits. The weights may be tilted by a constant to
    the power of m, which cancels, so that coefficients for n near `around` are of moderate size.
    """

    @property
    def labels(self) -> int:
        """How many labels there are, including those that no one has."""
        ...

    def log_weights(self, around: int, most: int) -> FloatArray:
        """Return log W(m) of each label that someone may have, m = 0 … most."""
        ...

    def log_coefficients(self, around: int, sizes: Array) -> FloatArray:
        """Return the log of the coefficient of each size in ΠW."""
        ...


def expected_risks(
    sizes: IntArray, shares: FloatArray, keep: Keeping, *, share: bool = False
) -> FloatArray:
    """Return the average over multinomial counts of each cell's size and shares: laws × cells.

    Shares are in falling order; `keep` has all counts from 0 on.
    """
    shown = keep.shown(share=share)
    risks = np.empty((len(shown), len(sizes)))
    absent = (shares == 0).sum(axis=1)
    for size in np.unique(sizes):
        here = np.flatnonzero(sizes == size)
        means, rows = np.unique(size * shares[here], return_inverse=True)
        log_w = log_poisson(np.arange(size + 1), means[:, None])
        first, last = _windows(log_w)
        one = _at_size(
            *(np.exp(log_w), first, last, rows.reshape(len(here), -1)),
            *(shares.shape[1] - absent[here], shown, keep.dropped),
        )
        risks[:, here] = one / np.exp(log_poisson(size, float(size)))
    risks *= keep.dropped[:, :1] ** absent
    return risks / sizes if share else risks


def risks_by_size(
    split: LabelWeights, most: int, keep: Keeping, *, share: bool = False
) -> FloatArray:
    """Return the average for every size from 0 to `most`: laws × sizes.

    Passes run from the largest size down; each covers the sizes whose coefficients fit in a double.
    """
    shown = keep.shown(share=share)
    risks = np.zeros((len(shown), most + 1))
    top = most
    while top > 0:
        top = _fill(risks, split, top, shown, keep.dropped)
    if share:
        risks[:, 1:] /= np.arange(1, most + 1)
    return risks


def _fill(
    risks: FloatArray, split: LabelWeights, top: int, shown: FloatArray, dropped: FloatArray
) -> int:
    """Fill in the sizes that a pass around `top` reaches; return the largest that remains."""
    log_w = split.log_weights(top, top)
    first, last = _windows(log_w)
    one = _up_to_size(np.exp(log_w), first, last, shown, dropped)
    log_total = split.log_coefficients(top, np.arange(top + 1))
    low = max(int(np.argmax(log_total > _LOG_SCALED)), 1)
    absent = split.labels - len(log_w)
    scaled = one[:, low:] / np.exp(log_total[low:])
    risks[:, low : top + 1] = scaled * dropped[:, :1] ** absent
    return low - 1


def refuse_large(size: int) -> int:
    """Return a cell's size; refuse one too large to sum over."""
    if size > _LARGEST:
        raise InputError(
            f"sizes: a cell has {size:,} people, and averages over what might have been "
            f"counted go up to {_LARGEST:,}; use the local risk, or more identifiers"
        )
    return size


def _windows(log_w: FloatArray) -> tuple[IntArray, IntArray]:
    """Return the first and the last weight of each row that is not negligible."""
    kept = log_w > _LOG_TINY
    last = kept.shape[1] - 1 - np.argmax(kept[:, ::-1], axis=1)
    return np.argmax(kept, axis=1), np.asarray(last)


@njit(cache=True, nogil=True)
def _at_size(
    weights: FloatArray,
    first: IntArray,
    last: IntArray,
    rows: IntArray,
    labels: IntArray,
    shown: FloatArray,
    dropped: FloatArray,
) -> FloatArray:
    """Return the coefficient of the largest size: laws × cells. Labels that no one has come last."""
    size = weights.shape[1] - 1
    coefficients = np.empty((len(shown), len(rows)))
    none, one = np.empty(size + 1), np.empty(size + 1)
    new_none, new_one = np.empty(size + 1), np.empty(size + 1)
    for law in range(len(shown)):
        for cell in range(len(rows)):
            low, high = 0, 0
            none[0], one[0] = 1.0, 0.0
            for k in range(labels[cell] - 1, 0, -1):
                row = rows[cell, k]
                low, high = _add_label(
                    *(none, one, new_none, new_one, low, high),
                    *(weights[row], first[row], last[row], shown[law], dropped[law]),
                )
            row, total = rows[cell, 0], 0.0
            for m in range(max(first[row], size - high), min(last[row], size - low) + 1):
                rest = size - m
                total += weights[row, m] * (
                    one[rest] * dropped[law, m] + none[rest] * shown[law, m]
                )
            coefficients[law, cell] = total
    return coefficients


@njit(cache=True, nogil=True)
def _up_to_size(
    weights: FloatArray,
    first: IntArray,
    last: IntArray,
    shown: FloatArray,
    dropped: FloatArray,
) -> FloatArray:
    """Return the coefficients of all sizes: laws × sizes."""
    size = weights.shape[1] - 1
    coefficients = np.zeros((len(shown), size + 1))
    none, one = np.empty(size + 1), np.empty(size + 1)
    new_none, new_one = np.empty(size + 1), np.empty(size + 1)
    for law in range(len(shown)):
        low, high = 0, 0
        none[0], one[0] = 1.0, 0.0
        for k in range(len(weights)):
            low, high = _add_label(
                *(none, one, new_none, new_one, low, high),
                *(weights[k], first[k], last[k], shown[law], dropped[law]),
            )
        coefficients[law, low : high + 1] = one[low : high + 1]
    return coefficients


@njit(cache=True, nogil=True)
def _add_label(
    none: FloatArray,
    one: FloatArray,
    new_none: FloatArray,
    new_one: FloatArray,
    low: int,
    high: int,
    weights: FloatArray,
    first: int,
    last: int,
    shown: FloatArray,
    dropped: FloatArray,
) -> tuple[int, int]:
    """Multiply by one label's factor; return where the coefficients begin and end."""
    size = len(none) - 1
    new_low, new_high = min(low + first, size), min(high + last, size)
    new_none[new_low : new_high + 1] = 0.0
    new_one[new_low : new_high + 1] = 0.0
    for m in range(first, last + 1):
        a, b = weights[m] * shown[m], weights[m] * dropped[m]
        # Slices, because indices that might be negative prevent vector instructions.
        stop = min(high, size - m) + 1
        to_none, to_one = new_none[low + m : stop + m], new_one[low + m : stop + m]
        from_none, from_one = none[low:stop], one[low:stop]
        for i in range(len(from_none)):
            to_none[i] += from_none[i] * b
            to_one[i] += from_one[i] * b + from_none[i] * a
    none[new_low : new_high + 1] = new_none[new_low : new_high + 1]
    one[new_low : new_high + 1] = new_one[new_low : new_high + 1]
    return new_low, new_high
