"""The cost of the noise: how far noisy marginals are from the exact ones (004, section 5.3).

Noise is added to every cell of the cross-classification of identifiers and sensitive attribute,
occupied or not. Noise on the occupied cells alone would reveal which ones they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from countveil.assess.homogeneity.average_risk import MEASURES, Measure, averages, prepare
from countveil.assess.homogeneity.label_splits import Dirichlet
from countveil.assess.homogeneity.noise_families import NoiseFamily, law_at
from countveil.assess.homogeneity.sensitive_table import Table
from countveil.assess.homogeneity.sizes import Sizes
from countveil.base.numerics import Array, FloatArray, IntArray
from countveil.base.randomness import BitSource
from countveil.errors import InputError
from countveil.noise.law import Law
from countveil.papers.liu_zhao.rounded_noise import RoundedNoise, round_noise

_MOST_CELLS = 50_000_000
_AT_ONCE = 2_000_000


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Distances:
    """Internal: the total variation distance of each marginal in each draw.

    Parameters
    ----------
    marginals
        The attributes of each marginal.
    each
        The distances: draws × marginals.
    """

    marginals: tuple[tuple[str, ...], ...]
    each: FloatArray

    def mean(self, ways: int) -> float:
        """Return the expected distance of a marginal of `ways` attributes."""
        return float(self._by_draw(ways).mean())

    def error(self, ways: int) -> float:
        """Return the standard error of that mean."""
        by_draw = self._by_draw(ways)
        return float(by_draw.std(ddof=1) / math.sqrt(len(by_draw)))

    def _by_draw(self, ways: int) -> FloatArray:
        matching = [len(marginal) == ways for marginal in self.marginals]
        if not any(matching):
            raise InputError(f"ways: no marginal of {ways} attributes was drawn; draw them first")
        return np.asarray(self.each[:, matching].mean(axis=1))


def distances(
    table: Table,
    *,
    mechanism: Law,
    draws: int,
    rng: BitSource,
    ways: Sequence[int] | None = None,
) -> Distances:
    """Return ½ Σ |p - q| for the exact shares p and the noisy shares q of each marginal.

    Noisy counts are rounded and clipped at 0, and shares are of their sum. Cells are processed in
    blocks, so only a block and the marginals are in memory.

    Parameters
    ----------
    table
        The exact table of identifiers and a sensitive attribute.
    mechanism
        The law of the noise.
    draws
        The number of draws, 2 or more.
    rng
        The source of random bits.
    ways
        The numbers of attributes of the marginals; 1 to 3 if None.

    Returns
    -------
    Distances
        The distance of every marginal in every draw; internal, as it depends on exact counts.
    """
    if isinstance(draws, bool) or not isinstance(draws, int) or draws < 2:
        raise InputError(f"draws: {draws} is not allowed; give 2 or more")
    cross = _CrossClassification.of(table)
    marginals = tuple(_marginals(cross, ways))
    noise = round_noise(mechanism)
    exact = [_shares(sums) for sums in cross.sums(marginals)]
    each = np.empty((draws, len(marginals)))
    for draw in range(draws):
        noisy = cross.sums(marginals, noise, rng)
        each[draw] = [np.abs(p - _shares(q)).sum() / 2 for p, q in zip(exact, noisy, strict=True)]
    names = tuple(tuple(cross.names[axis] for axis in axes) for axes in marginals)
    return Distances(names, each)


def frontier(
    table: Table,
    *,
    mechanism: NoiseFamily,
    epsilons: Sequence[float],
    deltas: Sequence[float | None] = (None,),
    draws: int,
    rng: BitSource,
    measures: Sequence[str] = MEASURES,
    ways: Sequence[int] | None = None,
    prior: str | Dirichlet | Array = "moments",
    sizes: str | Sizes = "poisson",
) -> pa.Table:
    """Return risk and error at each epsilon and delta.

    Parameters
    ----------
    table
        The exact table of identifiers and a sensitive attribute.
    mechanism
        The family of the noise.
    epsilons, deltas
        The grid of budgets.
    draws, rng, ways
        As for `distances`.
    measures
        The homogeneity risks to compute.
    prior, sizes
        The priors of the measures that have one.

    Returns
    -------
    pyarrow.Table
        One row per budget: each measure, and the expected distance by number of attributes. Internal,
        as all measures are.
    """
    grid = [(float(epsilon), delta) for delta in deltas for epsilon in epsilons]
    if not grid:
        raise InputError("epsilons, deltas: give at least one of each")
    laws = [law_at(mechanism, epsilon, delta) for epsilon, delta in grid]
    requests = [Measure(name, prior=prior, sizes=sizes) for name in measures]
    risks = averages([prepare(table, request) for request in requests], laws)
    columns: dict[str, object] = {
        "epsilon": [epsilon for epsilon, _ in grid],
        "delta": pa.array([delta for _, delta in grid], pa.float64()),
    }
    for number, name in enumerate(measures):
        columns[name], columns[f"{name}_weighted"] = risks[:, number, 0], risks[:, number, 1]
    errors = [distances(table, mechanism=law, draws=draws, rng=rng, ways=ways) for law in laws]
    for number in sorted({len(marginal) for marginal in errors[0].marginals}):
        columns[f"distance_{number}_way"] = [item.mean(number) for item in errors]
        columns[f"distance_{number}_way_error"] = [item.error(number) for item in errors]
    return pa.table(columns)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class _CrossClassification:
    """All combinations of identifiers and label, and the counts of the occupied ones, in order."""

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
                f"table: {table.possible:,} combinations are possible, but its identifiers have "
                f"{math.prod(shape):,}; add rows for the others, so that they get noise too"
            )
        shape.append(len(table.labels))
        if math.prod(shape) > _MOST_CELLS:
            raise InputError(
                f"table: its cross-classification has {math.prod(shape):,} cells, more than the "
                f"{_MOST_CELLS:,} supported; use fewer identifiers, or group their values"
            )
        cell, label = np.nonzero(table.counts)
        place = np.ravel_multi_index([code[cell] for code in codes] + [label], shape)
        order = np.argsort(place)
        counts = table.counts[cell, label][order]
        return cls((*table.identifiers, table.sensitive), tuple(shape), place[order], counts)

    def sums(
        self,
        marginals: Sequence[tuple[int, ...]],
        noise: RoundedNoise | None = None,
        rng: BitSource | None = None,
    ) -> list[FloatArray]:
        """Return marginals by their axes, exact or with fresh noise on all cells."""
        sums = [np.zeros(math.prod(self.shape[axis] for axis in axes)) for axes in marginals]
        for start, values in self._blocks(noise, rng):
            codes = np.unravel_index(np.arange(start, start + len(values)), self.shape)
            for total, axes in zip(sums, marginals, strict=True):
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
    """Yield the axes of marginals, by default of up to three attributes."""
    for number in range(1, min(3, len(cross.shape)) + 1) if ways is None else ways:
        if isinstance(number, bool) or not 1 <= number <= len(cross.shape):
            raise InputError(
                f"ways: {number} is not allowed; a marginal has from 1 to {len(cross.shape)} attributes"
            )
        yield from combinations(range(len(cross.shape)), number)


def _shares(sums: FloatArray) -> FloatArray:
    """Return shares of the sum; equal shares if the noise left nothing."""
    total = sums.sum()
    return sums / total if total > 0 else np.full(len(sums), 1 / len(sums))
