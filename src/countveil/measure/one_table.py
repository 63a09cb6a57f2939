"""The door for one table beside public information: drawn exactly, charged in its own currency."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from countveil import storage
from countveil.congenial.base_measure import DirichletMultinomial
from countveil.congenial.guarantee import PartialPrivacy, Theta
from countveil.congenial.wasserstein_mechanism import Wasserstein, draw_exactly
from countveil.errors import FolderError, InputError
from countveil.measure import manifest
from countveil.measure.digest import parts_digest, public_digest, rows_digest, seal_of
from countveil.measure.progress import Progress, silent
from countveil.measure.protocol import ledger_for, once
from countveil.measure.restart import Restart
from countveil.measure.run import SIMULATION, Identity, Run
from countveil.numerics import Array, IntArray
from countveil.privacy.beside_public import BesidePublic
from countveil.privacy.ledger import Ledger
from countveil.randomness import BitSource
from countveil.schema.geography import Geography, write_crosswalk
from countveil.schema.one_table import PREVIOUS, OneTable
from countveil.schema.parquet_footer import UNREADABLE
from countveil.schema.plan import GEOGRAPHY, Plan
from countveil.tabulate.counts import Counts

FOLDER = "counts"


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class _Exact:
    """The confidential table: (units, 1 or 2)."""

    table: IntArray
    geography: Geography

    def __repr__(self) -> str:
        return f"<a confidential table of {len(self.table)} units>"

    def keyed_hash(self, key: bytes) -> str:
        """Tell whether records changed, and only to its owner."""
        data = b"countveil table 1" + np.ascontiguousarray(self.table).tobytes()
        return hmac.new(key, data, hashlib.sha256).hexdigest()


def mechanism_of(plan: Plan, totals: IntArray | None, geography: Geography) -> Wasserstein:
    """Return the mechanism of a plan, given the public totals of the units whose totals are public."""
    wanted = _table_of(plan)
    codes = geography.geocodes(wanted.level).to_pylist()
    previous = wanted.previous_counts(codes)
    given: dict[str, Any] = {"loss": wanted.loss, "epsilon": wanted.epsilon}
    given |= {
        "people": wanted.people,
        "neighbors": plan.neighbors,
        "deaths": wanted.part is not None,
    }
    if previous is not None:
        given["prior"] = DirichletMultinomial(previous, wanted.alpha, wanted.pseudo_count)
    if wanted.base == "naive":
        given |= {"base": "naive", "halved": False}  # its normaliser is the same for all counts
    if wanted.fixed is None or totals is None:
        return Wasserstein(**given)
    if len(totals) > 1:
        given["subtotals"] = _subtotals(geography.ancestors(wanted.level, wanted.fixed), totals)
    return Wasserstein(total=int(totals.sum()), **given)


def _subtotals(above: IntArray, totals: IntArray) -> list[tuple[range, int]]:
    """Return the units in each unit of a level above, which are neighbours, and their public total."""
    ends = np.searchsorted(above, np.arange(len(totals) + 1)).tolist()
    sums = totals.tolist()
    return [(range(*ends[unit : unit + 2]), total) for unit, total in enumerate(sums)]


def theta_of(plan: Plan) -> Theta:
    """Return what a plan's promise is about: what is public, assumed, and secret."""
    wanted = _table_of(plan)
    where = "all" if wanted.fixed is None else f"his {wanted.fixed}"
    public, secrets = [], f"for each {plan.unit}, which {wanted.level} of {where} counts him"
    if plan.neighbors == "add-remove":
        secrets = f"for each {plan.unit} and {wanted.level}, whether he is counted there or nowhere"
    if wanted.fixed is not None:
        public.append(f"the TOTAL of every {wanted.fixed}, exactly, and of all above it")
    if wanted.part is not None:
        public.append(f"no {wanted.level} has more {wanted.part_name} than TOTAL")
        secrets += f", and whether as {wanted.part_name}"
    if wanted.previous is not None:
        public.append(f"the counts of every {wanted.level} in an earlier period")
    assumed = "given what is public, nobody's record tells anything of another's"
    if wanted.people > 1:
        assumed = f"given what is public, at most {wanted.people} records depend on each other"
    return Theta(tuple(public), assumed, secrets)


