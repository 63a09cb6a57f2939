"""The budget of a plan: what may be spent, and how it is shared among levels and queries."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from countveil.errors import PlanError
from countveil.privacy.costs import ZCDP, ApproxDP, Cost, PureDP, Sensitivity
from countveil.schema.attributes import listed
from countveil.schema.plan_file import PlanFile
from countveil.schema.workload import Neighbors, Query, Schema

_LARGEST_BUDGET = 10_000
_SMALLEST_DELTA = Fraction(1, 10**300)  # what a float can hold
_MOST_DIGITS = 1_000  # of a common denominator
LARGEST_DEVIATION = 2**24  # so that a count of up to 2**30 and its noise fit 32 bits


@dataclass(frozen=True, slots=True)
class Allocation:
    """What one query of one level may spend, and how far one person moves it."""

    level: str
    query: Query
    cost: Cost
    sensitivity: Sensitivity


def whole_budget(checked: PlanFile) -> tuple[Cost, Fraction]:
    """Return what may be spent, and the delta to report epsilon at."""
    budget = checked.budget
    if (budget.rho is None) == (budget.epsilon is None):
        raise PlanError("budget: give either rho or epsilon")
    amount = budget.rho if budget.rho is not None else budget.epsilon
    if amount is None or amount <= 0:
        raise PlanError(f"budget: {amount} is not allowed; a budget is above 0")
    if amount > _LARGEST_BUDGET:
        raise PlanError(f"budget: above {_LARGEST_BUDGET:,} it protects nobody; lower it")
    delta = budget.delta if budget.delta is not None else Fraction(1, 10**10)
    if not 0 < delta < 1:
        raise PlanError(f"budget.delta: {delta} is not allowed; it must be between 0 and 1")
    if delta < _SMALLEST_DELTA:
        raise PlanError(
            "budget.delta: below 1e-300 a delta is no chance of anything; choose a larger one, such as "
            '"1e-10"'
        )
    if budget.rho is not None:
        return ZCDP(amount), delta
    if budget.delta is not None:
        return ApproxDP(amount, delta).zcdp, delta
    return PureDP(amount), delta


def allocate(
    checked: PlanFile,
    schema: Schema,
    levels: tuple[str, ...],
    cost: Cost,
    neighbors: Neighbors,
    rows: int,
) -> tuple[Allocation, ...]:
    """Share the budget among the queries of every level, each with its sensitivity."""
    shares, tables = checked.budget.levels, checked.budget.queries
    _check_shares(shares, "budget.levels", levels)
    for level in levels:
        if level not in shares:
            raise PlanError(
                f'budget.levels: no share for level {level!r}; give one, "0" if it is not measured'
            )
    for level in tables:
        if level not in (*levels, "*"):
            raise PlanError(
                f"budget.queries.{level}: no level {level!r}; choose from {listed(levels)}"
            )
    allocations = []
    for level in levels:
        if shares[level] == 0:
            continue
        table = tables.get(level, tables.get("*"))
        if table is None:
            raise PlanError(f"budget.queries.{level}: is needed and not there")
        _check_shares(table, f"budget.queries.{level}", None)
        where = f"budget.queries.{level}"
        queries = [query_named(schema, name, where) for name in table]
        refuse_repeats(queries, where)
        for query, share in zip(queries, table.values(), strict=True):
            if share == 0:
                continue
            fraction = shares[level] * share
            part: Cost = (
                PureDP(cost.epsilon * fraction)
                if isinstance(cost, PureDP)
                else ZCDP(cost.rho * fraction)
            )
            sensitivity = query.sensitivity(neighbors, rows)
            if _noise_variance(part, sensitivity) > LARGEST_DEVIATION**2:
                raise PlanError(
                    f"{where}.{query.name}: its noise would have a standard deviation above "
                    f"{LARGEST_DEVIATION:,} and drown any count; give it a larger share, or 0"
                )
            allocations.append(Allocation(level, query, part, sensitivity))
    costs = [item.cost for item in allocations]
    amounts = [cost.epsilon if isinstance(cost, PureDP) else cost.rho for cost in costs]
    _refuse_denominators(amounts, "budget")
    return tuple(allocations)


def _refuse_denominators(values: Iterable[Fraction], where: str) -> None:
    """Refuse fractions whose exact sum has more digits than can be added up in a moment."""
    common = 1
    for value in values:
        common = math.lcm(common, value.denominator)
        if common.bit_length() > _MOST_DIGITS * math.log2(10):
            raise PlanError(
                f"{where}: the shares have no common denominator of at most {_MOST_DIGITS:,} digits; "
                f"write them with the same one, such as 1/100"
            )


def _noise_variance(cost: Cost, sensitivity: Sensitivity) -> Fraction:
    """Return the variance of the noise a cost pays for, but for what the integers take off it."""
    if isinstance(cost, PureDP):
        return 2 * (sensitivity.l1 / cost.epsilon) ** 2
    return sensitivity.l2_squared / (2 * cost.rho)


def _check_shares(
    shares: Mapping[str, Fraction], where: str, known: tuple[str, ...] | None
) -> None:
    for name, share in shares.items():
        if known is not None and name not in known:
            raise PlanError(f"{where}.{name}: no level {name!r}; choose from {listed(known)}")
        if share < 0:
            raise PlanError(f"{where}.{name}: {share} is not allowed; a share is 0 or more")
    _refuse_denominators(shares.values(), where)
    together = sum(shares.values(), Fraction(0))
    if together != 1:
        raise PlanError(f"{where}: the shares sum to {together}, and must sum to 1")


def refuse_repeats(queries: Sequence[Query], where: str) -> None:
    """Refuse a query that a list names twice; blanks in its name make no other query of it."""
    for name, times in Counter(query.name for query in queries).items():
        if times > 1:
            raise PlanError(f"{where}: {name} is listed {times} times; list it once")


def query_named(schema: Schema, name: str, where: str) -> Query:
    """Return a query of the schema; `where` is the key that names it."""
    try:
        return schema.query(name)
    except PlanError as error:
        raise PlanError(f"{where}: {error}") from error
