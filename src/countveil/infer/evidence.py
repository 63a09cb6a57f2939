"""The problem that all methods solve: a model, a release, its mechanism and what is public."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from countveil.congenial.wasserstein_mechanism import Wasserstein
from countveil.errors import InputError
from countveil.infer.model import Model
from countveil.infer.public_facts import PublicFacts, read_facts, read_released
from countveil.numerics import FloatArray, IntArray

_LOG_LEFT_OUT = -46.0  # of a law without an end, relative to all of it: 1e-20
_LONGEST = 5_000_000


@dataclass(frozen=True, eq=False, slots=True)
class Evidence:
    """What is known: the release and the public facts, beside a model of the confidential counts."""

    model: Model
    released: IntArray  # (places, 1 or 2)
    mechanism: Wasserstein
    facts: PublicFacts

    @property
    def places(self) -> int:
        """How many places were released."""
        return len(self.released)

    @property
    def deaths(self) -> bool:
        """Whether deaths were released beside cases."""
        return self.mechanism.deaths

    @property
    def separable(self) -> bool:
        """Whether the loss is a sum over counts: then noise of one does not depend on the others."""
        return self.mechanism.loss != "L2"

    def log_noise(self, place: int, column: int, counts: IntArray) -> FloatArray:
        """Return the log-weight of a released number for counts, without the normaliser."""
        apart = np.abs(counts - self.released[place, column]).astype(np.float64)
        rate = float(self.mechanism.rate)
        logs: FloatArray = -rate * (apart if self.mechanism.loss == "L1" else apart**2)
        return logs

    def most(self, place: int) -> int | None:
        """Return the largest count of a place, or none."""
        limits = [
            limit for limit in (self.facts.most(place), self.model.most(place)) if limit is not None
        ]
        return min(limits, default=None)

    def log_table(self, place: int, point: int, *, noisy: bool) -> FloatArray:
        """Return log P(count), with the noise's weight if noisy, of all (cases[, deaths]).

        Where no fact bounds a count its table ends where what is left out is below 1e-20 of it.
        """
        most = self.most(place)
        if most is not None:
            return self._log_table(place, point, most, noisy)
        most = 64 + 2 * max(0, int(self.released[place].max()))
        while most < _LONGEST:
            table = self._log_table(place, point, most, noisy)
            rows = table if table.ndim == 1 else np.logaddexp.reduce(table, axis=1)
            ratio = float(rows[-1] - rows[-2])
            # The tail is near-geometric: its sum is the last term over one minus the ratio.
            if ratio < 0:
                tail = float(rows[-1]) - math.log(-math.expm1(ratio))
                if tail < float(np.logaddexp.reduce(rows)) + _LOG_LEFT_OUT:
                    return table
            most *= 2
        raise InputError(
            f"model: counts of place {place} may pass {_LONGEST:,}; give a public total or upper bounds"
        )

    def _log_table(self, place: int, point: int, most: int, noisy: bool) -> FloatArray:
        if not self.deaths:
            counts = np.arange(most + 1)
            table = self.model.log_marginal(place, counts, counts, point)
            return table + self.log_noise(place, 0, counts) if noisy else table
        if (most + 1) ** 2 > _LONGEST:
            raise InputError(
                f"public: place {place} may have {most:,} cases and as many deaths, too many to sum "
                f'over; use method="augmented"'
            )
        cases, deaths = np.meshgrid(np.arange(most + 1), np.arange(most + 1), indexing="ij")
        table = self.model.log_marginal(place, cases, deaths, point)
        if noisy:
            table = table + self.log_noise(place, 0, cases) + self.log_noise(place, 1, deaths)
        return table


def read_evidence(
    model: Model, released: Any, mechanism: Wasserstein, public: Mapping[str, Any] | None
) -> Evidence:
    """Check that model, release, mechanism and facts fit each other."""
    table = read_released(released, mechanism)
    facts = read_facts(public, mechanism, len(table))
    model.check(facts, deaths=mechanism.deaths)
    if not math.isfinite(float(mechanism.log_weights(table, table[None])[0])):
        raise InputError(
            "released: this mechanism never releases such a table: its counts are 0 or more and have "
            "the public sums; was it released by another?"
        )
    return Evidence(model, table, mechanism, facts)
