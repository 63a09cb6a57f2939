"""A family is refused exactly when no table exists, and the message names facts that conflict."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise, product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp

from countveil.errors import InfeasibleError, InputError
from countveil.postprocess.facts import feasibility
from countveil.postprocess.facts.feasibility import refuse_infeasible
from countveil.postprocess.facts.rows import Row, as_matrix, nested

Case = tuple[Any, Any, Any, list[Row], tuple[int, int]]


def refusal(case: Case, **names: Any) -> str | None:
    """Return the message of a refusal, None where the family is accepted."""
    parent, totals, allowed, rows, (children, cells) = case
    names.setdefault("children", [f"u{c}" for c in range(children)])
    names.setdefault("cell_names", lambda some: "cells " + "/".join(map(str, some)))
    try:
        refuse_infeasible(parent, totals, allowed, rows, parent_name="top", cells=cells, **names)
    except InfeasibleError as error:
        return str(error)
    return None


def row(children: Any, cells: Any, lower: float, upper: float, what: str = "") -> Row:
    return Row(np.atleast_1d(children), np.array(cells, np.int64), lower, upper, what)


# The truth, twice: all tables of a small family, and HiGHS over the plain cells of a larger one.


def shares(total: int, among: int) -> list[tuple[int, ...]]:
    """Return every way to share out a total."""
    if among == 0:
        return [()] if total == 0 else []
    bars = product(range(total + 1), repeat=among - 1)
    return [
        tuple(b - a for a, b in pairwise((0, *cuts, total)))
        for cuts in bars
        if list(cuts) == sorted(cuts)
    ]


def every_table(case: Case) -> NDArray[np.int64]:
    """Return all tables with the parent's sums, or else the totals, or else small enough entries."""
    parent, totals, _, rows, (children, cells) = case
    if parent is not None:
        columns = product(*(shares(int(n), children) for n in parent))
        return np.array(list(columns)).reshape(-1, cells, children).transpose(0, 2, 1)
    if totals is not None:
        return np.array(list(product(*(shares(int(n), cells) for n in totals)))).reshape(
            -1, children, cells
        )
    # The least table, if there is one, has no entry above every lower bound.
    most = int(max([item.lower for item in rows], default=0))
    return np.array(list(product(range(most + 1), repeat=children * cells))).reshape(
        -1, children, cells
    )


def exhaustive(case: Case) -> bool:
    _, totals, allowed, rows, _ = case
    tables = every_table(case)
    fits = np.ones(len(tables), bool)
    if totals is not None:
        fits &= (tables.sum(axis=2) == totals).all(axis=1)
    if allowed is not None:
        fits &= (tables[:, ~allowed] == 0).all(axis=1)
    for item in rows:
        sums = tables[:, item.children][:, :, item.cells].sum(axis=(1, 2))
        fits &= (sums >= item.lower) & (sums <= item.upper)
    return bool(fits.any())


def facts_of(case: Case) -> dict[str, Row]:
    """Return every fact of a family as a row, under the name that messages give it."""
    parent, totals, _, rows, (children, cells) = case
    named = {item.what: item for item in rows}
    if totals is not None:
        named |= {f"u{c}": row(c, range(cells), n, n) for c, n in enumerate(totals)}
    if parent is not None:
        named |= {f"cell {j}": row(range(children), [j], n, n) for j, n in enumerate(parent)}
    return named


def by_highs(rows: list[Row], allowed: Any, shape: tuple[int, int]) -> bool:
    if not rows:
        return True
    open_ = np.ones(shape, bool) if allowed is None else allowed
    result = milp(
        np.zeros(open_.size),
        integrality=1,
        bounds=Bounds(0, np.where(open_.reshape(-1), np.inf, 0)),
        constraints=LinearConstraint(
            sp.csc_array(as_matrix(rows, *shape)),
            [item.lower for item in rows],
            [item.upper for item in rows],
        ),
    )
    assert result.status in (0, 2)
    return bool(result.status == 0)


# Random families.


