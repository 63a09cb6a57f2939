"""The only door: exact counts go in, measurements come out, and the ledger is charged once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from countveil import storage
from countveil.errors import FolderError, InputError
from countveil.measure import manifest
from countveil.measure.measurement import (
    FOLDER,
    INVARIANTS,
    Measurements,
    in_layout,
    open_writer,
    path_of,
)
from countveil.measure.protocol import once
from countveil.measure.run import Identity, Run
from countveil.measure.strategy import mechanism_for
from countveil.numerics import IntArray
from countveil.privacy.ledger import Ledger
from countveil.randomness import BitSource
from countveil.schema.geography import write_crosswalk
from countveil.schema.plan import CONSTRAINTS, GEOGRAPHY, Plan
from countveil.schema.workload import Query
from countveil.tabulate.counts import Counts

_VALUES = 4_000_000  # noisy values held at a time, unless one family has more

Progress = Callable[[str, str, int, int], None]  # stage, level, units done, units


def silent(stage: str, level: str, done: int, units: int) -> None:
    """Show no progress."""


def take(
    counts: Counts,
    plan: Plan,
    *,
    rng: BitSource,
    ledger: str | Path | Ledger | None,
    to: str | Path,
    progress: Progress = silent,
) -> Measurements:
    """Measure every query of the plan at every unit, once, and write the release folder.

    The charge is durable before any noise is drawn; drawn parts are kept through any crash, and
    running the same call again finishes the same release.
    """
    folder = Path(to)
    if counts.counted_as != plan.counting_digest:
        raise InputError("the counts were tabulated for another plan; tabulate this one")
    if ledger is None and not rng.reproducible:
        raise InputError("a release is charged to a ledger; name one, such as ledger.sqlite")
    book = plan.ledger(ledger) if isinstance(ledger, str | Path) else ledger
    for level in plan.levels:
        _refuse_large_families(counts, plan, level)
    for path in plan.public_files.values():
        if not path.is_file():
            raise InputError(f"{path}: no such file; a constraint of the plan names it")
    layout = f"{manifest.FORMAT}, parts of {_VALUES} values"
    identity = Identity(plan.measuring_digest, counts.geography.sha256, rng.description, layout)
    once(
        folder,
        identity,
        counts.keyed_hash,
        None if book is None else (book, plan.cost),
        title=plan.title,
        draw=lambda run: _draw(run, counts, plan, rng, progress),
        publish=lambda run: _publish(run, counts, plan, rng, identity),
    )
    return _read(folder, plan)


def _draw(run: Run, counts: Counts, plan: Plan, rng: BitSource, progress: Progress) -> None:
    """Draw all noise: every cell of every unit of every level, empty ones included."""
    for level in plan.levels:
        units = counts.geography.units(level)
        for number, (start, stop) in enumerate(_batches(counts, plan, level)):
            if run.part(level, number) is None:
                table = _noisy(counts, plan, level, start, stop, rng)
                sink = pa.BufferOutputStream()
                with open_writer(sink) as writer:
                    writer.write_table(table, row_group_size=table.num_rows)
                run.add_part(level, number, sink.getvalue().to_pybytes())
            progress("measuring", level, stop, units)


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


def _noisy(
    counts: Counts, plan: Plan, level: str, start: int, stop: int, rng: BitSource
) -> pa.Table:
    """Measure units start … stop - 1 of a level: noise first, then the counts added to it."""
    geocodes = counts.geography.geocodes(level, start, stop)
    names = geocodes.to_pylist() if rng.reproducible else ()
    entries = counts.entries(level, start, stop)
    parts = []
    for item in plan.at(level):
        mechanism, cells = mechanism_for(item), item.query.cells
        source = rng.for_units(level, names, item.query.name)
        values = mechanism.sample((stop - start) * cells, rng=source).reshape(-1, cells)
        _add_counts(values, item.query, entries)
        parts.append((item.query.name, values, mechanism.variance))
    return in_layout(geocodes, parts)


def _add_counts(
    values: IntArray, query: Query, entries: tuple[IntArray, IntArray, IntArray]
) -> None:
    unit, cell, count = entries
    where = query.cell_of[cell]
    counted = where >= 0
    np.add.at(values, (unit[counted], where[counted]), count[counted])


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
                part = run.part(level, number)
                if part is None:
                    raise FolderError(f"{run.internal}: part {number} of level {level} is gone")
                table = pq.read_table(part)
                writer.write_table(table, row_group_size=table.num_rows)
        files.append(f"{FOLDER}/{level}.parquet")
    for level in dict.fromkeys(item.level for item in plan.invariants):
        path = run.folder / INVARIANTS / f"{level}.parquet"
        with storage.replacing(path) as temporary:
            _write_invariants(temporary, counts, plan, level)
        files.append(f"{INVARIANTS}/{level}.parquet")
    document = manifest.describe(
        plan,
        {level: counts.geography.units(level) for level in plan.levels},
        release=run.release,
        randomness=rng.description,
        publishable=not rng.reproducible,
        crosswalk_sha256=identity.crosswalk,
    )
    document["files"] = manifest.list_files(run.folder, files)
    storage.write_json(run.folder / manifest.NAME, document)


def _write_invariants(path: Path, counts: Counts, plan: Plan, level: str) -> None:
    """Write the declared public counts of a level, exact; their variance is 0."""
    queries = [item.query for item in plan.invariants if item.level == level]
    scalars = sum(query.cells for query in queries)
    with open_writer(path) as writer:
        for start, stop in counts.geography.batches(level, max(1, _VALUES // scalars)):
            entries = counts.entries(level, start, stop)
            parts = []
            for query in queries:
                values = np.zeros((stop - start, query.cells), np.int64)
                _add_counts(values, query, entries)
                parts.append((query.name, values, 0.0))
            table = in_layout(counts.geography.geocodes(level, start, stop), parts)
            writer.write_table(table, row_group_size=table.num_rows)


def _read(folder: Path, plan: Plan) -> Measurements:
    mechanisms = {(item.level, item.query.name): mechanism_for(item) for item in plan.allocations}
    return Measurements(folder, plan, mechanisms)
