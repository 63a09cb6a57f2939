"""The settings on the page, and the plan that results from them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from countveil.assess.verdict import judge
from countveil.base.numerics import exact
from countveil.errors import InputError
from countveil.noise.mechanisms import MECHANISMS, mechanism_named
from countveil.plan.certified_budget import without_certificate
from countveil.plan.plans import Plan
from countveil.plan.workload import Neighbors

Attack = Literal["presence", "unknown attribute", "whole record"]

CURRENCY = {kind.label: kind.currency for kind in MECHANISMS.values()}
MOST_PRIORS = 8  # as many as a chart can tell apart
_FIELDS = {  # names in messages, and the controls of the page they refer to
    "budget": "amount",
    "budget.levels": "weights",
    "weights": "weights",
    "weight of": "weights",
    "intruder.priors": "prior",
    "prior": "prior",
    "intruder.knows": "level",
    "intruder.level": "level",
}


class Malformed(InputError):
    """A request that the page would not send."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Budget, split, neighbours and intruder; exact numbers are text.

    `weights` are shares before they are normalized.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    mechanism: str  # its label
    amount: str
    weights: tuple[tuple[str, str], ...]
    neighbors: Neighbors
    prior: str
    level: str
    attack: Attack = "presence"
    attribute: str | None = None

    @classmethod
    def of(cls, plan: Plan) -> Settings:
        """Return the settings of a plan."""
        return cls(
            mechanism=plan.allocations[0].mechanism.label,
            amount=str(plan.cost.amount),
            weights=tuple((level, str(share)) for level, share in shares_of(plan).items()),
            neighbors=plan.neighbors,
            prior=repr(plan.intruder.priors[0]),
            level=plan.judged_level,
        )

    @classmethod
    def read(cls, document: Any) -> Settings:
        """Read settings as the page sends them; refuse anything else."""
        try:
            settings = _ADAPTER.validate_python(document)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "settings"
            message = first["msg"][0].lower() + first["msg"][1:]
            raise Malformed(f"settings: {where}: {message}") from None
        if settings.mechanism not in CURRENCY:
            allowed = " or ".join(map(repr, CURRENCY))
            raise Malformed(f"settings: mechanism: input should be {allowed}")
        if (settings.attribute is not None) != (settings.attack == "unknown attribute"):
            raise Malformed("settings: attribute: set it for an unknown attribute, and only then")
        return settings

    @property
    def shares(self) -> dict[str, Fraction]:
        """The weights divided by their sum, exactly."""
        weights = {level: exact(text, f"weight of {level}") for level, text in self.weights}
        for level, weight in weights.items():
            if weight < 0:
                raise InputError(f"weight of {level}: {weight} is negative; enter 0 or more")
        total = sum(weights.values(), Fraction(0))
        if total == 0:
            raise InputError("weights: all are 0; give at least one level a larger weight")
        return {level: weight / total for level, weight in weights.items()}

    @property
    def prior_value(self) -> float:
        """The prior as a number."""
        value = exact(self.prior, "prior")
        if not 0 < value < 1:
            raise InputError(f"prior: {self.prior} is not allowed; enter a number between 0 and 1")
        return float(value)


_ADAPTER = TypeAdapter(Settings)


def opening(plan: Plan) -> Settings:
    """Return the settings that the page opens with: the intruder by whom the plan is judged."""
    worst = judge(plan).worst
    kind, _, attribute = worst.attack.partition(": ")
    document = asdict(Settings.of(plan)) | {"prior": repr(worst.prior), "attack": kind}
    return Settings.read(document | {"attribute": attribute or None})


def controls_named_in(message: str) -> list[str]:
    """Return the controls that a message names; the names come first in it, before colons."""
    fields = []
    for part in message.split(":")[:3]:
        named = [key for key in _FIELDS if re.match(rf"{re.escape(key)}($|[. ])", part.strip())]
        if named:
            fields.append(_FIELDS[max(named, key=len)])
    return list(dict.fromkeys(fields))


def shares_of(plan: Plan) -> dict[str, Fraction]:
    """Return the share of each level as the plan states it."""
    stated: Mapping[str, Any] = plan.document["budget"]["levels"]
    return {level: exact(stated[level]) for level in plan.levels}


def changed(plan: Plan, settings: Settings) -> Plan:
    """Return the plan with these settings; what they do not change stays as written."""
    own = Settings.of(plan)
    if dict(settings.weights).keys() != dict(own.weights).keys():
        raise InputError(
            f"weights: one is missing or unknown; enter one for each of {', '.join(plan.levels)}"
        )
    document = dict(plan.document)
    if settings.neighbors != own.neighbors:
        document["release"] = {**document["release"], "neighbors": settings.neighbors}
    budget, shares = dict(document["budget"]), settings.shares
    if (
        own.neighbors != settings.neighbors
        or shares != own.shares
        or _budget_differs(settings, own)
    ):
        budget = without_certificate(budget)
    document["budget"] = budget
    if _budget_differs(settings, own):
        for key in ("rho", "epsilon"):
            budget.pop(key, None)
        currency = CURRENCY[settings.mechanism]
        if currency == "epsilon":
            budget.pop("delta", None)  # with epsilon, it would calibrate a rho
        budget[currency] = settings.amount
    if settings.mechanism != own.mechanism:
        budget.pop("mechanism", None)
        kind = next(kind for kind in MECHANISMS.values() if kind.label == settings.mechanism)
        if kind is not mechanism_named(None, kind.currency):
            budget["mechanism"] = kind.name
    if shares != own.shares:
        budget["levels"] = {level: str(shares[level]) for level in plan.levels}
    intruder = dict(document.get("intruder", {}))
    if settings.prior_value not in plan.intruder.priors:
        intruder["priors"] = [*plan.intruder.priors, settings.prior_value]
    lowest = [level for level in plan.levels if shares[level] > 0][-1]
    if settings.level != (plan.intruder.knows or plan.intruder.level or lowest):
        intruder.pop("level", None)
        intruder["knows"] = settings.level
    if intruder != document.get("intruder", {}):
        document["intruder"] = intruder
    return plan.with_document(document)


def _budget_differs(settings: Settings, own: Settings) -> bool:
    """Whether amount or currency differ; the same number in other digits is equal."""
    if settings.mechanism != own.mechanism:
        return True
    try:
        return exact(settings.amount) != exact(own.amount)
    except InputError:
        return True  # the plan reports what is wrong with it