def random_rows(rng: np.random.Generator, shape: tuple[int, int], kind: str) -> list[Row]:
    children, cells = shape
    rows: list[Row] = []
    crossing = kind == "crossing"
    for number in range(int(rng.integers(3 * crossing, 6 + 2 * crossing))):
        some = np.flatnonzero(rng.random(cells) < rng.choice([0.3, 0.6, 1.0]))
        units = rng.integers(0, children, 1)
        if crossing and rng.random() < 0.7:
            units[0] = 0
        if kind == "siblings" and rng.random() < 0.6:
            units = np.flatnonzero(rng.random(children) < 0.6)
        lower = int(rng.integers(0, 4)) if rng.random() < 0.5 else 0
        upper = np.inf if rng.random() < 0.4 else lower + int(rng.integers(0, 3))
        if rng.random() < 0.02:
            upper = lower - 1
        new = Row(units, some, lower, upper, f"r{number}")
        if kind != "nested" or nested([*rows, new]):
            rows.append(new)
    return rows


def random_case(rng: np.random.Generator, kind: str, *, root: bool = False) -> Case:
    shape = (
        int(rng.integers(1, 3 if root else 4)),
        int(rng.integers(1 + 2 * (kind == "crossing"), 4)),
    )
    rows = random_rows(rng, shape, kind)
    allowed = rng.random(shape) < 0.75 if rng.random() < 0.5 else None
    parent = None if root else rng.integers(0, 4, shape[1])
    totals = None
    if rng.random() < 0.5:
        totals = rng.integers(0, 4, shape[0])
        if parent is not None and rng.random() < 0.9:
            totals = rng.multinomial(parent.sum(), np.full(shape[0], 1 / shape[0]))
    return parent, totals, allowed, rows, shape


@pytest.mark.parametrize(
    ("kind", "cases"), [("nested", 2500), ("crossing", 500), ("siblings", 500)]
)
def test_a_family_is_refused_exactly_when_no_table_exists(kind: str, cases: int) -> None:
    rng = np.random.default_rng(len(kind))
    seen = {True: 0, False: 0}
    for _ in range(cases):
        case = random_case(rng, kind)
        truth = exhaustive(case)
        seen[truth] += 1
        assert (refusal(case) is None) == truth, case
    assert min(seen.values()) > cases / 8


@pytest.mark.parametrize(("kind", "cases"), [("nested", 700), ("siblings", 250)])
def test_a_root_has_no_parent_to_add_up_to(kind: str, cases: int) -> None:
    rng = np.random.default_rng(3)
    seen = {True: 0, False: 0}
    for _ in range(cases):
        case = random_case(rng, kind, root=True)
        truth = exhaustive(case)
        seen[truth] += 1
        assert (refusal(case) is None) == truth, case
    assert min(seen.values()) > cases / 12


def larger_case(rng: np.random.Generator) -> tuple[Case, NDArray[np.int64]]:
    """Return a feasible family with rows of rows, and its table."""
    shape = (int(rng.integers(2, 7)), int(rng.integers(4, 25)))
    table = rng.poisson(rng.gamma(0.4, 6, shape))
    allowed = (table > 0) | (rng.random(shape) < 0.5)
    halves = rng.integers(0, 3, shape[1])
    quarters = halves * 2 + rng.integers(0, 2, shape[1])
    rows = []
    for child in range(shape[0]):
        for groups in (halves, quarters):
            for group in np.unique(groups):
                if rng.random() < 0.5:
                    some = np.flatnonzero(groups == group)
                    people = int(table[child, some].sum())
                    lower = max(0, people - int(rng.integers(0, 3)))
                    upper = np.inf if rng.random() < 0.5 else people + int(rng.integers(0, 3))
                    rows.append(row(child, some, lower, upper, f"r{len(rows)}"))
    totals = table.sum(axis=1) if rng.random() < 0.7 else None
    return (table.sum(axis=0), totals, allowed, rows, shape), table


