"""How least squares is asked: tables, batches, areas, files for what is large, and every refusal."""

import numpy as np
import pytest
from tests.estimate import dense_least_squares, released_trees
from tests.estimate.released_trees import plan_text
from tests.estimate.test_least_squares import same_numbers

from countveil import Plan, estimate
from countveil.base.intervals import normal_interval
from countveil.errors import GeographyError, InputError, PlanError
from countveil.estimate import areas, unbiased
from countveil.tree import messages, query_errors, subspaces, tree_values

AGE = {"AGE": ["young", "old"], "RACE": ["a", "b", "c"]}
EVERYTHING = {"TOTAL": 3, "RACE": 1, "AGE*RACE": 5}
QUERIES = {"l0": EVERYTHING, "l1": EVERYTHING, "l2": EVERYTHING}
PLACES = released_trees.places([2], [3, 2], [2, 1, 4, 3, 3])


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return released_trees.release(tmp_path_factory.mktemp("tree"), plan_text(AGE, QUERIES), PLACES)


@pytest.fixture(scope="module")
def estimates(tree):
    return estimate.least_squares(tree.measurements, tree.plan)


def test_a_table_has_a_row_for_every_unit_and_cell(estimates):
    table = estimates.estimate("l1", "RACE*AGE")
    assert table.column_names == [
        *("geocode", "RACE", "AGE"),
        *("value", "standard_error", "lower", "upper"),
    ]
    assert table.num_rows == 5 * 6
    assert table["geocode"].to_pylist()[::6] == ["u11", "u12", "u13", "u21", "u22"]
    assert table["RACE"].to_pylist()[:6] == ["a", "a", "b", "b", "c", "c"]
    assert table["AGE"].to_pylist()[:2] == ["young", "old"]
    value, error, lower, upper = (
        table[name].to_numpy() for name in ("value", "standard_error", "lower", "upper")
    )
    np.testing.assert_allclose(upper - value, 1.6448536269514722 * error)
    np.testing.assert_allclose(value - lower, 1.6448536269514722 * error)


def test_the_confidence_is_that_of_the_call_or_of_the_estimates(tree, estimates):
    wide = estimates.estimate("l0", "TOTAL", confidence=0.99)
    half = (wide["upper"].to_numpy() - wide["lower"].to_numpy()) / 2
    np.testing.assert_allclose(half, 2.5758293035489004 * wide["standard_error"].to_numpy())
    other = estimate.least_squares(tree.measurements, tree.plan, confidence=0.5)
    codes = tree.geography.geocodes("l2").to_pylist()[:3]
    for found in (other.area(codes, "TOTAL"), other.areas({"x": codes}, "TOTAL")):
        width = (found.upper - found.lower).item()
        assert width == pytest.approx(2 * 0.6744897501960817 * found.standard_error.item())


def test_factors_may_come_in_any_order(estimates):
    one = estimates.estimate("l2", "AGE*RACE")["value"].to_numpy().reshape(-1, 2, 3)
    other = estimates.estimate("l2", "RACE*AGE")["value"].to_numpy().reshape(-1, 3, 2)
    np.testing.assert_allclose(one, other.transpose(0, 2, 1), rtol=0, atol=1e-10)


def test_levels_add_up_and_margins_agree(estimates):
    lowest = np.concatenate([part.value for part in estimates.batches("l2", "AGE*RACE")])
    above = np.concatenate([part.value for part in estimates.batches("l1", "AGE*RACE")])
    np.testing.assert_allclose(np.add.reduceat(lowest, [0, 2, 3, 7, 10]), above, rtol=0, atol=1e-10)
    ages = np.concatenate([part.value for part in estimates.batches("l1", "AGE")])
    np.testing.assert_allclose(above.reshape(5, 2, 3).sum(axis=2), ages, rtol=0, atol=1e-10)


