"""The only door: exact counts go in, measurements come out, and the ledger is charged once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from countveil import storage
from countveil.errors import FolderError, InputError
from countveil.measure import manifest
from countveil.measure.digest import parts_digest, public_digest, rows_digest, seal_of
from countveil.measure.drawing import DrawJob, DrawTask, add_counts, digest_of
from countveil.measure.measurement import (
    DRAWN,
    FOLDER,
    INVARIANTS,
    Measurements,
    in_layout,
    invariant_levels,
    open_writer,
    path_of,
)
from countveil.measure.progress import Progress, silent
from countveil.measure.protocol import ledger_for, once
from countveil.measure.restart import Restart
from countveil.measure.run import SIMULATION, Identity, Run
from countveil.measure.strategy import mechanism_for
from countveil.privacy.ledger import Ledger
from countveil.randomness import BitSource
from countveil.schema.geography import Geography, write_crosswalk
from countveil.schema.plan import CONSTRAINTS, GEOGRAPHY, Plan
from countveil.tabulate.counts import Counts
from countveil.workers import Workers, hired

_VALUES = 4_000_000  # noisy values held at a time, unless one family has more
_MANY = 16  # parts that are worth starting processes for


def take(
    counts: Counts,
    plan: Plan,
    *,
    rng: BitSource,
    ledger: str | Path | Ledger | None,
    to: str | Path,
    workers: int | Workers = 1,
    progress: Progress = silent,
    restart: Restart | None = None,
) -> Measurements:
    """Measure every query of the plan at every unit, once, and write the release folder.

    The charge is durable before any noise is drawn; drawn parts are kept through any crash, and
    running the same call again finishes the same release. `workers` are a number of processes, or those
    of an engine. `restart` sets an unfinished run aside first.
    """
    folder = Path(to)
    if counts.counted_as != plan.counting_digest:
        raise InputError("the counts were tabulated for another plan; tabulate this one")
    if ledger is None and not rng.reproducible:
        raise InputError("a release is charged to a ledger; name one, such as ledger.sqlite")
    book = ledger_for(plan, ledger)
    for level in plan.levels:
        _refuse_large_families(counts, plan, level)
    for path in plan.public_files.values():
        if not path.is_file():
            raise InputError(f"{path}: no such file; a constraint of the plan names it")
    layout = f"{manifest.FORMAT}, sealed parts of {_VALUES} values"
    identity = Identity(plan.measuring_digest, counts.geography.sha256, rng.description, layout)
    manifest.refuse_unwritable(plan, _described(SIMULATION, counts, plan, rng, identity))
    with hired(workers) as team:
        team.reach(_nearest(folder))  # before anything is charged
        once(
            folder,
            identity,
            counts.keyed_hash,
            None if book is None else (book, plan.cost),
            title=plan.title,
            draw=lambda run: _draw(run, counts, plan, rng, team, progress),
            digest=lambda run: _seal(run, counts, plan, identity),
            publish=lambda run: _publish(run, counts, plan, rng, identity),
            restart=restart,
        )
    return _read(folder, plan, counts.geography)


def _draw(
    run: Run, counts: Counts, plan: Plan, rng: BitSource, workers: Workers, progress: Progress
) -> None:
    """Draw all noise: every cell of every unit of every level, empty ones included."""
    job = DrawJob(plan, rng, run.parts)
    for level in plan.levels:
        units, batches = counts.geography.units(level), _batches(counts, plan, level)
        left = [n for n in range(len(batches)) if run.parts.read(level, n) is None]
        tasks = (_task(counts, level, number, *batches[number]) for number in left)
        done = workers.map(job, tasks, large=len(left) >= _MANY)
        for number, _ in zip(left, done, strict=True):
            progress("measuring", level, batches[number][1], units)
    workers.rest()
    run.parts.settle()


def _task(counts: Counts, level: str, number: int, start: int, stop: int) -> DrawTask:
    unit, cell, count = (part.astype(np.int32) for part in counts.entries(level, start, stop))
    return DrawTask(
        level, number, counts.geography.own_geocodes(level, start, stop), (unit, cell, count)
    )


def _batches(counts: Counts, plan: Plan, level: str) -> list[tuple[int, int]]:
    scalars = sum(item.query.cells for item in plan.at(level))
    if scalars == 0:
        return []
    return counts.geography.batches(level, max(1, _VALUES // scalars))


def _refuse_large_families(counts: Counts, plan: Plan, level: str) -> None:
    scalars = sum(item.query.cells for item in plan.at(level))
    most = max((stop - start for start, stop in _batches(counts, plan, level)), default=0)
    if most * scalars >= 2**31:
        raise InputError(
            f"{plan.name}: one parent has {most:,} units of level {level} with {scalars:,} values "
            f"each, more than 2**31 together; add a level between, or drop queries"
        )


def _seal(run: Run, counts: Counts, plan: Plan, identity: Identity) -> str | None:
    """Return the seal of all draws and of the public facts, None while a draw is missing."""
    places = [
        (level, number)
        for level in plan.measured_levels
        for number in range(len(_batches(counts, plan, level)))
    ]
    if not all(run.parts.has(level, number) for level, number in places):
        return None
    drawn = parts_digest((level, digest_of(_part(run, level, number))) for level, number in places)
    facts = (
        (f"{INVARIANTS}/{level}", rows_digest(table, DRAWN))
        for level in invariant_levels(plan)
        for table in _invariants(counts, plan, level)
    )
    return seal_of(drawn, public_digest(counts.geography, identity.crosswalk, facts))


def _part(run: Run, level: str, number: int) -> bytes:
    part = run.parts.read(level, number)
    if part is None:
        raise FolderError(f"{run.internal}: part {number} of level {level} is gone")
    return part


def _publish(run: Run, counts: Counts, plan: Plan, rng: BitSource, identity: Identity) -> None:
    """Join the parts into one file a level, write invariants, and the manifest last."""
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
        batches = _batches(counts, plan, level)
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
            for table in _invariants(counts, plan, level):
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


def _invariants(counts: Counts, plan: Plan, level: str) -> Iterator[pa.Table]:
    """Yield the declared public counts of a level, exact, some units at a time; their variance is 0."""
    queries = [item.query for item in plan.invariants if item.level == level]
    scalars = sum(query.cells for query in queries)
    for start, stop in counts.geography.batches(level, max(1, _VALUES // scalars)):
        entries = counts.entries(level, start, stop)
        parts = []
        for query in queries:
            values = np.zeros((stop - start, query.cells), np.int64)
            add_counts(values, query, entries)
            parts.append((query.name, values, 0.0))
        yield in_layout(counts.geography.geocodes(level, start, stop), parts)


def _nearest(folder: Path) -> Path:
    """Return the lowest folder on the way to a release that is there already."""
    return next(path for path in folder.absolute().parents if os.path.isdir(path))


def _read(folder: Path, plan: Plan, geography: Geography) -> Measurements:
    mechanisms = {(item.level, item.query.name): mechanism_for(item) for item in plan.allocations}
    units = {level: geography.units(level) for level in plan.levels}
    return Measurements(folder, plan, mechanisms, units)
