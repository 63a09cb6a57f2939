"""What someone learns who knows everyone else in a unit and sees the whole release.

They see the counts of the unit and, as everyone else below is known, those of each level down to the
target. From outside they see the levels above, siblings, nieces and nephews, and what is published
exactly. They know nothing beforehand about the people there (a flat prior). What the outside says about
the unit is normal noise (`tree.outside`), as if counts were real numbers. Where noise is so small that
it matters that they are whole, `whole_counts` gives an upper bound instead. Where noise is not Gaussian
they count as knowing everyone, which is an upper bound, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from countveil.assess.intruder.attacks import (
    determined,
    each_noise,
    expected_posterior,
    guesses_right,
    noisy_cells,
)
from countveil.assess.intruder.combined_loss import NoisyCells, joint_loss, lattice_loss
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.intruder.targets import (
    Attack,
    AttackTarget,
    SeparatingCells,
    separation_of,
    targets_of,
)
from countveil.assess.intruder.whole_counts import (
    NARROW,
    SHIFTS,
    SMOOTH_BELOW,
    Surroundings,
    guesses_right_at_most,
    largest_over_shifts,
    shifted_loss,
    surroundings,
)
from countveil.assess.risk import Risk
from countveil.base import words
from countveil.base.numerics import FloatArray, IntArray
from countveil.errors import InputError, PlanError
from countveil.noise.continuous import Gaussian
from countveil.noise.law import Law, LossLaw
from countveil.plan.budget import noise_is_gaussian
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan
from countveil.tree.observed_levels import Observed
from countveil.tree.outside import OutsideInformation
from countveil.tree.tree_shape import tree_of

_TOGETHER = 1 << 22  # coordinates of targets, and what units reveal about them, at a time
_MOST_WORK = 1 << 37  # multiplications for one attack at one level: about a minute


@dataclass(frozen=True, slots=True)
class Evidence:
    """What reaches an intruder about a kind of target, in the unit where most does.

    Attributes
    ----------
    laws : tuple of NoisyCells
        The noise of the counts that separate the hypotheses: of the unit, and below it on the target's
        path. With `siblings_known`, of the levels above, too.
    outside : float
        The precision of what everything around the unit says about one row, if counts were real.
    around : float
        The rho of it at most, as counts are whole numbers.
    level, highest : str
        The level of the unit, and the highest level at which the same people form a unit.
    siblings : int
        How many siblings the unit has at that highest level.
    settled : bool
        Whether counts published exactly give the answer.
    siblings_known : bool
        Whether they count as knowing everyone around, because the noise there is not Gaussian, or the
        places are not given: an upper bound.
    exact_above : str, optional
        If the places are not given, the lowest level above whose published counts give the answer. A
        unit that is all of a unit of that level is not covered by the bound.
    narrow : bool
        Whether some noise around is so small that it matters that counts are whole; then the risk is an
        upper bound.
    everyone : tuple of NoisyCells
        The noise of all counts that would separate the hypotheses if they knew everyone everywhere;
        empty if counts published exactly then gave the answer.

    """

    laws: tuple[NoisyCells, ...]
    outside: float
    around: float
    level: str
    highest: str
    siblings: int
    settled: bool
    siblings_known: bool
    exact_above: str | None = None
    narrow: bool = False
    everyone: tuple[NoisyCells, ...] = ()

    @classmethod
    def of_exact_counts(cls, level: str, highest: str) -> Evidence:
        """Return the evidence where counts published exactly give the answer."""
        return cls((), 0.0, 0.0, level, highest, 0, settled=True, siblings_known=False)

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

    @property
    def rho_around(self) -> float:
        """The rho of what everything around the unit says about one row; at most, if `narrow`."""
        return self.around if self.narrow else self.outside / 2

    def effective_rho(self, rows: int) -> float | None:
        """Return the rho of one count that reveals as much; None if noise is not Gaussian."""
        rho = self.rho_around
        for noise, cells in self.laws:
            if noise.gaussian_variance is None:
                return None
            rho += cells / (2 * noise.gaussian_variance)
        return rows**2 * rho

    def posterior(self, log_odds: float, rows: int) -> tuple[float, bool]:
        """Return the expected posterior of the truth, and whether it is only an upper bound."""
        return _posterior(self, log_odds, rows)

    def posterior_if_real(self, log_odds: float, rows: int) -> float:
        """Return the expected posterior if counts around the unit were real numbers."""
        if self.settled:
            return 1.0
        return expected_posterior(_loss(self.laws, self.outside / 2, rows, None), log_odds)

    @property
    def guesses_bounded(self) -> bool:
        """Whether `right` is only an upper bound."""
        return not self.settled and (self.siblings_known or self.rho_around > 0)

    def loss(self, rows: int) -> LossLaw:
        """Return the law of the summed privacy loss; if `narrow`, of someone who knows everyone."""
        if self.narrow and self.everyone:
            return _loss(self.everyone, 0.0, rows, None)
        return _loss(self.laws, self.rho_around, rows, None)

    def right(self, log_odds: float, rows: int) -> float:
        """Return how often they guess the truth: at most, if something around the unit tells them more.

        Every jump of the unit's own counts is kept, and ties are split. What is around is on some
        lattice, too, and guesses depend on where it lies: the figure is the largest over all shifts.
        """
        return _right(self, log_odds, rows)


@lru_cache(maxsize=4096)  # verdict, ladder and sections ask for the same again
def _posterior(view: Evidence, log_odds: float, rows: int) -> tuple[float, bool]:
    if view.settled:
        return 1.0, False
    if not view.narrow:
        return view.posterior_if_real(log_odds, rows), view.siblings_known
    if rows**2 * view.around < SMOOTH_BELOW:
        most = expected_posterior(_loss(view.laws, view.around, rows, None), log_odds)
    else:
        most = largest_over_shifts(
            [
                expected_posterior(_loss(view.laws, view.around, rows, number), log_odds)
                for number in range(SHIFTS)
            ]
        )
    if view.everyone:
        known = _loss(view.everyone, 0.0, rows, None)
        most = min(most, expected_posterior(known, log_odds))
    return most, True


@lru_cache(maxsize=4096)
def _right(view: Evidence, log_odds: float, rows: int) -> float:
    own = lattice_loss(view.laws, rows)
    if not view.rho_around:
        return guesses_right(own, log_odds, 0.5)
    return guesses_right_at_most(own, rows**2 * view.rho_around, log_odds)


@lru_cache(maxsize=512)
def _loss(laws: tuple[NoisyCells, ...], rho: float, rows: int, shift: int | None) -> LossLaw:
    """Return the law of the summed loss; what surrounds a unit is normal, or on a shifted lattice."""
    noises: list[Law] = [*each_noise(laws)]
    if shift is not None:
        return joint_loss(noises, rows, [shifted_loss(rows**2 * rho, shift / SHIFTS)])
    if rho > 0:
        noises.append(Gaussian(math.sqrt(1 / (2 * rho))))
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
    after = [item.posterior(who.log_odds, who.rows) for item in views]
    worst = int(np.argmax([most for most, _ in after]))
    chosen, (most, bound) = views[worst], after[worst]
    return Risk(
        "marginal risk",
        most / prior,
        posterior=most,
        intruder=who,
        level=name,
        attack=name_of(attack, attribute),
        effective_rho=None if chosen.settled else chosen.effective_rho(who.rows),
        unit_kind=chosen.unit_kind,
        upper_bound=bound,
    )


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
    except PlanError:
        raise  # too many to try is not none
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
    targets: tuple[AttackTarget, ...],
    places: Geography | None,
    invariants: bool,
) -> Sequence[Evidence]:
    if invariants and determined(plan, level, targets):
        return [Evidence.of_exact_counts(level, level)]
    shown = plan if invariants or not plan.invariants else _without_invariants(plan)
    outside = None if places is None else _outside(shown, places)
    if outside is None:
        views = _knowing_everyone(shown, level, targets, -1)
        above = _exact_above(plan, level, targets) if invariants else None
        return [replace(item, exact_above=above) for item in views]
    gaussian = noise_is_gaussian(shown.allocations)
    if not gaussian or _too_much(outside, plan.levels.index(level), targets):
        return _knowing_everyone(shown, level, targets, 0)
    assert places is not None
    return list(_in_worst_units(shown, level, targets, places, outside, exact=invariants))


def evidence_in(
    plan: Plan, level: str, unit: int, target: AttackTarget, geography: Geography
) -> Evidence:
    """Return what reaches an intruder about one target in one unit of a level."""
    outside = _outside(plan, geography)
    if outside is None or not noise_is_gaussian(plan.allocations):
        (view,) = _knowing_everyone(plan, level, (target,), -1 if outside is None else 0)
        return view
    depth = plan.levels.index(level)
    positions = outside.tree.positions
    place = positions[depth].of_unit[unit]
    highest = int(positions[depth].highest_level[place])
    for number in range(depth, highest, -1):
        place = positions[number].above[place]
    top = plan.levels[highest]
    if determined(plan, top, (target,)):
        return Evidence.of_exact_counts(level, top)
    around = _surroundings(geography, _changes(plan, (target,)).information)
    known = determined(plan, plan.levels[0], (target,))
    return Evidence(
        path_laws(plan, top, target),
        float(outside.about(highest, _moves(outside, (target,)))[place, 0]),
        float(around.rho[highest][place, 0]),
        level,
        top,
        int(outside.siblings(highest)[place]),
        settled=False,
        siblings_known=False,
        narrow=bool(around.narrowest[0] < NARROW),
        everyone=() if known else path_laws(plan, plan.levels[0], target),
    )


def _in_worst_units(
    plan: Plan,
    level: str,
    targets: tuple[AttackTarget, ...],
    places: Geography,
    outside: OutsideInformation,
    *,
    exact: bool,
) -> Iterator[Evidence]:
    changes = _changes(plan, targets)
    around = _surroundings(places, changes.information)
    everyone, everyone_of = _laws_of(plan, plan.levels[0], targets)
    if exact and determined(plan, plan.levels[0], targets):
        everyone = [()] * len(everyone)
    for depth, at in outside.tree.places_of(plan.levels.index(level)):
        highest = plan.levels[depth]
        if exact and determined(plan, highest, targets):
            yield Evidence.of_exact_counts(level, highest)
            continue
        kinds, kind_of = _laws_of(plan, highest, targets)
        siblings = outside.siblings(depth)[at]
        most = [(-1.0, 0)] * len(kinds)  # what is revealed around the unit where that is most
        step = max(
            1, _TOGETHER // (outside.decomposition.width + len(outside.tree.positions[depth]))
        )
        for start in range(0, len(targets), step):
            moves = _moves(outside, targets[start : start + step])
            real = outside.about(depth, moves)[at]
            here = kind_of[start : start + step]
            for kind in np.unique(here).tolist():
                alike = real[:, here == kind]
                unit = int(alike.argmax()) // alike.shape[1]
                value = float(alike[unit].max())
                if (value, -unit) > (most[kind][0], -most[kind][1]):
                    most[kind] = value, unit
        for kind, (laws, (value, unit)) in enumerate(zip(kinds, most, strict=True)):
            same = kind_of == kind
            bounds = around.rho[depth][np.ix_(at, np.unique(changes.of_target[same]))]
            narrow = bool(around.narrowest[changes.of_target[same]].min() < NARROW)
            place = int(bounds.max(axis=1).argmax()) if narrow else unit
            knowing = np.unique(everyone_of[same])
            yield Evidence(
                laws,
                value,
                float(bounds.max()),
                level,
                highest,
                int(siblings[place]),
                settled=False,
                siblings_known=False,
                narrow=narrow,
                everyone=everyone[knowing[0]] if len(knowing) == 1 else (),
            )


def _knowing_everyone(
    plan: Plan, level: str, targets: tuple[AttackTarget, ...], siblings: int
) -> list[Evidence]:
    """Return what reaches someone who knows everyone everywhere: all levels of the target's path."""
    laws, _ = _laws_of(plan, plan.levels[0], targets)
    known = plan.levels.index(level) > 0
    return [
        Evidence(item, 0.0, 0.0, level, level, siblings, settled=False, siblings_known=known)
        for item in laws
    ]


