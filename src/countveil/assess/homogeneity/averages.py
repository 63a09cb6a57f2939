"""Every measure of the homogeneity attack, of many laws at once: laws × different cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from countveil.assess.homogeneity import bounds
from countveil.assess.homogeneity.cells import local_risks, one_shown
from countveil.assess.homogeneity.dirichlet import prior_of
from countveil.assess.homogeneity.distinct import Distinct, distinct_cells
from countveil.assess.homogeneity.keeping import Keeping, keeping
from countveil.assess.homogeneity.recursion import expected_risks, refuse_large, risks_by_size
from countveil.assess.homogeneity.sizes import Sizes, sizes_of
from countveil.assess.homogeneity.splits import Dirichlet, Multinomial
from countveil.assess.homogeneity.table import Table
from countveil.assess.homogeneity.weights import log_poisson
from countveil.errors import InputError
from countveil.mechanisms.law import Law
from countveil.numerics import Array, FloatArray, IntArray

MEASURES = ("local", "expected", "shrinkage", "marginal", "marginal_shrinkage")
METHODS = ("exact", "share", "printed", "corrected", "bound")

_AT_ONCE = 500_000
_UPWARDS = 1 + 1e-13  # rounding must not take a bound below what it bounds


@dataclass(frozen=True, eq=False, slots=True)
class Measure:
    """Which risk is meant: of cells as counted, or averaged over what might have been counted.

    "local" takes the counts as they are; "expected" draws labels anew by each cell's `shares`, the
    observed ones if none are given; "shrinkage" draws the shares from a `prior` common to all cells;
    "marginal" and "marginal_shrinkage" draw the cell's size from `sizes` too (Definitions 6 to 10).
    Cells count alike or, `weighted`, by their people.
    """

    name: str = "local"
    weighted: bool = False
    method: str = "exact"
    prior: str | Dirichlet | Array = "moments"
    sizes: str | Sizes = "poisson"
    shares: Array | None = None

    def __post_init__(self) -> None:
        """Refuse names that are not known."""
        if self.name not in MEASURES:
            raise InputError(f"measure: {self.name!r} is not known; choose from {_all(MEASURES)}")
        if self.method not in METHODS:
            raise InputError(f"method: {self.method!r} is not known; choose from {_all(METHODS)}")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Prepared:
    """A measure of a table, with what is fitted to the table once for all laws."""

    measure: Measure
    cells: Distinct
    labels: int
    prior: Dirichlet | None
    sizes: Sizes | None

    @property
    def most(self) -> int:
        """The largest size that is gone through."""
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


def prepare(table: Table, measure: Measure) -> Prepared:
    """Fit what a measure needs."""
    shrinks = measure.name in ("shrinkage", "marginal_shrinkage")
    draws_sizes = measure.name in ("marginal", "marginal_shrinkage")
    return Prepared(
        measure=measure,
        cells=distinct_cells(table, measure.shares),
        labels=len(table.labels),
        prior=prior_of(table, measure.prior) if shrinks else None,
        sizes=sizes_of(table.sizes, measure.sizes) if draws_sizes else None,
    )


def averages(prepared: Sequence[Prepared], laws: Sequence[Law]) -> FloatArray:
    """Return each measure unweighted and weighted: laws × measures × 2."""
    counts = np.unique(np.concatenate([item.counts for item in prepared]))
    step = max(1, _AT_ONCE // (len(counts) + max(len(item.cells.sizes) for item in prepared)))
    found = np.empty((len(laws), len(prepared), 2))
    for start in range(0, max(1, len(laws)), step):
        some = laws[start : start + step]
        keep = keeping(some, counts)
        for number, item in enumerate(prepared):
            each = risks(item, some, keep)
            found[start : start + step, number] = each @ item.cells.weights
    return np.clip(found, 0.0, 1.0)


def risks(item: Prepared, laws: Sequence[Law], keep: Keeping) -> FloatArray:
    """Return the risk of every different cell: laws × cells."""
    method = item.measure.method
    if method in ("exact", "share"):
        return _EXACT[item.measure.name](item, keep, method == "share")
    if method == "bound":
        bounds.refuse_unproved(laws)
        return _FORMULAS[item.measure.name](item, keep) * _UPWARDS
    return _FORMULAS[item.measure.name](item, keep)


def _local(item: Prepared, keep: Keeping, share: bool) -> FloatArray:
    return local_risks(item.cells.counts, keep, share=share)


def _expected(item: Prepared, keep: Keeping, share: bool) -> FloatArray:
    return expected_risks(item.cells.sizes, item.cells.shares, keep, share=share)


def _shrinkage(item: Prepared, keep: Keeping, share: bool) -> FloatArray:
    return _by_size(item, keep, share)[:, item.cells.sizes]


def _marginal(item: Prepared, keep: Keeping, share: bool) -> FloatArray:
    assert item.sizes is not None
    if item.sizes.poisson_mean is not None and not share:
        return _independent_labels(item, keep, item.sizes)
    different, place = np.unique(item.cells.shares, axis=0, return_inverse=True)
    found = np.empty((len(keep.kept), len(different)))
    for number, shares in enumerate(different):
        by_size = risks_by_size(Multinomial(shares), item.sizes.most, keep, share=share)
        found[:, number] = by_size @ item.sizes.pmf
    return found[:, place.reshape(-1)]


def _independent_labels(item: Prepared, keep: Keeping, sizes: Sizes) -> FloatArray:
    """Return the same for Poisson sizes, whose labels have independent Poisson counts."""
    mean = sizes.poisson_mean
    assert mean is not None
    different, place = np.unique(item.cells.shares, return_inverse=True)
    chances = np.exp(log_poisson(np.arange(sizes.most + 1)[:, None], mean * different))
    told = keep.told(share=False)[:, : sizes.most + 1] @ chances
    dropped = keep.dropped[:, : sizes.most + 1] @ chances
    one = one_shown(told, dropped, place.reshape(item.cells.shares.shape))
    return one if sizes.name == "plain-poisson" else one / -math.expm1(-mean)


def _marginal_shrinkage(item: Prepared, keep: Keeping, share: bool) -> FloatArray:
    assert item.sizes is not None
    return _for_all(item, _by_size(item, keep, share) @ item.sizes.pmf)


def _by_size(item: Prepared, keep: Keeping, share: bool) -> FloatArray:
    """Return the risk of a cell of each size, its shares drawn from the prior: laws × sizes."""
    prior = item.prior
    assert prior is not None
    if prior.concentration == 0:
        return bounds.one_label(keep, np.arange(item.most + 1), item.labels)
    split = Multinomial(prior.shares) if math.isinf(prior.concentration) else prior
    return risks_by_size(split, item.most, keep, share=share)


def _formula_by_cell(item: Prepared, keep: Keeping) -> FloatArray:
    """Return (13) to (15) or their kin."""
    single = _single_label(item)
    one = bounds.one_label(keep, item.cells.sizes, item.labels)
    return single * one + (1 - single) * _several(item, keep, item.cells.sizes)


def _single_label(item: Prepared) -> FloatArray:
    """Return the chance that all people of a cell have one label."""
    if item.measure.name == "local":
        return np.asarray((item.cells.counts > 0).sum(axis=1) == 1, float)
    if item.prior is not None:
        return item.prior.one_label(item.most)[item.cells.sizes]
    return np.asarray((item.cells.shares ** item.cells.sizes[:, None]).sum(axis=1))


def _several(item: Prepared, keep: Keeping, sizes: IntArray) -> FloatArray:
    """Return the second term for every cell."""
    if item.measure.method != "bound":
        printed = item.measure.method == "printed" and item.measure.name == "local"
        return bounds.two_labels(keep, sizes, item.labels, printed=printed)
    if item.prior is not None:
        return bounds.several_labels(keep, sizes, item.labels, item.labels)
    taken = (item.cells.counts if item.measure.name == "local" else item.cells.shares) > 0
    possible = taken.sum(axis=1)
    found = np.empty((len(keep.kept), len(sizes)))
    for number in np.unique(possible):
        here = possible == number
        if item.measure.name == "local":
            found[:, here] = bounds.with_labels(keep, sizes[here], item.labels, int(number))
        else:
            found[:, here] = bounds.several_labels(keep, sizes[here], item.labels, int(number))
    return found


def _formula_marginal(item: Prepared, keep: Keeping) -> FloatArray:
    """Return (16) as printed, f at the size observed, or summed over all sizes (Definition 9)."""
    assert item.sizes is not None
    if item.measure.method == "printed":
        padded: FloatArray = np.append(item.sizes.pmf, np.zeros(item.most + 1))
        return padded[item.cells.sizes] * _formula_by_cell(item, keep)
    n = np.arange(1, item.sizes.most + 1)
    single = np.array([(item.cells.shares**size).sum(axis=1) for size in n])
    one = bounds.one_label(keep, n, item.labels) * item.sizes.pmf[1:]
    found: FloatArray = one @ single
    possible = (item.cells.shares > 0).sum(axis=1)
    for number in np.unique(possible):
        here = possible == number
        second = _second(item, keep, n, int(number)) * item.sizes.pmf[1:]
        found[:, here] += second @ (1 - single[:, here])
    return found


def _formula_marginal_shrinkage(item: Prepared, keep: Keeping) -> FloatArray:
    """Return (17) or its kin."""
    assert item.sizes is not None
    assert item.prior is not None
    n = np.arange(1, item.sizes.most + 1)
    single = item.prior.one_label(item.sizes.most)[1:]
    one = bounds.one_label(keep, n, item.labels)
    second = _second(item, keep, n, item.labels)
    return _for_all(item, (single * one + (1 - single) * second) @ item.sizes.pmf[1:])


def _second(item: Prepared, keep: Keeping, sizes: IntArray, most: int) -> FloatArray:
    if item.measure.method == "bound":
        return bounds.several_labels(keep, sizes, item.labels, most)
    return bounds.two_labels(keep, sizes, item.labels, printed=False)


def _for_all(item: Prepared, values: FloatArray) -> FloatArray:
    """Repeat what holds for any cell."""
    return np.repeat(values[:, None], len(item.cells.sizes), axis=1)


def _all(names: Sequence[str]) -> str:
    return ", ".join(names)


_EXACT: dict[str, Callable[[Prepared, Keeping, bool], FloatArray]] = {
    "local": _local,
    "expected": _expected,
    "shrinkage": _shrinkage,
    "marginal": _marginal,
    "marginal_shrinkage": _marginal_shrinkage,
}
_FORMULAS: dict[str, Callable[[Prepared, Keeping], FloatArray]] = {
    "local": _formula_by_cell,
    "expected": _formula_by_cell,
    "shrinkage": _formula_by_cell,
    "marginal": _formula_marginal,
    "marginal_shrinkage": _formula_marginal_shrinkage,
}
