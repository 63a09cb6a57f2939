"""Unbiased estimates with exact variances, by generalised least squares over the whole tree."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np
import pyarrow as pa

from countveil.errors import InputError
from countveil.infer.areas import AreaEstimate, AreaEstimates, estimate_areas, units_of
from countveil.infer.cell_tables import laid_out, settled
from countveil.infer.interval import checked, normal_interval
from countveil.infer.observed_levels import Observed
from countveil.infer.tree_shape import Tree
from countveil.infer.tree_values import Fit
from countveil.measure import manifest
from countveil.measure.measurement import Measurements, path_of
from countveil.numerics import FloatArray
from countveil.postprocess.descent import refuse_other_measurements
from countveil.schema.geography import Geography, read_crosswalk
from countveil.schema.plan import GEOGRAPHY, Plan
from countveil.schema.workload import Query
from countveil.workers import Workers

CONFIDENCE = 0.9
_MOST_ROWS = 2**25


@dataclass(frozen=True, eq=False, slots=True)
class UnitEstimates:
    """A query of units start … stop - 1 of a level: units × cells.

    Where a cell is not determined its value is NaN and its standard error infinite.
    """

    level: str
    query: Query
    start: int
    stop: int
    value: FloatArray
    standard_error: FloatArray

    def interval(self, confidence: float = CONFIDENCE) -> tuple[FloatArray, FloatArray]:
        """Return the lower and upper ends of normal intervals."""
        return normal_interval(self.value, self.standard_error, confidence)


@dataclass(frozen=True, eq=False, slots=True)
class LeastSquares:
    """The best linear unbiased estimates from all measurements and invariants of a release.

    Nothing is computed until a query is asked for; the last query asked is kept, so that asking for
    it again, at other levels or areas, is quick.
    """

    measurements: Measurements
    plan: Plan
    geography: Geography
    confidence: float
    _observed: Observed = field(repr=False)
    _tree: Tree = field(repr=False)
    _workers: Workers | None = field(default=None, repr=False)
    _last: list[Fit] = field(default_factory=list, repr=False)

    def estimate(self, level: str, query: str, *, confidence: float | None = None) -> pa.Table:
        """Return a query of every unit of a level: geocode, categories, value, standard_error, ….

        `lower` and `upper` are ends of two-sided normal intervals. Where measurements do not determine
        a cell its value is NaN and its standard error infinite; a query of which nothing is determined
        is refused.
        """
        asked = self._asked(query)
        chosen = self.confidence if confidence is None else checked(confidence)
        rows = self.geography.units(level) * asked.cells
        if rows > _MOST_ROWS:
            raise InputError(
                f"query {asked.name!r}: has {rows:,} rows at level {level}, and {_MOST_ROWS:,} is the "
                f"limit of one table; take them from `batches`, some families at a time"
            )
        values, errors = [], []
        for part in self.batches(level, query):
            values.append(part.value)
            errors.append(part.standard_error)
        codes = self.geography.geocodes(level)
        value, error = np.concatenate(values), np.concatenate(errors)
        return laid_out("geocode", codes, asked, value, error, chosen)

    def determines(self, level: str, query: str) -> bool:
        """Whether measurements determine any cell of a query at a level."""
        errors = standard_errors(self._fit(self._asked(query)), self.geography.index(level))
        return not bool(np.isinf(errors).all())

    def batches(self, level: str, query: str) -> Iterator[UnitEstimates]:
        """Yield the estimates of a level as plain numbers, some whole families of units at a time."""
        asked, depth = self._asked(query), self.geography.index(level)
        fit = self._fit(asked)
        places = self._tree.places[depth]
        errors = standard_errors(fit, depth)
        kind, _ = fit.asked.kinds
        if np.isinf(errors).all():
            self.refuse_undetermined(query, level)

        runs, whole = fit.passes.runs(depth), np.isfinite(errors).all() and errors.all()
        for (start, stop), value in zip(runs, fit.cells(depth, runs), strict=True):
            error = errors[places.of_unit[start:stop]][:, kind]
            found = value if whole else settled(value, error)
            yield UnitEstimates(level, asked, start, stop, found, error)

    def area(
        self,
        units: Sequence[str],
        query: str,
        *,
        level: str | None = None,
        confidence: float | None = None,
    ) -> AreaEstimate:
        """Return a query of an area made of any units of a level, the lowest one if not given."""
        found = self.areas({"area": units}, query, level=level, confidence=confidence)
        return found["area"]

    def areas(
        self,
        areas: Mapping[str, Sequence[str]],
        query: str,
        *,
        level: str | None = None,
        confidence: float | None = None,
        undetermined: bool = False,
    ) -> AreaEstimates:
        """Return a query of several areas, which may overlap, with their joint covariance.

        A query of which nothing is determined is refused, unless `undetermined` allows for it.
        """
        name = self.geography.levels[-1] if level is None else level
        depth, asked = self.geography.index(name), self._asked(query)
        chosen = self.confidence if confidence is None else checked(confidence)
        if not areas:
            raise InputError("areas: none is given; name at least one with its units")
        units = {area: units_of(self.geography, name, codes, area) for area, codes in areas.items()}
        found = estimate_areas(self._fit(asked), units, depth, chosen, self.source)
        if not undetermined and np.isinf(found.standard_error).all():
            self.refuse_undetermined(query, name)
        return found

    def covariance(
        self, areas: Mapping[str, Sequence[str]], query: str, *, level: str | None = None
    ) -> FloatArray:
        """Return the covariance of a query's cells in several areas: areas × cells × areas × cells."""
        return self.areas(areas, query, level=level).covariance

    @property
    def source(self) -> tuple[str, ...]:
        """Whose noise the estimates have: the release and, of a simulation, its seed."""
        stated = manifest.read(self.measurements.folder)
        seed = () if stated["publishable"] else (stated["randomness"],)
        return (stated["release"], *seed)

    def _asked(self, query: str) -> Query:
        return self.plan.schema.query(query)

    def _fit(self, query: Query) -> Fit:
        if not self._last or self._last[0].asked.query is not query:
            self._last.clear()  # before the next one is made: both may not fit into memory
            made = Fit.of(self.measurements, self._observed, self._tree, query, self._workers)
            self._last.append(made)
        return self._last[0]

    def refuse_undetermined(self, query: str, level: str) -> NoReturn:
        """Say that measurements determine nothing of a query, and what was measured."""
        below = self.plan.levels[self.geography.index(level) :]
        names = {
            one.query.name: None for level in below for one in self._observed.observations[level]
        }
        measured = f"measured are {', '.join(names)}" if names else "nothing is measured"
        raise InputError(
            f"query {query!r}: is not determined at level {below[0]}; there and below "
            f"{measured}; ask for a sum of those, or at a level above"
        )


