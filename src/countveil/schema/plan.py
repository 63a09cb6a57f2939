"""A plan, resolved: what is counted where, what each query may spend, what is public."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from countveil.errors import InputError, PlanError
from countveil.numerics import Exact, exact
from countveil.privacy.costs import ZCDP, Cost, PureDP, total
from countveil.privacy.ledger import Ledger, Period
from countveil.schema import plan_file
from countveil.schema.allocation import Allocation, allocate, whole_budget
from countveil.schema.attributes import Recode, listed, read_attributes
from countveil.schema.geography import Geography, read_crosswalk
from countveil.schema.one_table import PREVIOUS, OneTable, read_one_table
from countveil.schema.passes import Passes, read_passes
from countveil.schema.person_ids import is_nobody, is_placeholder
from countveil.schema.plan_file import IntruderSection, PlanFile, RecordsSection
from countveil.schema.public_facts import (
    Constraint,
    Invariant,
    StructuralZeros,
    beside_plan,
    read_constraints,
    read_invariants,
    read_structural_zeros,
)
from countveil.schema.tables import Table, read_tables
from countveil.schema.workload import Neighbors, Schema

GEOGRAPHY = "geography.parquet"
CONSTRAINTS = "constraints"
LARGEST_TOP_DOWN = 5_000  # cells of the full histogram
MOST_QUERIES = 10_000
MOST_CELLS_OF_QUERIES = 2_000_000_000  # queries times cells: 40 of the largest histogram
_TAKEN = ("geocode", "estimate", "standard_error", "lower", "upper")  # columns of estimates

_PUBLIC_RECORD_KEYS = (
    "one_row_per_person",
    "max_rows",
    "missing",
    "real_ids",
    "public_tables",
    "each_person_alone",
)


@dataclass(frozen=True, eq=False)
class Plan:
    """One file drives library and command line; building it reads no record."""

    name: str
    folder: Path
    document: Mapping[str, Any]
    title: str
    unit: str
    neighbors: Neighbors
    schema: Schema
    levels: tuple[str, ...]
    allocations: tuple[Allocation, ...]
    invariants: tuple[Invariant, ...]
    constraints: tuple[Constraint, ...]
    structural_zeros: StructuralZeros
    method: Literal["none", "top-down", "congenial"]
    one_table: OneTable | None
    passes: Mapping[str, Passes]
    tables: tuple[Table, ...]
    microdata: bool
    confidence: float
    delta: Fraction
    rows_per_person: int
    records: RecordsSection | None
    crosswalk: Path | None
    intruder: IntruderSection
    ledger_path: Path

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read and check a plan file."""
        path = Path(path)
        document, checked = plan_file.read(path)
        return _resolve(str(path), path.parent, document, checked)

    @classmethod
    def parse(cls, text: str, *, folder: str | Path = ".", name: str = "plan") -> Plan:
        """Check the text of a plan; its paths are relative to `folder`."""
        document, checked = plan_file.parse(text, name)
        return _resolve(name, Path(folder), document, checked)

    @classmethod
    def of(cls, document: dict[str, Any], *, folder: str | Path = ".", name: str = "plan") -> Plan:
        """Check a plan that was read and merged already: the one a manifest holds."""
        return _resolve(name, Path(folder), document, plan_file.check(document, name))

    @property
    def cost(self) -> Cost:
        """What the release costs, exactly."""
        if self.one_table is not None:
            raise InputError(
                f"{self.name}: method congenial spends epsilon = {self.one_table.epsilon} beside "
                f"public information, which is no cost in differential privacy; `countveil assess` "
                f"with --lens public tells what it guarantees"
            )
        return total([allocation.cost for allocation in self.allocations])

    @property
    def possible(self) -> NDArray[np.bool_]:
        """Which cells of the full histogram may hold people."""
        return self.structural_zeros.possible

    @property
    def chosen_from_records(self) -> bool:
        """Whether its budget was chosen by looking at records, which the guarantee does not cover."""
        return bool(self.document.get("budget", {}).get("chosen_from"))

    @property
    def attests_each_person_alone(self) -> bool:
        """Whether the curator answers for a query whose rows countveil cannot tell apart by person."""
        return bool(self.document.get("records", {}).get("each_person_alone"))

    @property
    def judged_level(self) -> str:
        """Where the plan's risk is held against its limit: the lowest measured level if not said."""
        return self.intruder.level or self.measured_levels[-1]

    @property
    def measured_levels(self) -> tuple[str, ...]:
        """The levels that have a budget, from the top."""
        return tuple(level for level in self.levels if self.at(level))

    def at(self, level: str) -> tuple[Allocation, ...]:
        """Return what is measured at a level."""
        if level not in self.levels:
            raise InputError(f"no level {level!r}; choose from {', '.join(self.levels)}")
        return tuple(item for item in self.allocations if item.level == level)

    @property
    def public_document(self) -> dict[str, Any]:
        """The plan as it may be published: where the records are is left out."""
        document = dict(self.document)
        if "records" in document:
            records = document["records"]
            document["records"] = {
                key: records[key] for key in _PUBLIC_RECORD_KEYS if key in records
            } | {"redacted": True}
        if "path" in document["geography"]:
            document["geography"] = {**document["geography"], "path": GEOGRAPHY}
        if "constraints" in document:
            document["constraints"] = [
                {**item, **names} for item, (names, _) in self._constraint_files()
            ]
        if self.one_table is not None and self.one_table.previous is not None:
            document["congenial"] = {**document["congenial"], "previous": PREVIOUS}
        document.pop("ledger", None)
        return document

    @property
    def public_files(self) -> dict[str, Path]:
        """The files of public facts, by their name in the release."""
        return {name: path for _, (_, files) in self._constraint_files() for name, path in files}

    def _constraint_files(self) -> Any:
        """Yield each constraint as written, its file names in the release, and those files."""
        for number, item in enumerate(self.document.get("constraints", [])):
            names, files = {}, []
            for key in ("path", "members"):
                if key in item:
                    names[key] = f"{CONSTRAINTS}/{number:02d}-{key}.csv"
                    files.append((names[key], self.folder / item[key]))
            yield item, (names, files)

    @property
    def digest(self) -> str:
        """The SHA-256 of what the plan decides."""
        return _digest(self.public_document)

    @property
    def measuring_digest(self) -> str:
        """The SHA-256 of what decides the measurements: all of the plan but what comes after."""
        later = ("postprocess", "constraints", "structural_zeros")
        return _digest({k: v for k, v in self.public_document.items() if k not in later})

    @property
    def counting_digest(self) -> str:
        """The SHA-256 of what decides the meaning of counts: places, categories, rows a person."""
        records = self.document.get("records", {})
        policy = [self.rows_per_person, records.get("missing", "refuse")]
        return _digest([self.levels, self.document["attributes"], policy])

    def geography(self) -> Geography:
        """Read the crosswalk."""
        if self.crosswalk is None:
            raise PlanError(f"{self.name}: geography.path: is needed to release, and not there")
        return read_crosswalk(self.crosswalk, self.levels)

    def ledger(self, path: str | Path | None = None) -> Ledger:
        """Return the ledger this plan spends from."""
        section = self.document.get("ledger", {})
        dataset = self.document["release"].get("dataset") or self.title
        where = Path(path) if path is not None else self.ledger_path
        if self.one_table is not None:
            stated = section.get("total")
            beside = Ledger.beside_public_of(where) if stated is None else exact(stated)
            return Ledger(
                where,
                dataset,
                self.unit,
                self.neighbors,
                total=None,
                beside_public=self.one_table.epsilon if beside is None else beside,
            )
        pure = isinstance(self.cost, PureDP)
        in_rho = section.get("currency", "epsilon" if pure else "rho") == "rho"

        def cost(amount: Exact) -> Cost:
            return ZCDP(amount) if in_rho else PureDP(amount)

        limit, period = Ledger.limits_of(where)
        if "total" in section:
            limit = cost(section["total"])
        elif limit is None:
            limit = ZCDP(self.cost.rho) if in_rho else self.cost
        if "period" in section:
            period = Period(section["period"], cost(section["period_limit"]))
        return Ledger(where, dataset, self.unit, self.neighbors, limit, period)