def _exact_above(plan: Plan, level: str, targets: Sequence[AttackTarget]) -> str | None:
    """Return the lowest level above at which counts published exactly give the answer, if any."""
    above = reversed(plan.levels[: plan.levels.index(level)])
    return next((name for name in above if determined(plan, name, targets)), None)


def path_laws(plan: Plan, level: str, target: AttackTarget) -> tuple[NoisyCells, ...]:
    """Return the noise of the counts of a level and below that separate the hypotheses."""
    return _laws_of(plan, level, (target,))[0][0]


@lru_cache(maxsize=512)
def _laws_of(
    plan: Plan, level: str, targets: tuple[AttackTarget, ...]
) -> tuple[list[tuple[NoisyCells, ...]], IntArray]:
    """Return the different `path_laws` of targets, and which each target has."""
    below = set(plan.levels[plan.levels.index(level) :])
    cells, pattern = _separation(plan, targets)
    shown = [(cells[one.query], one.mechanism) for one in plan.allocations if one.level in below]
    laws = [noisy_cells(shown, number) for number in range(int(pattern.max()) + 1)]
    different = {item: number for number, item in enumerate(dict.fromkeys(laws))}
    return list(different), np.array([different[item] for item in laws])[pattern]


@lru_cache(maxsize=64)
def _separation(plan: Plan, targets: tuple[AttackTarget, ...]) -> SeparatingCells:
    return separation_of(targets, (item.query for item in plan.allocations))


