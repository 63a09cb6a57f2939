"""Liu and Zhao (paper 004): Tables 1 and 2, Figures 1 and 2, and the tables of people behind them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from countveil.assess import homogeneity
from countveil.assess.homogeneity.average_risk import Measure
from countveil.assess.homogeneity.sensitive_table import Table
from countveil.base.numerics import FloatArray, IntArray
from countveil.noise.continuous import Gaussian, Laplace
from countveil.noise.law import Law
from countveil.papers.item import Content, ItemChart, Setting, Value
from countveil.papers.liu_zhao.example_tables import NEEDS_ADULT, adult, bankruptcy, subset

_NO_BOUND = "The paper calls the formula an upper bound; for three labels or more it is not."
_VIOLATIONS = (
    ((1, 1, 1), "0.01"),
    ((4, 1, 1), "0.1"),
    ((1, 1, 1, 1), "0.01"),
    ((3, 1, 0), "0.01"),
)
_EXAMPLE = (
    ("black", "under 40", ("heart disease", "heart disease", "cancer", "cancer")),
    ("Hispanic", "40 to 49", ("cancer", "diabetes", "heart disease", "heart disease")),
    ("white", "50 and over", ("diabetes",) * 4),
)


def table_1(_: Setting) -> Content:
    """Count the twelve records of the example, and measure what an attack discloses."""
    rows = [(race, age, label) for race, age, labels in _EXAMPLE for label in labels]
    columns = dict(
        zip(("race", "age", "condition"), map(list, zip(*rows, strict=True)), strict=True)
    )
    table = Table.from_records(
        pa.table(columns), identifiers=["race", "age"], sensitive="condition"
    )
    values = [
        Value(
            "004.table1.homogeneous",
            "homogeneous cells",
            1,
            int(table.homogeneous.sum()),
            tolerance=0,
        ),
        Value(
            "004.table1.other",
            "heterogeneous cells",
            2,
            int((~table.homogeneous).sum()),
            tolerance=0,
        ),
    ]
    for epsilon in (0.1, 1.0, 10.0):
        risk = homogeneity.local_risk(table, mechanism=Laplace(epsilon)).value
        values.append(
            Value(f"004.table1.{epsilon:g}", f"local risk, epsilon = {epsilon:g}", None, _one(risk))
        )
    return Content(tuple(values), note="The printed records, with Laplace noise.")


def table_2(_: Setting) -> Content:
    """Evaluate the formulas that the table lists, and the exact sums."""
    values = []
    for cell, epsilon in _VIOLATIONS:
        table, noise = Table.from_counts([cell]), Laplace(float(epsilon))
        formula = _one(homogeneity.local_risk(table, mechanism=noise, method="corrected").value)
        exact = _one(homogeneity.local_risk(table, mechanism=noise).value)
        value = Value(
            f"drha.bound_violation.{cell}.eps{epsilon}",
            f"Theorem 1, cell {cell}, epsilon = {epsilon}; printed: its bound, corrected",
            formula,
            exact,
            tolerance=1e-12,
        )
        values.append(value.explained(_NO_BOUND))
    for size, printed in ((2, 0.888), (3, 0.959), (4, 0.985)):
        survival = float(Laplace(1).survival(0.5 - size))
        label = f"Corollary 2, a label of {size} people stays, epsilon = 1"
        values.append(Value(f"drha.cor2.n{size}", label, printed, survival, None, 0.0006))
    laws: dict[str, Law] = {
        "Theorem 1": Laplace(1),
        "Theorem 3": Gaussian.calibrated(epsilon=1, delta=0.001, kind="pDP"),
    }
    for name, law in laws.items():
        exact = _one(homogeneity.local_risk(subset(), mechanism=law).value)
        for method in ("printed", "corrected"):
            formula = _one(homogeneity.local_risk(subset(), mechanism=law, method=method).value)
            how = "as printed" if method == "printed" else "corrected"
            value = Value(
                f"004.table2.{name}.{method}",
                f"{name}, bankruptcy subset, epsilon = 1; printed: its bound, {how}",
                f"<={formula:.6g}",
                exact,
            )
            why = "The bound is below the exact risk: its outer power multiplies one term too many."
            values.append(value.explained(why))
    note = (
        "The table lists theorems, which are evaluated here; where a formula is a bound, its value "
        "is in the printed column. For homogeneous cells the corollaries are exact."
    )
    return Content(tuple(values), note=note)


def figure_1(_: Setting) -> Content:
    """Compute the five measures that the diagram relates, on the bankruptcy subset."""
    table, noise = subset(), Laplace(1)
    risks = {
        name.replace("_", " "): _one(
            homogeneity.risk_of(table, mechanism=noise, measure=name).value
        )
        for name in homogeneity.MEASURES
    }
    literal = homogeneity.marginal_risk(
        table, mechanism=noise, sizes="plain-poisson", method="printed"
    )
    printed_prior = tuple(float(a) for a in printed_moments(table.counts))
    priors = {
        "mom": [float(a) for a in homogeneity.by_moments(table.counts).alphas],
        "mle": [float(a) for a in homogeneity.by_likelihood(table.counts).alphas],
    }
    values = (
        *(Value(f"004.figure1.{k}", f"{k} risk, epsilon = 1", None, v) for k, v in risks.items()),
        Value(
            "drha.ff.marginal.eps1",
            "measures with a distribution of sizes or a prior; printed: (16) as it is",
            _one(literal.value),
            _with_priors(table, noise),
            "(16) uses the probability of the observed size, whereas Definition 9 sums over all sizes.",
            1e-8,
        ),
        Value(
            "drha.eb.ff",
            "parameters of the Dirichlet prior; printed: the estimator of S2",
            printed_prior,
            priors,
            "The estimator of S2 gives negative parameters.",
            0.0001,
        ),
    )
    columns = {"measure": list(risks), "risk": list(risks.values())}
    chart = ItemChart(
        "five measures, epsilon = 1", "bars", pa.table(columns), "measure", "risk", None, "", "risk"
    )
    note = "The figure is a diagram without numbers; the measures it relates are computed here."
    return Content(values, (chart,), note)


def figure_2(setting: Setting) -> Content:
    """Draw the sizes of the cells."""
    tables = {"bankruptcy": bankruptcy(), "bankruptcy subset": subset()}
    people = adult(setting.data)
    values = [
        Value(
            f"drha.poisson.{key}",
            f"mean cell size, {name}",
            printed,
            _mean(tables[name]),
            None,
            0.006,
        )
        for key, name, printed in (
            ("bank", "bankruptcy", 2.43),
            ("ff", "bankruptcy subset", 3.21),
        )
    ]
    for name, table in tables.items():
        fitted = homogeneity.fit_poisson(table.sizes).parameters["mean"]
        label = f"rate of sizes of at least 1, {name}"
        values.append(Value(f"004.figure2.{name}", label, None, float(fitted)))
    if people is not None:
        tables["Adult"] = people
        values += _adult_values(people)
    charts = tuple(
        ItemChart(
            f"cell sizes, {name}", "bars", _sizes(table), "size", "cells", None, "people", "cells"
        )
        for name, table in tables.items()
    )
    note = (
        "The paper fits a Poisson law by its mean. As only occupied cells are observed, the right law "
        "is that of sizes of at least 1."
    )
    return Content(tuple(values), charts, note, None if people is not None else NEEDS_ADULT)


def _with_priors(table: Table, noise: Law) -> Mapping[str, float]:
    """Return the measures that average over sizes or a prior, by corrected formulas and exactly."""

    def of(name: str, method: str, sizes: str = "poisson") -> float:
        request = Measure(name, method=method, sizes=sizes)
        return _one(homogeneity.risk_of(table, mechanism=noise, measure=request).value)

    return {
        "def9_bound_poisson": of("marginal", "corrected", "plain-poisson"),
        "def9_exact_ztp": of("marginal", "exact"),
        "shrink_bound": of("shrinkage", "corrected"),
        "shrink_exact": of("shrinkage", "exact"),
        "ms_bound_poisson": of("marginal_shrinkage", "corrected", "plain-poisson"),
        "ms_exact_ztp": of("marginal_shrinkage", "exact"),
    }


def _sizes(table: Table) -> pa.Table:
    most = 12
    sizes = np.minimum(table.sizes, most)
    names = [str(size) for size in range(1, most)] + [f"{most}+"]
    cells = np.bincount(sizes, minlength=most + 1)[1:]
    return pa.table({"size": names, "cells": cells})


def _adult_values(table: Table) -> list[Value]:
    joint = (
        "The paper counts the cells of identifiers and income together, which have one income each; "
        "the attack is on the cells of the identifiers."
    )
    homogeneous = int(table.homogeneous.sum())
    cells = Value(
        "004.adult.cells", "Adult, cells of the identifiers", 5974, len(table.counts), None, 0
    )
    return [
        Value("004.adult.people", "Adult, people", 27_504, int(table.sizes.sum()), None, 0),
        cells.explained(joint),
        Value(
            "004.adult.homogeneous", "Adult, homogeneous cells", 5974, homogeneous, None, 0
        ).explained(joint),
        Value("004.adult.mean", "Adult, mean cell size", 4.6, _mean(table), None, 0.05).explained(
            joint
        ),
    ]


def _mean(table: Table) -> float:
    return float(table.sizes.mean())


def _one(value: object) -> float:
    return float(np.asarray(value, float))


def printed_moments(counts: IntArray) -> FloatArray:
    """Return the alphas by the formula that S2 of 004 prints, which may be negative.

    `homogeneity.by_moments` has the corrected one.

    Parameters
    ----------
    counts : array, cells × labels
        The counts of people.

    Returns
    -------
    array
        One alpha per label.
    """
    sizes = counts.sum(axis=1).astype(float)
    shares = counts.sum(axis=0) / sizes.sum()
    variance = counts.var(axis=0, ddof=1)
    binomial = shares * (1 - shares)
    above = shares * (binomial * (sizes**2).sum() - variance)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(above / (variance - binomial * sizes.sum()))
