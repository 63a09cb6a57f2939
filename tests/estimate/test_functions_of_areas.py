"""Differences, ratios and shares of areas: by hand, against definitions, and from releases."""

from types import SimpleNamespace

import numpy as np
import pytest
from tests.estimate import known_areas, released_trees
from tests.estimate.released_trees import plan_text

from countveil import estimate
from countveil.errors import InputError
from countveil.estimate import contrasts
from countveil.estimate.contrasts import ConfidenceSets, fieller_sets, quotient, simulated_sets
from countveil.estimate.joint_variance import Pairs, Term, covariance_of_areas, pairs

Z90 = 1.6448536269514722
TWO = 0.9544997361036416  # the confidence of two standard errors
AGE = {"AGE": ["young", "old"], "RACE": ["a", "b", "c"]}
EVERYTHING = {"TOTAL": 3, "RACE": 1, "AGE*RACE": 5}
PLACES = released_trees.places([2], [3, 2], [2, 1, 4, 3, 3])


def release(folder, **more):
    queries = more.pop("queries", dict.fromkeys(("l0", "l1", "l2"), EVERYTHING))
    tree = released_trees.release(folder, plan_text(AGE, queries, **more), PLACES)
    return estimate.least_squares(tree.measurements, tree.plan)


def districts(gls):
    blocks = gls.geography.geocodes("l2").to_pylist()
    return {"north": blocks[:5], "south": blocks[4:9], "state": blocks}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    gls = release(tmp_path_factory.mktemp("tree"))
    return gls.areas(districts(gls), "RACE*AGE")


@pytest.fixture(scope="module")
def with_facts(tmp_path_factory):
    """Return areas with totals known exactly, and ages not known in the lowest units."""
    queries = {"l0": {"TOTAL": 1, "AGE*RACE": 1}, "l1": {"AGE": 1}, "l2": {"TOTAL": 1}}
    gls = release(tmp_path_factory.mktemp("facts"), queries=queries, invariants=[("l1", "TOTAL")])
    codes = gls.geography.geocodes("l2").to_pylist()
    areas = {
        "county": [code for code in codes if code.startswith("u11")],
        "other": [code for code in codes if code.startswith("u13")],
        "block": codes[:1],
        "blocks": codes[5:7],
    }
    return {query: gls.areas(areas, query) for query in ("TOTAL", "AGE")}


def by_hand(**more):
    return known_areas.areas([300, 200], [[16, 4], [4, 9]], **more)


def several(rows):
    """Return pairs from rows of first, second, variances and covariance."""
    return Pairs(*np.array(rows, float).T)


def test_a_difference_by_hand():
    made = estimate.difference(by_hand(), "d1", "d2")
    assert made.value.item() == 100
    assert made.standard_error.item() == pytest.approx(17**0.5)  # 16 + 9 - 2 · 4
    assert made.lower.item() == pytest.approx(100 - Z90 * 17**0.5)
    assert made.upper.item() == pytest.approx(100 + Z90 * 17**0.5)
    back = estimate.difference(by_hand(), "d2", "d1", confidence=TWO)
    assert back.value.item() == -100
    assert back.upper.item() == pytest.approx(-100 + 2 * 17**0.5)
    assert (made.kind, made.method, made.confidence) == ("difference", "normal", 0.9)


def test_a_ratio_by_hand():
    made = estimate.ratio(by_hand(), "d1", "d2", confidence=TWO)
    assert made.value.item() == 1.5
    assert made.standard_error.item() == pytest.approx(24.25**0.5 / 200)  # 16 - 12 + 2.25 · 9
    # (200² - 4 · 9) r² - 2 (300 · 200 - 4 · 4) r + 300² - 4 · 16 <= 0
    root = (59_984**2 - 39_964 * 89_936) ** 0.5
    assert made.lower.item() == pytest.approx((59_984 - root) / 39_964, rel=1e-12)
    assert made.upper.item() == pytest.approx((59_984 + root) / 39_964, rel=1e-12)
    assert made.method == "fieller"
    delta = estimate.ratio(by_hand(), "d1", "d2", confidence=TWO, method="delta")
    assert delta.upper.item() == pytest.approx(1.5 + 2 * 24.25**0.5 / 200)
    assert delta.method == "delta"


