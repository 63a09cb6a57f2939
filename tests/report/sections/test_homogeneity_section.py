"""Groups in which everyone has the same value: the table and the chart by hand."""

import pytest
from tests.conftest import TINY_PLAN
from tests.report import hand_plan
from tests.report import sections_of_hand as made
from tests.report.reading import chart_rows, table_rows

from countveil.base import words
from countveil.plan.plans import Plan


@pytest.fixture(scope="module")
def plan():
    return Plan.parse(hand_plan.PLAN)


def test_groups_that_are_alike_are_listed_and_drawn(plan):
    section = made.homogeneity(plan)
    k, chance = hand_plan.law(hand_plan.variance("area", "AGE*SEX"))
    rows = {
        row["Attribute"]: row for row in table_rows(section, "How often noisy counts of an area")
    }
    drawn = {
        (row["attribute"], row["people"]): row for row in chart_rows(section, "uniform-groups")
    }
    for name, values in (("AGE", 2), ("SEX", 3)):
        assert rows[name]["Values"] == values
        for people in (1, 2, 3, 5, 10, 20):
            seen = float(chance[k + people >= 0.5].sum())
            unseen = float(chance[k < 0.5].sum())
            only = seen * unseen ** (values - 1)
            assert rows[name][f"Group of {people}"] == words.brief_percent(only)
            assert drawn[name, people]["disclosed"] == pytest.approx(only)
    assert "they also share an area and all other attributes" in section.charts[0].caption


def test_more_attributes_than_a_chart_can_show_are_all_listed():
    more = "".join(f'B{n} = ["a", "b"]\n' for n in range(8))
    names = ["AGE", "SEX", *(f"B{n}" for n in range(8))]
    text = TINY_PLAN.replace('"m", "x"]\n', f'"m", "x"]\n{more}')
    plan = Plan.parse(text.replace("AGE*SEX", "*".join(names)))
    section = made.homogeneity(plan)
    assert [row["Attribute"] for row in table_rows(section, "How often")] == names
    drawn = dict.fromkeys(row["attribute"] for row in chart_rows(section, "uniform-groups"))
    assert list(drawn) == names[:8]
    assert "first 8 of 10 attributes" in section.sentences[1]


def test_a_plan_without_attributes_has_no_groups():
    text = TINY_PLAN.replace('AGE = ["young", "old"]\nSEX = ["f", "m", "x"]\n', "")
    plan = Plan.parse(text.replace('TOTAL = "1/4"\n"AGE*SEX" = "3/4"', 'TOTAL = "1"'))
    assert made.homogeneity(plan) is None
