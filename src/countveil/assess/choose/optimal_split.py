"""The best plan for the tables that matter: how to split a budget over levels and queries.

The errors of the best unbiased estimates from the whole tree are convex in the weights of the measured
queries, so that the least error under a budget can be found and proved. No record is read.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from countveil.assess.choose.candidate_queries import with_candidates
from countveil.assess.choose.convex_split import ConvexProgram, Solution, solve
from countveil.assess.choose.risk_rows import RiskRows, largest_precision
from countveil.assess.choose.share_digits import decimals, short_shares
from countveil.assess.intruder.ladder import LevelRisk, risk_by_level
from countveil.base import words
from countveil.base.numerics import FloatArray, decimal
from countveil.errors import InputError
from countveil.plan.accuracy_target import EXAMPLES, Target
from countveil.plan.certified_budget import without_certificate
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan
from countveil.plan.workload import TOTAL
from countveil.tree.observed_levels import Observed
from countveil.tree.query_errors import KindErrors, errors_of_queries
from countveil.tree.tree_shape import Tree, tree_of
from countveil.tree.variance_model import MeanVariance, VarianceModel

Minimise = Literal["error", "worst", "rho", "risk"]

_DIGITS = 4  # of a budget
_RISKY = 2.5  # how much worse passing a limit on risk is than losing as much accuracy
_ENDLESS = 1e6  # times the plan's budget: no limit
_ADJUSTMENTS, _SHORT = 8, 0.005  # of the risk to its limit, and how far below it may end
_ROUNDS, _GAIN = 8, 1e-4  # of tangents, and the relative gain that is worth another
_OVER = 1.001  # how far rounded shares may pass a limit on other tables
_USABLE = 0.99  # of a budget within which risk is weighed: rounding takes the rest
_TIGHT = 0.02  # how near a limit is what stops a plan
_LEAST = 1e-9  # of the largest weight: what a query that gets nothing still weighs in the model


@dataclass(frozen=True, eq=False, slots=True)
class BestSplit:
    """A plan with the best split that was found, and how good it is at most.

    Attributes
    ----------
    plan : Plan
        The plan with its new budget; shares have few digits.
    proof : {"proved", "local"}
        Whether `gap` holds for all splits. A limit on risk that stops the plan is not convex: then it
        holds for those near enough to keep tangents of the limit, and the optimum is local.
    gap : float
        By how much, relative to it, a split can be better than the one before its shares were rounded:
        a bound from convex duality.
    rounding_loss : float
        How much of the figure the rounded shares lose.
    minimise : {"error", "worst", "rho", "risk"}
        What was minimised.
    before, after : float
        That figure for the plan before and after: the weighted mean squared error in units of the
        margins, the largest ratio of a standard error to its unit, or the rho or the risk at which
        every margin is reached.
    table : pyarrow.Table
        One row per target: standard error and margin of error, before and after, the margin asked for,
        and whether it is reached.
    shares : pyarrow.Table
        One row per level and query: rho before and after.
    binding : tuple of str
        What stops it from being better, in words.
    upper_bounds : tuple of bool
        Whether `before` and `after` are upper bounds, as risks of narrow noise are.

    """

    plan: Plan
    proof: Literal["proved", "local"]
    gap: float
    rounding_loss: float
    minimise: Minimise
    before: float
    after: float
    table: pa.Table
    shares: pa.Table
    binding: tuple[str, ...]
    upper_bounds: tuple[bool, bool] = (False, False)

    def __repr__(self) -> str:
        return (
            f"<BestSplit of {self.plan.title!r} by {self.minimise}: {self.before:.4g} before, "
            f"{self.after:.4g} after, {self.plan.cost}; no split is better by more than "
            f"{self.gap:.1e} + {self.rounding_loss:.1e}>"
        )


def best_split(
    plan: Plan,
    targets: Sequence[Target | str],
    *,
    minimise: Minimise = "error",
    others: float = 3.0,
    propose: bool = False,
    max_risk: float | None = None,
    geography: Geography | None = None,
    progress: Callable[[float], None] = lambda gap: None,
) -> BestSplit:
    """Return the plan with the least error for some tables, or the least budget for some margins.

    Parameters
    ----------
    plan : Plan
        The plan, with a budget in rho. The queries that it measures at each level are kept; a query
        that is not worth its budget gets none.
    targets : sequence of Target or str
        The tables that matter, as records or as text that `Target.parse` reads.
    minimise : {"error", "worst", "rho", "risk"}
        With the plan's budget, the weighted mean squared error in units of the margins or of today's
        errors ("error"), or the largest of them ("worst"); or the budget at which every margin is
        reached ("rho"); or, within the plan's budget, the risk of the whole release at which every
        margin is reached ("risk").
        Where margins are to be reached, a table without one keeps today's error.
    others : float
        How much the other tables that the plan publishes may lose: at each level, their mean squared
        error relative to today's stays within the square of this. Infinite: they may lose everything.
    propose : bool
        Whether to choose queries, too, from all margins of the attributes that the targets and the
        plan's queries use.
    max_risk : float, optional
        The largest risk to accept, for the whole release and the intruder of the plan; by default the
        limit that the plan states, if any. Not with "risk", which finds the least.
    geography : Geography, optional
        The places; by default those of the plan's crosswalk.
    progress : callable
        Called with the relative gap from time to time.

    Returns
    -------
    BestSplit
        The plan, the certificate and tables of errors and shares.

    Examples
    --------
    >>> best = plan.optimised([Target("TOTAL", level="block", margin=5)])  # doctest: +SKIP
    >>> best.plan, best.gap, best.table  # doctest: +SKIP

    """
    aims = [Target.parse(item) if isinstance(item, str) else item for item in targets]
    _refuse_odd(plan, aims, minimise, others, max_risk)
    places = plan.places() if geography is None else geography
    if places is None:
        raise InputError(
            f"{plan.name}: splitting a budget needs the places of the plan; add geography.path"
        )
    if minimise == "risk":
        problem = _Problem.of(plan, aims, "rho", others, propose, tree_of(places))
        return _with_least_risk(problem, places, progress)
    problem = _Problem.of(plan, aims, minimise, others, propose, tree_of(places))
    limit = plan.intruder.limit if max_risk is None else max_risk
    free = problem.finished(solve(problem.program(), problem.start(), progress=progress))
    if limit is None or _worst(free.plan, plan, places).marginal_risk <= limit:
        return free
    return _within_limit(problem, limit, places, progress)


def worst_rung(
    plan: Plan, level: str | None = None, *, geography: Geography | None = None
) -> LevelRisk:
    """Return the largest risk of a plan over its priors, for someone who sees the whole release.

    The intruder knows everyone else in a unit of the level, by default the one that the plan says: a
    split may leave the lowest level without a budget, and does not change whom it is judged by. Where
    exactly published counts give the answer at any budget, it is the risk of noisy counts alone.
    """
    levels = (level or plan.judged_level,)
    rungs = risk_by_level(
        plan, levels=levels, geography=geography, invariants=True, decisions=False
    )
    if any(rung.settled for rung in rungs):
        rungs = risk_by_level(plan, levels=levels, geography=geography, decisions=False)
    return max(rungs, key=lambda rung: rung.marginal_risk)


def _worst(other: Plan, plan: Plan, places: Geography) -> LevelRisk:
    """Return the largest risk of another split, judged by the level of the plan that was split."""
    return worst_rung(other, plan.judged_level, geography=places)


def _within_limit(
    problem: _Problem, limit: float, places: Geography, progress: Callable[[float], None]
) -> BestSplit:
    """Return the best split that was found under a limit on risk.

    Precisions stay within what normal noise may have, times a factor that is adjusted until the risk
    of the rounded plan is within the limit, and close to it.
    """
    plan = problem.plan
    risk = RiskRows.of(plan, problem.tree, problem.model.weights)
    precision = largest_precision(limit, tuple(plan.intruder.priors))
    factor, best = 1.0, None
    for _ in range(_ADJUSTMENTS):
        split = _under_tangents(problem, risk, precision * factor, limit, progress)
        reached = _worst(split.plan, plan, places).marginal_risk
        if reached <= limit and (best is None or split.after <= best.after):
            best = split
        if (1 - _SHORT) * limit <= reached <= limit:
            break
        # Log risk is close to linear in the precision.
        step = math.log(limit) / math.log(max(reached, 1.0 + 1e-6))
        factor *= step * (1 - 0.25 * _SHORT)
    if best is None:
        raise InputError(
            f"{plan.name}: no split was found that keeps the risk within {limit:g}; raise the limit, "
            f"or lower the budget"
        )
    return best


def _with_least_risk(
    problem: _Problem, places: Geography, progress: Callable[[float], None]
) -> BestSplit:
    """Return the split of least risk that was found among those that reach every margin.

    The precision that sets the risk is concave in the split, so its tangents are minimised, again and
    again from the last solution: it never grows on the way.
    """
    plan, whole = problem.plan, problem.spent.sum()
    risk = RiskRows.of(plan, problem.tree, problem.model.weights)
    split = solve(problem.program(), problem.start(), progress=progress).x
    room = float(_USABLE * whole / split.sum())
    if room < 1 + _GAIN:
        raise InputError(
            f"{plan.name}: the margins need rho = {float(plan.cost.rho) / room:.4g}, and the plan has "
            f"{float(plan.cost.rho):.4g}; raise its budget, or the margins"
        )
    split = split * math.sqrt(min(room, 1.2))
    least = risk.largest(problem.rate * split)
    for _ in range(_ROUNDS):
        tangents = risk.tangents(problem.rate * split / least)
        rows = tangents.rows * problem.rate / least
        solution = solve(problem.risk_program(rows, tangents.limits), split, progress=progress)
        split = solution.x
        last, least = least, risk.largest(problem.rate * split)
        if least > (1 - _GAIN) * last:
            break

    def passed(other: FloatArray) -> float:
        return risk.largest(problem.rate * other) * problem.figure(other) / least - 1

    best = problem.finished(solution, passed=passed)
    after, as_before = _worst(best.plan, plan, places), None
    if math.isfinite(best.before):
        as_before = _worst(plan.with_budget(_rounded_up(Fraction(best.before))), plan, places)
    return replace(
        best,
        minimise="risk",
        proof="local",
        before=math.inf if as_before is None else as_before.marginal_risk,
        after=after.marginal_risk,
        upper_bounds=(as_before is not None and as_before.upper_bound, after.upper_bound),
    )


def _under_tangents(
    problem: _Problem,
    risk: RiskRows,
    precision: float,
    limit: float,
    progress: Callable[[float], None],
) -> BestSplit:
    """Solve under tangents of the limit, move them to the solution, and repeat while that gains."""
    split = problem.start_within(risk, precision)
    last = math.inf
    for _ in range(_ROUNDS):
        tangents = risk.tangents(problem.rate * split / precision)
        rows = tangents.rows * problem.rate / precision
        solution = solve(problem.program(rows, tangents.limits), split, progress=progress)
        split = solution.x
        if last - solution.figure < _GAIN * abs(solution.figure):
            break
        last = solution.figure

    def passed(other: FloatArray) -> float:
        return risk.largest(problem.rate * other) / precision - 1

    return problem.finished(solution, risk_limit=limit, passed=passed)


def _refuse_odd(
    plan: Plan,
    targets: Sequence[Target],
    minimise: Minimise,
    others: float,
    max_risk: float | None,
) -> None:
    if not others > 1:
        raise InputError(
            f"others: {others:g} is not possible; give a number above 1, as how many times as large as "
            f"today the errors of other tables may be"
        )
    if minimise not in get_args(Minimise):
        raise InputError(
            f"minimise: {minimise!r} is not possible; choose error, worst, rho or risk"
        )
    if minimise == "risk" and max_risk is not None:
        raise InputError("minimise: the least risk is looked for, so give no limit on it")
    if not targets:
        raise InputError(f"targets: none was given; name a table, for example {EXAMPLES}")
    if plan.cost.currency != "rho":
        raise InputError(
            f"{plan.name}: budgets are split in rho, and this one is in epsilon without delta; give it "
            f"in rho, or add delta"
        )
    for item in targets:
        if item.level not in plan.levels:
            raise InputError(
                f"target {item.name!r}: unknown level {item.level!r}; choose from "
                f"{', '.join(plan.levels)}"
            )


@dataclass(frozen=True, eq=False, slots=True)
class _Problem:
    """Variances of the targets over their squared units, and limits, by what each query gets.

    The first functions are of targets: `target_of` says of which. Those after them stay within 1: one
    for the other tables of each of the `other_levels`.
    """

    plan: Plan
    targets: tuple[Target, ...]
    minimise: Minimise
    others: float
    tree: Tree
    model: VarianceModel
    target_of: tuple[int, ...]
    other_levels: tuple[str, ...]
    spent: FloatArray
    rate: FloatArray

    @classmethod
    def of(
        cls,
        plan: Plan,
        targets: Sequence[Target],
        minimise: Minimise,
        others: float,
        propose: bool,
        tree: Tree,
    ) -> _Problem:
        """Return the problem; refuse targets that no split changes, or that nothing determines."""
        queries = [plan.schema.query(item.query) for item in targets]
        asking = with_candidates(plan, queries) if propose else plan
        observed = Observed.planned(asking)
        parts, target_of = _aims(plan, asking, tree, targets, summed=minimise == "error")
        rest = _other_aims(plan, tree, targets, others)
        model = VarianceModel.of(observed, tree, [*parts, *rest.values()])
        allocations = {(item.level, item.query.name): item for item in asking.allocations}
        items = [allocations[weight] for weight in model.weights]
        variances = np.array([_gaussian_variance(plan, item.mechanism) for item in items])
        rate = 1 / (variances * np.array([float(item.cost.amount) for item in items]))
        today = {(item.level, item.query.name): item.cost.amount for item in plan.allocations}
        amounts = np.array([float(today.get(weight, 0)) for weight in model.weights])
        return cls(
            plan,
            tuple(targets),
            minimise,
            others,
            tree,
            model,
            target_of,
            tuple(rest),
            amounts,
            rate,
        )

    @property
    def limits(self) -> int:
        """The number of the first function that is not of a target."""
        return self.model.aims - len(self.other_levels)

    def start(self) -> FloatArray:
        """Return a split with room in every limit: today's, mixed with equal parts."""
        mixed = 0.5 * (1 - 1 / self.others**2) if math.isfinite(self.others) else 0.5
        equal = self.spent.sum() / len(self.spent)
        split = (1 - mixed) * self.spent + 0.9 * mixed * equal
        if self.minimise == "rho":
            split = split * (1.1 * float(self.values(split).max()))
        return np.asarray(split)

    def values(self, weights: FloatArray) -> FloatArray:
        """Return what is minimised, for what each query gets."""
        floored = np.maximum(weights, _LEAST * weights.max())
        return self.model.values(self.rate * floored)

    def gradients(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return values and gradients."""
        values, gradients = self.model.gradients(self.rate * weights)
        return values, gradients * self.rate

    def curvature(self, weights: FloatArray, importance: FloatArray) -> FloatArray:
        """Return the Hessian of a sum of values, each times its importance."""
        whole = self.model.curvature(self.rate * weights, importance)
        return whole * self.rate * self.rate[:, None]

    def start_within(self, risk: RiskRows, precision: float) -> FloatArray:
        """Return a split with room in every limit, that on risk included."""
        split = self.start()
        if self.minimise == "rho":
            return self._reaching_margins(risk, precision)
        split = split * min(1.0, 0.95 * precision / risk.largest(self.rate * split))
        if float(self.values(split)[self.limits :].max(initial=0.0)) >= 1:
            raise InputError(
                f"{self.plan.name}: scaled down to this limit on risk, other tables lose more than a "
                f"factor of {self.others:g}; allow them more (others), or raise the limit"
            )
        return split

    def _reaching_margins(self, risk: RiskRows, precision: float) -> FloatArray:
        """Return a split within the limit on risk that reaches every margin, if one is found."""
        worst = replace(self, minimise="worst")
        split = worst.start_within(risk, precision)
        for _ in range(_ROUNDS):
            tangents = risk.tangents(self.rate * split / precision)
            rows = tangents.rows * self.rate / precision
            solution = solve(worst.program(rows, tangents.limits, free_budget=True), split)
            split = solution.x
            if solution.figure < 0.99:
                return split
        raise InputError(
            f"{self.plan.name}: no split was found that keeps the limit on risk and reaches every "
            f"margin; the nearest misses one by a factor of {math.sqrt(solution.figure):.2g}"
        )

    def program(
        self,
        rows: FloatArray | None = None,
        limits: FloatArray | None = None,
        *,
        free_budget: bool = False,
    ) -> ConvexProgram:
        """Return the convex program, with further rows @ split <= limits."""
        functions, budget = self.model.aims, self.spent.sum()
        targets = np.arange(functions) < self.limits
        free = np.ones(functions)
        shared = np.zeros(functions)
        if self.minimise == "error":
            free[targets] = np.inf
        elif self.minimise == "worst":
            free[targets], shared[targets] = 0.0, 1.0
        by_budget = self.minimise == "rho"
        more = np.zeros((0, len(self.spent))) if rows is None else rows
        most = np.zeros(0) if limits is None else limits
        own = 0.0 if by_budget else (_ENDLESS if free_budget else 1.0)
        return ConvexProgram(
            self,
            targets.astype(float) if self.minimise == "error" else None,
            free,
            shared,
            np.concatenate([np.ones((1, len(self.spent))) / budget, more]),
            np.concatenate([[own], most]),
            np.concatenate([[float(by_budget)], np.zeros(len(most))]),
        )

    def risk_program(self, rows: FloatArray, limits: FloatArray) -> ConvexProgram:
        """Return the program that minimises the largest precision, given its tangents."""
        program = self.program(rows, limits)
        budget, none = np.full(1, _USABLE), np.zeros(1)  # what adds no risk may get all of it
        return replace(
            program,
            limits=np.concatenate([budget, limits - 1]),
            slopes=np.concatenate([none, np.ones(len(limits))]),
        )

    def figure(self, split: FloatArray) -> float:
        """Return what is minimised, for a split of the plan's budget.

        For "rho" it is the multiple of the budget at which all limits are kept.
        """
        values = self.values(split)
        own = float(values[: self.limits].max())
        rest = float(values[self.limits :].max(initial=0.0))
        if self.minimise == "rho":
            return max(own, rest)
        return own if rest <= _OVER else own * rest

    def finished(
        self,
        solution: Solution,
        *,
        risk_limit: float | None = None,
        passed: Callable[[FloatArray], float] = lambda split: 0.0,
    ) -> BestSplit:
        """Round the shares, set the budget, and compare the two plans.

        `passed` says by how much a split passes a limit on risk, relatively.
        """
        used = 1.0  # of the budget: a limit on risk may stop before it
        if risk_limit is not None and self.minimise != "rho":
            used = float(solution.x.sum() / self.spent.sum())
        split = solution.x * (self.spent.sum() / solution.x.sum())
        levels = {level: n for n, level in enumerate(self.plan.measured_levels)}
        groups = [levels[weight.level] for weight in self.model.weights]
        least = self.figure(split)

        def loss(other: FloatArray) -> float:
            return max(self.figure(other) / least - 1, _RISKY * passed(other * used))

        shares = short_shares(split, groups, loss)
        rounded = np.array([float(a * b) for a, b in shares]) * self.spent.sum()
        figure, before = self.figure(rounded), self.figure(self.spent)
        if not np.isfinite(self.errors(self.plan)).all():
            before = math.inf  # today's queries do not determine every target
        budget = self.plan.cost.amount
        if self.minimise == "rho":
            before, after = float(budget) * before, float(_rounded_up(budget * Fraction(figure)))
            budget = _rounded_up(budget * Fraction(figure))
        else:
            after = figure
        if used < 1 - 1e-6:
            budget, after = _rounded_down(budget * Fraction(used)), after / used
        if self.minimise == "worst":
            before, after = math.sqrt(before), math.sqrt(after)
        plan = self.changed(shares, budget)
        return BestSplit(
            plan,
            "local" if risk_limit is not None else "proved",
            solution.gap,
            max(0.0, figure / least - 1),
            self.minimise,
            before,
            after,
            self.compared(plan),
            self.amounts(plan),
            self.binding(split, plan, risk_limit),
        )

    def changed(self, shares: Sequence[tuple[Fraction, Fraction]], budget: Fraction) -> Plan:
        """Return the plan with other shares and another budget."""
        document: dict[str, Any] = copy.deepcopy(dict(self.plan.document))
        section = document["budget"] = without_certificate(document["budget"])
        levels = dict.fromkeys(self.plan.levels, "0")
        queries: dict[str, dict[str, str]] = {}
        for weight, (level, own) in zip(self.model.weights, shares, strict=True):
            levels[weight.level] = decimals(level)
            if level and own:
                queries.setdefault(weight.level, {})[weight.query] = decimals(own)
        section["levels"], section["queries"] = levels, queries
        section.pop("epsilon", None)
        section["rho"] = decimal(budget)
        return self.plan.with_document(document)

    def errors(self, plan: Plan) -> list[float]:
        """Return the standard error of each target: of all its cells, or of the worst one."""
        return errors_of_targets(plan, self.targets, self.tree, worst=self.minimise != "error")

    def compared(self, plan: Plan) -> pa.Table:
        """Return the errors of the targets, before and after."""
        before, after = self.errors(self.plan), self.errors(plan)
        rows = list(zip(self.targets, before, after, strict=True))
        return pa.table(
            {
                "level": [item.level for item in self.targets],
                "query": [item.query for item in self.targets],
                "weight": [item.weight for item in self.targets],
                "standard_error_before": before,
                "standard_error_after": after,
                "confidence": [item.confidence for item in self.targets],
                "margin_before": [item.margin_at(error) for item, error, _ in rows],
                "margin_after": [item.margin_at(error) for item, _, error in rows],
                "margin_wanted": pa.array([item.margin for item in self.targets], pa.float64()),
                "reached": pa.array(
                    [
                        None
                        if item.margin is None
                        else item.margin_at(error) <= item.margin * (1 + 1e-9)
                        for item, _, error in rows
                    ],
                    pa.bool_(),
                ),
            }
        )

    def amounts(self, plan: Plan) -> pa.Table:
        """Return what each query gets, before and after."""
        after = {(item.level, item.query.name): item.cost.amount for item in plan.allocations}
        before = {(item.level, item.query.name): item.cost.amount for item in self.plan.allocations}
        return pa.table(
            {
                "level": [weight.level for weight in self.model.weights],
                "query": [weight.query for weight in self.model.weights],
                "rho_before": [float(before.get(weight, 0)) for weight in self.model.weights],
                "rho_after": [float(after.get(weight, 0)) for weight in self.model.weights],
            }
        )

    def binding(self, split: FloatArray, plan: Plan, risk_limit: float | None) -> tuple[str, ...]:
        """Say what stops the plan from being better."""
        scale = float(plan.cost.amount) / float(self.plan.cost.amount)
        values = self.values(split * scale)
        tight = [
            f"the other tables of {level}, which may lose a factor of {self.others:g}"
            for level, value in zip(self.other_levels, values[self.limits :], strict=True)
            if value > 1 - _TIGHT
        ]
        if risk_limit is not None:
            tight.insert(
                0,
                f"the limit of {risk_limit:g} on the risk of someone who knows everyone else in "
                f"{words.article(plan.judged_level)}",
            )
        if self.minimise != "rho" and scale == 1:
            tight.insert(0, f"the budget of {plan.cost}")
        if self.minimise == "error":
            return tuple(tight)
        kind = "margin" if self.minimise == "rho" else "error"
        most = float(values[: self.limits].max())
        names = [
            self.targets[number].name
            for number, value in zip(self.target_of, values[: self.limits], strict=True)
            if value > (1 - _TIGHT) * most
        ]
        return (*(f"the {kind} of {name}" for name in dict.fromkeys(names)), *tight)


def errors_of_targets(
    plan: Plan, targets: Sequence[Target], tree: Tree, *, worst: bool = False
) -> list[float]:
    """Return the standard error of each target, a root mean square over units and cells.

    `worst` takes the cells with the largest error instead of all.
    """
    queries = [plan.schema.query(item.query) for item in targets]
    errors = errors_of_queries(Observed.planned(plan), tree, queries)
    return [
        _overall(errors[query], tree, plan.levels.index(target.level), worst)
        for target, query in zip(targets, queries, strict=True)
    ]


def _aims(
    plan: Plan, asking: Plan, tree: Tree, targets: Sequence[Target], *, summed: bool
) -> tuple[list[list[MeanVariance]], tuple[int, ...]]:
    """Return the functions of the targets, and the target of each: one sum, or one per kind of cell.

    A target that the plan does not determine, but one that asks more does, is measured in its errors.
    """
    queries = [plan.schema.query(item.query) for item in targets]
    today = errors_of_queries(Observed.planned(plan), tree, queries)
    possible = today
    if asking is not plan:
        possible = errors_of_queries(Observed.planned(asking), tree, queries)
    parts: list[list[MeanVariance]] = []
    target_of: list[int] = []
    for number, (target, query) in enumerate(zip(targets, queries, strict=True)):
        errors = today[query]
        if errors is None:
            raise InputError(
                f"target {target.name!r}: has too many kinds of cells to weigh; name a table of fewer "
                f"attributes"
            )
        by_kind = _mean_squares(errors, tree, plan.levels.index(target.level))
        if not np.isfinite(by_kind).all() and (larger := possible[query]) is not None:
            errors, by_kind = larger, _mean_squares(larger, tree, plan.levels.index(target.level))
        if not np.isfinite(by_kind).all():
            raise InputError(
                f"target {target.name!r}: the plan does not measure enough to determine it; add "
                f"{query.name} to budget.queries"
            )
        if not (by_kind > 0).any():
            raise InputError(
                f"target {target.name!r}: is published exactly, so no budget changes it; name a table "
                f"that has noise"
            )
        today_square = float(
            by_kind @ errors.cells / errors.cells.sum() if summed else by_kind.max()
        )
        share = target.weight / (target.standard_error or math.sqrt(today_square)) ** 2
        kinds = [None] if summed else np.flatnonzero(by_kind > 0).tolist()
        parts += [[MeanVariance(target.level, query, kind, share)] for kind in kinds]
        target_of += [number] * len(kinds)
    if summed:
        return [[part for aim in parts for part in aim]], tuple(target_of)
    return parts, tuple(target_of)


def _other_aims(
    plan: Plan, tree: Tree, targets: Sequence[Target], others: float
) -> dict[str, list[MeanVariance]]:
    """Return, by level, the mean square of published tables that no target names, over its limit."""
    if not math.isfinite(others):
        return {}
    named = {(item.level, plan.schema.query(item.query).name) for item in targets}
    queries = dict.fromkeys([plan.schema.query(TOTAL), *(table.query for table in plan.tables)])
    today = errors_of_queries(Observed.planned(plan), tree, list(queries))
    result = {}
    for level in plan.measured_levels:
        means = {}
        for query, errors in today.items():
            if errors is not None and (level, query.name) not in named:
                by_kind = _mean_squares(errors, tree, plan.levels.index(level))
                mean = float(by_kind @ errors.cells / errors.cells.sum())
                if 0 < mean < math.inf:
                    means[query] = mean
        if means:
            result[level] = [
                MeanVariance(level, query, None, 1 / (mean * len(means) * others**2))
                for query, mean in means.items()
            ]
    return result


def _mean_squares(errors: KindErrors, tree: Tree, level: int) -> FloatArray:
    """Return the mean squared error of each kind of cell over the units of a level."""
    units = np.bincount(tree.positions[level].of_unit)
    return np.asarray(np.average(errors.levels[level] ** 2, axis=0, weights=units))


def _overall(errors: KindErrors | None, tree: Tree, level: int, worst: bool) -> float:
    assert errors is not None
    by_kind = _mean_squares(errors, tree, level)
    mean = by_kind.max() if worst else by_kind @ errors.cells / errors.cells.sum()
    return math.sqrt(mean)


def _gaussian_variance(plan: Plan, mechanism: Any) -> float:
    variance = mechanism.gaussian_variance
    if variance is None:
        raise InputError(
            f"{plan.name}: its noise is {mechanism.name}, and budgets are split for Gaussian noise; "
            f"remove budget.mechanism"
        )
    return float(variance)


def _rounded_down(value: Fraction) -> Fraction:
    places = _DIGITS - 1 - math.floor(math.log10(float(value)))
    scale = Fraction(10) ** places
    return Fraction(math.floor(value * scale)) / scale


def _rounded_up(value: Fraction) -> Fraction:
    places = _DIGITS - 1 - math.floor(math.log10(float(value)))
    scale = Fraction(10) ** places
    return Fraction(math.ceil(value * scale)) / scale
