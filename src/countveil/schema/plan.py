"""A plan, resolved: what is counted where, what each query may spend, what is public."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from countveil.errors import InputError, PlanError
from countveil.numerics import Exact
from countveil.privacy.costs import ZCDP, ApproxDP, Cost, PureDP, Sensitivity, total
from countveil.privacy.ledger import Ledger, Period
from countveil.schema import plan_file
from countveil.schema.attributes import Recode, listed, read_attributes
from countveil.schema.geography import Geography, read_crosswalk
from countveil.schema.plan_file import IntruderSection, PlanFile, RecordsSection
from countveil.schema.workload import Neighbors, Query, Schema

_LARGEST_BUDGET = 10_000
_LARGEST_DEVIATION = 2**24  # so that a count of up to 2**30 and its noise fit 32 bits
_PUBLIC_RECORD_KEYS = ("one_row_per_person", "max_rows", "missing")


@dataclass(frozen=True, slots=True)
class Allocation:
    """What one query of one level may spend, and how far one person moves it."""

    level: str
    query: Query
    cost: Cost
    sensitivity: Sensitivity


@dataclass(frozen=True, slots=True)
class Invariant:
    """A query of one level that is published as counted."""

    level: str
    query: Query
    reason: str


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
    def of(cls, document: dict[str, Any], *, name: str = "plan") -> Plan:
        """Check a plan that was read and merged already: the one a manifest holds."""
        return _resolve(name, Path(), document, plan_file.check(document, name))

    @property
    def cost(self) -> Cost:
        """What the release costs, exactly."""
        return total([allocation.cost for allocation in self.allocations])

    @property
    def judged_level(self) -> str:
        """Where the plan's risk is held against its limit: the lowest measured level if not said."""
        measured = [level for level in self.levels if self.at(level)]
        return self.intruder.level or measured[-1]

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
            name = Path(document["geography"]["path"]).name  # not where it lies
            document["geography"] = {**document["geography"], "path": name}
        document.pop("ledger", None)
        return document

    @property
    def digest(self) -> str:
        """The SHA-256 of what the plan decides."""
        return _digest(self.public_document)

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
    neighbors = checked.release.neighbors
    rows = _rows_per_person(checked, schema)
    cost, delta = _whole_budget(checked)
    allocations = _allocate(checked, schema, levels, cost, neighbors, rows)
    invariants = _invariants(checked, schema, levels, neighbors)
    section = checked.intruder
    if section.level is not None and section.level not in levels:
        raise PlanError(f"intruder.level: no level {section.level!r}; choose from {listed(levels)}")
    if section.level is not None and all(item.level != section.level for item in allocations):
        raise PlanError(
            f"intruder.level: {section.level} is not measured; name a level with a budget"
        )
    if (checked.ledger.period is None) != (checked.ledger.period_limit is None):
        raise PlanError("ledger: period and period_limit belong together; give both or neither")
    path = checked.geography.path
    return Plan(
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
        delta=delta,
        rows_per_person=rows,
        records=checked.records,
        crosswalk=None if path is None else folder / path,
        intruder=section,
        ledger_path=folder / checked.ledger.path,
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


def _whole_budget(checked: PlanFile) -> tuple[Cost, Fraction]:
    """Return what may be spent, and the delta to report epsilon at."""
    budget = checked.budget
    if (budget.rho is None) == (budget.epsilon is None):
        raise PlanError("budget: give either rho or epsilon")
    amount = budget.rho if budget.rho is not None else budget.epsilon
    if amount is None or amount <= 0:
        raise PlanError(f"budget: {amount} is not allowed; a budget is above 0")
    if amount > _LARGEST_BUDGET:
        raise PlanError(f"budget: above {_LARGEST_BUDGET:,} it protects nobody; lower it")
    delta = budget.delta if budget.delta is not None else Fraction(1, 10**10)
    if not 0 < delta < 1:
        raise PlanError(f"budget.delta: {delta} is not allowed; it must be between 0 and 1")
    if budget.rho is not None:
        return ZCDP(amount), delta
    if budget.delta is not None:
        return ApproxDP(amount, delta).zcdp, delta
    return PureDP(amount), delta


def _allocate(
    checked: PlanFile,
    schema: Schema,
    levels: tuple[str, ...],
    cost: Cost,
    neighbors: Neighbors,
    rows: int,
) -> tuple[Allocation, ...]:
    shares, tables = checked.budget.levels, checked.budget.queries
    _check_shares(shares, "budget.levels", levels)
    for level in levels:
        if level not in shares:
            raise PlanError(
                f'budget.levels: no share for level {level!r}; give one, "0" if it is not measured'
            )
    for level in tables:
        if level not in (*levels, "*"):
            raise PlanError(
                f"budget.queries.{level}: no level {level!r}; choose from {listed(levels)}"
            )
    allocations = []
    for level in levels:
        if shares[level] == 0:
            continue
        table = tables.get(level, tables.get("*"))
        if table is None:
            raise PlanError(f"budget.queries.{level}: is needed and not there")
        _check_shares(table, f"budget.queries.{level}", None)
        for name, share in table.items():
            query = _query(schema, name, f"budget.queries.{level}")
            if share == 0:
                continue
            fraction = shares[level] * share
            part: Cost = (
                PureDP(cost.epsilon * fraction)
                if isinstance(cost, PureDP)
                else ZCDP(cost.rho * fraction)
            )
            sensitivity = query.sensitivity(neighbors, rows)
            if _noise_variance(part, sensitivity) > _LARGEST_DEVIATION**2:
                raise PlanError(
                    f"budget.queries.{level}.{name}: its noise would have a standard deviation above "
                    f"{_LARGEST_DEVIATION:,} and drown any count; give it a larger share, or 0"
                )
            allocations.append(Allocation(level, query, part, sensitivity))
    return tuple(allocations)


def _noise_variance(cost: Cost, sensitivity: Sensitivity) -> Fraction:
    """Return the variance of the noise a cost pays for, but for what the integers take off it."""
    if isinstance(cost, PureDP):
        return 2 * (sensitivity.l1 / cost.epsilon) ** 2
    return sensitivity.l2_squared / (2 * cost.rho)


def _check_shares(
    shares: Mapping[str, Fraction], where: str, known: tuple[str, ...] | None
) -> None:
    for name, share in shares.items():
        if known is not None and name not in known:
            raise PlanError(f"{where}.{name}: no level {name!r}; choose from {listed(known)}")
        if share < 0:
            raise PlanError(f"{where}.{name}: {share} is not allowed; a share is 0 or more")
    together = sum(shares.values(), Fraction(0))
    if together != 1:
        raise PlanError(f"{where}: the shares sum to {together}, and must sum to 1")


def _query(schema: Schema, name: str, where: str) -> Query:
    try:
        return schema.query(name)
    except PlanError as error:
        raise PlanError(f"{where}: {error}") from error


def _invariants(
    checked: PlanFile, schema: Schema, levels: tuple[str, ...], neighbors: Neighbors
) -> tuple[Invariant, ...]:
    invariants = []
    for number, item in enumerate(checked.invariants):
        where = f"invariants.{number}"
        if item.level not in levels:
            raise PlanError(f"{where}.level: no level {item.level!r}; choose from {listed(levels)}")
        query = _query(schema, item.query, where)
        if neighbors == "add-remove":
            raise PlanError(
                f"{where}: {item.query} of {item.level} is fixed beside add-remove neighbours; a "
                f"person who joins or leaves changes it, so no two neighbouring databases agree on it "
                f'and the guarantee would be empty: choose neighbors = "change-one", or drop the '
                f"invariant"
            )
        invariants.append(Invariant(item.level, query, item.reason))
    return tuple(invariants)
