"""Exact draws from a symmetric integer law: its distribution function inverted bit by bit.

A draw is the smallest k with U < F(k), where U is uniform with infinitely many bits. Only the bits that
decide it are drawn: 16 look it up in a table, 64 more search the floors of 2**64 F(k), and in the rare
case that even those equal a boundary, integer enclosures of F at doubling precision decide. Given ideal
bits the law is exact, infinite support included: nothing is rounded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from countveil.base.numerics import IntArray
from countveil.base.randomness import BitSource

# weights(bits, tail_bits) -> (low, high, tail): low[k] <= 2**bits w(k) <= high[k] for k = 0 … K,
# and `tail` bounds 2**bits times the sum of w beyond K, which is below 2**-tail_bits.
Weights: TypeAlias = Callable[[int, int], tuple[list[int], list[int], int]]

_WORD = 64
_TABLE_BITS = 16
_UNDECIDED = np.iinfo(np.int64).min
_CHUNK = 1 << 16


@dataclass(frozen=True, eq=False, slots=True)
class Inversion:
    """The lookup table and the boundaries floor(2**64 F(k)) of one law."""

    weights: Weights
    lowest: int
    boundaries: NDArray[np.uint64]
    table: IntArray

    def sample(self, size: int, rng: BitSource) -> IntArray:
        """Draw `size` independent values."""
        words = rng.begin(size)
        out = np.empty(size, np.int64)
        for start in range(0, size, _CHUNK):
            part = out[start : start + _CHUNK]
            np.take(self.table, words[start : start + _CHUNK], out=part, mode="clip")
            open_ = np.flatnonzero(part == _UNDECIDED)
            if len(open_):
                part[open_] = self._search(words[start + open_], start + open_, rng)
        return out

    def _search(self, words: NDArray[np.uint16], which: IntArray, rng: BitSource) -> IntArray:
        fresh = rng.deepen(which, 0)
        kept = _WORD - _TABLE_BITS
        u = (words.astype(np.uint64) << np.uint64(kept)) | (fresh >> np.uint64(_TABLE_BITS))
        index = np.searchsorted(self.boundaries, u)
        out = self.lowest + index.astype(np.int64)
        for tie in np.flatnonzero(self.boundaries[index] == u):
            out[tie] = self._settle(int(u[tie]), which[tie : tie + 1], rng)
        return out

    def _settle(self, prefix: int, draw: IntArray, rng: BitSource) -> int:
        """Extend the bits of U until no boundary is among its possible values."""
        bits, depth = _WORD, 1
        while True:
            for _ in range(bits // _WORD):
                prefix = prefix << _WORD | int(rng.deepen(draw, depth)[0])
                depth += 1
            bits *= 2
            lowest, low, high = enclosed_distribution(self.weights, bits)
            index = bisect_left(low, prefix + 1)
            if 0 < index < len(low) and high[index - 1] <= prefix:
                return lowest + index


def invert(weights: Weights) -> Inversion:
    """Return the sampler of the symmetric integer law with these weights."""
    lowest, floors = _certain_floors(weights)
    boundaries = np.array(floors, np.uint64)
    cells = 1 << _TABLE_BITS
    cell_start = np.arange(cells, dtype=np.uint64) << np.uint64(_WORD - _TABLE_BITS)
    index = np.searchsorted(boundaries, cell_start)
    table = lowest + index.astype(np.int64)
    table[(boundaries >> np.uint64(_WORD - _TABLE_BITS)).astype(np.int64)] = _UNDECIDED
    boundaries.setflags(write=False)
    table.setflags(write=False)
    return Inversion(weights, lowest, boundaries, table)


def _certain_floors(weights: Weights) -> tuple[int, list[int]]:
    """Return floor(2**64 F(k)) for every k at which it changes, all of them certain."""
    guard = 128
    while True:
        lowest, low, high = enclosed_distribution(weights, _WORD, guard)
        if all(h - l == 1 for l, h in zip(low, high, strict=True)):
            break
        guard *= 2  # a boundary is within rounding distance of a multiple of 2**-64: add bits
    first = next(i for i, floor in enumerate(low) if floor > 0) - 1
    last = next(i for i, floor in enumerate(low) if floor == (1 << _WORD) - 1)
    return lowest + first, low[first : last + 1]


def enclosed_distribution(
    weights: Weights, bits: int, guard: int = 128
) -> tuple[int, list[int], list[int]]:
    """Return (lowest, low, high): low[i] <= 2**bits F(lowest + i) <= high[i], and low < high."""
    # The tail beyond the last weight must be as small as the rounding, or no guard is enough.
    low_w, high_w, tail = weights(bits + guard, bits + guard // 2)
    low_sum, high_sum = 0, tail
    low_tails, high_tails = [], []  # of sum over j >= k of w(j), from the far end inwards
    for low_k, high_k in zip(reversed(low_w), reversed(high_w), strict=True):
        low_sum += low_k
        high_sum += high_k
        low_tails.append(low_sum)
        high_tails.append(high_sum)
    low_all = 2 * low_sum - low_w[0]
    high_all = 2 * high_sum - high_w[0]
    # Left half: F(-k) = tail(k) / all. Right half by symmetry: F(k) = 1 - F(-k - 1).
    left_low = [(tail_low << bits) // high_all for tail_low in low_tails[:-1]]
    left_high = [(tail_high << bits) // low_all + 1 for tail_high in high_tails[:-1]]
    one = 1 << bits
    low = left_low + [one - h for h in reversed(left_high)]
    high = left_high + [one - l for l in reversed(left_low)]
    return -(len(low_w) - 1), low, high


def probabilities_at_most(weights: Weights, bits: int) -> tuple[int, list[int], int]:
    """Return (lowest, upper, beyond): bounds in 2**-bits of P(lowest), P(lowest + 1), …, and of more.

    What lies below the lowest counts to it.
    """
    lowest, low, high = enclosed_distribution(weights, bits)
    upper = [high[0], *(above - below for above, below in zip(high[1:], low, strict=False))]
    return lowest, upper, (1 << bits) - low[-1]
