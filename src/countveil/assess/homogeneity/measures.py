"""What a homogeneity attack discloses (paper 004): five measures, each an exact average over cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from countveil.assess.homogeneity.averages import MEASURES, Measure, averages, prepare, risks
from countveil.assess.homogeneity.keeping import keeping
from countveil.assess.homogeneity.sizes import Sizes
from countveil.assess.homogeneity.splits import Dirichlet
from countveil.assess.homogeneity.table import Table
from countveil.assess.risk import Risk
from countveil.errors import InputError
from countveil.mechanisms.law import Law
from countveil.numerics import Array, FloatArray


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class HomogeneityRisk(Risk):
    """Internal: the average over cells, the risk of each in the table's order, and what was fitted."""

    cells: FloatArray | None = None
    prior: Dirichlet | None = None
    sizes: Sizes | None = None

    def __repr__(self) -> str:
        return f"<internal: {self.measure} = {self.value:.6g}>"


def local(
    table: Table, *, mechanism: Law, weighted: bool = False, method: str = "exact"
) -> HomogeneityRisk:
    """Return how often a cell shows a single label, and one that somebody in it has (Definition 6).

    He knows that his target is counted, and its identifiers; he sees the noisy counts of its cell by
    label, and takes those of ½ and more for there. The number is the average over cells, unless
    `method` is "share", which counts a label by the share of people who have it (7), or one of the
    formulas of 004: "printed" and "corrected" (13), (22), or "bound", an upper one.
    """
    return measured(table, mechanism=mechanism, measure=Measure("local", weighted, method))


def expected(
    table: Table,
    *,
    mechanism: Law,
    weighted: bool = False,
    method: str = "exact",
    shares: Array | None = None,
) -> HomogeneityRisk:
    """Return the local risk averaged over the labels that each cell's people might have (Definition 7).

    He knows and sees the same. Each person takes a label by `shares`: those of the cell, or as given, a
    row for all cells or one for each.
    """
    measure = Measure("expected", weighted, method, shares=shares)
    return measured(table, mechanism=mechanism, measure=measure)


def shrinkage(
    table: Table,
    *,
    mechanism: Law,
    prior: str | Dirichlet | Array = "moments",
    weighted: bool = False,
    method: str = "exact",
) -> HomogeneityRisk:
    """Return the expected risk averaged over a Dirichlet prior of the shares (Definition 8).

    He knows and sees the same. The prior is fitted to all cells by "moments" or "likelihood", or given.
    """
    measure = Measure("shrinkage", weighted, method, prior=prior)
    return measured(table, mechanism=mechanism, measure=measure)


def marginal(
    table: Table,
    *,
    mechanism: Law,
    sizes: str | Sizes = "poisson",
    weighted: bool = False,
    method: str = "exact",
    shares: Array | None = None,
) -> HomogeneityRisk:
    """Return the expected risk averaged over the size that a cell might have (Definition 9).

    He knows and sees the same. Sizes are fitted as "poisson" or "negative-binomial", or given.
    """
    measure = Measure("marginal", weighted, method, sizes=sizes, shares=shares)
    return measured(table, mechanism=mechanism, measure=measure)


def marginal_shrinkage(
    table: Table,
    *,
    mechanism: Law,
    prior: str | Dirichlet | Array = "moments",
    sizes: str | Sizes = "poisson",
    method: str = "exact",
) -> HomogeneityRisk:
    """Return the shrinkage risk averaged over the size that a cell might have (Definition 10).

    He knows and sees the same. It is the risk of any cell, so there is nothing to weight.
    """
    measure = Measure("marginal_shrinkage", False, method, prior, sizes)
    return measured(table, mechanism=mechanism, measure=measure)


def measured(table: Table, *, mechanism: Law, measure: Measure | str) -> HomogeneityRisk:
    """Return any of the five measures."""
    asked = Measure(measure) if isinstance(measure, str) else measure
    prepared = prepare(table, asked)
    keep = keeping([mechanism], prepared.counts)
    each = np.clip(risks(prepared, [mechanism], keep)[0], 0.0, 1.0)
    return HomogeneityRisk(
        measure=f"{asked.name.replace('_', ' ')} homogeneity risk",
        value=float(min(1.0, each @ prepared.cells.weights[:, int(asked.weighted)])),
        audience="internal",
        cells=each[prepared.cells.place],
        prior=prepared.prior,
        sizes=prepared.sizes,
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
    """Return measures for many mechanisms: a row for each, a column for each measure and weighting.

    Internal, as all measures are.
    """
    if not measures:
        raise InputError(f"measures: none came; choose from {', '.join(MEASURES)}")
    asked = [Measure(name, method=method, prior=prior, sizes=sizes) for name in measures]
    found = averages([prepare(table, item) for item in asked], mechanisms)
    columns: dict[str, object] = {"mechanism": [repr(law) for law in mechanisms]}
    for number, name in enumerate(measures):
        columns[name] = found[:, number, 0]
        columns[f"{name}_weighted"] = found[:, number, 1]
    return pa.table(columns)
