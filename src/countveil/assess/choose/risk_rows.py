"""A limit on the risk of the whole release, as linear limits on a split that are safe near a point.

The precision with which a release speaks about a change grows with every weight, and is concave in
them: its tangent is never below it. A split that keeps the tangents keeps the limit. Splits beyond may
keep it, too, so what is found under such limits is a local optimum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from countveil.assess.intruder.attacks import determined, expected_posterior
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.intruder.targets import separation_of, targets_of
from countveil.assess.intruder.whole_counts import surroundings
from countveil.assess.intruder.whole_release import attacks_on
from countveil.base.numerics import FloatArray, IntArray
from countveil.errors import InputError
from countveil.noise.continuous import Gaussian
from countveil.plan.plans import Plan
from countveil.plan.workload import Query
from countveil.tree.tree_shape import Tree
from countveil.tree.variance_model import WeightedQuery

_STEP = 1e-6  # of a level's own precision, relative to the largest
_NEAR = 0.5  # of the largest precision: what is further away limits nothing
_MOST_ROWS = 60
_HALVINGS = 60


class Tangents(NamedTuple):
    """Rows and limits: rows @ weights <= limits keeps every precision within 1."""

    rows: FloatArray
    limits: FloatArray


@dataclass(frozen=True, eq=False, slots=True)
class RiskRows:
    """The precisions about every kind of change, in every kind of unit of the judged level.

    `cells` says in how many cells of each query a change shows (changes × queries), `levels` the level
    of each query, and `places` at which levels and positions the units of the judged level are.
    """

    tree: Tree
    cells: FloatArray
    levels: IntArray
    places: tuple[tuple[int, IntArray], ...]
    exact: FloatArray
    rows_per_person: int

    @classmethod
    def of(cls, plan: Plan, tree: Tree, weights: tuple[WeightedQuery, ...]) -> RiskRows:
        """Return them for the queries of a plan; refuse a plan whose exact counts give the answer."""
        level = plan.judged_level
        queries = [plan.schema.query(weight.query) for weight in weights]
        fixed = [item.query for item in plan.invariants]
        different: dict[tuple[float, ...], None] = {}
        for attack, attribute in attacks_on(plan):
            targets = targets_of(plan, attack, attribute, None)
            if determined(plan, level, targets):
                raise InputError(
                    f"{plan.name}: exactly published counts of {level} give an intruder the answer, so "
                    f"no split keeps a limit on risk; leave it out, or state a lower level they know"
                )
            cells, pattern = separation_of(targets, [*queries, *fixed])
            for number in range(int(pattern.max()) + 1):
                shown = [float(cells[query][number]) for query in queries]
                known = [_shows_exactly(plan, name, cells, number) for name in plan.levels]
                different[(*shown, *known)] = None
        table = np.array(list(different))
        depth = plan.levels.index(level)
        return cls(
            tree,
            table[:, : len(weights)],
            np.array([plan.levels.index(weight.level) for weight in weights]),
            tuple(tree.places_of(depth)),
            table[:, len(weights) :].T,
            plan.rows_per_person,
        )

    def largest(self, weights: FloatArray) -> float:
        """Return the largest precision, for weights of all queries."""
        largest = max(float(values.max()) for _, _, values in self._precisions(weights))
        if not np.isfinite(largest):
            raise InputError(
                "risk: exactly published counts give an intruder the answer in some place, so no split "
                "keeps a limit on risk; leave the limit out"
            )
        return largest

    def tangents(self, weights: FloatArray) -> Tangents:
        """Return the tangents of the largest precisions at a point."""
        own = self._own(weights)
        base = surroundings(self.tree, own + self._published).rho
        step = _STEP * max(float(own.max()), 1e-300)
        slopes = []  # by level: of what is around each position, by that level's own precision
        for level in range(len(own)):
            moved = own.copy()
            moved[level] += step
            raised = surroundings(self.tree, moved + self._published).rho
            slopes.append(
                [2 * (after - before) / step for before, after in zip(base, raised, strict=True)]
            )
        rows, limits, sizes = [], [], []
        for depth, chosen, values in self._precisions(weights):
            for change in range(values.shape[1]):
                worst = int(values[:, change].argmax())
                position = chosen[worst]
                inside = (self.levels >= depth).astype(float)
                around = np.array([slope[depth][position, change] for slope in slopes])
                row = self.cells[change] * (inside + around[self.levels]) * self.rows_per_person**2
                value = float(values[worst, change])
                rows.append(row)
                limits.append(1 - value + float(row @ weights))
                sizes.append(value)
        order = np.argsort(sizes)[::-1]
        kept = [n for n in order[:_MOST_ROWS] if sizes[n] > _NEAR * sizes[order[0]]]
        return Tangents(np.array(rows)[kept], np.array(limits)[kept])

    @property
    def _published(self) -> FloatArray:
        return np.where(self.exact > 0, np.inf, 0.0)

    def _own(self, weights: FloatArray) -> FloatArray:
        """Return the precision of each level's own counts: levels × changes."""
        own = np.zeros((len(self.exact), len(self.cells)))
        np.add.at(own, self.levels, (self.cells * weights).T)
        return own

    def _precisions(self, weights: FloatArray) -> list[tuple[int, IntArray, FloatArray]]:
        """Return, for each level at which units are looked at, its positions × changes."""
        own = self._own(weights)
        around = surroundings(self.tree, own + self._published).rho
        result = []
        for depth, chosen in self.places:
            path = own[depth:].sum(axis=0)
            values = (path + 2 * around[depth][chosen]) * self.rows_per_person**2
            result.append((depth, chosen, values))
        return result


def largest_precision(limit: float, priors: tuple[float, ...]) -> float:
    """Return the largest precision of normal noise whose risk keeps a limit for every prior."""

    def keeps(precision: float) -> bool:
        loss = Gaussian(precision**-0.5).privacy_loss(1)
        return all(
            expected_posterior(loss, Intruder(prior=prior).log_odds) <= limit * prior
            for prior in priors
        )

    low, high = 1e-6, 1e3
    if keeps(high):
        raise InputError(
            f"risk: every budget keeps a limit of {limit:g}; lower it, or leave it out"
        )
    if not keeps(low):
        raise InputError(f"risk: no budget keeps a limit of {limit:g}; raise it")
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low


def _shows_exactly(plan: Plan, level: str, cells: dict[Query, IntArray], number: int) -> float:
    items = [item for item in plan.invariants if item.level == level]
    return float(any(cells[item.query][number] > 0 for item in items))