def test_a_share_by_hand():
    cells = known_areas.areas([[30, 70]], [[9, -2], [-2, 4]], confidence=TWO)
    made = estimate.share(cells, "d1", method="delta")
    np.testing.assert_allclose(made.value, [0.3, 0.7])
    # Var(total) = 9 + 4 - 4 = 9, Cov(cell, total) = 7 and 2.
    variance = [9 - 2 * 0.3 * 7 + 0.09 * 9, 4 - 2 * 0.7 * 2 + 0.49 * 9]
    assert variance[0] == pytest.approx(variance[1])  # one share is 1 less the other
    np.testing.assert_allclose(made.standard_error, np.sqrt(variance) / 100)
    np.testing.assert_allclose(made.upper, made.value + 2 * np.sqrt(variance) / 100)
    part = estimate.share(by_hand(), "d2", of="d1", method="delta")
    assert part.value.item() == pytest.approx(2 / 3)
    assert part.standard_error.item() == pytest.approx((9 - 8 * 2 / 3 + 16 * 4 / 9) ** 0.5 / 300)


def test_denominators_near_0_by_hand():
    rows = [(10, 1, 1, 1, 0), (1, 1, 1, 1, 0), (10, 2, 1, 1, 0), (-10, 2, 1, 1, 0)]
    made = fieller_sets(several(rows), TWO)
    # -3 r² - 20 r + 96 <= 0: outside of its roots. -3 r² - 2 r - 3 <= 0: always.
    np.testing.assert_array_equal(made.lower[:2], -np.inf)
    np.testing.assert_array_equal(made.upper[:2], np.inf)
    assert made.gap_lower[0] == pytest.approx((-10 - 388**0.5) / 3)
    assert made.gap_upper[0] == pytest.approx((-10 + 388**0.5) / 3)
    assert np.isnan(made.gap_lower[1:]).all()
    assert np.isnan(made.gap_upper[1:]).all()


def test_fieller_is_the_set_it_is_defined_as():
    rng = np.random.default_rng(5)
    rows = []
    for number in range(600):
        a, b = rng.normal(size=2) * 10.0 ** rng.integers(-1, 3, 2)
        (one, between), (_, other) = known_areas.random_covariance(rng, 2, rng.choice([0.3, 1, 30]))
        if number % 10 == 1:
            one = between = 0.0
        if number % 10 == 2:
            other = between = 0.0
        if number % 10 == 3:
            between = (one * other) ** 0.5
        if number % 10 == 4:
            a, one, between = 0.0, 0.0, 0.0
        rows.append((a, b, one, other, between))
    drawn = several(rows)
    made = fieller_sets(drawn, 0.9)
    grid = np.concatenate([np.linspace(-30, 30, 4001), np.geomspace(30, 1e7, 200)])
    grid = np.concatenate([grid, -np.geomspace(30, 1e7, 200)])[:, None]
    gap = (drawn.first - grid * drawn.second) ** 2
    noise = drawn.first_variance - 2 * grid * drawn.covariance + grid**2 * drawn.second_variance
    defined = gap <= Z90**2 * noise
    inside = (grid >= made.lower) & (grid <= made.upper)
    inside &= ~((grid > made.gap_lower) & (grid < made.gap_upper))
    scale = (np.abs(drawn.first) + np.abs(grid * drawn.second)) ** 2 + Z90**2 * (
        drawn.first_variance + grid**2 * drawn.second_variance
    )
    clear = np.abs(gap - Z90**2 * noise) > 1e-10 * scale
    assert clear.mean() > 0.98
    np.testing.assert_array_equal(inside[clear], defined[clear])
    kinds = [np.isfinite(made.lower), np.isfinite(made.gap_lower)]
    assert min(kinds[0].sum(), kinds[1].sum(), (~(kinds[0] | kinds[1])).sum()) > 50


def test_fieller_is_half_a_line_where_the_denominator_is_z_errors_from_0(monkeypatch):
    # z is 2, so that b² = z² v_b: only -2 · 20 r + 100 - 4 <= 0 is left, and the same for -r.
    monkeypatch.setattr(contrasts, "NormalDist", lambda: SimpleNamespace(inv_cdf=lambda _: 2.0))
    made = fieller_sets(several([(10, 2, 1, 1, 0), (-10, 2, 1, 1, 0)]), 0.9)
    np.testing.assert_allclose(made.lower, [96 / 40, -np.inf])
    np.testing.assert_allclose(made.upper, [np.inf, -96 / 40])
    assert np.isnan(made.gap_lower).all()


