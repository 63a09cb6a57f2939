"""A rehearsal of TopDown on simulated people, before anything is charged; it reads no record.

Once a release is charged it must be possible to finish it. So the widest families of every level, and
those with the most public facts, are first solved for simulated populations of many sizes, with the
plan's own noise, passes and facts. Only the plan, its crosswalk and its files of public facts are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
from threadpoolctl import threadpool_limits

from countveil.base.numerics import IntArray
from countveil.base.randomness import Seeded
from countveil.engines.workers import Workers, hired
from countveil.errors import CertificateError, InfeasibleError, InputError
from countveil.measure.progress import Progress, silent
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan
from countveil.plan.workload import Query
from countveil.postprocess.facts.fact_bounds import UNBOUNDED, Bounds, GroupBound
from countveil.postprocess.facts.family_facts import LevelFacts, read_facts
from countveil.postprocess.facts.feasibility import refuse_infeasible
from countveil.postprocess.family import Family, solve
from countveil.postprocess.family_information import (
    FamilyInformation,
    LevelInformation,
    Observations,
    SubtreeInformation,
)
from countveil.postprocess.pass_rule import candidates
from countveil.postprocess.rounding.controlled_rounding import round_family
from countveil.postprocess.solver.family_problem import Squares
from countveil.postprocess.solver.nonnegative import solve_family
from countveil.postprocess.topdown import from_below, kept_queries, movable_parent
from countveil.tree.covariances import Rung, climb
from countveil.tree.observed_levels import Observed
from countveil.tree.subspaces import QueryDecomposition
from countveil.tree.subtrees import CellTerms, SubtreeShapes
from countveil.tree.tree_shape import Tree

DRAWS = 20
MOST_PEOPLE = 2**30  # that a plan may count
_PER_UNIT = (1, 30, 1_000)  # people per lowest unit, on average; and MOST_PEOPLE in all
_SEED = 20_200_401
_ENTRIES = 300_000  # in larger families, only the smallest population is tried


@dataclass(frozen=True, eq=False, slots=True)
class _RehearsedStep:
    """One family on a path down: units start … stop - 1 of a level, and which to enter next."""

    level: str
    start: int
    stop: int
    then: int
    facts: LevelFacts
    groups: tuple[tuple[Query, IntArray], ...]
    shapes: SubtreeShapes | None


@dataclass(frozen=True, eq=False, slots=True)
class _Draw:
    """One simulated population on one path down."""

    number: int
    people: int
    smallest: bool
    segregated: bool
    path: tuple[_RehearsedStep, ...]


def rehearse(
    plan: Plan,
    geography: Geography,
    *,
    draws: int = DRAWS,
    workers: int | Workers = 1,
    progress: Progress = silent,
) -> None:
    """Raise InputError if a simulated population cannot be post-processed as the plan says.

    Parameters
    ----------
    plan : Plan
        A plan with method "top-down"; with "none" there is nothing to rehearse.
    geography : Geography
        The plan's crosswalk.
    draws : int
        The number of simulated populations, over several sizes and the hardest families.
    workers : int or Workers
        The number of processes on this machine, or the workers of an engine.
    progress : Progress
        Called after each draw.

    Raises
    ------
    InputError
        Naming the level and the reason; nothing has been charged.

    """
    if plan.method == "none" or not plan.measured_levels:
        return
    subtrees = _PlannedSubtrees.of(plan, geography)
    paths = _hardest_paths(plan, geography, subtrees)
    lowest = geography.units(plan.levels[-1])
    sizes = sorted({min(MOST_PEOPLE, lowest * each) for each in _PER_UNIT} | {MOST_PEOPLE})
    tasks = _planned_draws(sizes, paths, draws)
    job = Rehearsal(plan, None if subtrees is None else subtrees.terms)
    # Families are small: more threads for one of them cost more than they gain.
    with threadpool_limits(1), hired(workers) as team:
        for number, message in enumerate(team.map(job, tasks, large=_is_large(plan))):
            if message:
                raise InputError(
                    f"{plan.name}: a rehearsal with simulated people failed: {message}. Nothing was "
                    f"charged. Change the passes, constraints or invariants, or write "
                    f'method = "none" to publish only the measurements'
                )
            progress("rehearsing", plan.measured_levels[-1], number + 1, draws)
        team.rest()


def _planned_draws(
    sizes: Sequence[int], paths: Sequence[tuple[_RehearsedStep, ...]], draws: int
) -> list[_Draw]:
    """Return draws that combine every size with mixed and segregated children, on path after path.

    Each round has one draw of every size on one path. Mixed and segregated alternate within a round,
    from round to round, and from each visit of a path to the next, so no two of the three are tied.
    """
    result = []
    for number in range(draws):
        tour, size = divmod(number, len(sizes))
        turned = tour // len(paths) if len(paths) % 2 == 0 else 0
        result.append(
            _Draw(
                number,
                sizes[size],
                smallest=size == 0,
                segregated=(size + tour + turned) % 2 == 1,
                path=paths[tour % len(paths)],
            )
        )
    return result


@dataclass(frozen=True, eq=False, slots=True)
class _PlannedSubtrees:
    """The subtrees of all units, before anything is measured."""

    tree: Tree
    terms: CellTerms
    rungs: tuple[tuple[Rung, ...], ...]

    @classmethod
    def of(cls, plan: Plan, geography: Geography) -> _PlannedSubtrees | None:
        """Return what a plan's subtrees will say; None if no level will use it."""
        if not any(from_below(plan, level) for level in plan.measured_levels):
            return None
        observed, tree = Observed.planned(plan), Tree.of(geography)
        decomposition = QueryDecomposition.of(observed, plan.schema.every_cell)
        observations = [observed.observations[level] for level in plan.levels]
        rungs = tuple(tuple(climb(tree, space, observations)) for space in decomposition.subspaces)
        return cls(tree, CellTerms.of(observed, decomposition), rungs)


