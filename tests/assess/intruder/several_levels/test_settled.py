"""Intruders whom public facts or priors leave certain, and the others: against plain enumeration."""

import itertools
import math

import numpy as np
import pytest
from tests.assess.intruder.several_levels.test_hierarchy import convolved

from countveil import DiscreteGaussian, DiscreteLaplace, Gaussian, Intruder, Laplace, Seeded, assess
from countveil.assess import Exactly, Level, Losses, Pmf, UpTo
from countveil.assess.intruder.decision import sign_of_sum
from countveil.assess.intruder.several_levels import hierarchy, two_levels
from countveil.base.bounded_averages import ROUNDING, as_probability, expectation
from countveil.errors import InputError

NOISES = [DiscreteGaussian(5), DiscreteGaussian("1/4"), DiscreteLaplace(2), DiscreteLaplace("1/2")]
RULES = {"split": 0.5, "yes": 1.0, "no": 0.0}
BOUNDS = [(0, None), (1, None), (2, None), (3, None), (0, 0), (0, 1), (0, 2), (1, 1), (1, 2)]
OTHERS = [(1.0,), (0.5, 0.5), (0.25, 0.5, 0.25)]


def intruders(prior, known, rows):
    """Every combination of bounds and of doubt about others that leaves some count possible."""
    for others, (least, most) in itertools.product(OTHERS, BOUNDS):
        bounds = {"at_least": least, "at_most": most}
        try:
            yield Intruder(prior=prior, known=known, rows=rows, others=others, **bounds)
        except InputError:
            continue


def enumerated(noise, who):
    """Log-odds of presence at each released count, and the law of that count under each hypothesis."""
    seen = np.arange(-120, 130)
    log_laws = []
    for there in (True, False):
        log_law = np.full(len(seen), -np.inf)
        for more, weight in enumerate(who.others):
            count = who.known + more + (who.rows if there else 0)
            if count >= who.at_least and (who.at_most is None or count <= who.at_most):
                log_law = np.logaddexp(log_law, math.log(weight) + noise.log_pmf(seen - count))
        log_laws.append(log_law)
    laws = [np.exp(item) / max(np.exp(item).sum(), 1e-300) for item in log_laws]
    return math.log(who.prior / (1 - who.prior)) + log_laws[0] - log_laws[1], laws


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("prior", [0.02, 0.2, 0.5, 0.9])
@pytest.mark.parametrize(("known", "rows"), [(0, 1), (0, 2), (1, 1)])
def test_one_level_equals_enumeration(noise, prior, known, rows):
    settled = 0
    for who in intruders(prior, known, rows):
        log_odds, laws = enumerated(noise, who)
        settled += bool(np.isinf(log_odds).all())
        for present, law in zip((True, False), laws, strict=True):
            for losses, (ties, share) in itertools.product((Losses(), Losses(3, 1)), RULES.items()):
                how = {"intruder": who, "ties": ties, "losses": losses, "present": present}
                if not law.any():
                    with pytest.raises(InputError, match=f"present: {present} is not allowed"):
                        assess.correct_decision(noise, **how)
                    continue
                lead = log_odds - losses.bias
                yes = law @ np.where(np.abs(lead) < 1e-11, share, lead > 0)
                value = assess.correct_decision(noise, **how).value
                assert value == pytest.approx(yes if present else 1 - yes, abs=1e-9)
                assert 0 <= value <= 1
        after = 1 / (1 + np.exp(-np.clip(log_odds, -700, 700)))
        risk = assess.marginal_risk(noise, intruder=who)
        assert risk.posterior == pytest.approx(laws[0] @ after, abs=1e-9)
        assert 0 <= risk.posterior <= 1


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("prior", [0.02, 0.2, 0.5])
def test_exceedances_equal_enumeration(noise, prior):
    for who in intruders(prior, 0, 1):
        seen = np.arange(-120, 130)
        ratio = assess.disclosure_risk(noise, observed=seen, intruder=who).value
        _, laws = enumerated(noise, who)
        for present, above in itertools.product((True, False), (0.5, 0.99, 1.0, 1.2, 3.0)):
            law = laws[0] if present else laws[1]
            if not law.any():
                with pytest.raises(InputError, match=f"present: {present} is not allowed"):
                    assess.exceedance(noise, above=above, intruder=who, present=present)
                continue
            value = assess.exceedance(noise, above=above, intruder=who, present=present).value
            passes = ratio > above * (1 + 1e-12)
            assert value == pytest.approx(law @ passes, abs=1e-9)
            assert 0 <= value <= 1