def test_fieller_and_delta_agree_where_the_denominator_is_far_from_0():
    far = several([(5e5, 2e6, 30, 70, 20), (-40, 9e5, 30, 70, -20), (7, 9e5, 0, 70, 0)])
    value, error = quotient(far)
    made = fieller_sets(far, 0.9)
    np.testing.assert_allclose((made.upper - made.lower) / 2, Z90 * error, rtol=1e-7)
    assert (np.abs((made.upper + made.lower) / 2 - value) < 1e-4 * error).all()


def test_the_delta_method_is_the_derivative(found):
    """Against derivatives by finite differences in all cells, with the whole covariance."""
    whole = found.covariance.reshape(18, 18)
    point = found.value.reshape(-1)
    step = 1e-4

    def numeric(function):
        slopes = np.array(
            [
                (function(point + unit) - function(point - unit)) / (2 * step)
                for unit in np.eye(18) * step
            ]
        )
        return np.sqrt(slopes @ whole @ slopes)

    by_cell = estimate.share(found, "north")
    by_area = estimate.share(found, "north", of="state")
    ratio = estimate.ratio(found, "south", "north")
    less = estimate.difference(found, "south", "north")
    pair = estimate.ratio(found["south"], ("b", "old"), ("c", "young"))
    for cell in range(6):
        for made, function in (
            (by_cell, lambda x, c=cell: x[c] / x[:6].sum()),
            (by_area, lambda x, c=cell: x[c] / x[12 + c]),
            (ratio, lambda x, c=cell: x[6 + c] / x[c]),
            (less, lambda x, c=cell: x[6 + c] - x[c]),
        ):
            assert made.value[cell] == pytest.approx(function(point))
            assert made.standard_error[cell] == pytest.approx(numeric(function), rel=1e-5)
    assert pair.value.item() == pytest.approx(point[6 + 3] / point[6 + 4])
    assert pair.standard_error.item() == pytest.approx(numeric(lambda x: x[9] / x[10]), rel=1e-5)
    assert by_cell.value.sum() == pytest.approx(1)


def test_the_delta_method_agrees_with_draws_from_the_joint_law(found):
    rng = np.random.default_rng(3)
    size = 400_000
    drawn = rng.multivariate_normal(
        found.value.reshape(-1), found.covariance.reshape(18, 18) / 400, size
    )
    quiet = known_areas.areas(found.value, found.covariance / 400, names=found.names)
    made = estimate.share(quiet, "north")
    shares = drawn[:, :6] / drawn[:, :6].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shares.std(axis=0), made.standard_error, rtol=0.01)
    ratios = drawn[:, 6:12] / drawn[:, :6]
    made = estimate.ratio(quiet, "south", "north")
    np.testing.assert_allclose(ratios.std(axis=0), made.standard_error, rtol=0.02)


def test_simulated_ends_are_quantiles_of_quotients(found):
    made = estimate.ratio(found, "south", "north", method="simulation", draws=200_000, seed=4)
    rng = np.random.default_rng(8)
    both = found.covariance[:2, 2, :2, 2]
    drawn = rng.multivariate_normal(found.value[:2, 2], both, 400_000)
    low, high = np.quantile(drawn[:, 1] / drawn[:, 0], [0.05, 0.95])
    wide = high - low
    assert made.lower[2] == pytest.approx(low, abs=0.02 * wide)
    assert made.upper[2] == pytest.approx(high, abs=0.02 * wide)
    again = estimate.ratio(found, "south", "north", method="simulation", draws=200_000, seed=4)
    np.testing.assert_array_equal(again.lower, made.lower)
    other = estimate.ratio(found, "south", "north", method="simulation", draws=200_000, seed=5)
    assert (other.lower != made.lower).all()
    np.testing.assert_array_equal(other.value, made.value)


