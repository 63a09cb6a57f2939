"""What the queries of a level and of the levels above reveal about one person, where counts are large.

The precision of all cells given all queries is Σ_q A_qᵀA_q / (2 sigma_q²), level by level. Attributes
without recodes are handled by symmetry: a query either keeps each of their N categories separate, which
is the identity, or adds them up, which is N times the projection on their mean. So the information
about the mean and about the deviations from it separate, attribute by attribute, and what remains are
small matrices, one for each set of attributes whose deviations it concerns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from countveil.assess.intruder.targets import Target, signatures
from countveil.base.numerics import FloatArray, IntArray
from countveil.errors import InputError
from countveil.noise.law import Mechanism
from countveil.plan.plans import Plan
from countveil.plan.workload import Query, Schema

_EXACT = 1e8  # the weight of a count published exactly, relative to the largest other one
_HELD = 1 << 22  # matrix entries in memory at a time


def rate(noise: Mechanism) -> float:
    """Return rho of one count with this noise: 1 / (2 sigma²)."""
    variance = noise.gaussian_variance
    if variance is None:
        raise InputError(
            f"effective rho needs discrete Gaussian noise, and this plan has {noise.name}; give "
            f"its budget in rho"
        )
    return 1 / (2 * variance)


def rho_with_levels_above(
    plan: Plan, level: str, target: Target, siblings: Mapping[str, int], invariants: bool
) -> float:
    """Return vᵀPv, P the precision of the target's unit, v the difference between the hypotheses."""
    sight = _seen(plan.schema, target)
    names = plan.levels[: plan.levels.index(level) + 1]
    views = {name: list(_views(plan, name, sight, invariants)) for name in names}
    return sum(
        float(np.sum(_precision(names, views, siblings, sight, about) * sight.contrast(about)))
        for about in sight.sets()
    )