def _digest(document: Any) -> str:
    # In the order given: the order of attributes, groups and queries decides where cells lie.
    return hashlib.sha256(json.dumps(document, ensure_ascii=True).encode()).hexdigest()


def _resolve(name: str, folder: Path, document: dict[str, Any], checked: PlanFile) -> Plan:
    try:
        return _build(name, folder, document, checked)
    except PlanError as error:
        text = str(error)
        raise PlanError(text if text.startswith(name) else f"{name}: {text}") from error


def _build(name: str, folder: Path, document: dict[str, Any], checked: PlanFile) -> Plan:
    levels = tuple(checked.geography.levels)
    for level, times in Counter(level.lower() for level in levels).items():
        if times > 1:
            raise PlanError(f"geography.levels: {level!r} is listed {times} times; list each once")
    schema = Schema(
        read_attributes(checked.attributes),
        tuple(
            Recode(
                key,
                item.of,
                tuple((label, tuple(members)) for label, members in item.groups.items()),
                tuple(item.omit),
            )
            for key, item in checked.recodes.items()
        ),
    )
    for level in levels:
        if level in checked.attributes:
            raise PlanError(f"attributes.{level}: the name is taken by a level; choose another")
    for attribute in checked.attributes:
        if checked.postprocess.method != "none" and attribute.lower() in _TAKEN:
            raise PlanError(
                f"attributes.{attribute}: the name is taken by a column of the estimates; choose "
                f"another"
            )
    neighbors = checked.release.neighbors
    rows = _rows_per_person(checked, schema)
    invariants = read_invariants(checked, schema, levels, neighbors)
    one_table = read_one_table(checked, schema, levels, invariants, folder, rows)
    cost, delta = whole_budget(checked)
    allocations: tuple[Allocation, ...] = ()
    if one_table is None:
        allocations = allocate(checked, schema, levels, cost, neighbors, rows)
    zeros = read_structural_zeros(checked, schema)
    if checked.postprocess.method == "top-down" and zeros.cells_left > LARGEST_TOP_DOWN:
        raise PlanError(
            f"postprocess.method: top-down solves {zeros.cells_left:,} cells at once, and "
            f"{LARGEST_TOP_DOWN:,} is the limit; drop attributes, declare structural zeros, or "
            f'choose "none"'
        )
    section = checked.intruder
    if section.level is not None and section.level not in levels:
        raise PlanError(f"intruder.level: no level {section.level!r}; choose from {listed(levels)}")
    if section.level is not None and all(item.level != section.level for item in allocations):
        raise PlanError(
            f"intruder.level: {section.level} is not measured; name a level with a budget"
        )
    if (checked.ledger.period is None) != (checked.ledger.period_limit is None):
        raise PlanError("ledger: period and period_limit belong together; give both or neither")
    for key, amount in (
        ("total", checked.ledger.total),
        ("period_limit", checked.ledger.period_limit),
    ):
        if amount is not None and exact(amount) <= 0:
            raise PlanError(f"ledger.{key}: {amount} is not allowed; it must be above 0")
    path = checked.geography.path
    plan = Plan(
        name=name,
        folder=folder,
        document=document,
        title=checked.release.title,
        unit=checked.release.unit,
        neighbors=neighbors,
        schema=schema,
        levels=levels,
        allocations=allocations,
        invariants=invariants,
        constraints=read_constraints(checked, schema, levels, folder),
        structural_zeros=zeros,
        method=checked.postprocess.method,
        one_table=one_table,
        passes=read_passes(checked, schema, levels),
        tables=read_tables(checked, schema),
        microdata=checked.postprocess.microdata,
        confidence=checked.postprocess.confidence,
        delta=delta,
        rows_per_person=rows,
        records=checked.records,
        crosswalk=None if path is None else beside_plan(folder, path, "geography.path"),
        intruder=section,
        ledger_path=folder / checked.ledger.path,
    )
    _refuse_many_queries(plan)
    return plan