def test_many_cells_are_simulated_some_at_a_time(monkeypatch):
    drawn = several([(n, 20 + n, 2, 3, n % 2) for n in range(9)])
    whole = simulated_sets(drawn, 0.9, 1000, 1)
    monkeypatch.setattr(contrasts, "_VALUES", 2000)
    parted = simulated_sets(drawn, 0.9, 1000, 1)
    np.testing.assert_array_equal(whole.lower, parted.lower)
    np.testing.assert_array_equal(whole.upper, parted.upper)


def test_joint_variances_are_those_of_the_estimates(found):
    whole = found.covariance
    both = pairs(found, Term(0), Term(2))
    np.testing.assert_allclose(both.first_variance, np.diag(whole[0, :, 0]), rtol=1e-10)
    np.testing.assert_allclose(both.second_variance, np.diag(whole[2, :, 2]), rtol=1e-10)
    np.testing.assert_allclose(both.covariance, np.diag(whole[0, :, 2]), rtol=1e-9)
    total = pairs(found, Term(1, slice(4, 5)), Term(1, None))
    np.testing.assert_allclose(total.second_variance, whole[1, :, 1].sum(), rtol=1e-9)
    np.testing.assert_allclose(total.covariance, whole[1, 4, 1].sum(), rtol=1e-9)
    for cell in range(6):
        np.testing.assert_allclose(
            covariance_of_areas(found, cell), whole[:, cell, :, cell], rtol=1e-9
        )


def test_a_share_of_cells_uses_a_total_that_is_known(with_facts):
    ages = with_facts["AGE"]
    made = estimate.share(ages, "county")
    total = with_facts["TOTAL"]["county"]
    assert total.standard_error.item() == 0
    np.testing.assert_allclose(made.value, ages["county"].value / total.value)
    np.testing.assert_allclose(
        made.standard_error, ages["county"].standard_error / total.value, rtol=1e-9
    )
    np.testing.assert_allclose(made.lower, ages["county"].lower / total.value, rtol=1e-9)
    value = np.array([[6.4, 9.8, 13.8]])
    assert value.sum() != 30  # by rounding
    whole = known_areas.areas(value, np.eye(3) - 1 / 3)
    assert pairs(whole, Term(0), Term(0, None)).second.tolist() == [30, 30, 30]


def test_exact_counts_compare_exactly(with_facts):
    totals = with_facts["TOTAL"]
    quotient_of_both = totals.value[0] / totals.value[1]
    for made, expected in (
        (estimate.difference(totals, "county", "other"), totals.value[0] - totals.value[1]),
        (estimate.ratio(totals, "county", "other"), quotient_of_both),
        (estimate.share(totals, "county", of="other", method="delta"), quotient_of_both),
        (estimate.share(totals, "county", of="other", method="simulation"), quotient_of_both),
    ):
        np.testing.assert_array_equal(made.value, expected)
        np.testing.assert_array_equal(made.standard_error, 0)
        np.testing.assert_allclose(made.lower, expected, rtol=1e-15)
        np.testing.assert_allclose(made.upper, expected, rtol=1e-15)
    # Noise in one of both only.
    made = estimate.difference(totals, "block", "county")
    np.testing.assert_array_equal(made.standard_error, totals["block"].standard_error)
    made = estimate.share(totals, "block", of="county")
    np.testing.assert_allclose(made.upper, totals["block"].upper / totals.value[0])


def test_what_is_not_determined_stays_so(with_facts):
    ages = with_facts["AGE"]
    assert np.isinf(ages["blocks"].standard_error).all()
    for made in (
        estimate.difference(ages, "county", "blocks"),
        estimate.ratio(ages, "blocks", "county"),
        estimate.ratio(ages, "county", "blocks", method="delta"),
        estimate.ratio(ages, "county", "blocks", method="simulation"),
        estimate.share(ages, "blocks"),
        estimate.difference(ages["blocks"], "young", "old"),
    ):
        assert np.isnan(made.value).all()
        assert np.isinf(made.standard_error).all()
        np.testing.assert_array_equal(made.lower, -np.inf)
        np.testing.assert_array_equal(made.upper, np.inf)
        assert np.isnan(made.gap_lower).all()
    clipped = estimate.share(ages, "blocks", possible=True)
    np.testing.assert_array_equal([clipped.lower, clipped.upper], [[0, 0], [1, 1]])