def test_areas_on_the_spine_are_units(estimates):
    table = estimates.estimate("l0", "RACE")
    blocks = estimates.geography.geocodes("l2").to_pylist()
    area = estimates.area([code for code in blocks if code.startswith("u2")], "RACE")
    np.testing.assert_allclose(area.value, table["value"].to_numpy()[3:], rtol=0, atol=1e-10)
    np.testing.assert_allclose(area.standard_error, table["standard_error"].to_numpy()[3:])
    assert area.table().column_names == [
        "area",
        "RACE",
        "value",
        "standard_error",
        "lower",
        "upper",
    ]
    both = estimates.area(["u1", "u2"], "TOTAL", level="l0")
    total = estimates.estimate("l0", "TOTAL")
    assert both.value.item() == pytest.approx(total["value"].to_numpy().sum())
    # Top units share nothing.
    assert both.covariance.item() == pytest.approx((total["standard_error"].to_numpy() ** 2).sum())


def test_the_covariance_gives_the_error_of_a_difference(estimates):
    blocks = estimates.geography.geocodes("l2").to_pylist()
    one, other = blocks[:4], blocks[4:9]
    covariance = estimates.covariance({"one": one, "other": other}, "AGE")
    assert covariance.shape == (2, 2, 2, 2)
    together = estimates.area([*one, *other], "AGE")
    added = covariance.sum(axis=(0, 2))
    np.testing.assert_allclose(added, together.covariance, rtol=0, atol=1e-10)


def test_a_level_read_in_many_runs_and_kept_in_files_is_the_same(tree, estimates, monkeypatch):
    whole = {level: estimates.estimate(level, "RACE*AGE") for level in tree.plan.levels}
    codes = tree.geography.geocodes("l2").to_pylist()[1::3]
    area = estimates.area(codes, "RACE*AGE")
    monkeypatch.setattr(messages, "_VALUES", 30)
    monkeypatch.setattr(tree_values, "_IN_MEMORY", 1)
    again = estimate.least_squares(tree.measurements, tree.plan)
    assert len(list(again.batches("l2", "RACE*AGE"))) == 4  # of whole families
    assert len(list(again.batches("l0", "RACE*AGE"))) == 1
    for level, table in whole.items():
        found = again.estimate(level, "RACE*AGE")
        np.testing.assert_allclose(
            found["value"].to_numpy(), table["value"].to_numpy(), rtol=0, atol=1e-10
        )
        np.testing.assert_array_equal(
            found["standard_error"].to_numpy(), table["standard_error"].to_numpy()
        )
    np.testing.assert_allclose(again.area(codes, "RACE*AGE").value, area.value, rtol=0, atol=1e-10)


def test_shares_that_differ_by_eight_digits_keep_the_others(tmp_path):
    kinds = {"KIND": ["a", "b", "c", "d"]}
    recodes = {"PART": ("KIND", {"x": ["a"], "y": ["b", "c", "d"]})}
    queries = {"l0": {"TOTAL": 10**8, "KIND": 1}, "l1": {"PART": 10**8, "TOTAL": 1, "KIND": 10}}
    plan = plan_text(kinds, queries, recodes=recodes)
    tree = released_trees.release(tmp_path / "tree", plan, released_trees.places([1], [3]))
    estimates = estimate.least_squares(tree.measurements, tree.plan)
    dense = dense_least_squares.solve(tree.measurements, tree.plan, tree.geography)
    for level in ("l0", "l1"):
        rows = np.concatenate(
            [dense.rows(level, "KIND", [u]) for u in range(tree.geography.units(level))]
        )
        table = estimates.estimate(level, "KIND")
        variance = np.einsum("ij,jk,ik->i", rows, dense.covariance, rows)
        np.testing.assert_allclose(table["standard_error"].to_numpy() ** 2, variance, rtol=1e-7)
        apart = (table["value"].to_numpy() - rows @ dense.value) / np.sqrt(variance)
        assert np.abs(apart).max() < 1e-7


