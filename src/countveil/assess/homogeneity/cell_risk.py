"""One cell: how likely each noisy count is kept, and what the cell may show, exactly.

A noisy count is kept if it rounds to 1 or more, and dropped otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from countveil.assess.homogeneity.sensitive_table import Table
from countveil.base.numerics import Array, FloatArray, IntArray
from countveil.errors import InputError
from countveil.noise.law import Law


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Scenarios:
    """Internal: the probability of each scenario of 004, section 3.2: cells × 8.

    A homogeneous cell (1) shows its label alone, (2) another label alone, (3) several, (4) none; a
    heterogeneous one (5) several labels, (6) none, (7) one that no one has, (8) one that someone has.
    `misattributed` is the share of a cell's people to whom a single label is wrongly attributed: all of
    them in (2) and (7), those with another label in (8).
    """

    probabilities: FloatArray
    misattributed: FloatArray

    @property
    def wrong(self) -> FloatArray:
        """The probability that a cell shows a single label that no one in it has."""
        return self.probabilities[:, 1] + self.probabilities[:, 6]


def scenarios(table: Table, *, mechanism: Law) -> Scenarios:
    """Return the probability of everything each cell may show.

    The intruder knows the identifiers of their target. They see the rounded noisy counts of its cell.

    Parameters
    ----------
    table : Table
        The confidential table.
    mechanism : Law
        The noise of its counts.

    Returns
    -------
    Scenarios
        Internal: probabilities by cell and scenario.
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
    probabilities = np.zeros((len(table.counts), 8))
    same = table.homogeneous
    probabilities[same, :4] = np.column_stack([right, wrong, several, none])[same]
    probabilities[~same, 4:] = np.column_stack([several, none, wrong, right])[~same]
    return Scenarios(probabilities, wrong + right - shown)


@dataclass(frozen=True, eq=False, slots=True)
class Keeping:
    """u(n) = P(n + noise >= ½) and 1 - u(n), both with full precision: laws × `counts`, in order."""

    counts: IntArray
    kept: FloatArray
    dropped: FloatArray

    def columns(self, counts: Array) -> IntArray:
        """Return the column of each count."""
        return np.searchsorted(self.counts, counts)

    def shown(self, *, share: bool) -> FloatArray:
        """Return what a kept label contributes: u(n) if anyone has it, or n u(n) with `share`."""
        return self.kept * (self.counts if share else self.counts > 0)


def keeping(laws: Sequence[Law], counts: Array) -> Keeping:
    """Evaluate every law at every count, in rising order."""
    refuse_other_than_laws(laws)
    # An integer law has no mass between 1/2 - n and 1 - n, so this serves both kinds.
    at = 0.5 - np.asarray(counts, np.float64)
    kept, dropped = np.empty((len(laws), len(at))), np.empty((len(laws), len(at)))
    for number, law in enumerate(laws):
        kept[number], dropped[number] = law.survival(at), law.cdf(at)
    return Keeping(np.asarray(counts, np.int64), kept, dropped)


def local_risks(vectors: IntArray, keep: Keeping, *, share: bool = False) -> FloatArray:
    """Return Σ_k u(n_k) Π_{j≠k} (1 - u(n_j)) over the labels that occur: laws × cells.

    With `share`, each label counts n_k/n, (7) of 004.
    """
    one = one_shown(keep.shown(share=share), keep.dropped, keep.columns(vectors))
    return one / vectors.sum(axis=1) if share else one


def one_shown(shown: FloatArray, dropped: FloatArray, place: Array) -> FloatArray:
    """Return the probability that exactly one label is kept, weighted as `shown` says: laws × cells.

    `place` is the column of each label of each cell. Sums of products, nothing subtracted.
    """
    shape = (len(shown), len(place))
    none, one = np.ones(shape), np.zeros(shape)
    for column in place.T:
        v = dropped[:, column]
        one *= v
        one += none * shown[:, column]
        none *= v
    return one


def refuse_other_than_laws(laws: Sequence[object]) -> None:
    """Refuse anything that is not noise."""
    if not laws:
        raise InputError(
            "mechanisms: the list is empty; give at least one, such as Laplace(epsilon=1)"
        )
    for law in laws:
        if isinstance(law, type) or not isinstance(law, Law):
            raise InputError(
                f"mechanism: {law!r} is not noise; give a law, such as Laplace(epsilon=1), "
                f"Gaussian(sigma=2) or DiscreteLaplace(epsilon=1)"
            )
