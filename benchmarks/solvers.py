"""The families of a state, solved by countveil and by general solvers of quadratic programs."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import peers
from benchmarks.families import Caught, Problem, excess, judge, objective, write
from benchmarks.table import Missed, show, verdict
from countveil.base.numerics import FloatArray
from countveil.postprocess import solve_family
from countveil.postprocess.solver.family_problem import Squares

OURS = "countveil"
_TOLERANCE = 1e-9  # relative to the objective: rounding may hide this much
_REPEATS = 3
_LONG = 0.5  # seconds after which a run is not repeated


@dataclass(frozen=True, eq=False, slots=True)
class Measured:
    """A solver on the families of a level; h is None if it returned no solution."""

    solver: str
    level: str
    way: str
    problems: list[Problem]
    seconds: list[float]
    solutions: list[FloatArray | None]
    unsolved: int

    @property
    def milliseconds(self) -> float:
        """The mean time of the families it solved, in milliseconds."""
        finite = [seconds for seconds in self.seconds if np.isfinite(seconds)]
        return 1e3 * float(np.mean(finite)) if finite else float("inf")


def compare(caught: Caught, folder: Path, *, with_peers: bool, limit: float) -> None:
    """Solve the sample with every solver; print times, ratios, residuals and objectives by level."""
    problems = caught.problems
    levels = list(dict.fromkeys(problem.level for problem in problems))
    print(f"solving {len(problems)} families with countveil", file=sys.stderr, flush=True)
    with threadpool_limits(1):
        for problem in problems:  # loads the compiled kernels
            if problem.size < 1e4:
                _ours(problem, 1)
        solved = [_ours(problem, _REPEATS) for problem in problems]
    found = []
    for level in levels:
        here = [i for i, problem in enumerate(problems) if problem.level == level]
        found.append(
            Measured(
                *(OURS, level, "sums"),
                [problems[i] for i in here],
                [solved[i][1] for i in here],
                [solved[i][0] for i in here],
                unsolved=0,
            )
        )
    if with_peers:
        found += _theirs(problems, folder, limit)
    best = {number: h for number, (h, _) in enumerate(solved)}
    ours = {id(problem): best[number] for number, problem in enumerate(problems)}
    least = _show_levels(levels, found, ours, caught.families)
    if with_peers:
        _show_state(levels, found, caught.families)
        met = least >= -_TOLERANCE
        print(
            f"  Target: no objective more than {_TOLERANCE:g} below countveil's, relatively. "
            f"Smallest difference: {least:.1e}: {verdict(met)}."
        )
        if not met:
            raise Missed(f"a peer found an objective {-least:.1e} below countveil's")


def _ours(problem: Problem, repeats: int) -> tuple[FloatArray, float]:
    shortest = float("inf")
    squares = Squares(problem.groups, problem.weights)
    for _ in range(repeats):
        start = time.process_time()
        h, certificate = solve_family(squares, problem.b, problem.parent, problem.totals)
        shortest = min(shortest, time.process_time() - start)
        if shortest > _LONG:
            break
    if not certificate.holds:
        raise Missed(f"a family of level {problem.level} was not solved: {certificate}")
    return h, shortest


def _theirs(problems: list[Problem], folder: Path, limit: float) -> list[Measured]:
    question = {
        "families": str(folder / "families.npz"),
        "answers": str(folder / "answers.npz"),
        "seconds": limit,
    }
    write(problems, folder / "families.npz")
    report: list[dict[str, Any]] = peers.ask("family_peers.py", question, one_thread=True)
    found = []
    with np.load(folder / "answers.npz") as answers:
        for item in report:
            names = [f"{item['peer']}/{number}" for number in item["families"]]
            found.append(
                Measured(
                    *(item["peer"], item["level"], f"{item['way']}, {item['tolerance']:g}"),
                    [problems[number] for number in item["families"]],
                    item["seconds"],
                    [answers.get(name) for name in names],
                    unsolved=item["solved"].count(False),
                )
            )
    return found


def _show_levels(
    levels: list[str],
    found: list[Measured],
    ours: dict[int, FloatArray],
    families: dict[str, int],
) -> float:
    """Print a row per level and solver; return the smallest relative difference to our objective."""
    rows, least = [], 0.0
    for level in levels:
        here = [item for item in found if item.level == level]
        base = here[0].milliseconds
        shapes = [problem.b.shape for problem in here[0].problems]
        size = " × ".join(f"{mean:,.0f}" for mean in np.mean(shapes, axis=0))
        for item in here:
            judged, above = [], []
            for problem, h in zip(item.problems, item.solutions, strict=True):
                if h is not None:
                    judged.append(judge(problem, h))
                    best = ours[id(problem)]
                    above.append(excess(problem, best, h) / max(1.0, abs(objective(problem, best))))
            least = min([least, *above])
            first = item is here[0]
            rows.append(
                (
                    level if first else "",
                    f"{len(shapes)} of {families[level]}" if first else "",
                    size if first else "",
                    *(item.solver, item.way),
                    *(f"{item.milliseconds:,.2f}", f"{item.milliseconds / base:,.2f}"),
                    f"{max((j.residual for j in judged), default=np.nan):.0e}",
                    f"{max((j.gap for j in judged), default=np.nan):.0e}",
                    f"{max(above, default=np.nan):.0e}",
                    str(item.unsolved or ""),
                )
            )
    columns = (
        *("level", "families", "children × cells", "solver", "formulation, tolerance"),
        *("ms", "× ours", "residual", "gap", "objective above ours", "unsolved"),
    )
    show(
        "Processor time per family, one thread, and the worst solution of each level",
        columns,
        rows,
    )
    return least


def _show_state(levels: list[str], found: list[Measured], families: dict[str, int]) -> None:
    """Print how long each solver would take for all families of the state."""
    solvers = list(dict.fromkeys(item.solver for item in found))
    totals = {
        (solver, level): item.milliseconds * families[level] / 1e3
        for solver in solvers
        for level in levels
        for item in found
        if item.solver == solver and item.level == level
    }
    base = sum(totals[OURS, level] for level in levels)
    rows = []
    for solver in solvers:
        each = [totals.get((solver, level), float("nan")) for level in levels]
        ratio = f"{sum(each) / base:,.1f}"
        rows.append((solver, *(f"{seconds:,.2f}" for seconds in each), f"{sum(each):,.2f}", ratio))
    columns = ("solver", *levels, "all", "× ours")
    show("Processor seconds for all families of the state, from the means above", columns, rows)
