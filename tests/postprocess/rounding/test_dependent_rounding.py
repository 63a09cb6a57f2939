"""Unbiased rounding keeps its sums always, and every expectation on average."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countveil.base.randomness import Secure, Seeded
from countveil.errors import InputError
from countveil.postprocess.rounding.controlled_rounding import round_family
from countveil.postprocess.rounding.dependent_rounding import round_unbiased

DRAWS = 20_000
LARGEST_Z = (
    4.5  # about 100 z-scores in all: one in 1500 runs of a right sampler, were it not seeded
)

# Cells sum to 3, 1, 2 and 4; no child's total is whole.
FAMILY = np.array(
    [
        [0.25, 0.10, 0.00, 2.33],
        [1.90, 0.05, 0.40, 0.99],
        [0.15, 0.80, 1.00, 0.01],
        [0.70, 0.05, 0.60, 0.67],
    ]
)
PARENT = [3, 1, 2, 4]
# Children sum to 2, 1 and 3 as well.
SQUARE = np.array([[0.2, 0.3, 1.5], [0.7, 0.1, 0.2], [1.1, 1.6, 0.3]])
SQUARE_PARENT, SQUARE_TOTALS = [2, 2, 2], [2, 1, 3]

CASES = {
    "parent": (FAMILY, PARENT, None),
    "parent and totals": (SQUARE, SQUARE_PARENT, SQUARE_TOTALS),
    "children alone": (FAMILY, None, None),
    "children alone with totals": (SQUARE, None, SQUARE_TOTALS),
}
every_case = pytest.mark.parametrize("case", CASES)


def is_rounding(x: np.ndarray, h: np.ndarray) -> bool:
    lowest, highest = np.floor(h + 1e-6), np.ceil(h - 1e-6)
    inside = bool(((lowest <= x) & (x <= highest)).all())
    return inside and x.dtype == np.int64 and x.shape == h.shape


def assert_kept(x, h, parent, totals) -> None:
    assert is_rounding(x, h)
    if parent is not None:
        np.testing.assert_array_equal(x.sum(axis=0), parent)
    if totals is not None:
        np.testing.assert_array_equal(x.sum(axis=1), totals)
    assert is_rounding(x.sum(axis=1), h.sum(axis=1))


def z_scores(draws: np.ndarray, h: np.ndarray) -> np.ndarray:
    """Return how many standard errors the mean of draws is from h; entries that are whole have none."""
    part = h - np.floor(h)
    error = np.sqrt(part * (1 - part) / len(draws))
    off = draws.mean(axis=0) - h
    assert (off[error == 0] == 0).all()
    return off[error > 0] / error[error > 0]


@pytest.fixture(scope="module")
def drawn() -> dict[str, np.ndarray]:
    """Many draws of every case, one seeded source each."""
    out = {}
    for name, (h, parent, totals) in CASES.items():
        rng = Seeded(20060)
        out[name] = np.stack([round_unbiased(h, parent, totals, rng=rng) for _ in range(DRAWS)])
    return out


@every_case
def test_every_draw_keeps_its_sums(drawn, case):
    for x in drawn[case][:2000]:
        assert_kept(x, *CASES[case])


@every_case
def test_entries_are_unbiased(drawn, case):
    assert np.abs(z_scores(drawn[case], CASES[case][0])).max() < LARGEST_Z


@every_case
def test_totals_are_unbiased(drawn, case):
    h = np.round(CASES[case][0].sum(axis=1), 9)
    assert np.abs(z_scores(drawn[case].sum(axis=2), h)).max(initial=0.0) < LARGEST_Z


def test_the_z_scores_catch_a_small_bias_and_a_rounding_that_is_not_random(drawn):
    shifted = FAMILY + np.where(FAMILY % 1 > 0, 0.009, 0.0)
    assert np.abs(z_scores(drawn["parent"], shifted)).max() > LARGEST_Z
    fixed = np.stack([round_family(FAMILY, PARENT)] * DRAWS)
    assert np.abs(z_scores(fixed, FAMILY)).max() > LARGEST_Z


def excess_of_all_up(ups: np.ndarray, part: np.ndarray) -> list[float]:
    """Return, for subsets of the entries of a node, z of P(all up) − Π part, which is at most 0."""
    out = []
    for size in range(2, len(part) + 1):
        for subset in map(list, combinations(range(len(part)), size)):
            product = part[subset].prod()
            error = np.sqrt(product * (1 - product) / len(ups))
            out.append((ups[:, subset].all(axis=1).mean() - product) / error)
    return out


@pytest.mark.parametrize("case", ["parent", "parent and totals"])
def test_entries_of_a_cell_are_negatively_correlated(drawn, case):
    h = CASES[case][0]
    ups = drawn[case] - np.floor(h) > 0
    for j in range(h.shape[1]):
        open_ = np.flatnonzero(h[:, j] % 1 > 0)
        part = h[open_, j] % 1
        assert max(excess_of_all_up(ups[:, open_, j], part), default=0) < LARGEST_Z
        # P3 holds for all down too; and the correlation is there: a cell's sum does not vary.
        assert max(excess_of_all_up(~ups[:, open_, j], 1 - part), default=0) < LARGEST_Z
        covariance = np.atleast_2d(np.cov(ups[:, open_, j].T.astype(float)))
        np.testing.assert_allclose(covariance.sum(axis=0), 0.0, rtol=0, atol=1e-12)


@every_case
def test_entries_of_a_child_are_negatively_correlated(drawn, case):
    h = CASES[case][0]
    ups = drawn[case] - np.floor(h) > 0
    for c in range(len(h)):
        open_ = np.flatnonzero(h[c] % 1 > 0)
        assert max(excess_of_all_up(ups[:, c, open_], h[c, open_] % 1), default=0) < LARGEST_Z


def test_the_correlation_check_catches_entries_that_rise_together():
    together = np.repeat(np.arange(DRAWS)[:, None] % 2 == 0, 2, axis=1)
    assert max(excess_of_all_up(together, np.array([0.5, 0.5]))) > LARGEST_Z


def test_entries_of_children_alone_are_independent():
    """Independence of two children with a parent of None: P(both up) is the product."""
    h = np.array([[0.3, 0.7], [0.6, 0.4]])
    rng = Seeded(5)
    x = np.stack([round_unbiased(h, None, rng=rng) for _ in range(DRAWS)])
    both = (x[:, 0, 0] * x[:, 1, 0]).mean()
    assert abs(both - 0.18) < LARGEST_Z * np.sqrt(0.18 * 0.82 / DRAWS)


@st.composite
def families(draw):
    """A solved family: some entries whole, the last child taking what is left of each cell."""
    children, cells = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    seed = draw(st.integers(0, 2**32))
    numbers = np.random.default_rng(seed)
    h = numbers.gamma(0.5, draw(st.sampled_from([0.5, 3.0, 1e6])), (children, cells))
    h *= numbers.random(h.shape) < draw(st.sampled_from([0.2, 0.7, 1.0]))
    if draw(st.booleans()):
        h = np.round(h * 2) / 2  # many ties
    h[-1] = np.ceil(h.sum(axis=0)) - h[:-1].sum(axis=0)
    return h, np.rint(h.sum(axis=0)), seed


@given(families(), st.sampled_from(["parent", "totals", "alone", "alone with totals"]))
@settings(max_examples=400, deadline=None)
def test_any_family_keeps_its_sums(family, kind):
    h, parent, seed = family
    totals = None
    if "totals" in kind:
        # One more cell brings every child's total up to a whole number; its own sum is whole too.
        h = np.column_stack((h, np.ceil(h.sum(axis=1)) - h.sum(axis=1)))
        totals, parent = np.rint(h.sum(axis=1)), np.rint(h.sum(axis=0))
    if "alone" in kind:
        parent = None
    assert_kept(round_unbiased(h, parent, totals, rng=Seeded(seed)), h, parent, totals)


@pytest.mark.parametrize("miss", [0.0, 1e-9, 1e-7, 9e-7])
def test_large_families_that_miss_their_sums_a_little_keep_them(miss):
    numbers = np.random.default_rng(3)
    h = numbers.random((40, 300)) * (numbers.random((40, 300)) < 0.3)
    h[-1] = np.ceil(h.sum(axis=0)) - h[:-1].sum(axis=0)
    parent = np.rint(h.sum(axis=0))
    off = h + numbers.uniform(-miss, miss, h.shape) / len(h) * (h > 0.01)
    assert_kept(round_unbiased(off, parent, rng=Seeded(1)), off, parent, None)


def test_a_long_cycle_is_walked():
    """Each child shares one cell with the next and the last with the first: one cycle, two ends."""
    size = 3000
    h = np.zeros((size, size))
    here = np.arange(size)
    h[here, here], h[here, (here + 1) % size] = 0.3, 0.7
    ones = np.ones(size)
    x = round_unbiased(h, ones, ones, rng=Seeded(2))
    assert_kept(x, h, ones, ones)
    assert x[here, here].sum() in (0, size)


@every_case
def test_the_same_seed_gives_the_same_table(case):
    h, parent, totals = CASES[case]
    first, again, other = (
        [round_unbiased(h, parent, totals, rng=rng).tolist() for _ in range(20)]
        for rng in (Seeded(7), Seeded(7), Seeded(8))
    )
    assert first == again
    assert first != other
    assert any(table != first[0] for table in first), "each call draws anew"


def test_secure_bits_serve_as_well():
    h, parent, totals = CASES["parent and totals"]
    tables = [round_unbiased(h, parent, totals, rng=Secure()) for _ in range(40)]
    assert len({table.tobytes() for table in tables}) > 1
    for table in tables:
        assert_kept(table, h, parent, totals)


def test_whole_entries_stay_and_close_to_whole_is_whole():
    h = np.array([[2.0, 0.0], [1.0 - 1e-9, 3.0 + 1e-9]])
    for parent, totals in (([3, 3], [2, 4]), ([3, 3], None), (None, [2, 4]), (None, None)):
        x = round_unbiased(h, parent, totals, rng=Seeded(1))
        np.testing.assert_array_equal(x, [[2, 0], [1, 3]])


def test_an_only_child_is_its_parent():
    np.testing.assert_array_equal(
        round_unbiased([[2, 0, 5]], [2, 0, 5], rng=Seeded(1)), [[2, 0, 5]]
    )


def test_an_only_entry_without_a_parent_is_unbiased():
    rng = Seeded(3)
    draws = np.stack([round_unbiased([[4.2]], None, rng=rng) for _ in range(5000)])
    assert set(draws.ravel()) == {4, 5}
    assert abs(z_scores(draws, np.array([[4.2]]))).max() < LARGEST_Z


def test_cells_of_zero_stay_zero():
    h = np.array([[0.0, 0.5, 0.0], [0.0, 0.5, 0.0]])
    x = round_unbiased(h, [0, 1, 0], rng=Seeded(1))
    assert not x[:, [0, 2]].any()
    assert x.sum() == 1


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_empty_tables_stay_empty(shape):
    h = np.zeros(shape)
    for parent in (np.zeros(shape[1]), None):
        for totals in (np.zeros(shape[0]), None):
            x = round_unbiased(h, parent, totals, rng=Seeded(1))
            assert (x.shape, x.dtype) == (shape, np.int64)


@pytest.mark.parametrize(
    ("h", "parent", "totals", "message"),
    [
        (
            [[0.5, 0.5]],
            [1, 1],
            None,
            "h are 0.5 away from its parent, and may be at most 1e-05",
        ),
        ([[0.5, 0.5]], [0.5, 0.5], None, "parent must hold whole numbers"),
        ([[0.5, 0.5]], [np.nan, 1], None, "parent must hold whole numbers"),
        ([[0.5, 0.5]], None, [2], "1 away from its totals, .*; solve the family first"),
        ([[0.5, 0.5]], [1], None, r"parent has shape \(1,\); it must have \(2,\)"),
        ([[0.5, 0.5]], None, [1, 1], r"totals has shape \(2,\); it must have \(1,\)"),
        (np.zeros((0, 1)), [1], None, "1 away from its parent"),
        ([[-0.5, 0.5]], None, None, "h has a negative entry"),
        ([0.5, 0.5], None, None, "children × cells"),
        ([[np.inf]], None, None, "finite"),
    ],
)
def test_what_cannot_be_rounded_is_refused_with_the_reason(h, parent, totals, message):
    with pytest.raises(InputError, match=message):
        round_unbiased(h, parent, totals, rng=Seeded(1))


def test_a_table_with_wrong_sums_is_never_returned():
    """Each cell misses its sum by 8e-6, together by 2: the parent and the totals disagree."""
    cells = 250_000
    h = np.full((2, cells), 0.5 + 4e-6)
    with pytest.raises(ArithmeticError, match="the sums of h are off"):
        round_unbiased(h, np.ones(cells), [125_001, 125_001], rng=Seeded(1))
