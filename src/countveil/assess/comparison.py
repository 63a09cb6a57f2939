"""Two plans, or the plans of two releases, side by side: settings, cost, risk and error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from countveil.assess.intruder.ladder import LevelRisk, judged, risk_by_level
from countveil.estimate.plan_error import ExpectedError, expected_error
from countveil.plan.plans import Plan
from countveil.publish.release_folder import Release

_LEFT_OUT = ("records", "ledger")  # these say where files are, not what the plan does


@dataclass(frozen=True, slots=True)
class ComparedPlan:
    """One of the two plans: its cost, the risks its limit applies to, and the error of every query.

    The risks count in what is published exactly.
    """

    name: str
    title: str
    cost: str
    epsilon: float | None
    judged_level: str
    limit: float | None
    risks: tuple[LevelRisk, ...]
    errors: tuple[ExpectedError, ...]


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting that differs between the plans; None if one plan lacks it."""

    key: str
    first: str | None
    second: str | None


class ComparedRisk(NamedTuple):
    """The risk of each plan at one prior; None if a plan does not have that prior."""

    prior: float
    first: LevelRisk | None
    second: LevelRisk | None


class ComparedError(NamedTuple):
    """The expected error of one query in each plan; None if a plan does not measure it."""

    level: str
    query: str
    first: ExpectedError | None
    second: ExpectedError | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two plans, and the settings in which they differ."""

    first: ComparedPlan
    second: ComparedPlan
    changes: tuple[SettingChange, ...]

    @property
    def risks(self) -> list[ComparedRisk]:
        """The risk of both plans at every prior, each at the level at which the plan is judged."""
        first, second = (
            {item.prior: item for item in side.risks} for side in (self.first, self.second)
        )
        priors = dict.fromkeys([*first, *second])
        return [ComparedRisk(prior, first.get(prior), second.get(prior)) for prior in priors]

    @property
    def errors(self) -> list[ComparedError]:
        """The error of both plans for every level and query that either of them measures."""
        first, second = (
            {(item.level, item.query): item for item in side.errors}
            for side in (self.first, self.second)
        )
        keys = dict.fromkeys([*first, *second])
        return [ComparedError(*key, first.get(key), second.get(key)) for key in keys]


def compare(first: Plan | Release, second: Plan | Release) -> Comparison:
    """Compare two plans, or the plans of two releases; read no record.

    Parameters
    ----------
    first, second : Plan or Release
        What to compare; a plan may be compared with a release.

    Returns
    -------
    Comparison
        Both sides, with the settings, risks and errors in which they differ.
    """
    plans = [item.plan if isinstance(item, Release) else item for item in (first, second)]
    names = [
        str(item.folder) if isinstance(item, Release) else item.name for item in (first, second)
    ]
    plans[0].places()
    plans[1].share_places(plans[0])
    # Errors are compared like with like: without places of one, each level alone for both.
    alone = any(plan.places() is None for plan in plans)
    sides = [_side(plan, name, alone) for plan, name in zip(plans, names, strict=True)]
    before, after = (dict(_settings(plan.public_document)) for plan in plans)
    changes = [
        SettingChange(key, before.get(key), after.get(key))
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]
    return Comparison(sides[0], sides[1], tuple(changes))


def _side(plan: Plan, name: str, alone: bool) -> ComparedPlan:
    cost = plan.cost
    return ComparedPlan(
        name,
        plan.title,
        str(cost),
        plan.epsilon if cost.pure_epsilon is None else None,
        plan.judged_level,
        plan.intruder.limit,
        tuple(judged(plan, risk_by_level(plan, invariants=True))),
        expected_error(plan, alone=alone),
    )


def _settings(document: Mapping[str, object], above: str = "") -> Iterator[tuple[str, str]]:
    """Yield every setting of a plan as text, with the path of its key."""
    for key, value in document.items():
        if not above and key in _LEFT_OUT:
            continue
        path = f"{above}.{key}" if above else key
        if isinstance(value, Mapping):
            yield from _settings(value, path)
        elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
            for number, item in enumerate(value, start=1):
                yield from _settings(item, f"{path}[{number}]")
        elif isinstance(value, list):
            yield path, ", ".join(map(str, value))
        else:
            yield path, str(value)
