"""Every measure of the homogeneity attack, for many laws at once: laws × distinct cells.

Cells that differ only in the order of their labels have the same risk, so each distinct one is computed
once. A measure is an exact sum, or a formula of 004 as printed, as corrected, or as an upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from countveil.assess.homogeneity.cell_risk import Keeping, keeping, local_risks, one_shown
from countveil.assess.homogeneity.dirichlet import prior_of
from countveil.assess.homogeneity.label_recursion import expected_risks, refuse_large, risks_by_size
from countveil.assess.homogeneity.label_splits import Dirichlet, Multinomial, log_poisson
from countveil.assess.homogeneity.sensitive_table import Table
from countveil.assess.homogeneity.sizes import Sizes, sizes_of
from countveil.base.numerics import Array, FloatArray, IntArray
from countveil.errors import InputError
from countveil.noise.law import Law

MEASURES = ("local", "expected", "shrinkage", "marginal", "marginal_shrinkage")
METHODS = ("exact", "share", "printed", "corrected", "bound")

_AT_ONCE = 500_000  # numbers in memory at a time
_UPWARDS = 1 + 1e-13  # rounding must not take a bound below what it bounds
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False, slots=True)
class Measure:
    """Which risk to compute: that of the cells as they are, or an average over what they might be.

    Parameters
    ----------
    name : {"local", "expected", "shrinkage", "marginal", "marginal_shrinkage"}
        "local" takes the counts as they are; "expected" redraws labels by each cell's shares;
        "shrinkage" draws the shares from a prior common to all cells; "marginal" and
        "marginal_shrinkage" also draw the cell's size (Definitions 6 to 10).
    weighted : bool
        Whether cells count by their people instead of equally.
    method : {"exact", "share", "printed", "corrected", "bound"}
        An exact sum; the same with a label counted by the share of people who have it, (7); or one of
        the formulas of 004: as printed, as corrected, or an upper bound.
    prior : {"moments", "likelihood"}, Dirichlet, or array of alphas
        How the prior of the shares is fitted, or the prior itself.
    sizes : {"poisson", "negative-binomial", "plain-poisson"} or Sizes
        How the distribution of sizes is fitted, or the distribution itself.
    shares : array, optional
        Shares of labels to use instead of the observed ones, for all cells or a row for each.
    """

    name: str = "local"
    weighted: bool = False
    method: str = "exact"
    prior: str | Dirichlet | Array = "moments"
    sizes: str | Sizes = "poisson"
    shares: Array | None = None

    def __post_init__(self) -> None:
        if self.name not in MEASURES:
            raise InputError(
                f"measure: unknown measure {self.name!r}; choose from {_all(MEASURES)}"
            )
        if self.method not in METHODS:
            raise InputError(f"method: unknown method {self.method!r}; choose from {_all(METHODS)}")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class FittedMeasure:
    """A measure of a table, with everything that is fitted to the table once for all laws."""

    measure: Measure
    cells: DistinctCells
    labels: int
    prior: Dirichlet | None
    sizes: Sizes | None

    @property
    def most(self) -> int:
        """The largest size in any sum."""
        largest = int(self.cells.sizes.max())
        if self.measure.name == "marginal_shrinkage" and self.sizes is not None:
            return self.sizes.most
        if self.measure.name == "marginal" and self.sizes is not None:
            return max(self.sizes.most, largest if self.measure.method == "printed" else 0)
        return largest

    @property
    def counts(self) -> IntArray:
        """The counts at which laws are evaluated."""
        if self.measure.name != "local":
            return np.arange(refuse_large(self.most) + 1)
        if self.measure.method in ("exact", "share"):
            return np.unique(self.cells.counts)
        rest = [self.cells.sizes - number for number in range(self.labels)]
        return np.unique(np.maximum(np.concatenate([[0, 1], *rest]), 0))


def prepare(table: Table, measure: Measure) -> FittedMeasure:
    """Fit the prior and the sizes that a measure needs."""
    shrinks = measure.name in ("shrinkage", "marginal_shrinkage")
    draws_sizes = measure.name in ("marginal", "marginal_shrinkage")
    return FittedMeasure(
        measure=measure,
        cells=distinct_cells(table, measure.shares),
        labels=len(table.labels),
        prior=prior_of(table, measure.prior) if shrinks else None,
        sizes=sizes_of(table.sizes, measure.sizes) if draws_sizes else None,
    )


def averages(prepared: Sequence[FittedMeasure], laws: Sequence[Law]) -> FloatArray:
    """Return each measure unweighted and weighted: laws × measures × 2."""
    counts = np.unique(np.concatenate([item.counts for item in prepared]))
    step = max(1, _AT_ONCE // (len(counts) + max(len(item.cells.sizes) for item in prepared)))
    values = np.empty((len(laws), len(prepared), 2))
    for start in range(0, max(1, len(laws)), step):
        some = laws[start : start + step]
        keep = keeping(some, counts)
        for number, item in enumerate(prepared):
            each = risks(item, some, keep)
            values[start : start + step, number] = weighted_averages(each, item)
    return np.clip(values, 0.0, 1.0)


def weighted_averages(each: FloatArray, item: FittedMeasure) -> FloatArray:
    """Return averages over cells, unweighted and weighted, of their risks: laws × 2.

    A product of matrices would depend, in its last digit, on how many laws there are and on where the
    numbers are in memory.
    """
    weights = item.cells.weights
    return np.column_stack([(each * weights[:, number]).sum(axis=1) for number in (0, 1)])


def risks(item: FittedMeasure, laws: Sequence[Law], keep: Keeping) -> FloatArray:
    """Return the risk of every distinct cell: laws × cells."""
    method = item.measure.method
    if method in ("exact", "share"):
        return _EXACT[item.measure.name](item, keep, method == "share")
    if method == "bound":
        refuse_unproved(laws)
        return _FORMULAS[item.measure.name](item, keep) * _UPWARDS
    return _FORMULAS[item.measure.name](item, keep)


def _local(item: FittedMeasure, keep: Keeping, share: bool) -> FloatArray:
    return local_risks(item.cells.counts, keep, share=share)


def _expected(item: FittedMeasure, keep: Keeping, share: bool) -> FloatArray:
    return expected_risks(item.cells.sizes, item.cells.shares, keep, share=share)


def _shrinkage(item: FittedMeasure, keep: Keeping, share: bool) -> FloatArray:
    return _by_size(item, keep, share)[:, item.cells.sizes]


def _marginal(item: FittedMeasure, keep: Keeping, share: bool) -> FloatArray:
    assert item.sizes is not None
    if item.sizes.poisson_mean is not None and not share:
        return _independent_labels(item, keep, item.sizes)
    different, place = np.unique(item.cells.shares, axis=0, return_inverse=True)
    values = np.empty((len(keep.kept), len(different)))
    for number, shares in enumerate(different):
        by_size = risks_by_size(Multinomial(shares), item.sizes.most, keep, share=share)
        values[:, number] = by_size @ item.sizes.pmf
    return values[:, place.reshape(-1)]


def _independent_labels(item: FittedMeasure, keep: Keeping, sizes: Sizes) -> FloatArray:
    """Return the same for Poisson sizes, whose labels have independent Poisson counts."""
    mean = sizes.poisson_mean
    assert mean is not None
    different, place = np.unique(item.cells.shares, return_inverse=True)
    weights = np.exp(log_poisson(np.arange(sizes.most + 1)[:, None], mean * different))
    shown = keep.shown(share=False)[:, : sizes.most + 1] @ weights
    dropped = keep.dropped[:, : sizes.most + 1] @ weights
    one = one_shown(shown, dropped, place.reshape(item.cells.shares.shape))
    return one if sizes.name == "plain-poisson" else one / -math.expm1(-mean)


def _marginal_shrinkage(item: FittedMeasure, keep: Keeping, share: bool) -> FloatArray:
    assert item.sizes is not None
    return _for_all(item, _by_size(item, keep, share) @ item.sizes.pmf)


def _by_size(item: FittedMeasure, keep: Keeping, share: bool) -> FloatArray:
    """Return the risk of a cell of each size, its shares drawn from the prior: laws × sizes."""
    prior = item.prior
    assert prior is not None
    if prior.concentration == 0:
        return one_label(keep, np.arange(item.most + 1), item.labels)
    split = Multinomial(prior.shares) if math.isinf(prior.concentration) else prior
    return risks_by_size(split, item.most, keep, share=share)


def _formula_by_cell(item: FittedMeasure, keep: Keeping) -> FloatArray:
    """Return (13) to (15), or their corrected or bounding forms."""
    single = _single_label(item)
    one = one_label(keep, item.cells.sizes, item.labels)
    return single * one + (1 - single) * _several(item, keep, item.cells.sizes)


def _single_label(item: FittedMeasure) -> FloatArray:
    """Return the probability that all people of a cell have one label."""
    if item.measure.name == "local":
        return np.asarray((item.cells.counts > 0).sum(axis=1) == 1, float)
    if item.prior is not None:
        return item.prior.one_label(item.most)[item.cells.sizes]
    return np.asarray((item.cells.shares ** item.cells.sizes[:, None]).sum(axis=1))


def _several(item: FittedMeasure, keep: Keeping, sizes: IntArray) -> FloatArray:
    """Return the second term for every cell."""
    if item.measure.method != "bound":
        printed = item.measure.method == "printed" and item.measure.name == "local"
        return two_labels(keep, sizes, item.labels, printed=printed)
    if item.prior is not None:
        return several_labels(keep, sizes, item.labels, item.labels)
    possible_labels = (item.cells.counts if item.measure.name == "local" else item.cells.shares) > 0
    possible = possible_labels.sum(axis=1)
    values = np.empty((len(keep.kept), len(sizes)))
    for number in np.unique(possible):
        here = possible == number
        if item.measure.name == "local":
            values[:, here] = with_labels(keep, sizes[here], item.labels, int(number))
        else:
            values[:, here] = several_labels(keep, sizes[here], item.labels, int(number))
    return values


def _formula_marginal(item: FittedMeasure, keep: Keeping) -> FloatArray:
    """Return (16): as printed, f at the observed size, or summed over all sizes (Definition 9)."""
    assert item.sizes is not None
    if item.measure.method == "printed":
        padded: FloatArray = np.append(item.sizes.pmf, np.zeros(item.most + 1))
        return padded[item.cells.sizes] * _formula_by_cell(item, keep)
    n = np.arange(1, item.sizes.most + 1)
    single = np.array([(item.cells.shares**size).sum(axis=1) for size in n])
    one = one_label(keep, n, item.labels) * item.sizes.pmf[1:]
    values: FloatArray = one @ single
    possible = (item.cells.shares > 0).sum(axis=1)
    for number in np.unique(possible):
        here = possible == number
        second = _second(item, keep, n, int(number)) * item.sizes.pmf[1:]
        values[:, here] += second @ (1 - single[:, here])
    return values


def _formula_marginal_shrinkage(item: FittedMeasure, keep: Keeping) -> FloatArray:
    """Return (17), or its corrected or bounding form."""
    assert item.sizes is not None
    assert item.prior is not None
    n = np.arange(1, item.sizes.most + 1)
    single = item.prior.one_label(item.sizes.most)[1:]
    one = one_label(keep, n, item.labels)
    second = _second(item, keep, n, item.labels)
    return _for_all(item, (single * one + (1 - single) * second) @ item.sizes.pmf[1:])


def _second(item: FittedMeasure, keep: Keeping, sizes: IntArray, most: int) -> FloatArray:
    if item.measure.method == "bound":
        return several_labels(keep, sizes, item.labels, most)
    return two_labels(keep, sizes, item.labels, printed=False)


def _for_all(item: FittedMeasure, values: FloatArray) -> FloatArray:
    """Repeat for every cell what holds for any of them."""
    return np.repeat(values[:, None], len(item.cells.sizes), axis=1)


def _all(names: Sequence[str]) -> str:
    return ", ".join(names)


# Formulas of 004 instead of sums: (13) to (17) and (22) to (26). All are P × (all n people have one
# label) + (1 - P) × (they have several), where P is 0 or 1 for a cell as counted, and a probability
# for one that might have been counted. For a cell with j labels,
#
# H_j(n) = (1 - u0)^(K-j) [u(n-j+1) (1 - u1)^(j-1) + (j-1) u1 (1 - u1)^(j-2) (1 - u(n-j+1))]
#
# is the exact risk if all labels but one have one person. 004 takes j = 2 for any number of labels,
# which is not an upper bound from three labels on; H_j is one for Laplace and discrete Laplace noise.


def one_label(keep: Keeping, sizes: Array, labels: int) -> FloatArray:
    """Return H_1(n) = (1 - u0)^(K-1) u(n): laws × sizes; 0 for empty cells."""
    return with_labels(keep, sizes, labels, 1)


def two_labels(keep: Keeping, sizes: Array, labels: int, *, printed: bool) -> FloatArray:
    """Return H_2(n), the second term of 004; as printed, it has (1 - u0)^(K-1) once too often."""
    second = with_labels(keep, sizes, labels, 2)
    return second * keep.dropped[:, :1] ** (labels - 1) if printed else second


def several_labels(keep: Keeping, sizes: Array, labels: int, most: int) -> FloatArray:
    """Return the largest of H_2(n) … H_most(n)."""
    largest = np.zeros((len(keep.kept), len(sizes)))
    for number in range(2, most + 1):
        largest = np.maximum(largest, with_labels(keep, sizes, labels, number))
    return largest


def with_labels(keep: Keeping, sizes: Array, labels: int, number: int) -> FloatArray:
    """Return H_number(n): laws × sizes; 0 where there are fewer people than labels.

    `keep` begins with the counts 0 and 1.
    """
    enough = np.asarray(sizes) >= number
    large = keep.columns(np.where(enough, np.asarray(sizes) - number + 1, 0))
    v0, u1, v1 = keep.dropped[:, :1], keep.kept[:, 1:2], keep.dropped[:, 1:2]
    one = keep.kept[:, large] * v1 ** (number - 1)
    if number > 1:
        one += (number - 1) * u1 * v1 ** (number - 2) * keep.dropped[:, large]
    return np.where(enough, v0 ** (labels - number) * one, 0.0)


def refuse_unproved(laws: Sequence[Law]) -> None:
    """Refuse noise for which H_j is not an upper bound."""
    for law in laws:
        if law.laplace_scale is None:
            raise InputError(
                f'method: "bound" is valid only for Laplace and DiscreteLaplace noise, and this is '
                f'{law!r}; use method="exact"'
            )


# The distinct cells of a table.


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class DistinctCells:
    """Distinct cells: counts and shares in falling order, and the place of each cell of the table.

    `weights` are the shares of cells, and of people, that each represents (Definition 11).
    """

    counts: IntArray
    sizes: IntArray
    shares: FloatArray
    place: IntArray
    weights: FloatArray


def distinct_cells(table: Table, shares: Array | None = None) -> DistinctCells:
    """Return the distinct cells; `shares` replaces the observed shares of labels, for all or each."""
    counts = -np.sort(-table.counts, axis=1)
    if shares is None:
        different, place = np.unique(counts, axis=0, return_inverse=True)
        sizes = different.sum(axis=1)
        plugged = different / sizes[:, None]
    else:
        sorted_shares = -np.sort(-_checked(shares, table), axis=1)
        rows = np.column_stack([counts, sorted_shares])
        both, place = np.unique(rows, axis=0, return_inverse=True)
        different, plugged = both[:, : counts.shape[1]].astype(np.int64), both[:, counts.shape[1] :]
        sizes = different.sum(axis=1)
    place = place.reshape(-1)
    cells = np.bincount(place)
    people = cells * sizes
    weights = np.column_stack([cells / cells.sum(), people / people.sum()])
    return DistinctCells(different, sizes, plugged, place, weights)


def _checked(shares: Array, table: Table) -> FloatArray:
    try:
        rows = np.array(np.broadcast_to(np.asarray(shares, np.float64), table.counts.shape))
    except (TypeError, ValueError):
        rows = np.full(table.counts.shape, np.nan)
    if not (rows >= 0).all() or (np.abs(rows.sum(axis=1) - 1) > _ROUNDING).any():
        raise InputError(
            f"shares: give {len(table.labels)} numbers, 0 or more with sum 1, for all cells or a "
            f"row for each; leave them out to use the observed shares"
        )
    return rows


_EXACT: dict[str, Callable[[FittedMeasure, Keeping, bool], FloatArray]] = {
    "local": _local,
    "expected": _expected,
    "shrinkage": _shrinkage,
    "marginal": _marginal,
    "marginal_shrinkage": _marginal_shrinkage,
}
_FORMULAS: dict[str, Callable[[FittedMeasure, Keeping], FloatArray]] = {
    "local": _formula_by_cell,
    "expected": _formula_by_cell,
    "shrinkage": _formula_by_cell,
    "marginal": _formula_marginal,
    "marginal_shrinkage": _formula_marginal_shrinkage,
}
