"""Algorithm 1 of paper 003, corrected: tables beside the public facts, taken with chance f(y | x)/M.

Printed, a draw is taken when the ratio is at most U, and its denominator is the largest density of any
release of the drawn table. Right is U at most the ratio, and one M for all tables, at the release seen.
"""

from __future__ import annotations

import math

import numpy as np

from countveil.errors import InputError
from countveil.infer.conditional_tables import ConditionalTables, conditional_tables, normalized
from countveil.infer.evidence import Evidence
from countveil.infer.listing import listed_tables, log_densities
from countveil.infer.result import Posterior
from countveil.numerics import FloatArray, IntArray

_BATCH = 20_000
_MOST_PROPOSALS = 20_000_000


def rejection_posterior(evidence: Evidence, *, draws: int, seed: int) -> Posterior:
    """Draw exactly from the posterior; refuse where too few proposals are taken."""
    rng = np.random.default_rng(seed)
    proposals = Proposals(evidence)
    log_bound = log_envelope(evidence)
    kept: list[FloatArray] = []
    counts = np.zeros(evidence.released.shape)
    accepted = proposed = 0
    while accepted < draws:
        tables, points = proposals.draw(_BATCH, rng)
        log_chances = proposals.log_densities(tables) - log_bound
        if float(log_chances.max()) > 1e-9:
            raise AssertionError("the envelope of the rejection sampler was passed")
        taken = np.flatnonzero(np.log(rng.random(_BATCH)) <= log_chances)
        kept.append(evidence.model.draw(tables[taken], points[taken], rng))
        counts += tables[taken].sum(axis=0)
        accepted, proposed = accepted + len(taken), proposed + _BATCH
        if proposed >= _MOST_PROPOSALS and accepted < draws:
            raise InputError(
                f"draws: {accepted:,} of {proposed:,} proposals were taken, and {draws:,} are wanted; "
                f'the release is far from what the model expects: use method="augmented"'
            )
    found = np.concatenate(kept)[:draws]
    counts /= accepted
    return Posterior(
        method="rejection",
        parameter=evidence.model.parameter,
        exact=False,
        mean=found.mean(axis=0),
        variance=found.var(axis=0, ddof=1),
        counts=counts if evidence.deaths else counts[:, 0],
        draws=found[None],
        acceptance=accepted / proposed,
        effective_sample_size=float(draws),
    )


class Proposals:
    """Tables drawn from the model given the public facts, and the density of the release for each."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        log_points = evidence.model.log_points
        self._laws: list[ConditionalTables] = [
            conditional_tables(evidence, point, noisy=False) for point in range(len(log_points))
        ]
        self._chances = normalized(log_points + np.array([law.log_chance for law in self._laws]))
        self._known: dict[bytes, float] = {}

    def draw(self, size: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Draw tables (size, places, 1 or 2) and the points of the shared parameters they came from."""
        points = np.sort(rng.choice(len(self._laws), size, p=self._chances))
        tables = [
            self._laws[point].draw(int((points == point).sum()), rng) for point in np.unique(points)
        ]
        order = rng.permutation(size)  # or the first would all be of the first points
        return np.concatenate(tables)[order], points[order]

    def log_densities(self, tables: IntArray) -> FloatArray:
        """Return log f(release | table); normalisers are computed once for each table."""
        mechanism, released = self._evidence.mechanism, self._evidence.released
        if mechanism.constant_normalizer:
            return mechanism.log_densities(released, tables)
        distinct, which = np.unique(tables.reshape(len(tables), -1), axis=0, return_inverse=True)
        keys = [row.tobytes() for row in distinct]
        missing = [index for index, key in enumerate(keys) if key not in self._known]
        if missing:
            rows = distinct[missing].reshape(-1, *released.shape)
            found = mechanism.log_densities(released, rows)
            self._known.update(zip((keys[index] for index in missing), found.tolist(), strict=True))
        return np.array([self._known[key] for key in keys])[which.reshape(-1)]


def log_envelope(evidence: Evidence) -> float:
    """Return log M, with M >= f(release | table) for every table.

    Constant normaliser: M is the density at the least loss of any table with the public sums.
    Otherwise, for L1 and L2: by the triangle inequality the normaliser C(x) is at least
    C(y)·exp(-rate·loss(y - x)), so f(y | x) <= f(y | y), the release being a table that is allowed.
    Squared L2: the largest over all tables, listed.
    """
    mechanism, released = evidence.mechanism, evidence.released
    if mechanism.constant_normalizer:
        constant = mechanism.log_normalizer(np.zeros_like(released))
        return -float(mechanism.rate) * least_loss(evidence) - constant
    if mechanism.loss != "squared L2":
        return float(mechanism.log_densities(released, released[None])[0])
    return float(log_densities(evidence, listed_tables(evidence)).max())


def least_loss(evidence: Evidence) -> float:
    """Return a loss that no table with the public sums is below.

    Counts are first brought to 0 or more, and to their upper bounds; a sum that is then off by `gap`
    costs gap more in L1, and at least gap²/places in squared L2, where counts may be fractions.
    """
    facts, released = evidence.facts, evidence.released
    tops = np.array(
        [math.inf if (top := evidence.most(j)) is None else top for j in range(len(released))]
    )
    nearest = np.clip(released[:, 0].astype(np.float64), 0.0, tops)
    squared = evidence.mechanism.loss != "L1"
    apart = np.abs(released[:, 0] - nearest)
    if evidence.deaths:
        apart_deaths = np.maximum(-released[:, 1], 0).astype(np.float64)
    else:
        apart_deaths = np.zeros(len(released))
    if not squared:
        gaps = [abs(group.total - nearest[list(group.members)].sum()) for group in facts.groups]
        return float(apart.sum() + apart_deaths.sum() + sum(gaps))
    total = float((apart_deaths**2).sum()) + float((apart[list(facts.free)] ** 2).sum())
    for group in facts.groups:
        members = list(group.members)
        gap = abs(group.total - float(released[members, 0].sum()))
        # Both are bounds: of the sum's constraint alone, and of the ranges' alone.
        total += max(gap**2 / len(members), float((apart[members] ** 2).sum()))
    return math.sqrt(total) if evidence.mechanism.loss == "L2" else total
