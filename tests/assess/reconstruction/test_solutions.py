"""The number of databases that agree with exact tables, against listing all of them."""

import math
from itertools import combinations

import numpy as np
import pytest
from tests.assess.reconstruction import enumeration

from countveil.assess.reconstruction import PublishedLines, part_solutions, solution_count
from countveil.assess.reconstruction.independent_parts import split
from countveil.errors import InputError
from countveil.plan.attributes import Attribute, Recode
from countveil.plan.workload import Schema


def schema(**sizes):
    return Schema(
        tuple(Attribute(name, tuple(f"{name}{k}" for k in range(n))) for name, n in sizes.items())
    )


def two_way(rows, columns):
    """Return the lines of a table of two attributes that shows only their margins."""
    return PublishedLines.of_queries(schema(A=rows, B=columns), ["A", "B"])


def block(rng):
    """Return random tables and a random database of up to six people."""
    names = ["A", "B", "C"][: int(rng.integers(2, 4))]
    sizes = {name: int(rng.integers(2, 4 if len(names) == 2 else 3)) for name in names}
    people = schema(**sizes)
    if rng.random() < 0.5:
        group = Recode(
            "G", "A", (("first", ("A0",)), ("rest", people.attributes[0].categories[1:]))
        )
        people = Schema(people.attributes, (group,))
    queries = ["*".join(some) for n in range(1, len(names)) for some in combinations(names, n)]
    queries += ["G", "G*B"] if people.recodes else []
    chosen = rng.choice(queries, min(int(rng.integers(0, 4)), len(queries)), replace=False)
    lines = PublishedLines.of_queries(people, ["TOTAL", *chosen])
    known = rng.multinomial(int(rng.integers(0, 7)), rng.dirichlet(np.ones(lines.cells)))
    return lines, known


def as_database(known):
    return {cell: int(n) for cell, n in enumerate(known) if n}


@pytest.mark.parametrize("most_steps", [200_000, 8, 1])
def test_every_number_is_that_of_the_listed_databases(most_steps, monkeypatch):
    """With little effort, counts become bounds; both sorts are compared with all databases."""
    monkeypatch.setattr(part_solutions, "_MORE", 1)
    part_solutions.solutions_of.cache_clear()
    rng = np.random.default_rng(22)
    bounded = 0
    for _ in range(120):
        lines, known = block(rng)
        answers = lines.answers(as_database(known))
        every = enumeration.databases(lines.masks, lines.cells, answers, int(known.sum()))
        own = solution_count(lines, known=as_database(known), most_steps=most_steps)
        told = solution_count(lines, answers, most_steps=most_steps)
        facts = (
            *(enumeration.widest(every), enumeration.certain(every)),
            enumeration.differing(every, known),
        )
        if own.exact:
            assert (own.count, own.widest, own.certain, own.differing) == (len(every), *facts)
        else:
            bounded += 1
            assert 2 <= own.count <= len(every)
            assert own.widest >= facts[0]
            assert own.certain <= facts[1]
            assert own.differing >= facts[2]
        assert told.differing is None
        assert told.count == len(every) if told.exact else 2 <= told.count <= len(every)
        assert (own.count == 1) == (len(every) == 1) == (told.count == 1)
    assert bounded == 0 if most_steps == 200_000 else bounded >= 5, bounded


def test_contradicting_tables_have_no_database():
    lines = two_way(2, 2)
    assert solution_count(lines, [1, 2, 2, 2]).count == 0
    assert solution_count(lines, [3, 0, 0, 2]).count == 0
    nested = PublishedLines.of_queries(schema(A=2, B=2), ["TOTAL", "A", "A*B"])
    assert solution_count(nested, [2, 2, 0, 3, 0, 0, 0]).count == 0
    assert solution_count(nested, [3, 2, 1, 1, 1, 0, 0]).count == 0


@pytest.mark.parametrize(
    ("rows", "columns"), [((2, 3), (1, 4)), ((5, 5), (5, 5)), ((3, 9), (7, 5)), ((1, 1), (1, 1))]
)
def test_two_by_two_tables_have_a_known_number(rows, columns):
    """The upper left cell determines the others: it ranges between the Fréchet bounds."""
    least, most = max(0, rows[0] + columns[0] - sum(rows)), min(rows[0], columns[0])
    found = solution_count(two_way(2, 2), [*rows, *columns])
    assert (found.count, found.widest) == (most - least + 1, most - least)


