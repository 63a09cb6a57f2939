"""TopDown: from the top of the tree to the bottom, family by family, by a pool of workers."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from countveil.base import storage
from countveil.base.histograms import Histograms, as_int32, roll_up, store
from countveil.base.numerics import IntArray
from countveil.base.randomness import BitSource, Secure
from countveil.engines.workers import Workers, beyond_here, hired
from countveil.errors import InputError
from countveil.measure import manifest
from countveil.measure.batch_sizes import USUAL_SIZES, BatchSizes
from countveil.measure.measurements import FOLDER, Measured, Measurements
from countveil.measure.progress import Progress, silent
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan
from countveil.plan.workload import TOTAL, Query
from countveil.postprocess.batch_files import Batch, BatchFolder
from countveil.postprocess.certificate import combine, one_family
from countveil.postprocess.estimates import Estimates
from countveil.postprocess.facts.family_facts import LevelFacts, read_facts
from countveil.postprocess.family import Family, MovableParent, solve
from countveil.postprocess.family_information import (
    FamilyInformation,
    LevelInformation,
    Observations,
    SubtreeInformation,
    tells_apart,
)
from countveil.postprocess.pass_rule import candidates
from countveil.tree.messages import UnitRun, UpwardPass
from countveil.tree.observed_levels import Observed
from countveil.tree.subtrees import (
    CellTerms,
    GroupInformation,
    Subtrees,
    SubtreeSlice,
    SubtreeSpace,
)
from countveil.tree.tree_shape import Tree
from countveil.tree.tree_values import UpwardFit

_TASKS = 16  # at least, if a level has enough families; does not depend on the number of workers
_FORMAT = "top-down 2"


@dataclass(frozen=True, eq=False, slots=True)
class SubtreesOfRelease:
    """What the subtrees of all units say, and how to translate it to cells.

    `lowest` computes it for units of the lowest level, which have nothing below them.
    """

    subtrees: Subtrees
    terms: CellTerms
    lowest: UpwardPass

    @classmethod
    def of(
        cls,
        measurements: Measured,
        plan: Plan,
        geography: Geography,
        *,
        workers: Workers | None = None,
    ) -> SubtreesOfRelease:
        """Go up the tree once, for every cell of the histogram."""
        observed = Observed.of(measurements, plan)
        up = UpwardFit.of(
            measurements, observed, Tree.of(geography), plan.schema.every_cell, workers
        )
        terms = CellTerms.of(observed, up.passes.decomposition)
        lowest = up.passes.upward(len(plan.levels) - 1, keep=True)
        return cls(Subtrees(up), terms, lowest)


def top_down(
    measurements: Measurements,
    plan: Plan,
    *,
    workers: int | Workers = 1,
    geography: Geography | None = None,
    information: Literal["tree", "level"] | None = None,
    subtrees: SubtreesOfRelease | None = None,
    work: str | Path | None = None,
    rng: BitSource | None = None,
    progress: Progress = silent,
    sizes: BatchSizes = USUAL_SIZES,
) -> Estimates:
    """Turn measurements into consistent non-negative integers, level by level from the top.

    Parameters
    ----------
    measurements : Measurements
        The noisy measurements of a release.
    plan : Plan
        The plan they were measured by; only its post-processing, constraints and structural zeros may
        differ.
    workers : int or Workers
        The number of processes on this machine, or the workers of an engine.
    geography : Geography, optional
        The plan's crosswalk, read from its file by default.
    information : {"tree", "level"}, optional
        What each family is solved with: the measurements of its children and of everything below them,
        or of the children alone. By default as the plan says.
    subtrees : SubtreesOfRelease, optional
        What subtrees say, if that was computed already.
    work : path, optional
        A folder that keeps finished batches, so that an interrupted run resumes. A temporary folder by
        default.
    rng : BitSource, optional
        Randomness for unbiased rounding; the operating system's by default.
    progress : Progress
        Called after each batch.
    sizes : BatchSizes
        How much is solved at a time.

    Returns
    -------
    Estimates
        The counts of every level, with their certificates.

    Examples
    --------
    >>> from countveil import Plan, Seeded, measure, open_engine, postprocess
    >>> plan = Plan.load("plan.toml")
    >>> counts = open_engine("local").tabulate(plan)
    >>> noisy = measure.take(counts, plan, rng=Seeded(7), ledger=None, to="simulation")
    >>> estimates = postprocess.top_down(noisy, plan)
    >>> estimates.consistency_gap()  # parts add up to wholes
    0

    """
    refuse_other_measurements(measurements.folder, plan, measurements.plan)
    if work is None:
        # The folder is deleted at the end; files mapped from it live as long as the result.
        with tempfile.TemporaryDirectory(prefix="countveil-") as folder:
            return top_down(
                measurements,
                plan,
                workers=workers,
                geography=geography,
                information=information,
                subtrees=subtrees,
                work=folder,
                rng=rng,
                progress=progress,
                sizes=sizes,
            )
    geography = plan.geography() if geography is None else geography
    if information is not None:
        plan = dataclasses.replace(plan, information=information)
    batches = BatchFolder(Path(work))
    batches.begin(_identity(measurements, plan, geography))
    # Workers run in folders of their own, so files are named by their full paths.
    measured = dataclasses.replace(measurements, folder=measurements.folder.absolute())
    job = DescentJob(measured, plan, batches.folder.absolute(), rng)
    return descend(
        job, geography, subtrees=subtrees, workers=workers, progress=progress, sizes=sizes
    )


def descend(
    job: DescentJob,
    geography: Geography,
    *,
    subtrees: SubtreesOfRelease | None = None,
    workers: int | Workers = 1,
    progress: Progress = silent,
    sizes: BatchSizes = USUAL_SIZES,
) -> Estimates:
    """Solve the families of every level, from the top, resuming from the job's folder of batches."""
    plan, folder = job.plan, BatchFolder(job.work)
    visited = plan.measured_levels
    facts = read_facts(plan, geography, job.measurements)
    levels: dict[str, Histograms] = {}
    certificates = []
    # Families are small: more threads for one of them cost more than they gain.
    with threadpool_limits(1), hired(workers) as team:
        team.reach(folder.folder)
        information: str = plan.information
        if subtrees is None and _looks_below(plan):
            try:
                subtrees = SubtreesOfRelease.of(
                    job.measurements, plan, geography, workers=beyond_here(team)
                )
            except InputError as error:  # more than the tree can hold
                information = f"level: {error}"
                plan = dataclasses.replace(plan, information="level")
                job = dataclasses.replace(job, plan=plan)
        if subtrees is not None:
            lowest = None if _told_apart(plan, visited[-1]) else subtrees.lowest
            job = dataclasses.replace(job, terms=subtrees.terms, lowest=lowest)
        unchanged = True  # whether the level above is as it was when this level was estimated
        for above, level in zip([None, *visited], visited, strict=False):
            if not unchanged:
                folder.forget(level)
            finished = folder.finished(level)
            cut = _Cut.of(plan, geography, facts[level], subtrees, above, level, sizes)
            left = range(len(finished), len(cut.ranges))
            unchanged = unchanged and not left
            large = geography.units(level) >= sizes.units_to_share and len(left) > 1
            batches = team.map(job, map(cut.task, left), large=large)
            for number, batch in zip(left, batches, strict=True):
                folder.append(level, batch)
                finished.append(batch.certificate)
                progress("estimating", level, cut.ranges[number][1], geography.units(level))
            levels[level] = folder.read(level)
            certificates.append(combine(level, finished))
        team.rest()
    for number, certificate in enumerate(certificates):
        if certificate.moved_parents:  # then the levels above are sums of this one
            for level in visited[:number]:
                levels.pop(level, None)
    complete = _with_sums(levels, plan, geography, folder)
    return Estimates(job.plan, geography, complete, tuple(certificates), information)


