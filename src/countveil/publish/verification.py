"""Verify a release folder: its files, hashes, costs, layout, sums and charge."""

from __future__ import annotations

import math
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from countveil.base import storage
from countveil.base.delimited import read_header
from countveil.base.parquet_size import UNREADABLE, refuse_hidden, refuse_swollen
from countveil.base.randomness import Secure, Seeded
from countveil.errors import InputError, LedgerError, VerificationError
from countveil.measure import manifest, one_table
from countveil.measure.measurements import FOLDER, INVARIANTS, LAYOUT, path_of
from countveil.measure.run import SIMULATION
from countveil.plan.geography import Geography
from countveil.plan.one_table_plan import PREVIOUS, OneTablePlan
from countveil.plan.plan_basis import GEOGRAPHY
from countveil.plan.plans import CONSTRAINTS, Plan
from countveil.plan.workload import Query
from countveil.postprocess.facts.family_facts import broken_facts
from countveil.privacy.costs import BesidePublic, Cost
from countveil.privacy.ledger import Ledger, seals_agree
from countveil.publish.earlier_wording import earlier_guarantee
from countveil.publish.estimate_files import FOLDER as ESTIMATES
from countveil.publish.estimate_files import (
    names_of_estimates,
    refuse_impossible_errors,
)
from countveil.publish.microdata import NAME as MICRODATA
from countveil.publish.recomputed import refuse_other_invariants, refuse_other_tables

REPORT, REPORT_PDF = "report.html", "report.pdf"
REPORTS = (REPORT, REPORT_PDF)
_LARGEST_COUNT = 2**31
_SEEDED = re.escape(Seeded(0).description).replace("0", "-?[0-9]{1,4300}", 1)
NOT_ASKED_FOR = "the plan asks for none"  # in the manifest, in place of errors

if TYPE_CHECKING:
    from countveil.publish.release_folder import AnyRelease, Release, TableRelease


@dataclass(frozen=True, slots=True)
class Verification:
    """The checks that a release passed, one sentence each; a failed check raises instead.

    `limits` says what these checks leave open, such as the charge if no ledger was named.
    """

    checks: tuple[str, ...]
    limits: tuple[str, ...] = ()


def refuse_damaged(release: Release, *, facts: bool, estimates: bool = False) -> None:
    """Refuse a release whose files changed since it was released.

    Parameters
    ----------
    release
        A release of counts; its measurements, invariants and places are always checked.
    facts
        Also check files of constraints.
    estimates
        Also check files of estimates.

    Raises
    ------
    VerificationError
        If a file is missing or its hash differs.

    """
    with _translated(release):
        for name, stated in release.manifest["files"].items():
            first = name.split("/")[0]
            counts = (facts and first == CONSTRAINTS) or (estimates and first == ESTIMATES)
            if first in (FOLDER, INVARIANTS, GEOGRAPHY) or counts:
                _check_hash(release, name, stated)
        missing = measured_files(release.plan) - set(release.manifest["files"])
        if missing:
            _fail(
                release,
                f"{min(missing)} is missing in the files of {manifest.NAME}; restore the release",
            )


def verify_counts(
    release: Release, ledger: str | Path | Ledger | None = None, *, simulation: bool = False
) -> Verification:
    """Check a release of counts and, with a ledger, its charge; raise if a check fails."""
    with _translated(release):
        _refuse_simulation(release, simulation)
        return Verification(tuple(_counts_checks(release, ledger)), _limits(release, ledger))


def verify_table(
    release: TableRelease, ledger: str | Path | Ledger | None = None, *, simulation: bool = False
) -> Verification:
    """Check a release of one table and, with a ledger, its charge; raise if a check fails."""
    with _translated(release):
        _refuse_simulation(release, simulation)
        return Verification(tuple(_table_checks(release, ledger)), _limits(release, ledger))


@contextmanager
def _translated(release: AnyRelease) -> Iterator[None]:
    """Report any error while reading a damaged release as a VerificationError."""
    try:
        yield
    except LedgerError:
        raise
    except InputError as error:
        raise VerificationError(f"{release.folder}: {error}") from error
    except UNREADABLE as error:
        raise VerificationError(
            f"{release.folder}: cannot be read ({error}); restore the release"
        ) from error


