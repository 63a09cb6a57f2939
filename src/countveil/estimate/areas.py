"""Areas made of any units, whether or not the tree has them as units: estimates and covariances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp

from countveil.base.intervals import normal_interval
from countveil.base.numerics import FloatArray, IntArray
from countveil.errors import InputError
from countveil.estimate.result_tables import estimate_table, final_values
from countveil.plan.attributes import choices
from countveil.plan.geography import Geography
from countveil.plan.workload import Query
from countveil.tree.covariances import Rung
from countveil.tree.messages import Values
from countveil.tree.subspaces import QueryDecomposition
from countveil.tree.tree_shape import LevelUnits, Tree, fewest_units
from countveil.tree.tree_values import Fit

_MOST_COVARIANCES = 2**27


@dataclass(frozen=True, slots=True)
class NoiseSource:
    """Whose noise estimates have: the release, and the seed if it is a simulation."""

    release: str
    seed: str | None = None


@dataclass(frozen=True, eq=False)
class AreaEstimates:
    """A query of several areas, with the covariance of all of them together.

    A cell that measurements do not determine has value NaN and an infinite standard error.

    Attributes
    ----------
    names : tuple of str
        The names of the areas.
    decomposition : QueryDecomposition
        The query, split into subspaces.
    value, standard_error : array of areas × cells
        The estimates and their standard errors.
    blocks : tuple of arrays
        The covariance in each subspace: areas × size × areas × size.
    confidence : float
        The confidence of the intervals.
    source : NoiseSource or None
        Whose noise the estimates have; None if unknown.

    """

    names: tuple[str, ...]
    decomposition: QueryDecomposition = field(repr=False)
    value: FloatArray
    standard_error: FloatArray
    blocks: tuple[FloatArray, ...] = field(repr=False)
    confidence: float
    source: NoiseSource | None = None

    @property
    def query(self) -> Query:
        """The query that was estimated."""
        return self.decomposition.query

    def __getitem__(self, name: str) -> AreaEstimate:
        """Return the estimates of one area."""
        if name not in self.names:
            raise InputError(f"unknown area {name!r}; choose from {choices(self.names)}")
        return AreaEstimate(self, self.names.index(name))

    @cached_property
    def covariance(self) -> FloatArray:
        """The covariance of all estimates: areas × cells × areas × cells."""
        return self.between(slice(None))

    @property
    def lower(self) -> FloatArray:
        """The lower ends of the intervals, areas × cells."""
        return normal_interval(self.value, self.standard_error, self.confidence)[0]

    @property
    def upper(self) -> FloatArray:
        """The upper ends of the intervals, areas × cells."""
        return normal_interval(self.value, self.standard_error, self.confidence)[1]

    def table(self) -> pa.Table:
        """Return a row per area and cell: area, categories, value, standard_error, lower, upper."""
        return estimate_table(
            "area", self.names, self.query, self.value, self.standard_error, self.confidence
        )

    def between(self, some: slice) -> FloatArray:
        """Return the covariance of some of the areas: areas × cells × areas × cells."""
        error = self.standard_error[some]
        areas, cells = error.shape
        if (areas * cells) ** 2 > _MOST_COVARIANCES:
            raise InputError(
                f"{areas:,} areas of {cells:,} cells have {(areas * cells) ** 2:,} covariances, and "
                f"{_MOST_COVARIANCES:,} is the limit; ask for fewer areas or a query of fewer cells"
            )
        result = np.zeros((areas, cells, areas, cells))
        for space, block in zip(self.decomposition.subspaces, self.blocks, strict=True):
            rows = self.decomposition.rows(space)
            for one in range(space.size):
                for other in range(space.size):
                    cross = rows[:, one] @ rows[:, other].T
                    part = block[some, one, some, other]
                    result += part[:, None, :, None] * cross[None, :, None, :]
        _mark_special_cells(result, error)
        return result


@dataclass(frozen=True, eq=False)
class AreaEstimate:
    """A query of one area, cell by cell, with the covariance of its cells."""

    areas: AreaEstimates
    number: int

    @property
    def name(self) -> str:
        """The name of the area."""
        return self.areas.names[self.number]

    @property
    def query(self) -> Query:
        """The query that was estimated."""
        return self.areas.query

    @property
    def value(self) -> FloatArray:
        """The estimate of each cell; NaN if it is not determined."""
        return np.asarray(self.areas.value[self.number])

    @property
    def standard_error(self) -> FloatArray:
        """The standard error of each cell; infinite if it is not determined."""
        return np.asarray(self.areas.standard_error[self.number])

    @property
    def lower(self) -> FloatArray:
        """The lower ends of the cells' intervals."""
        return np.asarray(self.areas.lower[self.number])

    @property
    def upper(self) -> FloatArray:
        """The upper ends of the cells' intervals."""
        return np.asarray(self.areas.upper[self.number])

    @cached_property
    def covariance(self) -> FloatArray:
        """The covariance of the cells: cells × cells."""
        return self.areas.between(slice(self.number, self.number + 1))[0, :, 0]

    def table(self) -> pa.Table:
        """Return a row per cell: its categories, value, standard_error, lower, upper."""
        cells = self.query.cells
        return self.areas.table().slice(self.number * cells, cells)


