"""All tables that agree with the public information, where they are few."""

from __future__ import annotations

from functools import lru_cache
from itertools import product

import numpy as np

from countveil.base.numerics import FloatArray, IntArray
from countveil.congenial.inference.posterior_problem import PosteriorProblem
from countveil.congenial.mechanism.wasserstein import Wasserstein
from countveil.errors import InputError

_MOST_TABLES = 200_000  # if the normalizer is constant
_MOST_NORMALIZERS = 20_000  # if each table needs its own


def list_tables(problem: PosteriorProblem) -> IntArray:
    """Return all tables (tables, places, 1 or 2) that facts and model allow; refuse too many."""
    limit = _MOST_TABLES if problem.mechanism.constant_normalizer else _MOST_NORMALIZERS
    mosts = [problem.most(place) or 0 for place in range(problem.places)]
    # Count them first, without listing: sums of products along the places.
    number = 1.0
    for group in problem.facts.groups:
        ways = np.zeros(group.total + 1)
        ways[0] = 1.0
        for place in group.members:
            each = np.arange(1.0, mosts[place] + 2) if problem.deaths else np.ones(mosts[place] + 1)
            ways = np.convolve(ways, each)[: group.total + 1]
        number *= float(ways[group.total])
    if number > limit:
        raise InputError(
            f"public: {number:,.0f} tables agree with it, and at most {limit:,} are summed over for "
            f'this mechanism; use method="augmented", "rejection" or "importance"'
        )
    parts = [
        compositions([mosts[place] for place in group.members], group.total)
        for group in problem.facts.groups
    ]
    rows = [np.concatenate(choice) for choice in product(*parts)]
    order = np.argsort([place for group in problem.facts.groups for place in group.members])
    cases = np.array(rows, dtype=np.int64).reshape(len(rows), problem.places)[:, order]
    if not problem.deaths:
        return cases[:, :, None]
    tables = []
    for row in cases:
        deaths = np.indices([count + 1 for count in row]).reshape(problem.places, -1).T
        tables.append(np.stack((np.broadcast_to(row, deaths.shape), deaths), axis=2))
    return np.concatenate(tables)


def log_densities(problem: PosteriorProblem, tables: IntArray) -> FloatArray:
    """Return log f(release | table) of listed tables; normalizers are cached for the next release."""
    mechanism = problem.mechanism
    if mechanism.constant_normalizer:
        return mechanism.log_densities(problem.released, tables)
    log_normalizers = _log_normalizers(mechanism, tables.shape, tables.tobytes())
    return mechanism.log_weights(problem.released, tables) - log_normalizers


@lru_cache(maxsize=8)
def _log_normalizers(mechanism: Wasserstein, shape: tuple[int, ...], tables: bytes) -> FloatArray:
    listed = np.frombuffer(tables, dtype=np.int64).reshape(shape)
    logs = np.array([mechanism.log_normalizer(table) for table in listed])
    logs.flags.writeable = False
    return logs


def compositions(mosts: list[int], total: int) -> list[IntArray]:
    """Return all lists of counts with this sum, each count from 0 to its own limit."""
    rows: list[tuple[tuple[int, ...], int]] = [((), 0)]
    for index, most in enumerate(mosts):
        after = sum(mosts[index + 1 :])
        rows = [
            ((*row, count), so_far + count)
            for row, so_far in rows
            for count in range(max(0, total - so_far - after), min(most, total - so_far) + 1)
        ]
    return [np.array(row, dtype=np.int64) for row, so_far in rows if so_far == total]
