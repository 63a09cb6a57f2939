"""Plans: of counts that are measured with noise, or of one table that is drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from countveil.base.numerics import decimal, exact, shortened
from countveil.errors import InputError, PlanError
from countveil.plan import plan_file
from countveil.plan.accuracy_target import Target
from countveil.plan.attributes import Recode, choices, read_attributes
from countveil.plan.budget import Allocation, allocate, rescale, spent_by_level, whole_budget
from countveil.plan.certified_budget import certify, without_certificate
from countveil.plan.one_table_plan import OneTablePlan, read_one_table_plan
from countveil.plan.passes import Passes, read_passes
from countveil.plan.person_ids import is_blank, is_placeholder
from countveil.plan.plan_basis import PlanBasis
from countveil.plan.plan_file import IntruderSection, PlanFile, RecordsSection
from countveil.plan.public_facts import (
    Constraint,
    StructuralZeros,
    next_to_plan,
    read_constraints,
    read_invariants,
    read_structural_zeros,
)
from countveil.plan.table_layouts import TableLayout, read_tables
from countveil.plan.workload import Schema
from countveil.privacy.certified_loss import CurvePoint
from countveil.privacy.costs import ZCDP, Cost, PureDP, cost_of, total
from countveil.privacy.ledger import Ledger, Period

if TYPE_CHECKING:
    from countveil.assess.choose.optimal_split import BestSplit
    from countveil.assess.risk import Risk

CONSTRAINTS = "constraints"
LARGEST_TOP_DOWN = 5_000  # cells of the full histogram
MOST_QUERIES = 10_000
MOST_CELLS_OF_QUERIES = 2_000_000_000  # queries times cells: 40 of the largest histogram
_ESTIMATE_COLUMNS = ("geocode", "estimate", "determined", "standard_error", "lower", "upper")


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Plan(PlanBasis):
    """A plan of counts: every query of every level is measured with noise.

    The library and the command line use the same file. Building a plan reads no records.
    `Plan.load`, `Plan.parse` and `Plan.of` return a `OneTablePlan` if the method is "congenial".

    Examples
    --------
    >>> from countveil import Plan
    >>> plan = Plan.load("plan.toml")
    >>> print(plan.cost)
    rho = 1

    """

    allocations: tuple[Allocation, ...]
    certified: tuple[CurvePoint, ...]
    constraints: tuple[Constraint, ...]
    structural_zeros: StructuralZeros
    method: Literal["none", "top-down"]
    information: Literal["tree", "level"]
    unmeasured: Literal["refuse", "label"]
    passes: Mapping[str, Passes]
    tables: tuple[TableLayout, ...]
    microdata: bool
    confidence: float
    delta: Fraction
    targets: tuple[Target, ...]
    intruder: IntruderSection

    def __repr__(self) -> str:
        queries = len({item.query.name for item in self.allocations})
        return (
            f"<Plan {self.title!r}: {len(self.levels)} levels from {self.levels[0]} to "
            f"{self.levels[-1]}, {self.schema.cells:,} cells, {queries} queries, {self.cost}>"
        )

    @staticmethod
    def load(path: str | Path) -> AnyPlan:
        """Read and check a plan file.

        Parameters
        ----------
        path
            A TOML file. Paths inside it are relative to its folder.

        Returns
        -------
        Plan or OneTablePlan
            A plan of counts, or of one table if its method is "congenial".

        Examples
        --------
        >>> from countveil import Plan
        >>> Plan.load("plan.toml").cost
        ZCDP(rho=Fraction(1, 1))

        """
        path = Path(path)
        document, checked = plan_file.read(path)
        return _resolve(str(path), path.parent, document, checked)

    @staticmethod
    def parse(text: str, *, folder: str | Path = ".", name: str = "plan") -> AnyPlan:
        """Read and check the text of a plan.

        Parameters
        ----------
        text
            TOML, as in a plan file.
        folder
            The folder that paths in the plan are relative to.
        name
            How messages name the plan.

        Returns
        -------
        Plan or OneTablePlan
            A plan of counts, or of one table if its method is "congenial".

        Examples
        --------
        >>> from pathlib import Path
        >>> from countveil import Plan
        >>> half = Path("plan.toml").read_text().replace('rho = "1"', 'rho = "1/2"')
        >>> print(Plan.parse(half).cost)
        rho = 1/2

        """
        document, checked = plan_file.parse(text, name)
        return _resolve(name, Path(folder), document, checked)

    @staticmethod
    def of(document: dict[str, Any], *, folder: str | Path = ".", name: str = "plan") -> AnyPlan:
        """Check a plan document that is merged with its preset, such as the one in a manifest.

        Parameters
        ----------
        document
            The tables of the plan, by section.
        folder
            The folder that paths in the plan are relative to.
        name
            How messages name the plan.

        Returns
        -------
        Plan or OneTablePlan
            A plan of counts, or of one table if its method is "congenial".

        """
        return _resolve(name, Path(folder), document, plan_file.check(document, name))

    def with_document(self, document: dict[str, Any]) -> Plan:
        """Return the plan of counts that another document describes, in the same folder."""
        plan = require_counts(
            Plan.of(document, folder=self.folder, name=self.name), "a changed plan"
        )
        plan.share_places(self)
        return plan

    def with_budget(self, amount: Fraction) -> Plan:
        """Return the plan with another budget in its currency; levels and queries keep their shares."""
        times = amount / self.cost.amount
        return self._rescaled({name: own * times for name, own in self.level_budgets.items()}, {})

    def with_level_budgets(self, amounts: Mapping[str, Fraction]) -> Plan:
        """Return the plan with another budget for each measured level; queries keep their shares."""
        total = sum(amounts.values(), Fraction(0))
        shares = {name: str(amounts.get(name, 0) / total) for name in self.levels}
        return self._rescaled(amounts, {"levels": shares})

    @cached_property
    def level_budgets(self) -> dict[str, Fraction]:
        """What each measured level spends, in the plan's currency."""
        return spent_by_level(self.allocations)

    def _rescaled(self, amounts: Mapping[str, Fraction], changes: dict[str, Any]) -> Plan:
        own = without_certificate(self.document["budget"])
        kept = {k: v for k, v in own.items() if k not in ("rho", "epsilon")}
        amount = decimal(sum(amounts.values(), Fraction(0)))
        budget = {**kept, self.cost.currency: amount, **changes}
        try:
            allocations = rescale(self.allocations, amounts)
        except PlanError as error:
            raise PlanError(f"{self.name}: {error}") from error
        document = {**self.document, "budget": budget}
        plan = replace(self, allocations=allocations, certified=(), document=document)
        plan.share_places(self)
        return plan

    @property
    def price(self) -> str:
        """The cost of the release, as text."""
        return str(self.cost)

    def left_in(self, ledger: Ledger) -> str:
        """Return what is left in a ledger, as text."""
        return str(ledger.left())

    @cached_property
    def cost(self) -> Cost:
        """The exact cost of the release."""
        return total([allocation.cost for allocation in self.allocations])

    @property
    def epsilon(self) -> float:
        """An epsilon that the release costs at the plan's delta: certified, or converted from rho."""
        if self.certified:
            return PureDP(str(self.document["budget"]["epsilon"])).implied_epsilon  # rounded up
        return self.cost.epsilon_at(self.delta)

    @property
    def possible(self) -> NDArray[np.bool_]:
        """Which cells of the full histogram may hold people."""
        return self.structural_zeros.possible

    @property
    def judged_level(self) -> str:
        """The level of the unit in which the intruder knows everyone else.

        The limit applies to it. By default it is the lowest measured level.
        """
        return self.intruder.knows or self.intruder.level or self.measured_levels[-1]

    def risk(self, *, prior: float | None = None) -> Risk:
        """Return the largest risk of the plan, with the ladder of what an intruder may know.

        Parameters
        ----------
        prior
            Their probability of the truth beforehand; by default that of the plan's priors at which the
            risk is largest.

        Returns
        -------
        Risk
            `value`, `level`, `attack`, `unit_kind` and `ladder`, a table. No record is read.

        Examples
        --------
        >>> from countveil import Plan
        >>> risk = Plan.load("plan.toml").risk(prior=0.02)
        >>> print(f"{risk.value:.3f}, {risk.attack}, in {risk.unit_kind}")
        1.926, unknown attribute: AGE, in a block with 4 siblings

        """
        from countveil.assess.intruder.ladder import plan_risk  # a later stage answers

        return plan_risk(self, prior=prior)

    def optimised(
        self,
        targets: Sequence[Target | str] = (),
        *,
        minimise: Literal["error", "worst", "rho", "risk"] = "error",
        others: float = 3.0,
        propose: bool = False,
        max_risk: float | None = None,
    ) -> BestSplit:
        """Return the plan whose budget is split best for the tables that matter.

        Parameters
        ----------
        targets
            The tables, as `Target` or as text such as "zip Diagnosis within 5"; by default those that
            the plan names.
        minimise
            With the plan's budget, the weighted mean squared error ("error") or the largest error in
            units of its margin ("worst"); or the budget ("rho") or the risk ("risk") at which every
            margin is reached.
        others
            How many times as large as today the errors of other published tables may become.
        propose
            Whether to choose queries, too, from all margins of the attributes in use.
        max_risk
            The largest risk to accept; by default the limit that the plan states.

        Returns
        -------
        BestSplit
            `plan`, the certificate `gap`, and a `table` of errors before and after. No record is read.

        Examples
        --------
        >>> from countveil import Plan, Target
        >>> best = Plan.load("plan.toml").optimised([Target("TOTAL", level="block", margin=5)])
        >>> before, after = best.table["margin_before"][0], best.table["margin_after"][0]
        >>> print(f"{before.as_py():.1f} people before, {after.as_py():.1f} after")
        5.1 people before, 2.0 after

        """
        from countveil.assess.choose.optimal_split import best_split  # a later stage answers

        return best_split(
            self,
            targets or self.targets,
            minimise=minimise,
            others=others,
            propose=propose,
            max_risk=max_risk,
        )

    @cached_property
    def measured_levels(self) -> tuple[str, ...]:
        """The levels with a budget, from the top."""
        return tuple(level for level in self.levels if self.at(level))

    @property
    def estimated_levels(self) -> tuple[str, ...]:
        """The levels with published estimates: down to the lowest measured one."""
        return self.levels[: self.levels.index(self.measured_levels[-1]) + 1]

    def at(self, level: str) -> tuple[Allocation, ...]:
        """Return the queries measured at a level, with their costs and noise."""
        if level not in self.levels:
            raise InputError(f"unknown level {level!r}; choose from {', '.join(self.levels)}")
        return tuple(item for item in self.allocations if item.level == level)

    def _public_sections(self) -> dict[str, Any]:
        if "constraints" not in self.document:
            return {}
        return {"constraints": [{**item, **names} for item, names in self._constraint_files()]}

    @property
    def public_files(self) -> dict[str, Path]:
        """The files of public facts, by their name in the release."""
        return {
            name: self.folder / item[key]
            for item, names in self._constraint_files()
            for key, name in names.items()
        }

    def _constraint_files(self) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
        """Yield each constraint of the plan file, and the names of its files in the release."""
        for number, item in enumerate(self.document.get("constraints", [])):
            keys = [key for key in ("path", "members") if key in item]
            yield item, {key: f"{CONSTRAINTS}/{number:02d}-{key}.csv" for key in keys}

    def ledger(self, path: str | Path | None = None) -> Ledger:
        """Return the ledger that a release of this plan is charged to.

        Parameters
        ----------
        path
            The ledger file; by default the one that the plan names.

        Returns
        -------
        Ledger
            The ledger, with the limits of the plan, or those in the file if the plan states none.

        """
        section = self.document.get("ledger", {})
        where = Path(path) if path is not None else self.ledger_path
        currency = section.get("currency", self.cost.currency)
        limit, period = Ledger.limits_of(where)
        if "total" in section:
            limit = cost_of(currency, section["total"])
        elif limit is None:
            limit = ZCDP(self.cost.rho) if currency == "rho" else self.cost
        if "period" in section:
            period = Period(section["period"], cost_of(currency, section["period_limit"]))
        return Ledger(where, self.dataset, self.unit, self.neighbors, limit, period)


