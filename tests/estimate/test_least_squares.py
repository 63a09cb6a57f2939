"""Two-pass least squares equals one dense problem: values, standard errors, what is determined."""

from dataclasses import dataclass

import numpy as np
import pytest
from tests.estimate import dense_least_squares, released_trees
from tests.estimate.released_trees import plan_text

from countveil import estimate
from countveil.errors import InputError

AGE = {"AGE": ["young", "old"], "RACE": ["a", "b", "c"]}
KINDS = {"KIND": ["home", "jail", "ward", "nursing", "college", "barracks"], "AGE": ["y", "o"]}
LEVELS = {
    "INST": (
        "KIND",
        {"h": ["home"], "i": ["jail", "ward", "nursing"], "n": ["college", "barracks"]},
    )
}
EVERYTHING = {"TOTAL": 3, "AGE": 2, "RACE": 1, "AGE*RACE": 5}
KIND_QUERIES = {"TOTAL": 3, "INST": 4, "KIND": 1, "AGE": 2, "AGE*INST": 1, "KIND*AGE": 2}
CHAIN = ([2], [2, 1], [2, 1, 1], [1, 3, 1, 2])  # units with one child, one under the other


@dataclass(frozen=True)
class Case:
    plan: str
    places: str
    queries: tuple[str, ...] = ("TOTAL", "AGE", "RACE", "RACE*AGE")


def _levels(*queries: dict[str, int]) -> dict[str, dict[str, int]]:
    return {f"l{number}": chosen for number, chosen in enumerate(queries)}


