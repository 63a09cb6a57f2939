"""The estimates of a query in the whole tree: kept above the lowest level, streamed at it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from countveil.base.numerics import FloatArray
from countveil.engines.workers import Job, Workers
from countveil.errors import InputError
from countveil.measure.measurements import Measured
from countveil.plan.workload import Query
from countveil.tree.covariances import times
from countveil.tree.messages import (
    DownwardPass,
    StoredEstimate,
    TreePasses,
    UnitRange,
    UnitRun,
    UpwardEstimate,
    UpwardPass,
    Values,
    downward,
)
from countveil.tree.observed_levels import Observed
from countveil.tree.query_errors import QueryErrors, refuse_many_covariances
from countveil.tree.row_store import StoredRows, allocate_rows
from countveil.tree.subspaces import QueryDecomposition
from countveil.tree.tree_shape import Tree

_MOST_KEPT = 2**31  # numbers kept for the levels above the lowest, in memory or in temporary files
_IN_MEMORY = 2**25  # of those, in memory
_THREADS = 2

T = TypeVar("T")


@dataclass(frozen=True, eq=False, slots=True)
class UpwardFit:
    """The way up for a query: what each unit above the lowest level and everything below it say.

    By level except the lowest, and by subspace: `kept` has the upward estimates of the units, `sums`
    those of their children added up.
    """

    passes: TreePasses
    kept: tuple[Sequence[StoredEstimate], ...]
    sums: tuple[Sequence[StoredEstimate], ...]

    @classmethod
    def of(
        cls,
        measurements: Measured,
        observed: Observed,
        tree: Tree,
        query: Query,
        workers: Workers | None = None,
    ) -> UpwardFit:
        """Go up the tree for a query, reading all measurements once."""
        decomposition = QueryDecomposition.of(observed, query)
        refuse_too_large(decomposition, tree)
        passes = TreePasses.of(measurements, observed, tree, decomposition)
        kept, sums = _up(passes, workers)
        return cls(passes, tuple(kept), tuple(sums))


@dataclass(frozen=True, eq=False, slots=True)
class Fit:
    """Estimates of a query at every level; for the lowest, only what is handed down to it.

    `upper` has the estimates of each level except the lowest, `handed` what each unit of the last of
    them hands to its children.
    """

    passes: TreePasses
    upper: tuple[Sequence[StoredRows], ...]
    handed: Sequence[StoredRows]
    workers: Workers | None = None

    @classmethod
    def of(
        cls,
        measurements: Measured,
        observed: Observed,
        tree: Tree,
        query: Query,
        workers: Workers | None = None,
    ) -> Fit:
        """Go up and down the tree for a query, reading all measurements once."""
        return cls.after(UpwardFit.of(measurements, observed, tree, query, workers), workers)

    @classmethod
    def after(cls, up: UpwardFit, workers: Workers | None = None) -> Fit:
        """Go down the tree after the way up, whose rows are overwritten."""
        upper, handed = _down(up.passes, up.kept, up.sums)
        return cls(up.passes, tuple(upper), handed, workers)

    @property
    def decomposition(self) -> QueryDecomposition:
        """The query, split into subspaces."""
        return self.passes.decomposition

    @property
    def tree(self) -> Tree:
        """The tree that it was estimated in."""
        return self.passes.tree

    def values(self, level: int, ranges: Sequence[UnitRange]) -> Iterator[Values]:
        """Yield the estimates of ranges of a level, in their order, by subspace."""
        if level < len(self.upper):
            return ([rows[start:stop] for rows in self.upper[level]] for start, stop in ranges)
        return _in_order(
            DownwardPass(self._upward(level), cells=False), self._lowest, ranges, self.workers
        )

    def cells(self, level: int, ranges: Sequence[UnitRange]) -> Iterator[FloatArray]:
        """Yield the query's cells in ranges of a level, in their order: units × cells."""
        if level == self.tree.depth - 1:
            return _in_order(
                DownwardPass(self._upward(level), cells=True), self._lowest, ranges, self.workers
            )

        def numbers(start: int, stop: int) -> FloatArray:
            values = [rows[start:stop] for rows in self.upper[level]]
            return self.decomposition.cells(values, stop - start)

        return _in_threads(numbers, ranges)

    def _upward(self, level: int) -> UpwardPass:
        return self.passes.upward(level, keep=True)

    def _lowest(self, start: int, stop: int) -> UnitRun:
        above = None
        if self.upper:
            above = list(zip(self.upper[-1], self.handed, strict=True))
        return self.passes.unit_run(self.tree.depth - 1, None, above, start, stop)

    @property
    def errors(self) -> QueryErrors:
        """What the shape of the tree says about the errors of the estimates."""
        return QueryErrors(self.tree, self.decomposition, self.passes.rungs)


def refuse_too_large(decomposition: QueryDecomposition, tree: Tree) -> None:
    """Refuse a query with more values above the lowest level than can be kept."""
    name, numbers = decomposition.query.name, _kept_numbers(decomposition, tree)
    if numbers > _MOST_KEPT:
        raise InputError(
            f"query {name!r}: {numbers:,} numbers would be kept for the {_inner_units(tree):,} units "
            f"above the lowest level, and {_MOST_KEPT:,} is the limit; ask for a query of fewer cells"
        )
    refuse_many_covariances(decomposition, tree)


