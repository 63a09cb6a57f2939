"""Draws per second of the exact samplers, OpenDP, diffprivlib and plain Python, and the floor."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks import peers
from benchmarks.table import best_seconds, in_child, show, verdict
from countveil.base.randomness import BitSource, Secure, Seeded
from countveil.noise import discrete_gaussian, discrete_laplace
from countveil.noise.discrete_gaussian import DiscreteGaussian
from countveil.noise.discrete_laplace import DiscreteLaplace
from countveil.noise.law import Mechanism

_TIMES_OPENDP = 1000
_TIMES_FLOOR = 4
_IN_CACHE = 1 << 16  # draws whose indices and values stay in the cache
_ROUNDS = 40
_AT_ONCE = 10**7  # most draws held in memory at once
_GROWTH = (10**4, 10**5, 10**6, 10**7, 10**8)


@dataclass(frozen=True, slots=True)
class _Law:
    name: str
    kind: str
    parameter: str

    def mechanism(self) -> Mechanism:
        if self.kind == "gaussian":
            return DiscreteGaussian(self.parameter)
        return DiscreteLaplace(self.parameter)


_LAWS = (
    _Law("Gaussian, sigma² 500/99", "gaussian", "500/99"),
    _Law("Gaussian, sigma² 5000", "gaussian", "5000"),
    _Law("Laplace, scale 20", "laplace", "20"),
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument(
        "--repeats", type=int, default=5, help="runs of every sampler; the best counts"
    )
    parser.add_argument(
        "--peer-seconds", type=float, default=20.0, help="time limit for one run of a peer"
    )
    parser.add_argument(
        "--no-peers", action="store_true", help="measure only countveil and the floor"
    )


def run(options: argparse.Namespace) -> None:
    """Measure a million draws of every law with every sampler, the floor, and the growth."""
    draws = 10**6
    _show_samplers(options, draws)
    _show_floor(draws)
    _show_growth()


@dataclass(frozen=True, slots=True)
class _Speed:
    setup: float
    seconds: float
    variance: float


def _ours(law: _Law, draws: int, repeats: int) -> _Speed:
    def setup() -> None:
        discrete_gaussian._tables.cache_clear()
        discrete_laplace._tables.cache_clear()
        law.mechanism().sample(0, rng=rng)

    rng = Secure()
    setup_seconds = best_seconds(setup, repeats)
    mechanism = law.mechanism()
    values = mechanism.sample(draws, rng=rng)
    seconds = best_seconds(lambda: mechanism.sample(draws, rng=rng), repeats)
    return _Speed(setup_seconds, seconds, float(np.square(values).mean()))


def _show_samplers(options: argparse.Namespace, draws: int) -> None:
    ours = [_ours(law, draws, options.repeats) for law in _LAWS]
    answers = []
    if not options.no_peers:
        question = {
            "laws": [[law.kind, law.parameter] for law in _LAWS],
            "draws": draws,
            "seconds": options.peer_seconds,
            "repeats": options.repeats,
        }
        answers = peers.ask("sampler_peers.py", question)
    rows, ratios = [], []
    for index, (law, speed) in enumerate(zip(_LAWS, ours, strict=True)):
        theirs = [answer for answer in answers if answer["law"] == index]
        measured = [("countveil, Secure()", draws, speed.setup, speed.seconds, speed.variance)]
        for peer in theirs:
            keys = ("sampler", "draws", "setup_seconds", "seconds", "variance")
            measured.append(tuple(peer[key] for key in keys))
        opendp = [n / s for name, n, _, s, _ in measured if name.startswith("OpenDP")]
        for name, count, setup, seconds, variance in measured:
            rate = count / seconds
            ratio = f"{rate / opendp[0]:,.2f}" if opendp else ""
            cells = (f"{variance:,.2f}", f"{1e3 * setup:,.2f}", f"{rate:,.0f}", ratio)
            rows.append((law.name, name, f"{count:,}", *cells))
        if opendp:
            ratios.append(draws / speed.seconds / opendp[0])
    columns = ("law", "sampler", "draws", "variance", "setup ms", "draws/s", "× OpenDP")
    show(f"Draws per second, best of {options.repeats}", columns, rows)
    if answers:
        print("  diffprivlib draws with floating-point numbers; the others are exact.")
    if ratios:
        met = verdict(min(ratios) >= _TIMES_OPENDP)
        print(
            f"  Target: at least {_TIMES_OPENDP:,} × OpenDP. Smallest: {min(ratios):,.0f} ×: {met}."
        )


def _show_floor(draws: int) -> None:
    rng = Secure()
    table = np.arange(1 << 16, dtype=np.int64)
    out = np.empty(draws, np.int64)
    words = rng.begin(draws)

    def gather() -> None:
        np.take(table, words, out=out, mode="clip")

    def gather_in_cache() -> None:
        for start in range(0, draws, _IN_CACHE):
            stop = start + _IN_CACHE
            np.take(table, words[start:stop], out=out[start:stop], mode="clip")

    steps: list[Callable[[], object]] = [lambda: rng.begin(draws), gather, gather_in_cache]
    steps += [partial(law.mechanism().sample, draws, rng=rng) for law in _LAWS]
    for step in steps:
        step()
    # In turn, so that other work on the machine affects all of them alike.
    rounds = [[best_seconds(step, 1) for step in steps] for _ in range(_ROUNDS)]
    cipher, once, pieces, *ours = np.min(rounds, axis=0).tolist()
    floor, stricter = cipher + once, cipher + pieces
    rows = [
        ("cipher bytes", f"{1e3 * cipher:.3f}", "", ""),
        ("one gather", f"{1e3 * once:.3f}", "", ""),
        (f"gather, {_IN_CACHE:,} at a time", f"{1e3 * pieces:.3f}", "", ""),
    ]
    for law, seconds in zip(_LAWS, ours, strict=True):
        ratios = f"{seconds / floor:.2f}", f"{seconds / stricter:.2f}"
        rows.append((law.name, f"{1e3 * seconds:.3f}", *ratios))
    show(
        f"The floor of {draws:,} draws, best of {_ROUNDS}: their cipher bytes, 2 each, and a "
        "look-up in 65,536 entries",
        ("step", "ms", "× floor", "× floor, pieces"),
        rows,
    )
    met = verdict(max(ours) <= _TIMES_FLOOR * floor)
    print(f"  Target: at most {_TIMES_FLOOR} × floor. Largest: {max(ours) / floor:.2f} ×: {met}.")


def _show_growth() -> None:
    law = _LAWS[0]
    rows = []
    for draws in _GROWTH:
        times = max(1, min(_ROUNDS, 5 * _AT_ONCE // draws))
        row = [f"{draws:,}"]
        for rng in (Secure(), Seeded(7)):
            measured = in_child(_growing(law.mechanism(), draws, rng, times))
            row += [f"{draws / measured.result:,.0f}", f"{measured.peak_mb:,.0f}"]
        rows.append(row)
    columns = ("draws", "Secure() draws/s", "peak MB", "Seeded() draws/s", "peak MB")
    show(f"Growth: {law.name}, in calls of at most {_AT_ONCE:,} draws", columns, rows)


def _growing(mechanism: Mechanism, draws: int, rng: BitSource, times: int) -> Callable[[], float]:
    def sample() -> None:
        for start in range(0, draws, _AT_ONCE):
            mechanism.sample(min(_AT_ONCE, draws - start), rng=rng)

    def measure() -> float:
        mechanism.sample(1, rng=rng)
        return best_seconds(sample, times)

    return measure
