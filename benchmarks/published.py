"""Published tables: all noise of tiny plans, enumerated through TopDown, against the bracket."""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.table import Missed, show, verdict
from countveil import Plan, Seeded
from countveil.assess import published_risk
from countveil.assess.published.many_releases import SimulatedReleases
from countveil.assess.published.two_databases import TwoDatabases
from countveil.base.numerics import FloatArray, IntArray

_LEFT_OUT = 1e-6  # of the probability of all noise
_CLOSE = 0.85  # of the enumerated risk that the lower end reaches


@dataclass(frozen=True, slots=True)
class TinyPlan:
    """A plan whose noise can be enumerated, and someone to attack in it."""

    name: str
    places: str
    budget: str
    rho: str
    counts: tuple[tuple[int, ...], ...]
    queries: str = 'A = "1"'
    categories: str = '"x", "y"'
    postprocess: str = 'information = "tree"'
    neighbors: str = "add-remove"
    more: str = ""
    prior: float = 0.1

    def plan(self, folder: Path) -> Plan:
        """Write the crosswalk to a folder and return the plan."""
        (folder / "places.csv").write_text(self.places)
        levels = ", ".join(f'"{level}"' for level in self.places.splitlines()[0].split(","))
        plan = Plan.parse(
            f"""
release = {{ title = "Tiny", unit = "person", neighbors = "{self.neighbors}" }}
geography = {{ path = "places.csv", levels = [{levels}] }}
attributes = {{ A = [{self.categories}] }}
{self.more}
[budget]
rho = "{self.rho}"
levels = {{ {self.budget} }}
[budget.queries."*"]
{self.queries}
[postprocess]
method = "top-down"
{self.postprocess}
""",
            folder=folder,
        )
        assert isinstance(plan, Plan)
        return plan


_ONE = "block\nb1\n"
_TWO = "state,block\ns,b1\ns,b2\n"
_ONLY = "state,block\ns,b1\n"
_HALVES = 'state = "1/2", block = "1/2"'
_LEVEL = 'information = "level"'
_CELLS = (
    '[postprocess.levels.block]\nrounding = "cells"\n[postprocess.levels.state]\nrounding = "cells"'
)

