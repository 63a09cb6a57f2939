"""Families with rows, as a program of entries and slacks for the method of multipliers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from countveil.numerics import FloatArray
from countveil.postprocess.independent_rows import independent_rows
from countveil.postprocess.multipliers import minimise
from countveil.postprocess.problem import Problem
from countveil.postprocess.rows import as_matrix
from countveil.postprocess.saddle_system import Blocks, Program, parted


@dataclass(frozen=True, eq=False, slots=True)
class Solved:
    """h, its reduced gradients (A h − b less all multipliers), and the multipliers of the rows."""

    h: FloatArray
    reduced: FloatArray
    along: FloatArray
    iterations: int


def solve_rows(problem: Problem, start: FloatArray) -> Solved:
    """Solve a family with rows from `start`; the slack of a bound is 0 where the bound holds."""
    A, b, rows = problem.matrix(), problem.b, problem.rows
    children, cells = b.shape
    inside = np.flatnonzero(problem.allowed.reshape(-1))
    matrix = as_matrix(rows, children, cells)[:, inside]
    lower = np.array([row.lower for row in rows])
    upper = np.array([row.upper for row in rows])
    same = lower == upper
    low, high = ~same & np.isfinite(lower), ~same & np.isfinite(upper)
    sums, values, fixed = _sums(problem)
    # Equations that follow from others are left out: their multipliers could be anything.
    equal = sp.csr_array(sp.vstack([sums[fixed:, inside], matrix[same]]))
    keep = np.concatenate([np.ones(fixed, bool), independent_rows(sums[:fixed, inside], equal)])
    equations = sp.csr_array(sp.vstack([sums[:fixed, inside], equal]))[keep]
    sides = np.concatenate([values, lower[same]])[keep]
    counts = [len(sides), int(low.sum()), int(high.sum())]
    slack = sp.vstack(
        [
            sp.csr_array((counts[0], counts[1] + counts[2])),
            sp.diags_array(np.repeat([-1.0, 1.0], counts[1:])),
        ]
    )
    M = sp.hstack([sp.vstack([equations, matrix[low], matrix[high]]), slack])
    p = parted(
        Blocks(A, problem.allowed, slack.shape[1]),
        np.concatenate([b.reshape(-1)[inside], np.zeros(slack.shape[1])]),
        sp.csr_array(M),
        np.concatenate([sides, lower[low], upper[high]]),
    )
    x, multipliers, iterations = minimise(p, _begin(p, start[problem.allowed]), problem.scale)
    for_equal, for_low, for_high = np.split(multipliers, np.cumsum(counts)[:-1])
    along = np.zeros(len(rows))
    for_all = np.zeros(len(keep))
    for_all[keep] = for_equal
    along[same] = for_all[len(values) :]
    along[low] += for_low
    along[high] += for_high
    h, reduced = np.zeros(children * cells), np.zeros(children * cells)
    h[inside] = x[: len(inside)]
    reduced[inside] = (p.Q @ x - p.b - p.M.T @ multipliers)[: len(inside)]
    return Solved(h.reshape(b.shape), reduced.reshape(b.shape), along, iterations)


def _begin(p: Program, entries: FloatArray) -> FloatArray:
    """Append to the entries what each slack is with them, 0 where its bound is broken."""
    x = np.concatenate([entries, np.zeros(p.Q.slacks)])
    first = len(p.m) - p.Q.slacks
    sign = p.M[first:, len(entries) :].diagonal()
    x[len(entries) :] = np.maximum(sign * (p.m - p.M @ x)[first:], 0.0)
    return x


def _sums(problem: Problem) -> tuple[sp.csr_array, FloatArray, int]:
    """Return the plain sums as a matrix over all entries, their values, and how many come first.

    Those that come first share no entry: the sums over children or, without a parent, the totals.
    """
    children, cells = problem.b.shape
    parts, values = [sp.csr_array((0, children * cells))], [np.empty(0)]
    if len(problem.parent):
        parts.append(sp.kron(np.ones((1, children)), sp.eye_array(cells)))
        values.append(problem.parent)
    if len(problem.totals):
        parts.append(sp.kron(sp.eye_array(children), np.ones((1, cells))))
        values.append(problem.totals)
    first = len(problem.parent) or len(problem.totals)
    return sp.csr_array(sp.vstack(parts)), np.concatenate(values), first
