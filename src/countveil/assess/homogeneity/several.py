"""Several sensitive attributes, and data published again as they grow (004, section 4.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from countveil.assess.homogeneity.averages import Measure
from countveil.assess.homogeneity.families import Family, law_at
from countveil.assess.homogeneity.losses import Composition, Loss, basic
from countveil.assess.homogeneity.measures import HomogeneityRisk, measured
from countveil.assess.homogeneity.table import Table, refuse_different_cells
from countveil.assess.probability import expectation
from countveil.errors import InputError
from countveil.mechanisms.law import Law
from countveil.numerics import FloatArray


@dataclass(frozen=True, eq=False, slots=True)
class Release:
    """The release of one more attribute: its loss lies between two bounds (footnote 3 of 004).

    `smaller_loss` is what was spent on the identifiers and on this attribute, `larger_loss` what was
    spent on everything so far. At each of them there is the risk of this attribute, and the `overall`
    risk of all attributes so far. The two risks do not bound the risk in between: risk need not rise
    with the loss.
    """

    attribute: str
    smaller_loss: Loss
    larger_loss: Loss
    risk_at_smaller_loss: HomogeneityRisk
    risk_at_larger_loss: HomogeneityRisk
    overall_at_smaller_loss: HomogeneityRisk
    overall_at_larger_loss: HomogeneityRisk


@dataclass(frozen=True, eq=False, slots=True)
class Publication:
    """A table as it was published, and what was spent on that."""

    table: Table
    loss: Loss


@dataclass(frozen=True, eq=False, slots=True)
class Grown:
    """The risk of a publication at the loss of all that its people were published with so far."""

    loss: Loss
    risk: HomogeneityRisk


def overall(
    tables: Sequence[Table],
    *,
    mechanism: Law,
    measure: Measure | str = "local",
    how: str = "max",
) -> HomogeneityRisk:
    """Return the risk over several attributes of one release: per cell the largest, or the sum.

    He knows the identifiers of his target; he sees the noisy counts of its cell by each attribute. The
    largest is at most 1; the sum, the number of attributes disclosed on average, may pass it.
    """
    refuse_different_cells(tables)
    each = [measured(table, mechanism=mechanism, measure=measure) for table in tables]
    return _together(tables[0], each, measure, how)


def sequential(
    tables: Sequence[Table],
    *,
    losses: Sequence[Loss],
    mechanism: Family,
    compose: Composition = basic,
    measure: Measure | str = "local",
    how: str = "max",
) -> tuple[Release, ...]:
    """Return the risk of attributes released one after the other.

    `losses` begins with what is spent on the identifiers alone, then has one for each attribute. The
    intruder knows the identifiers of the target and sees all releases so far. The loss of a release
    lies between two bounds; each result has the risk at both, and these are no bounds of the risk.
    """
    refuse_different_cells(tables)
    if len(losses) != len(tables) + 1:
        raise InputError(
            f"losses: {len(losses)} came for {len(tables)} attributes; give one for the identifiers, "
            f"then one for each attribute"
        )
    found: list[Release] = []
    so_far: tuple[list[HomogeneityRisk], list[HomogeneityRisk]] = ([], [])
    for number, table in enumerate(tables, 1):
        bounds = compose([losses[0], losses[number]]), compose(losses[: number + 1])
        for risks, loss in zip(so_far, bounds, strict=True):
            law = law_at(mechanism, loss.epsilon, loss.delta or None)
            risks.append(measured(table, mechanism=law, measure=measure))
        together = [_together(table, risks, measure, how) for risks in so_far]
        found.append(Release(table.sensitive, *bounds, so_far[0][-1], so_far[1][-1], *together))
    return tuple(found)


def vertical(
    cohorts: Mapping[str, Publication], *, mechanism: Family, measure: Measure | str = "local"
) -> dict[str, Grown]:
    """Return the risk of each cohort of new people, at its own loss: losses of others do not add."""
    alone = {name: [publication] for name, publication in cohorts.items()}
    grown = mixed(alone, mechanism=mechanism, measure=measure)
    return {name: releases[0] for name, releases in grown.items()}


def horizontal(
    publications: Sequence[Publication],
    *,
    mechanism: Family,
    compose: Composition = basic,
    measure: Measure | str = "local",
) -> tuple[Grown, ...]:
    """Return the risk of each publication of the same people, at the loss of all so far.

    New identifiers make finer cells; new sensitive attributes make tables of their own.
    """
    same = {"": publications}
    return mixed(same, mechanism=mechanism, compose=compose, measure=measure)[""]


def mixed(
    cohorts: Mapping[str, Sequence[Publication]],
    *,
    mechanism: Family,
    compose: Composition = basic,
    measure: Measure | str = "local",
) -> dict[str, tuple[Grown, ...]]:
    """Return the risks of cohorts that are published again or join later, each with its own history."""
    if not cohorts or not all(cohorts.values()):
        raise InputError("cohorts: one has no publication; give each the tables it was in")
    found: dict[str, tuple[Grown, ...]] = {}
    for name, history in cohorts.items():
        grown = []
        for number, publication in enumerate(history, 1):
            loss = compose([item.loss for item in history[:number]])
            law = law_at(mechanism, loss.epsilon, loss.delta or None)
            grown.append(Grown(loss, measured(publication.table, mechanism=law, measure=measure)))
        found[name] = tuple(grown)
    return found


def _together(
    table: Table, each: Sequence[HomogeneityRisk], measure: Measure | str, how: str
) -> HomogeneityRisk:
    if how not in ("max", "sum"):
        raise InputError(f'how: {how!r} is not known; choose "max" or "sum"')
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