def _refuse_simulation(release: AnyRelease, accepted: bool) -> None:
    if not release.publishable and not accepted:
        _fail(
            release,
            f"drawn from a seed ({release.manifest['randomness']}), so anyone can remove the "
            f"noise; for publication, release without a seed",
        )


def _limits(release: AnyRelease, ledger: str | Path | Ledger | None) -> tuple[str, ...]:
    """Return what checks of a folder cannot show."""
    limits = []
    if not release.publishable:
        limits.append(
            "this is a simulation: its noise was drawn from a seed, and anyone can remove it"
        )
    if ledger is None:
        limits.append(
            "no ledger was named, so nothing shows that these numbers were drawn once, from secure "
            "randomness, and charged; add --ledger to compare them with their charge"
        )
    return tuple(limits)


def _counts_checks(release: Release, ledger: str | Path | Ledger | None) -> Iterator[str]:
    if release.plan.method != "none" and "estimates" not in release.manifest:
        _fail(release, "the estimates are missing; finish with `countveil postprocess`")
    yield _check_files(release, counts_files(release))
    yield _check_costs(release)
    _check_places(release)
    geography = release.geography
    yield _check_layout(release, geography)
    if release.plan.invariants:
        values = refuse_other_invariants(release.folder, release.plan, geography)
        yield f"{values:,} invariant counts cover the units of the crosswalk and add up"
    if "estimates" in release.manifest:
        yield from _check_estimates(release, geography)
    if ledger is not None:

        def seal() -> str:
            crosswalk = str(release.manifest["crosswalk_sha256"])
            return release.measurements.seal(geography, crosswalk)

        yield _check_ledger(release, ledger, release.plan.cost, seal)


def _table_checks(release: TableRelease, ledger: str | Path | Ledger | None) -> Iterator[str]:
    yield _check_files(release, one_table_files(release.plan))
    yield _check_guarantee(release)
    _check_places(release)
    yield _check_table(release)
    if ledger is not None:

        def seal() -> str:
            crosswalk = str(release.manifest["crosswalk_sha256"])
            return one_table.seal_of_table(
                release.table, release.plan, release.mechanism, release.geography, crosswalk
            )

        yield _check_ledger(release, ledger, one_table.cost_of(release.guarantee), seal)


def _check_files(release: AnyRelease, expected: set[str]) -> str:
    listed = release.manifest["files"]
    missing = expected - set(listed)
    if missing:
        _fail(
            release,
            f"{min(missing)} is not listed in the manifest, but belongs to the release; restore it",
        )
    folders = {str(above) for name in listed for above in PurePosixPath(name).parents}
    for path in sorted(release.folder.rglob("*")):
        name = path.relative_to(release.folder).as_posix()
        if path.is_symlink():
            _fail(release, f"{name} is a link, but a release has plain files only; remove it")
        known = folders if path.is_dir() else (*listed, manifest.NAME)
        if name not in known:
            _fail(release, f"{name} is not listed in the manifest; remove it before publishing")
    for name, facts in listed.items():
        _check_hash(release, name, facts)
    more = set(listed) - expected - set(REPORTS)
    if more:
        _fail(
            release,
            f"{min(more)} is listed in the manifest, but is not a file of a release; remove it",
        )
    for name in sorted(listed):
        if name.endswith(".parquet"):
            refuse_hidden(release.folder, name)
    return f"{len(listed)} files match their hashes in the manifest, and there are no others"


def refuse_odd_files(release: AnyRelease, expected: set[str]) -> None:
    """Refuse a pipe or a folder in place of a file: reading it might never end."""
    for name in sorted({*release.manifest["files"], *expected}):
        try:
            mode = (release.folder / name).stat().st_mode
        except OSError:
            continue  # missing files are reported when they are read
        if not stat.S_ISREG(mode):
            _fail(release, f"{name} is not a plain file; restore the release")


def one_table_files(plan: OneTablePlan) -> set[str]:
    """Return the names of the files of a release of one table, except for its reports."""
    names = {GEOGRAPHY, f"{one_table.FOLDER}/{plan.level}.parquet"}
    return names | ({PREVIOUS} if plan.previous is not None else set())