def estimate_areas(
    fit: Fit,
    areas: Mapping[str, IntArray],
    level: int,
    confidence: float,
    source: NoiseSource,
) -> AreaEstimates:
    """Return a query of areas, each a set of units of one level."""
    tree, decomposition = fit.tree, fit.decomposition
    covers = [fewest_units(tree, level, units) for units in areas.values()]
    levels = memberships(tree, covers)
    values = decomposition.cells(_sums(fit, levels, len(areas)), len(areas))
    blocks = tuple(area_covariance(tree, rungs, levels, len(areas)) for rungs in fit.passes.rungs)
    cells, grams = decomposition.kinds
    variance = np.zeros((len(areas), len(cells)))
    for block, gram in zip(blocks, grams, strict=True):
        own = np.einsum("aiaj->aij", block)
        variance += np.einsum("aij,kij->ak", own, gram)
    error = np.sqrt(np.maximum(variance, 0.0))
    determined = [fit.errors.determined(at) for at in range(tree.depth)]
    exact = [fit.errors.exact(at) for at in range(tree.depth)]
    for number, cover in enumerate(covers):
        error[number, np.all([exact[at] for at, _ in cover], axis=0)] = 0.0
        error[number, ~np.all([determined[at] for at, _ in cover], axis=0)] = np.inf
    error = error[:, decomposition.kind_of_cell]
    return AreaEstimates(
        tuple(areas), decomposition, final_values(values, error), error, blocks, confidence, source
    )


def units_of(geography: Geography, level: str, codes: Sequence[str], name: str) -> IntArray:
    """Return the numbers of units from their codes, sorted; refuse unknown and repeated ones."""
    try:
        texts = codes if isinstance(codes, pa.Array | pa.ChunkedArray) else pa.array(list(codes))
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(f"{name}: its units have several types; codes must be text") from error
    if not len(texts):
        raise InputError(f"{name}: has no units; name at least one {level}")
    if not pa.types.is_string(texts.type) and not pa.types.is_large_string(texts.type):
        raise InputError(
            f"{name}: its units have type {texts.type}; codes must be text, such as "
            f"{geography.geocodes(level)[0].as_py()!r}"
        )
    positions = pc.index_in(texts.cast(pa.string()), geography.geocodes(level))
    if positions.null_count:
        first = texts.filter(pc.is_null(positions))[0].as_py()
        more = f" and {positions.null_count - 1} more" if positions.null_count > 1 else ""
        raise InputError(
            f"{name}: unknown {level} {first!r}{more}; use codes of level {level}, such as "
            f"{geography.geocodes(level)[0].as_py()!r}"
        )
    units, times = np.unique(np.asarray(positions, np.int64), return_counts=True)
    if (times > 1).any():
        twice = geography.geocodes(level)[int(units[times > 1][0])].as_py()
        raise InputError(f"{name}: {level} {twice} is listed twice; list each unit once")
    return units


def _sums(fit: Fit, levels: Sequence[Membership], areas: int) -> Values:
    """Add up the estimates of the units of each area, in every subspace."""
    sums = [np.zeros((areas, space.size, space.copies)) for space in fit.decomposition.subspaces]
    for level, here in enumerate(levels):
        touched = [
            (start, stop)
            for start, stop in fit.passes.ranges(level)
            if ((here.members >= start) & (here.members < stop)).any()
        ]
        for (start, stop), parts in zip(touched, fit.values(level, touched), strict=True):
            inside = (here.members >= start) & (here.members < stop)
            pairs = (here.areas[inside], here.members[inside] - start)
            adder = sp.csr_array((np.ones(len(pairs[0])), pairs), shape=(areas, stop - start))
            for total, part in zip(sums, parts, strict=True):
                total += (adder @ part.reshape(stop - start, -1)).reshape(total.shape)
    return sums


