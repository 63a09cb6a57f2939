"""What a homogeneity attack discloses (paper 004): five measures, each an exact average over cells.

In all of them the intruder knows that their target is counted, and the target's identifiers. They see
the noisy counts of the target's cell by label, and consider a label present if its count is ½ or more.
If one label remains, they attribute it to their target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from countveil.assess.homogeneity.average_risk import (
    MEASURES,
    Measure,
    averages,
    prepare,
    risks,
    weighted_averages,
)
from countveil.assess.homogeneity.cell_risk import keeping
from countveil.assess.homogeneity.label_splits import Dirichlet
from countveil.assess.homogeneity.sensitive_table import Table
from countveil.assess.homogeneity.sizes import Sizes
from countveil.assess.risk import Risk
from countveil.base.numerics import Array, FloatArray
from countveil.errors import InputError
from countveil.noise.law import Law


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class HomogeneityRisk(Risk):
    """Internal: a risk averaged over cells, that of each cell, and what it was computed with.

    Attributes
    ----------
    cells : array or None
        The risk of each cell, in the order of the table.
    weighted : bool
        Whether cells count by their people.
    method : str
        How the risk was computed.
    prior : Dirichlet or None
        The prior of the labels' shares, if the measure has one.
    sizes : Sizes or None
        The distribution of cell sizes, if the measure has one.
    """

    cells: FloatArray | None = None
    weighted: bool = False
    method: str = "exact"
    prior: Dirichlet | None = None
    sizes: Sizes | None = None

    def __repr__(self) -> str:
        return f"<internal: {self.measure} = {self.value:.6g}>"


def local_risk(
    table: Table, *, mechanism: Law, weighted: bool = False, method: str = "exact"
) -> HomogeneityRisk:
    """Return how often a cell shows a single label, one that someone in it has (Definition 6).

    The intruder knows that their target is counted, and the target's identifiers. They see the noisy
    counts of the target's cell by label, and consider those of ½ or more present. The number is the
    probability that exactly one label remains and someone in the cell has it, averaged over cells.

    Parameters
    ----------
    table : Table
        The confidential table.
    mechanism : Law
        The noise of its counts.
    weighted : bool
        Whether cells count by their people instead of equally.
    method : {"exact", "share", "printed", "corrected", "bound"}
        "share" counts a label by the share of people who have it, (7); the others are the formulas (13)
        and (22) of 004, as printed, as corrected, or an upper bound.

    Returns
    -------
    HomogeneityRisk
        The average and the risk of each cell; internal.

    Examples
    --------
    >>> from countveil import Laplace
    >>> table = Table.from_counts([[4, 0], [1, 1]])
    >>> round(local_risk(table, mechanism=Laplace(epsilon=1)).value, 4)
    0.5544
    """
    measure = Measure("local", weighted, method)
    return risk_of(table, mechanism=mechanism, measure=measure)


def expected_risk(
    table: Table,
    *,
    mechanism: Law,
    weighted: bool = False,
    method: str = "exact",
    shares: Array | None = None,
) -> HomogeneityRisk:
    """Return the local risk averaged over the labels that each cell's people might have (Definition 7).

    The intruder knows and sees the same as in `local_risk`.

    Parameters
    ----------
    table, mechanism, weighted, method
        As for `local_risk`.
    shares : array, optional
        The probability of each label, a row for all cells or one for each; the observed shares of the
        cell by default.

    Returns
    -------
    HomogeneityRisk
        The average and the risk of each cell; internal.
    """
    measure = Measure("expected", weighted, method, shares=shares)
    return risk_of(table, mechanism=mechanism, measure=measure)


def shrinkage_risk(
    table: Table,
    *,
    mechanism: Law,
    prior: str | Dirichlet | Array = "moments",
    weighted: bool = False,
    method: str = "exact",
) -> HomogeneityRisk:
    """Return the expected risk averaged over a Dirichlet prior of the shares (Definition 8).

    The intruder knows and sees the same as in `local_risk`.

    Parameters
    ----------
    table, mechanism, weighted, method
        As for `local_risk`.
    prior : {"moments", "likelihood"}, Dirichlet, or array of alphas
        How the prior is fitted to all cells, or the prior itself.

    Returns
    -------
    HomogeneityRisk
        The average, the risk of each cell, and the prior; internal.
    """
    measure = Measure("shrinkage", weighted, method, prior=prior)
    return risk_of(table, mechanism=mechanism, measure=measure)


def marginal_risk(
    table: Table,
    *,
    mechanism: Law,
    sizes: str | Sizes = "poisson",
    weighted: bool = False,
    method: str = "exact",
    shares: Array | None = None,
) -> HomogeneityRisk:
    """Return the expected risk averaged over the size that a cell might have (Definition 9).

    The intruder knows and sees the same as in `local_risk`.

    Parameters
    ----------
    table, mechanism, weighted, method
        As for `local_risk`.
    sizes : {"poisson", "negative-binomial", "plain-poisson"} or Sizes
        How the distribution of sizes is fitted to the table, or the distribution itself.
    shares : array, optional
        As for `expected_risk`.

    Returns
    -------
    HomogeneityRisk
        The average, the risk of each cell, and the sizes; internal.
    """
    measure = Measure("marginal", weighted, method, sizes=sizes, shares=shares)
    return risk_of(table, mechanism=mechanism, measure=measure)


def marginal_shrinkage_risk(
    table: Table,
    *,
    mechanism: Law,
    prior: str | Dirichlet | Array = "moments",
    sizes: str | Sizes = "poisson",
    method: str = "exact",
) -> HomogeneityRisk:
    """Return the shrinkage risk averaged over the size that a cell might have (Definition 10).

    The intruder knows and sees the same as in `local_risk`. The risk is the same for every cell, so
    there is nothing to weight.

    Parameters
    ----------
    table, mechanism, method
        As for `local_risk`.
    prior
        As for `shrinkage_risk`.
    sizes
        As for `marginal_risk`.

    Returns
    -------
    HomogeneityRisk
        The average, the prior and the sizes; internal.
    """
    measure = Measure("marginal_shrinkage", False, method, prior, sizes)
    return risk_of(table, mechanism=mechanism, measure=measure)


def risk_of(table: Table, *, mechanism: Law, measure: Measure | str) -> HomogeneityRisk:
    """Return any of the five measures.

    The intruder knows and sees the same as in `local_risk`.

    Parameters
    ----------
    table : Table
        The confidential table.
    mechanism : Law
        The noise of its counts.
    measure : Measure or str
        The measure, or its name.

    Returns
    -------
    HomogeneityRisk
        The average and the risk of each cell; internal.
    """
    item = Measure(measure) if isinstance(measure, str) else measure
    fitted = prepare(table, item)
    keep = keeping([mechanism], fitted.counts)
    each = np.clip(risks(fitted, [mechanism], keep)[0], 0.0, 1.0)
    return HomogeneityRisk(
        measure=f"{item.name.replace('_', ' ')} homogeneity risk",
        value=float(min(1.0, weighted_averages(each[None], fitted)[0, int(item.weighted)])),
        audience="internal",
        noise=(mechanism,),
        cells=each[fitted.cells.place],
        weighted=item.weighted,
        method=item.method,
        prior=fitted.prior,
        sizes=fitted.sizes,
    )


def curve(
    table: Table,
    *,
    mechanisms: Sequence[Law],
    measures: Sequence[str] = MEASURES,
    method: str = "exact",
    prior: str | Dirichlet | Array = "moments",
    sizes: str | Sizes = "poisson",
) -> pa.Table:
    """Return several measures for several mechanisms.

    The intruder knows and sees the same as in `local_risk`.

    Parameters
    ----------
    table : Table
        The confidential table.
    mechanisms : sequence of Law
        The noises to compare.
    measures : sequence of str
        The names of the measures.
    method, prior, sizes
        As for `Measure`.

    Returns
    -------
    pyarrow.Table
        A row per mechanism, and for each measure a column with equal cells and one weighted by people.
        Internal, as all measures are.
    """
    if not measures:
        raise InputError(f"measures: the list is empty; choose from {', '.join(MEASURES)}")
    items = [Measure(name, method=method, prior=prior, sizes=sizes) for name in measures]
    values = averages([prepare(table, item) for item in items], mechanisms)
    columns: dict[str, object] = {"mechanism": [repr(law) for law in mechanisms]}
    for number, name in enumerate(measures):
        columns[name] = values[:, number, 0]
        columns[f"{name}_weighted"] = values[:, number, 1]
    return pa.table(columns)
