"""Two plans, or the plans of two releases, side by side: what differs, and in cost, risk and error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from countveil.assess.intruder.plan_risk import LevelRisk, judged, risk_by_level
from countveil.estimate.plan_error import ExpectedError, expected_error
from countveil.plan.plans import Plan
from countveil.privacy.costs import ZCDP
from countveil.publish.release_folder import Release

_LEFT_OUT = ("records", "ledger")  # where things are, not what they do


@dataclass(frozen=True, slots=True)
class ComparedPlan:
    """One of the two: its cost, the risks its limit applies to, and the error of every query.

    Risks are with all that is published as counted.
    """

    name: str
    title: str
    cost: str
    epsilon: float | None
    judged_level: str
    risks: tuple[LevelRisk, ...]
    errors: tuple[ExpectedError, ...]


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting that the two plans have otherwise; None where one has it not."""

    key: str
    first: str | None
    second: str | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two sides, and the settings in which their plans differ."""

    first: ComparedPlan
    second: ComparedPlan
    changes: tuple[SettingChange, ...]

    @property
    def risks(self) -> list[tuple[float, LevelRisk | None, LevelRisk | None]]:
        """Every prior of either side, with its risk at the level each is judged at."""
        found = [{item.prior: item for item in side.risks} for side in (self.first, self.second)]
        priors = dict.fromkeys([*found[0], *found[1]])
        return [(prior, found[0].get(prior), found[1].get(prior)) for prior in priors]

    @property
    def errors(self) -> list[tuple[str, str, ExpectedError | None, ExpectedError | None]]:
        """Every level and query of either side, with its error in each."""
        first, second = (
            {(item.level, item.query): item for item in side.errors}
            for side in (self.first, self.second)
        )
        return [(*key, first.get(key), second.get(key)) for key in dict.fromkeys([*first, *second])]


def compare(first: Plan | Release, second: Plan | Release) -> Comparison:
    """Compare two plans, or what two releases were made by; no record is read."""
    plans = [item.plan if isinstance(item, Release) else item for item in (first, second)]
    names = [
        str(item.folder) if isinstance(item, Release) else item.name for item in (first, second)
    ]
    sides = [_side(plan, name) for plan, name in zip(plans, names, strict=True)]
    before, after = (dict(_settings(plan.public_document)) for plan in plans)
    changes = [
        SettingChange(key, before.get(key), after.get(key))
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]
    return Comparison(sides[0], sides[1], tuple(changes))


def _side(plan: Plan, name: str) -> ComparedPlan:
    cost = plan.cost
    return ComparedPlan(
        name,
        plan.title,
        str(cost),
        cost.epsilon(plan.delta) if isinstance(cost, ZCDP) else None,
        plan.judged_level,
        tuple(judged(plan, risk_by_level(plan, invariants=True))),
        expected_error(plan),
    )


def _settings(document: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Yield every setting of a plan by the path of its key."""
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
