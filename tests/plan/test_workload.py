"""Queries and their sensitivity, against brute force over all neighbouring databases."""

from fractions import Fraction
from itertools import combinations_with_replacement, product

import numpy as np
import pytest

from countveil.errors import PlanError
from countveil.plan.attributes import Attribute, Recode
from countveil.plan.workload import Schema

SCHEMA = Schema(
    (Attribute("A", ("a", "b")), Attribute("B", ("x", "y", "z"))),
    (
        Recode("C", "B", (("xy", ("x", "y")), ("z", ("z",)))),
        Recode("D", "B", (("x", ("x",)),), ("y", "z")),
    ),
)
QUERIES = ["TOTAL", "A", "B", "C", "D", "A*B", "B*A", "C*A", "A*D"]


def answer(query, rows, units):
    values = np.zeros((units, query.cells), int)
    for unit, cell in rows:
        if query.cell_of[cell] >= 0:
            values[unit, query.cell_of[cell]] += 1
    return values.ravel()


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("units", [1, 2])
@pytest.mark.parametrize("rows", [1, 2])
def test_sensitivity_is_the_largest_over_all_neighbours(name, units, rows):
    query = SCHEMA.query(name)
    records = list(product(range(units), range(SCHEMA.cells)))
    # What one person can contribute: exactly one row when attested, up to `rows` otherwise.
    sizes = [1] if rows == 1 else range(rows + 1)
    people = [c for size in sizes for c in combinations_with_replacement(records, size)]
    answers = {tuple(answer(query, person, units)) for person in people}
    nobody = (0,) * (units * query.cells)
    pairs = {
        "add-remove": [(a, nobody) for a in answers],
        "change-one": [(a, b) for a in answers for b in answers],
    }
    for neighbors, some in pairs.items():
        l1 = max(sum(abs(x - y) for x, y in zip(a, b, strict=True)) for a, b in some)
        l2 = max(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) for a, b in some)
        ours = query.sensitivity(neighbors, rows, units)
        assert (ours.l1, ours.l2_squared) == (Fraction(l1), Fraction(l2)), neighbors


def test_without_knowing_the_units_the_safe_value_is_taken():
    total = SCHEMA.query("TOTAL")
    assert total.sensitivity("change-one").l2_squared == 2
    assert total.sensitivity("change-one", units=1).l2_squared == 0
    assert SCHEMA.query("A*B").sensitivity("change-one", rows=3).l2_squared == 18
    assert SCHEMA.query("A*B").sensitivity("add-remove", rows=3).l1 == 3


def test_cells_follow_the_order_of_the_name():
    by_ab, by_ba = SCHEMA.query("A*B"), SCHEMA.query("B*A")
    assert by_ab.cell_labels()[:2] == [("a", "x"), ("a", "y")]
    assert by_ba.cell_labels()[:2] == [("x", "a"), ("x", "b")]
    assert by_ab.cell_of.tolist() == list(range(6))
    assert by_ba.cell_of.tolist() == [0, 2, 4, 1, 3, 5]
    assert SCHEMA.query("C").cell_of.tolist() == [0, 0, 1, 0, 0, 1]
    assert SCHEMA.query("D").cell_of.tolist() == [0, -1, -1, 0, -1, -1]
    assert SCHEMA.query("TOTAL").cells == 1
    assert not SCHEMA.query("D").complete


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("E", "unknown attribute or recode 'E'; choose from TOTAL, A, B, C, D"),
        ("A*A", "A and A are both views of A"),
        ("B*C", "C and B are both views of B"),
        ("", "unknown attribute or recode ''"),
        ("A**B", "unknown attribute or recode ''"),
        ("TOTAL*A", "unknown attribute or recode 'TOTAL'"),
    ],
)
def test_queries_that_make_no_sense_are_named(name, message):
    with pytest.raises(PlanError) as caught:
        SCHEMA.query(name)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: Schema(tuple(Attribute(f"A{i}", ("x",)) for i in range(40))),
            "attributes: 40 are listed; the limit is 32",
        ),
        (lambda: Attribute("A B", ("x",)), "not allowed as a name"),
        (lambda: Attribute("TOTAL", ("x",)), "and not TOTAL, which is the query"),
        (lambda: Attribute("A", ()), "categories are missing; list at least one"),
        (lambda: Attribute("A", ("x", "x")), "'x' is listed 2 times"),
        (lambda: Attribute("A", ("x", "")), "a label is empty"),
        (
            lambda: Schema((Attribute("A", ("x",)),), (Recode("A", "A", (("g", ("x",)),)),)),
            "has the same name",
        ),
        (
            lambda: Schema((Attribute("A", ("x",)),), (Recode("R", "Z", (("g", ("x",)),)),)),
            "unknown attribute 'Z'",
        ),
        (
            lambda: Schema((Attribute("A", ("x", "y")),), (Recode("R", "A", (("g", ("x",)),)),)),
            "category 'y' of A is in no group",
        ),
        (
            lambda: Schema((Attribute("A", ("x",)),), (Recode("R", "A", (("g", ("x", "q")),)),)),
            "unknown category 'q' of A; choose from x",
        ),
        (
            lambda: Schema(
                (Attribute("A", ("x",)),), (Recode("R", "A", (("g", ("x",)), ("h", ("x",)))),)
            ),
            "category 'x' is listed twice",
        ),
        (
            lambda: Schema(
                tuple(Attribute(f"A{i}", tuple(map(str, range(100)))) for i in range(5))
            ),
            "10,000,000,000 cells; the limit is 50,000,000",
        ),
    ],
)
def test_schemas_that_make_no_sense_are_refused(build, message):
    with pytest.raises(PlanError) as caught:
        build()
    assert message in str(caught.value)
