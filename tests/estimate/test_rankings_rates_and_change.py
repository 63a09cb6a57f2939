"""Rankings, rates and change: by hand, against definitions, and from releases."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm, studentized_range
from tests.estimate import known_areas, released_trees
from tests.estimate.released_trees import plan_text

from countveil import Plan, estimate
from countveil.errors import GeographyError, InputError
from countveil.estimate import rank_intervals
from countveil.estimate.two_releases import holm

Z90 = 1.6448536269514722
TWO = 0.9544997361036416  # the confidence of two standard errors
KINDS = {"KIND": ["x", "y"]}
QUERIES = {"l0": {"TOTAL": 1, "KIND": 1}, "l1": {"TOTAL": 1}, "l2": {"KIND": 2}}
PLACES = released_trees.places([2], [3, 2], [2, 1, 4, 3, 3])


def release(folder, seed, **more):
    truth = np.random.default_rng(1).poisson(6, (13, 2))
    plan = plan_text(KINDS, QUERIES, **more)
    tree = released_trees.release(folder, plan, PLACES, seed=seed, truth=truth)
    return estimate.least_squares(tree.measurements, tree.plan)


@pytest.fixture(scope="module")
def months(tmp_path_factory):
    folder = tmp_path_factory.mktemp("months")
    return [release(folder / str(seed), seed) for seed in (3, 4)]


def test_two_areas_are_ranked_as_one_test_tells_them_apart():
    """Of two areas the largest of both differences is |z|: apart where it exceeds its quantile."""
    for gap, apart in ((1.03 * Z90, True), (0.97 * Z90, False)):
        s = (16 + 9 - 8) ** 0.5
        pair = known_areas.areas([50, 50 + gap * s], [[16, 4], [4, 9]])
        made = estimate.ranking(pair, draws=100_000)
        np.testing.assert_array_equal(made.rank, [2, 1])
        expected = [[2, 1], [2, 1]] if apart else [[1, 1], [2, 2]]
        np.testing.assert_array_equal([made.rank_lower, made.rank_upper], expected)
        first = norm.cdf(gap)
        np.testing.assert_allclose(
            made.probability, [[1 - first, first], [first, 1 - first]], atol=0.005
        )


def test_the_first_step_is_tukeys_test_where_errors_are_alike():
    critical = studentized_range.ppf(0.9, 5, np.inf) / 2**0.5
    for times, lower in ((1.02, [1, 1, 1, 1, 2]), (0.98, [1, 1, 1, 1, 1])):
        far = 2**0.5 * critical * times
        five = known_areas.areas([far, far / 2, far / 2, far / 2, 0], np.eye(5))
        made = estimate.ranking(five, draws=200_000)
        np.testing.assert_array_equal(made.rank_lower, lower)
        np.testing.assert_array_equal(made.rank_upper, 6 - np.array(lower)[::-1])


def test_later_steps_tell_more_apart():
    """Two areas near each other, ten far away: compared with the largest of what is left."""
    far = np.arange(100, 1001, 100)
    noise = np.random.default_rng(3).standard_normal((12, 50_000))
    largest = np.maximum(noise[0] - noise[1], noise[1] - noise[0])
    for one in range(12):  # that the less of two has more is never found, and so it is left
        for other in range(max(2, one + 1), 12):
            largest = np.maximum(largest, noise[one] - noise[other])
    critical = np.quantile(largest, 0.9)
    assert 1.05 * critical < studentized_range.ppf(0.9, 12, np.inf)  # one step would not do
    for times, lower in ((1.02, 12), (0.98, 11)):
        values = [times * critical, 0, *far]
        made = estimate.ranking(known_areas.areas(values, np.eye(12)), draws=50_000)
        np.testing.assert_array_equal(made.rank_lower, [11, lower, *range(10, 0, -1)])


def test_the_probability_of_a_rank_is_that_of_the_joint_law():
    value, error = np.array([3.0, 2.0, 1.5]), np.array([1.0, 2.0, 0.5])
    made = estimate.ranking(known_areas.areas(value, np.diag(error**2)), draws=200_000)

    def beats_both(area):
        others = [number for number in range(3) if number != area]

        def density(x):
            below = [norm.cdf(x, value[other], error[other]) for other in others]
            return norm.pdf(x, value[area], error[area]) * np.prod(below)

        return quad(density, -20, 20, limit=200)[0]

    expected = [beats_both(area) for area in range(3)]
    np.testing.assert_allclose(made.probability[:, 0], expected, atol=0.005)
    np.testing.assert_allclose(made.probability.sum(axis=1), 1)
    np.testing.assert_allclose(made.probability.sum(axis=0), 1)


def test_correlated_areas_are_ranked_by_the_error_of_their_difference():
    """Noise that areas share does not blur their ranks."""
    shared = 100 * np.ones((3, 3)) + np.diag([1, 1, 1.0])
    made = estimate.ranking(known_areas.areas([60, 50, 40], shared))
    np.testing.assert_array_equal(made.rank_lower, [1, 2, 3])
    np.testing.assert_array_equal(made.rank_upper, [1, 2, 3])
    alone = estimate.ranking(known_areas.areas([60, 50, 40], np.diag(np.diag(shared))))
    np.testing.assert_array_equal(alone.rank_lower, [1, 1, 1])
    opposed = np.array([[100, -99], [-99, 100.0]])
    made = estimate.ranking(known_areas.areas([60, 40], opposed))
    np.testing.assert_array_equal(made.rank_upper, [2, 2])


def test_exact_areas_have_their_ranks():
    made = estimate.ranking(known_areas.areas([7, 9, 7, 3], np.zeros((4, 4))))
    np.testing.assert_array_equal(made.rank, [2, 1, 2, 4])
    np.testing.assert_array_equal(made.rank_lower, [2, 1, 2, 4])
    np.testing.assert_array_equal(made.rank_upper, [3, 1, 3, 4])  # which of two equals is open
    np.testing.assert_array_equal(made.probability[0], [0, 1, 0, 0])
    half = estimate.ranking(known_areas.areas([7, 9, 7, 3], np.diag([0, 0, 1e-4, 0])))
    np.testing.assert_array_equal(half.rank_upper, [3, 1, 3, 4])
    np.testing.assert_allclose(half.probability[2], [0, 0.5, 0.5, 0], atol=0.02)


def test_equal_areas_rank_equal_in_every_draw():
    """Two names of one area: rounding of their covariance tells them apart in no draw."""
    one = np.array([[5.0, 5, 1], [5, 5, 1], [1, 1, 3]]) / 3
    made = estimate.ranking(known_areas.areas([1 / 3, 1 / 3 * (1 + 1e-15), 0], one))
    np.testing.assert_array_equal(made.rank, [1, 1, 3])
    np.testing.assert_array_equal(made.probability[0], made.probability[1])
    assert made.probability[0, 2] == made.probability[2, 1] == 0
    assert 0 < made.probability[2, 0] < 1
    np.testing.assert_array_equal(made.rank_lower, [1, 1, 1])


def test_an_area_not_determined_may_have_any_rank():
    value, covariance = [[50, 1], [20, 1], [1, 1]], np.eye(6)
    part = known_areas.areas(value, covariance, unknown=[(1, 0)])
    made = estimate.ranking(part, cell="c0")
    np.testing.assert_array_equal(made.rank, [1, np.nan, 2])
    np.testing.assert_array_equal(made.rank_lower, [1, 1, 2])
    np.testing.assert_array_equal(made.rank_upper, [2, 3, 3])
    assert np.isnan(made.probability[1]).all()
    table = made.table()
    assert table["area"].to_pylist() == ["d1", "d3", "d2"]
    assert table["rank"].to_pylist() == [1, 2, None]
    assert table.column_names == [
        *("area", "value", "standard_error", "rank", "rank_lower", "rank_upper")
    ]


def test_a_ranking_of_a_release_uses_the_cell_asked_for(months):
    codes = {name: [name] for name in ("u11", "u12", "u13", "u21", "u22")}
    found = months[0].areas(codes, "KIND", level="l1")
    made = estimate.ranking(found, cell="y", confidence=TWO)
    assert (made.cell, made.confidence) == ("y", TWO)
    np.testing.assert_array_equal(made.value, found.value[:, 1])
    order = np.argsort(-found.value[:, 1])
    np.testing.assert_array_equal(made.rank[order], [1, 2, 3, 4, 5])
    assert (made.rank_lower <= made.rank).all()
    assert (made.rank <= made.rank_upper).all()
    assert made.rank_lower[order[-1]] > 1  # 12 blocks' worth of people apart
    total = estimate.ranking(months[0].areas(codes, "TOTAL", level="l1"))
    assert total.cell == "TOTAL"


def test_rankings_that_cannot_be_made_are_refused(months):
    found = months[0].areas({"a": ["u111"], "b": ["u112"]}, "KIND")
    for call, message in (
        (
            lambda: estimate.ranking(found),
            "query 'KIND': has 2 cells; name the one to rank by, .*x",
        ),
        (lambda: estimate.ranking(found, cell="z"), "unknown cell 'z'; write a category"),
        (
            lambda: estimate.ranking(found, cell="x", draws=10),
            "draws: 10 is too few; at this confidence use 1,000 or",
        ),
        (
            lambda: estimate.ranking(found, cell="x", confidence=0.9999),
            "draws: 10000 is too few; at this confidence use 100,0.. or more",
        ),
    ):
        with pytest.raises(InputError, match=message):
            call()


def test_too_many_areas_are_refused(months, monkeypatch):
    monkeypatch.setattr(rank_intervals, "_MOST_COMPARED", 39_999)
    found = months[0].areas({"a": ["u111"], "b": ["u112"]}, "TOTAL")
    with pytest.raises(InputError, match="2 areas in 10,000 draws are 40,000 comparisons, and 39"):
        estimate.ranking(found)


def test_rates_by_hand():
    found = known_areas.areas([[20, 30], [5, -1]], np.diag([4, 9, 16, 1]))
    made = estimate.rates(found, {"d1": 4_000, "d2": 500, "elsewhere": 0}, per=1_000)
    np.testing.assert_allclose(made.value, [[5, 7.5], [10, -2]])
    np.testing.assert_allclose(made.standard_error, [[0.5, 0.75], [8, 2]])
    np.testing.assert_allclose(made.lower, made.value - Z90 * made.standard_error)
    np.testing.assert_allclose(made.upper, made.value + Z90 * made.standard_error)
    clipped = estimate.rates(found, {"d1": 4_000, "d2": 500}, per=1_000, possible=True)
    np.testing.assert_allclose(clipped.lower[1], [0, 0])
    np.testing.assert_array_equal(clipped.lower[0], made.lower[0])
    np.testing.assert_array_equal(clipped.upper, made.upper)
    np.testing.assert_array_equal(clipped.value, made.value)
    usual = estimate.rates(found, {"d1": 4_000, "d2": 500}, confidence=TWO)
    np.testing.assert_allclose(usual.value, 100 * made.value)
    np.testing.assert_allclose(usual.upper - usual.value, 200 * made.standard_error)
    table = made.table()
    assert table.column_names == [
        *("area", "AGE", "people", "value", "standard_error", "lower", "upper")
    ]
    assert table["people"].to_pylist() == [4_000, 4_000, 500, 500]


def test_rates_of_exact_and_unknown_counts():
    found = known_areas.areas([8, 1, 5], np.diag([0, 1, 1]), unknown=[(1, 0)])
    made = estimate.rates(found, {"d1": 200, "d2": 300, "d3": 400}, per=100)
    np.testing.assert_array_equal(made.value[:, 0], [4, np.nan, 1.25])
    np.testing.assert_array_equal(made.standard_error[:2, 0], [0, np.inf])
    np.testing.assert_array_equal(made.lower[:2, 0], [4, -np.inf])
    np.testing.assert_array_equal(made.upper[:2, 0], [4, np.inf])


def test_rates_are_compared_and_ranked_like_counts():
    found = known_areas.areas([300, 200], [[16, 4], [4, 9]], confidence=TWO)
    made = estimate.rates(found, {"d1": 1_000, "d2": 500}, per=100)  # 30 and 40
    less = estimate.difference(made, "d1", "d2")
    assert less.value.item() == pytest.approx(-10)
    error = (16 * 0.01 + 9 * 0.04 - 2 * 4 * 0.02) ** 0.5
    assert less.standard_error.item() == pytest.approx(error)
    quotient = estimate.ratio(made, "d1", "d2")
    of_counts = estimate.ratio(found, "d1", "d2")
    assert quotient.lower.item() == pytest.approx(of_counts.lower.item() / 2)
    np.testing.assert_array_equal(estimate.ranking(found).rank, [1, 2])
    ranked = estimate.ranking(made)
    np.testing.assert_array_equal(ranked.rank, [2, 1])
    np.testing.assert_array_equal(ranked.rank_lower, [2, 1])
    closer = estimate.rates(found, {"d1": 1_000, "d2": 625}, per=100)  # 30 and 32, 0.5 the error
    assert estimate.ranking(closer).rank_lower.tolist() == [2, 1]
    near = estimate.rates(found, {"d1": 1_000, "d2": 1_000 * 2 / 3 * 1.03}, per=100)
    assert estimate.ranking(near).rank_lower.tolist() == [1, 1]


def test_denominators_are_read_from_a_file(tmp_path):
    found = known_areas.areas([20, 30], np.diag([4, 9]), names=("01", "02"))
    expected = estimate.rates(found, {"01": 4_000, "02": 512.5}).value
    for text in (
        "area,people\n01,4000\n02,512.5\n",
        "\ufeffpeople;name;area\r\n4000;x;01\r\n512.5;y;02\r\n9;z;03\r\n",
    ):
        path = tmp_path / "people.csv"
        path.write_text(text)
        np.testing.assert_array_equal(estimate.rates(found, path).value, expected)
        np.testing.assert_array_equal(estimate.rates(found, str(path)).value, expected)


def test_denominators_that_are_none_are_refused(tmp_path):
    found = known_areas.areas([20, 30, 1], np.diag([4, 9, 1]))
    for given, message in (
        ({"d1": 5}, "denominators: no number of people for d2, d3; add one for every area"),
        (
            {"d1": 5, "d2": 0, "d3": 1},
            "denominators: d2 has 0 people; a rate needs a finite number",
        ),
        ({"d1": 5, "d2": 3, "d3": -2.5}, "denominators: d3 has -2.5 people"),
        ({"d1": float("nan"), "d2": 3, "d3": 2}, "d1 has nan people"),
        ({"d1": float("inf"), "d2": 3, "d3": 2}, "d1 has inf people"),
        ({"d1": "12", "d2": 3, "d3": 2}, "d1 has '12' people"),
        ({"d1": True, "d2": 3, "d3": 2}, "d1 has True people"),
    ):
        with pytest.raises(InputError, match=message):
            estimate.rates(found, given)
    for text, message in (
        ("area,count\nd1,5\n", "people.csv: no column 'people'; it needs columns 'area' and 'peo"),
        ("area,people\nd1,5\nd1,6\n", "people.csv: area 'd1' is listed twice"),
        (
            "area,people\nd1,5\nd2,x\n",
            "people.csv: cannot be read .*; it must be a CSV file with colum",
        ),
        ("area,people\nd1,5\nd2,\nd3,1\n", "people.csv: d2 has None people"),
        ("area,people\nd1,5\nd3,1\n", "people.csv: no number of people for d2; "),
        ("", "people.csv: cannot be read"),
    ):
        (tmp_path / "people.csv").write_text(text)
        with pytest.raises(InputError, match=message):
            estimate.rates(found, tmp_path / "people.csv")
    with pytest.raises(InputError, match=r"nowhere.csv: cannot be read"):
        estimate.rates(found, tmp_path / "nowhere.csv")
    for per in (0, -1, float("nan"), "many"):
        with pytest.raises(InputError, match=f"per: {per!r} is not allowed; use a number above 0"):
            estimate.rates(found, {"d1": 1, "d2": 1, "d3": 1}, per=per)


def test_change_by_hand():
    first = known_areas.areas([[100, 40], [7, 1]], np.diag([9, 1, 0, 0]))
    second = known_areas.areas([[90, 46], [7, 3]], np.diag([16, 3, 0, 0]))
    made = estimate.change(first, second, confidence=TWO)
    np.testing.assert_array_equal(made.value, [[-10, 6], [0, 2]])
    np.testing.assert_allclose(made.standard_error, [[5, 2], [0, 0]])
    np.testing.assert_allclose(made.lower, [[-20, 2], [0, 2]])
    np.testing.assert_allclose(made.upper, [[0, 10], [0, 2]])
    np.testing.assert_array_equal(made.z, [[-2, 3], [0, np.inf]])
    tails = [0.04550026389635842, 0.0026997960632601866]
    np.testing.assert_allclose(made.p_value, [tails, [1, 0]], rtol=1e-12)
    # Two tests: the smaller counts twice, the larger once; what is exact is no test.
    np.testing.assert_allclose(made.adjusted_p_value, [[tails[0], 2 * tails[1]], [1, 0]])
    table = made.table()
    assert table.column_names == [
        *("area", "AGE", "first", "second", "value", "standard_error", "lower", "upper"),
        *("z", "p_value", "adjusted_p_value"),
    ]
    assert table["second"].to_pylist() == [90, 46, 7, 3]


def test_far_tails_keep_their_digits():
    first = known_areas.areas([0], [[0.5]])
    made = estimate.change(first, known_areas.areas([20], [[0.5]]))
    assert made.p_value.item() == pytest.approx(5.507248237212467e-89, rel=1e-10)  # 2 Φ(-20)


def test_change_of_what_is_not_determined_is_unknown():
    first = known_areas.areas([5, 6, 7], np.eye(3), unknown=[(1, 0)])
    second = known_areas.areas([5, 9, 9], np.eye(3))
    for one, other in ((first, second), (second, first)):
        made = estimate.change(one, other)
        np.testing.assert_array_equal(np.isnan(made.p_value[:, 0]), [False, True, False])
        assert np.isnan(made.z[1, 0])
        assert np.isnan(made.adjusted_p_value[1, 0])
        assert np.isinf(made.standard_error[1, 0])
        assert (made.lower[1, 0], made.upper[1, 0]) == (-np.inf, np.inf)
        assert made.adjusted_p_value[2, 0] == pytest.approx(2 * made.p_value[2, 0])


def test_holm_is_the_smallest_level_at_which_its_steps_reject():
    rng = np.random.default_rng(6)

    def rejected(p_values, level):
        """Step through the ordered p-values until one is above level over the tests left."""
        result = np.zeros(len(p_values), bool)
        for step, at in enumerate(np.argsort(p_values)):
            if p_values[at] > level / (len(p_values) - step):
                break
            result[at] = True
        return result

    for size in (1, 2, 5, 12):
        p_values = rng.uniform(0, 0.4, size) ** 2
        p_values[: size // 3] = p_values[0]
        adjusted = holm(p_values)
        for level in [*rng.uniform(0, 1, 40), *adjusted * (1 + 1e-12), *adjusted * (1 - 1e-9)]:
            if level < 1:
                np.testing.assert_array_equal(rejected(p_values, level), adjusted <= level)
    np.testing.assert_allclose(holm(np.array([0.01, 0.04, 0.03, 0.9])), [0.04, 0.09, 0.09, 0.9])
    assert holm(np.array([])).size == 0


def test_change_follows_the_names_of_areas():
    asked = known_areas.query(("AGE", ["x", "y"]))
    first = known_areas.areas([[1, 2], [3, 4]], np.eye(4), asked=asked, names=("a", "b"))
    turned = known_areas.areas(
        [[30, 40], [10, 20]], np.diag([3, 3, 8, 8]), asked=asked, names=("b", "a")
    )
    made = estimate.change(first, turned)
    assert made.names == ("a", "b")
    np.testing.assert_array_equal(made.second, [[10, 20], [30, 40]])
    np.testing.assert_allclose(made.standard_error, [[3, 3], [2, 2]])


def test_change_of_rates():
    first = known_areas.areas([50], [[4]])
    second = known_areas.areas([80], [[12]])
    one, other = (
        estimate.rates(first, {"d1": 1000}, per=10),
        estimate.rates(second, {"d1": 2000}, per=10),
    )
    made = estimate.change(one, other)
    assert made.value.item() == pytest.approx(-0.1)
    assert made.standard_error.item() == pytest.approx((4e-4 + 12 / 4e4) ** 0.5)
    with pytest.raises(
        InputError, match="counts cannot be compared with per 10; pass two of one kind"
    ):
        estimate.change(first, other)
    with pytest.raises(InputError, match="per 10 cannot be compared with per 100,000"):
        estimate.change(one, estimate.rates(second, {"d1": 2000}))
    with pytest.raises(InputError, match="both are of the same release; pass two"):
        estimate.change(one, estimate.rates(first, {"d1": 2000}, per=10))


def test_change_of_every_unit_of_a_level(months):
    made = estimate.change(*months, "KIND", level="l2")
    tables = [month.estimate("l2", "KIND") for month in months]
    value, error = (
        [table[name].to_numpy().reshape(13, 2) for table in tables]
        for name in ("value", "standard_error")
    )
    np.testing.assert_array_equal(made.value, value[1] - value[0])
    np.testing.assert_allclose(made.standard_error**2, error[0] ** 2 + error[1] ** 2)
    table = made.table()
    assert table.column_names[:2] == ["geocode", "KIND"]
    assert table["geocode"].to_pylist()[::2] == tables[0]["geocode"].to_pylist()[::2]
    codes = months[0].geography.geocodes("l2").to_pylist()
    areas = {"north": codes[:4], "south": codes[2:]}
    asked = estimate.change(*months, "TOTAL", areas=areas)
    ready = estimate.change(*(month.areas(areas, "TOTAL") for month in months))
    assert asked.names == ("north", "south")
    np.testing.assert_array_equal(asked.p_value, ready.p_value)
    upper = estimate.change(*months, "TOTAL", areas={"top": ["u1", "u2"]}, level="l0")
    assert upper.value.item() == pytest.approx(
        estimate.change(*months, "TOTAL", level="l0").value.sum()
    )


def test_one_release_is_not_compared_with_itself(months, tmp_path):
    first = months[0]
    copied = tmp_path / "copied"
    shutil.copytree(first.measurements.folder, copied)
    again = replace(first.measurements, folder=copied)
    for other in (first, estimate.least_squares(again, first.plan)):
        with pytest.raises(
            InputError, match="of the same release, .*; pass two releases, whose noise is"
        ):
            estimate.change(first, other, "TOTAL", level="l0")
    areas = {"a": ["u111"], "b": ["u112"]}
    found = first.areas(areas, "TOTAL")
    twin = estimate.least_squares(again, first.plan).areas(areas, "TOTAL")
    for other in (found, first.areas(areas, "TOTAL"), twin):
        with pytest.raises(
            InputError, match="of the same release, .*; pass two releases, whose noise is"
        ):
            estimate.change(found, other)
    seeded = release(tmp_path / "seeded", 3)
    with pytest.raises(InputError, match="have the same noise, seeded: 3.*different seeds"):
        estimate.change(first, seeded, "TOTAL", level="l0")


def test_releases_of_different_things_are_not_compared(months, tmp_path):
    first, second = months
    other = plan_text({"KIND": ["x", "z"]}, QUERIES)
    tree = released_trees.release(tmp_path / "other", other, PLACES, seed=9)
    renamed = estimate.least_squares(tree.measurements, tree.plan)
    smaller = released_trees.places([2], [3, 2], [2, 1, 4, 3, 2])
    tree = released_trees.release(tmp_path / "less", plan_text(KINDS, QUERIES), smaller, seed=9)
    less = estimate.least_squares(tree.measurements, tree.plan)
    found, other_month = (month.areas({"a": ["u111"], "b": ["u112"]}, "TOTAL") for month in months)
    for call, message in (
        (
            lambda: estimate.change(first, renamed, "KIND", level="l0"),
            "query 'KIND' cannot be compared with 'KIND'; use the same attributes and categories",
        ),
        (
            lambda: estimate.change(first, less, "TOTAL", level="l2"),
            "u223: only in one of the two; compare the same geocodes",
        ),
        (
            lambda: estimate.change(found, second.areas({"a": ["u111"], "c": ["u112"]}, "TOTAL")),
            "b, c: only in one of the two; compare the same areas",
        ),
        (
            lambda: estimate.change(found, second),
            "a AreaEstimates cannot be compared with a LeastSquares; pass two of the same kind",
        ),
        (
            lambda: estimate.change(found, other_month, "TOTAL"),
            "query, level and areas are for least squa",
        ),
        (lambda: estimate.change(first, second), "query is missing; name one"),
        (
            lambda: estimate.change(first, second, "TOTAL"),
            "level and areas are both missing; name a level, l0, l1, l2, or areas",
        ),
    ):
        with pytest.raises(InputError, match=message):
            call()
    with pytest.raises(GeographyError, match="unknown level 'l9'"):
        estimate.change(first, second, "TOTAL", level="l9")


def test_everything_is_computed_from_what_is_published(months):
    """A plan read back from the release folder gives the same."""
    first = months[0]
    plan = Plan.parse(plan_text(KINDS, QUERIES))
    again = estimate.least_squares(first.measurements, plan)
    areas = {"a": ["u111"], "b": ["u112", "u121"]}
    one = estimate.difference(first.areas(areas, "KIND"), "a", "b")
    other = estimate.difference(again.areas(areas, "KIND"), "a", "b")
    np.testing.assert_array_equal(one.lower, other.lower)
