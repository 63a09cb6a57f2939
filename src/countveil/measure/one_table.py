"""One table that agrees with public totals: mechanism, guarantee, files; nothing confidential."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from countveil.base import storage
from countveil.base.numerics import IntArray
from countveil.base.parquet_size import UNREADABLE
from countveil.base.randomness import BitSource
from countveil.congenial.guarantee.partial_privacy import PartialPrivacy, Theta
from countveil.congenial.mechanism.base_measure import DirichletMultinomial
from countveil.congenial.mechanism.wasserstein import Wasserstein
from countveil.errors import FolderError, InputError
from countveil.measure import manifest
from countveil.measure.digest import parts_digest, public_digest, rows_digest, seal_of
from countveil.measure.run import Run
from countveil.plan.geography import Geography, write_crosswalk
from countveil.plan.one_table_plan import PREVIOUS, OneTablePlan
from countveil.plan.plan_basis import GEOGRAPHY
from countveil.privacy.costs import BesidePublic

FOLDER = "counts"


def mechanism_of(plan: OneTablePlan, totals: IntArray | None, geography: Geography) -> Wasserstein:
    """Return the mechanism of a plan, for its public totals.

    Parameters
    ----------
    plan
        A plan of one table.
    totals
        The public total of each unit of `plan.fixed`, as from `totals_of`; None without any.
    geography
        The places of the plan.

    Returns
    -------
    Wasserstein
        The only mechanism that `draw` accepts for the plan.

    """
    codes = geography.geocodes(plan.level).to_pylist()
    previous = plan.previous_counts(codes)
    settings: dict[str, Any] = {"loss": plan.loss, "epsilon": plan.epsilon}
    settings |= {
        "delta_z": plan.records_moved,
        "neighbors": plan.neighbors,
        "deaths": plan.part is not None,
    }
    if previous is not None:
        settings["prior"] = DirichletMultinomial(previous, plan.alpha, plan.pseudo_count)
    if plan.base == "naive":
        settings |= {
            "base": "naive",
            "halved": False,
        }  # its normalizer does not depend on the counts
    if plan.fixed is None or totals is None:
        return Wasserstein(**settings)
    if len(totals) > 1:
        settings["subtotals"] = _subtotals(geography.ancestors(plan.level, plan.fixed), totals)
    return Wasserstein(total=int(totals.sum()), **settings)


def _subtotals(above: IntArray, totals: IntArray) -> list[tuple[range, int]]:
    """Return the units in each unit of the level above, which are adjacent, and their public total."""
    ends = np.searchsorted(above, np.arange(len(totals) + 1)).tolist()
    sums = totals.tolist()
    return [(range(*ends[unit : unit + 2]), total) for unit, total in enumerate(sums)]


def theta_of(plan: OneTablePlan) -> Theta:
    """Return what the guarantee of a plan is about: what is public, assumed and secret."""
    where = "all" if plan.fixed is None else f"their {plan.fixed}"
    public, secrets = [], f"for each {plan.unit}, which {plan.level} of {where} counts them"
    if plan.neighbors == "add-remove":
        secrets = (
            f"for each {plan.unit} and {plan.level}, whether they are counted there or nowhere"
        )
    if plan.fixed is not None:
        public.append(f"the TOTAL of every {plan.fixed}, exactly, and of all above it")
    if plan.part is not None:
        public.append(f"no {plan.level} has more {plan.part_name} than TOTAL")
        secrets += f", and whether as {plan.part_name}"
    if plan.previous is not None:
        public.append(f"the counts of every {plan.level} in an earlier period")
    assumed = "given what is public, no one's record reveals anything about another's"
    if plan.records_moved > 1:
        assumed = f"given what is public, at most {plan.records_moved} records depend on each other"
    return Theta(tuple(public), assumed, secrets, _identity(plan))


def _identity(plan: OneTablePlan) -> tuple[str, str]:
    """Return assumption and secrets in the words of the first version, which ledgers digest."""
    where = "all" if plan.fixed is None else f"his {plan.fixed}"
    secrets = f"for each {plan.unit}, which {plan.level} of {where} counts him"
    if plan.neighbors == "add-remove":
        secrets = f"for each {plan.unit} and {plan.level}, whether he is counted there or nowhere"
    if plan.part is not None:
        secrets += f", and whether as {plan.part_name}"
    assumed = "given what is public, nobody's record tells anything of another's"
    if plan.records_moved > 1:
        assumed = f"given what is public, at most {plan.records_moved} records depend on each other"
    return assumed, secrets


def guarantee_of(plan: OneTablePlan, mechanism: Wasserstein) -> PartialPrivacy:
    """Return the guarantee of a release by this mechanism, given what is public.

    Parameters
    ----------
    plan
        A plan of one table.
    mechanism
        Its mechanism, from `mechanism_of`.

    Returns
    -------
    PartialPrivacy
        Epsilon, what is public, assumed and secret, and the coupling of databases.

    Notes
    -----
    The ledger compares the text of the coupling between releases, so it must not be reworded.

    """
    return PartialPrivacy(
        mechanism.epsilon,
        theta_of(plan),
        coupling=f"{plan.records_moved} of {plan.unit} {plan.neighbors} within the public totals of "
        f"{plan.fixed} {public_hash(mechanism.total, mechanism.subtotals)}, all others as they are",
    )


def cost_of(guarantee: PartialPrivacy) -> BesidePublic:
    """Return what the ledger is charged for a guarantee.

    Parameters
    ----------
    guarantee
        The guarantee of a release, from `guarantee_of`.

    Returns
    -------
    BesidePublic
        Its epsilon, along its coupling.

    """
    return BesidePublic(guarantee.epsilon, guarantee.coupling_digest)


def read_table(folder: Path, plan: OneTablePlan) -> IntArray:
    """Return the released counts of a folder, (units,) or (units, 2)."""
    return counts_in(read_columns(folder, plan), plan)


def counts_in(table: pa.Table, plan: OneTablePlan) -> IntArray:
    """Return the counts of a released table, (units,) or (units, 2)."""
    names = ["count"] if plan.part is None else ["count", "part"]
    columns = [table[name].to_numpy().astype(np.int64) for name in names]
    return columns[0] if len(columns) == 1 else np.stack(columns, axis=1)


def seal_of_table(
    table: pa.Table,
    plan: OneTablePlan,
    mechanism: Wasserstein,
    geography: Geography,
    crosswalk: str,
) -> str:
    """Return the seal that the ledger stores before a table is published.

    `crosswalk` is the SHA-256 of the original crosswalk file.
    """
    names = ["geocode", "count"] if plan.part is None else ["geocode", "count", "part"]
    drawn = parts_digest([(plan.level, rows_digest(table, names))])
    previous = None if mechanism.prior is None else mechanism.prior.previous
    facts = [
        ("totals", public_hash(mechanism.total, mechanism.subtotals)),
        ("previous", public_hash(previous)),
    ]
    return seal_of(drawn, public_digest(geography, crosswalk, facts))


def seal_of_part(
    part: bytes | None, plan: OneTablePlan, mechanism: Wasserstein, geography: Geography
) -> str | None:
    """Return the seal of a table that was drawn, None while it is missing."""
    if part is None:
        return None
    table = pq.read_table(pa.BufferReader(part))
    return seal_of_table(table, plan, mechanism, geography, geography.sha256)


def read_columns(folder: Path, plan: OneTablePlan) -> pa.Table:
    """Return the released table of a folder; refuse other columns and missing values."""
    path = path_of(folder, plan.level)
    try:
        table = pq.read_table(path)
    except UNREADABLE as error:
        raise InputError(
            f"{path}: cannot be read ({str(error).splitlines()[0]}); restore the original file"
        ) from error
    if not table.schema.equals(layout_of(plan)) or any(
        column.null_count for column in table.columns
    ):
        raise InputError(
            f"{path}: has columns other than {', '.join(layout_of(plan).names)}, or missing values; "
            f"restore the original file"
        )
    return table


def path_of(folder: Path, level: str) -> Path:
    """Return the path of the released counts."""
    return folder / FOLDER / f"{level}.parquet"


def public_hash(*public: Any) -> str:
    """Return a hash of public facts."""
    return hashlib.sha256(repr(public).encode()).hexdigest()


def as_columns(
    table: IntArray, plan: OneTablePlan, mechanism: Wasserstein, geography: Geography
) -> pa.Table:
    """Return a drawn table with the columns in which it is published."""
    counts = table.reshape(len(table), -1)
    columns: dict[str, Any] = {"geocode": geography.geocodes(plan.level), "count": counts[:, 0]}
    if plan.part is not None:
        columns["part"] = counts[:, 1]
    if mechanism.prior is not None:
        columns["previous"] = np.array(mechanism.prior.previous, np.int64)
    return pa.table(columns, schema=layout_of(plan))


def layout_of(plan: OneTablePlan) -> pa.Schema:
    """Return the columns of the released table."""
    counts = ["count"]
    counts += [] if plan.part is None else ["part"]
    counts += [] if plan.previous is None else ["previous"]
    return pa.schema([("geocode", pa.string()), *((name, pa.int64()) for name in counts)])


def describe_one_table(
    release: str,
    plan: OneTablePlan,
    mechanism: Wasserstein,
    guarantee: PartialPrivacy,
    geography: Geography,
    rng: BitSource,
) -> dict[str, Any]:
    """Return the manifest of a table without its list of files."""
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


def publish_one_table(
    run: Run,
    plan: OneTablePlan,
    mechanism: Wasserstein,
    guarantee: PartialPrivacy,
    geography: Geography,
    rng: BitSource,
) -> None:
    """Write the places, the public facts, the table, and last the manifest."""
    storage.make_folder(run.folder / FOLDER)
    for folder in (run.folder, run.folder / FOLDER):
        storage.sweep(folder)
    with storage.replacing(run.folder / GEOGRAPHY) as temporary:
        write_crosswalk(temporary, geography)
    files = [GEOGRAPHY]
    if mechanism.prior is not None:
        # Only the column that was used: others in the file may be confidential.
        codes = geography.geocodes(plan.level)
        columns = {plan.level: codes, "count": np.array(mechanism.prior.previous, np.int64)}
        with storage.replacing(run.folder / PREVIOUS) as temporary:
            pa.csv.write_csv(pa.table(columns), temporary)
        files.append(PREVIOUS)
    part = run.parts.read(plan.level, 0)
    if part is None:
        raise FolderError(
            f"{run.internal}: the table that was drawn is missing; restore it from a backup"
        )
    storage.write_bytes(path_of(run.folder, plan.level), part)
    files.append(f"{FOLDER}/{plan.level}.parquet")
    document = describe_one_table(run.release, plan, mechanism, guarantee, geography, rng)
    document["files"] = manifest.list_files(run.folder, files)
    storage.write_json(run.folder / manifest.NAME, document)
