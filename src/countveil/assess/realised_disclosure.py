"""INTERNAL: what a release actually disclosed and how wrong it was, from the confidential counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from countveil.assess.empirical_loss.residual_groups import Tallies, of_release
from countveil.assess.homogeneity.topdown_attack import ReleasedAttack, attack
from countveil.assess.reconstruction.level_reconstruction import Reconstruction, reconstruct
from countveil.assess.reconstruction.published_lines import countable
from countveil.assess.risk_maps import RiskMap, internal_map
from countveil.base.numerics import IntArray
from countveil.engines.counts import Counts, exact_answers
from countveil.estimate.plan_error import as_counted
from countveil.estimate.release_error import Accuracy, accuracy
from countveil.plan.plans import Plan
from countveil.plan.workload import TOTAL
from countveil.publish.release_folder import Release

_MOST_RECONSTRUCTED = 1_000  # units: a few seconds
_MOST_PLACES = 2_500  # more points make a chart unreadable

Progress = Callable[[int, int], None]  # called with the units mapped so far and all units


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Totals:
    """The exact and the released totals of one level, in the order of its units."""

    level: str
    exact: IntArray
    released: IntArray


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Realised:
    """What one release disclosed, and how far off it is; internal.

    `everyone` has the risk of every person counted and `residuals` the differences from the exact
    counts. A release with estimates also has `accuracy`, `totals` and `attacks`: for each attribute,
    what a homogeneity attack reveals to someone who knows a person's place and all other attributes.
    `reconstruction` is what its tables would have given away if they were exact.
    """

    everyone: RiskMap
    residuals: Tallies
    accuracy: Accuracy | None
    attacks: dict[str, ReleasedAttack]
    totals: Totals | None
    reconstruction: Reconstruction | None = None
    audience: ClassVar[Literal["internal"]] = "internal"

    def __repr__(self) -> str:
        return "<internal: what a release disclosed>"


def realised(
    release: Release, counts: Counts, *, progress: Progress = lambda done, units: None
) -> Realised:
    """Compare a release with the confidential counts it was made from.

    Parameters
    ----------
    release : Release
        The release.
    counts : Counts
        The confidential counts, tabulated for the same plan.
    progress : callable
        Called with the units mapped so far and all units.

    Returns
    -------
    Realised
        Risks, residuals, errors and attacks; internal.

    Raises
    ------
    InputError
        If the counts were tabulated for another plan.
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
        _reconstructed(plan, counts),
    )


def _reconstructed(plan: Plan, counts: Counts) -> Reconstruction | None:
    level = plan.estimated_levels[-1]
    if not countable(plan, level):
        return None
    return reconstruct(
        plan,
        counts.levels[level],
        level=level,
        audience="internal",
        most_units=_MOST_RECONSTRUCTED,
    )


def _attacks(release: Release, counts: Counts) -> dict[str, ReleasedAttack]:
    plan, attacks = release.plan, dict[str, ReleasedAttack]()
    names = [item.name for item in plan.schema.attributes]
    for item in plan.schema.attributes:
        if len(item.categories) > 1:
            attacks[item.name] = attack(
                release.estimates,
                counts,
                level=plan.judged_level,
                sensitive=item.name,
                identifiers=[name for name in names if name != item.name],
            )
    return attacks


def _totals(release: Release, counts: Counts) -> Totals | None:
    """Return the totals of the lowest level that fits in a chart; None if every level is too large."""
    level, query = _charted_level(release), release.plan.schema.query(TOTAL)
    if level is None:
        return None
    units = release.geography.units(level)
    exact = exact_answers(counts, level, 0, units, query).ravel()
    return Totals(level, exact, release.estimates.counts(level, query).ravel())


def _charted_level(release: Release) -> str | None:
    """Return the lowest level with estimates, noisy totals and few enough units for a chart."""
    plan, geography = release.plan, release.geography
    total = plan.schema.query(TOTAL)
    fitting = [
        level
        for level in release.estimates.levels
        if 1 < geography.units(level) <= _MOST_PLACES and not as_counted(plan, level, total)
    ]
    return fitting[-1] if fitting else None