@dataclass(frozen=True, eq=False, slots=True)
class _Seen:
    """A target's cells as queries see them: attributes without recodes, and classes of the rest.

    `free` are the axes of the former and `sizes` their numbers of categories. Cells of the other axes
    that neither recodes nor the target distinguish are interchangeable: they form one class, in
    coordinates of unit length. `places` has the classes of the target's cells, and `same` says along
    which free axes both have the same category.
    """

    shape: tuple[int, ...]
    free: tuple[int, ...]
    sizes: FloatArray
    names: tuple[str, ...]
    classes: IntArray
    lengths: FloatArray
    places: tuple[int, ...]
    same: NDArray[np.bool_]
    squares: dict[str, FloatArray]

    @classmethod
    def of(cls, schema: Schema, target: Target) -> _Seen:
        """Describe a target."""
        shape = schema.shape
        cells = [target.cell] + ([] if target.other is None else [target.other])
        marked = [np.unravel_index(cell, shape) for cell in cells]
        names = [attribute.name for attribute in schema.attributes]
        kinds = [signatures(schema, name) for name in names]
        free = tuple(axis for axis, seen in enumerate(kinds) if not any(seen))
        bound = [axis for axis in range(len(shape)) if axis not in free]
        labels = np.zeros([shape[axis] for axis in bound], np.int64)
        for number, axis in enumerate(bound):
            keys: dict[tuple[object, ...], int] = {}
            along = [
                keys.setdefault((*seen, *(int(where[axis]) == k for where in marked)), len(keys))
                for k, seen in enumerate(kinds[axis])
            ]
            turned = np.array(along).reshape([-1 if a == number else 1 for a in range(len(bound))])
            labels = labels * len(keys) + turned
        classes = np.unique(labels.reshape(-1), return_inverse=True)[1]
        inside = [
            int(np.ravel_multi_index([w[a] for a in bound], labels.shape)) if bound else 0
            for w in marked
        ]
        return cls(
            shape,
            free,
            np.array([shape[axis] for axis in free], float),
            tuple(names[axis] for axis in free),
            classes,
            np.sqrt(np.bincount(classes)),
            tuple(int(classes[cell]) for cell in inside),
            np.array([marked[0][axis] == marked[-1][axis] for axis in free], bool),
            {},
        )

    def square(self, query: Query) -> FloatArray:
        """Return AᵀA of a query, on the classes of the axes that are not free."""
        if query.name not in self.squares:
            self.squares[query.name] = self._square(query)
        return self.squares[query.name]

    def _square(self, query: Query) -> FloatArray:
        cells = np.zeros(1, np.int64)  # of the first category along free axes
        for axis in range(len(self.shape)):
            if axis not in self.free:
                stride = math.prod(self.shape[axis + 1 :])
                cells = np.add.outer(cells, stride * np.arange(self.shape[axis])).reshape(-1)
        cell = query.cells_at(cells)
        counted = cell >= 0
        at = (np.unique(cell[counted], return_inverse=True)[1], self.classes[counted])
        shares = 1 / self.lengths[self.classes[counted]]
        rows = sparse.csr_array((shares, at), shape=(len(cell), len(self.lengths)))
        square: FloatArray = (rows.T @ rows).toarray()
        return square

    def sets(self) -> Iterator[NDArray[np.bool_]]:
        """Yield all sets of free axes, a batch at a time: sets × axes."""
        most = max(1, _HELD // len(self.lengths) ** 2)
        for start in range(0, 1 << len(self.free), most):
            numbers = np.arange(start, min(start + most, 1 << len(self.free)))
            yield (numbers[:, None] >> np.arange(len(self.free))) & 1 == 1

    def contrast(self, about: NDArray[np.bool_]) -> FloatArray:
        """Return, for each set, Σ v vᵀ over deviations along its axes and means along the others."""
        means = 1 / self.sizes
        own = np.where(about, 1 - means, means).prod(axis=1)
        both = np.where(about, self.same - means, means).prod(axis=1)
        result = np.zeros((len(about), len(self.lengths), len(self.lengths)))
        for i, one in enumerate(self.places):
            for j, other in enumerate(self.places):
                result[:, one, other] += own if i == j else -both
        return result


# None of it depends on the budget, so it is computed once, however many plans are tried.
@lru_cache(maxsize=256)
def _seen(schema: Schema, target: Target) -> _Seen:
    return _Seen.of(schema, target)


@dataclass(frozen=True, eq=False, slots=True)
class _View:
    """One query of a level: its weight, which free axes it keeps, and AᵀA on the classes."""

    weight: float
    kept: NDArray[np.bool_]
    square: FloatArray


@lru_cache(maxsize=4)
def _weighed(plan: Plan) -> dict[str, list[tuple[Query, float]]]:
    """Return the queries of each level, with rho of one count."""
    return {
        level: [(item.query, rate(item.mechanism)) for item in plan.at(level)]
        for level in plan.levels
    }


def _views(plan: Plan, level: str, seen: _Seen, invariants: bool) -> Iterator[_View]:
    """Yield the queries of a level; what is published exactly gets an overwhelming weight."""
    weighed = _weighed(plan)
    queries = list(weighed[level])
    if invariants:
        largest = max((rho for items in weighed.values() for _, rho in items), default=1.0)
        queries += [(i.query, _EXACT * largest) for i in plan.invariants if i.level == level]
    for query, weight in queries:
        named = {name for name, _ in query.labels}
        kept = np.array([name in named for name in seen.names], bool)
        yield _View(weight, kept, seen.square(query))


def _precision(
    names: Sequence[str],
    views: Mapping[str, Sequence[_View]],
    siblings: Mapping[str, int],
    seen: _Seen,
    about: NDArray[np.bool_],
) -> FloatArray:
    """Return the precision of a unit of the last level, given all levels: one matrix for each set."""
    precision: FloatArray | None = None
    units = 1  # of the next level that is measured, under one unit of the last one that was
    for name in names:
        units *= 1 if precision is None else _count(siblings, name) + 1
        if not views[name]:
            continue  # not measured: its children count as those of the level above
        own = _own(views[name], seen, about)
        if precision is None:
            precision = own
        elif units == 1:
            precision = own + precision
        else:
            precision = own + _parallel(precision, own / (units - 1))
        units = 1
    assert precision is not None
    return precision


def _own(views: Sequence[_View], seen: _Seen, about: NDArray[np.bool_]) -> FloatArray:
    """Return Σ_q rho_q A_qᵀA_q of a level, one matrix for each set.

    Along an axis that a query adds up, it sees N times the mean and no deviation.
    """
    added = np.where(about, 0.0, seen.sizes)
    weights = [view.weight * np.where(view.kept, 1.0, added).prod(axis=1) for view in views]
    total: FloatArray = np.einsum("qs,qij->sij", weights, [view.square for view in views])
    return total


def _count(siblings: Mapping[str, int], level: str) -> int:
    if level not in siblings or siblings[level] < 0:
        raise InputError(
            f"siblings: got {siblings.get(level)} for level {level}; give how many siblings a "
            f"unit has there, 0 or more"
        )
    return siblings[level]


def _parallel(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return (a⁻¹ + b⁻¹)⁻¹, also for singular matrices: a (a + b)⁺ b."""
    both: FloatArray = a @ np.linalg.pinv(a + b, hermitian=True) @ b
    return (both + np.swapaxes(both, 1, 2)) / 2
