"""Which equations of a family are independent: exact, by integers modulo a prime."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from countveil.numerics import IntArray

# Products of two residues fit in 64 bits. Rows independent modulo a prime are independent; the converse
# fails only where the prime divides a minor of a 0-1 matrix, and then the certificate's sums show it.
_PRIME = 2**31 - 1


def independent_rows(sums: sp.csr_array, rows: sp.csr_array) -> NDArray[np.bool_]:
    """Return which of `rows` to keep, so that they and all of `sums` span what they span together.

    Parameters
    ----------
    sums : sparse 0-1 matrix
        Equations that are all kept: no two share a column, as with sums over children.
    rows : sparse 0-1 matrix
        Further equations over the same columns, in order of preference.

    Returns
    -------
    Boolean array, one entry per row of `rows`.

    """
    left = _without_sums(sums, rows)
    keep = np.zeros(left.shape[0], bool)
    basis = np.zeros(
        (0, left.shape[1]), np.int64
    )  # reduced: a pivot is 1, and 0 in every other row
    pivots: list[int] = []
    for number, rest in enumerate(left):
        factors = rest[pivots]
        for one in np.flatnonzero(factors):  # one at a time: sums of products would not fit
            rest = (rest - factors[one] * basis[one]) % _PRIME
        if not rest.any():
            continue
        column = int(np.argmax(rest != 0))
        rest = rest * pow(int(rest[column]), -1, _PRIME) % _PRIME
        others = np.flatnonzero(basis[:, column])
        basis[others] = (basis[others] - basis[others, column, None] * rest) % _PRIME
        basis = np.vstack([basis, rest])
        pivots.append(column)
        keep[number] = True
    return keep


def _without_sums(sums: sp.csr_array, rows: sp.csr_array) -> IntArray:
    """Return the rows, modulo the prime, after each sum has taken itself out at its first column.

    Columns that then look alike are merged: they cannot tell rows apart.
    """
    columns = np.asarray(rows.T.todense()).astype(np.int8)  # a line per column
    first = np.full(len(columns), -1)
    for start, stop in pairwise(sums.indptr.tolist()):
        inside = sums.indices[start:stop]
        first[inside] = inside.min(initial=len(columns))
    # Row r less r[first] times the sum: the sum's first column becomes 0, its others r[j] − r[first].
    summed = first >= 0
    columns[summed] -= columns[first[summed]]
    return np.unique(columns, axis=0).T.astype(np.int64) % _PRIME
