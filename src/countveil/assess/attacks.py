"""Attacks on a plan: all queries of a level at once, and the levels above, on one person.

At the lowest level the intruder knows everyone else, so of every query only the cells that his
hypotheses tell apart inform him: those that would hold his target under one and not under the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy import sparse

from countveil.assess.candidates import among
from countveil.assess.decision import EVEN, Losses, Ties, share_of_ties, sigmoid
from countveil.assess.evidence import LatticeLoss, joint_loss, lattice_loss
from countveil.assess.intruder import Intruder
from countveil.assess.risk import Risk
from countveil.assess.targets import Attack, Target, signatures, targets_of
from countveil.errors import InputError
from countveil.measure.strategy import mechanism_for
from countveil.mechanisms.discrete_gaussian import DiscreteGaussian
from countveil.mechanisms.law import Mechanism
from countveil.numerics import FloatArray, IntArray
from countveil.schema.plan import Plan
from countveil.schema.workload import Query

__all__ = [
    "among",
    "correct_decision",
    "effective_rho",
    "is_settled",
    "marginal_risk",
    "presence_by_prior",
]

_ROUNDING = 1e-12
_EXACT = 1e8  # the weight of a count published as it is, relative to the largest other one


def effective_rho(
    plan: Plan,
    *,
    attack: Attack,
    level: str | None = None,
    attribute: str | None = None,
    categories: tuple[str, str] | None = None,
    siblings: Mapping[str, int] | None = None,
    invariants: bool = True,
) -> Risk:
    """Return the rho of one count that would tell as much as all queries, where counts are large.

    He knows everyone else in a unit of `level`, the lowest measured one if not said; he sees all its
    queries: Σ_q rho_q ‖A_q v‖², rho_q = 1/(2 sigma_q²), v his cell, or his cell less the other one.
    With `siblings`, how many a unit has at each level below the top, he sees the levels above too, and
    what the plan publishes as counted, unless `invariants` is False. Of several possible targets the
    worst is taken.
    """
    level = _level(plan, level)
    targets = targets_of(plan, attack, attribute, categories)
    worst = max(_rho(plan, level, target, siblings, invariants) for target in targets)
    return Risk("effective rho", worst)


def marginal_risk(
    plan: Plan,
    *,
    attack: Attack,
    prior: float,
    level: str | None = None,
    attribute: str | None = None,
    categories: tuple[str, str] | None = None,
    invariants: bool = True,
) -> Risk:
    """Return the expected posterior over prior of an attack with all queries of a level, exactly.

    He knows everyone else in the unit; he sees all its queries, and what the plan publishes as counted
    unless `invariants` is False; the number is R of (15) for them together, for the worst target.
    """
    who = Intruder(prior=prior, rows=plan.rows_per_person)
    level = _level(plan, level)
    targets = targets_of(plan, attack, attribute, categories)
    if invariants and any(_determined(plan, level, target) for target in targets):
        return Risk("marginal risk", 1 / prior, posterior=1.0)
    posteriors = []
    for laws in _distinct_laws(plan, level, targets):
        points, weights = joint_loss([law for law, cells in laws for _ in range(cells)], who.rows)
        posteriors.append(float(weights @ sigmoid(who.log_odds + points)))
    after = max(posteriors)
    return Risk("marginal risk", after / prior, posterior=after)


def correct_decision(
    plan: Plan,
    *,
    attack: Attack,
    prior: float,
    level: str | None = None,
    attribute: str | None = None,
    categories: tuple[str, str] | None = None,
    ties: Ties = "split",
    losses: Losses = EVEN,
    invariants: bool = True,
) -> Risk:
    """Return the probability of a correct decision with all queries of a level, on the lattice.

    He knows everyone else in the unit; he sees all its queries, and what the plan publishes as counted
    unless `invariants` is False; his target is as his first hypothesis says. Of several possible
    targets the one he is right about most often is taken.
    """
    who = Intruder(prior=prior, rows=plan.rows_per_person)
    level = _level(plan, level)
    tied, chances = share_of_ties(ties), []
    targets = targets_of(plan, attack, attribute, categories)
    if invariants and any(_determined(plan, level, target) for target in targets):
        return Risk("correct decision", 1.0)
    for laws in _distinct_laws(plan, level, targets):
        chances.append(_says_yes(lattice_loss(laws, who.rows), who.log_odds - losses.bias, tied))
    return Risk("correct decision", max(chances))


def posteriors_by_prior(
    plan: Plan,
    level: str,
    priors: Sequence[float],
    *,
    attack: Attack = "presence",
    attribute: str | None = None,
) -> list[float]:
    """Return the expected posterior of an attack for each prior, for the worst target.

    What is published as counted is left out. The law of evidence does not depend on the prior, so it is
    made once for each kind of target.
    """
    rows, targets = plan.rows_per_person, targets_of(plan, attack, attribute, None)
    kinds = [
        joint_loss([law for law, cells in laws for _ in range(cells)], rows)
        for laws in _distinct_laws(plan, level, targets)
    ]
    odds = [Intruder(prior=prior, rows=rows).log_odds for prior in priors]
    return [
        max(float(weights @ sigmoid(log_odds + points)) for points, weights in kinds)
        for log_odds in odds
    ]


def decisions_by_prior(
    plan: Plan,
    level: str,
    priors: Sequence[float],
    *,
    attack: Attack = "presence",
    attribute: str | None = None,
) -> list[float]:
    """Return the probability of a correct decision for each prior, as `correct_decision` does."""
    rows, targets = plan.rows_per_person, targets_of(plan, attack, attribute, None)
    kinds = [lattice_loss(laws, rows) for laws in _distinct_laws(plan, level, targets)]
    odds = [Intruder(prior=prior, rows=rows).log_odds for prior in priors]
    return [max(_says_yes(loss, log_odds, 0.5) for loss in kinds) for log_odds in odds]


def presence_by_prior(
    plan: Plan, level: str, priors: Sequence[float], *, invariants: bool = False
) -> list[tuple[float, float, float]]:
    """Return (prior, expected posterior, probability of a correct decision) of the presence attack.

    With `invariants` he also sees what is published as counted; where that settles it, he is certain.
    """
    if invariants and is_settled(plan, level):
        return [(prior, 1.0, 1.0) for prior in priors]
    after = posteriors_by_prior(plan, level, priors)
    right = decisions_by_prior(plan, level, priors)
    return list(zip(priors, after, right, strict=True))


def is_settled(
    plan: Plan, level: str, *, attack: Attack = "presence", attribute: str | None = None
) -> bool:
    """Whether what is published as counted tells who knows everyone else in a unit, without noise."""
    targets = targets_of(plan, attack, attribute, None)
    return any(_determined(plan, level, target) for target in targets)


def _level(plan: Plan, level: str | None) -> str:
    """Return the level, the one the plan is judged by if not said; refuse an unknown one."""
    level = plan.judged_level if level is None else level
    plan.at(level)
    return level


def _says_yes(loss: LatticeLoss, log_odds: float, tied: float) -> float:
    odds = log_odds + loss.points
    even = np.abs(odds) <= _ROUNDING * (abs(log_odds) + np.abs(loss.points))
    return float(loss.weights @ np.where(even, tied, (odds > 0).astype(float)))


def _noises(plan: Plan, level: str) -> list[tuple[Query, Mechanism]]:
    return [(item.query, mechanism_for(item)) for item in plan.at(level)]


def _places(
    noises: Sequence[tuple[Query, Mechanism]], target: Target
) -> list[tuple[Mechanism, int]]:
    """Return each noise of the queries that tell the hypotheses apart, and in how many cells."""
    found: dict[Mechanism, int] = {}
    for query, noise in noises:
        cells = target.told_apart(query)
        if cells:
            found[noise] = found.get(noise, 0) + cells
    return list(found.items())


def _distinct_laws(
    plan: Plan, level: str, targets: Sequence[Target]
) -> list[tuple[tuple[Mechanism, int], ...]]:
    noises = _noises(plan, level)
    return list(dict.fromkeys(tuple(_places(noises, target)) for target in targets))


def _rho(
    plan: Plan,
    level: str,
    target: Target,
    siblings: Mapping[str, int] | None,
    invariants: bool,
) -> float:
    rows = plan.rows_per_person
    if siblings is None:
        told = _places(_noises(plan, level), target)
        return rows**2 * sum(cells * _rate(noise) for noise, cells in told)
    classes, sizes, v = _classes(plan, target)
    first = plan.levels.index(level)
    precision: FloatArray | None = None
    units = 1  # of the next level that is measured, under one unit of the last one that was
    for name in plan.levels[: first + 1]:
        units *= 1 if precision is None else _count(siblings, name) + 1
        own = _precision(plan, name, classes, sizes, invariants)
        if not own.any():
            continue  # not measured: its children are those of the level above
        if precision is None:
            precision = own
        elif units == 1:
            precision = own + precision
        else:
            precision = own + _parallel(precision, own / (units - 1))
        units = 1
    assert precision is not None
    return float(rows**2 * (v @ precision @ v))


def _count(siblings: Mapping[str, int], level: str) -> int:
    if level not in siblings or siblings[level] < 0:
        raise InputError(
            f"siblings: {siblings.get(level)} came for {level}; give how many a unit has, 0 or more"
        )
    return siblings[level]


def _determined(plan: Plan, level: str, target: Target) -> bool:
    """Whether what is published as counted, here or below, tells the hypotheses apart."""
    below = plan.levels[plan.levels.index(level) :]
    known = [item.query for item in plan.invariants if item.level in below]
    return any(target.told_apart(query) for query in known)


def _rate(noise: Mechanism) -> float:
    if not isinstance(noise, DiscreteGaussian):
        raise InputError(f"effective rho is that of Gaussian noise, not of {noise.name}")
    return float(1 / (2 * noise.sigma2))


def _classes(plan: Plan, target: Target) -> tuple[IntArray, FloatArray, FloatArray]:
    """Gather cells that neither queries nor the target tell apart: their class, sizes, and v.

    Queries are marginals, so within classes cells can change places and nothing changes: precisions
    act on one value a class, here in coordinates of unit length.
    """
    shape = plan.schema.shape
    marked = [np.unravel_index(target.cell, shape)]
    if target.other is not None:
        marked.append(np.unravel_index(target.other, shape))
    labels = np.zeros(shape, np.int64)
    for axis, attribute in enumerate(plan.schema.attributes):
        keys: dict[tuple[object, ...], int] = {}
        number = []
        for k, signature in enumerate(signatures(plan, attribute.name)):
            key = (*signature, *(int(where[axis]) == k for where in marked))
            number.append(keys.setdefault(key, len(keys)))
        along = np.array(number).reshape([-1 if a == axis else 1 for a in range(len(shape))])
        labels = labels * len(keys) + along
    classes = np.unique(labels.reshape(-1), return_inverse=True)[1]
    sizes = np.bincount(classes).astype(float)
    v = np.zeros(len(sizes))
    v[classes[target.cell]] = 1.0
    if target.other is not None:
        v[classes[target.other]] -= 1.0
    return classes, sizes, v


def _precision(
    plan: Plan, level: str, classes: IntArray, sizes: FloatArray, invariants: bool
) -> FloatArray:
    """Return Σ_q rho_q A_qᵀA_q on the classes; what is published as counted weighs without limit."""
    total = np.zeros((len(sizes), len(sizes)))
    weighed = [(item.query, _rate(mechanism_for(item))) for item in plan.at(level)]
    counted_here = [item.query for item in plan.invariants if item.level == level]
    if invariants and counted_here:
        largest = max((_rate(mechanism_for(item)) for item in plan.allocations), default=1.0)
        weighed += [(query, _EXACT * largest) for query in counted_here]
    for query, weight in weighed:
        counted = query.cell_of >= 0
        at = (query.cell_of[counted], classes[counted])
        shares = 1 / np.sqrt(sizes[classes[counted]])
        rows = sparse.csr_array((shares, at), shape=(query.cells, len(sizes)))  # sums what meets
        total += weight * (rows.T @ rows).toarray()
    return total


def _parallel(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return (a⁻¹ + b⁻¹)⁻¹, also where they are singular: a (a + b)⁺ b."""
    both: FloatArray = a @ np.linalg.pinv(a + b, hermitian=True) @ b
    return (both + both.T) / 2