def refuse_other_measurements(folder: Path, plan: Plan, measured: Plan) -> None:
    """Refuse a plan under which something else would have been measured."""
    if plan.measuring_digest != measured.measuring_digest:
        raise InputError(
            f"{folder}: was measured under another plan; the two may differ only in [postprocess], "
            f"[[constraints]] and [[structural_zeros]]"
        )


@dataclass(frozen=True, eq=False, slots=True)
class Task:
    """Some whole families of a level: units start … stop - 1, and the parent of each unit."""

    level: str
    above: str | None
    start: int
    stop: int
    parents: IntArray
    facts: LevelFacts
    below: SubtreeSlice | UnitRun | None
    geocodes: pa.StringArray
    parent_codes: pa.StringArray | None


@dataclass(frozen=True, eq=False, slots=True)
class DescentJob:
    """What all tasks of a descent share; it is sent to each worker once.

    With `needed`, which says for each level which units are, families with no such unit are left empty.
    The units above one that is needed must be needed, too, and public facts may hold at the top alone:
    others can move a parent to its children.
    """

    measurements: Measured
    plan: Plan
    work: Path
    rng: BitSource | None
    terms: CellTerms | None = None
    lowest: UpwardPass | None = None
    needed: Mapping[str, NDArray[np.bool_]] | None = None

    def run(self, task: Task) -> Batch:
        """Solve the families of a task."""
        needed = np.ones(task.stop - task.start, bool)
        if self.needed is not None:
            needed = self.needed[task.level][task.start : task.stop]
        if not needed.any():
            none = np.zeros(0, np.int32)
            return Batch(np.zeros(len(needed), np.int64), none, none, combine(task.level, []))
        about = self._information(task)
        above = None if task.above is None else BatchFolder(self.work).read(task.above)
        possible = np.flatnonzero(self.plan.possible)
        pushable = candidates(self.plan, task.level, top=above is None)
        lengths = np.zeros(task.stop - task.start, np.int64)
        cells, counts, certificates = [], [], []
        ends = np.append(np.flatnonzero(np.diff(task.parents)) + 1, len(task.parents))
        for first, last in pairwise([0, *ends.tolist()]):
            if not needed[first:last].any():
                continue
            name = task.geocodes[first].as_py()
            cells_here, parent = possible, None
            if above is not None and task.parent_codes is not None:
                number = int(task.parents[first])
                _, cells_here, parent = above.entries(number, number + 1)
                name = task.parent_codes[number - int(task.parents[0])].as_py()
            family = Family(
                name=f"{task.above or task.level} {name}",
                children=task.geocodes.slice(first, last - first).to_pylist(),
                cells=cells_here,
                parent=parent,
                information=about(first, last, cells_here),
                limits=task.facts.limits(first, last, cells_here, parent),
                label=self._label,
                keep=kept_queries(self.plan, task.level),
                first=pushable,
                movable_parent=partial(
                    movable_parent, self.plan, task.level, possible, task.facts, first, last
                ),
            )
            rng = self._rng(task.level, name)
            solved = solve(family, self.plan.passes[task.level], rng=rng)
            child, cell = np.nonzero(solved.counts)
            lengths[first:last] = np.bincount(child, minlength=last - first)
            cells.append(solved.cells[cell].astype(np.int32))
            counts.append(as_int32(solved.counts[child, cell]))
            certificates.append(one_family(task.level, solved.certificate))
        return Batch(
            lengths,
            np.concatenate(cells),
            np.concatenate(counts),
            combine(task.level, certificates),
        )

    def _information(self, task: Task) -> Callable[[int, int, IntArray], FamilyInformation]:
        """Return what gives the information about units first … last - 1 of a task, over some cells."""
        below, terms = task.below, self.terms
        if isinstance(below, UnitRun):
            assert self.lowest is not None
            below = lowest_slice(self.lowest, below)
        if below is not None and terms is not None and self.plan.information == "tree":
            return lambda first, last, cells: SubtreeInformation(
                terms, below.part(first, last), cells
            )
        observed = Observations.of(self.measurements, task.level)
        values = self.measurements.units(task.level, task.start, task.stop)
        totals = None
        if below is not None and terms is not None:
            known = terms.groups(below, self.plan.schema.query(TOTAL))
            if known is not None:
                totals = GroupInformation(known.estimate, known.covariance[below.shape_of])

        def of_level(first: int, last: int, cells: IntArray) -> FamilyInformation:
            mine = None
            if totals is not None:
                mine = GroupInformation(totals.estimate[first:last], totals.covariance[first:last])
            return LevelInformation.of(observed, cells, values[first:last], mine)

        return of_level

    def _label(self, cells: IntArray) -> str:
        """Return the categories of some cells of the full histogram, in words."""
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