@pytest.mark.parametrize("noise", [*NOISES, Laplace(1.5), Gaussian(2.0)])
def test_a_public_fact_settles_who_is_there(noise):
    there, away = Intruder(prior=0.2, at_least=1), Intruder(prior=0.2, at_most=0)
    assert assess.correct_decision(noise, intruder=there).value == 1
    assert assess.exceedance(noise, above=0.5, intruder=there).value == 1
    assert assess.exceedance(noise, above=1, intruder=there).value == 0
    assert assess.correct_decision(noise, intruder=away, present=False).value == 1
    with pytest.raises(InputError, match="the target cannot be there; use present=False"):
        assess.correct_decision(noise, intruder=away)


def test_what_correct_decision_refuses_exceedance_refuses():
    for who, present in (
        (Intruder(prior=0.2, at_most=0), True),
        (Intruder(prior=0.2, at_least=1), False),
        (Intruder(prior=0.2, others=(0.5, 0.5), at_most=0), True),
    ):
        for above in (0.5, 1.0, 5.0, 1e9):
            with pytest.raises(InputError, match=f"present: {present} is not allowed"):
                assess.exceedance(NOISES[0], above=above, intruder=who, present=present)
        assert assess.exceedance(NOISES[0], above=0.5, intruder=who, present=not present).value == 1


@pytest.mark.parametrize("scales", [["1/20", "1/2"], ["1/20", "1/20", "1"]])
def test_public_bounds_settle_a_decision_over_levels_exactly(scales):
    levels = [assess.Level(DiscreteLaplace(scale)) for scale in scales]
    for who, truth in (
        (Intruder(prior=0.2, at_least=1), 1),
        (Intruder(prior=0.2, at_most=0), 0),
        (Intruder(prior=0.2, others=(0.25, 0.25, 0.5), at_most=0), 0),
    ):
        right = assess.hierarchy.correct_decision(
            levels, truth=[truth] * len(levels), intruder=who, present=truth == 1
        )
        assert right.value == 1


def test_noise_next_to_none_settles_who_is_there():
    """Its loss is beyond the largest double, which is no tie."""
    noise, who = DiscreteGaussian("1e-300"), Intruder(prior=0.2)
    for present in (True, False):
        assert assess.correct_decision(noise, intruder=who, present=present).value == 1
    assert assess.exceedance(noise, above=2, intruder=who).value == 1
    assert assess.exceedance(noise, above=5e-324, intruder=who).value == 1


SPANS = {"gaussian": DiscreteGaussian("3/4"), "laplace": DiscreteLaplace("1/2")}
PRIORS = {
    "away, by the parent": (Exactly(1), 2),
    "away, by its largest count": (UpTo(1), 2),
    "away, by its probabilities": (Pmf([0.5, 0.5], of="parent"), 2),
    "away, alone": (Exactly(1), 0),
    "there, alone": (Exactly(2), 0),
    "open, by the parent": (Exactly(3), 2),
    "open, by its largest count": (UpTo(4), 2),
}


