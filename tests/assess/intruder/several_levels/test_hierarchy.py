"""Levels above: enumeration, a right Gibbs sampler, extremes; the golden walk has printed numbers."""

import math
import warnings

import numpy as np
import pytest
from scipy.special import logsumexp

from countveil import DiscreteGaussian, DiscreteLaplace, Gaussian, Seeded
from countveil.assess import Exactly, Flat, Intruder, Level, Pmf, SiblingsPoisson, UpTo
from countveil.assess.intruder import one_level
from countveil.assess.intruder.several_levels import hierarchy
from countveil.assess.intruder.several_levels.count_chain import (
    CountLikelihood,
    LevelStep,
    end_weights,
    message,
)
from countveil.errors import InputError
from countveil.noise.summed_noise import SummedNoise

LOW = DiscreteGaussian.from_rho("1666368/16793603")
HIGH = DiscreteGaussian.from_rho("103534592/420045025")
WHO = Intruder(prior=0.5)


FLAT = Flat()


def two(prior=FLAT, high=HIGH):
    return [Level(LOW, siblings=27, prior=prior), Level(high)]


@pytest.mark.parametrize("method", ["exact", "paper-sampler"])
def test_the_law_of_the_lowest_count_is_the_posterior(method):
    seen = {"observed": [2, 1], "sibling_sums": [-1], "intruder": WHO, "method": method}
    counts, weights = hierarchy.level_posterior(two(), at=1, **seen)
    assert counts.tolist() == [0, 1]
    assert weights[1] == pytest.approx(hierarchy.posterior(two(), **seen).value, abs=1e-12)
    _, weights = hierarchy.level_posterior(two(), at=2, **seen)
    assert weights.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("count", [1, 10])
def test_ties_that_break_at_the_45th_digit(count):
    """Of the sums of siblings both laws break them alike."""
    levels = two(high=DiscreteGaussian.from_rho(100))
    values = [
        hierarchy.correct_decision(levels, truth=[1, count], intruder=WHO, siblings=law).value
        for law in ("convolution", "gaussian")
    ]
    assert values[0] == pytest.approx(values[1], abs=1e-12)


def test_an_unnormalized_truncated_prior_is_the_flat_one_but_for_its_end():
    value = hierarchy.correct_decision(two(UpTo(10, False)), truth=[1, 1], intruder=WHO).value
    assert value == pytest.approx(0.3182, abs=5e-5)


def test_the_interior_limit_is_capped():
    six = [Level(LOW, 27)] * 5 + [Level(LOW)]
    cap = float(1 / (2 * LOW.sigma2)) * (1 + 1 / 27)
    assert 0.998 * cap < hierarchy.interior_rho(six).value < cap


NOISES = (
    DiscreteGaussian("1/2"),
    DiscreteGaussian(2),
    DiscreteGaussian(7),
    DiscreteLaplace("3/2"),
    DiscreteLaplace(3),
)


def random_case(rng, levels: int, *, one_by_one: bool = False):
    chain, priors = [], [Flat(), UpTo(9), UpTo(9, False), SiblingsPoisson(3.0), Exactly(6)]
    priors.append(Pmf(rng.random(8) + 0.05))
    priors.append(Pmf(rng.random(12) + 0.05, of="parent"))
    for number in range(levels):
        siblings = int(rng.integers(0, 4)) if number < levels - 1 else 0
        prior = Flat() if one_by_one else priors[rng.integers(len(priors))]
        if number and isinstance(prior, Exactly):
            prior = Flat()
        single = [Flat(), SiblingsPoisson(2.0), Pmf(rng.random(5) + 0.1)][rng.integers(3)]
        noise = NOISES[rng.integers(len(NOISES))]
        chain.append(Level(noise, siblings, prior, single))
    observed = [int(x) for x in rng.integers(-3, 9, levels)]
    return chain, observed


