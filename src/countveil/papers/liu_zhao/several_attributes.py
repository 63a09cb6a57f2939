"""Several sensitive attributes, and data published again as they grow (004, section 4.3)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from countveil.assess.homogeneity.average_risk import Measure
from countveil.assess.homogeneity.measures import HomogeneityRisk, risk_of
from countveil.assess.homogeneity.noise_families import NoiseFamily, as_written, law_at
from countveil.assess.homogeneity.sensitive_table import Table, refuse_different_cells
from countveil.base.bounded_averages import expectation
from countveil.base.numerics import FloatArray
from countveil.errors import InputError
from countveil.noise.law import Law
from countveil.privacy.costs import ZCDP, ApproxDP

# The privacy loss of several releases together.


@dataclass(frozen=True, slots=True)
class EpsilonDelta:
    """The privacy loss of one release, or of several together.

    Parameters
    ----------
    epsilon
        A number above 0.
    delta
        A number from 0 to below 1.
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        """Refuse numbers that are not a privacy loss."""
        if not 0 < self.epsilon < math.inf:
            raise InputError(f"epsilon: {self.epsilon} is not allowed; it must be above 0")
        if not 0 <= self.delta < 1:
            raise InputError(f"delta: {self.delta} is not allowed; it must be from 0 to below 1")


Composition: TypeAlias = Callable[[Sequence[EpsilonDelta]], EpsilonDelta]


def basic(losses: Sequence[EpsilonDelta]) -> EpsilonDelta:
    """Return the sum of the losses.

    Parameters
    ----------
    losses
        The loss of each release.

    Returns
    -------
    EpsilonDelta
        The sums of all epsilons and of all deltas.

    Examples
    --------
    >>> basic([EpsilonDelta(1), EpsilonDelta(0.5, 0.25)])
    EpsilonDelta(epsilon=1.5, delta=0.25)
    """
    return EpsilonDelta(sum(item.epsilon for item in losses), sum(item.delta for item in losses))


def advanced(slack: float) -> Composition:
    """Return advanced composition (Kairouz, Oh & Viswanath 2015, Theorem 3.5).

    epsilon is the smallest of Σ ε and, with drift = Σ ε (e^ε - 1)/(e^ε + 1),
    drift + sqrt(2 log(e + sqrt(Σ ε²)/slack) Σ ε²) and drift + sqrt(2 log(1/slack) Σ ε²);
    delta = 1 - (1 - slack) Π (1 - δ).

    Parameters
    ----------
    slack
        What is added to delta, between 0 and 1.

    Returns
    -------
    callable
        From the losses of releases to that of all together.
    """
    _refuse_no_probability("slack", slack)

    def compose(losses: Sequence[EpsilonDelta]) -> EpsilonDelta:
        drift = sum(item.epsilon * math.tanh(item.epsilon / 2) for item in losses)
        squares = sum(item.epsilon**2 for item in losses)
        log_slack = min(-math.log(slack), math.log(math.e + math.sqrt(squares) / slack))
        plain = basic(losses)
        epsilon = min(plain.epsilon, drift + math.sqrt(2 * log_slack * squares))
        log_kept = math.log1p(-slack) + sum(math.log1p(-item.delta) for item in losses)
        return _smaller(plain, EpsilonDelta(epsilon, -math.expm1(log_kept)))

    return compose


def concentrated(delta: float) -> Composition:
    """Return composition in zCDP, converted to epsilon at `delta`.

    A loss without delta has rho = ε²/2. One with delta is that of Gaussian noise with its rho.

    Parameters
    ----------
    delta
        The delta of all releases together, between 0 and 1.

    Returns
    -------
    callable
        From the losses of releases to that of all together.
    """
    _refuse_no_probability("delta", delta)

    def compose(losses: Sequence[EpsilonDelta]) -> EpsilonDelta:
        rho = sum((_rho(item) for item in losses), Fraction(0))
        together = EpsilonDelta(ZCDP(rho).epsilon(as_written(delta)), delta)
        return _smaller(basic(losses), together)

    return compose