def guarantee_of(plan: Plan, mechanism: Wasserstein) -> PartialPrivacy:
    """Return what a release by this mechanism promises, and beside what."""
    wanted = _table_of(plan)
    return PartialPrivacy(
        mechanism.epsilon,
        theta_of(plan),
        coupling=f"{wanted.people} of {plan.unit} {plan.neighbors} within the public totals of "
        f"{wanted.fixed} {_digest(mechanism.total, mechanism.subtotals)}, all others as they are",
    )


def cost_of(guarantee: PartialPrivacy) -> BesidePublic:
    """Return what the ledger is charged for a guarantee: along its coupling, whatever is released."""
    return BesidePublic(guarantee.epsilon, guarantee.coupling_digest)


def totals_of(plan: Plan, counts: Counts) -> IntArray | None:
    """Return the totals that the plan declares public."""
    wanted = _table_of(plan)
    if wanted.fixed is None:
        return None
    return _summed(counts, wanted.fixed, None)


def draw(
    mechanism: Wasserstein,
    counts: Counts | Array,
    plan: Plan,
    *,
    rng: BitSource,
    ledger: str | Path | Ledger | None,
    to: str | Path,
    progress: Progress = silent,
    restart: Restart | None = None,
) -> IntArray:
    """Draw the table of a plan once, charge the ledger, and write the release folder; return the table.

    `counts` are tabulated for the plan, or a table of them, one row a unit in the order of the
    crosswalk's codes. The mechanism must be the one the plan says. The charge is durable before
    anything is drawn; running the same call again finishes the same release, and `restart` sets an
    unfinished one aside first.
    """
    wanted, folder = _table_of(plan), Path(to)
    exact = _exact(counts, plan)
    if mechanism != mechanism_of(plan, _totals(exact, wanted), exact.geography):
        raise InputError(
            f"mechanism: {mechanism!r} is not the one that {plan.name} says for these counts; make it "
            f"from the same budget, loss, totals and previous counts, or release with `countveil "
            f"release`"
        )
    if ledger is None and not rng.reproducible:
        raise InputError("a release is charged to a ledger; name one, such as ledger.sqlite")
    targets = exact.table if mechanism.deaths else exact.table[:, 0]
    guarantee = guarantee_of(plan, mechanism)
    # What cannot be drawn is refused here, before the charge; a finished release draws nothing more.
    finished = (folder / manifest.NAME).exists()
    prepared = None if finished else mechanism.prepared(targets)
    book = ledger_for(plan, ledger)
    decided = _digest(plan.digest, None if mechanism.prior is None else mechanism.prior.previous)
    identity = Identity(decided, exact.geography.sha256, rng.description, manifest.FORMAT)
    manifest.refuse_unwritable(
        plan, _described(SIMULATION, plan, mechanism, guarantee, exact.geography, rng)
    )

    def drawn(run: Run) -> None:
        if not run.parts.has(wanted.level, 0):
            progress("drawing", wanted.level, 0, len(targets))
            source = rng.for_unit(wanted.level, "", FOLDER) if rng.reproducible else rng
            ready = mechanism.prepared(targets) if prepared is None else prepared
            (table,) = draw_exactly(ready, 1, source)
            sink = pa.BufferOutputStream()
            pq.write_table(_as_columns(table, wanted, mechanism, exact.geography), sink)
            run.parts.keep(wanted.level, 0, sink.getvalue().to_pybytes())
            progress("drawing", wanted.level, len(targets), len(targets))

    once(
        folder,
        identity,
        exact.keyed_hash,
        None if book is None else (book, cost_of(guarantee)),
        title=plan.title,
        draw=drawn,
        digest=lambda run: _seal_of_part(
            run.parts.read(wanted.level, 0), wanted, mechanism, exact.geography
        ),
        publish=lambda run: _publish(run, plan, mechanism, guarantee, exact.geography, rng),
        restart=restart,
    )
    return read_table(folder, wanted)


