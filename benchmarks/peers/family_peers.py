"""Solve families with OSQP, Clarabel, PIQP and HiGHS, in the peers' interpreter; print JSON.

A family is solved in three formulations. `blocks`: the matrix A of normal equations, dense, once for
each child. `sums`: A is Σ_k w_k Q_kᵀQ_k, so with variables s_k = Q_k h the Hessian is diagonal and
the constraints are sparse. `nested`: the same, each s_k summed from the coarsest finer one, not from
h. All ways of a peer are tried on a few families of a level, from the smallest to the largest; those
near the best solve all of them, and the fastest counts.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import version
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import scipy.sparse as sp

_FIRST_ORDER = 1e-6  # OSQP polishes what it reaches
_INTERIOR = 1e-11  # interior points stop at about the square root of this from 0
_ACTIVE_SET = 1e-9
_REPEATS = 3
_LONG = 0.5  # seconds after which a run is not repeated
_TRIED = 6  # families of a level on which every way is tried
_TIMES = 5
_LEAST_PATIENCE = 5.0  # seconds
_NEAR = 1.6  # times the best: a few families leave this much open


@dataclass(frozen=True, eq=False)
class Program:
    """min ½ xᵀP x + qᵀx, E x = e, x ≥ 0 in the first `entries` variables."""

    P: Any
    q: Any
    E: Any
    e: Any
    entries: int

    @property
    def lower(self) -> Any:
        free = np.full(len(self.q) - self.entries, -np.inf)
        return np.concatenate([np.zeros(self.entries), free])


def formulate(family: dict[str, Any], how: str) -> Program:
    """Write a family as a quadratic program."""
    A, b = family["A"], family["b"]
    children, cells = b.shape
    each = sp.eye_array(children)
    hessian, sums = [A], sp.csr_array((0, cells))
    if how != "blocks":
        diagonal, sums = _split(family, nested=how == "nested")
        hessian = [sp.diags_array(diagonal[:cells]), sp.diags_array(diagonal[cells:])]
    more = sums.shape[0]
    rows, right = [], []
    if len(family["parent"]):
        rows.append(sp.kron(np.ones((1, children)), sp.eye_array(cells)))
        right.append(family["parent"])
    if len(family["totals"]):
        rows.append(sp.kron(each, np.ones((1, cells))))
        right.append(family["totals"])
    rows = [sp.hstack([row, sp.csr_array((row.shape[0], children * more))]) for row in rows]
    if more:
        rows.append(sp.hstack([sp.kron(each, sums[:, :cells]), sp.kron(each, sums[:, cells:])]))
        right.append(np.zeros(children * more))
    size = children * (cells + more)
    return Program(
        P=sp.csc_matrix(sp.block_diag([sp.kron(each, part) for part in hessian])),
        q=np.concatenate([-b.ravel(), np.zeros(children * more)]),
        E=sp.csc_matrix(sp.vstack(rows) if rows else sp.csc_array((0, size))),
        e=np.concatenate([np.empty(0), *right]),
        entries=children * cells,
    )


def _split(family: dict[str, Any], *, nested: bool) -> tuple[Any, Any]:
    """Return the diagonal Hessian of cells and sums of one child, and the rows that make the sums."""
    cells = family["A"].shape[0]
    tables: list[tuple[Any, float]] = [(np.arange(cells), 0.0)]
    for row, weight in zip(family["groups"], family["weights"], strict=True):
        if (row < 0).any():
            raise ValueError("a query that omits cells cannot be a nested sum")
        group = np.unique(row, return_inverse=True)[1]
        for number, (other, already) in enumerate(tables):
            if _refines(group, other) and _refines(other, group):
                tables[number] = (other, already + weight)
                break
        else:
            tables.append((group, weight))
    tables[1:] = sorted(tables[1:], key=lambda table: -table[0].max())
    sizes = [int(group.max()) + 1 for group, _ in tables]
    starts = np.cumsum([0, *sizes])
    rows = []
    for number in range(1, len(tables)):
        group, source = tables[number][0], 0
        if nested:
            source = max(k for k in range(number) if _refines(tables[k][0], group))
        to = np.zeros(sizes[source], int)
        to[tables[source][0]] = group
        row = np.concatenate([to, np.arange(sizes[number])])
        column = [
            starts[source] + np.arange(sizes[source]),
            starts[number] + np.arange(sizes[number]),
        ]
        value = np.concatenate([np.ones(sizes[source]), -np.ones(sizes[number])])
        shape = (sizes[number], starts[-1])
        rows.append(sp.csr_array((value, (row, np.concatenate(column))), shape=shape))
    diagonal = np.repeat([weight for _, weight in tables], sizes)
    return diagonal, sp.csr_array(sp.vstack(rows)) if rows else sp.csr_array((0, cells))


def _refines(fine: Any, coarse: Any) -> bool:
    """Return whether each group of `fine` lies in one group of `coarse`."""
    pairs = np.unique(fine.astype(np.int64) * (int(coarse.max()) + 1) + coarse)
    return len(pairs) == int(fine.max()) + 1


Solved = tuple[Any, bool]  # x, and whether the solver reports success


@dataclass(frozen=True)
class Way:
    """A solver and how it is called; `ask` prepares matrices, untimed, and returns the timed call."""

    peer: str
    how: str
    formulation: str
    tolerance: float
    ask: Callable[[Program, float], Callable[[], Solved]]

    @property
    def name(self) -> str:
        return ", ".join(part for part in (self.formulation, self.how) if part)


def osqp(program: Program, tolerance: float) -> Callable[[], Solved]:
    module = import_module("osqp")
    upper = sp.csc_matrix(sp.triu(program.P))
    entries = sp.eye_array(program.entries, len(program.q))
    rows = sp.csc_matrix(sp.vstack([program.E, entries]))
    low = np.concatenate([program.e, np.zeros(program.entries)])
    high = np.concatenate([program.e, np.full(program.entries, np.inf)])

    def solve() -> Solved:
        solver = module.OSQP()
        solver.setup(
            *(upper, program.q, rows, low, high),
            verbose=False,
            eps_abs=tolerance,
            eps_rel=tolerance,
            max_iter=10**6,
            polishing=True,
        )
        result = solver.solve(raise_error=False)
        return result.x, result.info.status == "solved"

    return solve


def clarabel(program: Program, tolerance: float) -> Callable[[], Solved]:
    module = import_module("clarabel")
    upper = sp.csc_matrix(sp.triu(program.P))
    entries = sp.eye_array(program.entries, len(program.q))
    rows = sp.csc_matrix(sp.vstack([program.E, -entries]))
    right = np.concatenate([program.e, np.zeros(program.entries)])

    def solve() -> Solved:
        cones = [module.ZeroConeT(len(program.e)), module.NonnegativeConeT(program.entries)]
        settings = module.DefaultSettings()
        settings.verbose, settings.max_threads = False, 1
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
        result = module.DefaultSolver(upper, program.q, rows, right, cones, settings).solve()
        return np.array(result.x), str(result.status) == "Solved"

    return solve


def piqp(program: Program, tolerance: float, how: str) -> Callable[[], Solved]:
    module = import_module("piqp")
    dense = how == "dense"
    upper = program.P.toarray() if dense else sp.csc_matrix(sp.triu(program.P))
    rows = program.E.toarray() if dense else program.E

    def solve() -> Solved:
        solver = module.DenseSolver() if dense else module.SparseSolver()
        settings = solver.settings
        settings.verbose = False
        settings.eps_abs = settings.eps_rel = tolerance
        settings.eps_duality_gap_abs = settings.eps_duality_gap_rel = tolerance
        if how == "multistage":
            settings.kkt_solver = module.KKTSolver.sparse_multistage
        lower = program.lower
        solver.setup(upper, program.q, rows, program.e, None, None, None, lower, None)
        status = solver.solve()
        return np.array(solver.result.x), status == module.PIQP_SOLVED

    return solve


def highs(program: Program, tolerance: float, how: str) -> Callable[[], Solved]:
    module = import_module("highspy")
    lower_half = sp.csc_matrix(sp.tril(program.P))
    options = {
        "solver": "hipo" if how == "HiPO" else "qpasm",
        "threads": 1,
        "parallel": "off",
        "primal_feasibility_tolerance": max(tolerance, 1e-10),
        "dual_feasibility_tolerance": max(tolerance, 1e-10),
        "ipm_optimality_tolerance": tolerance,
    }

    def solve() -> Solved:
        solver = module.Highs()
        solver.silent()
        for name, value in options.items():
            solver.setOptionValue(name, value)
        model = module.HighsModel()
        lp, hessian = model.lp_, model.hessian_
        lp.num_col_, lp.num_row_ = len(program.q), len(program.e)
        lp.col_cost_, lp.col_lower_ = program.q, program.lower
        lp.col_upper_ = np.full(len(program.q), np.inf)
        lp.row_lower_ = lp.row_upper_ = program.e
        lp.a_matrix_.format_ = module.MatrixFormat.kColwise
        lp.a_matrix_.start_, lp.a_matrix_.index_ = program.E.indptr, program.E.indices
        lp.a_matrix_.value_ = program.E.data
        hessian.dim_, hessian.format_ = len(program.q), module.HessianFormat.kTriangular
        hessian.start_, hessian.index_ = lower_half.indptr, lower_half.indices
        hessian.value_ = lower_half.data
        solver.passModel(model)
        solver.run()
        status = solver.getModelStatus()
        return np.array(solver.getSolution().col_value), status == module.HighsModelStatus.kOptimal

    return solve


def ways() -> list[Way]:
    """Return every way of every peer."""
    names = {name: f"{name} {version(package)}" for name, package in _PACKAGES.items()}
    found = []
    for formulation in ("nested", "sums", "blocks"):
        found.append(Way(names["OSQP"], "", formulation, _FIRST_ORDER, osqp))
        found.append(Way(names["Clarabel"], "", formulation, _INTERIOR, clarabel))
        for how in ("multistage", "dense") if formulation == "blocks" else ("",):
            ask = partial(piqp, how=how)
            found.append(Way(names["PIQP"], how, formulation, _INTERIOR, ask))
        for how, tolerance in (("active set", _ACTIVE_SET), ("HiPO", _INTERIOR)):
            ask = partial(highs, how=how)
            found.append(Way(names["HiGHS"], how, formulation, tolerance, ask))
    return found


_PACKAGES = {"OSQP": "osqp", "Clarabel": "clarabel", "PIQP": "piqp", "HiGHS": "highspy"}
_MOST_DENSE = 3000  # unknowns of a dense problem


@dataclass(frozen=True, eq=False)
class Attempt:
    """The outcome for one family; h is None if time ran out or the solver failed."""

    seconds: float
    h: Any
    solved: bool


def attempt(
    way: Way, families: list[dict[str, Any]], limit: float, *, give_up: bool = False
) -> list[Attempt]:
    """Solve families in another process, each within the limit; or stop at the first beyond it."""
    context = multiprocessing.get_context("fork")
    done: list[Attempt] = []
    while len(done) < len(families):
        receiver, sender = context.Pipe(duplex=False)
        rest = families[len(done) :]
        child = context.Process(target=_answer, args=(way, rest, sender))
        child.start()
        sender.close()
        try:
            for _ in rest:
                if not receiver.poll(limit):
                    done.append(Attempt(np.inf, None, False))
                    break
                done.append(receiver.recv())
        except EOFError:
            done.append(Attempt(np.inf, None, False))
        child.kill()
        child.join()
        if give_up and not all(item.solved for item in done):
            break
    return done


def _answer(way: Way, families: list[dict[str, Any]], sender: Connection) -> None:
    for family in families:
        children, cells = family["b"].shape
        program = formulate(family, way.formulation)
        if way.how == "dense" and len(program.q) > _MOST_DENSE:
            sender.send(Attempt(np.inf, None, False))
            continue
        solve = way.ask(program, way.tolerance)
        best = np.inf
        for _ in range(_REPEATS):
            start = time.process_time()
            x, solved = solve()
            best = min(best, time.process_time() - start)
            if best > _LONG:
                break
        h = np.reshape(x[: children * cells], (children, cells)) if len(x) else None
        finite = h is not None and bool(np.isfinite(h).all())
        sender.send(Attempt(best, h if finite else None, solved and finite))


def promising(peer: str, level: str, families: list[dict[str, Any]], limit: float) -> list[Way]:
    """Return the ways of a peer that are almost as fast as its best on some families."""
    taken: dict[Way, float] = {}
    for way in (way for way in ways() if way.peer == peer):
        # A way that takes many times as long as the best so far need not finish.
        least = min(taken.values(), default=np.inf)
        patience = min(limit, max(_LEAST_PATIENCE, _TIMES * least))
        results = attempt(way, families, patience, give_up=True)
        taken[way] = sum(result.seconds if result.solved else np.inf for result in results)
        note = f"{1e3 * taken[way] / len(families):,.1f} ms per family"
        print(f"  {level}: {peer}, {way.name}: {note}", file=sys.stderr, flush=True)
    return [way for way, seconds in taken.items() if seconds <= _NEAR * min(taken.values())]


def main() -> None:
    """Answer {"families": path, "answers": path, "seconds": s}."""
    question = json.loads(sys.argv[1])
    stored = np.load(question["families"])
    names = ("A", "b", "parent", "totals", "groups", "weights")
    levels = stored["levels"].tolist()
    families = [{name: stored[f"{i}.{name}"] for name in names} for i in range(len(levels))]
    limit, report, answers = question["seconds"], [], {}
    for level in dict.fromkeys(levels):
        here = [number for number, other in enumerate(levels) if other == level]
        here.sort(key=lambda number: int(families[number]["b"].size))
        spread = np.unique(np.linspace(0, len(here) - 1, _TRIED).round().astype(int))
        some = [families[here[place]] for place in spread]
        for peer in dict.fromkeys(way.peer for way in ways()):
            tried = [
                (way, attempt(way, [families[number] for number in here], limit))
                for way in promising(peer, level, some, limit)
            ]
            best, results = min(tried, key=lambda item: sum(each.seconds for each in item[1]))
            for number, result in zip(here, results, strict=True):
                if result.h is not None:
                    answers[f"{peer}/{number}"] = result.h
            report.append(
                {
                    "level": level,
                    "peer": peer,
                    "way": best.name,
                    "tolerance": best.tolerance,
                    "families": here,
                    "seconds": [result.seconds for result in results],
                    "solved": [result.solved for result in results],
                }
            )
    np.savez(question["answers"], **answers)
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main()
