"""The Pennsylvania study of 003: monthly cases and deaths of 67 counties, four methods, two budgets."""

from __future__ import annotations

import argparse
import csv
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import _pennsylvania_charts as charts
from benchmarks.table import show
from countveil.base.numerics import FloatArray, IntArray
from countveil.base.randomness import Seeded
from countveil.congenial.mechanism.base_measure import DirichletMultinomial
from countveil.congenial.mechanism.wasserstein import Wasserstein
from countveil.papers.seeman import projection
from countveil.papers.seeman.contraction import contractions, size_classes

METHODS = ("post-processing", "naive", "congenial", "prior")
EPSILONS = ("0.01", "1")
COUNTIES = ("Allegheny", "Erie", "Cameron")
LIMITS = (20_000, 100_000, 500_000)
_COUNTS, _PEOPLE = "pa_county_monthly_jhu.csv", "pa_county_population_jhu.csv"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--data", type=Path, required=True, help=f"folder of {_COUNTS}, {_PEOPLE}")
    parser.add_argument("--to", type=Path, help="folder for the charts")
    parser.add_argument("--keep", type=Path, help="folder for the draws, to resume later")
    parser.add_argument("--replicates", type=int, default=100, help="draws of each month")
    parser.add_argument(
        "--months", type=int, default=24, help="number of months, counted from the last"
    )
    parser.add_argument("--losses", default="L1,L2", help="losses, separated by commas")
    parser.add_argument("--methods", default=",".join(METHODS), help="methods, separated by commas")
    parser.add_argument("--alpha", default="1", help="strength of the prior")
    parser.add_argument("--workers", type=int, default=2, help="processes")


@dataclass(frozen=True, slots=True, eq=False)
class Counties:
    """Prepared counts, (months, counties, 2), preceded by the month before the first one."""

    names: list[str]
    people: IntArray
    months: list[str]
    counts: IntArray
    negative: int
    capped: int

    @property
    def true(self) -> IntArray:
        """The counts of the months studied."""
        return self.counts[1:]


@dataclass(frozen=True, slots=True)
class Task:
    """The draws of one month by one method."""

    loss: str
    method: str
    epsilon: str
    month: str
    replicates: int
    alpha: str

    @property
    def file(self) -> str:
        """The file name of its draws."""
        parts = [self.loss, self.method, self.epsilon, self.month, str(self.replicates)]
        if self.method == "prior":
            parts.append(f"alpha{self.alpha.replace('/', 'over')}")
        return "_".join(parts) + ".npz"


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """Releases (months, replicates, counties, 2), and shares of effects (months, 3, counties)."""

    released: IntArray
    effects: FloatArray


def run(options: argparse.Namespace) -> None:
    """Draw every month with every method; show errors and contractions; draw the charts."""
    data = read(options.data, options.months)
    losses, methods = options.losses.split(","), options.methods.split(",")
    tasks = [
        Task(loss, method, epsilon, month, options.replicates, options.alpha)
        for loss, method, epsilon, month in itertools.product(
            losses, methods, EPSILONS, data.months
        )
    ]
    print(
        f"  {len(data.months)} months from {data.months[0]} to {data.months[-1]}, {len(data.names)} "
        f"counties, {data.true[..., 0].sum():,} cases and {data.true[..., 1].sum():,} deaths. "
        f"{data.negative} negative counts became 0, {data.capped} deaths above cases were lowered. The "
        f"prior has alpha {options.alpha} and a pseudo-count of 1/2."
    )
    found: dict[tuple[str, str, str, str], tuple[IntArray, FloatArray]] = {}
    with ProcessPoolExecutor(options.workers) as pool:
        drawn = pool.map(_Draw(data, options.keep), tasks)
        for task, result in zip(tasks, drawn, strict=True):
            found[task.loss, task.method, task.epsilon, task.month] = result
    for loss in losses:
        draws = {
            (method, epsilon): Draws(
                np.stack([found[loss, method, epsilon, month][0] for month in data.months]),
                np.stack([found[loss, method, epsilon, month][1] for month in data.months]),
            )
            for method, epsilon in itertools.product(methods, EPSILONS)
        }
        _show_errors(data, draws, loss, 0)
        _show_errors(data, draws, loss, 1)
        _show_effects(data, draws, loss)
        if options.to:
            options.to.mkdir(parents=True, exist_ok=True)
            for name, chart in _charts(data, draws, loss):
                charts.save(chart, options.to / name)
                print(f"  {options.to / name}.png")


