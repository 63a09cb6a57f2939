"""A plan names its mechanism; one that was only registered serves from the price to the verdict."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from tests.conftest import TINY_PLAN
from tests.laws.documented_code import documented_mechanism

from countveil import pipeline
from countveil.assess.empirical_loss.planned_loss import loss_by_level
from countveil.assess.homogeneity.group_risk import homogeneity_by_size
from countveil.assess.intruder.ladder import risk_by_level
from countveil.assess.pricing import price
from countveil.base.randomness import Secure
from countveil.errors import InputError, PlanError
from countveil.noise.discrete_gaussian import DiscreteGaussian
from countveil.noise.discrete_laplace import DiscreteLaplace
from countveil.noise.mechanisms import MECHANISMS, calibrate, from_parameters
from countveil.plan.plans import Plan
from countveil.privacy.costs import ZCDP, PureDP, Sensitivity

Huber = documented_mechanism()
ONE = Sensitivity(Fraction(1), Fraction(1))


class HuberInRho(Huber):
    """The same law, priced in rho: epsilon²/2. Its spread is rounded up, so it costs a little less."""

    name = "huber-in-rho"
    label = "Huber, in rho"
    currency = "rho"

    def cost(self, sensitivity):
        return ZCDP(Huber.cost(self, sensitivity).rho)

    @classmethod
    def for_cost(cls, cost, sensitivity):
        return cls(math.isqrt(math.floor(8 * sensitivity.l1**2 / cost.amount)) + 1)


def with_budget(budget: str) -> str:
    return TINY_PLAN.replace('rho = "2"', budget)


@pytest.fixture(params=[(Huber, 'epsilon = "2"'), (HuberInRho, 'rho = "2"')], ids=["pure", "zcdp"])
def newcomer(request, monkeypatch):
    """Register a mechanism that countveil does not have; return it and the budget of a plan with it."""
    kind, budget = request.param
    monkeypatch.setitem(MECHANISMS, kind.name, kind)
    return kind, f'{budget}\nmechanism = "{kind.name}"'


@pytest.mark.usefixtures("few_simulations")
def test_a_registered_mechanism_serves_a_whole_release(newcomer, tiny, command):
    kind, budget = newcomer
    tiny.write_text(f'{with_budget(budget)}[postprocess]\nmethod = "top-down"\n')
    plan = Plan.load(tiny)
    assert {type(item.mechanism) for item in plan.allocations} == {kind}

    priced = price(plan)
    assert all(noise.cost(item.sensitivity) <= item.cost for item, noise in priced.noises)
    assert (priced.tight_epsilon is None) == (kind is Huber)
    if kind is HuberInRho:
        assert 0 < priced.tight_epsilon < plan.cost.epsilon("1e-10")
    document = command("price", tiny, "--json").document()
    queries = [query for level in document["levels"] for query in level["queries"]]
    assert {query["mechanism"]["name"] for query in queries} == {kind.name}

    out = tiny.parent / "out"
    release = pipeline.release(plan, to=out, rng=Secure())
    stated = json.loads((out / "manifest.json").read_text())
    assert stated["plan"]["budget"]["mechanism"] == kind.name
    assert {item["mechanism"]["name"] for item in stated["measurements"]} == {kind.name}
    assert release.measurements.mechanisms["area", "TOTAL"] == plan.at("area")[0].mechanism
    assert command("verify", out).status == 0

    risks = risk_by_level(plan)
    assert all(risk.marginal_risk > 1 for risk in risks)
    assert all(item.loss > 0 for item in loss_by_level(plan))
    assert all(0 < item.disclosed < 1 for item in homogeneity_by_size(plan))
    assert command("report", out).status == 0


@pytest.mark.parametrize(
    ("budget", "kind"),
    [
        ('rho = "2"', DiscreteGaussian),
        ('epsilon = "2"\ndelta = "1e-6"', DiscreteGaussian),
        ('epsilon = "2"', DiscreteLaplace),
    ],
)
def test_a_plan_without_the_key_has_the_mechanism_it_always_had(budget, kind):
    default = Plan.parse(with_budget(budget))
    named = Plan.parse(with_budget(f'{budget}\nmechanism = "{kind.name}"'))
    assert {type(item.mechanism) for item in default.allocations} == {kind}
    noises = [[item.mechanism for item in plan.allocations] for plan in (default, named)]
    assert noises[0] == noises[1]
    assert "mechanism" not in default.public_document["budget"]


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (
            'rho = "2"\nmechanism = "gaussian"',
            "plan: budget.mechanism: unknown mechanism 'gaussian'; choose from discrete-gaussian, "
            "discrete-laplace",
        ),
        (
            'rho = "2"\nmechanism = "discrete-laplace"',
            "plan: budget.mechanism: discrete-laplace needs a budget in epsilon without delta, and "
            "this one is in rho; choose discrete-gaussian, or change the budget",
        ),
        (
            'epsilon = "2"\nmechanism = "discrete-gaussian"',
            r"plan: budget.mechanism: discrete-gaussian needs a budget in rho \(or epsilon with "
            r"delta\), and this one is in epsilon; choose discrete-laplace, or change the budget",
        ),
        ('rho = "2"\nmechanism = 3', "plan: budget.mechanism: 3 is not allowed"),
    ],
)
def test_a_mechanism_that_does_not_fit_is_refused_when_the_plan_is_read(budget, message):
    with pytest.raises(PlanError, match=f"^{message}"):
        Plan.parse(with_budget(budget))


def test_a_mechanism_cannot_spend_more_than_it_is_allotted():
    class Spendthrift(DiscreteGaussian):
        @classmethod
        def for_cost(cls, cost, sensitivity):
            return cls.from_rho(cost.amount * Fraction(1001, 1000))

    with pytest.raises(InputError, match="is priced at rho = 1001/1000, more than the rho = 1 "):
        calibrate(Spendthrift, ZCDP(1), ONE)
    with pytest.raises(InputError, match="is priced at epsilon = 1, more than the rho = 1"):
        calibrate(DiscreteLaplace, ZCDP(1), ONE)
    assert calibrate(DiscreteLaplace, PureDP(1), ONE) == DiscreteLaplace("1")


def test_a_manifest_with_an_unknown_mechanism_is_refused():
    with pytest.raises(
        InputError, match="unknown mechanism 'huber'; choose from discrete-gaussian"
    ):
        from_parameters("huber", {"spread": "1"})


@pytest.mark.parametrize("amount", ["1e-400", "1e-30"])
@pytest.mark.parametrize("currency", ["rho", "epsilon"])
def test_noise_that_drowns_any_count_is_refused(currency, amount):
    text = with_budget(f'{currency} = "{amount}"')
    with pytest.raises(PlanError, match="would have a standard deviation above 16,777,216"):
        Plan.parse(text)


def test_laws_beyond_any_float_have_infinite_variance():
    assert DiscreteGaussian("1e400").variance == math.inf
    assert DiscreteLaplace("1e200").variance == math.inf
    assert np.isclose(DiscreteGaussian("1e200").variance, 1e200)
    assert np.isclose(DiscreteLaplace("1e120").variance, 2e240)
