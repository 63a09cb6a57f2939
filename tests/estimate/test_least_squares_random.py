"""Least squares on random plans and trees, and on the preset of 2020, against the dense solution."""

import json

import numpy as np
import pytest
from tests.estimate import dense_least_squares, random_trees, released_trees
from tests.estimate.test_least_squares import same_covariance, same_numbers

from countveil import estimate
from countveil.plan import plan_file

SEEDS = range(100, 116)
LARGEST = 400  # unknowns of the dense problem


@pytest.mark.parametrize("seed", SEEDS)
def test_random_plans_equal_the_dense_solution(seed, tmp_path):
    plan, places, asked = random_trees.draw(seed)
    tree = released_trees.release(tmp_path / "tree", plan, places, seed=seed)
    lowest = tree.plan.levels[-1]
    units = tree.geography.units(lowest)
    if units * tree.plan.schema.cells > LARGEST:
        # A random tree may be too large to write out; one of its top units is a tree as well.
        first = places.splitlines()[1].split(",")[0] + ","
        kept = [line for line in places.splitlines()[1:] if line.startswith(first)][:6]
        places = "\n".join([places.splitlines()[0], *kept]) + "\n"
        tree = released_trees.release(tmp_path / "smaller", plan, places, seed=seed)
        units = tree.geography.units(lowest)
    estimates = estimate.least_squares(tree.measurements, tree.plan)
    dense = dense_least_squares.solve(tree.measurements, tree.plan, tree.geography)
    codes = tree.geography.geocodes(lowest).to_pylist()
    rng = np.random.default_rng(seed)
    compared = 0
    for query in asked[:: max(1, len(asked) // 8)]:
        for level in tree.plan.levels:
            every = range(tree.geography.units(level))
            rows = np.concatenate([dense.rows(level, query, [unit]) for unit in every])
            compared += same_numbers(estimates, dense, level, query, rows)
        areas = {"all": np.arange(units), "some": np.flatnonzero(rng.random(units) < 0.5)}
        areas = {name: inside for name, inside in areas.items() if len(inside)}
        rows = np.concatenate(
            [dense.rows(lowest, query, list(inside)) for inside in areas.values()]
        )
        if np.abs(rows @ dense.undetermined).max(axis=1).min() > 1e-6:
            continue
        named = {name: [codes[unit] for unit in inside] for name, inside in areas.items()}
        same_covariance(estimates.areas(named, query), dense, rows)
    assert compared > 0


def test_the_preset_of_2020_cut_small_equals_the_dense_solution(tmp_path):
    text = released_trees.HEAD.replace("[release]", '[release]\npreset = "pl94-2020"')
    document = plan_file.parse(text, "preset").document
    races = document["attributes"]["CENRACE"][:2]
    levels = document["geography"]["levels"]
    plan = text + f"[attributes]\nCENRACE = {json.dumps(races)}\n"
    plan += '[postprocess]\nmethod = "none"\ntables = []\n'
    places = released_trees.places([1], [2], [1, 2], [1, 1, 1], [1, 1, 2], [1, 2, 1, 2])
    places = places.replace("l0,l1,l2,l3,l4,l5", ",".join(levels))
    tree = released_trees.release(tmp_path / "preset", plan, places)
    assert tree.plan.schema.shape == (8, 2, 2, 2)
    estimates = estimate.least_squares(tree.measurements, tree.plan)
    dense = dense_least_squares.solve(tree.measurements, tree.plan, tree.geography)
    full = "HHGQ*VOTINGAGE*HISPANIC*CENRACE"
    for query in ("TOTAL", "HHINSTLEVELS", "HISPANIC*CENRACE", full):
        for level in levels:
            every = range(tree.geography.units(level))
            rows = np.concatenate([dense.rows(level, query, [unit]) for unit in every])
            same_numbers(estimates, dense, level, query, rows)
    codes = tree.geography.geocodes("block").to_pylist()
    rows = np.concatenate(
        [dense.rows("block", "HHGQ", [0, 3, 4]), dense.rows("block", "HHGQ", [4, 5])]
    )
    found = estimates.areas(
        {"one": [codes[0], codes[3], codes[4]], "other": [codes[4], codes[5]]}, "HHGQ"
    )
    same_covariance(found, dense, rows)
