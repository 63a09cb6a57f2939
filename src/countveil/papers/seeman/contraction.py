"""What projection does to small counts: different noisy tables end up with the same zeros and rates.

There are three effects of least squares, before rounding (003, section 4.3): cases below 1/2; deaths
below 1/2; cases of 1/2 or more that are within 1/2 of the deaths, as if every case had died.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from countveil.base.numerics import FloatArray
from countveil.errors import InputError


@dataclass(frozen=True, slots=True)
class EffectShares:
    """How often each effect occurs, as shares of tables and counties."""

    counties: int
    case_zeros: float
    death_zeros: float
    rates: float


@dataclass(frozen=True, slots=True, eq=False)
class Contractions:
    """How often each effect occurs in each county, as shares of tables."""

    case_zeros: FloatArray
    death_zeros: FloatArray
    rates: FloatArray

    def __post_init__(self) -> None:
        for shares in (self.case_zeros, self.death_zeros, self.rates):
            shares.setflags(write=False)

    def of(self, counties: Sequence[int] | None = None) -> EffectShares:
        """Return the means over the counties of some rows, or over all."""
        rows = np.arange(len(self.rates)) if counties is None else np.asarray(counties, np.int64)
        if not len(rows) or rows.min() < 0 or rows.max() >= len(self.rates):
            raise InputError(
                f"counties: {list(rows)} is not allowed; give one row or more, from 0 to "
                f"{len(self.rates) - 1}"
            )
        means = (float(x[rows].mean()) for x in (self.case_zeros, self.death_zeros, self.rates))
        return EffectShares(len(rows), *means)

    def by_size(self, sizes: ArrayLike, limits: Sequence[float]) -> dict[str, EffectShares]:
        """Return the means over size classes: below the first limit, up to the next, and so on.

        Sizes are populations, or any other public number of each county. Empty classes are left out.
        """
        classes = size_classes(sizes, limits)
        if sum(map(len, classes.values())) != len(self.rates):
            raise InputError(
                f"sizes: got {np.size(sizes)}; give one for each of {len(self.rates)} counties"
            )
        return {name: self.of(rows) for name, rows in classes.items()}


def contractions(projected: ArrayLike) -> Contractions:
    """Return how often each effect occurs in projected tables.

    True zeros count as well: a county without deaths has a death zero in every correct table.

    Parameters
    ----------
    projected
        Cases and deaths after projection and before rounding: (counties, 2) or (tables, counties, 2).

    Returns
    -------
    Contractions
        The share of tables with each effect, by county.

    Examples
    --------
    >>> contractions([[0.2, 0.0], [3.0, 2.8]]).rates
    array([0., 1.])
    """
    tables = np.asarray(projected, np.float64)
    if tables.ndim == 2:
        tables = tables[None]
    if tables.ndim != 3 or tables.shape[2] != 2 or 0 in tables.shape:
        raise InputError(
            f"projected: the shape is {np.shape(projected)}; give (counties, 2) for cases and deaths, "
            f"or many of them as (tables, counties, 2)"
        )
    cases, deaths = tables[..., 0], tables[..., 1]
    some = cases >= 0.5
    all_died = some & (np.abs(cases - deaths) < 0.5)
    return Contractions((~some).mean(axis=0), (deaths < 0.5).mean(axis=0), all_died.mean(axis=0))


def size_classes(sizes: ArrayLike, limits: Sequence[float]) -> dict[str, list[int]]:
    """Return the rows of each class of sizes by its name; a limit belongs to the class above it."""
    values = np.asarray(sizes, np.float64)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise InputError("sizes: give one finite number for each county")
    bounds = list(limits)
    if not bounds or any(a >= b for a, b in pairwise(bounds)):
        raise InputError(
            f"limits: {bounds} is not allowed; give one or more, each above the one before"
        )
    places = np.searchsorted(bounds, values, side="right")
    names = [
        f"below {bounds[0]:,.12g}",
        *(f"{a:,.12g} to {b:,.12g}" for a, b in pairwise(bounds)),
        f"{bounds[-1]:,.12g} or more",
    ]
    rows = {name: np.flatnonzero(places == place).tolist() for place, name in enumerate(names)}
    return {name: counties for name, counties in rows.items() if counties}
