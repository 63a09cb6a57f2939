"""Measured values of a level, added up into the subspaces of a query: Σ w Qᵀ m, unit by unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from countveil.infer.contraction import contract, merged
from countveil.infer.observed_levels import Observation, Observed, factor_order
from countveil.infer.subspaces import Asked, places
from countveil.numerics import Array, FloatArray


@dataclass(frozen=True, eq=False, slots=True)
class Gatherer:
    """What turns the table of one observed query into its part of each subspace.

    The table's axes, as in `shape`, are brought into the order of the attributes and multiplied by one
    matrix each; target (subspace, where) lies at `where` of the product, which is of shape `widths`.
    """

    observation: Observation
    shape: tuple[int, ...]
    order: tuple[int, ...]
    matrices: list[FloatArray]
    widths: tuple[int, ...]
    targets: list[tuple[int, tuple[slice, ...]]]

    def add(self, values: Array, asked: Asked, sums: list[FloatArray | None]) -> None:
        """Add the values of some units to the sums of the subspaces."""
        units = len(values)
        table = values.reshape(units, *self.shape).transpose(0, *(n + 1 for n in self.order))
        product = contract(np.ascontiguousarray(table, dtype=float), self.matrices)
        product = product.reshape(units, *self.widths)
        for number, where in self.targets:
            part = asked.subspaces[number].fold(product[(slice(None), *where)])
            known = sums[number]
            sums[number] = part if known is None else np.add(known, part, out=known)


@dataclass(frozen=True, eq=False, slots=True)
class LevelGatherer:
    """All gatherers of a level: of what is measured with noise, and of what is exact."""

    asked: Asked
    noisy: tuple[Gatherer, ...]
    exact: tuple[Gatherer, ...]

    @classmethod
    def of(cls, observed: Observed, asked: Asked, level: str) -> LevelGatherer:
        """Return what gathers the values of a level."""
        found = observed.observations[level]
        noisy = [_gatherer(observed, asked, one) for one in found if one.weight is not None]
        exact = [_gatherer(observed, asked, one) for one in found if one.weight is None]
        return cls(asked, tuple(noisy), tuple(exact))

    @property
    def reads_measurements(self) -> bool:
        """Whether it needs the measured values of the level."""
        return any(one.observation.first is not None for one in (*self.noisy, *self.exact))

    def gather(
        self, values: Array | None, fixed: dict[str, Array], units: int
    ) -> tuple[list[FloatArray], list[FloatArray]]:
        """Return Σ w Qᵀ m of the noisy queries, and Σ scale Qᵀ m of the exact ones, by subspace.

        `values` has the measured queries of some units side by side, `fixed` invariants by name.
        """
        return (
            self._sums(self.noisy, values, fixed, units),
            self._sums(self.exact, values, fixed, units),
        )

    def _sums(
        self,
        gatherers: Sequence[Gatherer],
        values: Array | None,
        fixed: dict[str, Array],
        units: int,
    ) -> list[FloatArray]:
        sums: list[FloatArray | None] = [None] * len(self.asked.subspaces)
        for one in gatherers:
            query, first = one.observation.query, one.observation.first
            if first is None:
                table = fixed[query.name]
            else:
                assert values is not None
                table = values[:, first : first + query.cells]
            one.add(table, self.asked, sums)
        return [
            np.zeros((units, space.size, space.copies)) if part is None else part
            for space, part in zip(self.asked.subspaces, sums, strict=True)
        ]


def _gatherer(observed: Observed, asked: Asked, observation: Observation) -> Gatherer:
    query = observation.query
    attributes = factor_order(query, observed.schema)
    weight = observation.scale if observation.weight is None else observation.weight
    matrices, where, widths = [], [], []
    for axis, along, view in zip(observed.axes, asked.sides, observation.views, strict=True):
        kept = [number for number, side in enumerate(along) if side.part.blocks[view].any()]
        parts = [along[number].through(axis.views[view]) for number in kept]
        matrices.append(np.concatenate([np.zeros((axis.views[view].groups, 0)), *parts], axis=1))
        laid = places([along[number] for number in kept])
        where.append(dict(zip(kept, laid, strict=True)))
        widths.append(matrices[-1].shape[1])
    targets = []
    for number, space in enumerate(asked.subspaces):
        if space.sees(observation):
            pairs = zip(where, space.numbers, strict=True)
            targets.append((number, tuple(laid[side] for laid, side in pairs)))
    small = merged(matrices)
    if small:
        small[0] = weight * small[0]
    return Gatherer(
        observation,
        tuple(len(categories) for _, categories in query.labels),
        tuple(np.argsort(attributes).tolist()),
        small or [np.full((1, 1), weight)],
        tuple(widths),
        targets,
    )
