"""Inference with a public total: whether 90 % intervals cover, and what projection costs."""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass

import numpy as np
from scipy import special

from benchmarks.table import Missed, show, verdict
from countveil import Seeded, congenial
from countveil.base.numerics import FloatArray, IntArray
from countveil.congenial import Wasserstein
from countveil.papers.seeman import projection

_EPSILONS = ("0.1", "0.3", "1")
_REPLICATIONS = 4_000
_CONFIDENCE = 0.9
_SHAPE, _RATE = 1.5, 0.1  # of the Gamma law of each of three rates
_LARGEST = 60  # larger totals are dropped, as in the simulation behind the golden values
_TOTAL = 20  # of the congenial runs
_MODEL = congenial.GammaPoisson(shape=_SHAPE, rate=_RATE)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--replications", type=int, default=_REPLICATIONS)
    parser.add_argument("--seed", type=int, default=1)


@dataclass(frozen=True, slots=True)
class Coverage:
    """How often intervals covered the first rate, their width, and the error of its means."""

    replications: int
    coverage: float
    width: float
    error: float  # mean squared
    variance: float  # mean of the stated variances

    def covers_within(self, errors: float) -> bool:
        """Whether coverage is nominal, within a number of standard errors."""
        spread = math.sqrt(_CONFIDENCE * (1 - _CONFIDENCE) / self.replications)
        return abs(self.coverage - _CONFIDENCE) <= errors * spread


def run(options: argparse.Namespace) -> None:
    """Simulate plain noise with a total, and congenial releases, at each epsilon."""
    start = time.perf_counter()
    missed = []
    for epsilon in _EPSILONS:
        for base, found in (
            ("naive", simulate(epsilon, options.replications, options.seed)),
            ("congenial", simulate_congenial(epsilon, options.replications, options.seed)),
        ):
            show(
                f"epsilon {epsilon}, {base} base measure: {options.replications:,} replications",
                ("from", "coverage", "width", "mean squared error", "mean variance"),
                [
                    (
                        name,
                        f"{c.coverage:.4f}",
                        f"{c.width:.2f}",
                        f"{c.error:.2f}",
                        f"{c.variance:.2f}",
                    )
                    for name, c in found.items()
                ],
            )
            ours = found["release and total"]
            met = ours.covers_within(3) and all(
                ours.error < other.error
                for name, other in found.items()
                if name not in ("release and total", "true counts")
            )
            print(
                f"  Covers 90 % within three standard errors, with the smallest error: {verdict(met)}"
            )
            if not met:
                missed.append(f"epsilon {epsilon}, {base}")
    print(f"\n  {time.perf_counter() - start:.0f} s")
    if missed:
        raise Missed("; ".join(missed))


def simulate(epsilon: str, replications: int, seed: int) -> dict[str, Coverage]:
    """Infer from plain noise on three counts with a public total: from (Y, Z), Y*, Z and the counts."""
    rng = np.random.default_rng(seed)
    records: dict[str, list[tuple[float, ...]]] = {}
    done = 0
    while done < replications:
        rates = rng.gamma(_SHAPE, size=3) / _RATE
        counts = rng.poisson(rates)
        total = int(counts.sum())
        if not 1 <= total <= _LARGEST:
            continue
        done += 1
        # Its normalizer is constant, so the loss is not halved: noise of rate epsilon/2 on each count.
        mechanism = Wasserstein(loss="L1", epsilon=epsilon, total=total, base="naive", halved=False)
        released = mechanism.sample(counts, rng=Seeded(seed * 1_000_000 + done))
        _record(records, rates, counts, released, mechanism)
    return {name: _summary(rows) for name, rows in records.items()}


def simulate_congenial(epsilon: str, replications: int, seed: int) -> dict[str, Coverage]:
    """Infer from congenial releases of three counts with the public total 20."""
    rng = np.random.default_rng(seed)
    mechanism = Wasserstein(loss="L1", epsilon=epsilon, total=_TOTAL)
    records: dict[str, list[tuple[float, ...]]] = {}
    for number in range(replications):
        # Given the total, counts are Dirichlet-multinomial, and rates are Gamma given counts.
        counts = rng.multinomial(_TOTAL, rng.dirichlet(np.full(3, _SHAPE)))
        rates = rng.gamma(_SHAPE + counts) / (_RATE + 1)
        released = mechanism.sample(counts, rng=Seeded(seed * 1_000_000 + number))
        _record(records, rates, counts, released, mechanism)
    return {name: _summary(rows) for name, rows in records.items()}


def _record(
    records: dict[str, list[tuple[float, ...]]],
    rates: FloatArray,
    counts: IntArray,
    released: IntArray,
    mechanism: Wasserstein,
) -> None:
    total = int(counts.sum())
    projected = projection.rounded(
        projection.project(released[None, :, None], total=total), total=total
    )[0, :, 0]
    found = congenial.posterior(
        model=_MODEL, released=released, mechanism=mechanism, public={"total": total}
    )
    for name, mixture in (
        ("release and total", found.mixtures[0]),
        ("projected release", _as_if_true(int(projected[0]))),
        ("total alone", _total_alone(total)),
        ("true counts", _as_if_true(int(counts[0]))),
    ):
        low, high = (mixture.quantile((1 + sign * _CONFIDENCE) / 2) for sign in (-1, 1))
        row = (
            float(low <= rates[0] <= high),
            high - low,
            (mixture.mean - float(rates[0])) ** 2,
            mixture.variance,
        )
        records.setdefault(name, []).append(row)


def _as_if_true(count: int) -> congenial.Mixture:
    """Return the posterior if a count is taken as the confidential one."""
    return congenial.Mixture(
        "gamma", np.array([_SHAPE + count]), np.array([_RATE + 1.0]), np.array([1.0])
    )


def _total_alone(total: int) -> congenial.Mixture:
    """Return the posterior from the total, given which counts of one place are beta-binomial."""
    k = np.arange(total + 1)
    logs = special.gammaln(k + _SHAPE) - special.gammaln(k + 1.0)
    logs += special.gammaln(total - k + 2 * _SHAPE) - special.gammaln(total - k + 1.0)
    weights = np.exp(logs - logs.max())
    return congenial.Mixture(
        "gamma",
        _SHAPE + k.astype(np.float64),
        np.full(total + 1, _RATE + 1.0),
        weights / weights.sum(),
    )


def _summary(rows: list[tuple[float, ...]]) -> Coverage:
    return Coverage(len(rows), *np.array(rows).mean(axis=0).tolist())