def _is_large(plan: Plan) -> bool:
    return int(plan.possible.sum()) > 500  # worth starting processes for


@dataclass(frozen=True, eq=False, slots=True)
class Rehearsal:
    """The job of a rehearsal: a plan, tried on one draw after another."""

    plan: Plan
    terms: CellTerms | None = None

    def run(self, draw: _Draw) -> str:
        """Go down one path with one population; return what failed, or an empty text."""
        rng = np.random.default_rng([_SEED, draw.number])  # the same for every title of the plan
        cells = np.flatnonzero(self.plan.possible)
        shares = rng.gamma(0.1, size=len(cells)) + 1e-12
        people = rng.poisson(draw.people * shares / shares.sum()).astype(np.int64)
        truth, estimate = people, None
        for step in draw.path:
            children = step.stop - step.start
            live = np.count_nonzero(people if estimate is None else estimate)
            if children * live > _ENTRIES and not draw.smallest:
                return ""
            truths = _split(rng, truth, children, estimate is None, draw.segregated)
            try:
                truths = _fitted_to_facts(truths, None if estimate is None else truth, cells, step)
            except InfeasibleError:
                return ""  # this population contradicts the facts; the plan is not at fault
            try:
                estimates = self._estimate(rng, step, cells, truths, estimate)
            except (CertificateError, InfeasibleError) as error:
                return f"{children:,} units of level {step.level} could not be solved: {error}"
            truth, estimate = truths[step.then], estimates[step.then]
        return ""

    def _estimate(
        self,
        rng: np.random.Generator,
        step: _RehearsedStep,
        cells: IntArray,
        truths: IntArray,
        parent: IntArray | None,
    ) -> IntArray:
        """Measure the children with simulated noise, and solve their family."""
        plan, level = self.plan, step.level
        kept = np.arange(len(cells)) if parent is None else np.flatnonzero(parent)
        above = None if parent is None else parent[kept]
        facts = self._facts(step, cells, truths)
        family = Family(
            name=f"{level} rehearsal",
            children=[f"simulated {number + 1}" for number in range(len(truths))],
            cells=cells[kept],
            parent=above,
            information=self._information(rng, step, cells, truths, kept),
            limits=facts.limits(0, len(truths), cells[kept], above),
            label=lambda cells: f"{len(cells)} cells",
            keep=kept_queries(plan, level),
            first=candidates(plan, level, top=parent is None),
            movable_parent=partial(movable_parent, plan, level, cells, facts, 0, len(truths)),
        )
        if not len(kept):
            return np.zeros(truths.shape, np.int64)
        result = np.zeros(truths.shape, np.int64)
        source = Seeded(int(rng.integers(2**31)))
        solved = solve(family, plan.passes[level], rng=source)
        result[:, np.searchsorted(cells, solved.cells)] = solved.counts
        return result

    def _information(
        self,
        rng: np.random.Generator,
        step: _RehearsedStep,
        cells: IntArray,
        truths: IntArray,
        kept: IntArray,
    ) -> FamilyInformation:
        """Return what the children, or their subtrees, would measure."""
        plan = self.plan
        if step.shapes is not None and self.terms is not None and plan.information == "tree":
            histograms = np.zeros((len(truths), plan.schema.cells))
            histograms[:, cells] = truths
            below = step.shapes.simulated(histograms, self.terms.decomposition, rng)
            return SubtreeInformation(self.terms, below, cells[kept])
        items = plan.at(step.level)
        queries = [item.query for item in items]
        variances = [item.mechanism.variance for item in items]
        values = [
            np.rint(
                _counts(query, cells, truths)
                + rng.normal(0.0, np.sqrt(variance), (len(truths), query.cells))
            )
            for query, variance in zip(queries, variances, strict=True)
        ]
        observed = Observations.of_queries(queries, variances)
        return LevelInformation.of(observed, cells[kept], np.concatenate(values, axis=1))

    def _facts(self, step: _RehearsedStep, cells: IntArray, truths: IntArray) -> LevelFacts:
        """Return the facts from files, with what invariants of this level and below would fix."""
        plan, bounds, groups = self.plan, list(step.facts.bounds), list(step.facts.groups)
        below = plan.levels[plan.levels.index(step.level) :]
        for query in dict.fromkeys(i.query for i in plan.invariants if i.level in below):
            exact = _counts(query, cells, truths).astype(np.int32)
            bounds.append(Bounds(query, exact, exact))
        for query, holders in step.groups:
            counts = _counts(query, cells, truths)
            for holder in np.unique(holders):
                units = np.flatnonzero(holders == holder)
                together = counts[units].sum(axis=0)
                groups.extend(
                    GroupBound(query, cell, units, int(number), int(number), query.name)
                    for cell, number in enumerate(together)
                )
        return LevelFacts(tuple(bounds), tuple(groups))


