"""Is a rate above theta0? A test from release and public facts, and its power beside the projection's.

One place's rate is theta, and not random; the other places keep their priors. Its count k has a law of
one parameter, and k is sufficient for it. The test rejects where E[k | release, facts] at theta0 is
large. This is the locally most powerful test and, for a single count, where the release has a monotone
likelihood ratio (Theorem 15 of paper 003), the uniformly most powerful one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from countveil.congenial.wasserstein_mechanism import Wasserstein
from countveil.errors import InputError
from countveil.infer.evidence import Evidence, read_evidence
from countveil.infer.listed_experiment import Experiment, TestedModel, check_theta, tested_model
from countveil.numerics import FloatArray

_SAME = 1e-9  # statistics closer than this are one value: they differ by rounding


@dataclass(frozen=True, slots=True)
class Power:
    """The chance that tests of one level reject: from release and facts, and from the projection."""

    released: float
    projected: float


@dataclass(frozen=True, eq=False, slots=True)
class RateTest:
    """A test of H0: theta <= theta0 against theta > theta0.

    `p_value` holds for all of H0: the chance of a statistic as large is taken at theta0, given each
    count, and made to rise with the count where it does not (`monotone` says whether it did).
    """

    theta0: float
    component: int
    statistic: float
    p_value: float
    monotone: bool
    _evidence: Evidence

    def power(self, theta: float, *, level: float = 0.05) -> Power:
        """Return the power at theta of both tests, randomised to have this level at theta0."""
        if not 0 < level < 1:
            raise InputError(f"level: {level} is not allowed; it lies between 0 and 1")
        check_theta(self._model, theta)
        experiment = Experiment(self._evidence, self.component, max(theta, self.theta0))
        null, other = experiment.law(self.theta0), experiment.law(theta)
        found = []
        for cells in (experiment.chances, experiment.projected):
            at_null, at_other = null @ cells, other @ cells
            order = _statistics(null, cells)
            found.append(_randomised_power(order, at_null, at_other, level))
        return Power(*found)

    @property
    def _model(self) -> TestedModel:
        return tested_model(self._evidence)


def test_at_most(
    *,
    model: TestedModel,
    released: Any,
    mechanism: Wasserstein,
    public: Mapping[str, Any] | None = None,  # noqa: PT028
    theta0: float,
    component: int = 0,  # noqa: PT028
) -> RateTest:
    """Test whether the rate (or share) of one place is at most theta0, exactly; for small tables.

    The place's own prior is not used; those of the others say what their counts may be.
    """
    evidence = read_evidence(model, released, mechanism, public)
    check_theta(tested_model(evidence), theta0)
    if not 0 <= component < evidence.places:
        raise InputError(
            f"component: {component} came; places are numbered 0 to {evidence.places - 1}"
        )
    experiment = Experiment(evidence, component, theta0)
    null = experiment.law(theta0)
    statistics = _statistics(null, experiment.chances)
    given = experiment.given_release()
    statistic = float((null * given * np.arange(len(null))).sum() / (null * given).sum())
    larger = experiment.chances[:, statistics >= statistic - _SAME * (1 + abs(statistic))].sum(
        axis=1
    )
    rising = np.maximum.accumulate(larger)
    return RateTest(
        float(theta0),
        component,
        statistic,
        min(1.0, float((null * rising).sum())),
        bool((rising - larger <= _SAME).all()),
        evidence,
    )


test_at_most.__test__ = False  # type: ignore[attr-defined]  # not for pytest to collect


def _statistics(law: FloatArray, chances: FloatArray) -> FloatArray:
    """Return E[count | release] at the law of the count, for every release."""
    joint = law[:, None] * chances
    with np.errstate(invalid="ignore"):
        found = (np.arange(len(law))[:, None] * joint).sum(axis=0) / joint.sum(axis=0)
    return np.where(np.isfinite(found), found, -1.0)


def _randomised_power(
    statistics: FloatArray, at_null: FloatArray, at_other: FloatArray, level: float
) -> float:
    """Return the power of the test that rejects for large statistics, by chance at its border."""
    order = np.argsort(-statistics)
    sorted_statistics = statistics[order]
    starts = np.flatnonzero(np.diff(sorted_statistics, prepend=np.inf) < -_SAME)
    null, other = (np.add.reduceat(part[order], starts) for part in (at_null, at_other))
    before = np.concatenate(([0.0], np.cumsum(null)[:-1]))
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(null > 0, np.clip((level - before) / null, 0.0, 1.0), before < level)
    return float((parts * other).sum())