def kept_queries(plan: Plan, level: str) -> tuple[Query, ...]:
    """Return the queries that rounding keeps at a level: those measured there and those of tables."""
    queries = [item.query for item in plan.at(level)] + [table.query for table in plan.tables]
    # Every entry is rounded to the next integer anyway.
    return tuple(dict.fromkeys(query for query in queries if query.cells < plan.schema.cells))


def movable_parent(
    plan: Plan, level: str, possible: IntArray, facts: LevelFacts, first: int, last: int
) -> MovableParent | None:
    """Return what a family needs if its facts leave no table that adds up to its parent.

    None if it has no facts that could.
    """
    if not facts.bounds and not facts.groups:
        return None
    higher = plan.levels[: plan.levels.index(level)]
    kept = [item.query for item in plan.invariants if item.level in higher]
    kept += [item.query for item in plan.constraints if item.level in higher]
    limits = facts.limits(first, last, possible, None)
    return MovableParent(possible, limits, tuple(dict.fromkeys(kept)))


@dataclass(frozen=True, eq=False, slots=True)
class _Cut:
    """A level cut into ranges of whole families, and everything its tasks need a slice of."""

    geography: Geography
    facts: LevelFacts
    below: SubtreesOfRelease | None
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
        subtrees: SubtreesOfRelease | None,
        above: str | None,
        level: str,
        sizes: BatchSizes,
    ) -> _Cut:
        units = geography.units(level)
        scalars = sum(item.query.cells for item in plan.at(level))
        most = max(1, min(sizes.values_to_solve // scalars, math.ceil(units / _TASKS)))
        if above is None:
            # At the top each unit is solved by itself, unless public facts tie units together.
            parents = np.zeros(units, np.int64) if facts.groups else np.arange(units)
            step = units if facts.groups else most
            ranges = [(start, min(start + step, units)) for start in range(0, units, step)]
        else:
            parents = geography.ancestors(level, above)
            ranges = geography.batches(level, most, above)
        below = subtrees if from_below(plan, level) else None
        return cls(geography, facts, below, above, level, parents, ranges)

    def task(self, number: int) -> Task:
        """Return one task, with copies of its slices only, so that it is cheap to send."""
        start, stop = self.ranges[number]
        parents = self.parents[start:stop]
        codes = None
        if self.above is not None:
            first, last = int(parents[0]), int(parents[-1])
            codes = self.geography.own_geocodes(self.above, first, last + 1)
        return Task(
            self.level,
            self.above,
            start,
            stop,
            parents,
            self.facts.slice(start, stop),
            self._below(start, stop),
            self.geography.own_geocodes(self.level, start, stop),
            codes,
        )

    def _below(self, start: int, stop: int) -> SubtreeSlice | UnitRun | None:
        """Return what the subtrees of units say; of the lowest units, what it takes to compute it."""
        if self.below is None:
            return None
        depth = self.geography.index(self.level)
        if depth < len(self.geography.levels) - 1:
            return self.below.subtrees.slice(depth, start, stop)
        return self.below.subtrees.up.passes.unit_run(depth, None, None, start, stop)


def lowest_slice(lowest: UpwardPass, run: UnitRun) -> SubtreeSlice:
    """Return what units of the lowest level say about themselves."""
    spaces = [
        SubtreeSpace(rung.noisy, rung.known, rung.covariance, *estimate)
        for rung, estimate in zip(lowest.rungs, lowest.estimates(run), strict=True)
    ]
    return SubtreeSlice(run.kind, tuple(spaces))


def _looks_below(plan: Plan) -> bool:
    """Whether any level is estimated with what the levels below it measured."""
    return any(from_below(plan, level) for level in plan.measured_levels)


def from_below(plan: Plan, level: str) -> bool:
    """Whether a level is estimated with what its units' subtrees say.

    The lowest level has nothing below it; there the tree serves only to find what nothing measures.
    """
    if plan.information == "tree":
        return level != plan.measured_levels[-1] or not _told_apart(plan, level)
    passes = plan.passes[level]
    return passes.look_below and any(query.name == TOTAL for query in passes.first)


def _told_apart(plan: Plan, level: str) -> bool:
    """Whether some query of a level counts every possible cell separately."""
    queries = [item.query for item in plan.at(level)]
    observed = Observations.of_queries(queries, [1.0] * len(queries))
    return tells_apart(observed.scalars_of(np.flatnonzero(plan.possible)))


def _with_sums(
    levels: dict[str, Histograms], plan: Plan, geography: Geography, folder: BatchFolder
) -> dict[str, Histograms]:
    """Add the levels that were not measured, each as the sum of the one below."""
    result: dict[str, Histograms] = {}
    below: str | None = None
    for level in reversed(plan.levels):
        if level in levels:
            result[level] = levels[level]
        elif below is not None:
            parents = geography.ancestors(below, level)
            sums = roll_up(result[below], parents, plan.schema.cells)
            result[level] = store(sums, geography.units(level), folder.folder)
        below = level if level in result else below
    return {level: result[level] for level in plan.levels if level in result}


def _identity(measurements: Measurements, plan: Plan, geography: Geography) -> dict[str, object]:
    """Return hashes of what decides the estimates: measurements, plan, units and public files."""
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
        "information": plan.information,
        "places": places.hexdigest(),
        "facts": {name: storage.sha256(path) for name, path in plan.public_files.items()},
    }
