"""Formulas of 004 instead of sums: (13) to (17) and (22) to (26) as printed, as corrected, and a bound.

All are P × (all n people have one label) + (1 - P) × (they have several), where P is 0 or 1 of a cell
as counted, and a probability of one that might have been. Of a cell with j labels,

H_j(n) = (1 - u0)^(K-j) [u(n-j+1) (1 - u1)^(j-1) + (j-1) u1 (1 - u1)^(j-2) (1 - u(n-j+1))]

is the exact risk if all but one label have one person. 004 takes j = 2 for any number of labels, which
is no upper bound from three labels on; H_j is one for Laplace and discrete Laplace noise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from countveil.assess.homogeneity.keeping import Keeping
from countveil.errors import InputError
from countveil.mechanisms.continuous import Laplace
from countveil.mechanisms.discrete_laplace import DiscreteLaplace
from countveil.mechanisms.law import Law
from countveil.numerics import Array, FloatArray


def one_label(keep: Keeping, sizes: Array, labels: int) -> FloatArray:
    """Return H_1(n) = (1 - u0)^(K-1) u(n): laws × sizes; 0 where nobody is."""
    return with_labels(keep, sizes, labels, 1)


def two_labels(keep: Keeping, sizes: Array, labels: int, *, printed: bool) -> FloatArray:
    """Return H_2(n), what 004 means by its second term; as printed, (1 - u0)^(K-1) too often."""
    found = with_labels(keep, sizes, labels, 2)
    return found * keep.dropped[:, :1] ** (labels - 1) if printed else found


def several_labels(keep: Keeping, sizes: Array, labels: int, most: int) -> FloatArray:
    """Return the largest of H_2(n) … H_most(n)."""
    found = np.zeros((len(keep.kept), len(sizes)))
    for number in range(2, most + 1):
        found = np.maximum(found, with_labels(keep, sizes, labels, number))
    return found


def with_labels(keep: Keeping, sizes: Array, labels: int, number: int) -> FloatArray:
    """Return H_number(n): laws × sizes; 0 where fewer people than labels are there.

    `keep` begins with the counts 0 and 1.
    """
    enough = np.asarray(sizes) >= number
    large = keep.columns(np.where(enough, np.asarray(sizes) - number + 1, 0))
    v0, u1, v1 = keep.dropped[:, :1], keep.kept[:, 1:2], keep.dropped[:, 1:2]
    found = keep.kept[:, large] * v1 ** (number - 1)
    if number > 1:
        found += (number - 1) * u1 * v1 ** (number - 2) * keep.dropped[:, large]
    return np.where(enough, v0 ** (labels - number) * found, 0.0)


def refuse_unproved(laws: Sequence[Law]) -> None:
    """Refuse noise for which H_j is not an upper bound."""
    for law in laws:
        if not isinstance(law, Laplace | DiscreteLaplace):
            raise InputError(
                f'method: "bound" came with {law!r}, and is valid for Laplace and DiscreteLaplace '
                f'noise only; use method="exact"'
            )
