"""INTERNAL: residuals of a release or of two columns of a file, by group and size of the count.

Residuals of counts take few distinct values, so that tallies of them keep everything. A test says
whether groups have the same law, as a common privacy loss assumes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
from scipy.stats import random_table

from countveil.assess import people_file
from countveil.assess.empirical_loss.residual_values import Residuals
from countveil.assess.empirical_loss.smoothed_density import Rule, check_choices, kde
from countveil.assess.empirical_loss.tail_ratios import checked_confidence, geometric, tail_ratio
from countveil.assess.people_file import PeopleFile, Records
from countveil.base.numerics import Array, FloatArray, IntArray
from countveil.engines.counts import Counts, exact_answers
from countveil.errors import InputError
from countveil.measure.measurements import Measurements
from countveil.plan.workload import Query
from countveil.postprocess.estimates import Estimates

SIZE_CLASSES = ("0", "1-9", "10-99", "100-999", "1,000+")
ALL = "all"

_LEAST = np.array([1, 10, 100, 1_000])
_VALUES = 4_000_000  # numbers in memory at a time
_MOST_DRAWN = 200_000  # residuals in a test of exchangeability
_BINS = 12  # of residuals in a test of exchangeability

Key = tuple[str, ...]


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Tallies:
    """Internal: how often each residual occurs, by group and size class of the exact count.

    Attributes
    ----------
    names : tuple of str
        What the key of a group consists of, such as level and query.
    residuals : dict
        The residuals of each group and size class.
    """

    names: tuple[str, ...]
    residuals: dict[tuple[Key, str], Residuals]
    audience: ClassVar[Literal["internal"]] = "internal"

    def __repr__(self) -> str:
        return f"<internal: residuals of {len(self.groups)} groups>"

    @property
    def groups(self) -> list[Key]:
        """The groups, in the order in which they were read."""
        return list(dict.fromkeys(key for key, _ in self.residuals))

    def sizes(self, key: Key) -> list[str]:
        """Return the size classes in which a group has residuals."""
        return [name for name in SIZE_CLASSES if (key, name) in self.residuals]

    def of(self, key: Key, size: str = ALL) -> Residuals:
        """Return the residuals of a group, of one size class or of all."""
        sizes = [name for name in self.sizes(key) if size in (ALL, name)]
        if not sizes:
            raise InputError(f"no residuals of {', '.join((*key, size))}; see `groups`")
        return _merged([self.residuals[key, name] for name in sizes])

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
        """Return the estimated losses of every group and size class.

        Parameters
        ----------
        by_size : bool
            Whether there is a row per size class, in addition to one for all sizes.
        confidence : float
            The confidence of the intervals of tail ratios.
        bandwidth, rule, percentile
            As for `kde`.
        widest : float, optional
            Skip the smoothed density where residuals reach farther than this many people.

        Returns
        -------
        pyarrow.Table
            A row per group and size class, with a note where an estimate is missing. Internal.
        """
        check_choices(bandwidth, rule, percentile)
        checked_confidence(confidence)
        rows: list[dict[str, object]] = []
        for key in self.groups:
            for size in (ALL, *(self.sizes(key) if by_size else ())):
                residuals = self.of(key, size)
                losses = _losses(residuals, confidence, bandwidth, rule, percentile, widest)
                row: dict[str, object] = dict(zip(self.names, key, strict=True))
                row |= {"size_class": size, "residuals": residuals.total}
                rows.append(row | asdict(losses))
        return pa.Table.from_pylist(rows, _layout(self.names))

    def exchangeability(self, key: Key, *, tables: int = 999, seed: int = 1) -> Exchangeability:
        """Test whether a group's residuals have the same law in all its size classes."""
        parts = [self.of(key, name) for name in self.sizes(key)] or [self.of(key)]
        rng = np.random.default_rng(seed)
        total = sum(item.total for item in parts)
        values, labels = [], []
        for number, item in enumerate(parts):
            counts = item.counts
            if total > _MOST_DRAWN:  # a sample in which each class keeps its share
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
    """Return the residuals of measurements or estimates, by level and query.

    Parameters
    ----------
    released : Measurements or Estimates, or several
        What was released; the residuals of several releases of the same counts are put together.
    counts : Counts
        The confidential counts. Size classes are those of the exact count.
    strata : bool
        Whether each cell of a query is a group of its own.

    Returns
    -------
    Tallies
        Internal.
    """
    several = [released] if isinstance(released, Measurements | Estimates) else list(released)
    tally = _GroupTally()
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
    if not tally.parts:
        raise InputError("released: the list is empty; give one release or more")
    return tally.result(("level", "query", "stratum") if strata else ("level", "query"))


