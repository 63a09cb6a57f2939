"""Whole releases of small random trees, simulated: whether intruders learn what the risk says."""

from __future__ import annotations

import argparse
import math
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from benchmarks.table import Missed, show, verdict
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.intruder.targets import Attack
from countveil.assess.intruder.whole_release import evidence, whole_release_risk
from countveil.assess.risk import Risk
from countveil.base.numerics import FloatArray
from countveil.base.randomness import Seeded
from countveil.noise.law import Mechanism
from countveil.plan.plans import Plan, require_counts
from countveil.plan.workload import Query

_EXACT = 1e8  # the weight of a count published exactly
_NOTHING = 1e-10  # of the largest singular value: directions that nothing measures
_CERTAIN = 1e4  # a precision that only exact counts give
_MOST_ERRORS = 3.0
_CATEGORIES = (2, 3)  # of the attributes A and B
_CELLS = math.prod(_CATEGORIES)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--trees", type=int, default=12, help="random trees")
    parser.add_argument("--draws", type=int, default=200_000, help="releases of each")
    parser.add_argument("--seed", type=int, default=1, help="of trees and noise")


def run(options: argparse.Namespace) -> None:
    """Compare the stated risk of each tree with the mean over its simulated releases."""
    rows, missed = [], 0
    for number in range(options.seed, options.seed + options.trees):
        with tempfile.TemporaryDirectory(prefix="countveil-") as folder:
            case = random_case(number, Path(folder))
            name, stated, real = case.name, case.stated(), case.if_real()
            found = case.simulated(options.draws, number)
        met = found.agrees_with(real) and real.bounded_by(stated)
        missed += not met
        off = found.errors_off(real.risk)
        rows.append(
            (
                *(name, f"{found.rho:.4f}", f"{stated.value:.4f}", f"{real.risk:.4f}"),
                *(f"{found.risk:.4f}", f"{found.standard_error:.4f}", f"{off:.1f}", verdict(met)),
            )
        )
    columns = (
        *("tree and intruder", "rho", "stated R", "R of real counts", "simulated R"),
        *("error", "errors off", ""),
    )
    show(f"{options.draws:,} releases of each tree", columns, rows)
    if missed:
        raise Missed(f"{missed} of {options.trees} risks differ from what simulated releases give")


@dataclass(frozen=True, slots=True)
class SimulatedRisk:
    """The mean posterior over prior of simulated releases, and the effective rho."""

    risk: float
    standard_error: float
    rho: float

    def errors_off(self, value: float) -> float:
        """Return how many standard errors a value is away; 0 where both are certain."""
        if not self.standard_error:
            return 0.0 if math.isclose(value, self.risk) else math.inf
        return (value - self.risk) / self.standard_error

    def agrees_with(self, other: RealRisk) -> bool:
        """Whether a risk is within three standard errors, and has the same effective rho."""
        near = abs(self.errors_off(other.risk)) <= _MOST_ERRORS
        return near and math.isclose(other.rho, self.rho, rel_tol=1e-5)


@dataclass(frozen=True, slots=True)
class RealRisk:
    """The posterior over prior if counts around a unit were real numbers, and the effective rho."""

    risk: float
    rho: float

    def bounded_by(self, stated: Risk) -> bool:
        """Whether a stated risk is no less, and no more than it says if it is not an upper bound."""
        rho = math.inf if stated.effective_rho is None else stated.effective_rho
        most = math.inf if stated.upper_bound else self.risk * (1 + 1e-9)
        least = self.risk * (1 - 1e-9)
        return least <= float(stated.value) <= most and rho >= self.rho * (1 - 1e-9)


