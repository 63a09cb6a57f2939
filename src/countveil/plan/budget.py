"""The budget of a plan, and the shares of its levels and queries."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from countveil.base.numerics import shortened
from countveil.errors import InputError, PlanError
from countveil.noise.law import Mechanism
from countveil.noise.mechanisms import calibrate, mechanism_named
from countveil.plan.attributes import choices
from countveil.plan.plan_file import PlanFile
from countveil.plan.workload import Neighbors, Query, Schema
from countveil.privacy.costs import ZCDP, ApproxDP, Cost, PureDP, Sensitivity

_LARGEST_BUDGET = 10_000
_SMALLEST_DELTA = Fraction(1, 10**300)  # what a float can hold
_LARGEST_CERTIFIED = 1_000  # epsilon
_MOST_DIGITS = 1_000  # of the common denominator
LARGEST_DEVIATION = 2**24  # so that a count of up to 2**30 and its noise fit 32 bits


@dataclass(frozen=True, slots=True)
class Allocation:
    """The cost of one query of one level, its sensitivity and its noise."""

    level: str
    query: Query
    cost: Cost
    sensitivity: Sensitivity
    mechanism: Mechanism


def noise_is_gaussian(allocations: Iterable[Allocation]) -> bool:
    """Return whether all noise is discrete Gaussian, so that losses add up to an effective rho."""
    return all(item.mechanism.gaussian_variance is not None for item in allocations)


def whole_budget(checked: PlanFile) -> tuple[Cost, Fraction]:
    """Return the budget of a plan, and the delta at which epsilon is reported.

    Under certified accounting it is the stated rho, or without one what epsilon and delta convert to.
    """
    budget = checked.budget
    if budget.accounting == "certified":
        _refuse_half_a_target(checked)
    elif (budget.rho is None) == (budget.epsilon is None):
        raise PlanError('budget: give exactly one of rho and epsilon, for example rho = "1"')
    amount = budget.rho if budget.rho is not None else budget.epsilon
    assert amount is not None
    _refuse_odd_amount(amount)
    delta = budget.delta if budget.delta is not None else Fraction(1, 10**10)
    if not 0 < delta < 1:
        raise PlanError(
            f"budget.delta: {shortened(delta)} is not allowed; it must be between 0 and 1"
        )
    if delta < _SMALLEST_DELTA:
        raise PlanError(
            "budget.delta: below 1e-300, the smallest that is supported; choose a larger one, such as "
            '"1e-10"'
        )
    if budget.rho is not None:
        return ZCDP(amount), delta
    if budget.delta is not None:
        return ApproxDP(amount, delta).zcdp, delta
    return PureDP(amount), delta


def _refuse_half_a_target(checked: PlanFile) -> None:
    budget = checked.budget
    if budget.epsilon is None or budget.delta is None:
        raise PlanError(
            'budget.accounting: "certified" needs epsilon and delta, for example epsilon = "17.16" and '
            'delta = "1e-10"; add them, or remove accounting'
        )
    if budget.epsilon > _LARGEST_CERTIFIED:
        raise PlanError(
            f"budget.epsilon: {shortened(budget.epsilon)} is not allowed with certified accounting; it "
            f"must be at most {_LARGEST_CERTIFIED}"
        )


def _refuse_odd_amount(amount: Fraction) -> None:
    if amount <= 0:
        raise PlanError(f"budget: {shortened(amount)} is not allowed; it must be above 0")
    if amount > _LARGEST_BUDGET:
        raise PlanError(f"budget: above {_LARGEST_BUDGET:,}, which protects no one; lower it")


def allocate(
    checked: PlanFile,
    schema: Schema,
    levels: tuple[str, ...],
    cost: Cost,
    neighbors: Neighbors,
    rows: int,
) -> tuple[Allocation, ...]:
    """Divide the budget among the queries of every level; return each with its noise."""
    try:
        kind = mechanism_named(checked.budget.mechanism, cost.currency)
    except InputError as error:
        raise PlanError(f"budget.mechanism: {error}") from None
    shares, tables = checked.budget.levels, checked.budget.queries
    _check_shares(shares, "budget.levels", levels)
    for level in levels:
        if level not in shares:
            raise PlanError(
                f'budget.levels: no share for level {level!r}; add one, or "0" to leave it unmeasured'
            )
    for level in tables:
        if level not in (*levels, "*"):
            raise PlanError(
                f"budget.queries.{level}: unknown level {level!r}; choose from {choices(levels)}"
            )
    allocations = []
    for level in levels:
        if shares[level] == 0:
            continue
        table = tables.get(level, tables.get("*"))
        if table is None:
            raise PlanError(
                f'budget.queries.{level} is missing. Add it, or [budget.queries."*"] for all levels, '
                f'for example with TOTAL = "1".'
            )
        _check_shares(table, f"budget.queries.{level}", None)
        where = f"budget.queries.{level}"
        queries = [query_named(schema, name, where) for name in table]
        refuse_repeats(queries, where)
        for query, share in zip(queries, table.values(), strict=True):
            if share == 0:
                continue
            part = type(cost)(cost.amount * shares[level] * share)
            sensitivity = query.sensitivity(neighbors, rows)
            allocations.append(_allocation(level, query, part, sensitivity, kind))
    _refuse_denominators((item.cost.amount for item in allocations), "budget")
    return tuple(allocations)


def rescale(
    allocations: Sequence[Allocation], amounts: Mapping[str, Fraction]
) -> tuple[Allocation, ...]:
    """Return allocations with other budgets of the levels; queries keep their shares of them."""
    _refuse_odd_amount(sum(amounts.values(), Fraction(0)))
    spent = spent_by_level(allocations)
    result = tuple(
        _allocation(
            item.level,
            item.query,
            type(item.cost)(item.cost.amount * amounts[item.level] / spent[item.level]),
            item.sensitivity,
            type(item.mechanism),
        )
        for item in allocations
    )
    _refuse_denominators((item.cost.amount for item in result), "budget")
    return result


def spent_by_level(allocations: Iterable[Allocation]) -> dict[str, Fraction]:
    """Return what each measured level spends."""
    spent: dict[str, Fraction] = {}
    for item in allocations:
        spent[item.level] = spent.get(item.level, Fraction(0)) + item.cost.amount
    return spent


def _allocation(
    level: str, query: Query, part: Cost, sensitivity: Sensitivity, kind: type[Mechanism]
) -> Allocation:
    mechanism = calibrate(kind, part, sensitivity)
    if not mechanism.variance <= LARGEST_DEVIATION**2:
        raise PlanError(
            f"budget.queries.{level}.{query.name}: the noise would have a standard deviation above "
            f"{LARGEST_DEVIATION:,}, more than any count; give it a larger share, or 0"
        )
    return Allocation(level, query, part, sensitivity, mechanism)


def _refuse_denominators(values: Iterable[Fraction], where: str) -> None:
    """Refuse fractions whose exact sum has too many digits to compute quickly."""
    common = 1
    for value in values:
        common = math.lcm(common, value.denominator)
        if common.bit_length() > _MOST_DIGITS * math.log2(10):
            raise PlanError(
                f"{where}: the common denominator of the shares has more than {_MOST_DIGITS:,} "
                f"digits; write them with the same denominator, such as 1/100"
            )


def _check_shares(
    shares: Mapping[str, Fraction], where: str, known: tuple[str, ...] | None
) -> None:
    for name, share in shares.items():
        if known is not None and name not in known:
            raise PlanError(f"{where}.{name}: unknown level {name!r}; choose from {choices(known)}")
        if share < 0:
            raise PlanError(
                f"{where}.{name}: {shortened(share)} is not allowed; a share must be 0 or more"
            )
    _refuse_denominators(shares.values(), where)
    together = sum(shares.values(), Fraction(0))
    if together != 1:
        raise PlanError(f"{where}: the shares sum to {together}; they must sum to 1")


def refuse_repeats(queries: Sequence[Query], where: str) -> None:
    """Refuse a query that is listed twice, with or without blanks in its name."""
    for name, times in Counter(query.name for query in queries).items():
        if times > 1:
            raise PlanError(f"{where}: {name} is listed {times} times; list it once")


def query_named(schema: Schema, name: str, where: str) -> Query:
    """Return a query of the schema; `where` is the key for messages."""
    try:
        return schema.query(name)
    except PlanError as error:
        raise PlanError(f"{where}: {error}") from error
