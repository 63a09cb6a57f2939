"""The different cells of a table: cells that differ in the order of labels alone have the same risk."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from countveil.assess.homogeneity.table import Table
from countveil.errors import InputError
from countveil.numerics import Array, FloatArray, IntArray

_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Distinct:
    """Different cells: counts and shares in falling order, and where each cell of the table is.

    `weights` are the shares of cells, and of people, that each stands for (Definition 11).
    """

    counts: IntArray
    sizes: IntArray
    shares: FloatArray
    place: IntArray
    weights: FloatArray


def distinct_cells(table: Table, shares: Array | None = None) -> Distinct:
    """Return the different cells; `shares` replaces the observed shares of labels, for all or each."""
    counts = -np.sort(-table.counts, axis=1)
    if shares is None:
        different, place = np.unique(counts, axis=0, return_inverse=True)
        sizes = different.sum(axis=1)
        plugged = different / sizes[:, None]
    else:
        given = -np.sort(-_checked(shares, table), axis=1)
        rows = np.column_stack([counts, given])
        found, place = np.unique(rows, axis=0, return_inverse=True)
        different, plugged = (
            found[:, : counts.shape[1]].astype(np.int64),
            found[:, counts.shape[1] :],
        )
        sizes = different.sum(axis=1)
    place = place.reshape(-1)
    cells = np.bincount(place)
    people = cells * sizes
    weights = np.column_stack([cells / cells.sum(), people / people.sum()])
    return Distinct(different, sizes, plugged, place, weights)


def _checked(shares: Array, table: Table) -> FloatArray:
    try:
        given = np.array(np.broadcast_to(np.asarray(shares, np.float64), table.counts.shape))
    except (TypeError, ValueError):
        given = np.full(table.counts.shape, np.nan)
    if not (given >= 0).all() or (np.abs(given.sum(axis=1) - 1) > _ROUNDING).any():
        raise InputError(
            f"shares: they are {len(table.labels)} numbers from 0 on with sum 1, for all cells or a "
            f"row for each; leave them out to take those observed"
        )
    return given