AnyPlan: TypeAlias = Plan | OneTablePlan


def require_counts(plan: AnyPlan, purpose: str) -> Plan:
    """Return a plan of counts; refuse one of a single table, which `purpose` cannot use."""
    if isinstance(plan, OneTablePlan):
        raise InputError(
            f"{plan.name}: {purpose} needs a plan of counts, but this plan draws one table that agrees "
            f"with public totals; name another plan"
        )
    return plan


def _resolve(name: str, folder: Path, document: dict[str, Any], checked: PlanFile) -> AnyPlan:
    try:
        return _build(name, folder, document, checked)
    except PlanError as error:
        text = str(error)
        raise PlanError(text if text.startswith(name) else f"{name}: {text}") from error


def _build(name: str, folder: Path, document: dict[str, Any], checked: PlanFile) -> AnyPlan:
    basis = _read_basis(name, folder, document, checked)
    if checked.postprocess.method == "congenial":
        plan: AnyPlan = read_one_table_plan(basis, checked)
    else:
        plan = _read_counts_plan(basis, checked)
    _refuse_odd_ledger(checked)
    return plan


def _read_basis(name: str, folder: Path, document: dict[str, Any], checked: PlanFile) -> PlanBasis:
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
            raise PlanError(f"attributes.{level}: a level has the same name; rename the attribute")
    for attribute in checked.attributes:
        if checked.postprocess.method != "none" and attribute.lower() in _ESTIMATE_COLUMNS:
            raise PlanError(
                f"attributes.{attribute}: a column of the estimates has the same name; rename the "
                f"attribute"
            )
    neighbors = checked.release.neighbors
    path = checked.geography.path
    return PlanBasis(
        name=name,
        folder=folder,
        document=document,
        title=checked.release.title,
        unit=checked.release.unit,
        neighbors=neighbors,
        schema=schema,
        levels=levels,
        rows_per_person=_rows_per_person(checked, schema),
        invariants=read_invariants(checked, schema, levels, neighbors),
        records=checked.records,
        crosswalk=None if path is None else next_to_plan(folder, path, "geography.path"),
        ledger_path=folder / checked.ledger.path,
    )


