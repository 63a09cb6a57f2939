"""What a plan of method congenial releases: one count a unit, or two, beside public totals."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from countveil.errors import InputError, PlanError
from countveil.numerics import Array, IntArray
from countveil.schema.allocation import LARGEST_DEVIATION
from countveil.schema.attributes import listed
from countveil.schema.delimited import read_header
from countveil.schema.plan_file import CongenialSection, PlanFile
from countveil.schema.public_facts import Invariant, beside_plan
from countveil.schema.unpacking import refuse_bomb
from countveil.schema.workload import Neighbors, Schema

PREVIOUS = "previous.csv"


@dataclass(frozen=True, eq=False, slots=True)
class OneTable:
    """The table to draw: units of `level`, sums public at `fixed`, the finest level above if any."""

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
    people: int

    def previous_counts(self, geocodes: list[str]) -> IntArray | None:
        """Read the previous counts of these units, in their order; none if the plan has none."""
        if self.previous is None:
            return None
        return read_numbers(self.previous, self.level, "count", geocodes).astype(np.int64)


def read_one_table(
    checked: PlanFile,
    schema: Schema,
    levels: tuple[str, ...],
    invariants: tuple[Invariant, ...],
    folder: Path,
    rows: int,
) -> OneTable | None:
    """Resolve [congenial]; refuse what it cannot keep. None for other methods."""
    section = checked.congenial
    if checked.postprocess.method != "congenial":
        if section is not None:
            raise PlanError(
                'congenial: goes with method = "congenial"; set postprocess.method, or take the '
                "section out"
            )
        return None
    section = section or CongenialSection()
    budget = checked.budget
    if budget.epsilon is None or budget.rho is not None or budget.delta is not None:
        raise PlanError(
            "budget: method congenial spends epsilon alone; give epsilon, no rho, no delta"
        )
    if budget.epsilon <= 0:
        raise PlanError(f"budget.epsilon: {budget.epsilon} is not allowed; it must be above 0")
    if budget.levels or budget.queries:
        raise PlanError("budget: method congenial draws one table; take out levels and queries")
    post = checked.postprocess
    if (
        checked.constraints
        or checked.structural_zeros
        or post.levels
        or post.tables
        or post.microdata
    ):
        raise PlanError(
            "postprocess: method congenial keeps public totals alone; take out constraints, structural "
            "zeros, passes, tables and microdata"
        )
    level = section.level or levels[-1]
    if level not in levels:
        raise PlanError(f"congenial.level: no level {level!r}; choose from {listed(levels)}")
    fixed = _fixed_level(levels, level, invariants)
    if fixed is None and section.base == "congenial":
        raise PlanError(
            f"congenial: a release agrees with public totals, and no level above {level} has one; "
            f'declare one in [[invariants]] with query = "TOTAL", or choose base = "naive"'
        )
    if section.loss == "squared L2" and section.base == "naive":
        raise PlanError(
            'congenial.loss: "squared L2" moves without limit where counts have none; choose "L1" or '
            '"L2", or keep the totals with base = "congenial"'
        )
    kept = checked.ledger
    if kept.period is not None or kept.currency is not None or checked.intruder.limit is not None:
        raise PlanError(
            "ledger and intruder: method congenial keeps no period, no other currency and no limit on "
            "an intruder's risk, for its epsilon is no differential privacy; take them out"
        )
    if kept.total is not None and kept.total <= 0:
        raise PlanError(f"ledger.total: {kept.total} is not allowed; it must be above 0")
    if section.previous is not None and section.base == "naive":
        raise PlanError("congenial.previous: a prior shares out public totals; take out base")
    if section.alpha <= 0 or section.pseudo_count < 0:
        raise PlanError("congenial: alpha is above 0, and pseudo_count 0 or more")
    if section.base == "naive":
        _refuse_wide_noise(section, budget.epsilon, checked.release.neighbors, rows)
    part = _part(section.part, schema) if section.part else None
    return OneTable(
        epsilon=budget.epsilon,
        level=level,
        fixed=fixed,
        part=part,
        part_name=", ".join(" or ".join(names) for names in section.part.values()),
        loss=section.loss,
        base=section.base,
        previous=None
        if section.previous is None
        else beside_plan(folder, section.previous, "congenial.previous"),
        alpha=section.alpha,
        pseudo_count=section.pseudo_count,
        people=section.people * rows,
    )


def _refuse_wide_noise(
    section: CongenialSection, epsilon: Fraction, neighbors: Neighbors, rows: int
) -> None:
    """Refuse noise that could take a count beyond 32 bits; nothing else bounds a naive release.

    One count has the variance 2 (sigma/epsilon)², where sigma is how far people move the loss. More
    counts have more where the loss is L2: the mechanism refuses those, once it has the counts.
    """
    moved = (2 if neighbors == "change-one" else 1) * (2 if section.part else 1)
    people = section.people * rows
    squared = (moved * people) ** 2 if section.loss == "L1" else moved * people**2
    if 2 * squared > (LARGEST_DEVIATION * epsilon) ** 2:
        raise PlanError(
            f'congenial: with base = "naive", this epsilon and people = {section.people:,} the noise '
            f"would have a standard deviation above {LARGEST_DEVIATION:,} and drown any count; raise "
            f"budget.epsilon, or lower people"
        )


def _fixed_level(
    levels: tuple[str, ...], level: str, invariants: tuple[Invariant, ...]
) -> str | None:
    """Return the finest level whose totals are public: all above it follow."""
    found = None
    for item in invariants:
        if item.query.name != "TOTAL":
            raise PlanError(
                f"invariants: {item.query.name} of {item.level} is public; method congenial keeps "
                f"TOTAL alone"
            )
        if levels.index(item.level) >= levels.index(level):
            raise PlanError(
                f"invariants: TOTAL of {item.level} is public, and so is every count of {level} that "
                f"could be drawn; release a lower level, or take the invariant out"
            )
        if found is None or levels.index(item.level) > levels.index(found):
            found = item.level
    return found


def _part(named: dict[str, list[str]], schema: Schema) -> NDArray[np.bool_]:
    """Return the cells of the histogram that are in all the categories named."""
    shape = tuple(len(item.categories) for item in schema.attributes)
    chosen = np.ones(shape, bool)
    known = {item.name: number for number, item in enumerate(schema.attributes)}
    for name, categories in named.items():
        if name not in known:
            raise PlanError(
                f"congenial.part.{name}: no such attribute; choose from {listed(known)}"
            )
        attribute = schema.attributes[known[name]]
        number_of = {category: number for number, category in enumerate(attribute.categories)}
        inside = np.zeros(len(attribute.categories), bool)
        for category in categories:
            if category not in number_of:
                raise PlanError(
                    f"congenial.part.{name}: no category {category!r}; choose from "
                    f"{listed(attribute.categories)}"
                )
            inside[number_of[category]] = True
        axis = known[name]
        chosen &= inside.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    flat = chosen.reshape(-1)
    if not flat.any() or flat.all():
        raise PlanError("congenial.part: it names nobody, or everybody; name some categories")
    flat.setflags(write=False)
    return flat


def read_numbers(path: Path, level: str, column: str, geocodes: list[str]) -> Array:
    """Read one public number for each of some units, from a column of a CSV or Parquet file."""
    try:
        table = _columns(path, level, column)
    except InputError:
        raise
    except MemoryError:
        raise InputError(
            f"{path}: does not fit in memory; free some, or use a machine with more"
        ) from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(
            f"{path}: cannot be read ({str(error).splitlines()[0]}); it is a CSV or Parquet file with "
            f"a column {column!r} of numbers"
        ) from error
    codes, numbers = table.column(0).to_pylist(), table.column(1).to_pylist()
    found = dict(zip(codes, numbers, strict=True))
    if len(found) != len(codes):
        raise InputError(f"{path}: a {level} is listed twice; list each once")
    missing = [code for code in geocodes if found.get(code) is None]
    if missing:
        raise InputError(
            f"{path}: no {column} for {len(missing)} of {len(geocodes)} units of {level}, such as "
            f"{missing[0]!r}; list each, 0 if it has none"
        )
    return np.array([found[code] for code in geocodes])


def _columns(path: Path, level: str, column: str) -> pa.Table:
    """Return the columns of codes, as text, and of numbers: counts are whole."""
    parquet = path.suffix.lower() in (".parquet", ".pq")
    names = pa.parquet.read_schema(path).names if parquet else read_header(path)[0]
    code = level if level in names else "geocode"
    for name in (code, column):
        if name not in names:
            raise InputError(
                f"{path}: no column {name!r}; it needs one named {level!r} or 'geocode', and {column!r}"
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
