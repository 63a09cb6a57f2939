"""One cell as it was counted: what its noisy counts may show, exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from countveil.assess.homogeneity.keeping import Keeping, keeping
from countveil.assess.homogeneity.table import Table
from countveil.mechanisms.law import Law
from countveil.numerics import Array, FloatArray, IntArray


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Scenarios:
    """Internal: the probability of each scenario of 004, section 3.2: cells × 8.

    A homogeneous cell (1) shows its label alone, (2) another label alone, (3) several, (4) none; a
    heterogeneous one (5) several labels, (6) none, (7) one that nobody has, (8) one that somebody has.
    `misattributed` is the share of a cell's people that one label alone shows wrongly: all of them in
    (2) and (7), those with another label in (8).
    """

    probabilities: FloatArray
    misattributed: FloatArray

    @property
    def wrong(self) -> FloatArray:
        """The probability that a cell shows a single label that nobody in it has."""
        return self.probabilities[:, 1] + self.probabilities[:, 6]


def scenarios(table: Table, *, mechanism: Law) -> Scenarios:
    """Return what each cell may become, by scenario.

    He knows the identifiers of his target; he sees the noisy counts, rounded, of its cell.
    """
    keep = keeping([mechanism], np.unique(table.counts))
    place = keep.columns(table.counts)
    kept, dropped = keep.kept[0][place], keep.dropped[0][place]
    none = np.ones(len(table.counts))
    right, wrong, shown, several = (np.zeros(len(table.counts)) for _ in range(4))
    for k in range(len(table.labels)):
        u, v, count = kept[:, k], dropped[:, k], table.counts[:, k]
        several += (right + wrong) * u
        right, wrong = right * v + none * u * (count > 0), wrong * v + none * u * (count == 0)
        shown = shown * v + none * u * (count / table.sizes)
        none = none * v
    found = np.zeros((len(table.counts), 8))
    same = table.homogeneous
    found[same, :4] = np.column_stack([right, wrong, several, none])[same]
    found[~same, 4:] = np.column_stack([several, none, wrong, right])[~same]
    return Scenarios(found, wrong + right - shown)


def local_risks(vectors: IntArray, keep: Keeping, *, share: bool = False) -> FloatArray:
    """Return Σ_k u(n_k) Π_{j≠k} (1 - u(n_j)) over the labels that occur: laws × cells.

    With `share`, each label counts n_k/n, (7) of 004.
    """
    one = one_shown(keep.told(share=share), keep.dropped, keep.columns(vectors))
    return one / vectors.sum(axis=1) if share else one


def one_shown(told: FloatArray, dropped: FloatArray, place: Array) -> FloatArray:
    """Return the chance that exactly one label is kept, counted as `told`: laws × cells.

    `place` says in which column each label of each cell is found. Sums of products, nothing subtracted.
    """
    shape = (len(told), len(place))
    none, one = np.ones(shape), np.zeros(shape)
    for column in place.T:
        v = dropped[:, column]
        one *= v
        one += none * told[:, column]
        none *= v
    return one