def summed(noise, prior, siblings, who, truth):
    """Log-odds of presence at every (x1*, x2*, y1*) near the truth, and the probability of each."""
    others = truth[1] - truth[0]
    x1, x2, y1 = (count + np.arange(-14, 15) for count in (*truth, others))
    z = np.arange(40) if siblings else np.zeros(1)
    moves = np.exp(convolved(noise, siblings, y1 - z[:, None])) if siblings else np.ones((1, 29))
    log_evidence = []
    for count in (who.known + who.rows, who.known):
        weights = np.exp(prior.log_weight(count + z, np.full(len(z), float(count))))
        fits = np.exp(noise.log_pmf(x2[:, None] - count - z)) * weights
        with np.errstate(divide="ignore"):
            above = np.log(fits @ moves)
        log_evidence.append(noise.log_pmf(x1 - count)[:, None, None] + above)
    weights = np.exp(noise.log_pmf(x1 - truth[0]))[:, None, None]
    weights = weights * np.exp(noise.log_pmf(x2 - truth[1]))[:, None]
    of_sums = np.exp(convolved(noise, siblings, y1 - others)) if siblings else y1 == others
    return who.log_odds + log_evidence[0] - log_evidence[1], weights * of_sums


@pytest.mark.parametrize("noise", SPANS.values(), ids=SPANS)
@pytest.mark.parametrize("case", PRIORS)
@pytest.mark.parametrize("present", [True, False])
def test_two_levels_equal_enumeration(noise, case, present):
    prior, siblings = PRIORS[case]
    levels, who = [Level(noise, siblings, prior), Level(noise)], Intruder(prior=0.3, known=1)
    truth = [1 + present, 1 + present + (2 if siblings else 0)]
    log_odds, weights = summed(noise, prior, siblings, who, truth)
    assert np.isinf(log_odds).all() == (not case.startswith("open"))
    for ties, share in RULES.items():
        yes = (weights * np.where(np.abs(log_odds) < 1e-11, share, log_odds > 0)).sum()
        right = yes if present else 1 - yes
        how = {"truth": truth, "intruder": who, "ties": ties}
        value = hierarchy.correct_decision(levels, **how).value
        assert value == pytest.approx(right, abs=1e-8)
        drawn = hierarchy.correct_decision(levels, **how, draws=200, rng=Seeded(3))
        assert abs(drawn.value - right) <= 4 * drawn.standard_error + 1e-8
        assert 0 <= value <= 1
        assert 0 <= drawn.value <= 1
    if present:
        after = (weights / (1 + np.exp(-np.clip(log_odds, -700, 700)))).sum()
        risk = hierarchy.marginal_risk(levels, truth=truth, intruder=who)
        assert risk.posterior == pytest.approx(after, abs=1e-8)
        drawn = hierarchy.marginal_risk(levels, truth=truth, intruder=who, draws=200, rng=Seeded(3))
        assert abs(drawn.posterior - after) <= 4 * drawn.standard_error * who.prior + 1e-8


@pytest.mark.parametrize("noise", SPANS.values(), ids=SPANS)
def test_settled_at_three_levels(noise):
    """The parent's count is known to be that of everyone else, so the target is away."""
    levels = [Level(noise, 2, Exactly(1)), Level(noise, 1), Level(noise)]
    who = Intruder(prior=0.3, known=1)
    for truth, right in (([1, 1, 2], 1.0), ([2, 3, 4], 0.0)):
        how = {"truth": truth, "intruder": who, "draws": 20, "rng": Seeded(4)}
        assert hierarchy.correct_decision(levels, **how).value == right
    assert hierarchy.marginal_risk(levels, **how).posterior == 0


IMPOSSIBLE = [
    (Exactly(3), 2),
    (Exactly(3), 0),
    (UpTo(3), 2),
    (Pmf([1, 0, 0, 0, 0, 0, 0, 0], of="parent"), 2),
]


