"""Noise, then projection: against every face, a general solver, all roundings, and exact laws."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize

from countveil.base.randomness import Secure, Seeded
from countveil.errors import InfeasibleError, InputError
from countveil.noise.discrete_laplace import DiscreteLaplace
from countveil.papers.seeman import projection


def on_every_face(noisy, total):
    """Solve the equations of each choice of tight inequalities; keep the nearest that is allowed."""
    counties = len(noisy)
    best, nearest = np.inf, None
    # Each county: free, cases = deaths, deaths = 0, or both 0.
    rows_of = {0: [], 1: [(1, -1)], 2: [(0, 1)], 3: [(1, 0), (0, 1)]}
    for states in product(range(4), repeat=counties):
        rows, sums = [np.tile([1.0, 0.0], counties)], [float(total)]
        for county, state in enumerate(states):
            for pair in rows_of[state]:
                row = np.zeros(2 * counties)
                row[2 * county : 2 * county + 2] = pair
                rows.append(row)
                sums.append(0.0)
        A = np.array(rows)
        move, *_ = np.linalg.lstsq(A, np.array(sums) - A @ noisy.ravel(), rcond=None)
        y = (noisy.ravel() + move).reshape(-1, 2)
        allowed = (y[:, 0] >= y[:, 1] - 1e-9).all() and (y[:, 1] >= -1e-9).all()
        if allowed and np.abs(A @ y.ravel() - sums).max() < 1e-7:
            distance = ((y - noisy) ** 2).sum()
            if distance < best - 1e-9:
                best, nearest = distance, y
    return nearest


@pytest.mark.parametrize("seed", range(25))
def test_nearest_of_all_faces(seed):
    rng = np.random.default_rng(seed)
    noisy = rng.normal(0, 20, (int(rng.integers(1, 5)), 2)).round(int(rng.integers(0, 3)))
    total = int(rng.integers(0, 40))
    assert projection.project(noisy, total=total) == pytest.approx(
        on_every_face(noisy, total), abs=1e-8
    )


@pytest.mark.parametrize("seed", range(4))
def test_a_general_solver_finds_nothing_nearer(seed):
    rng = np.random.default_rng(seed)
    noisy = np.stack((rng.normal(30, 40, 12), rng.normal(3, 25, 12)), axis=1)
    ours = projection.project(noisy, total=300)
    result = minimize(
        lambda y: ((y - noisy.ravel()) ** 2).sum(),
        np.tile([25.0, 0.0], 12),
        jac=lambda y: 2 * (y - noisy.ravel()),
        method="SLSQP",
        constraints=[
            {"type": "eq", "fun": lambda y: y[::2].sum() - 300},
            {"type": "ineq", "fun": lambda y: y[::2] - y[1::2]},
            {"type": "ineq", "fun": lambda y: y[1::2]},
        ],
        options={"ftol": 1e-9, "maxiter": 500},
    )
    assert result.success
    assert ours.ravel() == pytest.approx(result.x, abs=1e-2)
    assert ((ours - noisy) ** 2).sum() <= result.fun + 1e-6


@pytest.mark.parametrize(("spread", "total"), [(1, 100), (1e3, 0), (1e5, 279_558), (1e8, 10**7)])
@pytest.mark.parametrize("columns", [1, 2])
def test_projections_prove_themselves(spread, total, columns):
    rng = np.random.default_rng(7)
    noisy = rng.laplace(total / 67, spread, (50, 67, columns))
    result = projection.project(noisy, total=total)
    size = max(spread, total)
    assert projection.kkt_residual(result, noisy, total=total) < 1e-12 * size
    again = projection.project(result, total=total)
    assert np.abs(again - result).max() < 1e-12 * size


@pytest.mark.parametrize("columns", [1, 2])
def test_the_proof_refuses_other_tables(columns):
    noisy = np.random.default_rng(1).normal(5, 8, (6, columns))
    result = projection.project(noisy, total=30)
    moved = result.copy()
    loose = np.argsort(result[:, 0] - (result[:, 1] if columns == 2 else 0))[-2:]
    moved[loose, 0] += [0.01, -0.01]  # feasible, not the nearest
    assert projection.consistency_gap(moved, total=30) < 1e-12
    assert projection.kkt_residual(moved, noisy, total=30) > 0.009
    assert projection.kkt_residual(result, noisy, total=31) == pytest.approx(1)
    # A count that is 0 and ought not to be has a negative multiplier.
    pinned = np.array([[0.0] * columns, [10.0, 5.0][:columns]])
    right = np.array([[5.0, 0.0], [5.0, 5.0]])[:, :columns]
    assert projection.kkt_residual(pinned, right, total=10) == pytest.approx(10)
    assert projection.kkt_residual(result, noisy + 1.0, total=30) == pytest.approx(
        0 if columns == 1 else 1
    )


def test_stacked_tables_and_groups_are_projected_one_by_one():
    rng = np.random.default_rng(3)
    noisy = rng.normal(4, 9, (20, 9, 2))
    groups, totals = [0, 1, 0, 2, 1, 0, 2, 2, 2], [12, 0, 31]
    result = projection.project(noisy, groups=groups, totals=totals)
    whole = projection.rounded(result, groups=groups, totals=totals)
    for table in range(20):
        for group, total in enumerate(totals):
            rows = np.flatnonzero(np.array(groups) == group)
            alone = projection.project(noisy[table, rows], total=total)
            assert result[table, rows] == pytest.approx(alone, abs=1e-12)
            assert (projection.rounded(alone, total=total) == whole[table, rows]).all()
    assert projection.kkt_residual(result, noisy, groups=groups, totals=totals) < 1e-12
    assert projection.consistency_gap(whole, groups=groups, totals=totals) == 0


def least_rounding(table, total):
    """Try every way to round each count up or down."""
    down = np.floor(table)
    costs = []
    for bits in product((0, 1), repeat=table.size):
        whole = down + np.array(bits).reshape(table.shape)
        chain = np.diff(whole, axis=1, append=0.0)
        if whole[:, 0].sum() == total and (chain <= 0).all():
            costs.append(np.abs(whole - table).sum())
    return min(costs)


@pytest.mark.parametrize("seed", range(40))
def test_rounding_is_the_nearest_of_all(seed):
    rng = np.random.default_rng(seed)
    counties, columns = int(rng.integers(1, 6)), int(rng.integers(1, 3))
    total = int(rng.integers(0, 9))
    noisy = rng.normal(1, 2, (counties, columns))
    table = projection.project(noisy, total=total)
    whole = projection.rounded(table, total=total)
    assert projection.consistency_gap(whole, total=total) == 0
    assert (np.abs(whole - table) < 1 + 1e-9).all()
    assert np.abs(whole - table).sum() == pytest.approx(least_rounding(table, total), abs=1e-8)


def test_deaths_hold_cases_up():
    """A case more saves 0.4 if (0.6, 0.6) becomes (1, 1) for it, and 0.2 if (0.6, 0) becomes (1, 0)."""
    table = np.array([[0.6, 0.0], [0.6, 0.6], [0.8, 0.0]])
    assert projection.rounded(table, total=2).tolist() == [[0, 0], [1, 1], [1, 0]]
    assert projection.rounded(np.array([[0.55, 0.55], [0.45, 0.0]]), total=1).tolist() == [
        [1, 1],
        [0, 0],
    ]
    # Deaths cannot go up where cases go down.
    table = np.array([[0.8, 0.8], [0.6, 0.6], [0.8, 0.8], [0.8, 0.8]])
    assert projection.rounded(table, total=3).tolist() == [[1, 1], [0, 0], [1, 1], [1, 1]]


def test_floats_next_to_whole_numbers_are_whole():
    table = np.array([3 - 1e-12, 2 + 1e-12, 5.0])
    assert projection.rounded(table, total=10).tolist() == [3, 2, 5]
    table = np.array([[3 - 1e-12, 3.0], [-1e-12, -1e-12], [2 + 2e-12, 2.0]])
    assert projection.rounded(table, total=5).tolist() == [[3, 3], [0, 0], [2, 2]]


def test_counties_as_near_go_up_in_order():
    """Each is 3/7 above a whole number, which floats round differently."""
    whole = np.array([70_000, 20, 3, 400, 5_000, 60, 1_000_000])
    table = whole + 3 / 7
    parts = table % 1
    assert set(parts.argsort()[-3:].tolist()) != {0, 1, 2}
    assert len(set(parts.tolist())) > 3
    expected = whole + np.array([1, 1, 1, 0, 0, 0, 0])
    assert projection.rounded(table, total=int(expected.sum())).tolist() == expected.tolist()


@pytest.mark.parametrize("seed", [1, 2])
def test_the_law_of_two_counties(seed):
    """Of two large counts the first moves by half of the difference of two draws, rounded up."""
    epsilon = Fraction(1, 2)
    draws = projection.noise_then_project(
        [10**6, 10**6], epsilon=epsilon, total=2 * 10**6, rng=Seeded(seed), replicates=40_000
    )
    assert draws.shape == (40_000, 2, 1)
    at = np.arange(-200, 201)
    one = np.exp(DiscreteLaplace(4).log_pmf(at))
    both = np.convolve(one, one)  # of differences -400 … 400
    halves = -(-np.arange(-400, 401) // 2)
    shares = np.bincount(halves + 200, weights=both)
    moved = np.bincount(np.clip(draws[:, 0, 0] - 10**6, -12, 12) + 12, minlength=25)
    expected = np.bincount(np.clip(np.arange(401) - 200, -12, 12) + 12, weights=shares)
    assert stats.chisquare(moved, expected / expected.sum() * 40_000).pvalue > 1e-3


def test_the_law_of_deaths():
    """With deaths the scale is 4/epsilon; deaths far from 0 and from cases keep their noise."""
    draws = projection.noise_then_project(
        [[10**6, 10**4], [10**6, 10**4]],
        epsilon="1",
        total=2 * 10**6,
        rng=Seeded(5),
        replicates=20_000,
    )
    noise = np.clip(draws[:, :, 1].ravel() - 10**4, -25, 25)
    at = np.arange(-25, 26)
    law = DiscreteLaplace(4)
    expected = np.exp(law.log_pmf(at))
    expected[0] = expected[-1] = float(law.survival(24))
    counted = np.bincount(noise + 25, minlength=51)
    assert stats.chisquare(counted, expected / expected.sum() * 40_000).pvalue > 1e-3


def test_noise_of_the_euclidean_norm():
    """E |k|² is d(d + 1)(sigma/epsilon)², for the length is Gamma of shape d, nearly on a lattice."""
    counts = np.array([[900, 40], [700, 0], [500, 500]])
    noise = (
        projection.with_noise(counts, epsilon="0.05", loss="L2", rng=Seeded(2), replicates=400)
        - counts
    )
    squares = (noise.astype(float) ** 2).sum(axis=(1, 2))
    expected = 6 * 7 * (2 / 0.05) ** 2
    assert abs(squares.mean() - expected) < 4 * squares.std() / 20
    draws = projection.noise_then_project(
        counts, epsilon="0.05", loss="L2", total=2100, rng=Seeded(2), replicates=400
    )
    same = projection.rounded(projection.project(counts + noise, total=2100), total=2100)
    assert (draws == same).all()


def test_one_draw_has_the_shape_of_the_counts():
    counts = np.array([[30, 2], [0, 0], [7, 7]])
    draws = projection.noise_then_project(counts, epsilon="0.1", total=37, rng=Seeded(4))
    assert draws.shape == (3, 2)
    assert draws.dtype == np.int64
    assert projection.consistency_gap(draws, total=37) == 0
    again = projection.noise_then_project(counts, epsilon="0.1", total=37, rng=Seeded(4))
    assert (draws == again).all()
    assert projection.noise_then_project([3, 4], epsilon="1", total=7, rng=Seeded(4)).shape == (2,)


@pytest.mark.parametrize(
    ("counts", "changes", "message"),
    [
        ([[5, -1], [3, 0]], {}, r"-1 deaths in row 0; negative counts are corrections"),
        ([[5, 1], [-3, 0]], {}, r"-3 cases in row 1"),
        ([[5, 1], [3, 4]], {}, r"4 deaths and 3 cases in row 1; deaths are at most the cases"),
        ([[5, 1], [3, 0.5]], {}, "not whole numbers"),
        ([[5, 1, 1], [3, 0, 1]], {}, r"the shape is \(2, 3\)"),
        ([], {}, r"the shape is \(0,\)"),
        ([["a", "b"]], {}, "not an array of numbers"),
        ([[5, np.nan]], {}, "finite"),
        (np.ones((2, 3, 2)), {}, "got 2 tables; give one"),
        ([5, 3], {"total": 9}, r"total: 9 is not 8, the sum of the cases"),
        ([5, 3], {"total": -1}, r"total: -1 is negative"),
        ([5, 3], {"total": 8.0}, "not a whole number"),
        ([5, 3], {"total": 2**41}, "the largest supported total"),
        ([5, 3], {"total": None}, "give exactly one of total="),
        ([5, 3], {"totals": [8]}, "give exactly one of total="),
        ([5, 3], {"groups": [0, 0]}, "give exactly one of total="),
        (
            [5, 3],
            {"total": None, "groups": [0, 1], "totals": [5, 4]},
            "total of group 1: 4 is not 3, the sum of the cases",
        ),
        ([5, 3], {"total": None, "groups": [0, 1], "totals": [8]}, "got 1 for 2 groups"),
        ([5, 3], {"total": None, "groups": [0, 2], "totals": [5, 3]}, "number them 0, 1, 2"),
        ([5, 3], {"total": None, "groups": [0], "totals": [8]}, "of each of 2 counties"),
        ([5, 3], {"epsilon": "0"}, "epsilon: 0 is not allowed"),
        ([5, 3], {"epsilon": 0.5}, "write it as text"),
        ([5, 3], {"replicates": 0}, "replicates: 0 is not allowed"),
        ([5, 3], {"loss": "L3"}, "loss: unknown loss 'L3'"),
        ([5, 3], {"rng": Secure()}, "this is for simulations"),
    ],
)
def test_bad_input_is_named(counts, changes, message):
    inputs = {"epsilon": "1", "total": 8, "rng": Seeded(1)} | changes
    with pytest.raises(InputError, match=message):
        projection.noise_then_project(counts, **inputs)


def test_totals_that_no_table_has():
    with pytest.raises(InfeasibleError, match="total: -5 is negative"):
        projection.project([3.0, -1.0], total=-5)
    with pytest.raises(InputError, match="is off the totals.* by 1; project it first"):
        projection.rounded([3.0, 1.0], total=5)
    with pytest.raises(InputError, match="by 0.5; project"):
        projection.rounded([[3.0, 3.5]], total=3)
    with pytest.raises(InputError, match=r"the shape is \(2,\), and that of noisy is \(3,\)"):
        projection.kkt_residual([1.0, 2.0], [1.0, 2.0, 0.0], total=3)