def test_permutation_matrices_and_magic_squares():
    """Margins of ones are permutations, n! of them; 3 × 3 squares follow MacMahon's formula."""
    for n in (2, 3, 4, 5):
        assert solution_count(two_way(n, n), [1] * (2 * n)).count == math.factorial(n)
    for r in (1, 2, 3, 7, 40):
        expected = math.comb(r + 2, 4) + math.comb(r + 3, 4) + math.comb(r + 4, 4)
        assert solution_count(two_way(3, 3), [r] * 6).count == expected


def test_blocks_of_eight_races_and_two_ages_by_convolution():
    """With ages and races apart, the children of each race are a number up to its people."""
    rng = np.random.default_rng(44)
    lines = two_way(2, 8)
    for people in (1, 2, 9, 23, 40, 170):
        for _ in range(6):
            known = rng.multinomial(people, rng.dirichlet(np.full(16, 0.3)))
            children, adults = known[:8], known[8:]
            ways = [1]
            for n in (children + adults).tolist():
                ways = np.convolve(ways, np.ones(n + 1, np.int64))
            found = solution_count(lines, known=as_database(known))
            assert found.count == ways[children.sum()]
            # A child of one race and an adult of another could change places.
            swap = any(children[j] and adults[k] for j in range(8) for k in range(8) if j != k)
            assert (found.count == 1) == (not swap)


@pytest.mark.parametrize(("people", "cells"), [(1, 2), (5, 3), (40, 6), (1000, 4)])
def test_a_total_alone_leaves_every_composition(people, cells):
    lines = PublishedLines.of_queries(schema(A=cells), ["TOTAL"])
    found = solution_count(lines, [people])
    assert found.count == math.comb(people + cells - 1, cells - 1)
    assert (found.exact, found.widest, found.certain) == (True, people, 0)


def test_a_table_of_every_cell_leaves_one_database():
    lines = PublishedLines.of_queries(schema(A=3, B=4), ["A*B", "A", "TOTAL"])
    known = {0: 3, 5: 1, 11: 70}
    found = solution_count(lines, known=known)
    assert (found.count, found.certain, found.widest, found.differing) == (1, 74, 0, 0.0)


def test_independent_parts_multiply():
    """Two 2 × 2 tables side by side, told apart by a third attribute."""
    lines = PublishedLines.of_queries(schema(C=2, A=2, B=2), ["C*A", "C*B"])
    known = {0: 2, 1: 1, 2: 1, 3: 3, 4: 1, 7: 1}
    one, other = ({k: v for k, v in known.items() if low <= k < low + 4} for low in (0, 4))
    flat = two_way(2, 2)
    halves = [
        solution_count(flat, known={k % 4: v for k, v in half.items()}) for half in (one, other)
    ]
    found = solution_count(lines, known=known)
    assert found.count == halves[0].count * halves[1].count == 4 * 2
    assert found.certain == halves[0].certain + halves[1].certain
    assert found.differing == halves[0].differing + halves[1].differing
    assert len(split(lines, lines.answers(known), known).parts) == 2


def test_a_difference_of_nested_tables_is_used():
    """All ages minus 18 and over gives the rest, as in tables P1 and P3."""
    ages = Recode("ADULT", "AGE", (("adult", ("AGE1",)),), omit=("AGE0",))
    people = Schema((*schema(AGE=2, RACE=3).attributes,), (ages,))
    lines = PublishedLines.of_queries(people, ["RACE", "ADULT*RACE"])
    found = solution_count(lines, known={0: 4, 2: 1, 3: 2, 5: 9})
    assert (found.count, found.certain) == (1, 16)
    assert split(lines, lines.answers({0: 4, 3: 2}), None).parts == ()


def test_structural_zeros_leave_fewer_databases():
    people, answers = schema(A=2, B=2), [1, 1, 1, 1]
    assert solution_count(PublishedLines.of_queries(people, ["A", "B"]), answers).count == 2
    possible = np.array([True, False, True, True])
    fewer = PublishedLines.of_queries(people, ["A", "B"], possible=possible)
    assert solution_count(fewer, answers).count == 1