def enumerated(levels, observed, move_weights, counts, most=75):
    """The log of the sum over all counts above, for each lowest count: a plain nested sum."""
    grids = np.arange(0, most)
    result = []
    for count in counts:
        log_here, here = np.zeros(1), np.array([float(count)])
        for number in range(len(levels) - 1):
            y = grids - here[:, None]
            log_move = np.where(y >= 0, move_weights[number](y), -np.inf)
            prior = levels[number].prior.log_weight(grids + 0.0 * y, here[:, None] + 0.0 * y)
            if levels[number].siblings == 0:
                log_move = np.where(y == 0, 0.0, -np.inf)
            fit = levels[number + 1].noise.log_pmf(observed[number + 1] - grids)
            with np.errstate(invalid="ignore"):
                together = log_here[:, None] + log_move + prior + fit
            log_here = logsumexp(np.where(y >= 0, together, -np.inf), axis=0)
            here = grids.astype(float)
        result.append(logsumexp(log_here))
    return np.array(result)


def convolved(noise, count, at):
    """The log pmf of a sum of noises by plain convolution."""
    if count == 0:
        return np.zeros(np.shape(at))
    k = np.arange(-400, 401)
    p = np.exp(noise.log_pmf(k))
    law = np.ones(1)
    for _ in range(count):
        law = np.convolve(law, p)
    middle = len(law) // 2
    with np.errstate(divide="ignore"):
        return np.log(law[(middle + np.asarray(at)).astype(int)])


@pytest.mark.parametrize("levels", [2, 3, 4])
def test_posteriors_equal_enumeration(levels):
    checked = 0
    for seed in range(60):
        rng = np.random.default_rng([levels, seed])
        chain, observed = random_case(rng, levels)
        sums = [int(x) for x in rng.integers(-4, 10, levels - 1)]
        prior, known, rows = rng.uniform(0.05, 0.95), rng.integers(0, 4), rng.integers(1, 4)
        who = Intruder(prior=float(prior), known=int(known), rows=int(rows))
        moves = [
            lambda y, level=level, total=total: convolved(level.noise, level.siblings, total - y)
            for level, total in zip(chain, sums, strict=False)
        ]
        away, there = enumerated(chain, observed, moves, [known, known + rows])
        if not np.isfinite([away, there]).all():
            continue
        risk = hierarchy.posterior(chain, observed=observed, sibling_sums=sums, intruder=who)
        fits = [float(chain[0].noise.log_pmf(observed[0] - known - b)) for b in (0, rows)]
        odds = who.log_odds + there - away + fits[1] - fits[0]
        assert risk.value == pytest.approx(1 / (1 + math.exp(-odds)), rel=1e-11, abs=1e-12)
        assert risk.error_bound < 1e-12
        checked += 1
    assert checked > 30


def test_siblings_one_by_one_equal_enumeration():
    for seed in range(30):
        rng = np.random.default_rng([9, seed])
        chain, observed = random_case(rng, 3, one_by_one=True)
        values = [[int(x) for x in rng.integers(-2, 6, level.siblings)] for level in chain[:-1]]
        who = Intruder(prior=0.3, known=1)

        def weights(level, seen):
            y = np.arange(0, 75)
            law = np.array([1.0])
            for value in seen:
                prior = level.sibling_prior.log_weight(y.astype(float), np.zeros(75))
                law = np.convolve(law, np.exp(prior + level.noise.log_pmf(value - y)))[:75]
            with np.errstate(divide="ignore"):
                table = np.log(np.append(law, np.zeros(75 - len(law))))
            return lambda z: table[np.clip(z, 0, 74).astype(int)]

        moves = [weights(level, seen) for level, seen in zip(chain, values, strict=False)]
        away, there = enumerated(chain, observed, moves, [1, 2])
        risk = hierarchy.posterior(chain, observed=observed, sibling_values=values, intruder=who)
        fits = [float(chain[0].noise.log_pmf(observed[0] - 1 - b)) for b in (0, 1)]
        odds = who.log_odds + there - away + fits[1] - fits[0]
        assert risk.value == pytest.approx(1 / (1 + math.exp(-odds)), rel=1e-10, abs=1e-12)


