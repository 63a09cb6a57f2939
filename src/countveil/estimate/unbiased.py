"""Unbiased estimates with exact variances, by generalised least squares over the whole tree."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

import numpy as np
import pyarrow as pa

from countveil.base.intervals import checked, normal_interval
from countveil.base.numerics import FloatArray
from countveil.engines.workers import Workers
from countveil.errors import InputError
from countveil.estimate.areas import (
    AreaEstimate,
    AreaEstimates,
    NoiseSource,
    estimate_areas,
    units_of,
)
from countveil.estimate.result_tables import estimate_table, final_values
from countveil.measure import manifest
from countveil.measure.measurements import Measurements, path_of
from countveil.plan.geography import Geography, read_crosswalk
from countveil.plan.plan_basis import GEOGRAPHY
from countveil.plan.plans import Plan
from countveil.plan.workload import Query
from countveil.postprocess.topdown import refuse_other_measurements
from countveil.tree.observed_levels import Observed
from countveil.tree.tree_shape import Tree
from countveil.tree.tree_values import Fit, UpwardFit

CONFIDENCE = 0.9
_MOST_ROWS = 2**25


class UnitIntervals(NamedTuple):
    """The ends of intervals, units × cells."""

    lower: FloatArray
    upper: FloatArray


@dataclass(frozen=True, eq=False, slots=True)
class UnitEstimates:
    """A query of units start … stop - 1 of a level.

    `value` and `standard_error` are units × cells. A cell that measurements do not determine has value
    NaN and an infinite standard error.
    """

    level: str
    query: Query
    start: int
    stop: int
    value: FloatArray
    standard_error: FloatArray

    def interval(self, confidence: float = CONFIDENCE) -> UnitIntervals:
        """Return the lower and upper ends of two-sided normal intervals, units × cells."""
        return UnitIntervals(*normal_interval(self.value, self.standard_error, confidence))


@dataclass(frozen=True, eq=False, slots=True)
class LeastSquares:
    """The best linear unbiased estimates from all measurements and invariants of a release.

    Nothing is computed until you ask for a query. The last query is kept, so that asking for it again,
    at other levels or for other areas, is quick.
    """

    measurements: Measurements
    plan: Plan
    geography: Geography
    confidence: float
    _observed: Observed = field(repr=False)
    _tree: Tree = field(repr=False)
    _workers: Workers | None = field(default=None, repr=False)
    _last: list[Fit] = field(default_factory=list, repr=False)
    _upward: list[UpwardFit] = field(default_factory=list, repr=False)

    def estimate(self, level: str, query: str, *, confidence: float | None = None) -> pa.Table:
        """Return a query of every unit of a level, with intervals.

        Parameters
        ----------
        level : str
            A level of the plan.
        query : str
            Attributes and recodes joined by `*`, or "TOTAL". A query is refused if none of its cells
            is determined.
        confidence : float, optional
            That of the release by default.

        Returns
        -------
        pyarrow.Table
            A row per unit and cell: geocode, a column per attribute, value, standard_error, and the
            ends lower and upper of a two-sided normal interval. A cell that measurements do not
            determine has value NaN and an infinite standard error.

        """
        parsed = self._query(query)
        chosen = self.confidence if confidence is None else checked(confidence)
        rows = self.geography.units(level) * parsed.cells
        if rows > _MOST_ROWS:
            raise InputError(
                f"query {parsed.name!r}: has {rows:,} rows at level {level}, and {_MOST_ROWS:,} is the "
                f"limit of one table; use `batches`, which yields some families at a time"
            )
        values, errors = [], []
        for part in self.batches(level, query):
            values.append(part.value)
            errors.append(part.standard_error)
        codes = self.geography.geocodes(level)
        value, error = np.concatenate(values), np.concatenate(errors)
        return estimate_table("geocode", codes, parsed, value, error, chosen)

    def determines(self, level: str, query: str) -> bool:
        """Whether measurements determine any cell of a query at a level."""
        errors = self._fit(self._query(query)).errors.standard_errors(self.geography.index(level))
        return not bool(np.isinf(errors).all())

    def batches(self, level: str, query: str) -> Iterator[UnitEstimates]:
        """Yield the estimates of a level as arrays, some whole families of units at a time."""
        parsed, depth = self._query(query), self.geography.index(level)
        fit = self._fit(parsed)
        positions = self._tree.positions[depth]
        errors = fit.errors.standard_errors(depth)
        kind = fit.decomposition.kind_of_cell
        if np.isinf(errors).all():
            self.refuse_undetermined(query, level)

        ranges, all_noisy = fit.passes.ranges(depth), np.isfinite(errors).all() and errors.all()
        for (start, stop), value in zip(ranges, fit.cells(depth, ranges), strict=True):
            error = errors[positions.of_unit[start:stop]][:, kind]
            final = value if all_noisy else final_values(value, error)
            yield UnitEstimates(level, parsed, start, stop, final, error)

    def area(
        self,
        units: Sequence[str],
        query: str,
        *,
        level: str | None = None,
        confidence: float | None = None,
    ) -> AreaEstimate:
        """Return a query of one area, made of any units of a level (by default the lowest)."""
        return self.areas({"area": units}, query, level=level, confidence=confidence)["area"]

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

        Parameters
        ----------
        areas : mapping of str to sequence of str
            The codes of the units of each area, by its name.
        query : str
            Attributes and recodes joined by `*`, or "TOTAL".
        level : str, optional
            The level of the units, by default the lowest.
        confidence : float, optional
            That of the release by default.
        undetermined : bool
            Whether to return a query of which no cell is determined, instead of refusing it.

        Returns
        -------
        AreaEstimates

        """
        name = self.geography.levels[-1] if level is None else level
        depth, parsed = self.geography.index(name), self._query(query)
        chosen = self.confidence if confidence is None else checked(confidence)
        if not areas:
            raise InputError("areas: there are none; name at least one, with its units")
        units = {area: units_of(self.geography, name, codes, area) for area, codes in areas.items()}
        estimates = estimate_areas(self._fit(parsed), units, depth, chosen, self.source)
        if not undetermined and np.isinf(estimates.standard_error).all():
            self.refuse_undetermined(query, name)
        return estimates

    def covariance(
        self, areas: Mapping[str, Sequence[str]], query: str, *, level: str | None = None
    ) -> FloatArray:
        """Return the covariance of a query's cells in several areas: areas × cells × areas × cells."""
        return self.areas(areas, query, level=level).covariance

    @property
    def source(self) -> NoiseSource:
        """Whose noise the estimates have."""
        stated = manifest.read(self.measurements.folder)
        seed = None if stated["publishable"] else stated["randomness"]
        return NoiseSource(stated["release"], seed)

    def _query(self, query: str) -> Query:
        return self.plan.schema.query(query)

    def _fit(self, query: Query) -> Fit:
        if not self._last or self._last[0].decomposition.query is not query:
            self._last.clear()  # first, because both may not fit into memory
            if self._upward and self._upward[0].passes.decomposition.query is query:
                fit = Fit.after(self._upward.pop())
            else:
                fit = Fit.of(self.measurements, self._observed, self._tree, query, self._workers)
            self._last.append(fit)
        return self._last[0]

    def refuse_undetermined(self, query: str, level: str) -> NoReturn:
        """Refuse a query of which no cell is determined, and say what was measured."""
        below = self.plan.levels[self.geography.index(level) :]
        names = {
            one.query.name: None for level in below for one in self._observed.observations[level]
        }
        be = "is" if len(names) == 1 else "are"
        measured = f"only {', '.join(names)} {be} measured" if names else "nothing is measured"
        raise InputError(
            f"query {query!r}: is not determined at level {below[0]}, because there and below "
            f"{measured}; ask for a sum of those, or for a higher level"
        )


