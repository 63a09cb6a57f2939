"""One family, solved: the weighted least squares of its children beside their parent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from countveil.errors import InputError
from countveil.numerics import FloatArray
from countveil.postprocess.active_set import gap_of_sums, pivot
from countveil.postprocess.certificate import (
    LARGEST_GAP,
    Certificate,
    natural_residual,
    row_residual,
)
from countveil.postprocess.constrained import solve_rows
from countveil.postprocess.gradient import descend
from countveil.postprocess.gram import Gram, Squares, diagonal, largest_sum, multiply, part, whole
from countveil.postprocess.problem import Problem
from countveil.postprocess.rows import Row, largest_gap

_PIVOTS = 120
_STEPS_PER_ROOT = 8.0  # gradient steps before the active set, by the root of the conditioning
_MOST_STEPS = 50

Solution = tuple[FloatArray, FloatArray, int, bool]


def solve_family(
    A: ArrayLike | Squares,
    b: ArrayLike,
    parent: ArrayLike | None,
    totals: ArrayLike | None = None,
    *,
    allowed: ArrayLike | None = None,
    rows: Sequence[Row] = (),
    pivots: int = _PIVOTS,
) -> tuple[FloatArray, Certificate]:
    """Return the h ≥ 0 that minimises Σ_c ½ h_cᵀA h_c − b_cᵀh_c with Σ_c h_c = parent, certified.

    `A` is a matrix, or the squares that add up to it: faster. `b` has a row per child.
    `parent` None is a root: nothing to add up to. `totals` fixes the sum of
    each child, `allowed` is False where a child's cell must be 0, `rows` bound other sums.
    `pivots` limits the active set before the fallback; 0 forces the fallback.
    """
    sides, parent_, totals_, allowed_ = _checked(b, parent, totals, allowed)
    # Cells that the parent does not have are zero in every child.
    kept = parent_ > 0 if len(parent_) else np.ones(sides.shape[1], bool)
    known = 0.0
    # With a single cell every query is a total, and nothing would be left to solve for.
    if isinstance(A, Squares) and len(totals_) and sides.shape[1] > 1:
        A, weight = A.without_totals()
        known = 0.5 * weight * float((totals_**2).sum())
    if len(totals_):
        # The same for every cell of a child changes nothing where its total is fixed. Without it, large
        # totals that were measured well leave no digits for the cells.
        common = sides[:, kept].mean(axis=1) if kept.any() else np.zeros(len(sides))
        sides = sides - common[:, None]
        known -= float(common @ totals_)
    gram = _gram(A, sides.shape, kept)
    if not kept.all():
        sides, allowed_ = (
            np.ascontiguousarray(sides[:, kept]),
            np.ascontiguousarray(allowed_[:, kept]),
        )
        parent_, rows = parent_[kept], [row.within(kept) for row in rows]
    problem = Problem(gram, sides, parent_, totals_, allowed_, rows)
    solved, certificate = _solve(problem, pivots)
    if known:
        certificate = replace(certificate, objective=certificate.objective + known)
    if kept.all():
        return solved, certificate
    h = np.zeros((len(sides), len(kept)))
    h[:, kept] = solved
    return h, certificate


def _gram(A: ArrayLike | Squares, shape: tuple[int, ...], kept: NDArray[np.bool_]) -> Gram:
    """Check A and return it over the cells kept."""
    if isinstance(A, Squares):
        if A.places.shape != (len(A.weights), shape[1]):
            raise InputError(
                f"b has shape {shape} and the squares {A.places.shape}, with {len(A.weights)} weights;"
                f" b is children × cells, squares are queries × cells, each query with a weight"
            )
        if not (A.weights > 0).all() or not np.isfinite(A.weights).all():
            raise InputError("a weight of the squares is not a positive number")
        return part(A if kept.all() else A.within(kept), shape[0])
    gram = np.asarray(A, float)
    if gram.shape != (shape[1], shape[1]):
        raise InputError(
            f"b has shape {shape} and A {gram.shape}; b is children × cells, A cells × cells"
        )
    if not np.isfinite(gram).all():
        raise InputError("A holds a value that is not a number or not finite")
    if not np.allclose(gram, gram.T) or not (np.diag(gram) > 0).all():
        raise InputError("A is not symmetric with a positive diagonal; it is a sum of squares")
    return whole(gram[np.ix_(kept, kept)])


def _checked(
    b: ArrayLike,
    parent: ArrayLike | None,
    totals: ArrayLike | None,
    allowed: ArrayLike | None,
) -> tuple[FloatArray, FloatArray, FloatArray, NDArray[np.bool_]]:
    sides = np.ascontiguousarray(b, float)
    above = np.empty(0) if parent is None else np.asarray(parent, float)
    fixed = np.empty(0) if totals is None else np.asarray(totals, float)
    if sides.ndim != 2:
        raise InputError(f"b has shape {sides.shape}; b is children × cells")
    children, cells = sides.shape
    open_ = np.ones(sides.shape, bool) if allowed is None else np.ascontiguousarray(allowed, bool)
    for name, array, shape in (
        ("parent", above, (cells,)),
        ("totals", fixed, (children,)),
        ("allowed", open_, (children, cells)),
    ):
        given = name == "allowed" or (parent if name == "parent" else totals) is not None
        if given and array.shape != shape:
            raise InputError(f"{name} has shape {array.shape}; it must have {shape}")
    for name, array in (("b", sides), ("parent", above), ("totals", fixed)):
        if not np.isfinite(array).all():
            raise InputError(f"{name} holds a value that is not a number or not finite")
    for name, array in (("parent", above), ("totals", fixed)):
        if (array < 0).any():
            raise InputError(f"{name} has a negative count; counts are 0 or more")
    if len(above) and len(fixed) and not math.isclose(above.sum(), fixed.sum(), rel_tol=1e-12):
        raise InputError(
            f"the totals sum to {fixed.sum():g} and the parent to {above.sum():g}; they must agree"
        )
    return sides, above, fixed, open_


def _solve(problem: Problem, pivots: int) -> tuple[FloatArray, Certificate]:
    """Solve fast, without the rows; with them if the solution breaks one or proves nothing."""
    if problem.b.shape[0] == 0 or not problem.allowed.any():
        nothing = np.zeros(problem.b.shape)
        return nothing, _certify(problem, nothing, nothing, 0, 0)
    if problem.b.shape[0] == 1 and len(problem.parent):
        return _copy(problem)
    start = _start(problem)
    h, reduced, iterations, ended = _pivot(problem, start, pivots)
    certificate = _certify(problem, h, reduced, iterations, 0, rows=False)
    if not (ended and certificate.holds):
        near = h if ended else start
        return _with_rows(problem, near, iterations, fallbacks=1)
    if largest_gap(problem.rows, h) > min(LARGEST_GAP, 1e-9 * problem.scale):
        return _with_rows(problem, h, iterations, fallbacks=0)
    return h, certificate


def _copy(problem: Problem) -> tuple[FloatArray, Certificate]:
    """An only child is its parent; λ takes up the whole gradient."""
    h = np.where(problem.allowed, problem.parent, 0.0)
    return h, _certify(problem, h, np.zeros(problem.b.shape), 0, 0)


def _with_rows(
    problem: Problem, start: FloatArray, iterations: int, fallbacks: int
) -> tuple[FloatArray, Certificate]:
    solved = solve_rows(problem, start)
    iterations += solved.iterations
    certificate = _certify(problem, solved.h, solved.reduced, iterations, fallbacks, solved.along)
    if not problem.rows:  # from there the active set ends with the last digits right
        h, reduced, more, ended = _pivot(problem, solved.h, _PIVOTS)
        exact = _certify(problem, h, reduced, iterations + more, fallbacks)
        if ended and exact.holds:
            return h, exact
    return solved.h, certificate


def _start(problem: Problem) -> FloatArray:
    """Take as many gradient steps as the conditioning asks for."""
    if not len(problem.parent):
        steepness = diagonal(problem.gram)
        return np.where(problem.allowed, np.maximum(problem.b / steepness, 0.0), 0.0)
    stretch = largest_sum(problem.gram) / diagonal(problem.gram).min()
    steps = min(_MOST_STEPS, math.ceil(_STEPS_PER_ROOT * (math.sqrt(stretch) - 0.5)))
    start: FloatArray = descend(
        problem.gram, problem.b, problem.parent, problem.totals, problem.allowed, steps
    )
    return start


def _pivot(problem: Problem, start: FloatArray, most: int) -> Solution:
    try:
        solution: Solution = pivot(
            problem.gram, problem.b, problem.parent, problem.totals, problem.allowed, start, most
        )
    except np.linalg.LinAlgError:
        return start, np.full(start.shape, np.inf), most, False
    return solution


def _certify(
    problem: Problem,
    h: FloatArray,
    reduced: FloatArray,
    iterations: int,
    fallbacks: int,
    along: FloatArray | None = None,
    *,
    rows: bool = True,
) -> Certificate:
    """Measure a solution; `along` are the multipliers of the rows, where they were brought in."""
    pull = multiply(problem.gram, h)
    steep = max(float(np.abs(x).max(initial=0.0)) for x in (pull, problem.b)) or 1.0
    residual = natural_residual(h, reduced, problem.allowed, problem.scale, steep)
    gaps = [gap_of_sums(h, problem.parent, problem.totals)]
    if rows:
        gaps.append(largest_gap(problem.rows, h))
    if along is not None:
        residual = float(
            np.max([residual, row_residual(problem.rows, h, along, problem.scale, steep)])
        )
    gap = float(np.max(gaps))
    objective = float((0.5 * pull * h - problem.b * h).sum())
    worst = float(np.max([residual, gap / problem.scale]))
    return Certificate(worst, gap, objective, iterations, fallbacks)