def of_columns(
    source: Records, *, exact: str = "exact", released: str = "released", by: Sequence[str] = ()
) -> Tallies:
    """Return the residuals, released minus exact, of two columns of a file or table.

    Parameters
    ----------
    source : path or table
        A CSV or Parquet file, or a pandas, Polars or Arrow table.
    exact : str
        The column of exact counts, whole numbers.
    released : str
        The column of released counts, which need not be whole.
    by : sequence of str
        Further columns whose values make groups.

    Returns
    -------
    Tallies
        Internal.
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
                f"by: {name!r} is the name of a column of the result; rename the column of groups"
            )
    tally = _GroupTally()
    with people_file.open_people(source, columns) as records:
        records.refuse_missing(columns)
        exact_count, released_count = (
            f"TRY_CAST({people_file.identifier(name)} AS DOUBLE)" for name in columns[:2]
        )
        wrong = f"{exact_count} IS NULL OR {exact_count} < 0 OR {exact_count} % 1 <> 0"
        _refuse_other_than_counts(records, exact, wrong)
        wrong = f"{released_count} IS NULL OR NOT isfinite({released_count})"
        _refuse_other_than_counts(records, released, wrong)
        names = ", ".join(f"CAST({people_file.identifier(name)} AS VARCHAR)" for name in by)
        table = records.table(
            f"SELECT {names + ', ' if by else ''}{exact_count} AS exact, {released_count} - "
            f"{exact_count} AS residual, count(*) AS times FROM {records.relation} GROUP BY ALL"
        )
    keys = list(zip(*(table.column(i).to_pylist() for i in range(len(by))), strict=True))
    keys = keys or [()] * table.num_rows
    number = {key: place for place, key in enumerate(sorted(set(keys)))}
    place = np.array([number[key] for key in keys], np.int64)
    numbers = [table[name].to_numpy() for name in ("residual", "exact", "times")]
    for key, at in number.items():
        tally.add(key, *(item[place == at] for item in numbers))
    return tally.result(tuple(by))


@dataclass(frozen=True, slots=True)
class Exchangeability:
    """A test of whether all groups have the same law.

    Attributes
    ----------
    statistic : float
        Chi-square of groups × bins of residuals.
    p_value : float
        The probability of a statistic at least as large, if all groups have the same law.
    groups, tables : int
        How many groups were compared, and how many random tables were drawn.
    """

    statistic: float
    p_value: float
    groups: int
    tables: int


def exchangeability(
    residuals: Array, groups: Array, *, tables: int = 999, seed: int = 1
) -> Exchangeability:
    """Test whether the residuals of all groups (places, size classes, queries) have the same law.

    Residuals are binned at common quantiles. The chi-square statistic of groups × bins is compared with
    those of random tables with the same sums, which is what shuffling residuals between groups gives. A
    small p-value means that one loss for all groups says little.

    Parameters
    ----------
    residuals : array
        Released minus exact counts.
    groups : array
        The group of each residual.
    tables : int
        How many random tables are drawn.
    seed : int
        The seed of the draws.

    Returns
    -------
    Exchangeability
        The statistic and its p-value.
    """
    values, labels = np.asarray(residuals), np.asarray(groups)
    if labels.dtype.kind == "O":
        labels = labels.astype(str)
    if values.ndim != 1 or values.shape != labels.shape:
        raise InputError("groups: give one group for each residual")
    if not len(values):
        raise InputError("residuals: the list is empty; give two or more")
    if values.dtype.kind not in "iuf" or not np.isfinite(values).all():
        raise InputError("residuals: some are missing or infinite; drop those rows first")
    if tables < 19:
        raise InputError(f"tables: {tables} is not allowed; use at least 19")
    names, group = np.unique(labels, return_inverse=True)
    edges = np.unique(np.quantile(values, np.linspace(0, 1, _BINS + 1)[1:-1]))
    bins, place = np.unique(np.searchsorted(edges, values, side="left"), return_inverse=True)
    if len(names) < 2 or len(bins) < 2:
        raise InputError(
            f"groups: got {len(names)} with {len(bins)} distinct residuals; give two or more of each"
        )
    counts = np.bincount(group * len(bins) + place, minlength=len(names) * len(bins))
    table = counts.reshape(len(names), len(bins))
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    drawn = random_table(rows, columns).rvs(tables, random_state=np.random.default_rng(seed))
    expected = np.outer(rows, columns) / rows.sum()
    statistic = float(_chi_square(table[None], expected)[0])
    larger = int((_chi_square(drawn, expected) >= statistic - 1e-9).sum())
    return Exchangeability(statistic, (larger + 1) / (tables + 1), len(names), tables)


def reach_of(residuals: Residuals, percentile: float = 95) -> float:
    """Return how far residuals reach from 0, between this percentile and its opposite."""
    ends = (residuals.percentile(percentile), residuals.percentile(100 - percentile))
    return max(map(abs, ends))


@dataclass(frozen=True, slots=True)
class _Losses:
    """The estimated losses of one group, as columns of `losses`; None where there is none."""

    empirical_loss: float | None = None
    at: float | None = None
    tail_ratio: float | None = None
    lower: float | None = None
    upper: float | None = None
    audit_lower_bound: float | None = None
    geometric_fit: float | None = None
    note: str | None = None


def _losses(
    residuals: Residuals,
    confidence: float,
    bandwidth: float,
    rule: Rule,
    percentile: float,
    widest: float | None,
) -> _Losses:
    """Return the estimates of one group, with a note if it has too few residuals."""
    losses = _Losses()
    try:
        if residuals.whole:
            ratio = tail_ratio(residuals, confidence=confidence)
            losses = replace(
                losses,
                tail_ratio=ratio.value,
                lower=ratio.interval.lower,
                upper=ratio.interval.upper,
                audit_lower_bound=ratio.lower_bound,
                geometric_fit=geometric(residuals, confidence=confidence).value,
            )
        if widest is not None and reach_of(residuals, percentile) > widest:
            return replace(losses, note=f"residuals reach farther than {widest:,.0f}")
        smooth = kde(residuals, bandwidth=bandwidth, rule=rule, percentile=percentile)
        return replace(losses, empirical_loss=smooth.value, at=smooth.at)
    except InputError as error:  # too few residuals, or no noise: the choices are checked before
        return replace(losses, note=str(error))


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


class _GroupTally:
    """Residuals read so far, by group and size class."""

    def __init__(self) -> None:
        self.parts: dict[tuple[Key, str], list[Residuals]] = {}

    def add(self, key: Key, residuals: Array, exact: Array, times: Array | None = None) -> None:
        """Add some residuals, each once or `times` times."""
        size = np.searchsorted(_LEAST, exact, side="right")
        often = np.ones(len(residuals), np.int64) if times is None else times
        for number in np.unique(size):
            here = size == number
            parts = self.parts.setdefault((key, SIZE_CLASSES[number]), [])
            parts.append(_counted(residuals[here], often[here]))
            if len(parts) > 32:
                parts[:] = [_merged(parts)]

    def result(self, names: tuple[str, ...]) -> Tallies:
        """Return all residuals."""
        return Tallies(names, {key: _merged(parts) for key, parts in self.parts.items()})


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


def _refuse_other_than_counts(records: PeopleFile, column: str, wrong: str) -> None:
    table = records.table(f"SELECT count(*) AS wrong FROM {records.relation} WHERE {wrong}")
    bad = table["wrong"][0].as_py()
    if bad:
        raise InputError(
            f"{records.label}: column {column!r} has {bad:,} values that are not counts; exact "
            f"counts are whole numbers, 0 or more, and released ones finite numbers"
        )


def _chi_square(tables: Array, expected: FloatArray) -> FloatArray:
    return np.asarray(((tables - expected) ** 2 / expected).sum(axis=(1, 2)))
