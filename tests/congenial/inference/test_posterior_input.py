"""What is refused, with messages that say what is wrong and what to do; priors made of releases."""

import subprocess
import sys
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest

from countveil import Seeded, congenial
from countveil.congenial import DirichletMultinomial, Wasserstein
from countveil.errors import InfeasibleError, InputError

MODEL = congenial.GammaPoisson(shape=1.5, rate=0.1)
MECHANISM = Wasserstein(loss="L1", epsilon="1", total=20, base="naive")
CASE = {"model": MODEL, "released": [14, 3, -4], "mechanism": MECHANISM}
CONGENIAL = Wasserstein(loss="L1", epsilon="1", total=20)
DEATHS = congenial.DeathRates(a=1.0, b=3.0, cases=MODEL)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"released": [1.5, 2, 3]}, "released: the type is float64; a release has whole numbers"),
        ({"released": [[1, 2], [3, 4]]}, r"released: the shape is \(2, 2\)"),
        ({"released": []}, "released: "),
        (
            {"public": {"totals": 3}},
            "unknown fact 'totals'; choose from total, subtotals, upper",
        ),
        ({"public": {"total": -3}}, "total is -3; it must be a whole number, 0 or more"),
        ({"public": {"total": 19}}, "sum to 20, and the facts do not say so"),
        ({"public": {"upper": [30, 30]}}, "got 2 upper bounds for 3 places"),
        ({"public": {"upper": [5, 5, 5]}}, "sum to less than their total 20; no table has both"),
        (
            {"public": {"total": 20, "subtotals": [((0, 1), 21)]}},
            "sum to 21 and the total is 20",
        ),
        ({"public": {"total": 20, "subtotals": [((0, 3), 2)]}}, "may be in only one subtotal"),
        (
            {"public": {"total": 20, "subtotals": [((0, 1), 2), ((1, 2), 2)]}},
            "in only one subtotal",
        ),
        (
            {"method": "metropolis"},
            'method: unknown method \'metropolis\'; choose "exact", "rejection"',
        ),
        (
            {"method": "augmented", "draws": 0},
            "draws: 0 is not allowed; give a whole number",
        ),
        ({"method": "augmented", "chains": 0}, "chains: 0 is not allowed"),
        ({"proposal": MODEL}, 'only method="importance" uses one'),
        ({"method": "importance", "proposal": DEATHS}, "of the same kind"),
        ({"model": DEATHS}, "DeathRates is for releases of cases and deaths"),
        (
            {"model": congenial.BetaBinomial(1.0, 1.0, [3, 4, 5])},
            "have 12 trials and a total of 20",
        ),
        (
            {"model": congenial.GammaPoisson([1.0, 2.0], 1.0)},
            "shape: got 2 numbers; the release has 3 places",
        ),
        (
            {"released": [19, 2, 0], "mechanism": CONGENIAL},
            "cannot release such a table",
        ),
        (
            {"released": [21, -1, 0], "mechanism": CONGENIAL},
            "cannot release such a table",
        ),
    ],
)
def test_refusals(change, message):
    with pytest.raises(InputError, match=message):
        congenial.posterior(**(CASE | change))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: congenial.GammaPoisson(shape=0.0, rate=0.1),
            "shape: 0.0 is not allowed; give numbers",
        ),
        (
            lambda: congenial.GammaPoisson(shape=1.0, rate="a"),
            "rate: 'a' is not allowed; give one number",
        ),
        (lambda: congenial.GammaPoisson(1.0, 1.0, exposure=[1.0, np.inf]), "exposure: "),
        (
            lambda: congenial.BetaBinomial(1.0, 1.0, trials=2.5),
            "trials: 2.5 is not allowed; give whole",
        ),
        (lambda: congenial.DirichletMultinomialShares([1.0, -1.0]), "alpha: "),
        (
            lambda: congenial.SmallAreaRates(exposure=1.0, mean=[1.0]),
            "mean: all places share it",
        ),
        (
            lambda: congenial.SmallAreaRates(exposure=1.0, mean=1.0, steps=0),
            "steps: 0 is not allowed",
        ),
        (lambda: congenial.DeathRates(a=0, b=1, cases=MODEL), "a: 0 is not allowed"),
    ],
)
def test_models_that_cannot_be(build, message):
    with pytest.raises(InputError, match=message):
        build()