def least_squares(
    measurements: Measurements,
    plan: Plan,
    *,
    geography: Geography | None = None,
    confidence: float | None = None,
    workers: Workers | None = None,
) -> LeastSquares:
    """Estimate by generalised least squares: all measurements of all levels, weighed by their noise.

    `confidence` is the plan's if not given. Invariants hold exactly, and cells that are structural
    zeros of the plan are 0. Bounds, from the plan's constraints or because counts are not negative, are
    not used: estimates stay unbiased. `workers` are those of an engine; without them two threads of
    this process do the work.
    """
    refuse_other_measurements(measurements.folder, plan, measurements.plan)
    if plan.one_table is not None:
        raise InputError(
            f"{plan.name}: its table was drawn beside public information, and holds no measurements "
            f"of a tree; use infer.posterior"
        )
    if geography is None:
        geography = read_crosswalk(measurements.folder / GEOGRAPHY, plan.levels)
    for level in plan.measured_levels:
        _refuse_other_units(measurements, level, geography.units(level))
    if workers is not None:
        # They stand in folders of their own: what travels to them names its files in full.
        measurements = dataclasses.replace(measurements, folder=measurements.folder.absolute())
        workers.reach(measurements.folder / manifest.NAME)
    observed = Observed.of(measurements, plan)
    tree = Tree.of(geography)
    chosen = checked(plan.confidence or CONFIDENCE if confidence is None else confidence)
    return LeastSquares(measurements, plan, geography, chosen, observed, tree, workers)


def _refuse_other_units(measurements: Measurements, level: str, units: int) -> None:
    path = path_of(measurements.folder, level)
    found = measurements.counted[level]
    if found != units:
        raise InputError(
            f"{path}: holds {found:,} units of level {level}, and the geography has {units:,}; use the "
            f"geography of the release"
        )


def standard_errors(fit: Fit, level: int) -> FloatArray:
    """Return the standard error of each place of a level and kind of cell."""
    kind, grams = fit.asked.kinds
    places = fit.tree.places[level]
    variance = np.zeros((len(places), int(kind.max(initial=0)) + 1))
    for covariance, gram in zip(fit.covariances(level), grams, strict=True):
        variance += covariance.reshape(len(covariance), -1) @ gram.reshape(len(gram), -1).T
    error: FloatArray = np.sqrt(np.maximum(variance, 0.0))
    for known_as in np.unique(places.known_as):
        inside = places.known_as == known_as
        error[np.ix_(inside, fit.exact(int(known_as)))] = 0.0
        error[np.ix_(inside, ~fit.determined(int(known_as)))] = np.inf
    return error