def _rho(loss: EpsilonDelta) -> Fraction:
    if loss.delta == 0:
        return as_written(loss.epsilon) ** 2 / 2
    return ApproxDP(as_written(loss.epsilon), as_written(loss.delta)).zcdp.rho


def _smaller(plain: EpsilonDelta, other: EpsilonDelta) -> EpsilonDelta:
    """Return the plain sum if it is no worse in either number, else the other."""
    better = plain.epsilon <= other.epsilon and plain.delta <= other.delta
    return plain if better else other


def _refuse_no_probability(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise InputError(f"{name}: {value} is not allowed; it must be between 0 and 1")


# The risk of several attributes.


@dataclass(frozen=True, eq=False, slots=True)
class AttributeRelease:
    """The release of one more attribute, whose loss is between two bounds (footnote 3 of 004).

    The risks at the two bounds do not bound the risk in between, as risk need not rise with the loss.

    Parameters
    ----------
    attribute
        The released attribute.
    smaller_loss, larger_loss
        The loss of the identifiers and this attribute alone, and of everything so far.
    risk_at_smaller_loss, risk_at_larger_loss
        The risk of this attribute at either loss.
    overall_at_smaller_loss, overall_at_larger_loss
        The risk of all attributes so far at either loss.
    """

    attribute: str
    smaller_loss: EpsilonDelta
    larger_loss: EpsilonDelta
    risk_at_smaller_loss: HomogeneityRisk
    risk_at_larger_loss: HomogeneityRisk
    overall_at_smaller_loss: HomogeneityRisk
    overall_at_larger_loss: HomogeneityRisk


def overall(
    tables: Sequence[Table],
    *,
    mechanism: Law,
    measure: Measure | str = "local",
    how: str = "max",
) -> HomogeneityRisk:
    """Return the risk over several attributes of one release.

    The intruder knows the identifiers of their target and sees the noisy counts of its cell by each
    attribute.

    Parameters
    ----------
    tables
        One table per attribute, of the same cells.
    mechanism
        The law of the noise.
    measure
        The risk of one attribute.
    how
        "max" takes the largest risk of each cell, at most 1. "sum" adds them up to the mean number of
        disclosed attributes, which may exceed 1.

    Returns
    -------
    HomogeneityRisk
        The average over cells; internal.
    """
    refuse_different_cells(tables)
    each = [risk_of(table, mechanism=mechanism, measure=measure) for table in tables]
    return _combine(tables[0], each, measure, how)


def sequential(
    tables: Sequence[Table],
    *,
    losses: Sequence[EpsilonDelta],
    mechanism: NoiseFamily,
    compose: Composition = basic,
    measure: Measure | str = "local",
    how: str = "max",
) -> tuple[AttributeRelease, ...]:
    """Return the risks of attributes released one after the other.

    The intruder knows the identifiers of their target and sees all releases so far.

    Parameters
    ----------
    tables
        One table per attribute, of the same cells, in the order of release.
    losses
        The loss of the identifiers alone, followed by that of each attribute.
    mechanism
        The family of the noise.
    compose
        How losses add up.
    measure, how
        As for `overall`.

    Returns
    -------
    tuple of AttributeRelease
        One per attribute, with its risk at two bounds of its loss.
    """
    refuse_different_cells(tables)
    if len(losses) != len(tables) + 1:
        raise InputError(
            f"losses: got {len(losses)} for {len(tables)} attributes; give one for the identifiers, "
            f"then one for each attribute"
        )
    releases: list[AttributeRelease] = []
    so_far: tuple[list[HomogeneityRisk], list[HomogeneityRisk]] = ([], [])
    for number, table in enumerate(tables, 1):
        bounds = compose([losses[0], losses[number]]), compose(losses[: number + 1])
        for risks, loss in zip(so_far, bounds, strict=True):
            law = law_at(mechanism, loss.epsilon, loss.delta or None)
            risks.append(risk_of(table, mechanism=law, measure=measure))
        together = [_combine(table, risks, measure, how) for risks in so_far]
        releases.append(
            AttributeRelease(table.sensitive, *bounds, so_far[0][-1], so_far[1][-1], *together)
        )
    return tuple(releases)


def _combine(
    table: Table, each: Sequence[HomogeneityRisk], measure: Measure | str, how: str
) -> HomogeneityRisk:
    if how not in ("max", "sum"):
        raise InputError(f'how: unknown way {how!r}; choose "max" or "sum"')
    cells = np.array([_cells(risk) for risk in each])
    combined = cells.max(axis=0) if how == "max" else cells.sum(axis=0)
    weighted = not isinstance(measure, str) and measure.weighted
    weights = table.sizes if weighted else np.ones(len(table.sizes))
    return HomogeneityRisk(
        measure=f"{how} of {each[0].measure}",
        value=expectation(weights, combined),
        audience="internal",
        cells=combined,
    )


def _cells(risk: HomogeneityRisk) -> FloatArray:
    assert risk.cells is not None
    return risk.cells


# The risk of data that grow.


@dataclass(frozen=True, eq=False, slots=True)
class Publication:
    """A published table and its privacy loss.

    Parameters
    ----------
    table
        The table.
    loss
        The loss of publishing it.
    """

    table: Table
    loss: EpsilonDelta


@dataclass(frozen=True, eq=False, slots=True)
class CumulativeRisk:
    """The risk of a publication at the loss of everything published about its people so far.

    Parameters
    ----------
    loss
        The loss so far.
    risk
        The risk at that loss.
    """

    loss: EpsilonDelta
    risk: HomogeneityRisk


def vertical(
    cohorts: Mapping[str, Publication], *, mechanism: NoiseFamily, measure: Measure | str = "local"
) -> dict[str, CumulativeRisk]:
    """Return the risk of each cohort of new people at its own loss, as losses of others do not add.

    Parameters
    ----------
    cohorts
        The publication of each cohort.
    mechanism
        The family of the noise.
    measure
        The risk to compute.

    Returns
    -------
    dict
        The risk of each cohort.
    """
    alone = {name: [publication] for name, publication in cohorts.items()}
    risks = mixed(alone, mechanism=mechanism, measure=measure)
    return {name: of_cohort[0] for name, of_cohort in risks.items()}


def horizontal(
    publications: Sequence[Publication],
    *,
    mechanism: NoiseFamily,
    compose: Composition = basic,
    measure: Measure | str = "local",
) -> tuple[CumulativeRisk, ...]:
    """Return the risk of each publication of the same people, at the loss of all so far.

    New identifiers make finer cells; new sensitive attributes make tables of their own.

    Parameters
    ----------
    publications
        The publications, in order.
    mechanism, measure
        As for `vertical`.
    compose
        How losses add up.

    Returns
    -------
    tuple of CumulativeRisk
        One per publication.
    """
    same = {"": publications}
    return mixed(same, mechanism=mechanism, compose=compose, measure=measure)[""]


def mixed(
    cohorts: Mapping[str, Sequence[Publication]],
    *,
    mechanism: NoiseFamily,
    compose: Composition = basic,
    measure: Measure | str = "local",
) -> dict[str, tuple[CumulativeRisk, ...]]:
    """Return the risks of cohorts that are published again or join later, each with its own history.

    Parameters
    ----------
    cohorts
        The publications of each cohort, in order.
    mechanism, compose, measure
        As for `horizontal`.

    Returns
    -------
    dict
        For each cohort, the risk of each publication.
    """
    if not cohorts or not all(cohorts.values()):
        raise InputError("cohorts: one has no publication; give each the tables it was in")
    risks: dict[str, tuple[CumulativeRisk, ...]] = {}
    for name, history in cohorts.items():
        of_cohort = []
        for number, publication in enumerate(history, 1):
            loss = compose([item.loss for item in history[:number]])
            law = law_at(mechanism, loss.epsilon, loss.delta or None)
            risk = risk_of(publication.table, mechanism=law, measure=measure)
            of_cohort.append(CumulativeRisk(loss, risk))
        risks[name] = tuple(of_cohort)
    return risks