KIND_ASKED = ("TOTAL", "INST", "KIND", "AGE", "INST*AGE", "AGE*KIND")
CASES = {
    "one level": Case(plan_text(AGE, _levels(EVERYTHING)), released_trees.places([3])),
    "every level measures everything": Case(
        plan_text(AGE, _levels(EVERYTHING, EVERYTHING, EVERYTHING)),
        released_trees.places([1], [3], [1, 4, 2]),
    ),
    "chains of only children": Case(
        plan_text(AGE, _levels(*4 * [EVERYTHING])), released_trees.places(*CHAIN)
    ),
    "levels measure different queries": Case(
        plan_text(AGE, _levels({"TOTAL": 1}, {"RACE*AGE": 1, "AGE": 2}, {"RACE": 1, "TOTAL": 1})),
        released_trees.places([2], [2, 1], [1, 4, 2]),
    ),
    "an unmeasured level between": Case(
        plan_text(AGE, _levels(EVERYTHING, {}, EVERYTHING)),
        released_trees.places([1], [2], [3, 2]),
    ),
    "nothing measured at the top": Case(
        plan_text(AGE, _levels({}, {}, EVERYTHING)), released_trees.places([2], [2, 1], [3, 2, 2])
    ),
    "nothing measured at the bottom": Case(
        plan_text(AGE, _levels(EVERYTHING, EVERYTHING, {})),
        released_trees.places([1], [3], [1, 4, 2]),
    ),
    "only totals below": Case(
        plan_text(AGE, _levels(EVERYTHING, {"TOTAL": 1})),
        released_trees.places([1], [3]),
    ),
    "totals of the middle level are public": Case(
        plan_text(AGE, _levels(*3 * [EVERYTHING]), invariants=[("l1", "TOTAL")]),
        released_trees.places([2], [2, 1], [3, 2, 2]),
    ),
    "totals of the lowest level and ages of the middle one are public": Case(
        plan_text(
            AGE,
            _levels(*3 * [EVERYTHING]),
            invariants=[("l2", "TOTAL"), ("l1", "AGE"), ("l0", "RACE")],
        ),
        released_trees.places([2], [2, 1], [3, 2, 1]),
    ),
    "everything is public somewhere": Case(
        plan_text(AGE, _levels(*3 * [EVERYTHING]), invariants=[("l1", "AGE*RACE")]),
        released_trees.places([1], [2], [3, 2]),
    ),
    "a recode of unequal groups": Case(
        plan_text(KINDS, _levels(*3 * [KIND_QUERIES]), recodes=LEVELS),
        released_trees.places([1], [2], [1, 4]),
        KIND_ASKED,
    ),
    "a recode of unequal groups, public at one level": Case(
        plan_text(
            KINDS, _levels(*3 * [KIND_QUERIES]), recodes=LEVELS, invariants=[("l1", "INST*AGE")]
        ),
        released_trees.places([1], [2], [3, 2]),
        KIND_ASKED,
    ),
    "recodes across each other, one with a category left out": Case(
        plan_text(
            {"RACE": ["a", "b", "c", "d", "e", "f"]},
            _levels(
                {"PAIRS": 1, "TOTAL": 2}, {"PAIRS": 2, "ODD": 1, "RACE": 3}, {"FEW": 1, "ODD": 1}
            ),
            recodes={
                "PAIRS": ("RACE", {"x": ["a", "b"], "y": ["c", "d"], "z": ["e", "f"]}),
                "ODD": ("RACE", {"x": ["a", "c", "e"], "y": ["b", "d", "f"]}),
                "FEW": ("RACE", {"x": ["a", "b"], "y": ["c"]}),
            },
            omit={"FEW": ["d", "e", "f"]},
        ),
        released_trees.places([1], [2], [3, 1]),
        ("TOTAL", "PAIRS", "ODD", "FEW", "RACE"),
    ),
    "a recode that nobody measured": Case(
        plan_text(KINDS, _levels({"KIND*AGE": 1}, {"AGE": 1, "KIND": 4}), recodes=LEVELS),
        released_trees.places([2], [2, 3]),
        KIND_ASKED,
    ),
    "structural zeros": Case(
        plan_text(
            KINDS,
            _levels(*3 * [KIND_QUERIES]),
            recodes=LEVELS,
            zeros=[{"KIND": ["barracks", "jail"], "AGE": ["y"]}, {"KIND": ["ward"]}],
        ),
        released_trees.places([1], [2], [1, 4]),
        KIND_ASKED,
    ),
    "invariants that say the same twice": Case(
        plan_text(
            {"A0": ["c0", "c1"], "A1": ["c0"], "A2": ["c0", "c1", "c2", "c3"]},
            _levels({}, {"A1": 2, "A2*A1*A0": 11}, {"R20*A0": 1}),
            recodes={"R20": ("A2", {"g1": ["c1"], "g2": ["c0", "c2", "c3"]})},
            invariants=[("l1", "A0*A1"), ("l0", "R20*A1*A0")],
            zeros=[{"A0": ["c1"], "A2": ["c0", "c2"]}],
        ),
        released_trees.places([2], [2, 1], [2, 1, 1]),
        ("TOTAL", "A2", "R20", "A2*A0"),
    ),
    "structural zeros beside invariants": Case(
        plan_text(
            KINDS,
            _levels({"KIND": 1}, {"AGE": 1, "KIND*AGE": 3}, {"TOTAL": 2, "INST": 1}),
            recodes=LEVELS,
            invariants=[("l2", "TOTAL"), ("l0", "INST")],
            zeros=[{"KIND": ["barracks"], "AGE": ["y"]}, {"KIND": ["home"], "AGE": ["o"]}],
        ),
        released_trees.places([2], [2, 1], [2, 3, 1]),
        KIND_ASKED,
    ),
}


@pytest.fixture(scope="module", params=CASES, ids=str)
def case(request, tmp_path_factory):
    chosen = CASES[request.param]
    tree = released_trees.release(tmp_path_factory.mktemp("tree"), chosen.plan, chosen.places)
    estimates = estimate.least_squares(tree.measurements, tree.plan)
    dense = dense_least_squares.solve(tree.measurements, tree.plan, tree.geography)
    return chosen, estimates, dense