def counts_files(release: Release) -> set[str]:
    """Return the names of the files of a release of counts, except for its reports."""
    plan = release.plan
    names = measured_files(plan) | set(plan.public_files)
    return names | set(names_of_estimates(plan) if "estimates" in release.manifest else ())


def measured_files(plan: Plan) -> set[str]:
    """Return the names of the files that the door writes: places, measurements and invariants."""
    names = {f"{FOLDER}/{level}.parquet" for level in plan.measured_levels}
    names |= {f"{INVARIANTS}/{item.level}.parquet" for item in plan.invariants}
    return names | {GEOGRAPHY}


def _check_hash(release: AnyRelease, name: str, stated: dict[str, Any]) -> None:
    path = release.folder / name
    inside = storage.real(path).is_relative_to(storage.real(release.folder))
    if not inside or not path.is_file():
        _fail(release, f"{name} is listed in the manifest, but missing; restore the release")
    if ".." in name.split("/") or "\\" in name:
        _fail(release, f"{name!r} is not the name of a file in a release; restore the manifest")
    if storage.sha256(path) != stated["sha256"] or path.stat().st_size != stated["bytes"]:
        _fail(
            release, f"{name} changed since it was released (its hash differs); restore the release"
        )


def _check_places(release: AnyRelease) -> None:
    """Check that the file of places has one column of text per level, and no other."""
    layout = pq.read_schema(release.folder / GEOGRAPHY)
    texts = [
        getattr(field.type, "value_type", field.type) in (pa.string(), pa.large_string())
        for field in layout
    ]
    if layout.names != list(release.plan.levels) or not all(texts):
        _fail(
            release,
            f"the columns of {GEOGRAPHY} are not the levels of the plan, as text; restore the release",
        )


def _check_costs(release: Release) -> str:
    """Check that the manifest is the one that its plan gives."""
    plan = release.plan
    again = manifest.describe(plan, **_stated_facts(release))
    _refuse_otherwise_stated(release, again, {"files", "estimates"})
    return f"the noise of {len(plan.allocations)} queries costs {plan.cost}, as stated"


def _check_guarantee(release: TableRelease) -> str:
    """Check that the manifest is the one that its plan and public totals give."""
    again = manifest.describe_table(
        release.plan,
        mechanism=release.mechanism,
        guarantee=release.guarantee,
        **_stated_facts(release),
    )
    words = earlier_guarantee(release.guarantee)
    if release.manifest["guarantee"] == {**again["guarantee"], **words}:
        again["guarantee"] |= words
    _refuse_otherwise_stated(release, again, {"files"})
    return f"its guarantee is {one_table.cost_of(release.guarantee)}, as stated"


def _check_table(release: TableRelease) -> str:
    """Check that the table lists every unit and agrees with the public facts."""
    level, geography = release.plan.level, release.geography
    name = f"{one_table.FOLDER}/{level}.parquet"
    refuse_swollen(release.folder, name, 8 * geography.units(level))
    table, mechanism = release.table, release.mechanism
    if table["geocode"].combine_chunks() != geography.geocodes(level):
        _fail(release, "the units of the table are not those of the crosswalk; restore the release")
    if release.plan.previous is not None:
        names = read_header(release.folder / PREVIOUS)[0]
        if names != [level, "count"]:
            _fail(release, f"{PREVIOUS} has columns other than {level} and count; restore it")
    if mechanism.prior is not None and table["previous"].to_pylist() != list(
        mechanism.prior.previous
    ):
        _fail(
            release,
            f"the previous counts of the table are not those of {PREVIOUS}; restore the release",
        )
    if np.abs(release.counts).max(initial=0) > _LARGEST_COUNT or math.isinf(
        mechanism.log_weight(release.counts, np.zeros_like(release.counts))
    ):
        _fail(
            release, "the table contradicts a public total, or has an impossible count; restore it"
        )
    return f"the counts of {table.num_rows:,} units agree with the public facts"