def named_facts(message: str, case: Case) -> set[str]:
    """Read the names of facts out of a message; a shortened list names nothing for certain."""
    body = message.removeprefix("top: ")
    names = set(re.findall(r"\br\d+\b", body))
    for found in re.finditer(r"top has \d[\d,]* (?:people|person)(?: in cells ([\d/]+))?", body):
        every = range(case[4][1])
        names |= {f"cell {j}" for j in (found[1].split("/") if found[1] else every)}
    for found in re.finditer(r"((?:u\d+(?:, )?)+)(?: together)? totals? \d", body):
        names |= set(re.findall(r"u\d+", found[1]))
    return names


@pytest.fixture
def in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let messages list all they name."""
    monkeypatch.setattr(feasibility, "_SHOWN", 1000)


@pytest.mark.usefixtures("in_full")
def test_the_facts_of_a_cut_conflict_by_themselves() -> None:
    rng = np.random.default_rng(5)
    refused = 0
    for _ in range(700):
        case = random_case(rng, "nested")
        message = refusal(case)
        if message is None:
            continue
        refused += 1
        facts, named = facts_of(case), named_facts(message, case)
        assert named, message
        assert not by_highs([facts[name] for name in named], case[2], case[4]), (message, case)
    assert refused > 200


@pytest.mark.usefixtures("in_full")
def test_one_wrong_bound_is_named_and_the_rest_has_a_table() -> None:
    rng = np.random.default_rng(6)
    refused = 0
    for _ in range(300):
        (parent, totals, allowed, rows, shape), _ = larger_case(rng)
        if not rows:
            continue
        wrong = int(rng.integers(len(rows)))
        worse = rows[wrong].lower + int(rng.integers(1, 20))
        rows[wrong] = replace(rows[wrong], lower=worse, upper=max(worse, rows[wrong].upper))
        case = (parent, totals, allowed, rows, shape)
        message, facts = refusal(case), facts_of(case)
        assert (message is None) == by_highs(list(facts.values()), allowed, shape)
        if message is None:
            continue
        refused += 1
        named = named_facts(message, case)
        assert f"r{wrong}" in named, message
        assert not by_highs([facts[name] for name in named], allowed, shape), message
        rest = [fact for name, fact in facts.items() if name not in named]
        assert by_highs(rest, allowed, shape), message
        # The distance is exact: lowered by that much, the bound conflicts no more with these facts.
        short = int(re.search(r"short by ([\d,]+)", message)[1].replace(",", ""))  # type: ignore[index]
        if worse >= short:
            eased = facts | {f"r{wrong}": replace(rows[wrong], lower=worse - short)}
            assert by_highs([eased[name] for name in named], allowed, shape), message
    assert refused > 100


def test_larger_families_with_a_table_are_accepted() -> None:
    rng = np.random.default_rng(7)
    for _ in range(150):
        case, _ = larger_case(rng)
        assert refusal(case) is None


@pytest.mark.usefixtures("in_full")
@pytest.mark.parametrize("kind", ["crossing", "siblings"])
def test_without_what_the_nearest_table_misses_there_is_a_table(kind: str) -> None:
    rng = np.random.default_rng(8)
    refused = 0
    for _ in range(300):
        case = random_case(rng, kind)
        message = refusal(case)
        if message is None or "no table meets" not in message:
            continue
        refused += 1
        facts, named = facts_of(case), named_facts(message, case)
        rest = [fact for name, fact in facts.items() if name not in named]
        assert by_highs(rest, case[2], case[4]), (message, case)
    assert refused > 40


def test_a_fraction_is_no_table() -> None:
    # Each pair of three cells holds one person: only a half in each cell would do.
    rows = [row(0, pair, 1, 1, f"r{n}") for n, pair in enumerate([(0, 1), (1, 2), (0, 2)])]
    parent = np.array([1, 1, 1])
    message = refusal((parent, None, None, rows, (2, 3)))
    assert message is not None
    assert len(named_facts(message, (parent, None, None, rows, (2, 3)))) == 1
    assert refusal((parent, None, None, rows[:2], (2, 3))) is None


# The messages.

COUNTY = {
    "children": ["001A", "001B", "001C"],
    "cell_names": lambda some: (
        {0: "HHGQ = household", 1: "HHGQ = nursing"}.get(some[0], "others")
        if len(some) == 1
        else f"{len(some)} cells"
    ),
    "parent_name": "county 001",
}
NURSING = "HHGQ = nursing facilities"
REMEDY = "; check these constraints or widen them"


def said(parent: Any, totals: Any, allowed: Any, rows: list[Row], **other: Any) -> str:
    with pytest.raises(InfeasibleError) as caught:
        refuse_infeasible(
            None if parent is None else np.array(parent),
            None if totals is None else np.array(totals),
            None if allowed is None else np.array(allowed, bool),
            rows,
            **(COUNTY | other),
        )
    assert isinstance(caught.value, InputError)
    assert caught.value.exit_status == 2
    message = str(caught.value)
    assert message.endswith(REMEDY)
    return message.removesuffix(REMEDY)


def test_children_that_need_more_than_the_parent_has() -> None:
    rows = [row(0, [1], 7, np.inf, NURSING), row(1, [1], 5, 8, NURSING), row(2, [0], 1, 2, "homes")]
    assert said([90, 9, 4], None, None, rows) == (
        "county 001: 001A, 001B together need at least 12 people in HHGQ = nursing facilities, and "
        "county 001 has 9 people in HHGQ = nursing: short by 3 people"
    )


def test_children_that_take_less_than_the_parent_has() -> None:
    rows = [row(c, [1], 0, 2, NURSING) for c in range(3)]
    assert said([90, 7, 4], None, None, rows) == (
        "county 001: county 001 has 7 people in HHGQ = nursing, and 001A, 001B, 001C together take at "
        "most 6 people in HHGQ = nursing facilities: short by 1 person"
    )


def test_totals_that_do_not_add_up() -> None:
    assert said([5000, 7, 4], [5000, 10, 3], None, []) == (
        "county 001: 001A, 001B, 001C together total 5,013 people, and county 001 has 5,011 people: "
        "short by 2 people"
    )


def test_a_cell_that_no_child_may_have() -> None:
    allowed = [[1, 0, 1]] * 3
    assert said([9, 4, 0], None, allowed, []) == (
        "county 001: county 001 has 4 people in HHGQ = nursing, and 001A, 001B, 001C admit no one in "
        "HHGQ = nursing: short by 4 people"
    )


def test_closed_cells_are_named_beside_a_total() -> None:
    allowed = [[1, 1, 1], [1, 0, 1], [1, 0, 0]]
    assert said([9, 4, 0], [3, 5, 5], allowed, []) == (
        "county 001: county 001 has 4 people in HHGQ = nursing, and 001A totals 3 people, 001B, 001C "
        "admit no one in HHGQ = nursing: short by 1 person"
    )


def test_one_conflict_is_named_though_there_are_two() -> None:
    rows = [row(0, [1], 12, np.inf, NURSING), row(1, [0], 99, np.inf, "homes")]
    assert said([90, 9, 4], None, None, rows) == (
        "county 001: 001B needs at least 99 people in homes, and county 001 has 90 people in "
        "HHGQ = household: short by 9 people"
    )


def test_a_row_at_odds_with_the_total_of_a_root() -> None:
    rows = [row(0, [0, 1], 0, 5, "homes"), row(0, [2], 0, 2, "others")]
    assert said(None, [9, 0, 0], None, rows, cells=3) == (
        "county 001: 001A totals 9 people, and 001A takes at most 5 people in homes, 001A takes at "
        "most 2 people in others: short by 2 people"
    )
    # Without knowing that there are three cells, a fourth may hold the rest.
    refuse_infeasible(None, np.array([9, 0, 0]), None, rows, **COUNTY)


def test_a_row_at_odds_with_itself_or_without_cells() -> None:
    assert said([9], None, None, [row(0, [0], 5, 3, "homes")]) == (
        "county 001: 001A needs at least 5 people in homes, and 001A takes at most 3 people in homes: "
        "short by 2 people"
    )
    assert said([9], None, None, [row(0, [], 1, 3, "boats")]) == (
        "county 001: 001A needs at least 1 person in boats, and no cell is open to them: short by "
        "1 person"
    )


def test_rows_without_words_are_named_by_their_cells() -> None:
    assert said([9, 9, 9], None, None, [row(0, [1, 2], 20, 30)]) == (
        "county 001: 001A needs at least 20 people in 2 cells, and county 001 has 18 people in 2 "
        "cells: short by 2 people"
    )


def test_rows_of_siblings_that_cannot_all_be_met() -> None:
    rows = [row([0, 1], [1], 12, np.inf, NURSING), row(2, [0], 1, 2, "homes")]
    assert said([90, 9, 4], None, None, rows) == (
        "county 001: no table meets all its constraints at once, and the nearest one misses these by "
        "3 people: 001A, 001B together need at least 12 people in HHGQ = nursing facilities"
    )
    rows = [row([0, 1], [0, 1], 0, 3, "left"), row([1, 2], [1, 2], 0, 3, "right")]
    message = said([9, 9, 9], [9, 9, 9], None, rows)
    assert "001A, 001B together take at most 3 people in left" in message
    assert "001B, 001C together take at most 3 people in right" in message


def test_lists_are_kept_short() -> None:
    names = [f"{c:02}" for c in range(20)]
    rows = [row(c, [1], 1, np.inf, NURSING) for c in range(20)]
    assert said([90, 9], None, None, rows, children=names).startswith(
        "county 001: 00, 01, 02, 03, 04 and 15 more together need at least 20 people in HHGQ"
    )
    rows = [row(0, [j], 2, 9, f"q{j}") for j in range(8)]
    message = said([3] * 8, [15, 9], None, rows, children=["00", "01"])
    assert (
        "at least 2 people in q4 and 3 more, and 00 totals 15 people: short by 1 person" in message
    )


# Size.


@pytest.mark.parametrize("people", [10**8, 4 * 10**9])
def test_numbers_past_int32_are_decided_too(people: int) -> None:
    parent = np.array([people, people // 2])
    rows = [row(0, [0], people // 2, np.inf, "a"), row(1, [0], people - people // 2, np.inf, "b")]
    assert refusal((parent, None, None, rows, (2, 2))) is None
    rows[1] = replace(rows[1], lower=rows[1].lower + 1)
    message = refusal((parent, None, None, rows, (2, 2)))
    assert message is not None
    assert "by 1 person" in message


def test_the_fallback_decides_as_the_flow_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feasibility, "_MOST", 0)
    rng = np.random.default_rng(10)
    for _ in range(200):
        case = random_case(rng, "nested")
        assert (refusal(case) is None) == exhaustive(case), case


def test_what_branch_and_bound_leaves_undecided_is_not_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = SimpleNamespace(status=1, x=None, fun=None, mip_dual_bound=None)
    monkeypatch.setattr(feasibility, "milp", lambda *_, **__: ended)
    rows = [row([0, 1], [1], 12, np.inf, NURSING)]
    assert refusal((np.array([3, 0]), None, None, rows, (2, 2))) is None


def test_a_plain_family_is_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(feasibility, "_merged")
    parent, allowed = np.array([3, 0]), np.array([[True, False], [True, False]])
    for totals, open_ in ((None, None), (None, allowed), (np.array([1, 2]), None)):
        assert refusal((parent, totals, open_, [], (2, 2))) is None
    assert refusal((None, np.array([5, 2]), None, [], (2, 2))) is None


def test_many_cells_and_rows_of_every_child() -> None:
    rng = np.random.default_rng(9)
    table = rng.poisson(0.3, (60, 2016))
    group = np.arange(2016) // 84
    rows = [
        row(c, np.flatnonzero(group == g), n, n, f"g{g}")
        for c in range(60)
        for g, n in enumerate(np.bincount(group, table[c]))
    ]
    case: Case = (table.sum(axis=0), table.sum(axis=1), None, rows, table.shape)
    assert refusal(case) is None
    rows[30] = replace(rows[30], lower=rows[30].lower + 1, upper=rows[30].upper + 1)
    assert refusal(case) is not None
