"""The homogeneity attack: five measures of 5,000 cells, 2,500 noises, compared with plain loops."""

from __future__ import annotations

import argparse
import math
import resource
import time

import numpy as np

from benchmarks.table import Missed, show, verdict
from countveil import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
from countveil.assess import homogeneity
from countveil.noise.law import Law

_CELLS, _EPSILONS = 5_000, 500
_MOST_SECONDS = 5.0
_DELTA = 1e-3


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--cells", type=int, default=_CELLS, help="cells of the identifiers")
    parser.add_argument("--epsilons", type=int, default=_EPSILONS, help="epsilons per mechanism")


def run(options: argparse.Namespace) -> None:
    """Time all measures as cells and labels grow, and compare with plain loops."""
    homogeneity.curve(_table(20, 2), mechanisms=_laws(2))  # compiled
    rows, seconds = [], 0.0
    for cells, labels in (
        (options.cells // 4, 2),
        (options.cells // 2, 2),
        (options.cells, 2),
        (options.cells, 3),
        (options.cells, 10),
    ):
        table, laws = _table(cells, labels), _laws(options.epsilons)
        start = time.perf_counter()
        found = homogeneity.curve(table, mechanisms=laws)
        spent = time.perf_counter() - start
        if (cells, labels) == (options.cells, 2):
            seconds = spent
        numbers = found.num_rows * (found.num_columns - 1)
        largest = int(table.sizes.max())
        rows.append(
            (
                f"{cells:,}",
                str(labels),
                f"{largest:,}",
                f"{len(laws):,}",
                f"{numbers:,}",
                f"{spent:.2f}",
            )
        )
    show(
        "Five measures, weighted and unweighted",
        ("cells", "labels", "largest cell", "noises", "numbers", "seconds"),
        rows,
    )
    table, law = _table(options.cells, 2), Laplace(1.0)
    start = time.perf_counter()
    plain = _plain_expected(table, law)
    naive = time.perf_counter() - start
    ours = float(homogeneity.expected_risk(table, mechanism=law).value)
    full = naive * 5 * options.epsilons
    print(
        f"  Plain loops take {naive:.1f} s for the expected risk alone under one noise, and differ by "
        f"{abs(plain - ours):.0e}; for all noises {full:,.0f} s, extrapolated: "
        f"{full / seconds:,.0f} times as long as all five measures."
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    met = seconds < _MOST_SECONDS
    print(
        f"  Target: {options.cells:,} cells, {5 * options.epsilons:,} noises below {_MOST_SECONDS:g} "
        f"s: {seconds:.2f} s: {verdict(met)}; peak {peak:,.0f} MB."
    )
    if not met:
        raise Missed(f"{seconds:.2f} s")


def _table(cells: int, labels: int) -> homogeneity.Table:
    """Return cells like those of the Adult data: most small, a few large, four of five homogeneous."""
    rng = np.random.default_rng(1)
    sizes = 1 + rng.negative_binomial(0.3, 0.03, cells)
    shares = rng.dirichlet(np.full(labels, 0.12), cells)
    counts = np.array([rng.multinomial(n, p) for n, p in zip(sizes, shares, strict=True)])
    return homogeneity.Table.from_counts(counts)


def _laws(epsilons: int) -> list[Law]:
    grid = np.geomspace(1e-3, 1e2, epsilons)
    laws: list[Law] = [Laplace(e) for e in grid]
    laws += [DiscreteLaplace(str(1 / e)) for e in grid]
    small = np.geomspace(1e-3, 1, epsilons)  # (3) of 004 is proved up to 1
    laws += [Gaussian.calibrated(epsilon=e, delta=_DELTA, kind="DP") for e in small]
    laws += [Gaussian.calibrated(epsilon=e, delta=_DELTA, kind="pDP") for e in grid]
    laws += [DiscreteGaussian(str(1 / e)) for e in grid]
    return laws


def _plain_expected(table: homogeneity.Table, law: Law) -> float:
    """Sum over all counts of two labels, cell by cell, following the definition."""
    total = 0.0
    for a, b in table.counts.tolist():
        n = a + b
        p = a / n
        u = [float(x) for x in law.survival(0.5 - np.arange(n + 1))]
        for k in range(n + 1):
            weight = math.comb(n, k) * p**k * (1 - p) ** (n - k)
            first = u[k] * (1 - u[n - k]) if k else 0.0
            second = u[n - k] * (1 - u[k]) if n - k else 0.0
            total += weight * (first + second)
    return total / len(table.counts)