def test_a_large_unit_is_bounded_and_never_called_unique():
    """A tract of 4,000 people in 8 × 5 cells: the count is astronomical, and its bound is quick."""
    rng = np.random.default_rng(3)
    known = as_database(rng.multinomial(4_000, rng.dirichlet(np.ones(40))))
    found = solution_count(two_way(8, 5), known=known, limit=10_000)
    assert not found.exact
    assert found.count > 10_000
    assert 0 < found.differing <= 4_000


@pytest.mark.parametrize("at_once", [True, False])
def test_databases_near_one_are_never_more_than_all(at_once, monkeypatch):
    """The lower bound for large parts, on parts that can be counted, with cells not told apart."""
    if not at_once:  # a few groups at a time only
        monkeypatch.setattr(part_solutions, "_REACHES", ())
    rng = np.random.default_rng(8)
    bounds, totals = [], []
    while len(bounds) < 80:
        lines, known = block(rng)
        parts = split(lines, lines.answers(as_database(known)), as_database(known)).parts
        for part in parts:
            low, high = part_solutions._bounds(part)
            one = [people for people, _ in part.known]
            limit = 10**9
            bounds.append(part_solutions._count_near(part, one, low, high, limit, 200_000))
            totals.append(part_solutions.solutions_of(part, limit).count)
    assert all(1 <= bound <= total for bound, total in zip(bounds, totals, strict=True))
    assert (bounds == totals) == at_once  # no one differs by more than 16 people


def test_a_large_unit_with_one_database_is_called_unique(monkeypatch):
    """Equal margins force the corner; the integer program proves it where counting gives up."""
    lines = two_way(2, 3)
    assert solution_count(lines, [7, 0, 2, 2, 3], most_steps=1).count == 1
    # x00 + x01 = 3, x00 + x10 = 3, x01 + x10 = 0 … odd cycles have one solution.
    part = part_solutions.Part(((2, (0, 1)), (2, (0, 2)), (2, (1, 2))), (1, 1, 1))
    exact = part_solutions.solutions_of(part, 10)
    bounded = part_solutions.solutions_of(part, 10, 1)
    assert exact == bounded
    assert (bounded.count, bounded.exact, bounded.certain) == (1, True, 3)
    odd = part_solutions.Part(((1, (0, 1)), (1, (0, 2)), (1, (1, 2))), (1, 1, 1))
    assert part_solutions.solutions_of(odd, 10).count == 0
    assert part_solutions.solutions_of(odd, 10, 1).count == 0


def test_the_same_tables_are_solved_once():
    part_solutions.solutions_of.cache_clear()
    lines = two_way(2, 4)
    for cells in ((0, 5), (1, 6), (2, 7), (3, 4)):  # the same people under other labels
        assert solution_count(lines, known=dict.fromkeys(cells, 3)).count == 4
    info = part_solutions.solutions_of.cache_info()
    assert (info.misses, info.hits) == (1, 3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"answers": [1, 2]}, "2 counts came for 4 lines; give one per line"),
        ({"answers": [1, -1, 0, 0]}, "give whole numbers from 0 to"),
        ({"answers": [1, 1, 1, 1], "limit": 0}, "limit: 0 is not allowed"),
        ({"answers": [1, 1, 1, 1], "known": {0: 1}}, "not both"),
        ({}, "not both"),
        ({"known": {4: 1}}, "cell 4 is not allowed; choose from the 4 possible ones"),
        ({"known": {0: -1}}, "has -1 people; give 0 or more"),
    ],
)
def test_bad_input_is_refused(words, message):
    with pytest.raises(InputError, match=message):
        solution_count(two_way(2, 2), **words)


def test_tables_that_leave_people_uncounted_are_refused():
    adults = Recode("ADULT", "AGE", (("adult", ("AGE1",)),), omit=("AGE0",))
    people = Schema(schema(AGE=2, RACE=3).attributes, (adults,))
    with pytest.raises(InputError, match="leave some cells uncounted.* add TOTAL"):
        PublishedLines.of_queries(people, ["ADULT*RACE"])
    with pytest.raises(InputError, match="limited to 20,000: name tables of fewer attributes"):
        PublishedLines.of_queries(schema(A=200, B=200), ["A"])
