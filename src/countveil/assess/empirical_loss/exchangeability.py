"""Whether residuals of different groups have one law, as an empirical privacy loss assumes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import random_table

from countveil.errors import InputError
from countveil.numerics import Array, FloatArray

_BINS = 12


@dataclass(frozen=True, slots=True)
class Exchangeability:
    """A test of one law for all groups: its statistic, and how often chance gives a larger one."""

    statistic: float
    p_value: float
    groups: int
    tables: int


def exchangeability(
    residuals: Array, groups: Array, *, tables: int = 999, seed: int = 1
) -> Exchangeability:
    """Test whether the residuals of all groups (places, size classes, queries) have the same law.

    They are binned at common quantiles; the chi-square statistic of groups × bins is compared with
    those of random tables that have the same sums, which is what shuffling residuals between groups
    gives. A small p-value says that one loss for all of them means little.
    """
    values, labels = np.asarray(residuals), np.asarray(groups)
    if labels.dtype.kind == "O":
        labels = labels.astype(str)
    if values.ndim != 1 or values.shape != labels.shape:
        raise InputError("groups: give one group for each residual")
    if not len(values):
        raise InputError("residuals: none came; give some")
    if values.dtype.kind not in "iuf" or not np.isfinite(values).all():
        raise InputError("residuals: some are missing or infinite; drop those rows first")
    if tables < 19:
        raise InputError(f"tables: {tables} is not allowed; at least 19 are needed")
    names, group = np.unique(labels, return_inverse=True)
    edges = np.unique(np.quantile(values, np.linspace(0, 1, _BINS + 1)[1:-1]))
    bins, place = np.unique(np.searchsorted(edges, values, side="left"), return_inverse=True)
    if len(names) < 2 or len(bins) < 2:
        raise InputError(
            f"groups: {len(names)} with {len(bins)} different residuals came; two of each are needed"
        )
    seen = np.bincount(group * len(bins) + place, minlength=len(names) * len(bins))
    table = seen.reshape(len(names), len(bins))
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    drawn = random_table(rows, columns).rvs(tables, random_state=np.random.default_rng(seed))
    expected = np.outer(rows, columns) / rows.sum()
    statistic = float(_chi_square(table[None], expected)[0])
    larger = int((_chi_square(drawn, expected) >= statistic - 1e-9).sum())
    return Exchangeability(statistic, (larger + 1) / (tables + 1), len(names), tables)


def _chi_square(tables: Array, expected: FloatArray) -> FloatArray:
    return np.asarray(((tables - expected) ** 2 / expected).sum(axis=(1, 2)))
