"""How many releases a page simulates: from the plan and its places alone."""

import numpy as np
import pyarrow as pa
import pytest
from tests.conftest import TINY_PLAN

from countveil import Plan
from countveil.assess.published.simulation_cost import (
    affordable_draws,
    refuse_long,
    seconds_of_release,
)
from countveil.errors import InputError
from countveil.plan.geography import Geography

MORE = '[postprocess]\nmethod = "top-down"\n'


def tree(tops, children):
    codes = (
        pa.array([f"R{n}" for n in range(tops)]),
        pa.array([f"A{n}" for n in range(tops * children)]),
    )
    parents = np.zeros(tops, int), np.repeat(np.arange(tops), children)
    return Geography(("region", "area"), codes, parents)


def test_families_and_values_are_counted():
    plan, places = Plan.parse(TINY_PLAN + MORE), tree(2, 3)
    values = 7 * (2 + 6) * 2e-6
    # A path: one region by itself, and one family of areas.
    path = seconds_of_release(plan, places, {"region": [1], "area": [4]})
    assert path == pytest.approx(2e-3 + values)
    # All areas: two regions, and the areas of each.
    assert seconds_of_release(plan, places, {"area": range(6)}) == pytest.approx(4e-3 + values)
    assert seconds_of_release(plan, places, {"region": range(2)}) == pytest.approx(2e-3 + values)


def test_public_facts_below_the_top_need_every_family():
    fact = '[[invariants]]\nlevel = "{}"\nquery = "TOTAL"\nreason = "law"\n'
    places, path = tree(2, 3), {"region": [0], "area": [0]}
    costs = [
        seconds_of_release(Plan.parse(TINY_PLAN + MORE + fact.format(level)), places, path)
        for level in ("region", "area")
    ]
    assert costs[1] - costs[0] == pytest.approx(2e-3)


def test_releases_that_stand_alone_cost_more():
    text = TINY_PLAN.replace('area = "1/2"', 'area = "0"').replace('region = "1/2"', 'region = "1"')
    fact = '[[invariants]]\nlevel = "area"\nquery = "TOTAL"\nreason = "law"\n'
    plan = Plan.parse(text + MORE + fact)
    path = {"region": [0]}
    together = seconds_of_release(Plan.parse(text + MORE), tree(1, 2), path)
    assert seconds_of_release(plan, tree(1, 2), path) > 10 * together
    assert affordable_draws(plan, tree(1, 2), path, seconds=3.5, least=400, most=1_000) == 0


def test_more_than_ten_minutes_are_refused_with_the_time_and_what_fits():
    plan, places, path = Plan.parse(TINY_PLAN + MORE), tree(1, 3), {"area": [0]}
    each = seconds_of_release(plan, places, path)
    most = int(600 / each)
    refuse_long(plan, places, path, most)
    with pytest.raises(InputError) as refused:
        refuse_long(plan, places, path, 6 * most)
    assert f"{6 * most:,} simulated releases would take about 60 minutes" in str(refused.value)
    assert f"at most {most:,} draws fit into it" in str(refused.value)
    with pytest.raises(InputError, match="would take about 10 hours"):
        refuse_long(plan, places, path, 58 * most)


@pytest.mark.parametrize(("seconds", "draws"), [(100.0, 1_000), (1.0, 486), (0.9, 437), (0.8, 0)])
def test_as_many_as_are_of_use(seconds, draws):
    plan, places, path = Plan.parse(TINY_PLAN + MORE), tree(1, 3), {"area": [0]}
    found = affordable_draws(plan, places, path, seconds=seconds, least=400, most=1_000)
    assert found == draws
