"""TopDown: from the top of the tree to the bottom, family by family, streamed through a pool."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import tempfile
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from threadpoolctl import threadpool_limits

from countveil import storage
from countveil.errors import InputError
from countveil.histograms import Histograms, narrowed, roll_up, store
from countveil.measure import manifest
from countveil.measure.measurement import FOLDER, Measured, Measurements
from countveil.measure.progress import Progress, silent
from countveil.numerics import IntArray
from countveil.postprocess.certificate import combine, one_family
from countveil.postprocess.constraints import LevelFacts, read_facts
from countveil.postprocess.estimates import Estimates
from countveil.postprocess.family import Above, Family, solve
from countveil.postprocess.least_squares import Observations
from countveil.postprocess.totals import MeasuredTotals, looks_below, measured_totals
from countveil.postprocess.workplace import Batch, Workplace
from countveil.randomness import BitSource, Secure
from countveil.schema.geography import Geography
from countveil.schema.plan import Plan
from countveil.workers import Workers, hired

_VALUES = 4_000_000  # measurements held at a time, unless one family has more
_MANY = 2_000  # units of a level that are worth starting processes for
_TASKS = 16  # at least, where a level has the families: the same whatever the number of workers
_FORMAT = "top-down 1"


@dataclass(frozen=True, eq=False, slots=True)
class Task:
    """Some whole families of a level: units start … stop - 1, and the parent of each."""

    level: str
    above: str | None
    start: int
    stop: int
    parents: IntArray
    facts: LevelFacts
    totals: MeasuredTotals | None
    geocodes: pa.StringArray
    parent_codes: pa.StringArray | None


@dataclass(frozen=True, eq=False, slots=True)
class Job:
    """What every task of a descent shares; it travels to the workers once."""

    measurements: Measured
    plan: Plan
    work: Path
    rng: BitSource | None

    def run(self, task: Task) -> Batch:
        """Solve the families of a task."""
        observed = Observations.of(self.measurements, task.level)
        values = self.measurements.units(task.level, task.start, task.stop)
        above = None if task.above is None else Workplace(self.work).read(task.above)
        possible = np.flatnonzero(self.plan.possible)
        lengths = np.zeros(task.stop - task.start, np.int64)
        cells, counts, certificates = [], [], []
        ends = np.append(np.flatnonzero(np.diff(task.parents)) + 1, len(task.parents))
        for first, last in pairwise([0, *ends.tolist()]):
            name = task.geocodes[first].as_py()
            support, parent = possible, None
            if above is not None and task.parent_codes is not None:
                number = int(task.parents[first])
                _, support, parent = above.entries(number, number + 1)
                name = task.parent_codes[number - int(task.parents[0])].as_py()
            family = Family(
                name=f"{task.above or task.level} {name}",
                children=task.geocodes.slice(first, last - first).to_pylist(),
                cells=support,
                parent=parent,
                places=observed.scalars_of(support),
                weights=observed.weights,
                values=values[first:last],
                limits=task.facts.limits(first, last, support, parent),
                label=self._label,
                totals=None if task.totals is None else task.totals.slice(first, last),
                above=partial(
                    above_family, self.plan, task.level, possible, task.facts, first, last
                ),
            )
            rng = self._rng(task.level, name)
            solved = solve(family, self.plan.passes[task.level], rng=rng)
            child, cell = np.nonzero(solved.counts)
            lengths[first:last] = np.bincount(child, minlength=last - first)
            cells.append(solved.cells[cell].astype(np.int32))
            counts.append(narrowed(solved.counts[child, cell]))
            certificates.append(one_family(task.level, solved.certificate))
        return Batch(
            lengths,
            np.concatenate(cells),
            np.concatenate(counts),
            combine(task.level, certificates),
        )

    def _label(self, cells: IntArray) -> str:
        """Name cells of the full histogram by their categories."""
        names = []
        for cell in cells[:3]:
            codes = np.unravel_index(int(cell), self.plan.schema.shape)
            parts = zip(self.plan.schema.attributes, codes, strict=True)
            names.append(
                ", ".join(f"{item.name} = {item.categories[code]}" for item, code in parts)
            )
        return "; ".join(names) + (f" and {len(cells) - 3} more cells" if len(cells) > 3 else "")

    def _rng(self, level: str, name: str) -> BitSource | None:
        if self.plan.passes[level].rounding != "unbiased":
            return None
        source = Secure() if self.rng is None else self.rng
        return source.for_unit(level, name, "rounding")


def above_family(
    plan: Plan, level: str, possible: IntArray, facts: LevelFacts, first: int, last: int
) -> Above | None:
    """Return what a family needs if its facts leave no table that adds up to its parent."""
    if not facts.bounds and not facts.groups:
        return None
    higher = plan.levels[: plan.levels.index(level)]
    kept = [item.query for item in plan.invariants if item.level in higher]
    kept += [item.query for item in plan.constraints if item.level in higher]
    limits = facts.limits(first, last, possible, None)
    return Above(possible, limits, tuple(dict.fromkeys(kept)))


def top_down(
    measurements: Measurements,
    plan: Plan,
    *,
    workers: int | Workers = 1,
    geography: Geography | None = None,
    work: str | Path | None = None,
    rng: BitSource | None = None,
    progress: Progress = silent,
) -> Estimates:
    """Turn measurements into consistent non-negative integers, level by level from the top.

    `work` is a folder that keeps finished batches, so that a stopped run goes on where it was; without
    it they lie in a temporary folder. `workers` are a number of processes, or those of an engine. `rng`
    serves unbiased rounding, the operating system's generator if not given.
    """
    refuse_other_measurements(measurements.folder, plan, measurements.plan)
    if work is None:
        # Deleted when the descent ends; what is mapped from it lives as long as the result.
        with tempfile.TemporaryDirectory(prefix="countveil-") as folder:
            return top_down(
                measurements,
                plan,
                workers=workers,
                geography=geography,
                work=folder,
                rng=rng,
                progress=progress,
            )
    geography = plan.geography() if geography is None else geography
    place = Workplace(Path(work))
    place.begin(_identity(measurements, plan, geography))
    # Workers stand in folders of their own: what travels to them names its files in full.
    measured = dataclasses.replace(measurements, folder=measurements.folder.absolute())
    job = Job(measured, plan, place.folder.absolute(), rng)
    return descend(job, geography, workers=workers, progress=progress)


def descend(
    job: Job, geography: Geography, *, workers: int | Workers = 1, progress: Progress = silent
) -> Estimates:
    """Solve the families of every level, from the top, going on where the job's workplace stopped."""
    plan, place = job.plan, Workplace(job.work)
    visited = plan.measured_levels
    facts = read_facts(plan, geography, job.measurements)
    levels: dict[str, Histograms] = {}
    certificates = []
    # Families are small: more threads for one of them cost more than they bring.
    with threadpool_limits(1), hired(workers) as team:
        team.reach(place.folder)
        rests = True  # whether what lies above is as it was when this level was worked on
        for above, level in zip([None, *visited], visited, strict=False):
            if not rests:
                place.forget(level)
            done = place.finished(level)
            totals = None
            if looks_below(plan, level):
                totals = measured_totals(job.measurements, plan, geography, visited, level)
            cut = _Cut.of(plan, geography, facts[level], totals, above, level)
            left = range(len(done), len(cut.ranges))
            rests = rests and not left
            large = geography.units(level) >= _MANY and len(left) > 1
            batches = team.map(job, map(cut.task, left), large=large)
            for number, batch in zip(left, batches, strict=True):
                place.append(level, batch)
                done.append(batch.certificate)
                progress("estimating", level, cut.ranges[number][1], geography.units(level))
            levels[level] = place.read(level)
            certificates.append(combine(level, done))
        team.rest()
    for number, certificate in enumerate(certificates):
        if certificate.moved_parents:  # what lies above is the sum of what lies below
            for level in visited[:number]:
                levels.pop(level, None)
    summed = _with_sums(levels, plan, geography, place)
    return Estimates(plan, geography, summed, tuple(certificates))


