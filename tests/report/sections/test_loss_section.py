"""The privacy loss of single counts: every table and sentence by hand."""

import math

import numpy as np
import pytest
from tests.conftest import TINY_PLAN
from tests.report import hand_plan
from tests.report import sections_of_hand as made
from tests.report.reading import table_rows

from countveil.base import words
from countveil.plan.plans import Plan

LISTED = [
    *(("region", query) for query in ("TOTAL", "AGE*SEX")),
    *(("area", query) for query in ("TOTAL", "AGE", "AGE*SEX")),
]


@pytest.fixture(scope="module")
def plan():
    return Plan.parse(hand_plan.PLAN)


def edge_and_loss(level, query):
    """Return the least reach of 95 % of the noise, and log P(e)/P(e + rows) there."""
    k, chance = hand_plan.law(hand_plan.variance(level, query))
    at = dict(zip(k.tolist(), chance.tolist(), strict=True))
    edge = next(h for h in range(200) if chance[np.abs(k) <= h].sum() >= 0.95)
    return edge, math.log(at[edge] / at[edge + hand_plan.ROWS])


def test_losses_are_listed_at_the_edge_of_the_noise(plan):
    section = made.loss(plan)
    rows = table_rows(section, "Privacy loss of one count, at the 95th percentile of its noise")
    assert [(row["Level"], row["Query"]) for row in rows] == [p for p in LISTED if p[1] != "AGE"]
    for row in rows:
        of = row["Level"], row["Query"]
        edge, loss = edge_and_loss(*of)
        assert row["Standard deviation"] == pytest.approx(hand_plan.spread(*of))
        assert (row["Size of the noise"], row["Privacy loss"]) == (edge, pytest.approx(loss))


def test_the_sentence_is_about_the_largest_loss(plan):
    edge, loss = edge_and_loss("area", "AGE*SEX")
    section = made.loss(plan)
    assert all(row["Privacy loss"] <= loss for row in table_rows(section, "Privacy loss of one"))
    assert section.sentences[1] == (
        f"Of these queries, AGE*SEX of an area has the largest loss: {words.brief(loss)} at a noise "
        f"of {edge}, the 95th percentile of its size."
    )
    assert "with all 3 rows of a person in the count" in section.sentences[0]
    one = made.loss(Plan.parse(TINY_PLAN))
    assert "with a person in the count" in one.sentences[0]


def test_the_sum_of_losses_keeps_to_the_budget_as_the_sentence_says(plan):
    """Zero-concentrated: the mean of all losses is at most rho, and none is the largest."""
    told = made.loss(plan).sentences[-1]
    assert "at or below rho on average" in told
    assert "sets no maximum" in told
    mean, far = 0.0, 0.0
    for level in hand_plan.RHO:
        points, chances = hand_plan.presence(level)
        mean += float(points @ chances)
        far += float(points.max())
    assert mean <= 0.9 < far
    pure = Plan.parse(TINY_PLAN.replace('rho = "2"', 'epsilon = "2"'))
    assert "never exceeds the budget" in made.loss(pure).sentences[-1]
    largest = sum(
        max(abs(abs(k + 1) - abs(k)) * epsilon / 2 for k in range(-40, 40))
        for epsilon in (1 / 4, 3 / 4) * 2
    )
    assert largest <= 2