def _stated_facts(release: AnyRelease) -> dict[str, Any]:
    """Return the facts in a manifest that do not follow from its plan; refuse impossible ones."""
    stated = release.manifest
    if stated["plan_sha256"] != release.plan.digest:
        _fail(
            release,
            "the plan in the manifest changed since it was released (its hash differs); restore it",
        )
    expected = re.escape(Secure.description) if release.publishable else _SEEDED
    if not re.fullmatch(expected, stated["randomness"]):
        _fail(
            release,
            f"randomness {stated['randomness']!r} is not from countveil; restore the manifest",
        )
    if release.publishable and stated["release"].startswith(SIMULATION):
        _fail(release, "its identifier is that of a simulation, whose noise is drawn from a seed")
    return {
        "units": {item["level"]: item["units"] for item in stated["levels"]},
        "release": stated["release"],
        "randomness": stated["randomness"],
        "publishable": release.publishable,
        "crosswalk_sha256": stated["crosswalk_sha256"],
    }


def _refuse_otherwise_stated(
    release: AnyRelease, again: dict[str, Any], additional: set[str]
) -> None:
    more = set(release.manifest) - set(again) - additional
    if more:
        _fail(release, f"{manifest.NAME} has an unknown key {min(more)!r}; restore the manifest")
    for key, value in again.items():
        if key != "versions" and not _same(release.manifest.get(key), value):
            _fail(
                release,
                f"{key} in the manifest differs from what the plan gives; restore the manifest",
            )


def _check_layout(release: Release, geography: Geography) -> str:
    """Check that measurements cover the units of the crosswalk, in order and in the right layout."""
    values = 0
    for level in release.plan.measured_levels:
        queries = [item.query for item in release.plan.at(level)]
        values += _check_level(release, level, queries, geography)
    return f"{values:,} measurements cover the crosswalk's units in the noisy-measurement layout"


def _check_level(release: Release, level: str, queries: list[Query], geography: Geography) -> int:
    name, units = f"{FOLDER}/{level}.parquet", geography.units(level)
    with pq.ParquetFile(path_of(release.folder, level)) as file:
        if not file.schema_arrow.equals(LAYOUT):
            _fail(
                release,
                f"the columns of {name} are not the measurement layout; restore the release",
            )
        if file.metadata.num_rows != units * len(queries):
            _fail(
                release,
                f"the number of rows of {name} is not units times queries; restore the release",
            )
        refuse_swollen(release.folder, name, units * sum(query.cells for query in queries))
    seen = values = 0
    for batch in release.measurements.stream(level):
        for item in batch.values():
            stop = seen + len(item.geocodes)
            if item.geocodes != geography.geocodes(level, seen, stop):
                _fail(
                    release,
                    f"the units of {name} are not those of the crosswalk, in order; restore it",
                )
            values += item.values.size
        seen = stop
    return values


def _check_estimates(release: Release, geography: Geography) -> Iterator[str]:
    """Check that estimates add up, agree with public facts, are certified, and match the tables."""
    plan = release.plan
    stated = release.manifest["estimates"]
    facts = {"method": plan.method, "tables": [table.name for table in plan.tables]}
    for key, value in {**facts, "microdata": plan.microdata}.items():
        if stated.get(key, value) != value:
            _fail(
                release,
                f"estimates.{key} in the manifest differs from what the plan gives; restore it",
            )
    if not _errors_as_planned(plan, stated.get("errors")):
        _fail(
            release, "estimates.errors in the manifest differs from what the plan gives; restore it"
        )
    limit = max(plan.passes[level].residual for level in plan.measured_levels)
    certified = {item.level: item for item in release.certificate}
    if tuple(certified) != plan.measured_levels or not all(
        item.within(limit) for item in certified.values()
    ):
        _fail(
            release,
            "the certificate of the estimates is incomplete, or above the residual of the plan",
        )
    _refuse_impossible_certificate(release, geography)
    for level in plan.estimated_levels:
        name = f"{ESTIMATES}/{level}.parquet"
        refuse_swollen(release.folder, name, geography.units(level) * plan.schema.cells)
        errors = stated.get("errors", {"none": "not stated"})
        refuse_impossible_errors(release.folder / name, plan.schema, errors)
    estimates = release.estimates
    if estimates.consistency_gap() != 0:
        _fail(release, "the estimates of a unit are not the sum of its parts; make them again")
    broken = broken_facts(estimates, release.measurements)
    if broken:
        _fail(release, f"the estimates contradict a public fact: {broken}")
    yield (
        f"the estimates of {len(estimates.levels)} levels are whole numbers, add up and agree with the "
        f"public facts; their certificate states that they were solved to within {limit:.0e}"
    )
    if plan.tables or plan.microdata:
        for name in names_of_estimates(plan):
            if name.endswith(".parquet") and not name.startswith(ESTIMATES):
                units = sum(map(geography.units, estimates.levels))
                rows = estimates.people if name == MICRODATA else units
                refuse_swollen(release.folder, name, 8 * rows)
        refuse_other_tables(estimates, release.folder)
        files = len(names_of_estimates(plan)) - len(estimates.levels)
        yield f"{files} files of tables and microdata match the estimates"