def _read_counts_plan(basis: PlanBasis, checked: PlanFile) -> Plan:
    schema, levels, method = basis.schema, basis.levels, checked.postprocess.method
    assert method != "congenial"
    if checked.congenial is not None:
        raise PlanError(
            'congenial: this section needs postprocess.method = "congenial"; set it, or remove the '
            "section"
        )
    cost, delta = whole_budget(checked)
    document = basis.document
    curve: tuple[CurvePoint, ...] = ()
    if checked.budget.accounting == "certified":
        cost, curve = certify(checked, basis)
        budget = {**document["budget"], "rho": decimal(cost.amount)}
        document = {**document, "budget": budget}
    allocations = allocate(checked, schema, levels, cost, basis.neighbors, basis.rows_per_person)
    zeros = read_structural_zeros(checked, schema)
    if method == "top-down" and zeros.cells_left > LARGEST_TOP_DOWN:
        raise PlanError(
            f"postprocess.method: top-down would solve {zeros.cells_left:,} cells at once; the "
            f"limit is {LARGEST_TOP_DOWN:,}: remove attributes, declare structural zeros, or "
            f"choose "
            f'"none"'
        )
    section = checked.intruder
    if section.knows is not None and section.level not in (None, section.knows):
        raise PlanError(
            "intruder.level: is the earlier name of intruder.knows, and the two differ; keep knows"
        )
    measured = [
        number for number, at in enumerate(levels) if any(a.level == at for a in allocations)
    ]
    for key, level in (("knows", section.knows), ("level", section.level)):
        if level is None:
            continue
        if level not in levels:
            raise PlanError(
                f"intruder.{key}: unknown level {level!r}; choose from {choices(levels)}"
            )
        if levels.index(level) > max(measured):
            raise PlanError(
                f"intruder.{key}: {level} is not measured; choose a level with a budget"
            )
    plan = Plan(
        **{**vars(basis), "document": document},
        allocations=allocations,
        certified=curve,
        constraints=read_constraints(checked, schema, levels, basis.folder),
        structural_zeros=zeros,
        method=method,
        information=checked.postprocess.information,
        unmeasured=checked.postprocess.unmeasured,
        passes=read_passes(checked, schema, levels),
        tables=read_tables(checked, schema),
        microdata=checked.postprocess.microdata,
        confidence=checked.postprocess.confidence,
        delta=delta,
        targets=_read_targets(checked, schema, levels),
        intruder=section,
    )
    _refuse_many_queries(plan)
    return plan


