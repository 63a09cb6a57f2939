"""The only door: confidential data go in, something safe comes out, and the ledger is charged once.

There are two kinds of release of counts. `take` turns them into noisy measurements, and `draw` into one
table that agrees with public totals. Each defines how it draws, seals and publishes; `release_once`
carries it through, as it does a mean or a regression (`one_estimate.py`).
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from countveil.base import storage
from countveil.base.numerics import Array, IntArray
from countveil.base.randomness import BitSource
from countveil.congenial.mechanism.wasserstein import Wasserstein, draw_exactly
from countveil.engines.counts import Counts
from countveil.engines.workers import Workers, hired
from countveil.errors import FolderError, InputError
from countveil.measure import manifest, one_table
from countveil.measure.batch_sizes import USUAL_SIZES, BatchSizes
from countveil.measure.digest import parts_digest, public_digest, rows_digest, seal_of
from countveil.measure.draw_tasks import DrawJob, DrawTask, add_counts, digest_of
from countveil.measure.measurements import (
    DRAWN,
    FOLDER,
    INVARIANTS,
    Measurements,
    in_layout,
    invariant_levels,
    open_writer,
    path_of,
)
from countveil.measure.once import Restart, ledger_for, refuse_without_ledger, release_once
from countveil.measure.one_table import (
    as_columns,
    cost_of,
    describe_one_table,
    guarantee_of,
    mechanism_of,
    public_hash,
    publish_one_table,
    read_table,
    seal_of_part,
)
from countveil.measure.progress import Progress, silent
from countveil.measure.run import SIMULATION, Identity, Run, release_of
from countveil.plan.geography import Geography, write_crosswalk
from countveil.plan.one_table_plan import OneTablePlan
from countveil.plan.plan_basis import GEOGRAPHY
from countveil.plan.plans import CONSTRAINTS, AnyPlan, Plan
from countveil.privacy.ledger import Ledger


def take(
    counts: Counts,
    plan: Plan,
    *,
    rng: BitSource,
    ledger: str | Path | Ledger | None,
    to: str | Path,
    check: Check | None = None,
    workers: int | Workers = 1,
    progress: Progress = silent,
    restart: Restart | None = None,
    sizes: BatchSizes = USUAL_SIZES,
) -> Measurements:
    """Measure every query of a plan for every unit, once, and write the release folder.

    The charge is durable before any noise is drawn. Parts that were drawn survive a crash, and the same
    call, made again, finishes the same release.

    It charges for measurements alone. `countveil.release` does everything: it also judges the risk of
    the plan, tries its tables on simulated people before the charge, and makes them.

    Parameters
    ----------
    counts
        Tabulated for the plan by an engine.
    plan
        A plan of counts.
    rng, ledger
        `Secure()` and a ledger for a release; `Seeded` noise needs no ledger and is a simulation.
    to
        The public folder.
    check
        Called with the plan and the exact counts of its invariants before a new run is charged; raises
        if it should not be. A plan with method "top-down" is not charged without one:
        `pipeline.refuse_unfinishable` checks that its tables can be made.
    workers
        A number of processes, or the workers of an engine.
    progress
        Called with the stage, the level, the number of units done and the number of units.
    restart
        If given, an unfinished run is set aside first.
    sizes
        How much is drawn at a time.

    Returns
    -------
    Measurements
        The published measurements.

    Examples
    --------
    >>> from countveil import Plan, Seeded, measure, open_engine
    >>> plan = Plan.load("plan.toml")
    >>> counts = open_engine("local").tabulate(plan)  # confidential
    >>> noisy = measure.take(counts, plan, rng=Seeded(7), ledger=None, to="simulation")
    >>> noisy.read("block", "TOTAL").mechanism  # the law of the noise travels with the values
    DiscreteGaussian(sigma2=Fraction(10, 1))

    """
    folder = Path(to)
    _refuse_other_counts(counts, plan)
    refuse_without_ledger(ledger, rng)
    if check is None and plan.method != "none" and not rng.reproducible:
        raise InputError(
            f'{plan.name}: the plan makes tables (method = "{plan.method}"), and measure.take does not '
            f"know whether they can be made; use countveil.release, which finds out before it charges, "
            f"or pass check=pipeline.refuse_unfinishable"
        )
    book = ledger_for(plan, ledger)
    for level in plan.levels:
        _refuse_large_families(counts, plan, level, sizes)
    for path in plan.public_files.values():
        if not path.is_file():
            raise InputError(
                f"{path}: no such file, but a constraint of the plan names it; restore the file"
            )
    layout = f"{manifest.FORMAT}, sealed parts of {sizes.values_to_draw} values"
    identity = Identity(plan.measuring_digest, counts.geography.sha256, rng.description, layout)
    manifest.refuse_unwritable(plan, _described(SIMULATION, counts, plan, rng, identity))
    if check is not None and (restart is not None or release_of(folder) is None):
        check(plan, declared_counts(counts, plan))
    with hired(workers) as team:
        team.reach(_nearest(folder))  # before anything is charged
        release_once(
            folder,
            identity,
            counts.keyed_hash,
            None if book is None else (book, plan.cost),
            title=plan.title,
            draw=lambda run: _draw(run, counts, plan, rng, team, progress, sizes),
            digest=lambda run: _seal(run, counts, plan, identity, sizes),
            publish=lambda run: _publish(run, counts, plan, rng, identity, sizes),
            restart=restart,
        )
    return _read(folder, plan, counts.geography)


def _refuse_other_counts(counts: Counts, plan: AnyPlan) -> None:
    if counts.counted_as != plan.counting_digest:
        raise InputError("the counts were tabulated for another plan; tabulate them for this one")


def _draw(
    run: Run,
    counts: Counts,
    plan: Plan,
    rng: BitSource,
    workers: Workers,
    progress: Progress,
    sizes: BatchSizes,
) -> None:
    """Draw the noise of every cell of every unit of every level, including empty cells."""
    job = DrawJob(plan, rng, run.parts)
    for level in plan.levels:
        units, batches = counts.geography.units(level), _batches(counts, plan, level, sizes)
        left = [n for n in range(len(batches)) if run.parts.read(level, n) is None]
        tasks = (_task(counts, level, number, *batches[number]) for number in left)
        done = workers.map(job, tasks, large=len(left) >= sizes.parts_to_share)
        for number, _ in zip(left, done, strict=True):
            progress("measuring", level, batches[number][1], units)
    workers.rest()
    run.parts.settle()


def _task(counts: Counts, level: str, number: int, start: int, stop: int) -> DrawTask:
    unit, cell, count = (part.astype(np.int32) for part in counts.entries(level, start, stop))
    return DrawTask(
        level, number, counts.geography.own_geocodes(level, start, stop), (unit, cell, count)
    )


def _batches(counts: Counts, plan: Plan, level: str, sizes: BatchSizes) -> list[tuple[int, int]]:
    scalars = sum(item.query.cells for item in plan.at(level))
    if scalars == 0:
        return []
    return counts.geography.batches(level, max(1, sizes.values_to_draw // scalars))


def _refuse_large_families(counts: Counts, plan: Plan, level: str, sizes: BatchSizes) -> None:
    scalars = sum(item.query.cells for item in plan.at(level))
    most = max((stop - start for start, stop in _batches(counts, plan, level, sizes)), default=0)
    if most * scalars >= 2**31:
        raise InputError(
            f"{plan.name}: one parent has {most:,} units of level {level} with {scalars:,} values "
            f"each, more than 2**31 in total; add a level in between, or remove queries"
        )


def _seal(
    run: Run, counts: Counts, plan: Plan, identity: Identity, sizes: BatchSizes
) -> str | None:
    """Return the seal of all draws and public facts, None while a draw is missing."""
    places = [
        (level, number)
        for level in plan.measured_levels
        for number in range(len(_batches(counts, plan, level, sizes)))
    ]
    if not all(run.parts.has(level, number) for level, number in places):
        return None
    drawn = parts_digest((level, digest_of(_part(run, level, number))) for level, number in places)
    facts = (
        (f"{INVARIANTS}/{level}", rows_digest(table, DRAWN))
        for level in invariant_levels(plan)
        for table in _invariants(counts, plan, level, sizes)
    )
    return seal_of(drawn, public_digest(counts.geography, identity.crosswalk, facts))


def _part(run: Run, level: str, number: int) -> bytes:
    part = run.parts.read(level, number)
    if part is None:
        raise FolderError(
            f"{run.internal}: part {number} of level {level} is missing; restore it from a backup"
        )
    return part


def _publish(
    run: Run, counts: Counts, plan: Plan, rng: BitSource, identity: Identity, sizes: BatchSizes
) -> None:
    """Join the parts into one file per level, write the invariants, and last the manifest."""
    files = []
    for name in (FOLDER, INVARIANTS) if plan.invariants else (FOLDER,):
        storage.make_folder(run.folder / name)
        storage.sweep(run.folder / name)
    storage.sweep(run.folder)
    with storage.replacing(run.folder / GEOGRAPHY) as temporary:
        write_crosswalk(temporary, counts.geography)
    files.append(GEOGRAPHY)
    for name, path in plan.public_files.items():
        storage.make_folder((run.folder / name).parent)
        storage.write_bytes(run.folder / name, path.read_bytes())
        files.append(name)
    storage.keep_only(run.folder / CONSTRAINTS, [Path(name).name for name in plan.public_files])
    for level in plan.levels:
        batches = _batches(counts, plan, level, sizes)
        if not batches:
            continue
        path = path_of(run.folder, level)
        with storage.replacing(path) as temporary, open_writer(temporary) as writer:
            for number in range(len(batches)):
                table = pq.read_table(pa.BufferReader(_part(run, level, number)))
                writer.write_table(table, row_group_size=table.num_rows)
        files.append(f"{FOLDER}/{level}.parquet")
    for level in invariant_levels(plan):
        path = run.folder / INVARIANTS / f"{level}.parquet"
        with storage.replacing(path) as temporary, open_writer(temporary) as writer:
            for table in _invariants(counts, plan, level, sizes):
                writer.write_table(table, row_group_size=table.num_rows)
        files.append(f"{INVARIANTS}/{level}.parquet")
    document = _described(run.release, counts, plan, rng, identity)
    document["files"] = manifest.list_files(run.folder, files)
    storage.write_json(run.folder / manifest.NAME, document)


def _described(
    release: str, counts: Counts, plan: Plan, rng: BitSource, identity: Identity
) -> dict[str, Any]:
    return manifest.describe(
        plan,
        {level: counts.geography.units(level) for level in plan.levels},
        release=release,
        randomness=rng.description,
        publishable=not rng.reproducible,
        crosswalk_sha256=identity.crosswalk,
    )


def _invariants(counts: Counts, plan: Plan, level: str, sizes: BatchSizes) -> Iterator[pa.Table]:
    """Yield the exact invariants of a level, some units at a time; their variance is 0."""
    queries = [item.query for item in plan.invariants if item.level == level]
    scalars = sum(query.cells for query in queries)
    for start, stop in counts.geography.batches(level, max(1, sizes.values_to_draw // scalars)):
        entries = counts.entries(level, start, stop)
        parts = []
        for query in queries:
            values = np.zeros((stop - start, query.cells), np.int64)
            add_counts(values, query, entries)
            parts.append((query.name, values, 0.0))
        yield in_layout(counts.geography.geocodes(level, start, stop), parts)


def _nearest(folder: Path) -> Path:
    """Return the lowest existing folder above a release."""
    return next(path for path in folder.absolute().parents if os.path.isdir(path))


def _read(folder: Path, plan: Plan, geography: Geography) -> Measurements:
    mechanisms = {(item.level, item.query.name): item.mechanism for item in plan.allocations}
    units = {level: geography.units(level) for level in plan.levels}
    return Measurements(folder, plan, mechanisms, units)


# The counts of invariants, available before anything is charged: they will be published exactly, so
# contradictions with other public facts can be found before a release is paid for.


@dataclass(frozen=True, eq=False, slots=True)
class DeclaredCounts:
    """Exact counts of the invariants of a plan, by level and query; nothing else about the records."""

    values: dict[tuple[str, str], IntArray]

    def invariant(self, level: str, query: str) -> IntArray:
        """Return the exact counts of an invariant, for all units of a level."""
        return self.values[level, query]


Check = Callable[[Plan, DeclaredCounts], None]


def declared_counts(counts: Counts, plan: Plan) -> DeclaredCounts:
    """Return the exact counts of the invariants of a plan, as they will be published.

    Parameters
    ----------
    counts
        Tabulated for the plan by an engine.
    plan
        A plan of counts.

    Returns
    -------
    DeclaredCounts
        The counts of each invariant, for all units of its level; nothing else about the records.

    """
    values = {}
    for item in plan.invariants:
        units = counts.geography.units(item.level)
        table = np.zeros((units, item.query.cells), np.int64)
        add_counts(table, item.query, counts.entries(item.level, 0, units))
        values[item.level, item.query.name] = table
    return DeclaredCounts(values)


# One table that agrees with public totals.


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class _ExactTable:
    """The confidential table: (units, 1 or 2)."""

    table: IntArray
    geography: Geography

    def __repr__(self) -> str:
        return f"<a confidential table of {len(self.table)} units>"

    def keyed_hash(self, key: bytes) -> str:
        """Return a keyed hash, by which only the owner can see whether records changed."""
        data = b"countveil table 1" + np.ascontiguousarray(self.table).tobytes()
        return hmac.new(key, data, hashlib.sha256).hexdigest()

    def totals(self, plan: OneTablePlan) -> IntArray | None:
        """Return the totals that the plan declares public, or None."""
        if plan.fixed is None:
            return None
        above = self.geography.ancestors(plan.level, plan.fixed)
        return np.bincount(above, self.table[:, 0]).astype(np.int64)


def totals_of(plan: OneTablePlan, counts: Counts) -> IntArray | None:
    """Return the totals that the plan declares public.

    Parameters
    ----------
    plan
        A plan of one table.
    counts
        Tabulated for the plan by an engine.

    Returns
    -------
    IntArray or None
        The total of each unit of `plan.fixed`, in the order of the crosswalk; None if the plan
        declares no total public.

    """
    return None if plan.fixed is None else _summed(counts, plan.fixed, None)


def draw(
    mechanism: Wasserstein,
    counts: Counts | Array,
    plan: OneTablePlan,
    *,
    rng: BitSource,
    ledger: str | Path | Ledger | None,
    to: str | Path,
    progress: Progress = silent,
    restart: Restart | None = None,
) -> IntArray:
    """Draw the table of a plan, once, and write the release folder.

    The charge is durable before anything is drawn. The same call, made again, finishes the same
    release.

    Parameters
    ----------
    mechanism
        The mechanism that the plan states, from `mechanism_of`; another one is refused.
    counts
        Tabulated for the plan, or a table with one row per unit in the order of the crosswalk.
    plan
        A plan of one table.
    rng, ledger
        `Secure()` and a ledger for a release; `Seeded` noise needs no ledger and is a simulation.
    to
        The public folder.
    progress
        Called with the stage, the level, the number of units done and the number of units.
    restart
        If given, an unfinished run is set aside first.

    Returns
    -------
    IntArray
        The released counts: shape (units,), or (units, 2) with a part.

    """
    folder, exact = Path(to), _exact_table(counts, plan)
    if mechanism != mechanism_of(plan, exact.totals(plan), exact.geography):
        raise InputError(
            f"mechanism: {mechanism!r} is not that of {plan.name} for these counts; build it with "
            f"the same budget, loss, totals and previous counts, or use `countveil release`"
        )
    refuse_without_ledger(ledger, rng)
    targets = exact.table if mechanism.deaths else exact.table[:, 0]
    guarantee = guarantee_of(plan, mechanism)
    # Refuse before the charge what cannot be drawn; a finished release is not drawn again.
    finished = (folder / manifest.NAME).exists()
    prepared = None if finished else mechanism.prepared(targets)
    book = ledger_for(plan, ledger)
    previous = None if mechanism.prior is None else mechanism.prior.previous
    identity = Identity(
        public_hash(plan.digest, previous), exact.geography.sha256, rng.description, manifest.FORMAT
    )
    manifest.refuse_unwritable(
        plan, describe_one_table(SIMULATION, plan, mechanism, guarantee, exact.geography, rng)
    )

    def draw_part(run: Run) -> None:
        if not run.parts.has(plan.level, 0):
            progress("drawing", plan.level, 0, len(targets))
            source = rng.for_unit(plan.level, "", one_table.FOLDER) if rng.reproducible else rng
            ready = mechanism.prepared(targets) if prepared is None else prepared
            (table,) = draw_exactly(ready, 1, source)
            sink = pa.BufferOutputStream()
            pq.write_table(as_columns(table, plan, mechanism, exact.geography), sink)
            run.parts.keep(plan.level, 0, sink.getvalue().to_pybytes())
            progress("drawing", plan.level, len(targets), len(targets))

    def seal(run: Run) -> str | None:
        return seal_of_part(run.parts.read(plan.level, 0), plan, mechanism, exact.geography)

    release_once(
        folder,
        identity,
        exact.keyed_hash,
        None if book is None else (book, cost_of(guarantee)),
        title=plan.title,
        draw=draw_part,
        digest=seal,
        publish=lambda run: publish_one_table(
            run, plan, mechanism, guarantee, exact.geography, rng
        ),
        restart=restart,
    )
    return read_table(folder, plan)


def refuse_draw(counts: Counts, plan: OneTablePlan) -> None:
    """Raise what `draw` would raise for these counts; nothing is drawn or written.

    Parameters
    ----------
    counts
        Tabulated for the plan by an engine.
    plan
        A plan of one table.

    Raises
    ------
    CountveilError
        If the counts contradict a public fact, or the ledger has too little left.

    """
    exact = _exact_table(counts, plan)
    mechanism = mechanism_of(plan, exact.totals(plan), exact.geography)
    mechanism.prepared(exact.table if mechanism.deaths else exact.table[:, 0])
    plan.ledger().check(cost_of(guarantee_of(plan, mechanism)))


def _exact_table(counts: Counts | Array, plan: OneTablePlan) -> _ExactTable:
    if isinstance(counts, Counts):
        _refuse_other_counts(counts, plan)
        columns = [_summed(counts, plan.level, None)]
        if plan.part is not None:
            columns.append(_summed(counts, plan.level, plan.part))
        return _ExactTable(np.stack(columns, axis=1), counts.geography)
    geography = plan.geography()
    table, width = np.asarray(counts), 1 if plan.part is None else 2
    if table.ndim == 1 and width == 1:
        table = table[:, None]
    expected = (geography.units(plan.level), width)
    if table.shape != expected or not np.issubdtype(table.dtype, np.integer):
        raise InputError(
            f"counts: shape {table.shape} of {table.dtype} is not allowed; {plan.name} has "
            f"{expected[0]} units of {plan.level}: give {width} whole numbers for each"
        )
    if (table < 0).any():
        raise InputError(
            f"counts: {int((table < 0).any(axis=1).sum())} units have a negative count (perhaps "
            f"corrections); fix them before releasing"
        )
    return _ExactTable(table.astype(np.int64), geography)


def _summed(counts: Counts, level: str, cells: Array | None) -> IntArray:
    """Return the total of each unit of a level, over all cells or some."""
    units = counts.geography.units(level)
    unit, cell, count = counts.entries(level, 0, units)
    inside = slice(None) if cells is None else cells[cell]
    return np.bincount(unit[inside], count[inside], minlength=units).astype(np.int64)
