"""Families solved by other means: every active set, in floats or fractions, and interior point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from flint import fmpq, fmpq_mat
from scipy.linalg import block_diag, null_space
from scipy.optimize import linprog

from countveil.postprocess import solve_family
from countveil.postprocess.facts.rows import Row


@dataclass(frozen=True, eq=False)
class Family:
    """What solve_family is given, as dense matrices over the entries where one wants them."""

    A: np.ndarray
    b: np.ndarray
    parent: np.ndarray | None = None
    totals: np.ndarray | None = None
    allowed: np.ndarray | None = None
    rows: Sequence[Row] = ()

    def solve(self, **options: Any):
        return solve_family(
            self.A,
            self.b,
            self.parent,
            self.totals,
            allowed=self.allowed,
            rows=self.rows,
            **options,
        )

    @property
    def scale(self) -> float:
        """The largest sum."""
        given = [x for x in (self.parent, self.totals) if x is not None]
        bounds = [bound for row in self.rows for bound in (row.lower, row.upper)]
        sums = [float(np.max(x, initial=0.0)) for x in given]
        return max([1.0, *sums, *(bound for bound in bounds if np.isfinite(bound))])

    @property
    def open(self) -> np.ndarray:
        """Which entries may be above 0: allowed, in a cell and a child that have anyone."""
        out = np.ones(self.b.shape, bool) if self.allowed is None else np.array(self.allowed, bool)
        if self.parent is not None:
            out &= np.asarray(self.parent) > 0
        if self.totals is not None:
            out &= np.asarray(self.totals)[:, None] > 0
        return out

    @property
    def quadratic(self) -> np.ndarray:
        if self.A.ndim == 2:
            return np.kron(np.eye(len(self.b)), self.A)
        return block_diag(*self.A)

    @property
    def sums(self) -> tuple[np.ndarray, np.ndarray]:
        """The sums over children and over cells, and what they must be."""
        children, cells = self.b.shape
        parts, values = [np.zeros((0, self.b.size))], [np.zeros(0)]
        if self.parent is not None:
            parts.append(np.kron(np.ones((1, children)), np.eye(cells)))
            values.append(np.asarray(self.parent, float))
        if self.totals is not None:
            parts.append(np.kron(np.eye(children), np.ones((1, cells))))
            values.append(np.asarray(self.totals, float))
        return np.vstack(parts), np.concatenate(values)

    @property
    def bounded(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The sums that rows bound, with their bounds."""
        marks = np.zeros((len(self.rows), *self.b.shape))
        for mark, row in zip(marks, self.rows, strict=True):
            mark[np.ix_(row.children, row.cells)] = 1.0
        lower = np.array([row.lower for row in self.rows], float)
        upper = np.array([row.upper for row in self.rows], float)
        return marks.reshape(len(marks), self.b.size), lower, upper

    def objective(self, h: np.ndarray) -> float:
        pull = (self.quadratic @ h.reshape(-1)).reshape(h.shape)
        return float((0.5 * pull * h - self.b * h).sum())

    def gap(self, h: np.ndarray) -> float:
        """How far h is from satisfying any one of the constraints."""
        E, target = self.sums
        G, lower, upper = self.bounded
        x, together = h.reshape(-1), G @ h.reshape(-1)
        shut = 0.0 if self.allowed is None else np.abs(h[~self.allowed]).max(initial=0.0)
        return max(
            np.abs(E @ x - target).max(initial=0.0),
            np.maximum(lower - together, together - upper).max(initial=0.0),
            -x.min(initial=0.0),
            shut,
        )