class _ChangeKinds(NamedTuple):
    """Twice the rho of each level's counts about each kind of change, and the kind of each target."""

    information: tuple[tuple[float, ...], ...]
    of_target: IntArray


@lru_cache(maxsize=64)
def _changes(plan: Plan, targets: tuple[AttackTarget, ...]) -> _ChangeKinds:
    queries = [item.query for item in plan.allocations] + [item.query for item in plan.invariants]
    cells, pattern = separation_of(targets, queries)
    rows = []
    for number in range(int(pattern.max()) + 1):
        total = dict.fromkeys(plan.levels, 0.0)
        for item in plan.allocations:
            variance = item.mechanism.gaussian_variance
            assert variance is not None
            total[item.level] += int(cells[item.query][number]) / variance
        for fixed in plan.invariants:
            if cells[fixed.query][number]:
                total[fixed.level] = math.inf
        rows.append(tuple(total.values()))
    different = {row: number for number, row in enumerate(dict.fromkeys(rows))}
    return _ChangeKinds(tuple(different), np.array([different[row] for row in rows])[pattern])


@lru_cache(maxsize=64)
def _surroundings(places: Geography, information: tuple[tuple[float, ...], ...]) -> Surroundings:
    return surroundings(tree_of(places), np.array(information).T)


def _moves(outside: OutsideInformation, targets: Sequence[AttackTarget]) -> list[FloatArray]:
    """Return the coordinates of what each target would change."""
    own = outside.decomposition.coordinates(np.array([item.cell for item in targets]))
    if targets[0].other is None:
        return own
    rest = outside.decomposition.coordinates(np.array([item.other for item in targets]))
    return [one - other for one, other in zip(own, rest, strict=True)]


def _too_much(outside: OutsideInformation, level: int, targets: Sequence[AttackTarget]) -> bool:
    """Whether it would take minutes to look at every target in every unit."""
    spaces = outside.decomposition.subspaces
    squares = sum(space.size**2 for space in spaces)
    units = max(len(positions) for positions in outside.tree.positions[: level + 1])
    work = len(targets) * (outside.decomposition.width + units * squares)
    return work > _MOST_WORK


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