def refuse_draw(counts: Counts, plan: Plan) -> None:
    """Raise what `draw` would raise for these counts; draw nothing, write nothing."""
    exact = _exact(counts, plan)
    mechanism = mechanism_of(plan, _totals(exact, _table_of(plan)), exact.geography)
    mechanism.prepared(exact.table if mechanism.deaths else exact.table[:, 0])
    plan.ledger().check(cost_of(guarantee_of(plan, mechanism)))


def _totals(exact: _Exact, wanted: OneTable) -> IntArray | None:
    if wanted.fixed is None:
        return None
    above = exact.geography.ancestors(wanted.level, wanted.fixed)
    return np.bincount(above, exact.table[:, 0]).astype(np.int64)


def read_table(folder: Path, wanted: OneTable) -> IntArray:
    """Return the released counts of a folder, (units,) or (units, 2)."""
    return counts_in(read_columns(folder, wanted), wanted)


def counts_in(table: pa.Table, wanted: OneTable) -> IntArray:
    """Return the counts of a released table, (units,) or (units, 2)."""
    names = ["count"] if wanted.part is None else ["count", "part"]
    columns = [table[name].to_numpy().astype(np.int64) for name in names]
    return columns[0] if len(columns) == 1 else np.stack(columns, axis=1)


def seal_of_table(
    table: pa.Table, wanted: OneTable, mechanism: Wasserstein, geography: Geography, crosswalk: str
) -> str:
    """Return the seal that the ledger is given before a table is published.

    `crosswalk` is the SHA-256 of the file that the places were first read from.
    """
    names = ["geocode", "count"] if wanted.part is None else ["geocode", "count", "part"]
    drawn = parts_digest([(wanted.level, rows_digest(table, names))])
    previous = None if mechanism.prior is None else mechanism.prior.previous
    facts = [
        ("totals", _digest(mechanism.total, mechanism.subtotals)),
        ("previous", _digest(previous)),
    ]
    return seal_of(drawn, public_digest(geography, crosswalk, facts))


def _seal_of_part(
    part: bytes | None, wanted: OneTable, mechanism: Wasserstein, geography: Geography
) -> str | None:
    if part is None:
        return None
    table = pq.read_table(pa.BufferReader(part))
    return seal_of_table(table, wanted, mechanism, geography, geography.sha256)


def read_columns(folder: Path, wanted: OneTable) -> pa.Table:
    """Return the released table of a folder; refuse other columns, and gaps in them."""
    path = path_of(folder, wanted.level)
    try:
        table = pq.read_table(path)
    except UNREADABLE as error:
        raise InputError(
            f"{path}: cannot be read ({str(error).splitlines()[0]}); restore it as it was released"
        ) from error
    if not table.schema.equals(layout_of(wanted)) or any(
        column.null_count for column in table.columns
    ):
        raise InputError(
            f"{path}: has other columns than {', '.join(layout_of(wanted).names)}, or gaps in them; "
            f"restore it as it was released"
        )
    return table


def path_of(folder: Path, level: str) -> Path:
    """Return where the released counts are."""
    return folder / FOLDER / f"{level}.parquet"


def _table_of(plan: Plan) -> OneTable:
    if plan.one_table is None:
        raise InputError(
            f'{plan.name}: draws no table beside public information; set method = "congenial" in '
            f"[postprocess], or use measure.take"
        )
    return plan.one_table


