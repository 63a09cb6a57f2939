"""Settings: what they leave alone, what they change exactly, and what they refuse in plain words."""

from dataclasses import asdict, replace
from fractions import Fraction
from importlib import resources

import pytest
from tests.conftest import TINY_PLAN

from countveil.errors import InputError
from countveil.explorer.plan_folder import PlanFolder
from countveil.explorer.session import Session
from countveil.explorer.settings import Settings, changed
from countveil.noise.discrete_laplace import DiscreteLaplace
from countveil.plan.plans import Plan
from countveil.privacy.costs import ZCDP, PureDP

STARTER = resources.files("countveil.demo").joinpath("starter.toml").read_text()
PRESET = '[release]\ntitle = "T"\npreset = "pl94-2020"\n'
PLANS = {
    "tiny": TINY_PLAN,
    "starter": STARTER,
    "preset": PRESET,
    "pure": TINY_PLAN.replace('rho = "2"', 'epsilon = "2"'),
    "odd priors": TINY_PLAN + "[intruder]\npriors = [0.12345678901234567, 1e-7]\n",
    "calibrated": TINY_PLAN.replace('rho = "2"', 'epsilon = "2"\ndelta = "1e-6"'),
}


@pytest.fixture
def plan():
    return Plan.parse(TINY_PLAN, name="plan.toml")


@pytest.mark.parametrize("text", PLANS.values(), ids=PLANS)
def test_a_plan_s_own_settings_change_nothing(text):
    plan = Plan.parse(text)
    own = Settings.of(plan)
    assert changed(plan, own).document == plan.document
    sent = asdict(own)
    assert Settings.read(sent) == own
    assert sum(own.shares.values()) == 1


def test_a_budget_is_taken_exactly(plan):
    other = changed(plan, replace(Settings.of(plan), amount="104/41"))
    assert other.cost == ZCDP("104/41")
    assert other.neighbors == plan.neighbors
    assert changed(plan, replace(Settings.of(plan), amount="2.0")).document == plan.document


def test_weights_become_exact_shares_that_sum_to_one(plan):
    other = changed(plan, replace(Settings.of(plan), weights=(("region", "1/3"), ("area", "0.5"))))
    assert other.document["budget"]["levels"] == {"region": "2/5", "area": "3/5"}
    assert sum(item.cost.rho for item in other.at("region")) == Fraction(4, 5)
    assert other.cost == plan.cost


def test_laplace_noise_is_a_pure_budget(plan):
    own = replace(Settings.of(plan), mechanism="discrete Laplace", amount="1/2")
    other = changed(plan, own)
    assert other.cost == PureDP("1/2")
    assert all(isinstance(item.mechanism, DiscreteLaplace) for item in other.allocations)
    calibrated = Plan.parse(PLANS["calibrated"])
    assert changed(calibrated, own).cost == PureDP("1/2")
    back = replace(Settings.of(other), mechanism="discrete Gaussian", amount="2")
    assert changed(other, back).cost == ZCDP("2")


def test_the_intruder_is_added_to_those_of_the_plan(plan):
    own = Settings.of(plan)
    other = changed(plan, replace(own, prior="1/50", level="region"))
    assert other.intruder.priors == plan.intruder.priors  # 0.02 is among them
    assert other.judged_level == "region"
    other = changed(plan, replace(own, prior="0.03"))
    assert other.intruder.priors == [*plan.intruder.priors, 0.03]
    assert other.judged_level == "area"


@pytest.mark.parametrize(
    ("text", "changes", "message"),
    [
        (STARTER, {"neighbors": "add-remove"}, 'choose neighbors = "change-one", or remove'),
        (TINY_PLAN, {"amount": "1,5"}, r"plan.toml: budget.rho: '1,5' is not a number; write"),
        (TINY_PLAN, {"amount": ""}, "budget.rho: '' is not a number"),
        (TINY_PLAN, {"amount": "-1"}, "budget: -1 is not allowed; it must be above 0"),
        (TINY_PLAN, {"amount": "20000"}, "above 10,000, which protects no one"),
        (TINY_PLAN, {"amount": "1e-300"}, "standard deviation above"),
        (TINY_PLAN, {"prior": "1"}, "prior: 1 is not allowed; enter a number between 0 and 1"),
        (TINY_PLAN, {"prior": "half"}, "prior: 'half' is not a number"),
        (TINY_PLAN, {"level": "street"}, "unknown level 'street'; choose from region, area"),
        (TINY_PLAN, {"weights": (("region", "0"), ("area", "0"))}, "weights: all are 0"),
        (
            TINY_PLAN,
            {"weights": (("region", "-1"), ("area", "2"))},
            "weight of region: -1 is negative",
        ),
        (TINY_PLAN, {"weights": (("region", "1"),)}, "enter one for each of region, area"),
        (
            TINY_PLAN,
            {"weights": (("region", "1"), ("area", "0"))},
            "intruder.knows: area is not measured; choose a level with a budget",
        ),
    ],
)
def test_what_is_not_a_plan_is_refused_in_the_plan_s_own_words(text, changes, message):
    plan = Plan.parse(text, name="plan.toml")
    settings = replace(Settings.of(plan), **changes)
    with pytest.raises(InputError, match=message):
        changed(plan, settings)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"colour": "blue"}, "settings: colour"),
        ({"mechanism": "none"}, "settings: mechanism"),
        ({"amount": 1.5}, "settings: amount"),
        ({"siblings": 3}, "settings: siblings: unexpected keyword argument"),
        ({"attribute": "AGE"}, "attribute: set it for an unknown attribute, and only then"),
        (
            {"attack": "unknown attribute"},
            "attribute: set it for an unknown attribute, and only then",
        ),
    ],
)
def test_what_no_page_sends_is_refused(plan, changes, message):
    with pytest.raises(InputError, match=message):
        Settings.read({**asdict(Settings.of(plan)), **changes})
    with pytest.raises(InputError, match="settings"):
        Settings.read(None)


def test_one_table_has_nothing_to_move(tmp_path):
    text = (
        '[release]\ntitle = "T"\nunit = "person"\nneighbors = "change-one"\n'
        '[geography]\nlevels = ["state", "county"]\n[attributes]\nKIND = ["x", "y"]\n'
        '[budget]\nepsilon = "1"\n[[invariants]]\nlevel = "state"\nquery = "TOTAL"\n'
        'reason = "known"\n[postprocess]\nmethod = "congenial"\n'
    )
    with pytest.raises(InputError, match="the explorer needs a plan of counts"):
        Session(PlanFolder(tmp_path)).open_text("plan.toml", text)