def every_active_set(batch: Sequence[Family]) -> np.ndarray:
    """Return the least objectives, by solving with every set of entries at 0 and of rows held.

    The families of a batch have one shape and the same kinds of sums and rows, so each set is solved
    for all of them at once, on the null space of what is held.
    """
    (E, _), (G, _, _) = batch[0].sums, batch[0].bounded
    targets = np.array([family.sums[1] for family in batch])
    lower = np.array([family.bounded[1] for family in batch])
    upper = np.array([family.bounded[2] for family in batch])
    Q = np.array([family.quadratic for family in batch])
    beta = np.array([family.b.reshape(-1) for family in batch])
    shut = ~np.array([family.open.reshape(-1) for family in batch])
    scale = np.array([family.scale for family in batch])[:, None]
    best = np.full(len(batch), np.inf)
    for held in product((0, -1, 1), repeat=len(G)):
        tight = np.array(held, int)
        K = np.vstack([E, G[tight != 0]])
        wanted = np.hstack([targets, np.where(tight < 0, lower, upper)[:, tight != 0]])
        meant = np.isfinite(wanted).all(axis=1)
        wanted = np.where(np.isfinite(wanted), wanted, 0.0)
        for support in product((False, True), repeat=beta.shape[1]):
            S = np.flatnonzero(support)
            good = meant & ~shut[:, S].any(axis=1)
            x = wanted @ np.linalg.pinv(K[:, S]).T
            good &= (np.abs(x @ K[:, S].T - wanted) <= 1e-9 * scale).all(axis=1)
            if not good.any():
                continue
            inner = Q[:, S][:, :, S]
            N = null_space(K[:, S]) if len(K) and len(S) else np.eye(len(S))
            if N.shape[1]:
                slope = beta[:, S] - np.einsum("fij,fj->fi", inner, x)
                step = np.linalg.solve(N.T @ inner @ N, (slope @ N)[:, :, None])[:, :, 0]
                x = x + step @ N.T
            together = x @ G[:, S].T
            good &= (x >= -1e-11 * scale).all(axis=1)
            good &= ((together >= lower - 1e-11 * scale) & (together <= upper + 1e-11 * scale)).all(
                axis=1
            )
            value = 0.5 * np.einsum("fi,fij,fj->f", x, inner, x) - (beta[:, S] * x).sum(axis=1)
            best = np.where(good & (value < best), value, best)
    assert np.isfinite(best).all(), "a family without solution"
    return best


def exact_objective(family: Family) -> float:
    """Return the least objective of a family without rows, in fractions: no conditioning harms it."""
    E, target = family.sums
    Q, beta, open_ = family.quadratic, family.b.reshape(-1), family.open.reshape(-1)
    best = None
    for support in product(*[(False, True) if free else (False,) for free in open_]):
        S = np.flatnonzero(support)
        held = _fractions(np.column_stack([E[:, S], target]))
        held, rank = held.rref() if held.nrows() else (held, 0)
        if any(all(held[i, j] == 0 for j in range(len(S))) for i in range(rank)):
            continue  # 0 = 1: this support cannot meet the sums
        size = len(S) + rank
        system, right = fmpq_mat(size, size), fmpq_mat(size, 1)
        inner = _fractions(Q[np.ix_(S, S)])
        for i in range(len(S)):
            right[i, 0] = _fraction(beta[S[i]])
            for j in range(len(S)):
                system[i, j] = inner[i, j]
            for j in range(rank):
                system[i, len(S) + j] = system[len(S) + j, i] = held[j, i]
        for j in range(rank):
            right[len(S) + j, 0] = held[j, len(S)]
        x = system.solve(right) if size else right
        if all(x[i, 0] >= 0 for i in range(len(S))):
            value = sum(
                (
                    x[i, 0] * (x[j, 0] * inner[i, j] / 2 - (right[i, 0] if i == j else 0))
                    for i in range(len(S))
                    for j in range(len(S))
                ),
                fmpq(0),
            )
            best = value if best is None or value < best else best
    assert best is not None, "a family without solution"
    return int(best.p) / int(best.q)


def _fraction(value: float) -> fmpq:
    return fmpq(*float(value).as_integer_ratio())


def _fractions(matrix: np.ndarray) -> fmpq_mat:
    return fmpq_mat(*matrix.shape, [_fraction(value) for value in matrix.reshape(-1)])


