"""Non-negative weighted least squares for one family: checked, solved exactly, certified."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from countveil.base.numerics import FloatArray
from countveil.errors import InputError
from countveil.postprocess.certificate import (
    LARGEST_GAP,
    Certificate,
    natural_residual,
    row_residual,
)
from countveil.postprocess.facts.rows import Row, largest_gap
from countveil.postprocess.solver.active_set import gap_of_sums, pivot
from countveil.postprocess.solver.family_problem import (
    FamilyProblem,
    Gram,
    Squares,
    diagonals,
    gram_in_blocks,
    gram_in_one_block,
    largest_sum,
    multiply,
)
from countveil.postprocess.solver.gradient_start import gradient_start_point
from countveil.postprocess.solver.multipliers import settle_sums, solve_rows

_PIVOTS = 120
_STEPS_PER_ROOT = 8.0  # gradient steps before the active set, per root of the condition number
_MOST_STEPS = 50


class CertifiedSolution(NamedTuple):
    """The solution of a family, children × cells, and its certificate."""

    h: FloatArray
    certificate: Certificate


def solve_family(
    A: ArrayLike | Squares,
    b: ArrayLike,
    parent: ArrayLike | None,
    totals: ArrayLike | None = None,
    *,
    allowed: ArrayLike | None = None,
    rows: Sequence[Row] = (),
    pivots: int = _PIVOTS,
) -> CertifiedSolution:
    """Return the h ≥ 0 that minimises Σ_c ½ h_cᵀA_c h_c − b_cᵀh_c with Σ_c h_c = parent, certified.

    Parameters
    ----------
    A : array of cells × cells, or of children × cells × cells, or Squares
        The matrix of the least squares, or one per child, or the squares that add up to it, which is
        faster.
    b : array of children × cells
        The right-hand side, a row per child.
    parent : array of cells, or None
        What the children add up to, cell by cell. None for a root, which adds up to nothing.
    totals : array of children, optional
        The fixed sum of each child.
    allowed : array of bool, children × cells, optional
        False where a child's cell must be 0.
    rows : sequence of Row, optional
        Bounds on other sums.
    pivots : int
        The most steps of the active set before the fallback; 0 forces the fallback.

    Returns
    -------
    CertifiedSolution
        `h` (children × cells) and its certificate. Check `certificate.holds` before using h.

    Examples
    --------
    >>> h, certificate = solve_family([[1.0]], [[4.0], [-1.0]], parent=[2.0])
    >>> h.round(6).tolist(), certificate.holds
    ([[2.0], [0.0]], True)

    """
    sides, parent_, totals_, allowed_ = _checked(b, parent, totals, allowed)
    # Cells that are 0 in the parent are 0 in every child.
    kept = parent_ > 0 if len(parent_) else np.ones(sides.shape[1], bool)
    known = 0.0
    # With a single cell every query is a query of the total; without those nothing would be left.
    if isinstance(A, Squares) and len(totals_) and sides.shape[1] > 1:
        A, weight = A.without_totals()
        known = 0.5 * float(weight[A.child_shapes(len(totals_))] @ totals_**2)
    if len(totals_):
        # With its total fixed, adding a constant to all cells of a child changes nothing. Subtracting
        # the mean leaves digits for the cells where large totals were measured precisely.
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
    problem = FamilyProblem(gram, sides, parent_, totals_, allowed_, rows)
    inner, certificate = _solve(problem, pivots)
    if known:
        certificate = replace(certificate, objective=certificate.objective + known)
    if kept.all():
        return CertifiedSolution(inner, certificate)
    h = np.zeros((len(sides), len(kept)))
    h[:, kept] = inner
    return CertifiedSolution(h, certificate)


def _gram(A: ArrayLike | Squares, shape: tuple[int, ...], kept: NDArray[np.bool_]) -> Gram:
    """Check A and return it over the kept cells, in blocks."""
    if isinstance(A, Squares):
        terms = A.matrices.shape[1]
        if A.places.shape != (terms, shape[1]):
            raise InputError(
                f"b has shape {shape} and the squares {A.places.shape}, with {terms} weights;"
                f" b must be children × cells and squares queries × cells, with one weight per query"
            )
        if not np.isfinite(A.weights).all() or (A.weights.ndim == 1 and not (A.weights > 0).all()):
            raise InputError("the weights of the squares must be positive numbers")
        return gram_in_blocks(A if kept.all() else A.within(kept), shape[0])
    matrix = np.asarray(A, float)
    if matrix.shape not in ((shape[1], shape[1]), (*shape, shape[1])):
        raise InputError(
            f"b has shape {shape} and A {matrix.shape}; b must be children × cells, A cells × cells or "
            f"one such matrix per child"
        )
    if not np.isfinite(matrix).all():
        raise InputError("A must hold finite numbers only")
    if (
        not np.allclose(matrix, np.swapaxes(matrix, -1, -2))
        or not (np.diagonal(matrix, axis1=-2, axis2=-1) > 0).all()
    ):
        raise InputError("A must be a sum of squares: symmetric, with a positive diagonal")
    shape_of = np.arange(shape[0]) if matrix.ndim == 3 else np.zeros(shape[0], np.int64)
    stack = matrix if matrix.ndim == 3 else matrix[None]
    return gram_in_one_block(stack[:, kept][:, :, kept], shape_of)


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
        raise InputError(f"b has shape {sides.shape}; it must be children × cells")
    children, cells = sides.shape
    open_ = np.ones(sides.shape, bool) if allowed is None else np.ascontiguousarray(allowed, bool)
    for name, array, shape in (
        ("parent", above, (cells,)),
        ("totals", fixed, (children,)),
        ("allowed", open_, (children, cells)),
    ):
        present = name == "allowed" or (parent if name == "parent" else totals) is not None
        if present and array.shape != shape:
            raise InputError(f"{name} has shape {array.shape}; it must have {shape}")
    for name, array in (("b", sides), ("parent", above), ("totals", fixed)):
        if not np.isfinite(array).all():
            raise InputError(f"{name} must hold finite numbers only")
    for name, array in (("parent", above), ("totals", fixed)):
        if (array < 0).any():
            raise InputError(f"{name} has a negative count; counts must be 0 or more")
    if len(above) and len(fixed) and not math.isclose(above.sum(), fixed.sum(), rel_tol=1e-12):
        raise InputError(
            f"the totals add up to {fixed.sum():g} and the parent to {above.sum():g}; they must agree"
        )
    return sides, above, fixed, open_


def _solve(problem: FamilyProblem, pivots: int) -> CertifiedSolution:
    """Solve without the rows, which is fast; with them if that breaks one or is not certified."""
    if problem.b.shape[0] == 0 or not problem.allowed.any():
        nothing = np.zeros(problem.b.shape)
        return CertifiedSolution(nothing, _certify(problem, nothing, nothing, 0, 0))
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
    return CertifiedSolution(h, certificate)


def _copy(problem: FamilyProblem) -> CertifiedSolution:
    """Copy the parent to its only child; λ takes up the whole gradient."""
    h = np.where(problem.allowed, problem.parent, 0.0)
    return CertifiedSolution(h, _certify(problem, h, np.zeros(problem.b.shape), 0, 0))


def _with_rows(
    problem: FamilyProblem, start: FloatArray, iterations: int, fallbacks: int
) -> CertifiedSolution:
    """Solve by the method of multipliers, with all rows."""
    solution = solve_rows(problem, start)
    iterations += solution.iterations
    certificate = _certify(
        problem, solution.h, solution.reduced, iterations, fallbacks, solution.along
    )
    if certificate.consistency_gap > LARGEST_GAP:
        h = settle_sums(problem, solution.h)
        settled = _certify(problem, h, solution.reduced, iterations, fallbacks, solution.along)
        if settled.holds:
            return CertifiedSolution(h, settled)
    if not problem.rows:  # from there, the active set gets the last digits right
        h, reduced, more, ended = _pivot(problem, solution.h, _PIVOTS)
        exact = _certify(problem, h, reduced, iterations + more, fallbacks)
        if ended and exact.holds:
            return CertifiedSolution(h, exact)
    return CertifiedSolution(solution.h, certificate)


def _start(problem: FamilyProblem) -> FloatArray:
    """Return a starting point, after more gradient steps the worse the conditioning is."""
    if not len(problem.parent):
        steepness = diagonals(problem.gram)[problem.gram.shape_of]
        return np.where(problem.allowed, np.maximum(problem.b / steepness, 0.0), 0.0)
    stretch = largest_sum(problem.gram) / diagonals(problem.gram).min()
    steps = min(_MOST_STEPS, math.ceil(_STEPS_PER_ROOT * (math.sqrt(stretch) - 0.5)))
    start: FloatArray = gradient_start_point(
        problem.gram, problem.b, problem.parent, problem.totals, problem.allowed, steps
    )
    return start


class _Pivoted(NamedTuple):
    """What the active set returns: h, its reduced gradients, and whether it ended at the optimum."""

    h: FloatArray
    reduced: FloatArray
    iterations: int
    ended: bool


def _pivot(problem: FamilyProblem, start: FloatArray, most: int) -> _Pivoted:
    try:
        return _Pivoted(
            *pivot(
                problem.gram,
                problem.b,
                problem.parent,
                problem.totals,
                problem.allowed,
                start,
                most,
            )
        )
    except np.linalg.LinAlgError:
        return _Pivoted(start, np.full(start.shape, np.inf), most, False)


def _certify(
    problem: FamilyProblem,
    h: FloatArray,
    reduced: FloatArray,
    iterations: int,
    fallbacks: int,
    along: FloatArray | None = None,
    *,
    rows: bool = True,
) -> Certificate:
    """Measure a solution; `along` are the multipliers of the rows, if they were used."""
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
