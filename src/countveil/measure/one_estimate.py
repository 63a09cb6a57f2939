"""A mean or the coefficients of a small regression: drawn once, charged, published, read back."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from countveil.base import storage
from countveil.base.numerics import Array, FloatArray
from countveil.base.randomness import BitSource
from countveil.congenial.guarantee.partial_privacy import Theta
from countveil.congenial.mechanism import k_norm
from countveil.congenial.mechanism.k_norm import KNormGradient
from countveil.errors import FolderError, VerificationError
from countveil.measure import manifest
from countveil.measure.once import refuse_without_ledger, release_once
from countveil.measure.one_table import cost_of
from countveil.measure.run import Identity, Run
from countveil.privacy.ledger import Ledger

FORMAT = "countveil estimate 1"
NAME = "estimate.json"


def draw_estimate(
    mechanism: KNormGradient,
    data: Array | Sequence[object],
    *,
    title: str,
    theta: Theta,
    coupling: str,
    rng: BitSource,
    ledger: Ledger | None,
    to: str | Path,
) -> FloatArray:
    """Draw a mean or coefficients, once, and write a release folder.

    The charge is durable before anything is drawn. The same call, made again, finishes or returns the
    same release.

    Parameters
    ----------
    mechanism
        The model, with its bounds, grid and epsilon.
    data
        The confidential values, one row per person.
    theta
        What is public, assumed and secret.
    coupling
        The name of the coupling that moves databases under one secret to those under the other; along
        it, Delta_z is that of the mechanism.
    title
        The title in the manifest and the ledger.
    rng, ledger
        `Secure()` and a ledger for a release; `Seeded` noise needs no ledger and is a simulation.
    to
        The public folder.

    Returns
    -------
    FloatArray
        The mean, or the coefficients.

    """
    folder = Path(to)
    refuse_without_ledger(ledger, rng)
    guarantee = mechanism.guarantee(theta, coupling)
    described = _described(mechanism, theta, coupling)
    decided = hashlib.sha256(json.dumps(described).encode()).hexdigest()
    identity = Identity(decided, "", rng.description, FORMAT)
    values = np.asarray(data, np.float64)
    mechanism.log_probabilities(data)  # raises before the charge if it cannot be drawn

    def keyed_hash(key: bytes) -> str:
        sealed = b"countveil data 1" + np.ascontiguousarray(values).tobytes()
        return hmac.new(key, sealed, hashlib.sha256).hexdigest()

    def draw_part(run: Run) -> None:
        if not run.parts.has("estimate", 0):
            source = rng.for_unit("estimate", "", mechanism.model) if rng.reproducible else rng
            (point,) = k_norm.draw_points(mechanism, data, size=1, rng=source)
            run.parts.keep("estimate", 0, json.dumps(point.tolist()).encode())

    def digest(run: Run) -> str | None:
        part = run.parts.read("estimate", 0)
        return None if part is None else hashlib.sha256(part).hexdigest()

    def publish(run: Run) -> None:
        part = run.parts.read("estimate", 0)
        if part is None:
            raise FolderError(
                f"{run.internal}: the estimate that was drawn is missing; restore it from a backup"
            )
        storage.make_folder(folder)
        storage.sweep(folder)
        storage.write_bytes(folder / NAME, part)
        document: dict[str, Any] = {
            "format": FORMAT,
            "release": run.release,
            "title": title,
            "publishable": not rng.reproducible,
            "randomness": rng.description,
            **described,
            "sentence": guarantee.sentence,
            "files": manifest.list_files(folder, [NAME]),
        }
        storage.write_json(folder / manifest.NAME, document)

    charge = None if ledger is None else (ledger, cost_of(guarantee))
    release_once(
        folder,
        identity,
        keyed_hash,
        charge,
        title=title,
        draw=draw_part,
        digest=digest,
        publish=publish,
    )
    return read_estimate(folder)


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


def _described(mechanism: KNormGradient, theta: Theta, coupling: str) -> dict[str, Any]:
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