@dataclass(frozen=True, slots=True)
class Case:
    """A plan with places, and an intruder who knows everyone else in a unit of a level."""

    plan: Plan
    level: str
    attack: Attack
    attribute: str | None
    prior: float

    @property
    def name(self) -> str:
        """The tree and the intruder, in short."""
        places = self.plan.geography()
        shape = "/".join(str(places.units(level)) for level in self.plan.levels)
        exact = "".join(f", exact {item.level}" for item in self.plan.invariants)
        about = self.attribute or self.attack
        return f"{shape} {self.plan.neighbors}{exact}: {about} at {self.level}"

    def stated(self) -> Risk:
        """Return the risk as the product states it."""
        return whole_release_risk(
            self.plan,
            level=self.level,
            attack=self.attack,
            attribute=self.attribute,
            prior=self.prior,
        )

    def if_real(self) -> RealRisk:
        """Return the risk as the product's tree of real numbers has it: what least squares gives."""
        rows = self.plan.rows_per_person
        odds = Intruder(prior=self.prior, rows=rows).log_odds
        views = evidence(self.plan, self.level, attack=self.attack, attribute=self.attribute)
        risks = [item.posterior_if_real(odds, rows) / self.prior for item in views]
        worst = views[risks.index(max(risks))]
        if worst.settled:
            return RealRisk(max(risks), math.inf)
        own = sum(cells / item.variance for item, cells in worst.laws)
        return RealRisk(max(risks), rows**2 * (own + worst.outside) / 2)

    def simulated(self, draws: int, seed: int) -> SimulatedRisk:
        """Simulate releases for the unit and the target about whom most is learned.

        The intruder fits all counts that they do not know by dense least squares over the whole
        release. Nothing here uses the tree, the laws of losses, or the choice of targets of the
        product: every unit and every target is tried.
        """
        seen, weights, noises = self._measurements()
        best, left = 0.0, np.zeros(len(weights))
        for unit in range(self.plan.geography().units(self.level)):
            unknown = self._unexplained(seen, unit)
            for move in self._moves(unit):
                signal = seen @ move
                rest = signal - unknown @ (unknown.T @ signal)
                if rest @ rest > best:
                    best, left = float(rest @ rest), rest
        if best > _CERTAIN:
            return SimulatedRisk(1 / self.prior, 0.0, math.inf)
        rng, shift = Seeded(seed), np.zeros(draws)
        for weight, root, noise in zip(left, weights, noises, strict=True):
            if noise is not None and abs(weight) > 1e-12:
                shift += weight * root * noise.sample(draws, rng=rng)
        odds = math.log(self.prior / (1 - self.prior)) + best / 2 + shift
        risk = expit(odds) / self.prior
        return SimulatedRisk(float(risk.mean()), float(risk.std() / math.sqrt(draws)), best / 2)

    def _measurements(self) -> tuple[FloatArray, FloatArray, list[Mechanism | None]]:
        """Return a weighted row for each published number, the roots of the weights, and the noises."""
        places, lowest = self.plan.geography(), self.plan.levels[-1]
        rows, roots = [], []
        noises: list[Mechanism | None] = []
        found: list[tuple[str, Query, Mechanism | None, float]] = [
            (item.level, item.query, item.mechanism, 1 / item.mechanism.variance)
            for item in self.plan.allocations
        ]
        found += [(item.level, item.query, None, _EXACT) for item in self.plan.invariants]
        for level, query, noise, weight in found:
            above = places.ancestors(lowest, level)
            cells = query.cells_at(np.arange(_CELLS))
            for unit in range(places.units(level)):
                for cell in range(query.cells):
                    inside = np.outer(above == unit, cells == cell).astype(float)
                    rows.append(math.sqrt(weight) * inside.ravel())
                    roots.append(math.sqrt(weight))
                    noises.append(noise)
        return np.array(rows), np.array(roots), noises

    def _known(self, unit: int) -> NDArray[np.bool_]:
        """Return which lowest units belong to the unit."""
        return np.equal(self.plan.geography().ancestors(self.plan.levels[-1], self.level), unit)

    def _unexplained(self, seen: FloatArray, unit: int) -> FloatArray:
        """Return an orthonormal basis of what counts unknown to the intruder can explain."""
        others = seen[:, np.repeat(~self._known(unit), _CELLS)]
        if not others.size:
            return np.zeros((len(seen), 1))
        basis, sizes, _ = np.linalg.svd(others, full_matrices=False)
        return basis[:, sizes > _NOTHING * sizes.max()]

    def _moves(self, unit: int) -> Iterator[FloatArray]:
        """Yield what each target would change: one cell, or two that differ in what is unknown."""
        leaf = int(np.flatnonzero(self._known(unit))[0])
        start = leaf * _CELLS
        length = _CELLS * self.plan.geography().units(self.plan.levels[-1])
        for one in range(_CELLS):
            for other in range(_CELLS):
                move = np.zeros(length)
                move[start + one] += 1
                if self.attack == "presence":
                    yield move
                    break
                a, b = np.unravel_index([one, other], _CATEGORIES)
                if a[0] != a[1] and b[0] == b[1]:
                    move[start + other] -= 1
                    yield move


def random_case(seed: int, folder: Path) -> Case:
    """Return a small random tree with unequal budgets, and an intruder; write its crosswalk."""
    draw = random.Random(seed)  # a simulation
    levels = ("state", "county", "block")
    counties = [f"c{number}" for number in range(draw.choice((1, 2, 2, 3)))]
    blocks = [
        (county, f"{county}b{number}")
        for county in counties
        for number in range(draw.choice((1, 1, 2, 3)))
    ]
    lines = [",".join(("s", *pair)) for pair in blocks]
    (folder / "places.csv").write_text("\n".join([",".join(levels), *lines]) + "\n")
    neighbors = ("add-remove", "change-one")[seed % 2]
    exact = ""
    if neighbors == "change-one" and draw.random() < 0.6:
        exact = '[[invariants]]\nlevel = "state"\nquery = "TOTAL"\nreason = "public"\n'
    text = (
        f'[release]\ntitle = "Tree"\nunit = "person"\nneighbors = "{neighbors}"\n'
        f'[geography]\npath = "places.csv"\nlevels = ["state", "county", "block"]\n'
        f'[attributes]\nA = ["x", "y"]\nB = ["p", "q", "r"]\n{exact}'
        f'[budget]\nrho = "{draw.choice(("0.2", "0.5", "0.9"))}"\n'
        f"[budget.levels]\n{_shares(draw, levels)}"
        f'[budget.queries."*"]\n{_shares(draw, ("TOTAL", "A", "A*B"))}'
    )
    plan = require_counts(Plan.parse(text, folder=folder), "the benchmark")
    level, prior = draw.choice(("block", "block", "county")), draw.choice((0.02, 0.2))
    if draw.random() < 0.5:
        return Case(plan, level, "presence", None, prior)
    return Case(plan, level, "unknown attribute", "A", prior)


def _shares(draw: random.Random, names: tuple[str, ...]) -> str:
    weights = [draw.randint(1, 9) for _ in names]
    parts = [Fraction(weight, sum(weights)) for weight in weights]
    return "".join(f'"{name}" = "{part}"\n' for name, part in zip(names, parts, strict=True))
