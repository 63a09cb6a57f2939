"""The estimates of a query in the whole tree: kept above the lowest level, streamed at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from countveil.errors import InputError
from countveil.infer.filed_rows import Rows, room
from countveil.infer.observed_levels import Observed
from countveil.infer.subspaces import Asked
from countveil.infer.tree_passes import Passes
from countveil.infer.tree_recursion import covariances, times
from countveil.infer.tree_shape import Tree
from countveil.infer.tree_tasks import Down, Kept, Stretch, Up, Upward, Values, downward
from countveil.infer.working_ahead import Run, ahead, each
from countveil.measure.measurement import Measurements
from countveil.numerics import FloatArray
from countveil.schema.workload import Query
from countveil.workers import Workers

_NOTHING = 1e-9
_MOST_KEPT = 2**31  # numbers of the levels above the lowest, in memory or in temporary files
_IN_MEMORY = 2**25  # of those, if they need no file
_MOST_COVARIANCES = 2**27


@dataclass(frozen=True, eq=False, slots=True)
class Fit:
    """Estimates of a query at every level: of the lowest one only what is handed down to it.

    `upper` holds the estimates of each level but the lowest; `handed` what each unit of the last of
    them hands to its children.
    """

    passes: Passes
    upper: tuple[Sequence[Rows], ...]
    handed: Sequence[Rows]
    workers: Workers | None = None

    @classmethod
    def of(
        cls,
        measurements: Measurements,
        observed: Observed,
        tree: Tree,
        query: Query,
        workers: Workers | None = None,
    ) -> Fit:
        """Go up and down the tree for a query; all measurements are read once."""
        asked = Asked.of(observed, query)
        refuse_too_large(asked, tree)
        passes = Passes.of(measurements, observed, tree, asked)
        upper, handed = _down(passes, *_up(passes, workers))
        return cls(passes, tuple(upper), handed, workers)

    @property
    def asked(self) -> Asked:
        """The query, taken apart."""
        return self.passes.asked

    @property
    def tree(self) -> Tree:
        """The tree it was estimated in."""
        return self.passes.tree

    def parts(self, level: int, runs: Sequence[Run]) -> Iterator[Values]:
        """Yield the estimates of runs of a level, in their order."""
        if level < len(self.upper):
            return ([values[start:stop] for values in self.upper[level]] for start, stop in runs)
        return each(Down(self._up(level), cells=False), self._lowest, runs, self.workers)

    def cells(self, level: int, runs: Sequence[Run]) -> Iterator[FloatArray]:
        """Yield the query's cells in runs of a level, in their order: units × cells."""
        if level == self.tree.depth - 1:
            return each(Down(self._up(level), cells=True), self._lowest, runs, self.workers)

        def numbers(start: int, stop: int) -> FloatArray:
            held = [values[start:stop] for values in self.upper[level]]
            return self.asked.cells(held, stop - start)

        return ahead(numbers, runs)

    def _up(self, level: int) -> Up:
        return self.passes.up(level, keep=True)

    def _lowest(self, start: int, stop: int) -> Stretch:
        above = None
        if self.upper:
            above = list(zip(self.upper[-1], self.handed, strict=True))
        return self.passes.stretch(self.tree.depth - 1, None, above, start, stop)

    def covariances(self, level: int) -> list[FloatArray]:
        """Return, of each subspace, the covariance at each place of a level: places × size × size."""
        return [
            next(islice(covariances(self.tree, rungs), level, None)) for rungs in self.passes.rungs
        ]

    def determined(self, level: int) -> NDArray[np.bool_]:
        """Return which kinds of cells are determined by what is observed at a level and below."""
        return self._inside([rungs[level].undetermined for rungs in self.passes.rungs])

    def exact(self, level: int) -> NDArray[np.bool_]:
        """Return which kinds of cells are fixed by what is exact at a level and below."""
        return self._inside([rungs[level].inexact for rungs in self.passes.rungs])

    def _inside(self, outside: Sequence[Callable[[FloatArray], FloatArray]]) -> NDArray[np.bool_]:
        kind, grams = self.asked.kinds
        kinds = int(kind.max(initial=0)) + 1
        left, whole = np.zeros(kinds), np.zeros(kinds)
        for measure, gram in zip(outside, grams, strict=True):
            left += measure(gram)
            whole += np.einsum("kii->k", gram)
        return np.asarray(left <= _NOTHING * np.maximum(whole, 1.0))


