"""Decisions and risks of two levels, summed and simulated, against a plain sum over all releases."""

import numpy as np
import pytest
from tests.assess.intruder.several_levels.test_hierarchy import convolved

from countveil import DiscreteGaussian, DiscreteLaplace, Seeded
from countveil.assess import Exactly, Intruder, Level, Losses
from countveil.assess.intruder.decision import sigmoid
from countveil.assess.intruder.several_levels import hierarchy, two_levels

RULES = {"split": 0.5, "yes": 1.0, "no": 0.0}
LOSSES = [Losses(), Losses(2, 1), Losses(1, 5)]


def released(levels, who, counts):
    """Every (x1*, x2*, y1*) near the truth: the log of the odds it leads to, and its probability."""
    low, high, siblings = levels[0].noise, levels[1].noise, levels[0].siblings
    others = counts[1] - counts[0]
    x1, x2, y1 = (count + np.arange(-14, 15) for count in (*counts, others))
    z = np.arange(60)
    log_evidence = []
    for count in (who.known + who.rows, who.known):
        fits = np.exp(high.log_pmf(x2[:, None] - count - z))
        above = np.log(fits @ np.exp(convolved(low, siblings, y1 - z[:, None])))
        log_evidence.append(low.log_pmf(x1 - count)[:, None, None] + above)
    weights = np.exp(low.log_pmf(x1 - counts[0]))[:, None, None]
    weights = weights * np.exp(high.log_pmf(x2 - counts[1]))[:, None]
    weights = weights * np.exp(convolved(low, siblings, y1 - others))
    return who.log_odds + log_evidence[0] - log_evidence[1], weights


KINDS = {
    # noise, prior, known: at prior 1/2 and with nobody else there Laplace noise often ties.
    "gaussian": (DiscreteGaussian("3/4"), 0.4, 1),
    "laplace": (DiscreteLaplace("1/2"), 0.5, 0),
}


def case(kind, rows, *, present=True):
    noise, prior, known = KINDS[kind]
    there = rows if present else 0
    who = Intruder(prior=prior, known=known, rows=rows)
    return [Level(noise, 2), Level(noise)], who, [known + there, 3 * known + there]


def decisions(kind, rows, present):
    """Every way to decide, and how often it is right."""
    levels, who, counts = case(kind, rows, present=present)
    log_odds, weights = released(levels, who, counts)
    assert weights.sum() == pytest.approx(1, abs=1e-9)
    for losses in LOSSES:
        lead = log_odds - losses.bias
        tied = np.abs(lead) < 1e-12
        for ties, share in RULES.items():
            yes = (weights * np.where(tied, share, lead > 0)).sum()
            how = {"truth": counts, "intruder": who, "ties": ties, "losses": losses}
            yield levels, how, yes if present else 1 - yes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("present", [True, False])
def test_decisions_equal_a_sum_over_releases(kind, rows, present):
    for levels, how, right in decisions(kind, rows, present):
        assert hierarchy.correct_decision(levels, **how).value == pytest.approx(right, abs=1e-8)


@pytest.mark.parametrize(
    "kind",
    [
        "gaussian",
        "laplace",
    ],
)
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("present", [True, False])
def test_simulated_decisions_agree(kind, rows, present):
    for levels, how, right in decisions(kind, rows, present):
        drawn = hierarchy.correct_decision(levels, **how, draws=4000, rng=Seeded(5))
        assert abs(drawn.value - right) < 4 * drawn.standard_error + 1e-9
        assert drawn.standard_error < 0.025


def test_simulated_ties_follow_the_rule():
    levels = [Level(DiscreteGaussian(2), 3, Exactly(1)), Level(DiscreteGaussian(2))]
    how = {"truth": [1, 1], "intruder": Intruder(prior=0.5)}
    exact = {rule: hierarchy.correct_decision(levels, **how, ties=rule).value for rule in RULES}
    assert exact["yes"] - exact["no"] > 0.05
    for rule, value in exact.items():
        drawn = hierarchy.correct_decision(levels, **how, ties=rule, draws=4000, rng=Seeded(7))
        assert abs(drawn.value - value) < 4 * drawn.standard_error < 0.03


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 2])
def test_risks_equal_a_sum_over_releases(kind, rows):
    levels, who, counts = case(kind, rows)
    given = {"truth": counts, "intruder": who}
    log_odds, weights = released(levels, who, counts)
    after = (weights * sigmoid(log_odds)).sum()
    risk = hierarchy.marginal_risk(levels, **given)
    assert risk.posterior == pytest.approx(after, abs=1e-8)
    assert risk.value == pytest.approx(after / who.prior, abs=1e-8)
    drawn = hierarchy.marginal_risk(levels, **given, draws=4000, rng=Seeded(6))
    # Only what is above is drawn: the error is that of an average over the lowest count.
    above = weights.sum(axis=0)
    each = (weights * sigmoid(log_odds)).sum(axis=0) / above
    error = np.sqrt((above * (each - after) ** 2).sum() / 4000) / who.prior
    assert drawn.standard_error == pytest.approx(error, rel=0.1)
    assert abs(drawn.value - risk.value) < 4 * error


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("present", [True, False])
def test_what_the_upper_level_mends_and_spoils(kind, rows, present):
    noise = KINDS[kind][0]
    levels, who = [Level(noise, 2), Level(noise)], Intruder(prior=0.4, known=1, rows=rows)
    counts = [1 + present * rows, 3 + present * rows]
    log_odds, weights = released(levels, who, counts)
    seen = counts[0] + np.arange(-14, 15) - 1 - rows
    alone = (who.log_odds + noise.loss_at(seen, rows) > 0)[:, None, None] == present
    both = (log_odds > 0) == present
    found = two_levels.decision_changes(*levels, counts, who)
    expected = weights[both & ~alone].sum(), weights[~both & alone].sum()
    assert found == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("ties", RULES)
def test_ties_beside_a_known_parent(rows, ties):
    """The odds come from the lowest count and the siblings' sum alone."""
    noise, who = DiscreteGaussian(2), Intruder(prior=0.5, rows=rows)
    levels = [Level(noise, 3, Exactly(rows)), Level(noise)]
    x, y = np.arange(-20, 21)[:, None], np.arange(-40, 41)
    log_there = noise.log_pmf(x - rows) + convolved(noise, 3, y)
    lead = log_there - noise.log_pmf(x) - convolved(noise, 3, y - rows)
    tied = np.abs(lead) < 1e-9
    assert np.exp(log_there)[tied].sum() > 0.01
    expected = (np.exp(log_there) * np.where(tied, RULES[ties], lead > 0)).sum()
    value = hierarchy.correct_decision(levels, truth=[rows] * 2, intruder=who, ties=ties).value
    assert value == pytest.approx(expected, abs=1e-8)


def test_laplace_noise_does_tie():
    """Or the rule for ties would not have been tested."""
    log_odds, weights = released(*case("laplace", 1))
    assert weights[np.abs(log_odds) < 1e-12].sum() > 0.1