# Both passes over all levels.


def _up(
    passes: TreePasses, workers: Workers | None
) -> tuple[list[list[StoredEstimate]], list[list[StoredEstimate]]]:
    """Return, for all levels except the lowest, upward estimates and the sums of the children's."""
    lowest = passes.tree.depth - 1
    kept: list[list[StoredEstimate]] = []
    sums: list[list[StoredEstimate]] = []
    for level in range(lowest, -1, -1):
        below = sums[0] if sums else None
        if level:
            sums.insert(0, _allocate_level(passes, level, passes.tree.units(level - 1)))
        if level < lowest:
            kept.insert(0, _allocate_level(passes, level, passes.tree.units(level)))
        ranges = passes.ranges(level)
        job = passes.upward(level, keep=level < lowest)
        task = partial(passes.unit_run, level, below, None)
        results = _in_order(job, task, ranges, workers)
        for (start, stop), (own, added) in zip(ranges, results, strict=True):
            if own is not None:
                _write(kept[0], slice(start, stop), own)
            if added is not None:
                parents = passes.tree.geography.parents[level]
                _write(sums[0], slice(int(parents[start]), int(parents[stop - 1]) + 1), added)
    return kept, sums


def _down(
    passes: TreePasses,
    kept: Sequence[Sequence[StoredEstimate]],
    sums: Sequence[Sequence[StoredEstimate]],
) -> tuple[list[list[StoredRows]], list[StoredRows]]:
    """Return the estimates of all levels except the lowest, and what the last of them hands down."""
    upper: list[list[StoredRows]] = []
    handed: list[StoredRows] = []
    for level, (own, below) in enumerate(zip(kept, sums, strict=True)):
        estimates, handing = [], []
        for number, (noisy, exact) in enumerate(own):
            above = (upper[-1][number], handed[number]) if upper else None
            rung, lower = passes.rungs[number][level : level + 2]
            size = len(rung.known)
            same = noisy.shape[1] == size  # then its rows can be overwritten
            estimate = noisy if same else _allocate(passes, len(noisy), size, noisy.shape[2])
            gaps = below[number].noisy
            for start, stop in passes.ranges(level):
                run = slice(start, stop)
                kind, upward = passes.tree.kind[level][run], UpwardEstimate(noisy[run], exact[run])
                message = None if above is None else passes.message(level, [above], start, stop)
                values = downward(rung, kind, upward, 0, message)
                estimate[run] = values
                gap = np.matmul(lower.noisy.T, values) - gaps[run]
                gaps[run] = times(rung.pull, kind, gap)
            estimates.append(estimate)
            handing.append(gaps)
        upper.append(estimates)
        handed = handing
    return upper, handed


def _write(to: Sequence[StoredEstimate], run: slice, of: Sequence[UpwardEstimate]) -> None:
    for whole, part in zip(to, of, strict=True):
        for target, source in zip(whole, part, strict=True):
            target[run] = source


def _allocate_level(passes: TreePasses, level: int, units: int) -> list[StoredEstimate]:
    """Return rows for the upward estimates of a level, or for sums of them, for `units` units."""
    return [
        StoredEstimate(
            _allocate(passes, units, rungs[level].noisy.shape[1], space.copies),
            _allocate(passes, units, rungs[level].known.shape[1], space.copies),
        )
        for rungs, space in zip(passes.rungs, passes.decomposition.subspaces, strict=True)
    ]


def _allocate(passes: TreePasses, *shape: int) -> StoredRows:
    in_memory = _kept_numbers(passes.decomposition, passes.tree) <= _IN_MEMORY
    return allocate_rows(*shape, in_memory=in_memory)


def _kept_numbers(decomposition: QueryDecomposition, tree: Tree) -> int:
    """Return how many numbers are kept for the levels above the lowest."""
    return 2 * decomposition.width * _inner_units(tree)


def _inner_units(tree: Tree) -> int:
    return sum(tree.units(level) for level in range(tree.depth - 1))


# Ranges of units, worked on by two threads in turn or by an engine's workers; results in order.


def _in_order(
    job: Job,
    task: Callable[[int, int], Any],
    ranges: Sequence[UnitRange],
    workers: Workers | None,
) -> Iterator[Any]:
    """Yield the job's result for the task of each range: by workers, or else by threads."""
    if workers is None:
        return _in_threads(lambda start, stop: job.run(task(start, stop)), ranges)
    return workers.map(job, (task(*run) for run in ranges), large=len(ranges) > 1)


def _in_threads(function: Callable[[int, int], T], ranges: Sequence[UnitRange]) -> Iterator[T]:
    """Yield a function of each range (start, stop), computing the next ones meanwhile.

    Arithmetic and file reading release Python's lock; more threads within one product cost more than
    they gain.
    """
    if len(ranges) == 1:
        with threadpool_limits(1):
            result = function(*ranges[0])
        yield result
        return
    waiting: deque[Future[T]] = deque()
    with threadpool_limits(1), ThreadPoolExecutor(_THREADS) as pool:
        for run in ranges:
            waiting.append(pool.submit(function, *run))
            if len(waiting) >= _THREADS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
