"""Corollary 13 of 003: noise then projection, compared with noise in the subspace, by dimension."""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.table import Missed, show
from countveil.papers.seeman.subspace_error import expected_errors, simulated_errors

_CASES = ((8, 4), (16, 4), (32, 4), (64, 4), (64, 8), (64, 16), (64, 32), (64, 63))


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--draws", type=int, default=100_000, help="draws of each noise")


def run(options: argparse.Namespace) -> None:
    """Simulate both errors; compare them with the exact ones and the orders that the paper states."""
    rng = np.random.default_rng(1)
    rows, worst = [], 0.0
    for whole, subspace in _CASES:
        basis = rng.normal(size=(whole, subspace))
        found = simulated_errors(basis, draws=options.draws, seed=whole)
        exact = expected_errors(whole, subspace)
        absolute = simulated_errors(basis, norm="L1", draws=options.draws, seed=subspace)
        off = [
            abs(found.projected - exact.projected) / found.projected_error,
            abs(found.inside - exact.inside) / found.inside_error,
        ]
        worst = max(worst, *off)
        rows.append(
            (
                str(whole),
                str(subspace),
                f"{found.projected:,.0f}",
                f"{exact.projected:,.0f}",
                f"{whole**2:,}",
                f"{found.inside:,.0f}",
                f"{exact.inside:,.0f}",
                f"{whole * subspace:,}",
                f"{found.gain:.2f}",
                f"{absolute.gain:.2f}",
            )
        )
    show(
        "Mean squared error of Euclidean noise of scale 1; the last column is of L1 noise",
        (
            "d1",
            "d2",
            "projected",
            "d2(d1+1)",
            "printed d1²",
            "inside",
            "d2(d2+1)",
            "printed d1·d2",
            "gain",
            "gain L1",
        ),
        rows,
    )
    print(
        f"  Simulations are within {worst:.1f} standard errors of the exact values. The printed orders "
        f"hold as bounds, not as growth; the gain is (d1+1)/(d2+1): for one total of 67 counties "
        f"{expected_errors(67, 66).gain:.3f}."
    )
    if worst > 5:
        raise Missed(f"a simulation is {worst:.1f} standard errors from the exact value")