PLANS = (
    TinyPlan("one unit, cut off at 0", _ONE, 'block = "1"', "1", ((1, 0),)),
    TinyPlan("one unit, a pair", _ONE, 'block = "1"', "1/2", ((2, 1),), prior=0.3),
    TinyPlan("one unit, three cells", _ONE, 'block = "1"', "2", ((1, 0, 1),), categories='"x","y","z"'),
    TinyPlan(
        "one unit, total and cells", _ONE, 'block = "1"', "2", ((1, 0),),
        queries='TOTAL = "1/2"\nA = "1/2"',
    ),
    TinyPlan("only child", _ONLY, _HALVES, "1", ((1, 1),)),
    TinyPlan("only child, own level", _ONLY, _HALVES, "1", ((1, 1),), postprocess=_LEVEL),
    TinyPlan("two units", _TWO, _HALVES, "4", ((1, 0), (0, 2))),
    TinyPlan("two units, own level", _TWO, _HALVES, "4", ((1, 0), (0, 2)), postprocess=_LEVEL),
    TinyPlan("two units, small prior", _TWO, _HALVES, "4", ((1, 0), (0, 2)), prior=0.02),
    TinyPlan("two units, rounded cells", _TWO, _HALVES, "5", ((1, 1), (1, 0)), postprocess=_CELLS),
    TinyPlan(
        "two units, change-one", _TWO, _HALVES, "8", ((2, 0), (0, 1)), neighbors="change-one"
    ),
    TinyPlan(
        "state total published", _TWO, 'state = "1/4", block = "3/4"', "4", ((1, 0), (0, 2)),
        neighbors="change-one",
        more='[[invariants]]\nlevel = "state"\nquery = "TOTAL"\nreason = "law"',
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Enumerated:
    """The exact risk of the published counts on the target's path, up to the noise left out."""

    risk: float
    left_out: float
    releases: int


def enumerated(two: TwoDatabases, prior: float) -> Enumerated:
    """Send all noise through TopDown and sum: R = Σ P(tables | there)²/P(tables)."""
    plan, releases = two.plan, all_releases(two)
    published = releases.published(two.places, rng=Seeded(1))
    _, group = np.unique(published, axis=0, return_inverse=True)
    there, away = (probability_of(two, releases, first) for first in (True, False))
    p, q = (np.bincount(group.ravel(), item) for item in (there, away))
    if two.settled:  # the tables of one database are impossible from the other
        assert not (p * q).any() or plan.invariants
    both = prior * p + (1 - prior) * q
    risk = float(np.divide(p * p, both, out=np.zeros_like(both), where=both > 0).sum())
    left_out = 2 - float(p.sum()) - float(q.sum())
    return Enumerated(risk, left_out, len(published))


def _truth(two: TwoDatabases, first: bool) -> IntArray:
    table = two.counts.astype(np.int64)[None].copy()
    return table if first else two.released(table, np.array([False]))


def _exact(two: TwoDatabases, first: bool) -> SimulatedReleases:
    """Return a release of one database without noise."""
    return SimulatedReleases.exactly(two.plan, two.geography, _truth(two, first))


def all_releases(two: TwoDatabases) -> SimulatedReleases:
    """Return every release that is not too unlikely under both databases."""
    one, other = _exact(two, True), _exact(two, False)
    parts = []
    for own in (one, other):
        laws = [
            item.mechanism
            for level in own.values
            for _ in range(own.values[level].shape[1])
            for item in two.plan.at(level)
            for _ in range(item.query.cells)
        ]
        start = np.concatenate([own.values[level].ravel() for level in own.values])
        rows, log_p = np.zeros((1, 0), np.int64), np.zeros(1)
        for law, center in zip(laws, start, strict=True):
            reach = 1
            while 2 * float(law.survival(reach)) > _LEFT_OUT * 1e-3:
                reach += 1
            noise = np.arange(-reach, reach + 1)
            rows = np.concatenate(
                [np.repeat(rows, len(noise), axis=0), np.tile(center + noise, len(rows))[:, None]],
                axis=1,
            )
            log_p = (log_p[:, None] + law.log_pmf(noise)).ravel()
            likely = np.sort(np.exp(log_p))
            least = likely[np.searchsorted(np.cumsum(likely), _LEFT_OUT / (2 * len(laws)))]
            kept = np.exp(log_p) >= least
            rows, log_p = rows[kept], log_p[kept]
        parts.append(rows)
    if not two.settled:
        return _unflattened(one, np.unique(np.concatenate(parts), axis=0))
    first, second = (_unflattened(own, rows) for own, rows in zip((one, other), parts, strict=True))
    return first.joined(second)


def _unflattened(like: SimulatedReleases, rows: IntArray) -> SimulatedReleases:
    values, offset = {}, 0
    for level, one in like.values.items():
        size = one[0].size
        values[level] = rows[:, offset : offset + size].reshape(-1, *one.shape[1:])
        offset += size
    exact = {key: np.repeat(item, len(rows), axis=0) for key, item in like.exact.items()}
    return SimulatedReleases(like.plan, like.geography, values, exact)


def probability_of(two: TwoDatabases, releases: SimulatedReleases, first: bool) -> FloatArray:
    """Return the probability of each release, from one of the databases."""
    own = _exact(two, first)
    log_p = np.zeros(releases.releases)
    for level, values in releases.values.items():
        offset = 0
        for item in two.plan.at(level):
            part = slice(offset, offset + item.query.cells)
            noise = values[:, :, part] - own.values[level][:, :, part]
            log_p += item.mechanism.log_pmf(noise).sum(axis=(1, 2))
            offset += item.query.cells
    for key, exact in releases.exact.items():
        log_p = np.where((exact == own.exact[key]).all(axis=(1, 2)), log_p, -np.inf)
    return np.exp(log_p)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--draws", type=int, default=20_000, help="releases to simulate")


def run(options: argparse.Namespace) -> None:
    """Enumerate every tiny plan, and compare."""
    rows, outside, far = [], [], []
    for tiny in PLANS:
        with tempfile.TemporaryDirectory() as folder:
            plan = tiny.plan(Path(folder))
            counts = np.array(tiny.counts)
            exact = enumerated(
                TwoDatabases.of(plan, counts=counts, unit=0, cell=0), prior=tiny.prior
            )
            start = time.perf_counter()
            risk = published_risk(
                plan,
                counts=counts,
                unit=0,
                cell=0,
                prior=tiny.prior,
                draws=options.draws,
                rng=Seeded(1),
            )
            seconds = time.perf_counter() - start
        # What is left out has a risk of 1/prior at most.
        slack = exact.left_out / tiny.prior
        if not risk.lower <= exact.risk + slack or not exact.risk <= risk.upper + 1e-9:
            outside.append(tiny.name)
        if risk.lower < _CLOSE * exact.risk:
            far.append(tiny.name)
        rows.append(
            (
                tiny.name,
                f"{exact.releases:,}",
                f"{exact.left_out:.0e}",
                f"{exact.risk:.4f}",
                f"{risk.lower:.4f}",
                f"{risk.upper:.4f}",
                f"{risk.lower / exact.risk:.3f}",
                f"{seconds:.1f}",
            )
        )
    show(
        f"Risk of the published tables: enumerated, and bracketed with {options.draws:,} draws",
        ("plan", "releases", "left out", "exact", "lower", "upper", "lower/exact", "s"),
        rows,
    )
    print(f"  Target: the risk is inside every bracket: {verdict(not outside)}.")
    print(f"  Target: the lower end within 15 % of it: {verdict(not far)}.")
    if outside or far:
        raise Missed(
            f"outside: {', '.join(outside) or 'none'}; too low: {', '.join(far) or 'none'}"
        )