def _counts(query: Query, cells: IntArray, histograms: IntArray) -> IntArray:
    """Return a query of histograms over some cells: histograms × cells of the query."""
    group = query.cell_of[cells]
    counts = np.zeros((len(histograms), query.cells), np.int64)
    for child, histogram in enumerate(histograms):
        counts[child] = np.bincount(group[group >= 0], histogram[group >= 0], query.cells)
    return counts


def _split(
    rng: np.random.Generator, truth: IntArray, children: int, alone: bool, segregated: bool
) -> IntArray:
    """Divide the people of a unit among its children; `alone`: units side by side at the top.

    Children have the same mix of people, or are `segregated`: most cells occur in few of them.
    """
    if children == 1:
        return truth[None, :]
    if segregated:
        weights = rng.gamma(0.05, size=(len(truth), children)) + 1e-9
        shares = weights / weights.sum(axis=1, keepdims=True)
        return np.asarray(rng.multinomial(truth, shares).T, np.int64)
    weights = rng.gamma(0.5, size=children) + 1e-6
    if alone:  # every unit at the top has people of its own
        return np.asarray(rng.poisson(np.outer(weights / weights.sum(), truth)), np.int64)
    return np.asarray(rng.multinomial(truth, weights / weights.sum()).T, np.int64)


def _fitted_to_facts(
    truths: IntArray, parent: IntArray | None, cells: IntArray, step: _RehearsedStep
) -> IntArray:
    """Move simulated people as little as the facts from files require."""
    if not step.facts.bounds and not step.facts.groups:
        return truths
    kept = np.arange(len(cells)) if parent is None else np.flatnonzero(parent)
    above = None if parent is None else parent[kept]
    limits = step.facts.limits(0, len(truths), cells[kept], above)
    refuse_infeasible(
        above,
        limits.totals,
        limits.allowed,
        limits.rows,
        children=[str(number) for number in range(len(truths))],
        cell_names=lambda inside: f"{len(inside):,} cells",
        parent_name=step.level,
        cells=len(kept),
    )
    each = Squares(np.arange(len(kept))[None, :], np.ones(1))
    h, _ = solve_family(
        each, truths[:, kept], above, limits.totals, allowed=limits.allowed, rows=limits.rows
    )
    result = np.zeros(truths.shape, np.int64)
    result[:, kept] = round_family(
        h, above, limits.totals, allowed=limits.allowed, rows=limits.rows
    )
    return result


