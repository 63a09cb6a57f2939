"""What the noise costs: how far the noisy marginals are from the exact ones (004, section 5.3).

Noise goes on every cell of the cross-classification of identifiers and sensitive attribute, occupied or
not: noise on the occupied ones alone would publish which they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from countveil.assess.homogeneity.averages import MEASURES, Measure, averages, prepare
from countveil.assess.homogeneity.families import Family, law_at
from countveil.assess.homogeneity.rounding import RoundedNoise, rounded
from countveil.assess.homogeneity.sizes import Sizes
from countveil.assess.homogeneity.splits import Dirichlet
from countveil.assess.homogeneity.table import Table
from countveil.errors import InputError
from countveil.mechanisms.law import Law
from countveil.numerics import Array, FloatArray, IntArray
from countveil.randomness import BitSource

_MOST_CELLS = 50_000_000
_AT_ONCE = 2_000_000


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Distances:
    """Internal: the total variation distance of each marginal in each draw: draws × `marginals`."""

    marginals: tuple[tuple[str, ...], ...]
    each: FloatArray

    def mean(self, ways: int) -> float:
        """Return the expected distance of a marginal of so many attributes."""
        return float(self._by_draw(ways).mean())

    def error(self, ways: int) -> float:
        """Return the standard error of that mean."""
        by_draw = self._by_draw(ways)
        return float(by_draw.std(ddof=1) / math.sqrt(len(by_draw)))

    def _by_draw(self, ways: int) -> FloatArray:
        chosen = [len(marginal) == ways for marginal in self.marginals]
        if not any(chosen):
            raise InputError(
                f"ways: no marginal of {ways} attributes was drawn; ask for those drawn"
            )
        return np.asarray(self.each[:, chosen].mean(axis=1))


def distances(
    table: Table,
    *,
    mechanism: Law,
    draws: int,
    rng: BitSource,
    ways: Sequence[int] | None = None,
) -> Distances:
    """Return ½ Σ |p - q| of each marginal's exact shares p and noisy shares q.

    Noisy counts are rounded, negative ones are taken for 0, and shares are of their sum. The cells are
    gone through in blocks; what is held is a block and the marginals.
    """
    if isinstance(draws, bool) or not isinstance(draws, int) or draws < 2:
        raise InputError(f"draws: {draws} is not allowed; at least 2 are needed")
    cross = _CrossClassification.of(table)
    chosen = tuple(_marginals(cross, ways))
    noise = rounded(mechanism)
    exact = [_shares(sums) for sums in cross.sums(chosen)]
    each = np.empty((draws, len(chosen)))
    for draw in range(draws):
        noisy = cross.sums(chosen, noise, rng)
        each[draw] = [np.abs(p - _shares(q)).sum() / 2 for p, q in zip(exact, noisy, strict=True)]
    names = tuple(tuple(cross.names[axis] for axis in axes) for axes in chosen)
    return Distances(names, each)


def frontier(
    table: Table,
    *,
    mechanism: Family,
    epsilons: Sequence[float],
    deltas: Sequence[float | None] = (None,),
    draws: int,
    rng: BitSource,
    measures: Sequence[str] = MEASURES,
    ways: Sequence[int] | None = None,
    prior: str | Dirichlet | Array = "moments",
    sizes: str | Sizes = "poisson",
) -> pa.Table:
    """Return risk and cost at each epsilon and delta: measures, and the expected distance by ways.

    Internal, as all measures are.
    """
    grid = [(float(epsilon), delta) for delta in deltas for epsilon in epsilons]
    if not grid:
        raise InputError("epsilons, deltas: none came; give at least one of each")
    laws = [law_at(mechanism, epsilon, delta) for epsilon, delta in grid]
    asked = [Measure(name, prior=prior, sizes=sizes) for name in measures]
    risks = averages([prepare(table, item) for item in asked], laws)
    columns: dict[str, object] = {
        "epsilon": [epsilon for epsilon, _ in grid],
        "delta": pa.array([delta for _, delta in grid], pa.float64()),
    }
    for number, name in enumerate(measures):
        columns[name], columns[f"{name}_weighted"] = risks[:, number, 0], risks[:, number, 1]
    drawn = [distances(table, mechanism=law, draws=draws, rng=rng, ways=ways) for law in laws]
    for number in sorted({len(marginal) for marginal in drawn[0].marginals}):
        columns[f"distance_{number}_way"] = [item.mean(number) for item in drawn]
        columns[f"distance_{number}_way_error"] = [item.error(number) for item in drawn]
    return pa.table(columns)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class _CrossClassification:
    """All combinations of identifiers and label, and the occupied ones with their counts, in order."""

    names: tuple[str, ...]
    shape: tuple[int, ...]
    occupied: IntArray
    counts: IntArray

    @classmethod
    def of(cls, table: Table) -> _CrossClassification:
        codes, shape = [], []
        for column, domain in zip(table.cells.columns, table.domains, strict=True):
            codes.append(pc.index_in(column, domain).to_numpy())
            shape.append(len(domain))
        if math.prod(shape) != table.possible:
            raise InputError(
                f"table: {table.possible:,} combinations are possible, and its identifiers have "
                f"{math.prod(shape):,}; give rows for the others, so that noise goes on them too"
            )
        shape.append(len(table.labels))
        if math.prod(shape) > _MOST_CELLS:
            raise InputError(
                f"table: its cross-classification has {math.prod(shape):,} cells, and noise goes on at "
                f"most {_MOST_CELLS:,}; take fewer identifiers, or group their values"
            )
        cell, label = np.nonzero(table.counts)
        place = np.ravel_multi_index([code[cell] for code in codes] + [label], shape)
        order = np.argsort(place)
        counts = table.counts[cell, label][order]
        return cls((*table.identifiers, table.sensitive), tuple(shape), place[order], counts)

    def sums(
        self,
        chosen: Sequence[tuple[int, ...]],
        noise: RoundedNoise | None = None,
        rng: BitSource | None = None,
    ) -> list[FloatArray]:
        """Return marginals by their axes, exact or with fresh noise on all cells."""
        sums = [np.zeros(math.prod(self.shape[axis] for axis in axes)) for axes in chosen]
        for start, values in self._blocks(noise, rng):
            codes = np.unravel_index(np.arange(start, start + len(values)), self.shape)
            for total, axes in zip(sums, chosen, strict=True):
                sizes = [self.shape[axis] for axis in axes]
                place = np.ravel_multi_index([codes[axis] for axis in axes], sizes)
                total += np.bincount(place, values, len(total))
        return sums

    def _blocks(
        self, noise: RoundedNoise | None, rng: BitSource | None
    ) -> Iterator[tuple[int, FloatArray]]:
        cells = math.prod(self.shape)
        for start in range(0, cells, _AT_ONCE):
            stop = min(start + _AT_ONCE, cells)
            here = slice(*np.searchsorted(self.occupied, (start, stop)))
            values = np.zeros(stop - start)
            values[self.occupied[here] - start] = self.counts[here]
            if noise is not None and rng is not None:
                values = np.maximum(values + noise.sample(stop - start, rng=rng), 0.0)
            yield start, values


def _marginals(
    cross: _CrossClassification, ways: Sequence[int] | None
) -> Iterator[tuple[int, ...]]:
    """Yield the axes of marginals, of up to three attributes if not said."""
    for number in range(1, min(3, len(cross.shape)) + 1) if ways is None else ways:
        if isinstance(number, bool) or not 1 <= number <= len(cross.shape):
            raise InputError(
                f"ways: {number} is not allowed; a marginal has from 1 to {len(cross.shape)} attributes"
            )
        yield from combinations(range(len(cross.shape)), number)


def _shares(sums: FloatArray) -> FloatArray:
    """Return shares of the sum; equal ones where the noise left nothing."""
    total = sums.sum()
    return sums / total if total > 0 else np.full(len(sums), 1 / len(sums))
