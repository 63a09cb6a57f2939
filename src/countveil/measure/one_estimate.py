"""The door for a mean or the coefficients of a small regression: drawn exactly, charged once."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from countveil import storage
from countveil.congenial import k_norm
from countveil.congenial.guarantee import Theta
from countveil.congenial.k_norm import KNormGradient
from countveil.errors import FolderError, InputError, VerificationError
from countveil.measure import manifest
from countveil.measure.one_table import cost_of
from countveil.measure.protocol import once
from countveil.measure.run import Identity, Run
from countveil.numerics import Array, FloatArray
from countveil.privacy.ledger import Ledger
from countveil.randomness import BitSource

FORMAT = "countveil estimate 1"
_NAME = "estimate.json"


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
    """Draw a mean or coefficients once, charge the ledger, and write a folder; return the numbers.

    `theta` says what is public, assumed and secret; `coupling` names the plan that moves databases
    under one secret to those under the other, along which Delta_z is the mechanism's `people`. Running
    the same call again finishes, or finds, the same release.
    """
    folder = Path(to)
    if ledger is None and not rng.reproducible:
        raise InputError("a release is charged to a ledger; name one")
    guarantee = mechanism.guarantee(theta, coupling)
    described = _described(mechanism, theta, coupling)
    decided = hashlib.sha256(json.dumps(described).encode()).hexdigest()
    identity = Identity(decided, "", rng.description, FORMAT)
    values = np.asarray(data, np.float64)
    mechanism.log_probabilities(data)  # refuse before anything is charged what cannot be drawn

    def keyed_hash(key: bytes) -> str:
        sealed = b"countveil data 1" + np.ascontiguousarray(values).tobytes()
        return hmac.new(key, sealed, hashlib.sha256).hexdigest()

    def drawn(run: Run) -> None:
        if not run.parts.has("estimate", 0):
            source = rng.for_unit("estimate", "", mechanism.model) if rng.reproducible else rng
            (point,) = k_norm.draw(mechanism, data, size=1, rng=source)
            run.parts.keep("estimate", 0, json.dumps(point.tolist()).encode())

    def digest(run: Run) -> str | None:
        part = run.parts.read("estimate", 0)
        return None if part is None else hashlib.sha256(part).hexdigest()

    def publish(run: Run) -> None:
        part = run.parts.read("estimate", 0)
        if part is None:
            raise FolderError(f"{run.internal}: the estimate that was drawn is gone")
        storage.make_folder(folder)
        storage.sweep(folder)
        storage.write_bytes(folder / _NAME, part)
        document: dict[str, Any] = {
            "format": FORMAT,
            "release": run.release,
            "title": title,
            "publishable": not rng.reproducible,
            "randomness": rng.description,
            **described,
            "sentence": guarantee.sentence,
            "files": manifest.list_files(folder, [_NAME]),
        }
        storage.write_json(folder / manifest.NAME, document)

    charge = None if ledger is None else (ledger, cost_of(guarantee))
    once(
        folder,
        identity,
        keyed_hash,
        charge,
        title=title,
        draw=drawn,
        digest=digest,
        publish=publish,
    )
    return read_estimate(folder)


def read_estimate(folder: str | Path) -> FloatArray:
    """Return the numbers of a folder that `draw_estimate` wrote, if they are as released."""
    path = Path(folder)
    try:
        document = storage.read_json(path / manifest.NAME)
        stated = document["files"][_NAME]["sha256"]
        found = storage.read_json(path / _NAME)
        fine = document["format"] == FORMAT and storage.sha256(path / _NAME) == stated
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise VerificationError(f"{folder}: no finished estimate ({error})") from error
    if not fine:
        raise VerificationError(
            f"{folder}: {_NAME} changed since it was released; its hash differs"
        )
    return np.array(found, np.float64)


def _described(mechanism: KNormGradient, theta: Theta, coupling: str) -> dict[str, Any]:
    """Return what decides the draw, exact and as text."""
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
            "people": mechanism.people,
        },
    }