def _hardest_paths(
    plan: Plan, geography: Geography, subtrees: _PlannedSubtrees | None
) -> list[tuple[_RehearsedStep, ...]]:
    """Return paths from top to bottom through each level's widest and most bounded family."""
    visited = plan.measured_levels
    facts = read_facts(plan, geography, None)
    targets: dict[tuple[int, ...], None] = {}
    widths = {}
    for above, level in pairwise(visited):
        parents = geography.ancestors(level, above)
        widths[level] = np.bincount(parents, minlength=geography.units(above))
        hardest = {int(widths[level].argmax())}
        bound = np.zeros(geography.units(level))
        for item in facts[level].bounds:
            bound += ((item.lower > 0) | (item.upper < UNBOUNDED)).sum(axis=1)
        if bound.any():
            weight = np.bincount(parents, bound, geography.units(above))
            hardest.add(int(weight.argmax()))
        for unit in hardest:
            targets[_path_through(geography, visited, above, unit, widths)] = None
    if not targets:
        targets[(0,)] = None
    return [_steps(plan, geography, facts, subtrees, path) for path in targets]


def _path_through(
    geography: Geography,
    visited: Sequence[str],
    above: str,
    unit: int,
    widths: dict[str, IntArray],
) -> tuple[int, ...]:
    """Return the unit to enter at each level above the lowest, on a path through one of them."""
    position = visited.index(above)
    path = [0] * (len(visited) - 1)
    for index in range(position + 1):
        ancestors = geography.ancestors(above, visited[index]) if index < position else None
        path[index] = unit if ancestors is None else int(ancestors[unit])
    # Below it, go to the unit with the most children.
    for index in range(position + 1, len(visited) - 1):
        parents = geography.ancestors(visited[index], visited[index - 1])
        first, last = np.searchsorted(parents, [path[index - 1], path[index - 1] + 1])
        if visited[index + 1] in widths:
            path[index] = int(first + widths[visited[index + 1]][first:last].argmax())
        else:
            path[index] = int(first)
    return tuple(path)


def _steps(
    plan: Plan,
    geography: Geography,
    facts: dict[str, LevelFacts],
    subtrees: _PlannedSubtrees | None,
    path: Sequence[int],
) -> tuple[_RehearsedStep, ...]:
    """Return the families along a path."""
    visited = plan.measured_levels
    steps = []
    for index, level in enumerate(visited):
        if index:
            parents = geography.ancestors(level, visited[index - 1])
            start, stop = np.searchsorted(parents, [path[index - 1], path[index - 1] + 1]).tolist()
        elif facts[level].groups or _handed_down(plan, level):
            start, stop = 0, geography.units(level)
        else:
            start, stop = path[0], path[0] + 1
        then = path[index] - start if index < len(visited) - 1 else 0
        groups = tuple(
            (query, geography.ancestors(level, unmeasured)[start:stop])
            for unmeasured, query in _handed_down(plan, level)
        )
        known = facts[level].slice(start, stop)
        shapes = None
        if subtrees is not None and from_below(plan, level):
            depth = geography.index(level)
            shapes = SubtreeShapes.of(subtrees.tree, subtrees.rungs, depth, start, stop)
        steps.append(_RehearsedStep(level, start, stop, then, known, groups, shapes))
    return tuple(steps)


def _handed_down(plan: Plan, level: str) -> list[tuple[str, Query]]:
    """Return the invariants of unmeasured levels, which this level must meet as sums of siblings."""
    between = []
    for above in reversed(plan.levels[: plan.levels.index(level)]):
        if above in plan.measured_levels:
            break
        between.append(above)
    return [(item.level, item.query) for item in plan.invariants if item.level in between]