def test_a_query_measured_without_noise_is_exact(tmp_path):
    queries = {"l0": {"TOTAL": 1}, "l1": {"AGE": 999_999, "RACE*AGE": 1}}
    plan = plan_text(AGE, queries, rho="1000")
    tree = released_trees.release(tmp_path / "tree", plan, released_trees.places([1], [3]))
    variances = [law.variance for law in tree.measurements.mechanisms.values()]
    assert min(variances) < 1e-12 < max(variances)
    estimates = estimate.least_squares(tree.measurements, tree.plan)
    for level in ("l0", "l1"):
        table = estimates.estimate(level, "AGE")
        assert (table["standard_error"].to_numpy() == 0).all()
        np.testing.assert_array_equal(
            table["value"].to_numpy(), tree.counted(level, "AGE").reshape(-1)
        )
    assert (estimates.estimate("l1", "RACE")["standard_error"].to_numpy() > 0.1).all()


def test_laplace_noise_has_its_own_variance(tmp_path):
    plan = plan_text(AGE, {"l0": {"TOTAL": 1}, "l1": {"AGE": 1, "RACE*AGE": 1}})
    plan = plan.replace('rho = "2"', 'epsilon = "2"')
    tree = released_trees.release(tmp_path / "tree", plan, released_trees.places([1], [3]))
    assert {law.name for law in tree.measurements.mechanisms.values()} == {"discrete-laplace"}
    estimates = estimate.least_squares(tree.measurements, tree.plan)
    dense = dense_least_squares.solve(tree.measurements, tree.plan, tree.geography)
    rows = np.concatenate([dense.rows("l1", "RACE*AGE", [unit]) for unit in range(3)])
    assert same_numbers(estimates, dense, "l1", "RACE*AGE", rows) == 18


def test_a_plan_without_attributes_has_totals(tmp_path):
    plan = plan_text({}, {"l0": {"TOTAL": 1}, "l1": {"TOTAL": 1}})
    tree = released_trees.release(tmp_path / "tree", plan, released_trees.places([1], [3]))
    found = estimate.least_squares(tree.measurements, tree.plan).estimate("l0", "TOTAL")
    variance = [tree.measurements.mechanisms[level, "TOTAL"].variance for level in ("l0", "l1")]
    expected = 1 / (1 / variance[0] + 1 / (3 * variance[1]))
    assert found["standard_error"].to_numpy().item() ** 2 == pytest.approx(expected)


def test_what_is_not_determined_is_refused_or_has_an_infinite_error(tmp_path):
    queries = {"l0": EVERYTHING, "l1": {"TOTAL": 1}, "l2": {}}
    places = released_trees.places([1], [2], [1, 2])
    tree = released_trees.release(tmp_path / "tree", plan_text(AGE, queries), places)
    estimates = estimate.least_squares(tree.measurements, tree.plan)
    with pytest.raises(
        InputError, match="is not determined at level l1, .* only TOTAL is measured; "
    ):
        estimates.estimate("l1", "AGE")
    with pytest.raises(InputError, match="is not determined at level l2.*nothing is measured"):
        estimates.area(["u121"], "AGE")
    # Of the lowest units only the only child is known: it is its parent.
    table = estimates.estimate("l2", "TOTAL")
    np.testing.assert_array_equal(np.isinf(table["standard_error"].to_numpy()), [False, True, True])
    assert np.isnan(table["value"].to_numpy()[1:]).all()
    assert (table["lower"].to_numpy()[1:] == -np.inf).all()
    assert (table["upper"].to_numpy()[1:] == np.inf).all()
    both = estimates.areas({"two": ["u121", "u122"], "half": ["u111", "u121"]}, "TOTAL")
    np.testing.assert_array_equal(np.isinf(both.standard_error[:, 0]), [False, True])
    assert both.covariance[1, 0, 1, 0] == np.inf
    assert np.isnan(both.covariance[0, 0, 1, 0])
    assert np.isnan(both["half"].value).all()
    assert both["two"].standard_error < 10