def _read_targets(checked: PlanFile, schema: Schema, levels: tuple[str, ...]) -> tuple[Target, ...]:
    """Return the tables that matter; refuse those that no level or query is named like."""
    targets = []
    for text in checked.budget.targets:
        try:
            target = Target.parse(text)
            schema.query(target.query)
        except InputError as error:
            raise PlanError(f"budget.targets: {error}") from None
        if target.level not in levels:
            raise PlanError(
                f"budget.targets: {text!r}: unknown level {target.level!r}; choose from "
                f"{choices(levels)}"
            )
        targets.append(target)
    return tuple(targets)


def _refuse_odd_ledger(checked: PlanFile) -> None:
    if (checked.ledger.period is None) != (checked.ledger.period_limit is None):
        raise PlanError(
            "ledger: only one of period and period_limit is given; give both or neither"
        )
    for key, amount in (
        ("total", checked.ledger.total),
        ("period_limit", checked.ledger.period_limit),
    ):
        if amount is not None and exact(amount) <= 0:
            raise PlanError(f"ledger.{key}: {shortened(amount)} is not allowed; it must be above 0")


def _refuse_many_queries(plan: Plan) -> None:
    """Refuse a plan with too many queries: each is computed from every cell."""
    named, cells = plan.schema.queries_named, plan.schema.cells
    if named > MOST_QUERIES or len(plan.allocations) > MOST_QUERIES:
        raise PlanError(
            f"budget.queries: the plan names {named:,} queries and measures "
            f"{len(plan.allocations):,} over all levels; the limit is {MOST_QUERIES:,} of each: remove "
            f"some"
        )
    if named * cells > MOST_CELLS_OF_QUERIES:
        raise PlanError(
            f"budget.queries: the plan names {named:,} queries of a histogram with {cells:,} cells, "
            f"{named * cells:,} in total; the limit is {MOST_CELLS_OF_QUERIES:,}: remove queries, or "
            f"merge categories"
        )


