"""Areas put together from units, on the spine of the tree or off it: estimates and covariances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp

from countveil.errors import InputError
from countveil.infer.area_covariance import Membership, area_covariance, memberships
from countveil.infer.cell_tables import laid_out, settled
from countveil.infer.interval import normal_interval
from countveil.infer.subspaces import Asked
from countveil.infer.tree_shape import covers
from countveil.infer.tree_tasks import Values
from countveil.infer.tree_values import Fit
from countveil.numerics import FloatArray, IntArray
from countveil.schema.attributes import listed
from countveil.schema.geography import Geography
from countveil.schema.workload import Query

_MOST_COVARIANCES = 2**27


@dataclass(frozen=True, eq=False)
class AreaEstimates:
    """A query of several areas, areas × cells, with the covariance of all of them together.

    Where a cell is not determined its value is NaN and its standard error infinite. `blocks` has, for
    each subspace of the query, areas × size × areas × size. `source` says whose noise they have: the
    release and, of a simulation, its seed.
    """

    names: tuple[str, ...]
    asked: Asked = field(repr=False)
    value: FloatArray
    standard_error: FloatArray
    blocks: tuple[FloatArray, ...] = field(repr=False)
    confidence: float
    source: tuple[str, ...] = ()

    @property
    def query(self) -> Query:
        """The query asked for."""
        return self.asked.query

    def __getitem__(self, name: str) -> AreaEstimate:
        """Return one area."""
        if name not in self.names:
            raise InputError(f"no area {name!r}; choose from {listed(self.names)}")
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
        """Return a row per area and cell: categories, value, standard_error, lower, upper."""
        return laid_out(
            "area", self.names, self.query, self.value, self.standard_error, self.confidence
        )

    def between(self, chosen: slice) -> FloatArray:
        """Return the covariance of some of the areas, areas × cells × areas × cells."""
        error = self.standard_error[chosen]
        areas, cells = error.shape
        if (areas * cells) ** 2 > _MOST_COVARIANCES:
            raise InputError(
                f"{areas:,} areas of {cells:,} cells have {(areas * cells) ** 2:,} covariances, and "
                f"{_MOST_COVARIANCES:,} is the limit; ask for fewer areas or a query of fewer cells"
            )
        result = np.zeros((areas, cells, areas, cells))
        for space, block in zip(self.asked.subspaces, self.blocks, strict=True):
            rows = self.asked.rows(space)
            for one in range(space.size):
                for other in range(space.size):
                    cross = rows[:, one] @ rows[:, other].T
                    part = block[chosen, one, chosen, other]
                    result += part[:, None, :, None] * cross[None, :, None, :]
        _mark(result, error)
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
        """The query asked for."""
        return self.areas.query

    @property
    def value(self) -> FloatArray:
        """The estimate of each cell; NaN where it is not determined."""
        return np.asarray(self.areas.value[self.number])

    @property
    def standard_error(self) -> FloatArray:
        """The standard error of each cell; infinite where it is not determined."""
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
    source: tuple[str, ...],
) -> AreaEstimates:
    """Return a query of areas, each given as units of one level."""
    tree, asked = fit.tree, fit.asked
    covered = [covers(tree, level, units) for units in areas.values()]
    levels = memberships(tree, covered)
    values = asked.cells(_sums(fit, levels, len(areas)), len(areas))
    blocks = tuple(area_covariance(tree, rungs, levels, len(areas)) for rungs in fit.passes.rungs)
    kind, grams = asked.kinds
    variance = np.zeros((len(areas), int(kind.max(initial=0)) + 1))
    for block, gram in zip(blocks, grams, strict=True):
        own = np.einsum("aiaj->aij", block)
        variance += np.einsum("aij,kij->ak", own, gram)
    error = np.sqrt(np.maximum(variance, 0.0))
    determined = [fit.determined(at) for at in range(tree.depth)]
    exact = [fit.exact(at) for at in range(tree.depth)]
    for number, cover in enumerate(covered):
        error[number, np.all([exact[at] for at, _ in cover], axis=0)] = 0.0
        error[number, ~np.all([determined[at] for at, _ in cover], axis=0)] = np.inf
    error = error[:, kind]
    return AreaEstimates(
        tuple(areas), asked, settled(values, error), error, blocks, confidence, source
    )


def units_of(geography: Geography, level: str, codes: Sequence[str], name: str) -> IntArray:
    """Return the numbers of units given by their codes, in order; refuse unknown and repeated ones."""
    try:
        asked = codes if isinstance(codes, pa.Array | pa.ChunkedArray) else pa.array(list(codes))
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(f"{name}: its units are of several types; codes are text") from error
    if not len(asked):
        raise InputError(f"{name}: has no units; name at least one {level}")
    if not pa.types.is_string(asked.type) and not pa.types.is_large_string(asked.type):
        raise InputError(
            f"{name}: its units are of type {asked.type}; codes of units are text, such as "
            f"{geography.geocodes(level)[0].as_py()!r}"
        )
    found = pc.index_in(asked.cast(pa.string()), geography.geocodes(level))
    if found.null_count:
        first = asked.filter(pc.is_null(found))[0].as_py()
        more = f" and {found.null_count - 1} more" if found.null_count > 1 else ""
        raise InputError(
            f"{name}: no {level} {first!r}{more}; give codes of level {level}, such as "
            f"{geography.geocodes(level)[0].as_py()!r}"
        )
    units, times = np.unique(np.asarray(found, np.int64), return_counts=True)
    if (times > 1).any():
        twice = geography.geocodes(level)[int(units[times > 1][0])].as_py()
        raise InputError(f"{name}: {level} {twice} is listed twice; list each once")
    return units


def _sums(fit: Fit, levels: Sequence[Membership], areas: int) -> Values:
    """Add up the estimates of the units of each area, in every subspace."""
    sums = [np.zeros((areas, space.size, space.copies)) for space in fit.asked.subspaces]
    for level, here in enumerate(levels):
        touched = [
            (start, stop)
            for start, stop in fit.passes.runs(level)
            if ((here.members >= start) & (here.members < stop)).any()
        ]
        for (start, stop), parts in zip(touched, fit.parts(level, touched), strict=True):
            inside = (here.members >= start) & (here.members < stop)
            pairs = (here.areas[inside], here.members[inside] - start)
            adder = sp.csr_array((np.ones(len(pairs[0])), pairs), shape=(areas, stop - start))
            for total, part in zip(sums, parts, strict=True):
                total += (adder @ part.reshape(stop - start, -1)).reshape(total.shape)
    return sums


def _mark(covariance: FloatArray, error: FloatArray) -> None:
    """Set exact cells to 0; of those not determined, the variance is infinite and the rest unknown."""
    for at in np.argwhere(error == 0):
        covariance[tuple(at)] = 0.0
        covariance[(slice(None), slice(None), *at)] = 0.0
    for at in np.argwhere(np.isinf(error)):
        covariance[tuple(at)] = np.nan
        covariance[(slice(None), slice(None), *at)] = np.nan
    for at in np.argwhere(np.isinf(error)):
        covariance[(*at, *at)] = np.inf
