"""Noise in the whole space and then projection, beside noise in the subspace (003, Corollary 13).

Noise k weighs exp(-|k|/scale). In the Euclidean norm and d dimensions its length is Gamma of shape d,
so E|k|² = d(d + 1) scale². A projection from d1 to d2 dimensions keeps the share d2/d1 of that. So the
errors are d2 (d1 + 1) scale² and d2 (d2 + 1) scale². The paper states d1² and d1·d2 as orders: both
are bounds that hold, neither is how the error grows, and the gain d1/d2 is right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from countveil.errors import InputError
from countveil.numerics import FloatArray

Norm: TypeAlias = Literal["L1", "L2"]


@dataclass(frozen=True, slots=True)
class SubspaceErrors:
    """Mean squared lengths of the error, and their standard errors, which are 0 if exact."""

    projected: float
    inside: float
    projected_error: float = 0.0
    inside_error: float = 0.0

    @property
    def gain(self) -> float:
        """How many times the error of noise in the subspace that of projected noise is."""
        return self.projected / self.inside


def expected_errors(whole: int, subspace: int, *, scale: float = 1.0) -> SubspaceErrors:
    """Return both errors exactly, for Euclidean noise and dimensions of the space and the subspace."""
    if not 1 <= subspace <= whole:
        raise InputError(
            f"subspace: {subspace} of {whole} dimensions came; it has from 1 to those of the space"
        )
    square = _positive(scale) ** 2
    return SubspaceErrors(subspace * (whole + 1) * square, subspace * (subspace + 1) * square)


def simulated_errors(
    basis: ArrayLike, *, norm: Norm = "L2", scale: float = 1.0, draws: int = 10_000, seed: int
) -> SubspaceErrors:
    """Return both errors by simulation, for the subspace that the columns of `basis` span."""
    columns = np.asarray(basis, np.float64)
    if columns.ndim != 2 or np.linalg.matrix_rank(columns) < columns.shape[1]:
        raise InputError(
            f"basis: of shape {columns.shape}; give independent columns, as many as dimensions"
        )
    if norm not in ("L1", "L2"):
        raise InputError(f'norm: {norm!r} is not known; choose "L1" or "L2"')
    if draws < 2:
        raise InputError(f"draws: {draws} is not allowed; draw 2 or more")
    rng = np.random.default_rng(seed)
    upright, _ = np.linalg.qr(columns)
    whole, subspace = upright.shape
    size = _positive(scale)
    if norm == "L1":
        noise = rng.laplace(0, size, (draws, whole))
    else:
        noise = _directions(rng, draws, whole) * rng.gamma(whole, size, (draws, 1))
    projected = ((noise @ upright) ** 2).sum(axis=1)
    # A direction t weighs |t|^-d2 in the norm, and the length along it is Gamma(d2)·scale/|t|.
    directions = _directions(rng, draws, subspace) @ upright.T
    lengths = np.abs(directions).sum(axis=1) if norm == "L1" else np.ones(draws)
    log_weights = -subspace * np.log(lengths)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.mean()
    squares = (rng.gamma(subspace, size, draws) / lengths) ** 2
    inside = float((weights * squares).mean())
    root = np.sqrt(draws)
    return SubspaceErrors(
        float(projected.mean()),
        inside,
        float(projected.std() / root),
        float((weights * (squares - inside)).std() / root),
    )


def _directions(rng: np.random.Generator, draws: int, dimension: int) -> FloatArray:
    normal = rng.standard_normal((draws, dimension))
    unit: FloatArray = normal / np.linalg.norm(normal, axis=1, keepdims=True)
    return unit


def _positive(scale: float) -> float:
    if not 0 < scale < np.inf:
        raise InputError(f"scale: {scale} is not allowed; it is above 0")
    return float(scale)