def read(folder: Path, months: int) -> Counties:
    """Read the counts of the last months; set negative corrections to 0 and deaths to at most cases."""
    with (folder / _PEOPLE).open(encoding="utf-8") as file:
        people = {row["fips"]: int(float(row["population"])) for row in csv.DictReader(file)}
    with (folder / _COUNTS).open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    codes = sorted(people)
    names = {row["fips"]: row["county"] for row in rows}
    every = sorted({row["month"] for row in rows})[-months - 1 :]
    at = {(row["month"], row["fips"]): row for row in rows}
    raw = np.array(
        [
            [[int(at[month, code][name]) for name in ("new_cases", "new_deaths")] for code in codes]
            for month in every
        ]
    )
    counts = np.maximum(raw, 0)
    capped = int((counts[..., 1] > counts[..., 0]).sum())
    counts[..., 1] = np.minimum(counts[..., 1], counts[..., 0])
    return Counties(
        [names[code] for code in codes],
        np.array([people[code] for code in codes]),
        every[1:],
        counts,
        int((raw < 0).sum()),
        capped,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Draw:
    """Draw a task, or read its stored draws."""

    data: Counties
    keep: Path | None

    def __call__(self, task: Task) -> tuple[IntArray, FloatArray]:
        path = None if self.keep is None else self.keep / task.file
        if path is not None and path.exists():
            with np.load(path) as kept:
                return kept["released"], kept["effects"]
        released, effects = self._drawn(task)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez_compressed(path, released=released, effects=effects)
        return released, effects

    def _drawn(self, task: Task) -> tuple[IntArray, FloatArray]:
        place = self.data.months.index(task.month) + 1
        counts, before = self.data.counts[place], self.data.counts[place - 1]
        total = int(counts[:, 0].sum())
        stream = f"{task.loss} {task.method} {task.epsilon}"
        rng = Seeded(3).for_unit(stream, task.month, "draws")
        if task.method == "post-processing":
            loss: Any = task.loss
            noisy = projection.with_noise(
                counts, epsilon=task.epsilon, loss=loss, rng=rng, replicates=task.replicates
            )
            projected = projection.project(noisy, total=total)
            return projection.rounded(projected, total=total), _effects(projected)
        base: dict[str, Any] = {"base": task.method}
        if task.method == "prior":
            base = {"prior": DirichletMultinomial(before[:, 0], task.alpha, "1/2")}
        if task.method == "naive":
            base["halved"] = False  # its normalizer is the same for all counts
        loss = task.loss
        mechanism = Wasserstein(loss=loss, epsilon=task.epsilon, total=total, deaths=True, **base)
        prepared = mechanism.prepared(counts)
        released = np.stack([prepared.sample(rng=rng) for _ in range(task.replicates)])
        return released, _effects(released)


def _effects(tables: IntArray | FloatArray) -> FloatArray:
    found = contractions(tables)
    return np.stack((found.case_zeros, found.death_zeros, found.rates))


def _show_errors(
    data: Counties, draws: dict[tuple[str, str], Draws], loss: str, column: int
) -> None:
    """Print the median and the 90th percentile of errors, by size of county."""
    classes = {**size_classes(data.people, LIMITS), "all": list(range(len(data.names)))}
    rows = []
    for epsilon, method in _in_order(draws):
        errors = relative_errors(data, draws[method, epsilon], column)
        cells = [_pair(errors[:, :, members], column) for members in classes.values()]
        rows.append((epsilon, method, *cells))
    if column == 0:
        guesses = relative_errors(data, _previous_shares(data))
        cells = [_pair(guesses[:, :, members], column) for members in classes.values()]
        rows.append(("-", "previous shares", *cells))
    what = ("relative error of cases, in percent", "absolute error of deaths")[column]
    show(
        f"Loss {loss}: {what}, median and 90th percentile, by population",
        ("epsilon", "method", *(f"{name} ({len(rows_)})" for name, rows_ in classes.items())),
        rows,
    )
    if column == 0:
        empty = int((data.true[..., 0] == 0).sum())
        print(
            f"  {empty} of {data.true[..., 0].size} county months had no case and are left out. "
            f"Previous shares of the public total are a guess that uses no count of the month."
        )


def _pair(errors: FloatArray, column: int) -> str:
    """Return the median and the 90th percentile, in percent if they are relative."""
    sizes = np.abs(errors[np.isfinite(errors)]) * (1 if column else 100)
    median, high = np.quantile(sizes, (0.5, 0.9))
    form = ",.3g" if high < 1000 and not column else ",.0f"
    return f"{median:{form}} / {high:{form}}"


def _previous_shares(data: Counties) -> Draws:
    """Split the public totals by the shares of the month before: the mean of the prior."""
    before = data.counts[:-1, :, 0] + 0.5
    shares = before / before.sum(axis=1, keepdims=True)
    guess = np.rint(shares * data.true[..., 0].sum(axis=1, keepdims=True)).astype(np.int64)
    released = np.stack((guess, np.zeros_like(guess)), axis=2)[:, None]
    return Draws(released, np.zeros((len(guess), 3, len(data.names))))


def relative_errors(data: Counties, draws: Draws, column: int = 0) -> FloatArray:
    """Return (released - true)/true of cases, NaN if the true count is 0; for deaths the difference."""
    true = data.true[:, None, :, column].astype(np.float64)
    apart = draws.released[..., column] - true
    if column == 1:
        return apart
    relative: FloatArray = np.divide(
        apart, true, out=np.full(apart.shape, np.nan), where=np.broadcast_to(true > 0, apart.shape)
    )
    return relative


def _show_effects(data: Counties, draws: dict[tuple[str, str], Draws], loss: str) -> None:
    """Print how often each effect occurs, by size of county, in releases and in the true counts."""
    classes: dict[str, list[int]] = {
        f"smallest, {data.names[int(data.people.argmin())]}": [int(data.people.argmin())],
        **size_classes(data.people, LIMITS),
        f"largest, {data.names[int(data.people.argmax())]}": [int(data.people.argmax())],
    }
    rows = []
    for epsilon, method in [("", "true counts"), *_in_order(draws)]:
        if method == "naive":
            continue  # its counts may be negative, so nothing is contracted
        shares = _true_effects(data) if not epsilon else draws[method, epsilon].effects
        means = shares.mean(axis=0)
        cells = [
            " ".join(f"{means[effect, members].mean():.3f}" for effect in range(3))
            for members in classes.values()
        ]
        rows.append((epsilon or "-", method, *cells))
    show(
        f"Loss {loss}: shares of case zeros, death zeros and contracted rates, by population",
        ("epsilon", "method", *classes),
        rows,
    )


def _in_order(draws: dict[tuple[str, str], Draws]) -> list[tuple[str, str]]:
    return [(e, m) for e, m in itertools.product(EPSILONS, METHODS) if (m, e) in draws]


def _true_effects(data: Counties) -> FloatArray:
    return np.stack([_effects(month) for month in data.true])


def _charts(
    data: Counties, draws: dict[tuple[str, str], Draws], loss: str
) -> Iterator[tuple[str, Any]]:
    methods = [method for method in METHODS if (method, EPSILONS[0]) in draws]
    chosen = [(name, data.names.index(name)) for name in COUNTIES]
    for epsilon in EPSILONS:
        yield (
            f"rates_{loss}_{epsilon}",
            charts.rates(
                [
                    charts.rate_rows(
                        name,
                        method,
                        data.months,
                        draws[method, epsilon].released[:, :, county, 0],
                        data.true[:, county, 0],
                        int(data.people[county]),
                    )
                    for method in methods
                    for name, county in chosen
                ],
                f"Case rates released with the {loss} loss at epsilon {epsilon}",
                methods,
                COUNTIES,
            ),
        )
    classes = {"all counties": list(range(len(data.names))), **size_classes(data.people, LIMITS)}
    curves = [
        charts.error_rows(
            method, epsilon, name, relative_errors(data, draws[method, epsilon])[:, :, members]
        )
        for method, epsilon in draws
        for name, members in classes.items()
    ]
    yield (
        f"errors_{loss}",
        charts.errors(curves, f"Relative error of cases, {loss} loss", methods, list(classes)),
    )
    ends: list[tuple[str, Callable[[IntArray], Any]]] = [("least", np.argmin), ("most", np.argmax)]
    bars = []
    for word, end in ends:
        county = int(end(data.people))
        name = f"{data.names[county]} ({word} populous)"
        true = _true_effects(data).mean(axis=0)[:, county]
        for method, epsilon in draws:
            if method != "naive":
                shares = draws[method, epsilon].effects.mean(axis=0)[:, county]
                bars.append(charts.effect_rows(name, method, epsilon, shares, true))
    yield (
        f"contractions_{loss}",
        charts.effects(bars, f"Contracted zeros and rates, {loss} loss", methods),
    )
