"""One family, solved: the weighted least squares of its children beside their parent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from countveil.errors import InputError
from countveil.numerics import FloatArray
from countveil.postprocess.active_set import pivot
from countveil.postprocess.certificate import Certificate, natural_residual, row_residual
from countveil.postprocess.constrained import solve_rows
from countveil.postprocess.gradient import descend
from countveil.postprocess.rows import Row, largest_gap
from countveil.postprocess.splitting import split

_PIVOTS = 120
_ROUNDS = 3  # of the fallback, each with four times the steps of the one before
_STEPS = 200

Solution = tuple[FloatArray, FloatArray, int, bool]


def solve_family(
    A: ArrayLike,
    b: ArrayLike,
    parent: ArrayLike | None,
    totals: ArrayLike | None = None,
    *,
    allowed: ArrayLike | None = None,
    rows: Sequence[Row] = (),
    pivots: int = _PIVOTS,
) -> tuple[FloatArray, Certificate]:
    """Return the h ≥ 0 that minimises Σ_c ½ h_cᵀA h_c − b_cᵀh_c with Σ_c h_c = parent, certified.

    `b` has a row per child. `parent` None is a root: nothing to add up to. `totals` fixes the sum of
    each child, `allowed` is False where a child's cell must be 0, `rows` bound other sums.
    `pivots` limits the active set before the fallback; 0 forces the fallback.
    """
    A, b, parent_, totals_, allowed_ = _checked(A, b, parent, totals, allowed)
    # Cells that the parent does not have are zero in every child.
    kept = parent_ > 0 if len(parent_) else np.ones(b.shape[1], bool)
    inner = [row.within(kept) for row in rows]
    part = _Problem(
        np.ascontiguousarray(A[np.ix_(kept, kept)]),
        np.ascontiguousarray(b[:, kept]),
        parent_[kept] if len(parent_) else parent_,
        totals_,
        np.ascontiguousarray(allowed_[:, kept]),
        inner,
    )
    solved, certificate = part.solve(pivots)
    h = np.zeros(b.shape)
    h[:, kept] = solved
    return h, certificate


def _checked(
    A: ArrayLike,
    b: ArrayLike,
    parent: ArrayLike | None,
    totals: ArrayLike | None,
    allowed: ArrayLike | None,
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, NDArray[np.bool_]]:
    gram, sides = np.asarray(A, float), np.asarray(b, float)
    above = np.empty(0) if parent is None else np.asarray(parent, float)
    fixed = np.empty(0) if totals is None else np.asarray(totals, float)
    if sides.ndim != 2 or gram.shape != (sides.shape[1], sides.shape[1]):
        raise InputError(
            f"b has shape {sides.shape} and A {gram.shape}; b is children × cells, A cells × cells"
        )
    children, cells = sides.shape
    open_ = np.ones(sides.shape, bool) if allowed is None else np.asarray(allowed, bool)
    for name, array, shape in (
        ("parent", above, (cells,)),
        ("totals", fixed, (children,)),
        ("allowed", open_, (children, cells)),
    ):
        given = name == "allowed" or (parent if name == "parent" else totals) is not None
        if given and array.shape != shape:
            raise InputError(f"{name} has shape {array.shape}; it must have {shape}")
    for name, array in (("A", gram), ("b", sides), ("parent", above), ("totals", fixed)):
        if not np.isfinite(array).all():
            raise InputError(f"{name} holds a value that is not a number or not finite")
    for name, array in (("parent", above), ("totals", fixed)):
        if (array < 0).any():
            raise InputError(f"{name} has a negative count; counts are 0 or more")
    if len(above) and len(fixed) and not math.isclose(above.sum(), fixed.sum(), rel_tol=1e-12):
        raise InputError(
            f"the totals sum to {fixed.sum():g} and the parent to {above.sum():g}; they must agree"
        )
    return gram, sides, above, fixed, open_


class _Problem:
    """A family restricted to the parent's cells."""

    def __init__(
        self,
        A: FloatArray,
        b: FloatArray,
        parent: FloatArray,
        totals: FloatArray,
        allowed: NDArray[np.bool_],
        rows: Sequence[Row],
    ) -> None:
        self.A, self.b, self.parent, self.totals = A, b, parent, totals
        self.allowed, self.rows = allowed, rows
        self.scale = max(1.0, float(parent.max(initial=0.0)), float(totals.max(initial=0.0)))

    def solve(self, pivots: int) -> tuple[FloatArray, Certificate]:
        """Solve fast, without the rows; bring them in only if the solution breaks one."""
        if self.b.shape[0] == 0 or not self.allowed.any():
            nothing = np.zeros(self.b.shape)
            return nothing, self._certify(nothing, nothing, 0, 0)
        if self.b.shape[0] == 1 and len(self.parent):
            return self._copy()
        h, certificate = self._without_rows(pivots)
        if largest_gap(self.rows, h) > 1e-9 * self.scale:
            return self._with_rows(certificate.iterations, certificate.fallbacks)
        if not certificate.holds:
            return self._with_rows(certificate.iterations, certificate.fallbacks + 1)
        return h, certificate

    def _copy(self) -> tuple[FloatArray, Certificate]:
        """An only child is its parent; λ takes up the whole gradient."""
        h = np.where(self.allowed, self.parent, 0.0)
        return h, self._certify(h, np.zeros(self.b.shape), 0, 0)

    def _without_rows(self, pivots: int) -> tuple[FloatArray, Certificate]:
        """Solve by the active set; where it does not end, go near by splitting and start there."""
        h, reduced, iterations, ended = self._pivot(self._start(), pivots)
        certificate = self._certify(h, reduced, iterations, 0, rows=False)
        rounds = 0
        while not (ended and certificate.holds) and rounds < _ROUNDS:
            steps = _STEPS * 4**rounds
            near = split(self.A, self.b, self.parent, self.totals, self.allowed, steps)
            rounds += 1
            near = np.where(near > 1e-7 * self.scale, near, 0.0)
            h, reduced, more, ended = self._pivot(near, _PIVOTS)
            iterations += more
            certificate = self._certify(h, reduced, iterations, rounds, rows=False)
        return h, certificate

    def _with_rows(self, iterations: int, fallbacks: int) -> tuple[FloatArray, Certificate]:
        solved = solve_rows(self.A, self.b, self.parent, self.totals, self.allowed, self.rows)
        iterations += solved.iterations
        certificate = self._certify(solved.h, solved.reduced, iterations, fallbacks, solved.along)
        return solved.h, certificate

    def _start(self) -> FloatArray:
        """Take as many gradient steps as the conditioning asks for, 15 at the most."""
        if not len(self.parent):
            return np.where(self.allowed, np.maximum(self.b / np.diag(self.A), 0.0), 0.0)
        stretch = float(np.abs(self.A).sum(axis=1).max() / np.diag(self.A).min())
        steps = min(15, math.ceil(math.sqrt(stretch) * 2))
        return np.asarray(descend(self.A, self.b, self.parent, self.allowed, steps))

    def _pivot(self, start: FloatArray, most: int) -> Solution:
        try:
            h, lam, mu, iterations, ended = pivot(
                self.A, self.b, self.parent, self.totals, self.allowed, start, most
            )
        except np.linalg.LinAlgError:
            return start, np.full(start.shape, np.inf), most, False
        h = np.where(h > 0.0, h, np.minimum(h, 0.0))
        reduced = h @ self.A - self.b - lam - mu[:, None]
        return np.maximum(h, 0.0) if ended else h, reduced, iterations, ended

    def _certify(
        self,
        h: FloatArray,
        reduced: FloatArray,
        iterations: int,
        fallbacks: int,
        along: FloatArray | None = None,
        *,
        rows: bool = True,
    ) -> Certificate:
        """Measure a solution; `along` are the multipliers of the rows, where they were brought in."""
        pull = h @ self.A
        steep = max(float(np.abs(pull).max(initial=0.0)), float(np.abs(self.b).max(initial=0.0)))
        steep = steep or 1.0
        residual = natural_residual(h, reduced, self.allowed, self.scale, steep)
        gaps: list[Any] = [0.0]
        if len(self.parent):
            gaps.append(np.abs(h.sum(axis=0) - self.parent).max(initial=0.0))
        if len(self.totals):
            gaps.append(np.abs(h.sum(axis=1) - self.totals).max(initial=0.0))
        if rows:
            gaps.append(largest_gap(self.rows, h))
        if along is not None:
            residual = float(
                np.max([residual, row_residual(self.rows, h, along, self.scale, steep)])
            )
        gap = float(np.max(gaps))
        objective = float((0.5 * pull * h - self.b * h).sum())
        worst = float(np.max([residual, gap / self.scale]))
        return Certificate(worst, gap, objective, iterations, fallbacks)