def interior_point(family: Family) -> tuple[float, float]:
    """Return the least objective and how accurate it is, relatively, by Mehrotra's method (1992).

    It needs a solution with every open entry above 0 and every row between its bounds.
    """
    kept = family.open.reshape(-1)
    if not kept.any():
        return 0.0, 0.0
    (E, target), (G, lower, upper) = family.sums, family.bounded
    equal = lower == upper
    E, target = np.vstack([E, G[equal]])[:, kept], np.concatenate([target, lower[equal]])
    Q, beta = family.quadratic[np.ix_(kept, kept)], family.b.reshape(-1)[kept]
    for sign, bounds in ((-1.0, lower), (1.0, upper)):
        for at in np.flatnonzero(~equal & np.isfinite(bounds)):  # a slack variable for each bound
            mark = np.concatenate([G[at, kept], np.zeros(E.shape[1] - kept.sum()), [sign]])
            E = np.vstack([np.pad(E, ((0, 0), (0, 1))), mark])
            target = np.append(target, bounds[at])
    more = E.shape[1] - kept.sum()
    Q, beta = np.pad(Q, (0, more)), np.pad(beta, (0, more))
    u, s, vt = np.linalg.svd(E, full_matrices=False)
    vt, target = vt[s > 1e-10], (u.T @ target)[s > 1e-10] / s[s > 1e-10]  # without redundant rows
    # In units of the largest sum and the largest gradient.
    people = max(
        family.scale,
        np.abs(family.b / np.diagonal(family.A, axis1=-2, axis2=-1)).max() if not len(E) else 0.0,
    )
    steep = max(np.abs(beta).max(), np.abs(Q).max() * people)
    Q, beta, target = Q * (people / steep), beta / steep, target / people
    n, m = len(beta), len(vt)
    x, y, z = np.ones(n), np.zeros(m), np.ones(n)
    best, error = x, np.inf
    for _ in range(100):
        dual, primal, complement = Q @ x - beta - vt.T @ y - z, vt @ x - target, x @ z / n
        now = max(np.abs(dual).max(), np.abs(primal).max(initial=0.0), complement)
        if now < error:
            best, error = x, now
        if now < 1e-15 or now > 1e3 * error:
            break
        system = np.block([[Q + np.diag(z / x), -vt.T], [vt, np.zeros((m, m))]])
        wanted = x * z
        for _ in range(2):  # predictor, then corrector
            right = np.concatenate([-dual - wanted / x, -primal])
            step = np.linalg.solve(system, right)
            step += np.linalg.solve(system, right - system @ step)
            dx, dy = step[:n], step[n:]
            dz = (-wanted - z * dx) / x
            far = 0.995 * min(_reach(x, dx), _reach(z, dz))
            centre = ((x + far * dx) @ (z + far * dz) / n / complement) ** 3
            wanted = x * z + dx * dz - centre * complement
        x, y, z = x + far * dx, y + far * dy, z + far * dz
    return people * steep * float(0.5 * best @ Q @ best - beta @ best), error


def _reach(value: np.ndarray, step: np.ndarray) -> float:
    down = step < 0
    return min(1.0 / 0.995, float((-value[down] / step[down]).min(initial=np.inf)))


def residual(family: Family, h: np.ndarray) -> float:
    """Return the largest violation of optimality under the best multipliers there are, by LP.

    Gradients are relative to their largest term and people to the largest sum, as in a certificate.
    """
    E, _ = family.sums
    G, lower, upper = family.bounded
    x, together = h.reshape(-1), G @ h.reshape(-1)
    near = 1e-7 * family.scale
    pull = (family.quadratic @ h.reshape(-1)).reshape(h.shape)
    steep = max(np.abs(pull).max(), np.abs(family.b).max()) or 1.0
    gradient = (pull - family.b).reshape(-1) / steep
    # A row at its lower bound may push up and at its upper bound down, an equality either way.
    up = np.where(together <= lower + near, np.inf, 0.0)
    down = np.where(together >= upper - near, -np.inf, 0.0)
    K = np.vstack([E, G])
    ones = np.ones((len(x), 1))
    above, shut = x > near, ~family.open.reshape(-1)
    at_least = np.hstack([K.T, -ones])[~shut]  # Kᵀy − r ≤ gradient
    at_most = np.hstack([-K.T, -ones])[above]
    found = linprog(
        np.append(np.zeros(len(K)), 1.0),
        np.vstack([at_least, at_most]),
        np.concatenate([gradient[~shut], -gradient[above]]),
        bounds=[(None, None)] * len(E) + list(zip(down, up, strict=True)) + [(0.0, None)],
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    return max(float(found.x[-1]), family.gap(h) / family.scale)