def _refuse_many_queries(plan: Plan) -> None:
    """Refuse a plan whose queries take too long to go through, as each of them sees every cell."""
    named, cells = plan.schema.queries_named, plan.schema.cells
    if named > MOST_QUERIES or len(plan.allocations) > MOST_QUERIES:
        raise PlanError(
            f"budget.queries: the plan names {named:,} queries and measures "
            f"{len(plan.allocations):,} over all levels; the limit is {MOST_QUERIES:,} of each: drop "
            f"some"
        )
    if named * cells > MOST_CELLS_OF_QUERIES:
        raise PlanError(
            f"budget.queries: the plan names {named:,} queries of a histogram of {cells:,} cells, "
            f"{named * cells:,} together; the limit is {MOST_CELLS_OF_QUERIES:,}: drop queries, or "
            f"merge categories"
        )


def _rows_per_person(checked: PlanFile, schema: Schema) -> int:
    """Return the bound on rows per person; without one, no sensitivity is known."""
    records = checked.records
    if records is None:
        return 1
    where = (records.path, records.query, records.database)
    if records.redacted and where == (None, None, None):
        return records.max_rows or 1
    if records.redacted:
        raise PlanError(
            "records.redacted: marks a published plan; take it out to use other records"
        )
    if (records.path is None) == (records.query is None):
        raise PlanError("records: give either path or query")
    if records.database is not None and records.query is None:
        raise PlanError("records.database: needs records.query beside it")
    bounded = records.person_id is not None or records.max_rows is not None
    if records.one_row_per_person is True and bounded:
        raise PlanError("records: one_row_per_person = true excludes person_id and max_rows")
    if records.one_row_per_person is not True and (
        records.person_id is None or records.max_rows is None
    ):
        raise PlanError(
            "records: how many rows a person may have is not said; attest one_row_per_person = true, "
            "or give person_id and max_rows"
        )
    _refuse_idle_keys(records)
    if records.counts is not None and bounded:
        raise PlanError(
            "records.counts: a table of counts has no persons to bound; attest "
            "one_row_per_person = true if each is counted once"
        )
    if isinstance(records.missing, dict):
        known = {item.name: item.categories for item in schema.attributes}
        for attribute, category in records.missing.items():
            if attribute not in known:
                raise PlanError(
                    f"records.missing.{attribute}: no such attribute; choose from {listed(known)}"
                )
            if category not in known[attribute]:
                raise PlanError(
                    f"records.missing.{attribute}: no category {category!r}; choose from "
                    f"{listed(known[attribute])}"
                )
    return records.max_rows or 1


def _refuse_idle_keys(records: RecordsSection) -> None:
    """Refuse what is said of a query or of person ids where there are none."""
    if records.query is None:
        for key in ("public_tables", "each_person_alone"):
            if getattr(records, key):
                raise PlanError(f"records.{key}: is about records.query; add a query, or remove it")
    if records.real_ids and records.person_id is None:
        raise PlanError("records.real_ids: is about records.person_id; add that, or remove it")
    for person in records.real_ids:
        if is_nobody(person) or not is_placeholder(person):
            raise PlanError(
                f"records.real_ids: {person!r} cannot be listed; only placeholders such as NA, null "
                f"or 0 need it, and blank ids are always refused"
            )
