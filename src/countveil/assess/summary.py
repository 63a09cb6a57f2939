"""What a release discloses, summed up for a reader: levels, attacks, what invariants add. Public."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from countveil.assess import attacks
from countveil.assess.intruder import Intruder
from countveil.assess.known_facts import FactRisk, known_facts
from countveil.assess.one_level import exceedance
from countveil.assess.plan_risk import LevelRisk, risk_by_level
from countveil.assess.risk import THRESHOLDS
from countveil.assess.siblings import fewest_siblings, typical_siblings
from countveil.assess.targets import Attack
from countveil.measure.measurement import Measurements
from countveil.measure.strategy import mechanism_for
from countveil.privacy.costs import ZCDP
from countveil.schema.geography import Geography
from countveil.schema.plan import Plan


@dataclass(frozen=True, slots=True)
class AttackRisk:
    """An attack with all queries of the judged level and what is published as counted, for one prior.

    `settled`: what is published as counted tells him all, whatever the noise.
    """

    attack: str
    prior: float
    marginal_risk: float
    posterior: float
    correct_decision: float
    effective_rho: float | None
    with_levels_above: float | None
    with_invariants: float | None
    settled: bool = False


@dataclass(frozen=True, slots=True)
class Exceedance:
    """How often R' of a person will pass a threshold, in the most detailed query of the level."""

    prior: float
    above: float
    share: float


@dataclass(frozen=True, slots=True)
class Summary:
    """The risks of a plan on its places; nothing of it depends on a record.

    `siblings` are those of an average unit, and so is what the levels above add to attacks;
    `most_above` is the effective rho of presence with them in the unit that they tell most of.
    """

    level: str
    siblings: dict[str, int]
    levels: tuple[LevelRisk, ...]
    attacks: tuple[AttackRisk, ...]
    exceedances: tuple[Exceedance, ...]
    facts: tuple[FactRisk, ...] = ()
    most_above: float | None = None

    @property
    def document(self) -> dict[str, Any]:
        """The summary as JSON holds it."""
        return {
            "audience": "public",
            "level": self.level,
            "siblings": self.siblings,
            "levels": [_document(item) for item in self.levels],
            "attacks": [_document(item) for item in self.attacks],
            "exceedances": [_document(item) for item in self.exceedances],
            "facts": [_document(item) for item in self.facts],
            "most_above": self.most_above,
        }


def summarise(
    plan: Plan,
    geography: Geography | None = None,
    *,
    measurements: Measurements | None = None,
    priors: Sequence[float] | None = None,
    level: str | None = None,
) -> Summary:
    """Sum up what a plan lets an intruder learn, who knows everyone else in a unit.

    With places, siblings are as many as a unit has on average, and the levels above are counted in, and
    files of constraints; with measurements, what was published as counted, too.
    """
    level = plan.judged_level if level is None else level
    chosen = tuple(dict.fromkeys(plan.intruder.priors if priors is None else priors))
    siblings = {} if geography is None else typical_siblings(geography)
    found = []
    for attack, attribute in _attacks(plan):
        given: dict[str, Any] = {"attack": attack, "attribute": attribute, "level": level}
        rho = above = informed = None
        settled = attacks.is_settled(plan, level, attack=attack, attribute=attribute)
        if isinstance(plan.cost, ZCDP):
            rho = float(attacks.effective_rho(plan, **given).value)
            if siblings:
                above = float(
                    attacks.effective_rho(plan, siblings=siblings, invariants=False, **given).value
                )
                informed = above
                if plan.invariants:
                    informed = float(attacks.effective_rho(plan, siblings=siblings, **given).value)
        for prior in chosen:
            risk = attacks.marginal_risk(plan, prior=prior, **given)
            right = attacks.correct_decision(plan, prior=prior, **given)
            name = attack if attribute is None else f"{attack}: {attribute}"
            assert risk.posterior is not None
            found.append(
                AttackRisk(
                    *(name, prior, float(risk.value), float(risk.posterior), float(right.value)),
                    *(rho, above, informed, settled),
                )
            )
    levels = tuple(risk_by_level(plan, priors=chosen))
    facts: tuple[FactRisk, ...] = ()
    if geography is not None:
        facts = known_facts(plan, geography, measurements, level=level, priors=chosen)
    most = None
    if geography is not None and siblings and isinstance(plan.cost, ZCDP):
        most = max(
            float(
                attacks.effective_rho(
                    plan, attack="presence", level=level, siblings=family, invariants=False
                ).value
            )
            for family in fewest_siblings(geography)
        )
    exceeded = _exceedances(plan, level, chosen)
    return Summary(level, siblings, levels, tuple(found), exceeded, facts, most)


def _attacks(plan: Plan) -> list[tuple[Attack, str | None]]:
    several = [item.name for item in plan.schema.attributes if len(item.categories) > 1]
    listed: list[tuple[Attack, str | None]] = [("presence", None)]
    listed += [("unknown attribute", name) for name in several]
    if several:
        listed.append(("whole record", None))
    return listed


def _exceedances(plan: Plan, level: str, priors: Sequence[float]) -> tuple[Exceedance, ...]:
    finest = max(plan.at(level), key=lambda item: item.query.cells)
    noise = mechanism_for(finest)
    found = []
    for prior in priors:
        who = Intruder(prior=prior, rows=plan.rows_per_person)
        for above in THRESHOLDS:
            share = float(exceedance(noise, above=above, intruder=who).value)
            found.append(Exceedance(prior, above, share))
    return tuple(found)


def _document(item: Any) -> Mapping[str, Any]:
    return {name: getattr(item, name) for name in item.__slots__}
