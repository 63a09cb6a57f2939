"""What other budgets would give: by hand, with budgets that no plan may have left out."""

import json
import math
from fractions import Fraction

import pytest
from tests.conftest import TINY_PLAN
from tests.report import hand_plan
from tests.report.reading import Page

from countveil.base import words
from countveil.plan.plans import Plan
from countveil.report.budget_steps import other_budgets
from countveil.report.decision_sheets import decision_sheet


@pytest.fixture(scope="module")
def found():
    return other_budgets(Plan.parse(hand_plan.PLAN))


def scaled(monkeypatch, times):
    """Make the plan by hand cost so many times as much."""
    monkeypatch.setattr(
        hand_plan,
        "RHO",
        {
            level: {q: rho * times for q, rho in queries.items()}
            for level, queries in hand_plan.RHO.items()
        },
    )


@pytest.mark.parametrize("times", ["1/16", "2/3", "1", "2", "8"])
def test_risks_decisions_and_errors_of_other_budgets(found, monkeypatch, times):
    scaled(monkeypatch, float(Fraction(times)))
    amount = Fraction(9, 10) * Fraction(times)
    (step,) = [step for step in found.steps if Fraction(step.amount) == amount]
    assert step.cost == f"rho = {amount}"
    assert step.chosen == (times == "1")
    for number, prior in enumerate(hand_plan.PRIORS):
        after, right = hand_plan.of_both_levels(prior)  # the plan names places that are not there
        # Wide noise is taken for normal, and narrow noise for what it is.
        assert step.risks[number].marginal_risk == pytest.approx(after / prior, rel=1e-6)
        assert step.risks[number].correct_decision == pytest.approx(right, abs=1e-4)
    assert [error.standard_error for error in step.errors] == pytest.approx(
        [hand_plan.standard_error(level, "TOTAL") for level in ("region", "area")]
    )


def test_steps_go_up_from_a_sixteenth_to_sixteen_times(found):
    amounts = [Fraction(step.amount) / Fraction(9, 10) for step in found.steps]
    up = [Fraction(each) for each in ("1", "3/2", "2", "3", "4", "6", "8", "12", "16")]
    assert amounts == [*(1 / each for each in reversed(up[1:])), *up]
    assert (found.currency, found.priors) == ("rho", hand_plan.PRIORS)
    assert (found.levels, found.settled) == (("region", "area"), False)
    assert found.chosen.amount == "9/10"


def test_it_is_given_to_charts_by_intruder(found):
    risks = found.by_intruder("marginal risk", 3)
    right = found.by_intruder("correct decision", 3)
    assert [(who.prior, who.rows) for who in risks] == [(p, 3) for p in hand_plan.PRIORS]
    for number, who in enumerate(risks):
        own = [step.risks[number] for step in found.steps]
        assert [risk.value for risk in risks[who]] == [risk.marginal_risk for risk in own]
        assert [risk.value for risk in right[who]] == [risk.correct_decision for risk in own]
        assert {risk.measure for risk in right[who]} == {"correct decision"}


def test_what_is_public_settles_it_at_any_budget():
    found = other_budgets(Plan.parse(hand_plan.PLAN + hand_plan.SETTLING))
    assert found.settled
    for step in found.steps:
        ratios = [risk.marginal_risk for risk in step.risks]
        assert ratios == pytest.approx([1 / prior for prior in hand_plan.PRIORS])
        assert {risk.correct_decision for risk in step.risks} == {1.0}
        assert all(error.as_counted for error in step.errors), (
            "totals that add up are published as counted, too"
        )


def test_an_error_that_queries_do_not_determine_is_none():
    omitting = (
        '[recodes.GROUP]\nof = "AGE"\nomit = ["young"]\n[recodes.GROUP.groups]\nold = ["old"]\n'
    )
    text = TINY_PLAN.replace('TOTAL = "1/4"\n"AGE*SEX" = "3/4"', 'GROUP = "1"') + omitting
    found = other_budgets(Plan.parse(text))
    assert {error.standard_error for step in found.steps for error in step.errors} == {None}
    assert {text for step in found.document["steps"] for text in step["errors"]} == {"none"}


@pytest.mark.parametrize(
    ("rho", "steps"),
    [
        ("1000", 15),  # above 10,000 a budget protects nobody: 12 and 16 times as much
        # TOTAL has rho/8 of each, and sigma² = 8/rho may not pass 2**48: a third is the least.
        ("1/10000000000000", 12),
    ],
)
def test_budgets_that_no_plan_may_have_are_left_out(rho, steps):
    found = other_budgets(Plan.parse(TINY_PLAN.replace('rho = "2"', f'rho = "{rho}"')))
    assert len(found.steps) == steps
    assert found.chosen.amount == str(Fraction(rho))


def test_pure_privacy_is_stepped_in_epsilon():
    plan = Plan.parse(TINY_PLAN.replace('rho = "2"', 'epsilon = "2"'))
    found = other_budgets(plan)
    assert found.currency == "epsilon"
    # At each of two levels, AGE*SEX has 3/8 of epsilon. An unknown attribute changes two of its cells,
    # and someone who knows everyone sees all four. Each loss is ±1/scale: noise of 0 or more, or below.
    scale = 2 / (3 / 4)
    above = 1 / (1 + math.exp(-1 / scale))  # P(noise ≥ 0)
    for prior, risk in zip(found.priors, found.chosen.risks, strict=True):
        after = 0.0
        for up in range(5):
            chance = math.comb(4, up) * above**up * (1 - above) ** (4 - up)
            after += chance / (1 + (1 - prior) / prior * math.exp(-(2 * up - 4) / scale))
        assert risk.marginal_risk == pytest.approx(after / prior, rel=1e-9)


def test_the_page_holds_all_steps_and_its_script_reads_them(hand, hand_page):
    page, found = Page(hand_page), other_budgets(hand.plan, geography=hand.geography)
    (data,) = page.parts["script", "application/json"]
    stated = json.loads(data)
    limit = hand.plan.intruder.limit
    assert [step["risks"] for step in stated["steps"]] == [
        [risk.times(limit=limit) for risk in step.risks] for step in found.steps
    ]
    assert [step["errors"] for step in stated["steps"]] == [
        [words.brief(error.standard_error) for error in step.errors] for step in found.steps
    ]
    assert stated["priors"] == [words.prior(prior) for prior in hand_plan.PRIORS]
    assert f'max="{len(found.steps) - 1}"' in hand_page
    assert f'value="{found.steps.index(found.chosen)}"' in hand_page
    assert '<p id="budget-status" class="unseen" role="status" aria-live="polite"></p>' in hand_page
    for level in ("region", "area"):
        assert f"standard error of a total, {level}" in page.words
    shown = [row.released.times(limit=limit) for row in decision_sheet(hand).risks]
    assert stated["steps"][found.steps.index(found.chosen)]["risks"] == shown, "as on page one"