def test_unsure_of_others_equals_mixing():
    who = Intruder(prior=0.2, known=1, others=(0.5, 0.3, 0.2))
    chain = [Level(LOW, 3), Level(HIGH)]
    value = hierarchy.posterior(chain, observed=[3, 4], sibling_sums=[2], intruder=who).value
    terms = {}
    for there in (0, 1):
        for more, weight in enumerate(who.others):
            count = 1 + more + there
            moves = [lambda y: convolved(LOW, 3, 2 - y)]
            above = enumerated(chain, [3, 4], moves, [count])[0]
            fit = float(LOW.log_pmf(3 - count))
            prior = math.log(0.2 if there else 0.8) + math.log(weight)
            terms.setdefault(there, []).append(prior + above + fit)
    expected = 1 / (1 + math.exp(logsumexp(terms[0]) - logsumexp(terms[1])))
    assert value == pytest.approx(expected, rel=1e-11)


def test_a_right_gibbs_sampler_agrees():
    """With X_1 ≤ X_2 in both draws, the sampler's frequencies come to the exact posterior."""
    rng = np.random.default_rng(5)
    x1s, x2, y1, draws = 2, 1, -1, 60_000
    r1, r2 = float(1 / (2 * LOW.sigma2)), float(1 / (2 * HIGH.sigma2))
    grid = np.arange(0, 60)
    tables = []
    for k in (0, 1):
        w = np.exp(-r2 * (x2 - grid) ** 2 - r1 / 27 * (y1 + k - grid) ** 2) * (grid >= k)
        tables.append(np.cumsum(w / w.sum()))
    uniforms, state, seen = rng.random((draws, 2)), 0, 0
    for u, v in uniforms:
        parent = int(np.searchsorted(tables[state], u))
        odds = r1 * (2 * x1s - 1) + r1 / 27 * (-((y1 - parent + 1) ** 2) + (y1 - parent) ** 2)
        state = int(parent >= 1 and v < 1 / (1 + math.exp(-odds)))
        seen += state
    exact = hierarchy.posterior(two(), observed=[2, 1], sibling_sums=[-1], intruder=WHO).value
    # Draws depend on each other; five times the binomial error is more than enough.
    assert seen / draws == pytest.approx(exact, abs=5 * math.sqrt(0.25 / draws) * 3)


def test_the_certificate_is_never_violated():
    """1,000 chains cut off early on purpose: the error is within what the certificate says."""
    from countveil.assess.intruder.several_levels import count_chain as kernel

    rng = np.random.default_rng(11)
    cut = violated = 0
    for _ in range(1000):
        steps = []
        for _ in range(int(rng.integers(1, 4))):
            law = SummedNoise(NOISES[rng.integers(3)], int(rng.integers(1, 5)))
            noise = NOISES[rng.integers(len(NOISES))]
            y, x = int(rng.integers(-5, 12)), int(rng.integers(-4, 20))
            steps.append(
                LevelStep(
                    CountLikelihood(lambda z, law=law, y=y: law.log_pmf(y - z), y, law.variance),
                    CountLikelihood(
                        lambda z, noise=noise, x=x: noise.log_pmf(x - z), x, noise.variance
                    ),
                )
            )
        points = np.array([0.0, 1.0])
        windows = kernel._windows(steps, points, float(rng.uniform(0.4, 3.0)))
        rough = kernel._passed(steps, points, windows, 1)
        right = message(steps, points)
        off = np.abs(rough.log_values - right.log_values).max()
        cut += off > 1e-9
        violated += off > rough.error_bound + 1e-12
    assert cut > 300  # or it would show nothing
    assert violated == 0


