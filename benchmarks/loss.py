"""Empirical privacy loss of millions of residuals compared with SciPy's density, and its growth."""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable

import numpy as np
from scipy.stats import gaussian_kde

from benchmarks.table import Missed, show, verdict
from countveil import DiscreteLaplace, Seeded
from countveil.assess import empirical_loss
from countveil.base.numerics import IntArray

_RESIDUALS = 10_000_000
_SCIPY = 100_000
_TIMES = 100.0
_MOST_SECONDS = 2.0


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--residuals", type=int, default=_RESIDUALS, help="residuals of the loss")
    parser.add_argument("--scipy", type=int, default=_SCIPY, help="residuals for SciPy")


def run(options: argparse.Namespace) -> None:
    """Time the loss, SciPy on the same points, and the other estimators."""
    residuals = DiscreteLaplace(10).sample(options.residuals, rng=Seeded(1))
    empirical_loss.kde(residuals[:1_000])  # compiled
    missed = _beside_scipy(residuals, min(options.scipy, options.residuals))
    _others(residuals)
    if missed:
        raise Missed("; ".join(missed))


def _beside_scipy(residuals: IntArray, few: int) -> list[str]:
    rows, seconds = [], 0.0
    for size in (len(residuals) // 100, len(residuals) // 10, len(residuals)):
        seconds, found = _timed(residuals[:size])
        rows.append(("countveil", f"{size:,}", f"{seconds:.3f}", f"{found.value:.5f}", ""))
    _, same = _timed(residuals[:few])
    start = time.perf_counter()
    density = gaussian_kde(residuals[:few], bw_method=0.1)(same.x)
    spent = time.perf_counter() - start
    value = float(np.abs(np.log(density[:-1] / density[1:])).max())
    rows.append(("SciPy gaussian_kde", f"{few:,}", f"{spent:.3f}", f"{value:.5f}", ""))
    # Its time is proportional to residuals × points.
    full = spent * len(residuals) / few
    ratio = full / seconds
    rows.append(("  extrapolated", f"{len(residuals):,}", f"{full:.0f}", "", f"{ratio:,.0f} ×"))
    show(
        f"Empirical privacy loss at {len(same.x)} points",
        ("estimator", "residuals", "seconds", "loss", "ratio"),
        rows,
    )
    off = abs(value - same.value) / value
    print(f"  On the same {few:,} residuals the two differ by {off:.0e}, relatively.")
    fast, far = seconds < _MOST_SECONDS, ratio >= _TIMES
    print(
        f"  Targets: below {_MOST_SECONDS:g} s: {seconds:.2f} s: {verdict(fast)}; at least {_TIMES:g} "
        f"times SciPy: {ratio:,.0f}: {verdict(far)}."
    )
    return [] if fast and far else [f"{seconds:.2f} s, {ratio:,.0f} times SciPy"]


def _timed(residuals: IntArray) -> tuple[float, empirical_loss.EmpiricalLoss]:
    start = time.perf_counter()
    found = empirical_loss.kde(residuals)
    return time.perf_counter() - start, found


def _others(residuals: IntArray) -> None:
    floats = residuals + np.random.default_rng(1).random(len(residuals))
    rng, noise, runs = Seeded(2), DiscreteLaplace(10), len(residuals) // 10
    calls: dict[str, Callable[[], float]] = {
        "kde of fractions, binned": lambda: empirical_loss.kde(floats).value,
        "tail ratios with intervals": lambda: empirical_loss.tail_ratio(residuals).value,
        "geometric fit": lambda: empirical_loss.geometric(residuals).value,
        f"audit of {runs:,} runs on each side": lambda: (
            empirical_loss.audit_noise(noise, runs=runs, rng=rng).lower_bound
        ),
    }
    rows = []
    for name, call in calls.items():
        start = time.perf_counter()
        value = call()
        rows.append((name, f"{time.perf_counter() - start:.2f}", f"{value:.5f}"))
    show(
        f"Other estimators of {len(residuals):,} residuals", ("estimator", "seconds", "loss"), rows
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  The loss is 0.1; peak memory {peak:,.0f} MB, including the residuals.")