@pytest.mark.parametrize("noise", SPANS.values(), ids=SPANS)
@pytest.mark.parametrize(("prior", "siblings"), IMPOSSIBLE)
def test_a_prior_that_leaves_no_count_possible_is_refused(noise, prior, siblings):
    levels, who = [Level(noise, siblings, prior), Level(noise)], Intruder(prior=0.2, known=5)
    seen = {"observed": [5, 5], "sibling_sums": [0], "intruder": who}
    for ask in (
        lambda: hierarchy.posterior(levels, **seen),
        lambda: hierarchy.level_posterior(levels, at=1, **seen),
        lambda: hierarchy.correct_decision(levels, truth=[6, 6], intruder=who),
        lambda: hierarchy.marginal_risk(levels, truth=[6, 6], intruder=who),
        lambda: hierarchy.correct_decision(
            levels, truth=[6, 6], intruder=who, draws=5, rng=Seeded(1)
        ),
        lambda: two_levels.decision_changes(*levels, [6, 6], who),
        lambda: two_levels.decision_threshold(*levels, parent=5, sibling_sum=0, intruder=who),
    ):
        with pytest.raises(InputError, match="no count (is )?possible"):
            ask()


@pytest.mark.parametrize("noise", [DiscreteGaussian("1/4"), DiscreteGaussian(1), *NOISES[2:]])
def test_no_probability_leaves_its_range(noise):
    """Sums over many releases used to end at 1.0000000000000002, or just below 0."""
    for prior, known, siblings, present in itertools.product(
        (1e-9, 0.01, 0.5, 0.9, 1 - 1e-9), (0, 1, 3), (0, 1, 2), (0, 1)
    ):
        who, count = Intruder(prior=prior, known=known), known + present
        truth = [count, count + (2 if siblings else 0)]
        levels = [Level(noise, siblings), Level(noise)]
        assert 0 <= hierarchy.correct_decision(levels, truth=truth, intruder=who).value <= 1
        assert 0 <= assess.correct_decision(noise, intruder=who, present=bool(present)).value <= 1
        if present:
            assert hierarchy.marginal_risk(levels, truth=truth, intruder=who).posterior <= 1
            assert assess.marginal_risk(noise, intruder=who).posterior <= 1


def test_signs_of_sums():
    first = np.array([1.0, -1.0, 0.3, 0.3, np.inf, -np.inf, np.inf])
    second = np.array([1.0, 0.5, -0.3, -0.3 - 1e-16, -5.0, 5.0, np.inf])
    assert sign_of_sum(first, second, rounding=1e-14).tolist() == [1, -1, 0, 0, 1, -1, 1]
    with np.errstate(invalid="ignore"), pytest.raises(InputError, match="leaves no count possible"):
        sign_of_sum(np.inf, -np.inf, rounding=1e-14)


def test_an_average_stays_within_its_values():
    draws = np.random.default_rng(1)
    for size in (3, 100, 4099):
        for weights in draws.random((20, size)):
            assert expectation(weights, np.ones(size)) == 1
            assert expectation(weights, np.zeros(size)) == 0
            values = draws.random(size)
            assert values.min() <= expectation(weights, values) <= values.max()
    assert expectation(np.ones((2, 3)).T, np.arange(2.0)) == 0.5


def test_only_rounding_is_moved_into_range():
    assert as_probability(1 + ROUNDING / 2) == 1
    assert as_probability(np.array([-ROUNDING / 2, 0.5])).tolist() == [0, 0.5]
    for wrong in (1 + 1e-8, -1e-8, math.nan, np.array([0.5, 1.1])):
        with pytest.raises(ArithmeticError, match="more than rounding; please report this"):
            as_probability(wrong)


def test_several_tables_leave_no_average_above_one():
    noise = DiscreteLaplace("1/2")
    who = Intruder(prior=1 - 1e-12)
    for many in (1, 2, 7):
        assert assess.marginal_risk([noise] * many, intruder=who).posterior <= 1


def test_what_is_public_settles_it_before_anything_is_released():
    nothing = assess.marginal_risk([], intruder=Intruder(prior=0.2, known=0, at_least=1))
    assert (nothing.value, nothing.posterior) == (1.0, 1.0)