def test_simulation_agrees_with_the_exact_sum():
    exact = hierarchy.correct_decision(two(), truth=[1, 3], intruder=WHO).value
    risk = hierarchy.correct_decision(two(), truth=[1, 3], intruder=WHO, draws=4000, rng=Seeded(3))
    assert abs(risk.value - exact) < 4 * risk.standard_error
    assert risk.standard_error < 0.01
    mean = hierarchy.marginal_risk(two(), truth=[1, 3], intruder=WHO).posterior
    drawn = hierarchy.marginal_risk(two(), truth=[1, 3], intruder=WHO, draws=4000, rng=Seeded(4))
    assert abs(drawn.posterior - mean) < 4 * drawn.standard_error * WHO.prior


def test_thinned_sums_say_how_far_they_may_be_off():
    wide = DiscreteGaussian.from_rho("1e-5")
    levels, who = [Level(wide, 4), Level(wide)], Intruder(prior=0.4999, known=2000)
    risk = hierarchy.correct_decision(levels, truth=[2001, 20_000], intruder=who)
    # No count is near zero: the levels are one normal count.
    normal = Gaussian(math.sqrt(1 / (2 * hierarchy.interior_rho(levels).value)))
    exact = one_level.correct_decision(normal, intruder=who).value
    assert abs(risk.value - exact) < risk.error_bound + 1e-12 < 0.01
    # Without siblings they are two counts of the same people.
    noises, who = [DiscreteLaplace(3), wide], Intruder(prior=0.3)
    risk = hierarchy.marginal_risk([Level(x) for x in noises], truth=[1, 1], intruder=who)
    exact = one_level.marginal_risk(noises, intruder=who).value
    assert abs(risk.value - exact) < risk.error_bound + 1e-12 < 1e-9
    # What is summed in full has no error.
    exact = hierarchy.correct_decision(two(), truth=[1, 3], intruder=WHO)
    assert exact.error_bound is None
    assert exact.standard_error is None


def test_ties_far_from_a_known_parent_are_ties():
    """Ties where 27 noises add up to 13 or 14: equally likely but for the Gaussian factor, as the
    remainders by 27 differ in sign alone. However far out, both laws tie there."""
    values = [
        hierarchy.correct_decision(
            two(Exactly(100)), truth=[1, 1], intruder=WHO, ties="no", siblings=law
        ).value
        for law in ("convolution", "gaussian")
    ]
    assert values[0] == pytest.approx(values[1], abs=1e-9)


def test_six_levels_with_siblings_known_to_be_empty():
    """The prior on the siblings decides: known zeros let all levels speak of one person."""
    rhos = ["1666368/16793603", "103534592/420045025", "0.05", "0.051", "0.0505", "0.0509"]
    noises = [DiscreteGaussian.from_rho(rho) for rho in rhos]
    who, empty = Intruder(prior=0.02), Pmf([1.0])
    odds = who.log_odds + sum(float(noise.loss_at(0.0)) for noise in noises)
    together = [Level(noise, 27, empty) for noise in noises]
    each = [Level(noise, 2, sibling_prior=empty) for noise in noises]
    for levels, siblings in (
        ([Level(noise) for noise in noises], {}),
        (together, {"sibling_sums": [3, -4, 50, 0, 9]}),
        (each, {"sibling_values": [[3, -4]] * 5}),
    ):
        value = hierarchy.posterior(levels, observed=[1] * 6, intruder=who, **siblings).value
        assert value == pytest.approx(1 / (1 + math.exp(-odds)), rel=1e-12)
    # Unless the intruder knows that they are empty, the siblings' noise hides the target.
    unsure = [Level(noise, 27) for noise in noises]
    seen = {"observed": [1] * 6, "sibling_sums": [0] * 5}
    assert hierarchy.posterior(unsure, **seen, intruder=who).value < value
    exact = one_level.marginal_risk(noises, intruder=who).value
    risk = hierarchy.marginal_risk(together, truth=[1] * 6, intruder=who, draws=1000, rng=Seeded(3))
    assert abs(risk.value - exact) < 4 * risk.standard_error < 0.5


