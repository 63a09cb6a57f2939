"""Noise in the whole space and then projection, or noise in the subspace (003, Corollary 13).

Noise k has the weight exp(-|k|/scale). In the Euclidean norm and d dimensions its length is Gamma of
shape d, so E|k|² = d(d + 1) scale². A projection from d1 to d2 dimensions keeps the share d2/d1 of it.
So the errors are d2 (d1 + 1) scale² and d2 (d2 + 1) scale². The paper states the orders d1² and d1·d2.
Both are bounds that hold, but neither is how the error grows; the gain d1/d2 is right.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from countveil.base.numerics import FloatArray
from countveil.errors import InputError
from countveil.papers.seeman.projection import NoiseNorm


@dataclass(frozen=True, slots=True)
class SubspaceErrors:
    """Mean squared lengths of the error, and their standard errors, which are 0 if exact."""

    projected: float
    inside: float
    projected_error: float = 0.0
    inside_error: float = 0.0

    @property
    def gain(self) -> float:
        """The error of projected noise over that of noise in the subspace."""
        return self.projected / self.inside


def expected_errors(whole: int, subspace: int, *, scale: float = 1.0) -> SubspaceErrors:
    """Return both errors exactly, for Euclidean noise.

    Parameters
    ----------
    whole, subspace
        The dimensions of the space and of the subspace.
    scale
        The scale of the noise.

    Returns
    -------
    SubspaceErrors
        The mean squared errors.

    Examples
    --------
    >>> expected_errors(10, 4).gain
    2.2
    """
    if not 1 <= subspace <= whole:
        raise InputError(
            f"subspace: {subspace} of {whole} dimensions is not possible; give 1 to {whole}"
        )
    square = _positive(scale) ** 2
    return SubspaceErrors(subspace * (whole + 1) * square, subspace * (subspace + 1) * square)


def simulated_errors(
    basis: ArrayLike, *, norm: NoiseNorm = "L2", scale: float = 1.0, draws: int = 10_000, seed: int
) -> SubspaceErrors:
    """Return both errors by simulation.

    Parameters
    ----------
    basis
        A matrix whose columns span the subspace.
    norm
        The norm of the noise, "L1" or "L2".
    scale
        The scale of the noise.
    draws, seed
        The number of draws, and their seed.

    Returns
    -------
    SubspaceErrors
        The mean squared errors and their standard errors.
    """
    columns = np.asarray(basis, np.float64)
    if columns.ndim != 2 or np.linalg.matrix_rank(columns) < columns.shape[1]:
        raise InputError(
            f"basis: the shape is {columns.shape}; give one independent column per dimension"
        )
    if norm not in ("L1", "L2"):
        raise InputError(f'norm: unknown norm {norm!r}; choose "L1" or "L2"')
    if draws < 2:
        raise InputError(f"draws: {draws} is not allowed; give 2 or more")
    rng = np.random.default_rng(seed)
    orthonormal, _ = np.linalg.qr(columns)
    whole, subspace = orthonormal.shape
    size = _positive(scale)
    if norm == "L1":
        noise = rng.laplace(0, size, (draws, whole))
    else:
        noise = _directions(rng, draws, whole) * rng.gamma(whole, size, (draws, 1))
    projected = ((noise @ orthonormal) ** 2).sum(axis=1)
    # A direction t has the weight |t|^-d2 in the norm, and the length along it is Gamma(d2)·scale/|t|.
    directions = _directions(rng, draws, subspace) @ orthonormal.T
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
        raise InputError(f"scale: {scale} is not allowed; it must be above 0")
    return float(scale)