def _up(passes: Passes, workers: Workers | None) -> tuple[list[Kept], list[Kept]]:
    """Return, of all levels but the lowest, estimates on the way up and the sums of children's."""
    lowest = passes.tree.depth - 1
    kept: list[Kept] = []
    sums: list[Kept] = []
    for level in range(lowest, -1, -1):
        below = sums[0] if sums else None
        if level:
            sums.insert(0, _rooms(passes, level, passes.tree.units(level - 1)))
        if level < lowest:
            kept.insert(0, _rooms(passes, level, passes.tree.units(level)))
        runs = passes.runs(level)
        job = passes.up(level, keep=level < lowest)
        task = partial(passes.stretch, level, below, None)
        for (start, stop), (own, added) in zip(runs, each(job, task, runs, workers), strict=True):
            if own is not None:
                _write(kept[0], slice(start, stop), own)
            if added is not None:
                parents = passes.tree.geography.parents[level]
                _write(sums[0], slice(int(parents[start]), int(parents[stop - 1]) + 1), added)
    return kept, sums


def _down(
    passes: Passes, kept: Sequence[Kept], sums: Sequence[Kept]
) -> tuple[list[list[Rows]], list[Rows]]:
    """Return the estimates of all levels but the lowest, and what the last of them hands down."""
    upper: list[list[Rows]] = []
    handed: list[Rows] = []
    for level, (own, below) in enumerate(zip(kept, sums, strict=True)):
        estimates, handing = [], []
        for number, (noisy, exact) in enumerate(own):
            above = (upper[-1][number], handed[number]) if upper else None
            rung, lower = passes.rungs[number][level : level + 2]
            size = len(rung.known)
            same = noisy.shape[1] == size  # then its room serves again
            estimate = noisy if same else _room(passes, len(noisy), size, noisy.shape[2])
            gaps = below[number][0]
            for start, stop in passes.runs(level):
                run = slice(start, stop)
                kind, both = passes.tree.kind[level][run], (noisy[run], exact[run])
                parents = None if above is None else passes.above(level, [above], start, stop)
                found = downward(rung, kind, both, 0, parents)
                estimate[run] = found
                gap = np.matmul(lower.noisy.T, found) - gaps[run]
                gaps[run] = times(rung.pull, kind, gap)
            estimates.append(estimate)
            handing.append(gaps)
        upper.append(estimates)
        handed = handing
    return upper, handed


def _write(to: Kept, run: slice, of: Upward) -> None:
    for whole, part in zip(to, of, strict=True):
        for target, source in zip(whole, part, strict=True):
            target[run] = source


def _rooms(passes: Passes, level: int, units: int) -> Kept:
    """Make room for estimates of a level on the way up, or sums of them, for so many units."""
    return [
        (
            _room(passes, units, rungs[level].noisy.shape[1], space.copies),
            _room(passes, units, rungs[level].known.shape[1], space.copies),
        )
        for rungs, space in zip(passes.rungs, passes.asked.subspaces, strict=True)
    ]


def _room(passes: Passes, *shape: int) -> Rows:
    return room(*shape, in_memory=_kept(passes.asked, passes.tree) <= _IN_MEMORY)


def _kept(asked: Asked, tree: Tree) -> int:
    """Return how many numbers are kept of the levels above the lowest."""
    return 2 * asked.width * _inner(tree)


def _inner(tree: Tree) -> int:
    return sum(tree.units(level) for level in range(tree.depth - 1))


def refuse_too_large(asked: Asked, tree: Tree) -> None:
    """Refuse a query whose values above the lowest level are more than can be held."""
    numbers = _kept(asked, tree)
    if numbers > _MOST_KEPT:
        raise InputError(
            f"query {asked.query.name!r}: {numbers:,} numbers would be kept for the {_inner(tree):,} "
            f"units above the lowest level, and {_MOST_KEPT:,} is the limit; ask for a query of fewer "
            f"cells"
        )
    squares = sum(space.size**2 for space in asked.subspaces)
    places = max(len(level) for level in tree.places)
    if places * squares > _MOST_COVARIANCES:
        raise InputError(
            f"query {asked.query.name!r}: {places * squares:,} covariances would be kept, and "
            f"{_MOST_COVARIANCES:,} is the limit; ask for a query of fewer attributes"
        )