@pytest.mark.parametrize("rho", ["1e-12", "1e-6", "0.01", "1", "100", "10000"])
@pytest.mark.parametrize("prior", [1e-12, 0.5, 1 - 1e-12])
def test_extremes_are_finite_and_silent(rho, prior):
    noise = DiscreteGaussian.from_rho(rho)
    levels = [Level(noise, 5), Level(noise, 3), Level(noise)]
    far = int(1e9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for known in (0, far):
            who = Intruder(prior=prior, known=known)
            last = -1.0
            for shift in (-far, -1000, -1, 0, 1, 2, 1000, far):
                risk = hierarchy.posterior(
                    levels,
                    observed=[known + shift, known + 3, known + 9],
                    sibling_sums=[2, 5],
                    intruder=who,
                )
                assert 0 <= risk.value <= 1
                assert risk.value >= last  # more seen is never less likely
                last = risk.value


def test_observations_far_out_and_against_each_other():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for x2, y1 in [(10**6, -(10**6)), (-(10**9), -(10**9)), (10**9, 10**9), (-(10**6), 10**6)]:
            risk = hierarchy.posterior(two(), observed=[0, x2], sibling_sums=[y1], intruder=WHO)
            assert 0 <= risk.value <= 1
            assert risk.error_bound < 1e-12


def test_tiny_rho_thins_the_sum_and_says_how_well():
    noise = DiscreteGaussian.from_rho("1e-8")
    levels = [Level(noise, 4), Level(noise)]
    risk = hierarchy.posterior(levels, observed=[3, 9], sibling_sums=[5], intruder=WHO)
    # By hand, as integrals of normal densities over y ≥ 0.
    from scipy.integrate import quad

    variance = float(noise.sigma2)

    def density(y, k):
        return math.exp(-((9 - k - y) ** 2) / (2 * variance) - (5 - y) ** 2 / (8 * variance))

    sums = [
        quad(density, 0, 40 * math.sqrt(variance), args=(k,), epsabs=0, epsrel=1e-13, limit=500)[0]
        + density(0, k) / 2
        for k in (0, 1)
    ]
    odds = float(noise.loss_at(2.0)) + math.log(sums[1] / sums[0])
    assert risk.value == pytest.approx(1 / (1 + math.exp(-odds)), abs=1e-9)
    assert risk.error_bound < 1e-9


def test_end_weights_sum_powers_exactly():
    for thin in (2, 7, 50):
        weights = np.full(4000, float(thin))
        ends = end_weights(thin)
        weights[: len(ends)] = ends
        y = thin * np.arange(4000)
        spread = 40.0 * thin
        whole = np.arange(0, y[-1] + 1)
        for centre in (0.0, 55.0 * thin):
            exact = np.exp(-(((whole - centre) / spread) ** 2)).sum()
            assert (weights * np.exp(-(((y - centre) / spread) ** 2))).sum() == pytest.approx(
                exact, rel=1e-11
            )


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("count", [1, 2, 5, 27])
def test_summed_noise_is_the_convolution(noise, count):
    at = np.arange(-60, 61)
    found = SummedNoise(noise, count).log_pmf(at)
    expected = convolved(noise, count, at)
    near = expected > -60
    np.testing.assert_allclose(found[near], expected[near], rtol=1e-9, atol=1e-9)
    far = SummedNoise(noise, count).log_pmf(np.array([100_000]))
    assert np.isfinite(far).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observed": [1]}, "observed: got 1 counts for 2 levels; give one for each level"),
        (
            {"sibling_sums": [1, 2]},
            "got 2 for 2 levels; give one for each level except the highest",
        ),
        (
            {"sibling_values": [[1]]},
            "sibling_sums, sibling_values: got both; give only one of them",
        ),
        (
            {"sibling_sums": None, "sibling_values": [[1]]},
            "got 1 values for a level with 27 siblings",
        ),
        ({"siblings": "sum"}, "siblings: 'sum' is not allowed"),
    ],
)
def test_bad_arguments_are_named(change, message):
    given = {"observed": [1, 2], "sibling_sums": [3], "intruder": WHO}
    with pytest.raises(InputError, match=message):
        hierarchy.posterior(two(), **{**given, **change})


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: Level("noise"),
            "noise: 'noise' is not allowed; a level is released with integer noise",
        ),
        (
            lambda: Level(LOW, -1),
            "siblings: -1 is not allowed; it must be a whole number, 0 or more",
        ),
        (lambda: UpTo(-1), "most: -1 is not allowed"),
        (lambda: Exactly(1.5), "count: 1.5 is not allowed"),
        (lambda: SiblingsPoisson(0), "mean: 0 is not allowed; it must be above 0 and finite"),
        (lambda: Pmf([]), "probabilities: they must be a list of finite numbers"),
        (lambda: Pmf([0.5, math.nan]), "probabilities: they must be a list of finite numbers"),
        (lambda: Pmf([1], of="child"), "of: 'child' is not allowed"),
        (
            lambda: hierarchy.correct_decision(two(), truth=[3, 4], intruder=WHO),
            "truth: the lowest count is 3; what they know allows 0, 1",
        ),
        (
            lambda: hierarchy.correct_decision(two(), truth=[1, 0], intruder=WHO),
            "truth: a count is larger than the one above it; a parent includes its children",
        ),
        (
            lambda: hierarchy.correct_decision([*two(), Level(LOW)], truth=[1, 1, 1], intruder=WHO),
            "rng: 3 levels are simulated; pass rng=Seeded",
        ),
        (
            lambda: hierarchy.posterior(
                two(UpTo(3)),
                observed=[1, 1],
                sibling_sums=[1],
                intruder=WHO,
                method="paper-sampler",
            ),
            "method: the paper's sampler is for two levels with a flat prior",
        ),
        (
            lambda: hierarchy.posterior(
                [Level(LOW, 2), Level(LOW, 2), Level(LOW)],
                observed=[1, 1, 1],
                intruder=WHO,
                sibling_sums=None,
                siblings="gaussian",
            ),
            None,
        ),
    ],
)
def test_what_cannot_be_is_refused(build, message):
    if message is None:
        assert 0 < build().value < 1  # nothing of the siblings is seen, the levels above bound them
        return
    with pytest.raises(InputError, match=message):
        build()