def test_units_that_are_not_there_are_refused(estimates):
    for codes, message in (
        (
            ["u111", "nowhere", "else"],
            "unknown l2 'nowhere' and 1 more; use codes of level l2, such as",
        ),
        (["u111", "u111"], "l2 u111 is listed twice"),
        ([], "has no units; name at least one l2"),
        ([111, 112], "its units have type int64; codes must be text"),
    ):
        with pytest.raises(InputError, match=message):
            estimates.area(codes, "TOTAL")
    with pytest.raises(InputError, match="areas: there are none"):
        estimates.areas({}, "TOTAL")
    with pytest.raises(InputError, match="unknown area 'y'; choose from x"):
        estimates.areas({"x": ["u111"]}, "TOTAL")["y"]


def test_queries_and_levels_that_are_not_there_are_refused(estimates):
    with pytest.raises(PlanError, match="unknown attribute or recode 'SEX'"):
        estimates.estimate("l0", "SEX")
    with pytest.raises(GeographyError, match="unknown level 'block'; choose from l0, l1, l2"):
        estimates.estimate("block", "TOTAL")
    with pytest.raises(
        InputError, match=r"confidence: 90 is not allowed; it must be between 0 and 1"
    ):
        estimates.estimate("l0", "TOTAL", confidence=90)


def test_what_is_too_large_is_refused(tree, estimates, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(unbiased, "_MOST_ROWS", 10)
        with pytest.raises(InputError, match="has 78 rows at level l2.*use `batches`"):
            estimates.estimate("l2", "RACE*AGE")
    monkeypatch.setattr(areas, "_MOST_COVARIANCES", 10)
    with pytest.raises(InputError, match="2 areas of 3 cells have 36 covariances, and 10 is the"):
        estimates.covariance({"x": ["u111"], "y": ["u112"]}, "RACE")
    fresh = estimate.least_squares(tree.measurements, tree.plan)
    for module, name, message in (
        (tree_values, "_MOST_KEPT", "84 numbers would be kept for the 7 units above"),
        (query_errors, "_MOST_COVARIANCES", "covariances would be kept"),
        (subspaces, "_LARGEST_BLOCK", "tie 1 sums of cells together, and 0 is the limit"),
        (
            subspaces,
            "_LARGEST_AXIS",
            "least squares can tell at most 0 apart",
        ),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, 0)
            with pytest.raises(InputError, match=message):
                fresh.estimate("l0", "RACE*AGE")


def test_another_plan_or_geography_is_refused(tree, tmp_path):
    text = plan_text(AGE, {**QUERIES, "l0": {"TOTAL": 1}})
    with pytest.raises(InputError, match="was measured under another plan"):
        estimate.least_squares(tree.measurements, Plan.parse(text))
    (tmp_path / "places.csv").write_text(released_trees.places([2], [3, 2], [2, 1, 4, 3, 4]))
    moved = Plan.parse(plan_text(AGE, QUERIES), folder=tmp_path).geography()
    with pytest.raises(InputError, match="has 13 units of level l2, and the geography 14"):
        estimate.least_squares(tree.measurements, tree.plan, geography=moved)
    with pytest.raises(InputError, match="confidence: 1.5 is not allowed"):
        estimate.least_squares(tree.measurements, tree.plan, confidence=1.5)


def test_a_category_named_like_a_column_is_refused_in_tables(tmp_path):
    plan = plan_text({"value": ["x", "y"]}, {"l0": {"value": 1}})
    tree = released_trees.release(tmp_path / "tree", plan, released_trees.places([2]))
    estimates = estimate.least_squares(tree.measurements, tree.plan)
    with pytest.raises(InputError, match="the result already has a column named value"):
        estimates.estimate("l0", "value")
    assert next(iter(estimates.batches("l0", "value"))).value.shape == (2, 2)


def test_a_normal_interval_is_the_whole_line_where_nothing_is_known():
    lower, upper = normal_interval(np.array([5.0, np.nan]), np.array([0.0, np.inf]), 0.9)
    np.testing.assert_array_equal(lower, [5.0, -np.inf])
    np.testing.assert_array_equal(upper, [5.0, np.inf])