def test_shares_need_a_total():
    mechanism = Wasserstein(loss="L1", epsilon="1", base="naive")
    with pytest.raises(InputError, match="shares need a public total"):
        congenial.posterior(
            model=congenial.DirichletMultinomialShares(1.0), released=[3, 4], mechanism=mechanism
        )


def test_deaths_need_their_model():
    mechanism = Wasserstein(loss="L1", epsilon="1", total=5, deaths=True)
    with pytest.raises(InputError, match="use DeathRates for cases and deaths"):
        congenial.posterior(model=MODEL, released=[[4, 1], [1, 1]], mechanism=mechanism)


def test_exact_sums_have_a_limit_and_say_what_to_use():
    mechanism = Wasserstein(loss="L1", epsilon="1", total=200)
    with pytest.raises(
        InputError, match='at most 20,000 are summed over .* use method="augmented"'
    ):
        congenial.posterior(model=MODEL, released=[50, 50, 50, 50], mechanism=mechanism)
    naive = Wasserstein(loss="L1", epsilon="1", total=200_000, base="naive")
    with pytest.raises(InputError, match='use method="augmented"'):
        congenial.posterior(model=MODEL, released=[200_000, 0, 0], mechanism=naive)


def test_no_table_that_the_model_allows():
    with pytest.raises(InfeasibleError, match="no table"):
        congenial.posterior(**(CASE | {"public": {"total": 20, "upper": [5, 5, 5]}}))


@pytest.mark.parametrize("confidence", [0, 1, -0.5])
def test_confidence(confidence):
    with pytest.raises(InputError, match="confidence: "):
        congenial.posterior(**CASE).interval(confidence)


@pytest.mark.parametrize("seed", [3, 4])
def test_a_prior_from_a_private_release_costs_nothing_more(seed):
    """Last month's release is public once it is out, so a base measure made of it is as good as any.

    Whatever was released, this month's loss between all neighbouring tables is at most epsilon.
    """
    last_month = Wasserstein(loss="L1", epsilon="1", total=30).sample([20, 7, 3], rng=Seeded(seed))
    prior = DirichletMultinomial(last_month, alpha="1/2", pseudo_count="1/2")
    mechanism = Wasserstein(loss="L1", epsilon="1", total=5, prior=prior)
    assert mechanism.rate == Fraction(1, 4)  # as without a prior
    tables = np.array([t for t in product(range(6), repeat=3) if sum(t) == 5])
    densities = {tuple(t): np.array([mechanism.log_density(y, t) for y in tables]) for t in tables}
    losses = [
        np.abs(first - second).max()
        for (x, first), (other, second) in combinations(densities.items(), 2)
        if np.abs(np.subtract(x, other)).sum() == 2  # one person counted elsewhere
    ]
    assert 0.3 < max(losses) <= 1 + 1e-9


def test_the_prior_counts():
    result = []
    for alpha in ([10.0, 4.0, 1.0], [1.0, 4.0, 10.0]):
        model = congenial.DirichletMultinomialShares(alpha=alpha)
        result.append(
            congenial.posterior(model=model, released=[12, 5, 3], mechanism=CONGENIAL).mean
        )
    assert result[0][0] > 2 * result[1][0]


def test_importing_congenial_does_not_load_what_is_optional():
    code = (
        "import sys, countveil.congenial; "
        "print([m for m in ('arviz', 'xarray', 'pandas', 'pyspark', 'altair') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