def one_by_one(prior, parent=None):
    """The posterior of the reviewers' case: two siblings, each with a prior of its own."""
    noise = DiscreteGaussian(2)
    totals = []
    for there in (0, 1):
        total = 0.0
        for y1 in range(30):
            for y2 in range(30):
                x2 = 1 + there + y1 + y2
                if parent is not None and x2 != parent:
                    continue
                log_term = sum(
                    float(prior.log_weight(np.array(y), np.array(0)))
                    + float(noise.log_pmf(seen - y))
                    for y, seen in ((y1, 1), (y2, 2))
                )
                total += math.exp(log_term + float(noise.log_pmf(4 - x2)))
        totals.append(
            total * math.exp(float(noise.log_pmf(2 - 1 - there))) * (0.3 if there else 0.7)
        )
    return totals[1] / sum(totals)


@pytest.mark.parametrize(
    "prior", [UpTo(2), UpTo(2, False), Exactly(1), Pmf([0.2, 0.3, 0.5], of="parent"), Flat()]
)
@pytest.mark.parametrize("known", [None, 4])
def test_priors_of_single_siblings_are_those_of_each(prior, known):
    noise = DiscreteGaussian(2)
    above = Flat() if known is None else Exactly(known)
    levels = [Level(noise, 2, above, sibling_prior=prior), Level(noise)]
    expected = one_by_one(prior, known)
    found = hierarchy.posterior(
        levels, observed=[2, 4], sibling_values=[[1, 2]], intruder=Intruder(prior=0.3, known=1)
    )
    assert found.value == pytest.approx(expected, rel=1e-9)


