"""INTERNAL: what a release turned out to disclose and to get wrong, from the counts it was made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from countveil.assess.empirical_loss.residual_groups import Tallies, of_release
from countveil.assess.homogeneity.topdown_attack import ReleasedAttack, attack
from countveil.assess.risk_maps import RiskMap, internal_map
from countveil.base.numerics import IntArray
from countveil.engines.counts import Counts, exact_answers
from countveil.estimate.plan_error import as_counted
from countveil.estimate.release_error import Accuracy, accuracy
from countveil.plan.workload import TOTAL
from countveil.publish.release_folder import Release

_MOST_PLACES = 2_500  # that a picture can hold

Progress = Callable[[int, int], None]  # units mapped, units


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Totals:
    """Totals of one level: exact ones beside released ones."""

    level: str
    exact: IntArray
    released: IntArray


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Realised:
    """What came out: the risk of everyone counted, residuals, and with estimates error and attacks.

    `attacks` has, for each attribute, what the homogeneity attack after it tells of this release, place
    and all other attributes being known.
    """

    everyone: RiskMap
    residuals: Tallies
    accuracy: Accuracy | None
    attacks: dict[str, ReleasedAttack]
    totals: Totals | None
    audience: ClassVar[Literal["internal"]] = "internal"

    def __repr__(self) -> str:
        return "<internal: what a release turned out to disclose>"


def realised(
    release: Release, counts: Counts, *, progress: Progress = lambda done, units: None
) -> Realised:
    """Compare a release with its counts, through every lens; the result is internal.

    Counts of another plan are refused by the first of them.
    """
    plan = release.plan
    everyone = internal_map(
        release.measurements, counts, prior=min(plan.intruder.priors), progress=progress
    )
    if "estimates" not in release.manifest:
        return Realised(everyone, of_release(release.measurements, counts), None, {}, None)
    estimates = release.estimates
    return Realised(
        everyone,
        of_release(estimates, counts),
        accuracy(estimates, counts),
        _attacks(release, counts),
        _totals(release, counts),
    )


def _attacks(release: Release, counts: Counts) -> dict[str, ReleasedAttack]:
    plan, found = release.plan, {}
    names = [item.name for item in plan.schema.attributes]
    for item in plan.schema.attributes:
        if len(item.categories) > 1:
            found[item.name] = attack(
                release.estimates,
                counts,
                level=plan.judged_level,
                sensitive=item.name,
                identifiers=[name for name in names if name != item.name],
            )
    return found


def _totals(release: Release, counts: Counts) -> Totals | None:
    """Return the totals of the lowest level that a picture can hold; none if all have more units."""
    level, query = _drawn_level(release), release.plan.schema.query(TOTAL)
    if level is None:
        return None
    units = release.geography.units(level)
    exact = exact_answers(counts, level, 0, units, query).ravel()
    return Totals(level, exact, release.estimates.counts(level, query).ravel())


def _drawn_level(release: Release) -> str | None:
    """Return the lowest level with estimates, noisy totals and few enough units to be drawn."""
    plan, geography = release.plan, release.geography
    total = plan.schema.query(TOTAL)
    fitting = [
        level
        for level in release.estimates.levels
        if 1 < geography.units(level) <= _MOST_PLACES and not as_counted(plan, level, total)
    ]
    return fitting[-1] if fitting else None