def _rows_per_person(checked: PlanFile, schema: Schema) -> int:
    """Return the bound on rows per person, which the sensitivity depends on."""
    records = checked.records
    if records is None:
        return 1
    where = (records.path, records.query, records.database)
    if records.redacted and where == (None, None, None):
        return records.max_rows or 1
    if records.redacted:
        raise PlanError(
            "records.redacted: this key is for published plans; remove it to use your own records"
        )
    if (records.path is None) == (records.query is None):
        raise PlanError("records: give exactly one of path and query")
    if records.database is not None and records.query is None:
        raise PlanError("records.database: needs records.query; add a query, or remove database")
    bounded = records.person_id is not None or records.max_rows is not None
    if records.one_row_per_person is True and bounded:
        raise PlanError(
            "records: one_row_per_person = true excludes person_id and max_rows; remove one or the "
            "others"
        )
    if records.one_row_per_person is not True and (
        records.person_id is None or records.max_rows is None
    ):
        raise PlanError(
            "records: the number of rows per person is not bounded; attest one_row_per_person = "
            "true, or give person_id and max_rows"
        )
    _refuse_idle_keys(records)
    if records.counts is not None and bounded:
        raise PlanError(
            "records.counts: a table of counts has no person ids; remove person_id and max_rows, and "
            "attest one_row_per_person = true if each person is counted once"
        )
    if isinstance(records.missing, dict):
        known = {item.name: item.categories for item in schema.attributes}
        for attribute, category in records.missing.items():
            if attribute not in known:
                raise PlanError(
                    f"records.missing.{attribute}: unknown attribute; choose from {choices(known)}"
                )
            if category not in known[attribute]:
                raise PlanError(
                    f"records.missing.{attribute}: unknown category {category!r}; choose from "
                    f"{choices(known[attribute])}"
                )
    return records.max_rows or 1


def _refuse_idle_keys(records: RecordsSection) -> None:
    """Refuse keys about a query or person ids if the plan has none."""
    if records.query is None:
        for key in ("public_tables", "each_person_alone"):
            if getattr(records, key):
                raise PlanError(f"records.{key}: needs records.query; add a query, or remove {key}")
    if records.real_ids and records.person_id is None:
        raise PlanError("records.real_ids: needs records.person_id; add it, or remove real_ids")
    for person in records.real_ids:
        if is_blank(person) or not is_placeholder(person):
            raise PlanError(
                f"records.real_ids: {person!r} cannot be listed; list only real ids that look like "
                f"placeholders, such as NA, null or 0 (blank ids are always refused)"
            )
