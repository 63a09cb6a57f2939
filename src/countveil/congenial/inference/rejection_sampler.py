"""Algorithm 1 of paper 003, corrected: tables given the public facts, accepted with f(y | x)/M.

As printed, a draw is accepted when the ratio is at most U, and its denominator is the largest density
of any release of the drawn table. It should be accepted when U is at most the ratio, with one M for all
tables, at the release that was seen.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from countveil.base.numerics import FloatArray, IntArray
from countveil.congenial.inference.posterior_problem import PosteriorProblem
from countveil.congenial.inference.posterior_result import Posterior
from countveil.congenial.inference.table_listing import list_tables, log_densities
from countveil.congenial.inference.tables_given_sums import ConditionalTables, weights_from_logs
from countveil.errors import InputError

_BATCH = 20_000
_MOST_PROPOSALS = 20_000_000


def rejection_posterior(problem: PosteriorProblem, *, draws: int, seed: int) -> Posterior:
    """Draw exactly from the posterior; refuse if too few proposals are accepted."""
    rng = np.random.default_rng(seed)
    prior = TablePrior(problem)
    log_bound = log_envelope(problem)
    parts: list[FloatArray] = []
    counts = np.zeros(problem.released.shape)
    accepted = proposed = 0
    while accepted < draws:
        tables, points = prior.draw(_BATCH, rng)
        log_acceptances = prior.log_densities(tables) - log_bound
        if float(log_acceptances.max()) > 1e-9:
            raise AssertionError("a density exceeds the envelope of the rejection sampler")
        rows = np.flatnonzero(np.log(rng.random(_BATCH)) <= log_acceptances)
        parts.append(problem.model.draw(tables[rows], points[rows], rng))
        counts += tables[rows].sum(axis=0)
        accepted, proposed = accepted + len(rows), proposed + _BATCH
        if proposed >= _MOST_PROPOSALS and accepted < draws:
            raise InputError(
                f"draws: only {accepted:,} of {proposed:,} proposals were accepted, fewer than "
                f"{draws:,}; the release is far from what the model expects: use "
                f'method="augmented"'
            )
    parameters = np.concatenate(parts)[:draws]
    counts /= accepted
    return Posterior(
        method="rejection",
        parameter=problem.model.parameter,
        exact=False,
        mean=parameters.mean(axis=0),
        variance=parameters.var(axis=0, ddof=1),
        counts=counts if problem.deaths else counts[:, 0],
        draws=parameters[None],
        acceptance=accepted / proposed,
        effective_sample_size=float(draws),
    )


class PriorDraws(NamedTuple):
    """Tables (draws, places, 1 or 2), and the points of the shared parameters they came from."""

    tables: IntArray
    points: IntArray


class TablePrior:
    """The law of tables by the model and the public facts, and the density of the release for each."""

    def __init__(self, problem: PosteriorProblem) -> None:
        self._problem = problem
        log_points = problem.model.log_points
        self._laws: list[ConditionalTables] = [
            ConditionalTables.of(problem, point, noisy=False) for point in range(len(log_points))
        ]
        log_facts = np.array([law.log_probability for law in self._laws])
        self._weights = weights_from_logs(log_points + log_facts)
        self._cache: dict[bytes, float] = {}

    def draw(self, size: int, rng: np.random.Generator) -> PriorDraws:
        """Draw tables and points."""
        points = np.sort(rng.choice(len(self._laws), size, p=self._weights))
        tables = [
            self._laws[point].draw(int((points == point).sum()), rng) for point in np.unique(points)
        ]
        order = rng.permutation(size)  # otherwise the first draws would all be of the first points
        return PriorDraws(np.concatenate(tables)[order], points[order])

    def log_densities(self, tables: IntArray) -> FloatArray:
        """Return log f(release | table); normalizers are computed once for each table."""
        mechanism, released = self._problem.mechanism, self._problem.released
        if mechanism.constant_normalizer:
            return mechanism.log_densities(released, tables)
        distinct, which = np.unique(tables.reshape(len(tables), -1), axis=0, return_inverse=True)
        keys = [row.tobytes() for row in distinct]
        missing = [index for index, key in enumerate(keys) if key not in self._cache]
        if missing:
            rows = distinct[missing].reshape(-1, *released.shape)
            logs = mechanism.log_densities(released, rows)
            self._cache.update(zip((keys[index] for index in missing), logs.tolist(), strict=True))
        return np.array([self._cache[key] for key in keys])[which.reshape(-1)]


def log_envelope(problem: PosteriorProblem) -> float:
    """Return log M, with M >= f(release | table) for every table.

    With a constant normalizer, M is the density at the least loss of any table with the public sums.
    Otherwise, for L1 and L2, the triangle inequality says that the normalizer C(x) is at least
    C(y)·exp(-rate·loss(y - x)), so f(y | x) <= f(y | y), as the release is itself a possible table. For
    squared L2 it is the largest density over all tables, listed.
    """
    mechanism, released = problem.mechanism, problem.released
    if mechanism.constant_normalizer:
        constant = mechanism.log_normalizer(np.zeros_like(released))
        return -float(mechanism.rate) * least_loss(problem) - constant
    if mechanism.loss != "squared L2":
        return float(mechanism.log_densities(released, released[None])[0])
    return float(log_densities(problem, list_tables(problem)).max())


def least_loss(problem: PosteriorProblem) -> float:
    """Return a lower bound on the loss of every table with the public sums.

    Counts are first clipped to 0 and to their upper bounds. A sum that is then off by `gap` costs gap
    more in L1, and at least gap²/places in squared L2, where counts may be fractions.
    """
    facts, released = problem.facts, problem.released
    tops = np.array(
        [math.inf if (top := problem.most(j)) is None else top for j in range(len(released))]
    )
    nearest = np.clip(released[:, 0].astype(np.float64), 0.0, tops)
    distances = np.abs(released[:, 0] - nearest)
    if problem.deaths:
        death_distances = np.maximum(-released[:, 1], 0).astype(np.float64)
    else:
        death_distances = np.zeros(len(released))
    if problem.mechanism.loss == "L1":
        gaps = [abs(group.total - nearest[list(group.members)].sum()) for group in facts.groups]
        return float(distances.sum() + death_distances.sum() + sum(gaps))
    total = float((death_distances**2).sum()) + float((distances[list(facts.free)] ** 2).sum())
    for group in facts.groups:
        members = list(group.members)
        gap = abs(group.total - float(released[members, 0].sum()))
        # Both are bounds: one from the sum alone, one from the ranges alone.
        total += max(gap**2 / len(members), float((distances[members] ** 2).sum()))
    return math.sqrt(total) if problem.mechanism.loss == "L2" else total
