"""Rounding is the best there is among all tables of entries up or down, and keeps every sum."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

from countveil.errors import InputError
from countveil.postprocess import round_family, solve_family
from countveil.postprocess.facts.rows import Row, as_matrix

NEAR = 1e-7  # entries this close to a whole number are that number


def every_rounding(h: np.ndarray, parent=None, totals=None, rows=()) -> np.ndarray:
    """Return all tables of entries rounded up or down that keep the sums."""
    low = np.floor(h + NEAR)
    open_ = np.flatnonzero((h - low > NEAR).reshape(-1))
    ups = (np.arange(2 ** len(open_))[:, None] >> np.arange(len(open_))) & 1
    tables = np.tile(low.reshape(-1), (len(ups), 1))
    tables[:, open_] += ups
    tables = tables.reshape(-1, *h.shape)
    good = np.ones(len(tables), bool)
    if parent is not None:
        good &= (tables.sum(axis=1) == parent).all(axis=1)
    if totals is not None:
        good &= (tables.sum(axis=2) == totals).all(axis=1)
    for row in rows:
        together = tables[:, row.children][:, :, row.cells].sum(axis=(1, 2))
        good &= (together >= row.lower) & (together <= row.upper)
    return tables[good]


def moved(tables: np.ndarray, h: np.ndarray) -> np.ndarray:
    return np.abs(tables - h).sum(axis=(-2, -1))


def totals_moved(tables: np.ndarray, h: np.ndarray) -> np.ndarray:
    return np.abs(tables.sum(axis=-1) - h.sum(axis=-1)).sum(axis=-1)


def random_table(rng, keep: str, *, grid: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return a mixture of whole tables with the sums to keep, and one of those tables.

    `grid` makes the shares of the mixture multiples of 1/grid, so that entries tie.
    """
    children, cells = [(2, 2), (3, 3), (2, 5), (5, 2), (3, 4), (4, 3), (1, 5)][rng.integers(7)]
    first = rng.integers(0, 4, (children, cells))
    tables = [first]
    for _ in range(rng.integers(1, 5)):
        other = first.copy()
        for _ in range(rng.integers(1, 3 * first.size)):
            (c, d), (j, k) = rng.integers(children, size=2), rng.integers(cells, size=2)
            if keep == "cells" and other[c, j] > 0:
                other[c, j] -= 1
                other[d, j] += 1
            if keep == "both" and other[c, j] > 0 and other[d, k] > 0:
                for child, cell, step in ((c, j, -1), (d, j, 1), (d, k, -1), (c, k, 1)):
                    other[child, cell] += step
        tables.append(other)
    shares = rng.dirichlet(np.ones(len(tables)))
    if grid:
        shares = rng.multinomial(grid, shares) / grid
    return sum(share * table for share, table in zip(shares, tables, strict=True)), first


def check(h, parent=None, totals=None, rows=(), **options) -> np.ndarray:
    """Round, and hold the result to whole numbers, floor or ceiling, and the sums."""
    rounded = round_family(h, parent, totals, rows=rows, **options)
    assert rounded.dtype == np.int64
    assert rounded.shape == np.shape(h)
    assert (rounded >= np.floor(h + NEAR)).all()
    assert (rounded <= np.ceil(h - NEAR)).all()
    if parent is not None:
        assert (rounded.sum(axis=0) == parent).all()
    if totals is not None:
        assert (rounded.sum(axis=1) == totals).all()
    assert all(row.lower <= row.sum_of(rounded) <= row.upper for row in rows)
    return rounded


# The best of all roundings.


@pytest.mark.parametrize("grid", [0, 2, 10])
@pytest.mark.parametrize("keep", ["cells", "both"])
@pytest.mark.parametrize("root", [False, True])
def test_no_other_rounding_moves_less(root, keep, grid):
    rng = np.random.default_rng([1, root, keep == "both", grid])
    for _ in range(300):
        h, first = random_table(rng, keep, grid=grid)
        parent = None if root else first.sum(axis=0)
        totals = first.sum(axis=1) if keep == "both" else None
        rounded = check(h, parent, totals)
        best = moved(every_rounding(h, parent, totals), h).min()
        assert moved(rounded, h) == pytest.approx(best, abs=1e-9), h


