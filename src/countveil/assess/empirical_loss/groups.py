"""INTERNAL: residuals of a release or of two columns of a file, tallied by group and size.

Residuals of counts are few different numbers, so that tallies hold all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from countveil.assess import reading
from countveil.assess.empirical_loss.exchangeability import Exchangeability, exchangeability
from countveil.assess.empirical_loss.geometric import geometric
from countveil.assess.empirical_loss.kde import Rule, check_choices, kde
from countveil.assess.empirical_loss.residuals import Residuals
from countveil.assess.empirical_loss.tail_ratio import checked_confidence, tail_ratio
from countveil.assess.exact_answers import exact_answers
from countveil.errors import InputError
from countveil.measure.measurement import Measurements
from countveil.numerics import Array, IntArray
from countveil.postprocess.estimates import Estimates
from countveil.schema.workload import Query
from countveil.tabulate.counts import Counts

SIZE_CLASSES = ("0", "1-9", "10-99", "100-999", "1,000+")
ALL = "all"

_LEAST = np.array([1, 10, 100, 1_000])
_VALUES = 4_000_000  # numbers held at a time
_MOST_DRAWN = 200_000  # residuals that a test of exchangeability looks at

Key = tuple[str, ...]


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Tallies:
    """Internal. How often each residual occurs, by some names, level and query say, and size class."""

    names: tuple[str, ...]
    found: dict[tuple[Key, str], Residuals]
    audience: ClassVar[Literal["internal"]] = "internal"

    def __repr__(self) -> str:
        return f"<internal: residuals of {len(self.groups)} groups>"

    @property
    def groups(self) -> list[Key]:
        """The groups, in the order they were met."""
        return list(dict.fromkeys(key for key, _ in self.found))

    def sizes(self, key: Key) -> list[str]:
        """Return the size classes that a group has residuals of."""
        return [name for name in SIZE_CLASSES if (key, name) in self.found]

    def of(self, key: Key, size: str = ALL) -> Residuals:
        """Return the residuals of a group, of one size class or of all."""
        held = [name for name in self.sizes(key) if size in (ALL, name)]
        if not held:
            raise InputError(f"no residuals of {', '.join((*key, size))}; see `groups`")
        return _merged([self.found[key, name] for name in held])

    def losses(
        self,
        *,
        by_size: bool = True,
        confidence: float = 0.95,
        bandwidth: float = 0.1,
        rule: Rule = "relative",
        percentile: float = 95,
        widest: float | None = None,
    ) -> pa.Table:
        """Return a row for each group and size class: the estimates, or why there are none.

        With `widest`, densities are not smoothed where residuals reach farther than so many people.
        """
        check_choices(bandwidth, rule, percentile)
        checked_confidence(confidence)
        rows = []
        for key in self.groups:
            for size in (ALL, *(self.sizes(key) if by_size else ())):
                residuals = self.of(key, size)
                row: dict[str, Any] = dict(zip(self.names, key, strict=True))
                row |= {"size_class": size, "residuals": residuals.total}
                choices = (confidence, bandwidth, rule, percentile, widest)
                rows.append(row | _estimates(residuals, *choices))
        return pa.Table.from_pylist(rows, _layout(self.names))

    def exchangeability(self, key: Key, *, tables: int = 999, seed: int = 1) -> Exchangeability:
        """Test whether residuals of a group have the same law in all its size classes."""
        parts = [self.of(key, name) for name in self.sizes(key)] or [self.of(key)]
        rng = np.random.default_rng(seed)
        total = sum(item.total for item in parts)
        values, labels = [], []
        for number, item in enumerate(parts):
            counts = item.counts
            if total > _MOST_DRAWN:  # so many of each that their shares stay as they are
                size = max(1, item.total * _MOST_DRAWN // total)
                counts = rng.multivariate_hypergeometric(item.counts, size)
            values.append(np.repeat(item.values, counts))
            labels.append(np.full(int(counts.sum()), number))
        return exchangeability(
            np.concatenate(values), np.concatenate(labels), tables=tables, seed=seed
        )


def of_release(
    released: Measurements | Estimates | Sequence[Measurements | Estimates],
    counts: Counts,
    *,
    strata: bool = False,
) -> Tallies:
    """Tally measurements or estimates less the counts they were made from, by level and query.

    Of several releases of the same counts residuals are put together. Size classes are those of the
    exact count itself; with `strata`, each cell of a query is a group of its own.
    """
    several = [released] if isinstance(released, Measurements | Estimates) else list(released)
    tally = _Tally()
    for one in several:
        if counts.counted_as != one.plan.counting_digest:
            raise InputError("the counts were tabulated for another plan; tabulate this one")
        for level in one.plan.measured_levels:
            for query, values, exact in _pairs(one, counts, level):
                key, residuals = (level, query.name), values - exact
                if not strata:
                    tally.add(key, residuals.ravel(), exact.ravel())
                    continue
                for cell, label in enumerate(query.cell_labels()):
                    stratum = ", ".join(label) or ALL
                    tally.add((*key, stratum), residuals[:, cell], exact[:, cell])
    if not tally.found:
        raise InputError("released: no release came; give one or more")
    return tally.result(("level", "query", "stratum") if strata else ("level", "query"))


def of_columns(
    source: Any, *, exact: str = "exact", released: str = "released", by: Sequence[str] = ()
) -> Tallies:
    """Tally released minus exact from two columns of a CSV or Parquet file, or of a table in memory.

    Other columns, `by`, make groups. Exact counts are whole numbers; released ones need not be.
    """
    columns = [exact, released, *by]
    for name in columns:
        if columns.count(name) > 1:
            raise InputError(
                f"{name}: is named twice; exact, released and groups are different columns"
            )
    for name in by:
        if name in _layout(()).names:
            raise InputError(
                f"by: a group cannot be called {name!r}, as a result is; rename the column"
            )
    tally = _Tally()
    with reading.opened(source, columns) as records:
        records.refuse_missing(columns)
        true, given = (f"TRY_CAST({reading.identifier(name)} AS DOUBLE)" for name in columns[:2])
        _refuse_other_than_counts(
            records, exact, f"{true} IS NULL OR {true} < 0 OR {true} % 1 <> 0"
        )
        _refuse_other_than_counts(records, released, f"{given} IS NULL OR NOT isfinite({given})")
        names = ", ".join(f"CAST({reading.identifier(name)} AS VARCHAR)" for name in by)
        table = records.table(
            f"SELECT {names + ', ' if by else ''}{true} AS exact, {given} - {true} AS residual, "
            f"count(*) AS times FROM {records.relation} GROUP BY ALL"
        )
    keys = list(zip(*(table.column(i).to_pylist() for i in range(len(by))), strict=True))
    keys = keys or [()] * table.num_rows
    number = {key: place for place, key in enumerate(sorted(set(keys)))}
    place = np.array([number[key] for key in keys], np.int64)
    numbers = [table[name].to_numpy() for name in ("residual", "exact", "times")]
    for key, at in number.items():
        tally.add(key, *(item[place == at] for item in numbers))
    return tally.result(tuple(by))


def _refuse_other_than_counts(records: reading.Source, column: str, wrong: str) -> None:
    found = records.table(f"SELECT count(*) AS wrong FROM {records.relation} WHERE {wrong}")
    bad = found["wrong"][0].as_py()
    if bad:
        raise InputError(
            f"{records.label}: column {column!r} has {bad:,} values that are no counts; exact counts "
            f"are whole numbers, 0 or more, and released ones numbers"
        )


class _Tally:
    def __init__(self) -> None:
        self.found: dict[tuple[Key, str], list[Residuals]] = {}

    def add(self, key: Key, residuals: Array, exact: Array, times: Array | None = None) -> None:
        """Take in some residuals, each once or so many times."""
        size = np.searchsorted(_LEAST, exact, side="right")
        often = np.ones(len(residuals), np.int64) if times is None else times
        for number in np.unique(size):
            here = size == number
            held = self.found.setdefault((key, SIZE_CLASSES[number]), [])
            held.append(_counted(residuals[here], often[here]))
            if len(held) > 32:
                held[:] = [_merged(held)]

    def result(self, names: tuple[str, ...]) -> Tallies:
        """Return what was taken in."""
        return Tallies(names, {key: _merged(parts) for key, parts in self.found.items()})


def _merged(parts: Sequence[Residuals]) -> Residuals:
    return _counted(
        np.concatenate([item.values for item in parts]),
        np.concatenate([item.counts for item in parts]),
    )


def _counted(residuals: Array, often: Array) -> Residuals:
    values, place = np.unique(residuals, return_inverse=True)
    counts = np.bincount(place, often, len(values)).astype(np.int64)
    return Residuals(values.astype(np.float64), counts, bool((values == np.rint(values)).all()))


def _pairs(
    released: Measurements | Estimates, counts: Counts, level: str
) -> Iterator[tuple[Query, IntArray, IntArray]]:
    """Yield released and exact counts of each query, some units at a time."""
    if isinstance(released, Measurements):
        start = 0
        for batch in released.stream(level):
            units = len(next(iter(batch.values())).values)
            for item in released.plan.at(level):
                values = batch[item.query.name].values.astype(np.int64)
                yield (
                    item.query,
                    values,
                    exact_answers(counts, level, start, start + units, item.query),
                )
            start += units
        return
    for item in released.plan.at(level):
        every = max(1, _VALUES // item.query.cells)
        units = released.geography.units(level)
        for start in range(0, units, every):
            stop = min(start + every, units)
            values = released.counts(level, item.query, start, stop)
            yield item.query, values, exact_answers(counts, level, start, stop, item.query)


def reach_of(residuals: Residuals, percentile: float = 95) -> float:
    """Return how far residuals reach from 0, but for the percentiles beyond."""
    ends = (residuals.percentile(percentile), residuals.percentile(100 - percentile))
    return max(map(abs, ends))


def _estimates(
    residuals: Residuals,
    confidence: float,
    bandwidth: float,
    rule: Rule,
    percentile: float,
    widest: float | None,
) -> dict[str, Any]:
    """Return the estimates of one group; a group that has too little says so."""
    found: dict[str, Any] = {}
    try:
        if residuals.whole:
            ratio = tail_ratio(residuals, confidence=confidence)
            found |= {
                "tail_ratio": ratio.value,
                "lower": ratio.interval[0],
                "upper": ratio.interval[1],
                "audit_lower_bound": ratio.lower_bound,
                "geometric_fit": geometric(residuals, confidence=confidence).value,
            }
        if widest is not None and reach_of(residuals, percentile) > widest:
            return found | {"note": f"residuals reach farther than {widest:,.0f}"}
        smooth = kde(residuals, bandwidth=bandwidth, rule=rule, percentile=percentile)
        return found | {"empirical_loss": smooth.value, "at": smooth.at}
    except InputError as error:  # too few residuals, or no spread: the choices are checked before
        return found | {"note": str(error)}


def _layout(names: Sequence[str]) -> pa.Schema:
    numbers = ("empirical_loss", "at", "tail_ratio", "lower", "upper", "audit_lower_bound")
    return pa.schema(
        [
            *((name, pa.string()) for name in names),
            ("size_class", pa.string()),
            ("residuals", pa.int64()),
            *((name, pa.float64()) for name in (*numbers, "geometric_fit")),
            ("note", pa.string()),
        ],
        metadata={"audience": "internal"},
    )
