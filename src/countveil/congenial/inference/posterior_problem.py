"""The problem that all methods solve: a model, a release, its mechanism and what is public."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from countveil.base.numerics import FloatArray, IntArray
from countveil.congenial.inference.count_models import Model
from countveil.congenial.inference.public_sums import PublicSums, StatedSums, read_sums
from countveil.congenial.mechanism.wasserstein import Wasserstein
from countveil.errors import InputError

_LOG_IGNORED = -46.0  # of an unbounded law, relative to its sum: 1e-20
_LONGEST = 5_000_000


@dataclass(frozen=True, eq=False, slots=True)
class PosteriorProblem:
    """What is known, the release and the public facts, and a model of the confidential counts."""

    model: Model
    released: IntArray  # (places, 1 or 2)
    mechanism: Wasserstein
    facts: PublicSums

    @property
    def places(self) -> int:
        """The number of released places."""
        return len(self.released)

    @property
    def deaths(self) -> bool:
        """Whether deaths were released as well as cases."""
        return self.mechanism.deaths

    @property
    def separable(self) -> bool:
        """Whether the loss is a sum over counts, so that the noise of one is independent of others."""
        return self.mechanism.loss != "L2"

    def log_noise(self, place: int, column: int, counts: IntArray) -> FloatArray:
        """Return the log-weight of a released number for counts, without the normalizer."""
        distances = np.abs(counts - self.released[place, column]).astype(np.float64)
        rate = float(self.mechanism.rate)
        logs: FloatArray = -rate * (distances if self.mechanism.loss == "L1" else distances**2)
        return logs

    def most(self, place: int) -> int | None:
        """Return the largest possible count of a place, or None."""
        limits = [
            limit for limit in (self.facts.most(place), self.model.most(place)) if limit is not None
        ]
        return min(limits, default=None)

    def log_table(self, place: int, point: int, *, noisy: bool) -> FloatArray:
        """Return log P(count) for all (cases[, deaths]), times the weight of the noise if `noisy`.

        If no fact bounds a count, the table ends where the ignored tail is below 1e-20 of the whole.
        """
        most = self.most(place)
        if most is not None:
            return self._log_table(place, point, most, noisy)
        most = 64 + 2 * max(0, int(self.released[place].max()))
        while most < _LONGEST:
            table = self._log_table(place, point, most, noisy)
            rows = table if table.ndim == 1 else np.logaddexp.reduce(table, axis=1)
            ratio = float(rows[-1] - rows[-2])
            # The tail is nearly geometric: its sum is the last term over one minus the ratio.
            if ratio < 0:
                tail = float(rows[-1]) - math.log(-math.expm1(ratio))
                if tail < float(np.logaddexp.reduce(rows)) + _LOG_IGNORED:
                    return table
            most *= 2
        raise InputError(
            f"model: counts of place {place} may exceed {_LONGEST:,}; give a public total or upper "
            f"bounds"
        )

    def _log_table(self, place: int, point: int, most: int, noisy: bool) -> FloatArray:
        if not self.deaths:
            counts = np.arange(most + 1)
            table = self.model.log_marginal(place, counts, counts, point)
            return table + self.log_noise(place, 0, counts) if noisy else table
        if (most + 1) ** 2 > _LONGEST:
            raise InputError(
                f"public: place {place} may have {most:,} cases and the same number of deaths, too "
                f'many to sum over; use method="augmented"'
            )
        cases, deaths = np.meshgrid(np.arange(most + 1), np.arange(most + 1), indexing="ij")
        table = self.model.log_marginal(place, cases, deaths, point)
        if noisy:
            table = table + self.log_noise(place, 0, cases) + self.log_noise(place, 1, deaths)
        return table


def read_problem(
    model: Model, released: ArrayLike, mechanism: Wasserstein, public: StatedSums | None
) -> PosteriorProblem:
    """Return the problem; refuse a model, release, mechanism or facts that do not fit each other."""
    table = _released_table(released, mechanism)
    facts = read_sums(public, mechanism, len(table))
    model.check(facts, deaths=mechanism.deaths)
    if not math.isfinite(float(mechanism.log_weights(table, table[None])[0])):
        raise InputError(
            "released: this mechanism cannot release such a table, because its counts are 0 or more "
            "and have the public sums; check that the table and the mechanism belong together"
        )
    return PosteriorProblem(model, table, mechanism, facts)


def _released_table(released: ArrayLike, mechanism: Wasserstein) -> IntArray:
    """Return a release as (places, 1 or 2) whole numbers."""
    values = np.asarray(released)
    if not np.issubdtype(values.dtype, np.integer):
        raise InputError(f"released: the type is {values.dtype}; a release has whole numbers")
    columns = 2 if mechanism.deaths else 1
    table = values[:, None] if values.ndim == 1 and columns == 1 else values
    if table.ndim != 2 or table.shape[1] != columns or len(table) == 0:
        shape = "(places, 2): cases and deaths" if mechanism.deaths else "(places,)"
        raise InputError(f"released: the shape is {values.shape}; this mechanism releases {shape}")
    return table.astype(np.int64)
