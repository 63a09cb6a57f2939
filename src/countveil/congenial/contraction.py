"""What projection does to small counts: different noisy tables end as the same zeros and rates.

Three effects of least squares, before rounding (003, section 4.3): cases end below 1/2; deaths end
below 1/2; cases of 1/2 or more end within 1/2 of the deaths, as if everyone who fell ill had died.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from countveil.errors import InputError
from countveil.numerics import FloatArray


@dataclass(frozen=True, slots=True)
class Shares:
    """How often each effect is seen, as shares of tables and counties."""

    counties: int
    case_zeros: float
    death_zeros: float
    rates: float


@dataclass(frozen=True, slots=True, eq=False)
class Contractions:
    """How often each effect is seen in each county, as shares of tables."""

    case_zeros: FloatArray
    death_zeros: FloatArray
    rates: FloatArray

    def __post_init__(self) -> None:
        for shares in (self.case_zeros, self.death_zeros, self.rates):
            shares.setflags(write=False)

    def of(self, counties: Sequence[int] | None = None) -> Shares:
        """Return the means over some counties, given by their rows, or over all."""
        rows = np.arange(len(self.rates)) if counties is None else np.asarray(counties, np.int64)
        if not len(rows) or rows.min() < 0 or rows.max() >= len(self.rates):
            raise InputError(
                f"counties: {list(rows)} came; give one row or more, from 0 to {len(self.rates) - 1}"
            )
        means = (float(x[rows].mean()) for x in (self.case_zeros, self.death_zeros, self.rates))
        return Shares(len(rows), *means)

    def by_size(self, sizes: ArrayLike, limits: Sequence[float]) -> dict[str, Shares]:
        """Return the means over classes of counties: below the first limit, up to the next, and so on.

        Sizes are populations, or any other public number of each county. Classes without a county are
        left out.
        """
        classes = size_classes(sizes, limits)
        if sum(map(len, classes.values())) != len(self.rates):
            raise InputError(
                f"sizes: {np.size(sizes)} came; give one for each of {len(self.rates)} counties"
            )
        return {name: self.of(rows) for name, rows in classes.items()}


def contractions(projected: ArrayLike) -> Contractions:
    """Count the effects in tables (tables, counties, 2) of cases and deaths, projected and not rounded.

    Zeros that are true count as well: a county without deaths has a death zero in every right table.
    """
    tables = np.asarray(projected, np.float64)
    if tables.ndim == 2:
        tables = tables[None]
    if tables.ndim != 3 or tables.shape[2] != 2 or 0 in tables.shape:
        raise InputError(
            f"projected: its shape is {np.shape(projected)}; give (counties, 2) for cases and deaths, "
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
        raise InputError(f"limits: {bounds} came; give one or more, each above the one before")
    places = np.searchsorted(bounds, values, side="right")
    names = [
        f"below {bounds[0]:,.12g}",
        *(f"{a:,.12g} to {b:,.12g}" for a, b in pairwise(bounds)),
        f"{bounds[-1]:,.12g} or more",
    ]
    rows = {name: np.flatnonzero(places == place).tolist() for place, name in enumerate(names)}
    return {name: found for name, found in rows.items() if found}
