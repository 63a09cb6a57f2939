"""Rows: bounds on sums over some children and some cells of a family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from countveil.base.numerics import FloatArray, IntArray
from countveil.errors import InputError


@dataclass(frozen=True, eq=False, slots=True)
class Row:
    """lower ≤ Σ of h[c, j] over `children` × `cells` ≤ upper.

    Parameters
    ----------
    children, cells : array of int
        The children and cells whose entries are added up.
    lower, upper : float
        The bounds; -inf or inf for none.
    what : str
        The name of the sum in messages.

    Examples
    --------
    >>> row = Row(np.array([0]), np.array([0, 1]), lower=2.0, upper=3.0)
    >>> row.gap(np.array([[1, 0], [5, 5]]))  # one person short
    1.0

    """

    children: IntArray
    cells: IntArray
    lower: float
    upper: float
    what: str = ""

    def __post_init__(self) -> None:
        if not (self.lower < np.inf and self.upper > -np.inf):  # written so that NaN fails
            raise InputError(
                f"a row is bounded by {self.lower} and {self.upper}; bounds must be numbers"
            )

    def sum_of(self, h: FloatArray | IntArray) -> float:
        """Return the row's sum, in more than double precision if the machine has it."""
        return float(h[np.ix_(self.children, self.cells)].sum(dtype=np.longdouble))

    def gap(self, h: FloatArray | IntArray) -> float:
        """Return how far the row's sum is outside its bounds."""
        total = self.sum_of(h)
        return max(self.lower - total, total - self.upper, 0.0)

    def within(self, kept: NDArray[np.bool_]) -> Row:
        """Return the row over the kept cells, renumbered from 0."""
        number = np.cumsum(kept) - 1
        cells = number[self.cells[kept[self.cells]]]
        return Row(self.children, cells, self.lower, self.upper, self.what)


def largest_gap(rows: Sequence[Row], h: FloatArray | IntArray) -> float:
    """Return how far the worst row is outside its bounds."""
    return max((row.gap(h) for row in rows), default=0.0)


def as_matrix(rows: Sequence[Row], children: int, cells: int) -> sp.csr_array:
    """Return the rows as a sparse 0-1 matrix over all entries, children by cells."""
    columns = [(row.children[:, None] * cells + row.cells).reshape(-1) for row in rows]
    lengths = [len(item) for item in columns]
    flat = np.concatenate([*columns, np.empty(0, np.int64)])
    pointers = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    return sp.csr_array((np.ones(len(flat)), flat, pointers), shape=(len(rows), children * cells))


def nested(rows: Sequence[Row]) -> bool:
    """Whether every row is about one child, and any two rows of a child are nested or disjoint."""
    by_child: dict[int, set[frozenset[int]]] = {}
    for row in rows:
        if len(row.children) != 1:
            return False
        by_child.setdefault(int(row.children[0]), set()).add(frozenset(row.cells.tolist()))
    # Most children have the same groups; each set of groups is compared once.
    return all(
        not (one & other) or one <= other or other <= one
        for groups in {frozenset(groups) for groups in by_child.values()}
        for one, other in combinations(groups, 2)
    )
