"""What someone learns who knows everyone else in a unit and sees the whole release.

They see the counts of the unit and, as everyone else below is known, those of each level down to the
target. From outside they see the levels above, siblings, nieces and nephews, and what is published
exactly. They know nothing beforehand about the people there (a flat prior). What the outside says about
the unit is normal noise if counts are taken for real numbers (`tree.outside`), and at most what
`whole_counts` gives for whole ones. The figure is the latter, and it is called an upper bound where the
two differ. Where noise is not Gaussian they count as knowing everyone, which is an upper bound, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from countveil.assess.intruder.attacks import (
    determined,
    each_noise,
    expected_posterior,
    guesses_right,
)
from countveil.assess.intruder.combined_loss import NoisyCells, joint_loss, lattice_loss
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.intruder.targets import Attack, Target, targets_of
from countveil.assess.intruder.whole_counts import (
    SHIFTS,
    SMOOTH_BELOW,
    guesses_right_at_most,
    largest_over_shifts,
    rho_around,
    shifted_loss,
)
from countveil.assess.risk import Risk
from countveil.base import words
from countveil.base.numerics import FloatArray
from countveil.errors import InputError
from countveil.noise.continuous import Gaussian
from countveil.noise.law import Law, LossLaw, Mechanism
from countveil.plan.budget import noise_is_gaussian
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan
from countveil.tree.observed_levels import Observed
from countveil.tree.outside import OutsideInformation
from countveil.tree.tree_shape import tree_of

ALIKE = 1e-3
"""An upper bound this close to the figure of real counts, relatively, is stated as the risk."""

LEAST_VARIANCE = 1.0
"""From this variance of every noise on, real counts reveal no more than whole ones."""


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
        Whether some noise has a variance below `LEAST_VARIANCE`: what is not exact is an upper bound.
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
        rho = self.around
        for noise, cells in self.laws:
            if noise.gaussian_variance is None:
                return None
            rho += cells / (2 * noise.gaussian_variance)
        return rows**2 * rho

    def posterior(self, log_odds: float, rows: int) -> tuple[float, bool]:
        """Return the expected posterior of the truth, and whether it is only an upper bound."""
        if self.settled:
            return 1.0, False
        real = self.posterior_if_real(log_odds, rows)
        if not self.around:
            return real, self.siblings_known
        narrow = self.narrow or self.siblings_known
        rho = rows**2 * self.around
        if rho < SMOOTH_BELOW:
            most = expected_posterior(_loss(self.laws, self.around, rows, None), log_odds)
        else:
            most = largest_over_shifts(
                [
                    expected_posterior(_loss(self.laws, self.around, rows, number), log_odds)
                    for number in range(SHIFTS)
                ]
            )
        if narrow and self.everyone:
            known = _loss(self.everyone, 0.0, rows, None)
            most = min(most, expected_posterior(known, log_odds))
        return most, narrow or most > (1 + ALIKE) * real

    def posterior_if_real(self, log_odds: float, rows: int) -> float:
        """Return the expected posterior if counts around the unit were real numbers: a little less."""
        if self.settled:
            return 1.0
        return expected_posterior(_loss(self.laws, self.outside / 2, rows, None), log_odds)

    def right(self, log_odds: float, rows: int) -> float:
        """Return how often they guess the truth, at most: every jump of the counts is kept.

        Ties are split if there is no outside.
        """
        own = lattice_loss(self.laws, rows)
        if not self.around:
            return guesses_right(own, log_odds, 0.5)
        return guesses_right_at_most(own, rows**2 * self.around, log_odds)


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
        return [Evidence((), 0.0, 0.0, level, level, 0, settled=True, siblings_known=False)]
    shown = plan if invariants or not plan.invariants else _without_invariants(plan)
    outside = None if places is None else _outside(shown, places)
    if outside is None:
        views = _knowing_everyone(shown, level, targets, -1)
        above = _exact_above(plan, level, targets) if invariants else None
        return [replace(item, exact_above=above) for item in views]
    assert places is not None
    if not noise_is_gaussian(shown.allocations):
        return _knowing_everyone(shown, level, targets, 0)
    return list(_in_worst_units(shown, level, targets, places, invariants))


def _in_worst_units(
    plan: Plan, level: str, targets: tuple[Target, ...], places: Geography, exact: bool
) -> Iterator[Evidence]:
    outside, moves = _moves(plan, places, targets)
    top = plan.levels[0]
    everyone = path_laws(plan, top, targets)
    if exact and any(determined(plan, top, target) for target in targets):
        everyone = ((),) * len(targets)
    narrow = min(item.mechanism.variance for item in plan.allocations) < LEAST_VARIANCE
    for depth, chosen in outside.places_of(plan.levels.index(level)):
        highest = plan.levels[depth]
        laws = path_laws(plan, highest, targets)
        if exact and any(determined(plan, highest, target) for target in targets):
            yield Evidence((), 0.0, 0.0, level, highest, 0, settled=True, siblings_known=False)
            continue
        at = np.flatnonzero(chosen)
        real = outside.about(depth, moves)[at]
        around = _around(plan, places, targets, depth)[at]
        siblings = outside.siblings(depth)[at]
        for kind in dict.fromkeys(laws):
            alike = [number for number, item in enumerate(laws) if item == kind]
            unit, which = np.unravel_index(int(around[:, alike].argmax()), (len(at), len(alike)))
            worst = int(unit), alike[int(which)]
            yield Evidence(
                kind,
                float(real[worst]),
                float(around[worst]),
                level,
                highest,
                int(siblings[unit]),
                settled=False,
                siblings_known=False,
                narrow=narrow,
                everyone=_largest([everyone[number] for number in alike]),
            )


def _largest(laws: Sequence[tuple[NoisyCells, ...]]) -> tuple[NoisyCells, ...]:
    """Return the noises of the counts that reveal most together."""
    return max(laws, key=lambda law: sum(cells / noise.variance for noise, cells in law))


def _knowing_everyone(
    plan: Plan, level: str, targets: tuple[Target, ...], siblings: int
) -> list[Evidence]:
    """Return what reaches someone who knows everyone everywhere: all levels of the target's path."""
    laws = dict.fromkeys(path_laws(plan, plan.levels[0], targets))
    known = plan.levels.index(level) > 0
    return [
        Evidence(item, 0.0, 0.0, level, level, siblings, settled=False, siblings_known=known)
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


@lru_cache(maxsize=64)
def _around(plan: Plan, places: Geography, targets: tuple[Target, ...], depth: int) -> FloatArray:
    """Return the rho of what surrounds each position of a level at most, by target."""
    kinds = dict.fromkeys(_information(plan, targets))
    by_kind = _rho_by_kind(places, tuple(kinds))[depth]
    number = {kind: at for at, kind in enumerate(kinds)}
    return by_kind[:, [number[kind] for kind in _information(plan, targets)]]


@lru_cache(maxsize=64)
def _information(plan: Plan, targets: tuple[Target, ...]) -> tuple[tuple[float, ...], ...]:
    """Return, for each target, twice the rho of each level's counts that separate its hypotheses."""
    rows = []
    exact = {
        (item.level, target)
        for item in plan.invariants
        for target in targets
        if target.separating_cells(item.query)
    }
    for target, cells in zip(targets, _separating_cells(plan, targets), strict=True):
        total = dict.fromkeys(plan.levels, 0.0)
        for item, cell_number in zip(plan.allocations, cells, strict=True):
            variance = item.mechanism.gaussian_variance
            assert variance is not None
            total[item.level] += cell_number / variance
        rows.append(
            tuple(math.inf if (level, target) in exact else value for level, value in total.items())
        )
    return tuple(rows)


@lru_cache(maxsize=64)
def _rho_by_kind(places: Geography, kinds: tuple[tuple[float, ...], ...]) -> list[FloatArray]:
    return rho_around(tree_of(places), np.array(kinds).T)


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
