"""A plan of one table: one or two counts per unit, drawn to agree with public totals."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from countveil.base.delimited import read_header
from countveil.base.numerics import Array, IntArray, exact, shortened
from countveil.base.parquet_size import refuse_bomb
from countveil.errors import InputError, PlanError
from countveil.plan.attributes import choices
from countveil.plan.budget import LARGEST_DEVIATION
from countveil.plan.plan_basis import PlanBasis
from countveil.plan.plan_file import CongenialSection, PlanFile
from countveil.plan.public_facts import Invariant, next_to_plan
from countveil.plan.workload import Neighbors, Schema
from countveil.privacy.costs import show
from countveil.privacy.ledger import Ledger

PREVIOUS = "previous.csv"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class OneTablePlan(PlanBasis):
    """A plan of one table: counts of all units of `level`, drawn to agree with public totals.

    `fixed` is the lowest level above `level` with public totals, or None. Plans of
    this kind come from `Plan.load` if the plan's method is "congenial". `records_moved` is Delta_z: how
    many records differ between the databases that the guarantee compares, the plan's `congenial.people`
    times its rows per person.
    """

    epsilon: Fraction
    level: str
    fixed: str | None
    part: NDArray[np.bool_] | None  # of the cells of the histogram
    part_name: str
    loss: Literal["L1", "L2", "squared L2"]
    base: Literal["congenial", "naive"]
    previous: Path | None
    alpha: Fraction
    pseudo_count: Fraction
    records_moved: int

    def __repr__(self) -> str:
        return (
            f"<OneTablePlan {self.title!r}: one count per {self.level}, "
            f"epsilon = {self.epsilon} given public totals of {self.fixed}>"
        )

    @property
    def price(self) -> str:
        """The cost of the release, as text."""
        return f"epsilon = {self.epsilon} given public information"

    def left_in(self, ledger: Ledger) -> str:
        """Return what is left in a ledger, as text."""
        return f"epsilon = {show(ledger.left_beside_public())}"

    def previous_counts(self, geocodes: list[str]) -> IntArray | None:
        """Return the previous counts of these units, in their order; None if the plan has none."""
        if self.previous is None:
            return None
        return read_numbers(self.previous, self.level, "count", geocodes).astype(np.int64)

    def _public_sections(self) -> dict[str, Any]:
        if self.previous is None:
            return {}
        return {"congenial": {**self.document["congenial"], "previous": PREVIOUS}}

    def ledger(self, path: str | Path | None = None) -> Ledger:
        """Return the ledger that a release of this plan is charged to.

        It is kept in the currency of guarantees given public information.

        Parameters
        ----------
        path
            The ledger file; by default the one that the plan names.

        """
        where = Path(path) if path is not None else self.ledger_path
        total = self.document.get("ledger", {}).get("total")
        limit = Ledger.beside_public_of(where) if total is None else exact(total)
        return Ledger(
            where,
            self.dataset,
            self.unit,
            self.neighbors,
            total=None,
            beside_public=self.epsilon if limit is None else limit,
        )


def read_one_table_plan(basis: PlanBasis, checked: PlanFile) -> OneTablePlan:
    """Resolve [congenial]; refuse sections that such a release does not support."""
    section = checked.congenial or CongenialSection()
    budget, levels, rows = checked.budget, basis.levels, basis.rows_per_person
    if budget.epsilon is None or budget.rho is not None or budget.delta is not None:
        raise PlanError(
            "budget: method congenial spends only epsilon; give epsilon, and remove rho and delta"
        )
    if budget.epsilon <= 0:
        raise PlanError(
            f"budget.epsilon: {shortened(budget.epsilon)} is not allowed; it must be above 0"
        )
    if budget.levels or budget.queries:
        raise PlanError("budget: method congenial draws one table; remove levels and queries")
    if budget.mechanism is not None:
        raise PlanError("budget.mechanism: method congenial has its own mechanism; remove this key")
    post = checked.postprocess
    if (
        checked.constraints
        or checked.structural_zeros
        or post.levels
        or post.tables
        or post.microdata
    ):
        raise PlanError(
            "postprocess: method congenial supports only public totals; remove constraints, structural "
            "zeros, passes, tables and microdata"
        )
    level = section.level or levels[-1]
    if level not in levels:
        raise PlanError(f"congenial.level: unknown level {level!r}; choose from {choices(levels)}")
    fixed = _fixed_level(levels, level, basis.invariants)
    if fixed is None and section.base == "congenial":
        raise PlanError(
            f"congenial: no level above {level} has public totals to agree with; declare some in "
            f'[[invariants]] with query = "TOTAL", or choose base = "naive"'
        )
    if section.loss == "squared L2" and section.base == "naive":
        raise PlanError(
            'congenial.loss: "squared L2" is unbounded with base = "naive"; choose "L1" or "L2", or '
            'base = "congenial"'
        )
    kept, intruder = checked.ledger, checked.intruder
    if kept.period is not None or kept.currency is not None or intruder.limit is not None:
        raise PlanError(
            "ledger and intruder: method congenial supports no period, currency or intruder.limit, "
            "because its epsilon is not differential privacy; remove them"
        )
    if intruder.level is not None or intruder.knows is not None:
        raise PlanError(
            f"intruder.level: {intruder.level} is not measured, as method congenial draws one "
            f"table; remove it"
        )
    if kept.total is not None and kept.total <= 0:
        raise PlanError(f"ledger.total: {shortened(kept.total)} is not allowed; it must be above 0")
    if section.previous is not None and section.base == "naive":
        raise PlanError(
            'congenial.previous: previous counts need public totals to divide; remove base = "naive"'
        )
    if section.alpha <= 0 or section.pseudo_count < 0:
        raise PlanError(
            f"congenial: alpha = {section.alpha} and pseudo_count = {section.pseudo_count} are not "
            f"allowed; alpha must be above 0, and pseudo_count 0 or more"
        )
    if section.base == "naive":
        _refuse_wide_noise(section, budget.epsilon, basis.neighbors, rows)
    previous = section.previous
    return OneTablePlan(
        **vars(basis),
        epsilon=budget.epsilon,
        level=level,
        fixed=fixed,
        part=_part(section.part, basis.schema) if section.part else None,
        part_name=", ".join(" or ".join(names) for names in section.part.values()),
        loss=section.loss,
        base=section.base,
        previous=None
        if previous is None
        else next_to_plan(basis.folder, previous, "congenial.previous"),
        alpha=section.alpha,
        pseudo_count=section.pseudo_count,
        records_moved=section.people * rows,
    )


def _refuse_wide_noise(
    section: CongenialSection, epsilon: Fraction, neighbors: Neighbors, rows: int
) -> None:
    """Refuse noise that could exceed 32 bits; nothing else bounds a naive release.

    One count has the variance 2 (sigma/epsilon)², where sigma is the sensitivity of the loss. With an
    L2 loss, several counts have more; the mechanism refuses those, once it has the counts.
    """
    moved = (2 if neighbors == "change-one" else 1) * (2 if section.part else 1)
    people = section.people * rows
    squared = (moved * people) ** 2 if section.loss == "L1" else moved * people**2
    if 2 * squared > (LARGEST_DEVIATION * epsilon) ** 2:
        raise PlanError(
            f'congenial: with base = "naive", this epsilon and people = {section.people:,}, the noise '
            f"would have a standard deviation above {LARGEST_DEVIATION:,}, more than any count; raise "
            f"budget.epsilon, or lower people"
        )


def _fixed_level(
    levels: tuple[str, ...], level: str, invariants: tuple[Invariant, ...]
) -> str | None:
    """Return the lowest level whose totals are public: those of all levels above follow."""
    lowest = None
    for item in invariants:
        if item.query.name != "TOTAL":
            raise PlanError(
                f"invariants: {item.query.name} of {item.level} is not allowed; method congenial "
                f"supports only TOTAL: remove this invariant"
            )
        if levels.index(item.level) >= levels.index(level):
            raise PlanError(
                f"invariants: TOTAL of {item.level} is public, which fixes every count of {level} "
                f"that could be drawn; release a lower level, or remove the invariant"
            )
        if lowest is None or levels.index(item.level) > levels.index(lowest):
            lowest = item.level
    return lowest


def _part(named: dict[str, list[str]], schema: Schema) -> NDArray[np.bool_]:
    """Return which cells of the histogram are in the named categories of every attribute."""
    shape = tuple(len(item.categories) for item in schema.attributes)
    chosen = np.ones(shape, bool)
    known = {item.name: number for number, item in enumerate(schema.attributes)}
    for name, categories in named.items():
        if name not in known:
            raise PlanError(
                f"congenial.part.{name}: unknown attribute; choose from {choices(known)}"
            )
        attribute = schema.attributes[known[name]]
        number_of = {category: number for number, category in enumerate(attribute.categories)}
        inside = np.zeros(len(attribute.categories), bool)
        for category in categories:
            if category not in number_of:
                raise PlanError(
                    f"congenial.part.{name}: unknown category {category!r}; choose from "
                    f"{choices(attribute.categories)}"
                )
            inside[number_of[category]] = True
        axis = known[name]
        chosen &= inside.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    flat = chosen.reshape(-1)
    if not flat.any() or flat.all():
        raise PlanError(
            "congenial.part: selects no cells or all cells; name some of the categories"
        )
    flat.setflags(write=False)
    return flat


def read_numbers(path: Path, level: str, column: str, geocodes: list[str]) -> Array:
    """Return one public number per unit, in the order of `geocodes`, from a CSV or Parquet file."""
    try:
        table = _columns(path, level, column)
    except InputError:
        raise
    except MemoryError:
        raise InputError(
            f"{path}: does not fit in memory; close other programs, or use a machine with more"
        ) from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(
            f"{path}: cannot be read ({str(error).splitlines()[0]}); provide a CSV or Parquet file "
            f"with a column {column!r} of numbers"
        ) from error
    codes, numbers = table.column(0).to_pylist(), table.column(1).to_pylist()
    number_of = dict(zip(codes, numbers, strict=True))
    if len(number_of) != len(codes):
        raise InputError(f"{path}: a {level} is listed twice; list each once")
    missing = [code for code in geocodes if number_of.get(code) is None]
    if missing:
        raise InputError(
            f"{path}: {column} is missing for {len(missing)} of {len(geocodes)} units of {level}, "
            f"such as {missing[0]!r}; list every unit, with 0 if it has none"
        )
    return np.array([number_of[code] for code in geocodes])


def _columns(path: Path, level: str, column: str) -> pa.Table:
    """Return the columns of codes, as text, and of numbers; counts are whole."""
    parquet = path.suffix.lower() in (".parquet", ".pq")
    names = pa.parquet.read_schema(path).names if parquet else read_header(path)[0]
    code = level if level in names else "geocode"
    for name in (code, column):
        if name not in names:
            raise InputError(
                f"{path}: column {name!r} is missing; add columns {level!r} (or 'geocode') and "
                f"{column!r}"
            )
    kind = pa.int64() if column == "count" else pa.float64()
    if parquet:
        refuse_bomb(path, [code, column], "it has one row per unit")
        table = pa.parquet.read_table(path, columns=[code, column])
        return table.cast(pa.schema([(code, pa.string()), (column, kind)]))
    convert = pa.csv.ConvertOptions(
        include_columns=[code, column],
        column_types={code: pa.string(), column: kind},
        strings_can_be_null=False,
    )
    parse = pa.csv.ParseOptions(delimiter=read_header(path)[1])
    return pa.csv.read_csv(path, parse_options=parse, convert_options=convert)