def test_one_unknown_cell_leaves_the_others():
    part = known_areas.areas([[5, 6], [7, 8]], np.eye(4), unknown=[(0, 1)])
    made = estimate.difference(part, "d2", "d1")
    np.testing.assert_array_equal(np.isnan(made.value), [False, True])
    assert made.value[0] == 2
    assert made.standard_error[0] == pytest.approx(2**0.5)
    assert np.isnan(estimate.share(part, "d1").value).all()  # the total is not known
    np.testing.assert_allclose(estimate.share(part, "d2").value, [7 / 15, 8 / 15])
    shared = known_areas.areas([[5, 6], [7, 8]], np.eye(4) + 1, unknown=[(0, 1)])
    both = pairs(shared, Term(0), Term(1))
    np.testing.assert_array_equal(both.covariance, [1, 0])
    np.testing.assert_allclose(both.first_variance, [2, np.inf])
    np.testing.assert_array_equal(both.determined, [True, False])


def test_a_denominator_of_0_has_no_quotient():
    zero = several([(3, 0, 1, 4, 1), (3, 0, 1, 0, 0), (0, 0, 0, 0, 0)])
    value, error = quotient(zero)
    assert np.isnan(value).all()
    assert np.isinf(error).all()
    made = fieller_sets(zero, 0.9)
    np.testing.assert_array_equal(made.lower, -np.inf)
    np.testing.assert_array_equal(made.upper, np.inf)
    drawn = simulated_sets(zero, 0.9, 1000, 1)
    assert np.isfinite(drawn.lower[0])
    np.testing.assert_array_equal(drawn.lower[1:], -np.inf)


def test_exact_zeros_and_negative_denominators():
    odd = several([(0, 5, 0, 1, 0), (6, -30, 4, 1, 0)])
    value, error = quotient(odd)
    np.testing.assert_allclose(value, [0, -0.2])
    np.testing.assert_allclose(error, [0, (4 + 0.04) ** 0.5 / 30])
    made = fieller_sets(odd, 0.9)
    assert made.lower[0] == made.upper[0] == 0
    turned = fieller_sets(several([(-6, 30, 4, 1, 0)]), 0.9)
    np.testing.assert_allclose([made.lower[1], made.upper[1]], [turned.lower[0], turned.upper[0]])
    assert made.lower[1] < -0.2 < made.upper[1]


def test_areas_that_differ_by_an_exact_count_differ_exactly():
    """What is left of two variances by rounding alone is no error."""
    one, same = 49 / 3, 49 / 3 * (1 - 1e-15)
    near = known_areas.areas([100.25, 90.25], [[one, same], [same, one]])
    made = estimate.difference(near, "d1", "d2")
    assert made.standard_error.item() == 0
    assert made.lower.item() == made.upper.item() == 10
    twin = known_areas.areas([100.25, 100.25], [[one, same], [same, one]])
    assert estimate.ratio(twin, "d1", "d2").lower.item() == pytest.approx(1, abs=1e-12)
    real = known_areas.areas([100.25, 90.25], [[one, one - 1e-6], [one - 1e-6, one]])
    assert estimate.difference(real, "d1", "d2").standard_error.item() == pytest.approx(2e-6**0.5)


def test_ends_are_clipped_only_where_asked():
    cells = known_areas.areas([[2, 98]], [[25, 0], [0, 4]])
    plain, clipped = estimate.share(cells, "d1"), estimate.share(cells, "d1", possible=True)
    assert plain.lower[0] < 0
    assert plain.upper[1] > 1
    np.testing.assert_array_equal(clipped.lower, [0, plain.lower[1]])
    np.testing.assert_array_equal(clipped.upper, [plain.upper[0], 1])
    np.testing.assert_array_equal(clipped.value, plain.value)
    large = estimate.ratio(cells["d1"], "c1", "c0", possible=True)
    assert large.upper.item() == np.inf
    assert large.lower.item() > 1
    low = known_areas.areas([-40, 50], np.diag([4, 9]))
    assert estimate.ratio(low, "d1", "d2").upper.item() < 0
    nearest = estimate.ratio(low, "d1", "d2", possible=True)
    assert nearest.lower.item() == nearest.upper.item() == 0
    assert nearest.value.item() == -0.8