def least_squares(
    measurements: Measurements,
    plan: Plan,
    *,
    geography: Geography | None = None,
    confidence: float | None = None,
    workers: Workers | None = None,
    upward: UpwardFit | None = None,
) -> LeastSquares:
    """Estimate by generalised least squares from all measurements of all levels.

    Measurements are weighted by their noise, invariants hold exactly, and structural zeros of the plan
    are 0. Bounds are not used, neither the plan's constraints nor that counts cannot be negative, so
    that estimates stay unbiased.

    Parameters
    ----------
    measurements : Measurements
        The noisy measurements of a release.
    plan : Plan
        The plan they were measured by.
    geography : Geography, optional
        The units of the release, read from its folder by default.
    confidence : float, optional
        The confidence of intervals; the plan's by default, or 0.9.
    workers : Workers, optional
        The workers of an engine; two threads of this process by default.
    upward : UpwardFit, optional
        The way up the tree for a query, if it was computed already; it is used once.

    Returns
    -------
    LeastSquares
        Estimates of any query, for units and areas. Nothing is computed yet.

    Examples
    --------
    >>> from countveil import Plan, Seeded, estimate, pipeline
    >>> release = pipeline.release(Plan.load("plan.toml"), to="out", rng=Seeded(7))
    >>> fit = estimate.least_squares(release.measurements, release.plan)
    >>> errors = fit.estimate("county", "TOTAL")["standard_error"].to_pylist()
    >>> [round(error, 2) for error in errors]
    [2.04, 2.04, 1.82, 1.82]

    """
    refuse_other_measurements(measurements.folder, plan, measurements.plan)
    if geography is None:
        geography = read_crosswalk(measurements.folder / GEOGRAPHY, plan.levels)
    for level in plan.measured_levels:
        _refuse_other_units(measurements, level, geography.units(level))
    if workers is not None:
        # Workers run in folders of their own, so files are named by their full paths.
        measurements = dataclasses.replace(measurements, folder=measurements.folder.absolute())
        workers.reach(measurements.folder / manifest.NAME)
    observed = Observed.of(measurements, plan)
    tree = Tree.of(geography)
    chosen = checked(plan.confidence or CONFIDENCE if confidence is None else confidence)
    ready = [] if upward is None else [upward]
    return LeastSquares(
        measurements, plan, geography, chosen, observed, tree, workers, _upward=ready
    )


def _refuse_other_units(measurements: Measurements, level: str, units: int) -> None:
    path = path_of(measurements.folder, level)
    measured = measurements.counted[level]
    if measured != units:
        raise InputError(
            f"{path}: has {measured:,} units of level {level}, and the geography {units:,}; use the "
            f"geography of the release"
        )
