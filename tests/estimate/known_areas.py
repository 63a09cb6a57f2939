"""Estimates of areas whose values and covariance are given: no release is behind them."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from countveil.estimate import AreaEstimates
from countveil.plan.attributes import Attribute
from countveil.plan.workload import Query, Schema


def query(*labels: tuple[str, Sequence[str]]) -> Query:
    """Return a query of these attributes and categories."""
    named = tuple((name, tuple(categories)) for name, categories in labels)
    name = "*".join(name for name, _ in named) or "TOTAL"
    return Schema(tuple(Attribute(*label) for label in named)).query(name)


def areas(
    value: Any,
    covariance: Any,
    *,
    asked: Query | None = None,
    names: Sequence[str] | None = None,
    unknown: Sequence[tuple[int, int]] = (),
    confidence: float = 0.9,
) -> AreaEstimates:
    """Return estimates, areas × cells, with any covariance, areas × cells × areas × cells.

    `unknown` lists the areas and cells that are not determined.
    """
    value = np.array(value, float)
    if value.ndim == 1:
        value = value[:, None]
    count, cells = value.shape
    covariance = np.array(covariance, float).reshape(count, cells, count, cells)
    error = np.sqrt(np.einsum("aiai->ai", covariance))
    for at in unknown:
        value[at], error[at] = np.nan, np.inf
    asked = asked or query(*([("AGE", [f"c{n}" for n in range(cells)])] if cells > 1 else []))
    space = SimpleNamespace(size=cells)
    parted = SimpleNamespace(
        query=asked, subspaces=(space,), rows=lambda _: np.eye(cells)[:, :, None]
    )
    return _estimates(names, parted, value, error, covariance, confidence)


def many_cells(value: np.ndarray, covariance: Any, *, confidence: float = 0.9) -> AreaEstimates:
    """Return areas of many independent cells, with the same covariance of areas in every cell."""
    count, cells = value.shape
    block = np.array(covariance, float).reshape(count, 1, count, 1)
    error = np.sqrt(np.diag(block[:, 0, :, 0]))[:, None] * np.ones(cells)
    parted = SimpleNamespace(
        query=query(("AGE", [str(n) for n in range(cells)])),
        subspaces=(SimpleNamespace(size=1),),
        rows=lambda _: np.eye(cells)[:, None, :],
    )
    return _estimates(None, parted, value, error, block, confidence)


def random_covariance(rng: np.random.Generator, size: int, scale: float = 1.0) -> np.ndarray:
    """Return a covariance matrix with correlations of all kinds."""
    root = rng.normal(size=(size, size + 1)) * scale
    return root @ root.T / size


def _estimates(
    names: Sequence[str] | None,
    asked: Any,
    value: np.ndarray,
    error: np.ndarray,
    block: np.ndarray,
    confidence: float,
) -> AreaEstimates:
    names = tuple(names or (f"d{n + 1}" for n in range(len(value))))
    return AreaEstimates(names, asked, value, error, (block,), confidence)
