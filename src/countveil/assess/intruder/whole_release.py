"""What someone learns who knows everyone else in a unit and sees the whole release.

They see the counts of the unit and, as everyone else below is known, those of each level down to the
target. From outside they see the levels above, siblings, nieces and nephews, and what is published
exactly. They know nothing beforehand about the people there (a flat prior), so that the outside speaks
about the unit with normal noise, whose precision the tree gives (`tree.outside`). Where noise is too
small for that, or not Gaussian, they count as knowing everyone, and the risk is an upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from countveil.assess.intruder.attacks import (
    NEVER,
    determined,
    each_noise,
    expected_posterior,
    guesses_right,
)
from countveil.assess.intruder.combined_loss import NoisyCells, joint_loss, lattice_loss
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.intruder.targets import Attack, Target, targets_of
from countveil.assess.risk import Risk
from countveil.base import words
from countveil.base.bounded_averages import expectation
from countveil.base.numerics import FloatArray
from countveil.errors import InputError
from countveil.noise.continuous import Gaussian
from countveil.noise.law import Law, LossLaw, Mechanism
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan
from countveil.tree.observed_levels import Observed
from countveil.tree.outside import OutsideInformation
from countveil.tree.tree_shape import tree_of

LEAST_VARIANCE = 0.5
"""From this variance on, a normal law describes what counts around a unit reveal, to within 1 %."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What reaches an intruder about a kind of target, in the unit where most does.

    Attributes
    ----------
    laws : tuple of NoisyCells
        The noise of the counts that separate the hypotheses: of the unit, and below it on the target's
        path. With `siblings_known`, of the levels above, too.
    outside : float
        The precision of what everything around the unit says about one row.
    level, highest : str
        The level of the unit, and the highest level at which the same people form a unit.
    siblings : int
        How many siblings the unit has at that highest level.
    settled : bool
        Whether counts published exactly give the answer.
    siblings_known : bool
        Whether they count as knowing everyone around, because the noise there is small, not Gaussian,
        or the places are not given: an upper bound.
    exact_above : str, optional
        If the places are not given, the lowest level above whose published counts give the answer. A
        unit that is all of a unit of that level is not covered by the bound.

    """

    laws: tuple[NoisyCells, ...]
    outside: float
    level: str
    highest: str
    siblings: int
    settled: bool
    siblings_known: bool
    exact_above: str | None = None

    @property
    def unit_kind(self) -> str:
        """The kind of unit, in words."""
        if self.highest != self.level:
            return f"{words.article(self.level)} that is all of its {self.highest}"
        if self.settled or self.siblings < 0:
            less = f" that is not all of its {self.exact_above}" if self.exact_above else ""
            return f"any {self.level}{less}"
        if not self.siblings:
            return f"the {self.level}" if not self.siblings_known else words.article(self.level)
        more = "1 sibling" if self.siblings == 1 else f"{self.siblings:,} siblings"
        return f"{words.article(self.level)} with {more}"

    def effective_rho(self, rows: int) -> float | None:
        """Return the rho of one count that reveals as much; None if noise is not Gaussian."""
        rho = self.outside / 2
        for noise, cells in self.laws:
            if noise.gaussian_variance is None:
                return None
            rho += cells / (2 * noise.gaussian_variance)
        return rows**2 * rho

    def loss(self, rows: int) -> LossLaw:
        """Return the law of the summed privacy loss."""
        return _loss(self.laws, self.outside, rows)

    def right(self, log_odds: float, rows: int) -> float:
        """Return how often they guess the truth: every jump of the counts is kept, ties are split."""
        own = lattice_loss(self.laws, rows)
        if not self.outside:
            return guesses_right(own, log_odds, 0.5)
        rho = (
            rows**2 * self.outside / 2
        )  # the normal loss of the outside has mean rho, variance 2 rho
        share = expectation(own.weights, ndtr((log_odds + own.points + rho) / math.sqrt(2 * rho)))
        return share if share > NEVER else 0.0


@lru_cache(maxsize=64)
def _loss(laws: tuple[NoisyCells, ...], outside: float, rows: int) -> LossLaw:
    noises: list[Law] = [*each_noise(laws)]
    if outside > 0:
        noises.append(Gaussian(math.sqrt(1 / outside)))
    return joint_loss(noises, rows) if noises else LossLaw(np.zeros(1), np.ones(1))


def whole_release_risk(
    plan: Plan,
    *,
    geography: Geography | None = None,
    level: str | None = None,
    attack: Attack = "presence",
    prior: float,
    attribute: str | None = None,
    invariants: bool = True,
) -> Risk:
    """Return the expected posterior over prior of an attack by someone who sees the whole release.

    They know everyone else in a unit of `level`. The number is that of the unit and the target about
    whom they learn most.

    Parameters
    ----------
    plan : Plan
        The plan whose noise is assessed; no record is read.
    geography : Geography, optional
        The places; by default those of the plan's crosswalk. Without any, they count as knowing
        everyone: an upper bound.
    level : str, optional
        The level of the unit; by default the one that the plan says they know.
    attack : {"presence", "response", "honesty", "unknown attribute", "whole record"}
        What they want to find out.
    prior : float
        Their probability of the first hypothesis, which is true.
    attribute : str, optional
        The attribute that they do not know, for the attack "unknown attribute".
    invariants : bool
        Whether they also see what the plan publishes exactly.

    Returns
    -------
    Risk
        "marginal risk", with the expected posterior, the effective rho and the kind of unit.

    Examples
    --------
    >>> risk = whole_release_risk(plan, level="block", prior=0.02)  # doctest: +SKIP
    >>> risk.value, risk.effective_rho, risk.unit_kind  # doctest: +SKIP

    """
    who = Intruder(prior=prior, rows=plan.rows_per_person)
    name = plan.judged_level if level is None else level
    views = evidence(
        plan, name, attack=attack, attribute=attribute, geography=geography, invariants=invariants
    )
    after = [posterior_after(item, who) for item in views]
    worst = int(np.argmax(after))
    chosen = views[worst]
    return Risk(
        "marginal risk",
        after[worst] / prior,
        posterior=after[worst],
        intruder=who,
        level=name,
        attack=name_of(attack, attribute),
        effective_rho=None if chosen.settled else chosen.effective_rho(who.rows),
        unit_kind=chosen.unit_kind,
        upper_bound=chosen.siblings_known,
    )


def posterior_after(item: Evidence, who: Intruder) -> float:
    """Return the expected posterior of the truth; 1 if it is published exactly."""
    return 1.0 if item.settled else expected_posterior(item.loss(who.rows), who.log_odds)


def decisions_by_prior(
    plan: Plan, views: Sequence[Evidence], priors: Sequence[float]
) -> list[float]:
    """Return how often they guess correctly for each prior, about the worst target and unit."""
    if any(item.settled for item in views):
        return [1.0 for _ in priors]
    rows = plan.rows_per_person
    return [
        max(item.right(Intruder(prior=prior, rows=rows).log_odds, rows) for item in views)
        for prior in priors
    ]


def attacks_on(plan: Plan) -> list[tuple[Attack, str | None]]:
    """Return the attacks a plan is judged by: presence, each attribute, the whole record."""
    several = [item.name for item in plan.schema.attributes if len(item.categories) > 1]
    listed: list[tuple[Attack, str | None]] = [("presence", None)]
    for name in several:
        if possible_attack(plan, "unknown attribute", name):
            listed.append(("unknown attribute", name))
    if several and possible_attack(plan, "whole record", None):
        listed.append(("whole record", None))
    return listed


def possible_attack(plan: Plan, attack: Attack, attribute: str | None) -> bool:
    """Whether structural zeros leave two cells that the attack could confuse."""
    try:
        return bool(targets_of(plan, attack, attribute, None))
    except InputError:
        return False


def name_of(attack: Attack, attribute: str | None) -> str:
    """Return what an attack is called: with its attribute, if it has one."""
    return attack if attribute is None else f"{attack}: {attribute}"


def about(attack: str) -> str:
    """Return what an attack with this name is about: "presence", "AGE" or "the whole record"."""
    return "the whole record" if attack == "whole record" else attack.rpartition(": ")[2]


def aim_of(attack: str) -> str:
    """Return what an intruder tries to learn by an attack with this name, as a clause."""
    if attack == "presence":
        return "whether you are counted there"
    if attack == "whole record":
        return "which of two records is yours"
    return f"your {about(attack)}"


def evidence(
    plan: Plan,
    level: str,
    *,
    attack: Attack = "presence",
    attribute: str | None = None,
    categories: tuple[str, str] | None = None,
    geography: Geography | None = None,
    invariants: bool = True,
) -> list[Evidence]:
    """Return what reaches an intruder at a level: one entry for each kind of target and of unit.

    Targets of one kind are affected by the same counts, in the unit where the outside reveals most. If
    exact publication gives the answer for some target, there is one entry.
    """
    plan.at(level)  # refuses an unknown level
    targets = tuple(targets_of(plan, attack, attribute, categories))
    places = plan.places() if geography is None else geography
    return list(_evidence_about(plan, level, targets, places, invariants))


@lru_cache(maxsize=512)  # pages ask for the same again: verdict, ladder, sentence, tables
def _evidence_about(
    plan: Plan,
    level: str,
    targets: tuple[Target, ...],
    places: Geography | None,
    invariants: bool,
) -> Sequence[Evidence]:
    if invariants and any(determined(plan, level, target) for target in targets):
        return [Evidence((), 0.0, level, level, 0, settled=True, siblings_known=False)]
    shown = plan if invariants or not plan.invariants else _without_invariants(plan)
    outside = None if places is None else _outside(shown, places)
    if outside is None:
        views = _knowing_everyone(shown, level, targets, -1)
        above = _exact_above(plan, level, targets) if invariants else None
        return [replace(item, exact_above=above) for item in views]
    assert places is not None
    if any(_too_small(item.mechanism) for item in shown.allocations):
        return _knowing_everyone(shown, level, targets, 0)
    return list(_in_worst_units(shown, level, targets, places, invariants))


def evidence_in(
    plan: Plan, level: str, unit: int, target: Target, geography: Geography
) -> Evidence:
    """Return what reaches an intruder about one target in one unit of a level."""
    outside = _outside(plan, geography)
    if outside is None or any(_too_small(item.mechanism) for item in plan.allocations):
        (view,) = _knowing_everyone(plan, level, (target,), -1 if outside is None else 0)
        return view
    depth = plan.levels.index(level)
    positions = outside.tree.positions
    place = positions[depth].of_unit[unit]
    highest = int(positions[depth].highest_level[place])
    for number in range(depth, highest, -1):
        place = positions[number].above[place]
    top = plan.levels[highest]
    if determined(plan, top, target):
        return Evidence((), 0.0, level, top, 0, settled=True, siblings_known=False)
    _, moves = _moves(plan, geography, (target,))
    (laws,) = path_laws(plan, top, (target,))
    return Evidence(
        laws,
        float(outside.about(highest, moves)[place, 0]),
        level,
        top,
        int(outside.siblings(highest)[place]),
        settled=False,
        siblings_known=False,
    )


def _in_worst_units(
    plan: Plan, level: str, targets: tuple[Target, ...], places: Geography, exact: bool
) -> Iterator[Evidence]:
    outside, moves = _moves(plan, places, targets)
    for depth, chosen in outside.places_of(plan.levels.index(level)):
        highest = plan.levels[depth]
        laws = path_laws(plan, highest, targets)
        if exact and any(determined(plan, highest, target) for target in targets):
            yield Evidence((), 0.0, level, highest, 0, settled=True, siblings_known=False)
            continue
        at = np.flatnonzero(chosen)
        around = outside.about(depth, moves)[at]
        siblings = outside.siblings(depth)[at]
        for kind in dict.fromkeys(laws):
            alike = [number for number, item in enumerate(laws) if item == kind]
            unit, which = np.unravel_index(int(around[:, alike].argmax()), (len(at), len(alike)))
            yield Evidence(
                kind,
                float(around[unit, alike[int(which)]]),
                level,
                highest,
                int(siblings[unit]),
                settled=False,
                siblings_known=False,
            )


def _knowing_everyone(
    plan: Plan, level: str, targets: tuple[Target, ...], siblings: int
) -> list[Evidence]:
    """Return what reaches someone who knows everyone everywhere: all levels of the target's path."""
    laws = dict.fromkeys(path_laws(plan, plan.levels[0], targets))
    known = plan.levels.index(level) > 0
    return [
        Evidence(item, 0.0, level, level, siblings, settled=False, siblings_known=known)
        for item in laws
    ]