def refuse_other_measurements(folder: Path, plan: Plan, measured: Plan) -> None:
    """Refuse a plan that would have measured something else."""
    if plan.measuring_digest != measured.measuring_digest:
        raise InputError(
            f"{folder}: was measured under another plan; only [postprocess], [[constraints]] and "
            f"[[structural_zeros]] may differ"
        )


@dataclass(frozen=True, eq=False, slots=True)
class _Cut:
    """A level cut into ranges of whole families, and what its tasks take a part of."""

    geography: Geography
    facts: LevelFacts
    totals: MeasuredTotals | None
    above: str | None
    level: str
    parents: IntArray
    ranges: list[tuple[int, int]]

    @classmethod
    def of(
        cls,
        plan: Plan,
        geography: Geography,
        facts: LevelFacts,
        totals: MeasuredTotals | None,
        above: str | None,
        level: str,
    ) -> _Cut:
        units = geography.units(level)
        scalars = sum(item.query.cells for item in plan.at(level))
        most = max(1, min(_VALUES // scalars, math.ceil(units / _TASKS)))
        if above is None:
            # At the top each unit is on its own, unless public facts tie units together.
            parents = np.zeros(units, np.int64) if facts.groups else np.arange(units)
            step = units if facts.groups else most
            ranges = [(start, min(start + step, units)) for start in range(0, units, step)]
        else:
            parents = geography.ancestors(level, above)
            ranges = geography.batches(level, most, above)
        return cls(geography, facts, totals, above, level, parents, ranges)

    def task(self, number: int) -> Task:
        """Return one task; what it holds is its own, so that it travels light."""
        start, stop = self.ranges[number]
        held = self.parents[start:stop]
        codes = None
        if self.above is not None:
            codes = self.geography.own_geocodes(self.above, int(held[0]), int(held[-1]) + 1)
        return Task(
            self.level,
            self.above,
            start,
            stop,
            held,
            self.facts.slice(start, stop),
            None if self.totals is None else self.totals.slice(start, stop),
            self.geography.own_geocodes(self.level, start, stop),
            codes,
        )


def _with_sums(
    levels: dict[str, Histograms], plan: Plan, geography: Geography, place: Workplace
) -> dict[str, Histograms]:
    """Add the levels that were not measured: each is the sum of the one below."""
    result: dict[str, Histograms] = {}
    below: str | None = None
    for level in reversed(plan.levels):
        if level in levels:
            result[level] = levels[level]
        elif below is not None:
            parents = geography.ancestors(below, level)
            sums = roll_up(result[below], parents, plan.schema.cells)
            result[level] = store(sums, geography.units(level), place.folder)
        below = level if level in result else below
    return {level: result[level] for level in plan.levels if level in result}


def _identity(measurements: Measurements, plan: Plan, geography: Geography) -> dict[str, Any]:
    """Return what decides the estimates: measurements, plan, places and public files, by hashes."""
    stated = manifest.read(measurements.folder)
    places = hashlib.sha256()
    for parents in geography.parents:
        places.update(np.ascontiguousarray(parents).data)
    return {
        "format": _FORMAT,
        "release": stated["release"],
        "measurements": {
            level: stated["files"][f"{FOLDER}/{level}.parquet"]["sha256"]
            for level in plan.measured_levels
        },
        "plan": plan.digest,
        "places": places.hexdigest(),
        "facts": {name: storage.sha256(path) for name, path in plan.public_files.items()},
    }