def random_rows(rng, near: np.ndarray, *, nested: bool) -> list[Row]:
    """Bounds about the sums of a table: of a child and part of it, or of any cells of any children."""
    rows = []
    for child in range(len(near)):
        cells = np.flatnonzero(rng.random(near.shape[1]) < 0.8)
        for _ in range(2):
            children = np.array([child])
            if not nested:
                children = np.flatnonzero(rng.random(len(near)) < 0.6)
                cells = np.flatnonzero(rng.random(near.shape[1]) < 0.6)
            if len(cells) and len(children):
                around = near[np.ix_(children, cells)].sum()
                side = rng.integers(4)
                lower = -np.inf if side == 0 else float(np.floor(around + NEAR))
                upper = np.inf if side == 1 else float(np.ceil(around - NEAR))
                rows.append(Row(children, cells, lower, upper))
            cells = cells[: len(cells) // 2]
    return rows


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("keep", ["cells", "both"])
@pytest.mark.parametrize("root", [False, True])
def test_no_other_rounding_within_rows_moves_less(root, keep, nested):
    rng = np.random.default_rng([2, root, keep == "both", nested])
    at_work, unmet = 0, 0
    for number in range(120):
        h, first = random_table(rng, keep, grid=rng.choice([0, 2, 10]))
        parent = None if root else first.sum(axis=0)
        totals = first.sum(axis=1) if keep == "both" else None
        # Rows that h itself keeps, and rows that some rounding of it keeps.
        near = h if number % 2 else rng.choice(every_rounding(h, parent, totals))
        rows = random_rows(rng, near, nested=nested)
        tables = every_rounding(h, parent, totals, rows)
        if len(tables):
            rounded = check(h, parent, totals, rows)
            assert moved(rounded, h) == pytest.approx(moved(tables, h).min(), abs=1e-9), (h, rows)
            at_work += moved(rounded, h) > moved(check(h, parent, totals), h) + 1e-9
        else:
            unmet += 1
            try:
                nearest = round_family(h, parent, totals, rows=rows)
            except InputError as error:
                assert "no table of integers meets all its sums" in str(error)
            else:
                assert all(row.lower <= row.sum_of(nearest) <= row.upper for row in rows)
                assert parent is None or (nearest.sum(axis=0) == parent).all()
    assert at_work > 3, "any rounding would do"
    assert not (nested and unmet), "nested rows can always be kept"


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("root", [False, True])
def test_aware_of_totals_they_come_first_and_then_the_cells(root, rows):
    rng = np.random.default_rng([3, root, rows])
    matters = 0
    for _ in range(150 if rows else 400):
        h, first = random_table(rng, "cells")
        parent = None if root else first.sum(axis=0)
        nested = rng.random() < 0.5
        near = h if nested else rng.choice(every_rounding(h, parent))
        kept = random_rows(rng, near, nested=nested) if rows else []
        tables = every_rounding(h, parent, None, kept)
        if not len(tables):
            continue
        least = totals_moved(tables, h).min()
        tables = tables[totals_moved(tables, h) <= least + 1e-9]
        if len(np.unique(tables.sum(axis=2), axis=0)) > 1:
            continue  # totals that tie: below
        rounded = check(h, parent, rows=kept, total_aware=True)
        assert totals_moved(rounded, h) == pytest.approx(least, abs=1e-9), (h, kept)
        assert moved(rounded, h) == pytest.approx(moved(tables, h).min(), abs=1e-9), (h, kept)
        plain = check(h, parent, rows=kept)
        matters += totals_moved(plain, h) > least + 1e-9
    assert matters > 5, "any rounding would do"


def test_totals_that_tie_are_settled_before_the_cells():
    # Totals of 0.5 and 1.5 may go either way: the first goes up, whatever that costs the cells.
    h = np.array([[0.1, 0.4], [0.9, 0.6]])
    rounded = check(h, [1, 1], total_aware=True)
    assert rounded.sum(axis=1).tolist() == [1, 1]
    assert moved(rounded, h) == pytest.approx(1.4), rounded


def test_the_cells_move_least_for_the_totals_they_are_given():
    rng = np.random.default_rng(4)
    for _ in range(400):
        h, first = random_table(rng, "cells", grid=int(rng.choice([2, 4, 10])))
        tables = every_rounding(h, first.sum(axis=0))
        least = totals_moved(tables, h).min()
        rounded = check(h, first.sum(axis=0), total_aware=True)
        assert totals_moved(rounded, h) == pytest.approx(least, abs=1e-9), h
        tables = tables[(tables.sum(axis=2) == rounded.sum(axis=1)).all(axis=1)]
        assert moved(rounded, h) == pytest.approx(moved(tables, h).min(), abs=1e-9), h


def test_totals_given_outrank_those_it_would_round():
    h = np.array([[0.4, 0.0], [0.6, 1.0]])
    assert (check(h, [1, 1], total_aware=True) == [[0, 0], [1, 1]]).all()
    assert (check(h, [1, 1], [1, 1], total_aware=True) == [[1, 0], [0, 1]]).all()
    with pytest.raises(InputError, match="h cannot be rounded to these totals: its own totals"):
        round_family(h, [1, 1], [2, 0], total_aware=True)


def test_larger_tables_equal_a_linear_program():
    # Cells and totals make a transportation problem, whose vertices are whole.
    rng = np.random.default_rng(5)
    for _ in range(25):
        shape = rng.integers(6, 20, 2)
        A = np.eye(shape[1]) + 0.1
        counts = rng.poisson(1.5, shape)
        parent, totals = counts.sum(axis=0), counts.sum(axis=1)
        h, certificate = solve_family(A, (counts + rng.normal(size=shape)) @ A, parent, totals)
        assert certificate.holds
        low = np.floor(h + NEAR)
        part = np.where(h - low > NEAR, h - low, 0.0)
        columns = np.kron(np.ones((1, shape[0])), np.eye(shape[1]))
        sums = np.kron(np.eye(shape[0]), np.ones((1, shape[1])))
        found = linprog(
            (1 - 2 * part).reshape(-1),
            A_eq=np.vstack([columns, sums]),
            b_eq=np.concatenate([parent - low.sum(axis=0), totals - low.sum(axis=1)]),
            bounds=[(0, float(x > 0)) for x in part.reshape(-1)],
        )
        best = found.fun + part.sum()
        assert moved(check(h, parent, totals), h) == pytest.approx(best, abs=1e-7)


# Whole and nearly whole tables.


@pytest.mark.parametrize("off", [0.0, 1e-9, -1e-9])
@pytest.mark.parametrize("aware", [False, True])
def test_whole_tables_stay_as_they_are(aware, off):
    rng = np.random.default_rng(6)
    table = rng.integers(0, 1000, (6, 7))
    table[0] = 0
    h = table + off * rng.random(table.shape)
    for parent, totals in product((None, table.sum(axis=0)), (None, table.sum(axis=1))):
        assert (round_family(h, parent, totals, total_aware=aware) == table).all()


def test_entries_near_whole_numbers_do_not_take_part():
    # The near-ones look like the cheapest to round up and the near-zeros to round down; neither may.
    h = np.array([[2 - 1e-9, 0.3], [1e-9, 0.3], [1.0, 0.4]])
    assert (check(h, [3, 1]) == [[2, 0], [0, 0], [1, 1]]).all()
    assert (check(h, [3, 1], total_aware=True) == [[2, 0], [0, 0], [1, 1]]).all()
    assert (check(h, [3, 1], [2, 1, 1]) == [[2, 0], [0, 1], [1, 0]]).all()
    assert (check(h, None, total_aware=True) == [[2, 0], [0, 0], [1, 0]]).all()


@pytest.mark.parametrize("shape", [(0, 2), (2, 0), (0, 0)], ids=str)
@pytest.mark.parametrize("aware", [False, True])
def test_nothing_to_round(aware, shape):
    for parent in (None, np.zeros(shape[1])):
        assert round_family(np.zeros(shape), parent, total_aware=aware).shape == shape


# Margins that cross: vertices of the relaxation are not whole.


def margins(levels: tuple[int, ...], over: tuple[int, ...]) -> list[np.ndarray]:
    """Return the cells of each level combination of the attributes `over`."""
    index = np.indices(levels).reshape(len(levels), -1)[list(over)]
    return [
        np.flatnonzero((index == np.array([[value] for value in values])).all(axis=0))
        for values in product(*(range(levels[attribute]) for attribute in over))
    ]


def kept_margins(h: np.ndarray, groups: list[np.ndarray]) -> list[Row]:
    """Rows that hold the sums of h over each group of cells, in each child."""
    return [
        Row(np.array([c]), cells, *[float(np.rint(h[c, cells].sum()))] * 2)
        for c in range(len(h))
        for cells in groups
    ]


def relaxed(cost: np.ndarray, parent, rows: list[Row]) -> np.ndarray:
    """Return the cheapest table with entries from 0 to 1, whole or not, by linear programming."""
    children, cells = cost.shape
    columns = np.kron(np.ones((1, children)), np.eye(cells))
    matrix = np.vstack([columns, as_matrix(rows, children, cells).toarray()])
    values = np.concatenate([parent, [row.lower for row in rows]])
    found = linprog(cost.reshape(-1), A_eq=matrix, b_eq=values, bounds=(0, 1))
    return found.x.reshape(cost.shape)


CROSSING = margins((3, 3), (0,)) + margins((3, 3), (1,))  # of a child's 3 × 3 cells


def half_vertices() -> list[np.ndarray]:
    """Return all 3 × 3 × 3 tables of 0 and ½ that are vertices among tables with their 2-margins.

    Each line has an even number of halves, so the halves are sums modulo 2 of 2 × 2 × 2 cubes. A
    table is a vertex if the columns of its entries above 0 are linearly independent.
    """
    whole = np.vstack(
        [
            np.kron(np.ones((1, 3)), np.eye(9)),
            as_matrix(kept_margins(np.zeros((3, 9)), CROSSING), 3, 9).toarray(),
        ]
    )
    pairs = np.array([[1, 1, 0], [0, 1, 1]])
    cubes = [np.kron(np.kron(a, b), c) for a, b, c in product(pairs, repeat=3)]
    found = []
    for chosen in product((0, 1), repeat=8):
        halves = np.array(chosen) @ np.array(cubes) % 2 == 1
        if halves.any() and np.linalg.matrix_rank(whole[:, halves]) == halves.sum():
            found.append(0.5 * halves.reshape(3, 9))
    return found


def whole_tables(parent: np.ndarray, rows: list[Row]) -> list[np.ndarray]:
    """Return every 0-1 table of three 3 × 3 children with these sums."""
    squares = np.array(list(product((0, 1), repeat=9)))
    by_child = [
        squares[
            np.all(
                [squares[:, row.cells].sum(axis=1) == row.lower for row in rows[6 * c : 6 * c + 6]],
                axis=0,
            )
        ]
        for c in range(3)
    ]
    return [np.array(t) for t in product(*by_child) if (np.sum(t, axis=0) == parent).all()]


def test_half_integral_vertices_of_two_crossing_margins():
    vertices = half_vertices()
    assert len(vertices) == 54
    beside_whole_ones = 0
    for vertex in vertices:
        parent, rows = vertex.sum(axis=0), kept_margins(vertex, CROSSING)
        # Favoured by the cost, the vertex is what a linear program returns.
        np.testing.assert_allclose(
            relaxed(1.0 - 2.0 * vertex, parent, rows), vertex, rtol=0, atol=1e-9
        )
        # Only itself has its sums and no other entries: no rounding is whole, so entries move further.
        tables = whole_tables(parent, rows)
        if not tables:
            with pytest.raises(InputError, match="no table of integers meets all its sums"):
                round_family(vertex, parent, rows=rows)
            continue
        nearest = round_family(vertex, parent, rows=rows)
        assert (nearest.sum(axis=0) == parent).all()
        assert all(row.sum_of(nearest) == row.lower for row in rows)
        assert moved(nearest, vertex) == pytest.approx(moved(np.array(tables), vertex).min())
        none = np.zeros(vertex.shape, bool)
        with pytest.raises(InputError, match="no table of integers meets all its sums"):
            round_family(vertex, parent, rows=rows, allowed=none)
        # Mixed with a little of whole tables, they become possible; a linear program would not do.
        beside_whole_ones += 1
        h = 0.9 * vertex + 0.1 * np.mean(tables, axis=0)
        np.testing.assert_allclose(relaxed(1.0 - 2.0 * h, parent, rows), vertex, rtol=0, atol=1e-9)
        best = moved(np.array(tables), h).min()
        for totals in (None, np.rint(h.sum(axis=1))):
            assert moved(check(h, parent, totals, rows), h) == pytest.approx(best)
    assert beside_whole_ones


def test_the_half_integral_vertex_of_three_crossing_margins():
    groups = [cells for attribute in range(3) for cells in margins((2, 2, 2), (attribute,))]
    vertex = np.zeros((1, 8))
    vertex[0, [0b000, 0b011, 0b101, 0b110]] = 0.5
    rows = kept_margins(vertex, groups)
    assert {row.lower for row in rows} == {1.0}
    nearest = round_family(vertex, None, rows=rows)  # 000 and 111 have the margins, or such a pair
    tables = np.array(list(product((0, 1), repeat=8)))[:, None, :]
    tables = tables[[all(row.sum_of(table) == 1 for row in rows) for table in tables]]
    assert (tables == nearest).all(axis=(1, 2)).any()
    assert moved(nearest, vertex) == moved(tables, vertex).min()
    # A little of everything: 000 and 111, say, keep the margins, and the best such pair is found.
    rng = np.random.default_rng(7)
    for _ in range(20):
        pairs = np.zeros((1, 8))
        for share, i in zip(rng.dirichlet(np.ones(4)), range(4), strict=True):
            pairs[0, [i, 7 - i]] += share
        h = 0.9 * vertex + 0.1 * pairs
        tables = every_rounding(h, None, None, rows)
        best = moved(tables, h).min()
        assert moved(vertex, h) < best, "the vertex is not favoured"
        assert moved(check(h, rows=rows), h) == pytest.approx(best)
        # And with a sibling that has the rest of each cell.
        both = np.vstack([h, 1.0 - h])
        kept = kept_margins(both, groups)
        tables = every_rounding(both, np.ones(8), None, kept)
        rounded = check(both, np.ones(8), rows=kept)
        assert moved(rounded, both) == pytest.approx(moved(tables, both).min())


def test_totals_may_have_to_move_by_more_than_one():
    # Whoever rounds up the sibling's entry rounds down all three of the first child, or none.
    h = np.array([[0.5, 0.5, 0.5, 0.0], [0.0, 0.0, 0.0, 0.5]])
    rows = [Row(np.array([0, 1]), np.array([j, 3]), 1.0, 1.0) for j in range(3)]
    assert len(every_rounding(h, rows=rows)) == 2
    check(h, rows=rows)
    check(h, rows=rows, total_aware=True)


# Bad input, and what is said of it.

H = np.array([[0.5, 1.5], [0.5, 0.5]])


@pytest.mark.parametrize(
    ("h", "parent", "message"),
    [
        ([0.5, 0.5], [1], "h must be a table of finite numbers, children × cells"),
        ([[np.nan], [0.5]], [1], "h must be a table of finite numbers"),
        ([[np.inf], [0.5]], [1], "h must be a table of finite numbers"),
        ([[-0.5], [1.5]], [1], "h has a negative entry; solve the family first"),
        ([[0.5], [0.5]], [3], "h does not add up to its parent; solve the family first"),
        ([[0.5], [0.5]], [-1], "h does not add up to its parent; solve the family first"),
        ([[2.0], [3.0]], [6], "h does not add up to its parent; solve the family first"),
    ],
)
def test_tables_that_cannot_be_rounded_are_refused(h, parent, message):
    with pytest.raises(InputError, match=message):
        round_family(h, parent)


@pytest.mark.parametrize("parent", [[1], 1, [1, 2, 3], [[1, 2]]], ids=str)
def test_a_parent_of_another_shape_is_refused(parent):
    with pytest.raises(InputError, match="parent"):
        round_family(np.full((2, 2), 0.5), parent)


@pytest.mark.parametrize("totals", [[1], 1, [2, 1, 0], [[2, 1]]], ids=str)
@pytest.mark.parametrize("parent", [[1, 2], None], ids=str)
def test_totals_of_another_shape_are_refused(parent, totals):
    with pytest.raises(InputError, match="totals"):
        round_family(H, parent, totals)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_sums_that_are_not_finite_are_refused(bad):
    with pytest.raises(InputError, match="parent"):
        round_family(H, [1, bad])
    with pytest.raises(InputError, match="totals"):
        round_family(H, [1, 2], [bad, 1])


@pytest.mark.parametrize("parent", [[1, 2], None], ids=str)
@pytest.mark.parametrize("totals", [[1, 1], [2, 2], [3, 1], [3, 2], [1.5, 1.5]], ids=str)
def test_totals_that_are_not_those_of_h_are_refused_or_met(totals, parent):
    if len(every_rounding(H, parent, totals)):
        check(H, parent, totals)
        return
    with pytest.raises(InputError, match="totals"):
        round_family(H, parent, totals)


def test_a_whole_table_outside_its_rows_is_refused():
    row = Row(np.array([0]), np.array([0]), 0.0, 0.0)
    with pytest.raises(InputError, match="no rounding of h, each entry up or down, meets all"):
        round_family([[1.0], [0.0]], [1], rows=[row])


@pytest.mark.parametrize("bounds", [(0.5, 1.5), (-np.inf, 1.5), (0.5, np.inf)], ids=str)
def test_bounds_between_whole_numbers_bind_at_the_next_one(bounds):
    h = np.full((2, 2), 0.5)
    row = Row(np.array([0]), np.array([0, 1]), *bounds)
    tables = every_rounding(h, [1, 1], None, [row])
    assert moved(check(h, [1, 1], rows=[row]), h) == moved(tables, h).min()
