"""A mean or the coefficients of a small regression: how it is described, and read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from countveil.base import storage
from countveil.base.numerics import FloatArray
from countveil.congenial.guarantee.partial_privacy import Theta
from countveil.congenial.mechanism.k_norm import KNormGradient
from countveil.errors import VerificationError
from countveil.measure import manifest

FORMAT = "countveil estimate 1"
NAME = "estimate.json"


def read_estimate(folder: str | Path) -> FloatArray:
    """Return the numbers in a folder that `draw_estimate` wrote.

    Parameters
    ----------
    folder
        The public folder.

    Returns
    -------
    FloatArray
        The mean, or the coefficients.

    Raises
    ------
    VerificationError
        If the folder is unfinished, or the numbers changed since they were released.

    """
    path = Path(folder)
    try:
        document = storage.read_json(path / manifest.NAME)
        expected = document["files"][NAME]["sha256"]
        numbers = storage.read_json(path / NAME)
        intact = document["format"] == FORMAT and storage.sha256(path / NAME) == expected
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise VerificationError(
            f"{folder}: not a finished estimate ({error}); name a folder that `draw_estimate` wrote"
        ) from error
    if not intact:
        raise VerificationError(
            f"{folder}: {NAME} changed since it was released (its hash differs); restore the original"
        )
    return np.array(numbers, np.float64)


def describe_estimate(mechanism: KNormGradient, theta: Theta, coupling: str) -> dict[str, Any]:
    """Return everything that determines the draw, as exact text."""
    return {
        "guarantee": {
            "currency": "beside public information",
            "epsilon": str(mechanism.epsilon),
            "public": list(theta.public),
            "assumed": theta.dependence,
            "secrets": theta.secrets,
            "coupling": mechanism.guarantee(theta, coupling).coupling_digest,
        },
        "mechanism": {
            "name": "k-norm gradient",
            "model": mechanism.model,
            "norm": mechanism.norm,
            "bounds": [[str(end) for end in side] for side in mechanism.bounds],
            "box": [[str(end) for end in side] for side in mechanism.box],
            "points": list(mechanism.points),
            "step": str(mechanism.step),
            "people": mechanism.delta_z,
        },
    }