def _mark_special_cells(covariance: FloatArray, error: FloatArray) -> None:
    """Set exact cells to 0; undetermined ones to NaN, with an infinite variance."""
    for at in np.argwhere(error == 0):
        covariance[tuple(at)] = 0.0
        covariance[(slice(None), slice(None), *at)] = 0.0
    for at in np.argwhere(np.isinf(error)):
        covariance[tuple(at)] = np.nan
        covariance[(slice(None), slice(None), *at)] = np.nan
    for at in np.argwhere(np.isinf(error)):
        covariance[(*at, *at)] = np.inf


# The covariance of areas, by carrying their members up the tree.
#
# Given its parent, a unit's estimate is V_c (Σ V_c)⁻¹ times the parent's, and the covariance that
# remains between siblings is δ V_c - V_c (Σ V_c)⁻¹ V_c'. An area is a sum of units, so it is a linear
# function of the units of each level in turn, and the remainders of all levels add up. Only units with
# members below them are touched.


@dataclass(frozen=True, eq=False, slots=True)
class Membership:
    """The units of a level that make up areas: pairs of `areas` and `members`.

    `units` are all units that are members or have members below them, sorted.
    """

    areas: IntArray
    members: IntArray
    units: IntArray


def memberships(tree: Tree, covers: Sequence[Sequence[LevelUnits]]) -> list[Membership]:
    """Return the memberships of every level, the top first, from the units that make up each area."""
    below = np.empty(0, np.int64)
    result: list[Membership] = []
    for level in range(tree.depth - 1, -1, -1):
        own = [
            (np.full(len(units), area), units)
            for area, cover in enumerate(covers)
            for number, units in cover
            if number == level
        ]
        nothing = np.empty(0, np.int64)
        areas = np.concatenate([nothing, *(area for area, _ in own)])
        members = np.concatenate([nothing, *(units for _, units in own)])
        units = np.unique(np.concatenate([members, below]))
        result.insert(0, Membership(areas, members, units))
        if level:
            below = np.unique(tree.geography.parents[level][units])
    return result


def area_covariance(
    tree: Tree, rungs: Sequence[Rung], levels: Sequence[Membership], areas: int
) -> FloatArray:
    """Return the covariance of areas in one subspace: areas × size × areas × size."""
    size = len(rungs[0].known)
    total = np.zeros((areas * size, areas * size))
    carried: sp.csr_array | None = None
    for level in range(tree.depth - 1, -1, -1):
        here, rung = levels[level], rungs[level]
        width = rung.noisy.shape[1]
        if not width or not len(here.units):
            carried = None
            continue
        coefficients = _members(here, rung, areas)
        if carried is not None:
            coefficients = coefficients + carried
        weighted = coefficients @ _diagonal(rung.covariance[tree.kind[level][here.units]])
        total += (weighted @ coefficients.T).toarray()
        if level:
            above, higher = levels[level - 1], rungs[level - 1]
            parents = np.searchsorted(above.units, tree.geography.parents[level][here.units])
            summed = weighted @ _adder(parents, len(above.units), width)
            pulled = summed @ _diagonal(higher.pull[tree.kind[level - 1][above.units]])
            total -= (pulled @ summed.T).toarray()
            shape = (len(above.units), *higher.below.shape)
            carried = pulled @ _diagonal(np.broadcast_to(higher.below, shape))
    return total.reshape(areas, size, areas, size)


def _members(here: Membership, rung: Rung, areas: int) -> sp.csr_array:
    """Return the areas as functions of the noisy part of the units: (areas size) × (units e)."""
    size, width = rung.noisy.shape
    place = np.searchsorted(here.units, here.members)
    row = here.areas[:, None, None] * size + np.arange(size)[:, None]
    column = place[:, None, None] * width + np.arange(width)
    shape = (len(place), size, width)
    entries = (np.broadcast_to(part, shape).reshape(-1) for part in (rung.noisy, row, column))
    value, rows, columns = entries
    return sp.csr_array((value, (rows, columns)), shape=(areas * size, len(here.units) * width))


def _diagonal(blocks: FloatArray) -> sp.csr_array:
    """Return the matrix with these blocks along its diagonal."""
    count, rows, columns = blocks.shape
    if not blocks.size:
        return sp.csr_array((count * rows, count * columns))
    matrix = sp.bsr_array(
        (np.ascontiguousarray(blocks), np.arange(count), np.arange(count + 1)),
        shape=(count * rows, count * columns),
    )
    return sp.csr_array(matrix)


def _adder(parents: IntArray, count: int, width: int) -> sp.csr_array:
    """Return the matrix that adds up blocks of some width over the children of each parent."""
    units = len(parents)
    columns = (parents[:, None] * width + np.arange(width)).reshape(-1)
    rows = np.arange(units * width)
    return sp.csr_array(
        (np.ones(units * width), (rows, columns)), shape=(units * width, count * width)
    )
