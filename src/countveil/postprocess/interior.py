"""An interior point: near enough to the optimum to tell which entries are zero there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import splu

from countveil.numerics import FloatArray

_STEPS = 80
_STALE = 8  # steps without progress: rounding has the last word
_BACK = 0.995  # of the way to the nearest bound
_DAMPING = 1e-13  # of the scaled system, so that redundant sums do no harm


@dataclass(frozen=True, eq=False, slots=True)
class Program:
    """min ½ xᵀQx − bᵀx,  M x = m,  x ≥ 0."""

    Q: sp.csr_array
    b: FloatArray
    M: sp.csr_array
    m: FloatArray


@dataclass(frozen=True, eq=False, slots=True)
class Point:
    """A nearly optimal x, the multipliers of its sums, and which entries are above 0."""

    x: FloatArray
    y: FloatArray
    positive: NDArray[np.bool_]


def approach(program: Program) -> Point:
    """Follow the central path by predictor and corrector steps (Mehrotra 1992) as far as it goes."""
    p, scale, steep = _scaled(program)
    count = len(p.b)
    x, y, z = np.ones(count), np.zeros(len(p.m)), np.ones(count)
    best, stale, nearest = np.inf, 0, Point(x, y, np.ones(count, bool))
    for _ in range(_STEPS):
        off_gradient = p.Q @ x - p.b - p.M.T @ y - z
        off_sums = p.M @ x - p.m
        mu = float(x @ z) / count
        worst = float(np.max([mu, *np.abs(off_gradient), *np.abs(off_sums)]))
        stale = 0 if worst < best else stale + 1
        if worst < best:
            best, nearest = worst, Point(x * scale, y * steep, x > z)
        if worst < 1e-14 or stale > _STALE or not np.isfinite(worst):
            break
        factor = _factor(p, z / x)
        dx, dz = _step(factor, x, z, off_gradient, off_sums, -x * z)[::2]
        reach = _reach(x, dx, z, dz)
        after = float((x + reach * dx) @ (z + reach * dz)) / count
        aim = mu * (max(after, 0.0) / mu) ** 3
        dx, dy, dz = _step(factor, x, z, off_gradient, off_sums, aim - dx * dz - x * z)
        reach = _BACK * _reach(x, dx, z, dz)
        x, y, z = x + reach * dx, y + reach * dy, z + reach * dz
    return nearest


def _scaled(program: Program) -> tuple[Program, float, float]:
    """Bring counts and gradients near one."""
    sizes = np.abs(program.m[program.m != 0])
    scale = float(np.median(sizes)) if len(sizes) else 1.0
    steep = max(float(np.abs(program.b).max()), float(program.Q.diagonal().max()) * scale, 1e-300)
    near_one = Program(program.Q * (scale / steep), program.b / steep, program.M, program.m / scale)
    return near_one, scale, steep


def _factor(p: Program, curvature: FloatArray) -> splu:
    """Factor the Newton system in (x, y)."""
    corner = _DAMPING * sp.eye_array(len(p.m))
    system = sp.block_array([[p.Q + sp.diags_array(curvature), -p.M.T], [p.M, corner]])
    return splu(sp.csc_matrix(system))


def _step(
    factor: splu,
    x: FloatArray,
    z: FloatArray,
    off_gradient: FloatArray,
    off_sums: FloatArray,
    change: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the Newton step that takes off what is off and changes x z by `change`."""
    solved = factor.solve(np.concatenate([change / x - off_gradient, -off_sums]))
    dx, dy = solved[: len(x)], solved[len(x) :]
    return dx, dy, (change - z * dx) / x


def _reach(x: FloatArray, dx: FloatArray, z: FloatArray, dz: FloatArray) -> float:
    """Return how far along the step x and z stay positive, 1 at the most."""
    value, change = np.concatenate([x, z]), np.concatenate([dx, dz])
    falling = change < 0
    return min(1.0, float((-value[falling] / change[falling]).min(initial=np.inf)))