def test_clipped_sets_are_what_is_possible_of_them():
    rng = np.random.default_rng(2)
    count = 500
    gap = np.sort(rng.uniform(-0.8, 1.8, (2, count)), axis=0)
    line = np.full(count, np.inf)
    sets = ConfidenceSets(-line, line, *gap)
    made = sets.within(0.0, 1.0)
    grid = np.linspace(0, 1, 777)[:, None]
    expected = ~((grid > gap[0]) & (grid < gap[1]))
    inside = (grid >= made.lower) & (grid <= made.upper)
    inside &= ~((grid > made.gap_lower) & (grid < made.gap_upper))
    nothing = ~expected.any(axis=0)  # of these the nearest is left
    np.testing.assert_array_equal(inside[:, ~nothing], expected[:, ~nothing])
    assert nothing.sum() > 20
    assert not inside[1:-1, nothing].any()
    assert inside[[0, -1]][:, nothing].all()


def test_tables_name_what_is_compared(found):
    table = estimate.difference(found, "north", "south").table()
    assert table.column_names == [
        *("first", "second", "RACE", "AGE"),
        *("value", "standard_error", "lower", "upper"),
    ]
    assert table.num_rows == 6
    assert set(table["second"].to_pylist()) == {"south"}
    assert table["AGE"].to_pylist()[:3] == ["young", "old", "young"]
    np.testing.assert_allclose(table["value"].to_numpy(), found.value[0] - found.value[1])
    table = estimate.share(found, "north").table()
    assert table["second"].to_pylist()[0] == "all of north"
    assert table.column_names[-2:] == ["gap_lower", "gap_upper"]
    cells = estimate.difference(found["state"], ("a", "old"), ("a", "young")).table()
    assert cells.column_names[:3] == ["first", "second", "value"]
    assert cells["first"].to_pylist() == ["state: a × old"]
    assert cells["value"].to_pylist()[0] == pytest.approx(found.value[2, 1] - found.value[2, 0])


def test_the_confidence_is_that_of_the_call_or_of_the_estimates():
    wide = by_hand(confidence=TWO)
    assert estimate.difference(wide, "d1", "d2").confidence == TWO
    for made in (estimate.difference, estimate.ratio):
        one, other = made(wide, "d1", "d2"), made(by_hand(), "d1", "d2", confidence=TWO)
        np.testing.assert_array_equal(one.lower, other.lower)
    part = estimate.share(by_hand(), "d2", of="d1", confidence=0.5)
    assert part.confidence == 0.5


def test_what_cannot_be_compared_is_refused(found):
    for call, message in (
        (
            lambda: estimate.difference(found, "north", "west"),
            "unknown area 'west'; choose from north, s",
        ),
        (lambda: estimate.difference(found, "north", "north"), "'north' is compared with itself"),
        (
            lambda: estimate.difference(found, ("a", "old"), ("b", "old")),
            r"to compare cells, pass one area, such as estimates\['north'\]",
        ),
        (
            lambda: estimate.ratio(found["north"], "old", "young"),
            "unknown cell 'old'; write a tuple, one category per attribute; choose from a × young",
        ),
        (lambda: estimate.share(found, "west"), "unknown area 'west'"),
        (
            lambda: estimate.share(by_hand(), "d1"),
            "query 'TOTAL': has only one cell, so its share is 1",
        ),
        (
            lambda: estimate.ratio(found, "north", "south", method="exact"),
            "unknown method 'exact'; choose from fieller, delta, simulation",
        ),
        (
            lambda: estimate.ratio(found, "north", "south", method="simulation", draws=10),
            "draws: 10 is too few; use 1,000 or more",
        ),
        (
            lambda: estimate.difference(found, "north", "south", confidence=90),
            "confidence: 90 is not allowed",
        ),
        (lambda: estimate.share(found, "north", confidence=0), "confidence: 0 is not allowed"),
    ):
        with pytest.raises(InputError, match=message):
            call()
    one = known_areas.areas([[5, 6]], np.eye(2))
    with pytest.raises(InputError, match="unknown cell 'c7'; write a category; choose from c0, c1"):
        estimate.difference(one["d1"], "c0", "c7")
    taken = known_areas.areas(
        [[5, 6], [1, 2]], np.eye(4), asked=known_areas.query(("lower", ["x", "y"]))
    )
    with pytest.raises(InputError, match="the result already has a column named lower"):
        estimate.difference(taken, "d1", "d2").table()