def test_a_known_parent_far_from_what_is_seen_is_still_reached():
    levels = [Level(DiscreteGaussian(2), 3, Exactly(1000)), Level(DiscreteGaussian(2))]
    risk = hierarchy.posterior(levels, observed=[1, 900], sibling_sums=[900], intruder=WHO)
    noise = SummedNoise(DiscreteGaussian(2), 3)
    odds = float(DiscreteGaussian(2).loss_at(0.0))
    odds += float(noise.log_pmf(np.array([-99]))[0] - noise.log_pmf(np.array([-100]))[0])
    assert risk.value == pytest.approx(1 / (1 + math.exp(-odds)), rel=1e-9)
    with pytest.raises(InputError, match="no count is possible"):
        hierarchy.posterior(
            two(Exactly(3)), observed=[1, 1], sibling_sums=[1], intruder=Intruder(0.5, known=5)
        )


def test_priors_with_gaps_are_summed_over_all_their_counts():
    """What is above need not fall off from one mode; the certificate knows."""
    for seed in range(60):
        rng = np.random.default_rng([21, seed])
        gaps = rng.random(40) * (rng.random(40) < 0.15) + 1e-12 * (rng.random(40) < 0.3)
        gaps[rng.integers(40)] = 1.0
        prior = Pmf(gaps, of="siblings" if seed % 2 else "parent")
        levels = [
            Level(NOISES[rng.integers(5)], int(rng.integers(1, 4)), prior if seed % 3 else Flat()),
            Level(
                NOISES[rng.integers(5)], int(rng.integers(1, 4)), prior if seed % 3 != 1 else Flat()
            ),
            Level(NOISES[rng.integers(5)]),
        ]
        observed = [int(x) for x in rng.integers(-2, 30, 3)]
        sums = [int(x) for x in rng.integers(-2, 30, 2)]
        moves = [
            lambda y, level=level, total=total: convolved(level.noise, level.siblings, total - y)
            for level, total in zip(levels, sums, strict=False)
        ]
        away, there = enumerated(levels, observed, moves, [0, 1], most=110)
        if not np.isfinite([away, there]).all():
            continue
        risk = hierarchy.posterior(levels, observed=observed, sibling_sums=sums, intruder=WHO)
        fits = [float(levels[0].noise.log_pmf(observed[0] - b)) for b in (0, 1)]
        odds = there - away + fits[1] - fits[0]
        assert risk.value == pytest.approx(1 / (1 + math.exp(-odds)), rel=1e-8, abs=1e-12), seed


def test_one_level_has_the_risk_of_one_level():
    risk = hierarchy.marginal_risk([Level(LOW)], truth=[1], intruder=WHO)
    assert risk.value == pytest.approx(1.0473327545294957, abs=1e-12)
    with pytest.raises(InputError, match="method: unknown method 'gibbs'"):
        hierarchy.posterior(two(), observed=[1, 1], sibling_sums=[1], intruder=WHO, method="gibbs")


def test_sums_of_laplace_noise_do_not_underflow():
    noise = DiscreteLaplace(50)
    together = SummedNoise(noise, 300).log_pmf(np.array([0, 200_000]))
    alone = SummedNoise(noise, 300).log_pmf(np.array([200_000]))
    assert together[1] == pytest.approx(alone[0], rel=1e-12)
    assert np.isfinite(SummedNoise(DiscreteLaplace("1/1000"), 3).log_pmf(np.arange(-3, 4))).all()