def _exact_above(plan: Plan, level: str, targets: Sequence[Target]) -> str | None:
    """Return the lowest level above at which counts published exactly give the answer, if any."""
    above = reversed(plan.levels[: plan.levels.index(level)])
    return next(
        (name for name in above if any(determined(plan, name, target) for target in targets)), None
    )


@lru_cache(maxsize=512)
def path_laws(
    plan: Plan, level: str, targets: tuple[Target, ...]
) -> tuple[tuple[NoisyCells, ...], ...]:
    """Return, for each target, the noise of the counts of a level and below that separate."""
    below = set(plan.levels[plan.levels.index(level) :])
    known: dict[tuple[int, ...], tuple[NoisyCells, ...]] = {}
    laws = []
    for cells in _separating_cells(plan, targets):
        if cells not in known:
            total: dict[Mechanism, int] = {}
            for item, number in zip(plan.allocations, cells, strict=True):
                if number and item.level in below:
                    total[item.mechanism] = total.get(item.mechanism, 0) + number
            known[cells] = tuple(NoisyCells(noise, number) for noise, number in total.items())
        laws.append(known[cells])
    return tuple(laws)


@lru_cache(maxsize=64)
def _separating_cells(plan: Plan, targets: tuple[Target, ...]) -> tuple[tuple[int, ...], ...]:
    """Return, for each target, in how many cells of each measured query the hypotheses differ."""
    queries = dict.fromkeys(item.query for item in plan.allocations)
    rows = []
    for target in targets:
        cells = {query: target.separating_cells(query) for query in queries}
        rows.append(tuple(cells[item.query] for item in plan.allocations))
    return tuple(rows)


def _too_small(noise: Mechanism) -> bool:
    return noise.gaussian_variance is None or noise.gaussian_variance < LEAST_VARIANCE


@lru_cache(maxsize=64)
def _moves(
    plan: Plan, places: Geography, targets: tuple[Target, ...]
) -> tuple[OutsideInformation, list[FloatArray]]:
    """Return what surrounds each unit, and the coordinates of what each target would change."""
    outside = _outside(plan, places)
    assert outside is not None
    own = outside.decomposition.coordinates(np.array([item.cell for item in targets]))
    if targets[0].other is None:
        return outside, own
    others = np.array([item.other for item in targets])
    rest = outside.decomposition.coordinates(others)
    return outside, [one - other for one, other in zip(own, rest, strict=True)]


@lru_cache(maxsize=8)
def _outside(plan: Plan, places: Geography) -> OutsideInformation | None:
    """Return what surrounds each unit; None if the plan is too large for the algebra."""
    try:
        return OutsideInformation.of(
            Observed.planned(plan), tree_of(places), plan.schema.every_cell
        )
    except InputError:
        return None


@lru_cache(maxsize=8)
def _without_invariants(plan: Plan) -> Plan:
    return replace(plan, invariants=())