def _refuse_impossible_certificate(release: Release, geography: Geography) -> None:
    """Refuse a certificate of other queries, or of more families than there are."""
    plan = release.plan
    queries = [item.query for item in plan.allocations] + [table.query for table in plan.tables]
    names = {query.name for query in queries}
    facts = plan.invariants or plan.constraints or not plan.possible.all()
    for above, item in zip([None, *plan.measured_levels], release.certificate, strict=False):
        families = geography.units(above or item.level)
        fewer = item.families <= families if above is None else item.families == families
        moved = item.moved_parents <= (item.families if facts and above else 0)
        if not (fewer and moved and set(item.largest_departure) <= names):
            _fail(
                release,
                f"the certificate of {item.level} states families, moved parents or queries that the "
                f"plan does not have; restore the manifest",
            )


def _errors_as_planned(plan: Plan, stated: dict[str, Any] | None) -> bool:
    """Return whether errors have the plan's confidence, or a reason is given for having none.

    Old releases, from before there were errors, state neither.
    """
    if stated is None:
        return True
    if "confidence" in stated:
        return bool(stated["confidence"] == plan.confidence)
    return bool(plan.confidence) is not bool(stated["none"] == NOT_ASKED_FOR)


def _check_ledger(
    release: AnyRelease,
    ledger: str | Path | Ledger,
    cost: Cost | BesidePublic,
    seal_of: Callable[[], str],
) -> str:
    book = ledger if isinstance(ledger, Ledger) else release.plan.ledger(ledger)
    charges = [line for line in book.charges() if line.release == release.manifest["release"]]
    if len(charges) != 1 or charges[0].cost != cost:
        _fail(
            release,
            f"{book.path} does not have exactly one charge of {cost} for this release; name its ledger",
        )
    if charges[0].attempt == 0:
        return (
            f"{book.path} has one charge of {cost} for this release, from before ledgers stored the "
            f"SHA-256 of measurements"
        )
    if charges[0].measurements is None:
        _fail(
            release,
            f"{book.path} has its charge of {cost}, but not the SHA-256 of its measurements, which "
            f"is stored before anything is published; name the ledger of this release, in its "
            f"latest state",
        )
    seal = seal_of()
    if not seals_agree(charges[0].measurements, seal):
        if charges[0].measurements.split()[0] == seal.split()[0]:
            _fail(
                release,
                f"{book.path} was charged {cost} for these measurements, but with different "
                f"invariants, places or public totals; restore the release",
            )
        _fail(
            release,
            f"{book.path} was charged {cost} for different measurements; restore the release",
        )
    if charges[0].measurements != seal:
        return (
            f"{book.path} has one charge of {cost} for these measurements; it was sealed before seals "
            f"covered places and invariants"
        )
    return f"{book.path} has one charge of {cost} for these measurements"


def _fail(release: AnyRelease, what: str) -> NoReturn:
    raise VerificationError(f"{release.folder}: {what}")


def _same(stated: Any, computed: Any) -> bool:
    """Return whether two documents agree; floats may differ in their last digits."""
    if isinstance(computed, dict):
        return (
            isinstance(stated, dict)
            and list(stated) == list(computed)
            and all(_same(stated[key], value) for key, value in computed.items())
        )
    if isinstance(computed, list):
        return (
            isinstance(stated, list)
            and len(stated) == len(computed)
            and all(map(_same, stated, computed))
        )
    if isinstance(computed, float):
        return isinstance(stated, float) and math.isclose(stated, computed, rel_tol=1e-9)
    return bool(stated == computed)
