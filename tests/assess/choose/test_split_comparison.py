"""What a split wastes: errors and risks of both splits, against plans with those budgets."""

import math
from fractions import Fraction

import pytest
from tests.assess.choose.test_best_split import largest_risk, plan_in
from tests.conftest import run
from tests.estimate import released_trees

from countveil import Plan
from countveil.assess.choose.split_comparison import compare_splits
from countveil.estimate.plan_error import expected_error

TEXT = released_trees.plan_text(
    {"AGE": ["a", "b", "c", "d"], "SEX": ["f", "m"]},
    {"l0": {"AGE": 1}, "l1": {"TOTAL": 1, "AGE*SEX": 2}, "l2": {"TOTAL": 3, "AGE*SEX": 1}},
)
TARGETS = 'targets = ["l2 TOTAL within 9", "l2 AGE*SEX"]'


@pytest.fixture
def plan(tmp_path):
    assert "[budget]\n" in TEXT
    return plan_in(tmp_path, TEXT.replace("[budget]\n", f"[budget]\n{TARGETS}\n"))


def error_of(plan, units):
    """Return the root of the mean squared error in the units of both targets."""
    forecast = {
        (item.level, item.query): item for item in expected_error(plan, ("TOTAL", "AGE*SEX"))
    }
    ratios = [forecast[key].overall_standard_error / unit for key, unit in units.items()]
    return math.sqrt(sum(ratio**2 for ratio in ratios))


def test_every_point_is_a_plan_with_its_error_and_its_risk(plan):
    comparison = compare_splits(plan)
    (margin, other) = plan.targets
    forecast = {
        (item.level, item.query): item for item in expected_error(plan, ("TOTAL", "AGE*SEX"))
    }
    units = {
        ("l2", "TOTAL"): margin.standard_error,
        ("l2", "AGE*SEX"): forecast["l2", "AGE*SEX"].overall_standard_error,
    }
    assert other.margin is None
    assert comparison.own.error == pytest.approx(error_of(plan, units), rel=1e-9)
    assert comparison.own.risk.marginal_risk == pytest.approx(largest_risk(plan), rel=1e-9)
    for split, points in ((plan, comparison.now), (comparison.best.plan, comparison.then)):
        assert [point.rho for point in points] == sorted(point.rho for point in points)
        for point in points:
            at = split.with_budget(Fraction(point.rho))
            assert point.error == pytest.approx(error_of(at, units), rel=1e-9)
            assert point.risk.marginal_risk == pytest.approx(largest_risk(at), rel=1e-9)


def test_the_waste_is_what_the_best_split_does_without(plan):
    comparison = compare_splits(plan)
    assert comparison.same_error.error == pytest.approx(comparison.own.error, rel=1e-4)
    assert comparison.same_error.rho < comparison.own.rho
    assert comparison.wasted == pytest.approx(1 - comparison.same_error.rho / comparison.own.rho)
    assert comparison.chosen.error < comparison.own.error
    again = compare_splits(comparison.best.plan)
    assert again.wasted < 0.06  # what rounded shares and today's errors as units leave


def test_a_plan_that_names_no_tables_has_no_such_section(plan, tmp_path):
    shown = run("assess", "split", tmp_path / "plan.toml")
    assert shown.status == 0, shown.err
    assert "today's split wastes" in " ".join(shown.out.split())
    (tmp_path / "plan.toml").write_text(TEXT)
    refused = run("assess", "split", tmp_path / "plan.toml")
    assert refused.status == 2
    assert "lens split does not apply" in refused.err


def test_a_limit_that_no_split_keeps_is_said(tmp_path):
    """Exactly published counts of l1 give the answer to who knows everyone else there."""
    text = TEXT.replace("[budget]\n", f"[budget]\n{TARGETS}\n")
    text += '[intruder]\nknows = "l1"\nlimit = 1.2\n'
    text += '[[invariants]]\nlevel = "l1"\nquery = "TOTAL"\nreason = "known"\n'
    plan = plan_in(tmp_path, text)
    assert isinstance(plan, Plan)
    shown = run("assess", "split", tmp_path / "plan.toml")
    assert shown.status == 0
    assert "No best split was computed" in shown.out