def test_values_and_standard_errors_equal_the_dense_solution(case):
    chosen, estimates, dense = case
    compared = 0
    for query in chosen.queries:
        for level in estimates.plan.levels:
            units = range(estimates.geography.units(level))
            rows = np.concatenate([dense.rows(level, query, [unit]) for unit in units])
            compared += same_numbers(estimates, dense, level, query, rows)
    assert compared >= 15


def test_areas_and_their_covariances_equal_the_dense_solution(case):
    chosen, estimates, dense = case
    lowest = estimates.plan.levels[-1]
    units = np.arange(estimates.geography.units(lowest))
    codes = estimates.geography.geocodes(lowest).to_pylist()
    areas = {"odd": units[::2], "first": units[:1], "most": units[1:], "all": units}
    named = {name: [codes[unit] for unit in chosen] for name, chosen in areas.items()}
    for query in chosen.queries:
        rows = np.concatenate(
            [dense.rows(lowest, query, list(inside)) for inside in areas.values()]
        )
        found = estimates.areas(named, query)
        same_covariance(found, dense, rows)
        alone = estimates.area(named["all"], query)
        np.testing.assert_allclose(alone.value, found.value[-1], rtol=0, atol=1e-10)
        np.testing.assert_allclose(
            alone.covariance, found.covariance[-1, :, -1], rtol=0, atol=1e-10
        )


def test_covariances_between_units_of_any_level_equal_the_dense_solution(case):
    chosen, estimates, dense = case
    for level in estimates.plan.levels:
        codes = estimates.geography.geocodes(level).to_pylist()
        for query in chosen.queries:
            rows = np.concatenate([dense.rows(level, query, [unit]) for unit in range(len(codes))])
            try:
                found = estimates.areas({code: [code] for code in codes}, query, level=level)
            except InputError as error:
                assert "is not determined" in str(error)
                assert np.abs(rows @ dense.undetermined).max(axis=1).min() > 1e-6
                continue
            same_covariance(found, dense, rows)
            table = estimates.estimate(level, query)
            np.testing.assert_allclose(
                table["standard_error"].to_numpy().reshape(found.value.shape),
                found.standard_error,
                atol=1e-10,
            )


def same_numbers(estimates, dense, level, query, rows) -> int:
    """Compare one query of a level; return how many numbers of it are determined."""
    lost = np.abs(rows @ dense.undetermined).max(axis=1) > 1e-6
    try:
        table = estimates.estimate(level, query)
    except InputError as error:
        assert "is not determined" in str(error)
        assert lost.all()
        return 0
    value, error = (table[name].to_numpy() for name in ("value", "standard_error"))
    np.testing.assert_array_equal(np.isinf(error), lost)
    np.testing.assert_array_equal(np.isnan(value), lost)
    np.testing.assert_allclose(value[~lost], (rows @ dense.value)[~lost], rtol=0, atol=1e-10)
    variance = np.einsum("ij,jk,ik->i", rows, dense.covariance, rows)
    np.testing.assert_allclose(error[~lost] ** 2, variance[~lost], rtol=0, atol=1e-10)
    return int((~lost).sum())


def same_covariance(found, dense, rows) -> None:
    lost = np.abs(rows @ dense.undetermined).max(axis=1) > 1e-6
    value, error = found.value.reshape(-1), found.standard_error.reshape(-1)
    covariance = found.covariance.reshape(len(rows), len(rows))
    np.testing.assert_array_equal(np.isinf(error), lost)
    np.testing.assert_array_equal(np.isinf(np.diag(covariance)), lost)
    kept = np.ix_(~lost, ~lost)
    np.testing.assert_allclose(value[~lost], (rows @ dense.value)[~lost], rtol=0, atol=1e-10)
    expected = rows @ dense.covariance @ rows.T
    np.testing.assert_allclose(covariance[kept], expected[kept], rtol=0, atol=1e-10)
    np.testing.assert_allclose(error[~lost] ** 2, np.diag(expected)[~lost], rtol=0, atol=1e-10)
