"""INTERNAL: residuals of a release or of two columns of a file, tallied by group and size.

Residuals are whole numbers, so that tallies hold all of them, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from countveil.assess.empirical_loss.exchangeability import Exchangeability, exchangeability
from countveil.assess.empirical_loss.geometric import geometric
from countveil.assess.empirical_loss.kde import Rule, kde
from countveil.assess.empirical_loss.residuals import Residuals
from countveil.assess.empirical_loss.tail_ratio import tail_ratio
from countveil.assess.exact_answers import Counts, exact_answers
from countveil.errors import InputError
from countveil.measure.measurement import Measurements
from countveil.numerics import IntArray
from countveil.postprocess.estimates import Estimates
from countveil.schema.workload import Query

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
    ) -> pa.Table:
        """Return a row for each group and size class: the estimates, or why there are none."""
        rows = []
        for key in self.groups:
            for size in (ALL, *(self.sizes(key) if by_size else ())):
                residuals = self.of(key, size)
                row: dict[str, Any] = dict(zip(self.names, key, strict=True))
                row |= {"size_class": size, "residuals": residuals.total}
                rows.append(row | _estimates(residuals, confidence, bandwidth, rule, percentile))
        return pa.Table.from_pylist(rows, _layout(self.names))

    def exchangeability(self, key: Key, *, tables: int = 999, seed: int = 1) -> Exchangeability:
        """Test whether residuals of a group have the same law in all its size classes."""
        parts = [self.found[key, name] for name in self.sizes(key)]
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
    source: str | Path | pa.Table,
    *,
    exact: str = "exact",
    released: str = "released",
    by: Sequence[str] = (),
) -> Tallies:
    """Tally released minus exact from two columns of a CSV or Parquet file, by other columns of it."""
    tally = _Tally()
    for batch in _read(source, (exact, released, *by)):
        true, given = (_whole(batch.column(name), name) for name in (exact, released))
        if (true < 0).any():
            raise InputError(f"{exact}: some counts are below 0; exact counts are 0 or more")
        if not by:
            tally.add((), given - true, true)
            continue
        joined = [batch.column(name).cast(pa.string()).fill_null("") for name in by]
        keys = list(zip(*(item.to_pylist() for item in joined), strict=True))
        names = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        number = np.array([names[key] for key in keys])
        for key, at in names.items():
            here = number == at
            tally.add(key, given[here] - true[here], true[here])
    if not tally.found:
        raise InputError(f"{source if isinstance(source, str | Path) else 'table'}: has no rows")
    return tally.result(tuple(by))


class _Tally:
    def __init__(self) -> None:
        self.found: dict[tuple[Key, str], list[Residuals]] = {}

    def add(self, key: Key, residuals: IntArray, exact: IntArray) -> None:
        """Take in some residuals."""
        size = np.searchsorted(_LEAST, exact, side="right")
        for number in np.unique(size):
            values, counts = np.unique(residuals[size == number], return_counts=True)
            part = Residuals(values.astype(np.float64), counts, whole=True)
            held = self.found.setdefault((key, SIZE_CLASSES[number]), [])
            held.append(part)
            if len(held) > 32:
                held[:] = [_merged(held)]

    def result(self, names: tuple[str, ...]) -> Tallies:
        """Return what was taken in."""
        return Tallies(names, {key: _merged(parts) for key, parts in self.found.items()})


def _merged(parts: Sequence[Residuals]) -> Residuals:
    values, place = np.unique(np.concatenate([item.values for item in parts]), return_inverse=True)
    counts = np.bincount(place, np.concatenate([item.counts for item in parts]), len(values))
    return Residuals(values, counts.astype(np.int64), whole=True)


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


def _read(source: str | Path | pa.Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    if isinstance(source, pa.Table):
        _refuse_missing("table", source.column_names, columns)
        yield from source.select(columns).to_batches()
        return
    path = Path(source)
    if not path.is_file():
        raise InputError(f"{path}: is no file; name a CSV or Parquet file")
    form = "parquet" if path.suffix.lower() in (".parquet", ".pq") else "csv"
    try:
        opened = ds.dataset(path, format=form)
        _refuse_missing(str(path), opened.schema.names, columns)
        yield from opened.to_batches(columns=list(columns))
    except (pa.ArrowException, OSError) as error:
        first = str(error).splitlines()[0]
        raise InputError(f"{path}: cannot be read as a {form} file ({first})") from None


def _refuse_missing(source: str, known: Sequence[str], wanted: Sequence[str]) -> None:
    for name in wanted:
        if name not in known:
            raise InputError(f"{source}: has no column {name!r}; it has {', '.join(known)}")


def _whole(column: pa.Array, name: str) -> IntArray:
    """Return a column of whole numbers; refuse missing values and fractions."""
    if column.null_count:
        raise InputError(f"{name}: {column.null_count:,} values are missing; drop those rows first")
    try:
        return np.asarray(pc.cast(column, pa.int64()).to_numpy(zero_copy_only=False))
    except pa.ArrowInvalid:
        raise InputError(
            f"{name}: some values are no whole numbers; tallies are of counts, so round them, or give "
            f"the residuals to empirical_loss.kde"
        ) from None


def _estimates(
    residuals: Residuals, confidence: float, bandwidth: float, rule: Rule, percentile: float
) -> dict[str, Any]:
    """Return the estimates of one group; a group that has too little says so."""
    found: dict[str, Any] = {}
    try:
        if len(residuals.values) < 2:
            raise InputError(f"all residuals are {residuals.values[0]:g}")
        ratio = tail_ratio(residuals, confidence=confidence)
        fit = geometric(residuals, confidence=confidence)
        found |= {
            "tail_ratio": ratio.value,
            "lower": ratio.interval[0],
            "upper": ratio.interval[1],
            "audit_lower_bound": ratio.lower_bound,
            "geometric_fit": fit.value,
        }
        smooth = kde(residuals, bandwidth=bandwidth, rule=rule, percentile=percentile)
        return found | {"empirical_loss": smooth.value, "at": smooth.at}
    except InputError as error:
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