def _exact(counts: Counts | Array, plan: Plan) -> _Exact:
    wanted = _table_of(plan)
    if isinstance(counts, Counts):
        if counts.counted_as != plan.counting_digest:
            raise InputError("the counts were tabulated for another plan; tabulate this one")
        columns = [_summed(counts, wanted.level, None)]
        if wanted.part is not None:
            columns.append(_summed(counts, wanted.level, wanted.part))
        return _Exact(np.stack(columns, axis=1), counts.geography)
    geography = plan.geography()
    found, width = np.asarray(counts), 1 if wanted.part is None else 2
    if found.ndim == 1 and width == 1:
        found = found[:, None]
    expected = (geography.units(wanted.level), width)
    if found.shape != expected or not np.issubdtype(found.dtype, np.integer):
        raise InputError(
            f"counts: a table of {found.shape} {found.dtype} came; {plan.name} has "
            f"{expected[0]} units of {wanted.level}, {width} whole numbers each"
        )
    if (found < 0).any():
        raise InputError(
            f"counts: a negative count is not allowed, and {int((found < 0).any(axis=1).sum())} units "
            f"have one (corrections?); mend them before they are released"
        )
    return _Exact(found.astype(np.int64), geography)


def _summed(counts: Counts, level: str, cells: Array | None) -> IntArray:
    """Return the counts of a level, over all cells or some."""
    units = counts.geography.units(level)
    unit, cell, count = counts.entries(level, 0, units)
    inside = slice(None) if cells is None else cells[cell]
    return np.bincount(unit[inside], count[inside], minlength=units).astype(np.int64)


def _digest(*public: Any) -> str:
    """Return a hash of public facts."""
    return hashlib.sha256(repr(public).encode()).hexdigest()


def _as_columns(
    table: IntArray, wanted: OneTable, mechanism: Wasserstein, geography: Geography
) -> pa.Table:
    counts = table.reshape(len(table), -1)
    columns: dict[str, Any] = {"geocode": geography.geocodes(wanted.level), "count": counts[:, 0]}
    if wanted.part is not None:
        columns["part"] = counts[:, 1]
    if mechanism.prior is not None:
        columns["previous"] = np.array(mechanism.prior.previous, np.int64)
    return pa.table(columns, schema=layout_of(wanted))


def layout_of(wanted: OneTable) -> pa.Schema:
    """Return the columns of the released table."""
    counts = ["count"]
    counts += [] if wanted.part is None else ["part"]
    counts += [] if wanted.previous is None else ["previous"]
    return pa.schema([("geocode", pa.string()), *((name, pa.int64()) for name in counts)])


def _described(
    release: str,
    plan: Plan,
    mechanism: Wasserstein,
    guarantee: PartialPrivacy,
    geography: Geography,
    rng: BitSource,
) -> dict[str, Any]:
    return manifest.describe_table(
        plan,
        {level: geography.units(level) for level in plan.levels},
        mechanism,
        guarantee,
        release=release,
        randomness=rng.description,
        publishable=not rng.reproducible,
        crosswalk_sha256=geography.sha256,
    )


def _publish(
    run: Run,
    plan: Plan,
    mechanism: Wasserstein,
    guarantee: PartialPrivacy,
    geography: Geography,
    rng: BitSource,
) -> None:
    """Write the places, the files of public facts, the table, and the manifest last."""
    wanted = _table_of(plan)
    storage.make_folder(run.folder / FOLDER)
    for folder in (run.folder, run.folder / FOLDER):
        storage.sweep(folder)
    with storage.replacing(run.folder / GEOGRAPHY) as temporary:
        write_crosswalk(temporary, geography)
    files = [GEOGRAPHY]
    if mechanism.prior is not None:
        # As it was used, and no other column of the file that was given.
        codes = geography.geocodes(wanted.level)
        columns = {wanted.level: codes, "count": np.array(mechanism.prior.previous, np.int64)}
        with storage.replacing(run.folder / PREVIOUS) as temporary:
            pa.csv.write_csv(pa.table(columns), temporary)
        files.append(PREVIOUS)
    part = run.parts.read(wanted.level, 0)
    if part is None:
        raise FolderError(f"{run.internal}: the table that was drawn is gone")
    storage.write_bytes(path_of(run.folder, wanted.level), part)
    files.append(f"{FOLDER}/{wanted.level}.parquet")
    document = _described(run.release, plan, mechanism, guarantee, geography, rng)
    document["files"] = manifest.list_files(run.folder, files)
    storage.write_json(run.folder / manifest.NAME, document)
