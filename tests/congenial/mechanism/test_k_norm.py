"""The K-norm gradient mechanism: its law, its draws, the loss it realises, and its rate."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy.stats import chi2

from countveil.base.randomness import Secure, Seeded
from countveil.congenial import KNormGradient, Theta
from countveil.congenial.mechanism import k_norm
from countveil.congenial.mechanism.k_norm import (
    draw_points,
    grid_of,
    linear_gradients,
    logistic_gradients,
)
from countveil.errors import InputError

UNIT = [("0", "1")]
MODELS = {
    "mean of one": KNormGradient("mean", epsilon="2", bounds=UNIT, box=UNIT, points=41, step="1/2"),
    "mean of two, L1": KNormGradient(
        "mean",
        epsilon="1",
        bounds=[(0, 1), (-1, 1)],
        box=[(0, 1), (-1, 1)],
        points=(7, 9),
        step=1,
        norm="L1",
    ),
    "mean with dependence": KNormGradient(
        "mean", epsilon="3", bounds=UNIT, box=UNIT, points=21, step="1/2", delta_z=2
    ),
    "linear": KNormGradient(
        "linear", epsilon="2", bounds=[(-1, 1), (-1, 1)], box=[(-2, 2)], points=41, step=1
    ),
    "linear with a constant": KNormGradient(
        "linear",
        epsilon="1",
        bounds=[(1, 1), (-1, 1), (0, 1)],
        box=[(-1, 1), (-1, 1)],
        points=9,
        step=1,
        norm="L1",
    ),
    "logistic": KNormGradient(
        "logistic", epsilon="2", bounds=[(-1, 1)], box=[(-3, 3)], points=41, step=1
    ),
    "logistic with a constant": KNormGradient(
        "logistic", epsilon="1", bounds=[(1, 1), (0, 1)], box=[(-1, 1), (-2, 2)], points=9, step=1
    ),
}


def records(mechanism):
    """Every record that the bounds and the step allow."""
    step = mechanism.step
    columns = [
        [low + i * step for i in range(int((high - low) / step) + 1)]
        for low, high in mechanism.bounds
    ]
    if mechanism.model == "logistic":
        columns.append([0, 1])
    return [tuple(map(float, record)) for record in product(*columns)]


def contribution(mechanism, y, record):
    """The gradient of one person's loss, from its formula."""
    x = np.array(record)
    if mechanism.model == "mean":
        return y - x
    at = float(y @ x[:-1])
    fitted = at if mechanism.model == "linear" else 1 / (1 + math.exp(-at))
    return x[:-1] * (fitted - x[-1])


def length(mechanism, vector):
    return np.abs(vector).sum() if mechanism.norm == "L1" else np.abs(vector).max()


@pytest.mark.parametrize("name", MODELS)
def test_the_law_is_that_of_theorem_10(name):
    """Up to sigma, which may be above the largest move of the gradient, and never below it."""
    mechanism = MODELS[name]
    rng = np.random.default_rng(2)
    possible = records(mechanism)
    data = [possible[i] for i in rng.integers(0, len(possible), 5)]
    exponents = mechanism._finite_law(np.array(data))
    sigma = []
    for k, y in enumerate(mechanism.grid):
        gradient = sum(contribution(mechanism, y, record) for record in data)
        # Numerator and denominator have one unit; what is exact is their ratio.
        ratio = exponents.numerators[k] / exponents.denominators[k]
        if ratio > 1e-6:
            sigma.append(length(mechanism, gradient) / ratio)
            each = [contribution(mechanism, y, record) for record in possible]
            worst = max(length(mechanism, a - b) for a in each for b in each)
            assert sigma[-1] >= worst * (1 - 1e-6)
            assert sigma[-1] <= 2.1 * worst
    assert len(sigma) > len(mechanism.grid) / 2
    log_p = mechanism.log_probabilities(np.array(data))
    expected = np.array([float(-exponents._exponent(k)) for k in range(len(log_p))])
    expected -= np.log(np.exp(expected).sum())
    assert log_p == pytest.approx(expected, abs=1e-12)
    rate = mechanism.epsilon / (2 * mechanism.delta_z)
    assert exponents.rate == rate


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", [1, 2])
def test_draws_follow_the_law(name, seed):
    mechanism = MODELS[name]
    possible = records(mechanism)
    data = np.array([possible[i] for i in np.random.default_rng(3).integers(0, len(possible), 4)])
    size = 3000
    draws = mechanism.sample(data, rng=Seeded(seed), size=size)
    p = np.exp(mechanism.log_probabilities(data))
    index = {tuple(y): k for k, y in enumerate(mechanism.grid.tolist())}
    tally = np.bincount([index[tuple(y)] for y in draws.tolist()], minlength=len(p))
    order = np.argsort(p)
    groups = np.minimum(np.cumsum(p[order]) * size // 12, size // 12 - 1).astype(int)
    observed, expected = (np.bincount(groups, w) for w in (tally[order], size * p[order]))
    observed, expected = observed[expected > 0], expected[expected > 0]
    statistic = ((observed - expected) ** 2 / expected).sum()
    assert chi2.sf(statistic, len(expected) - 1) > 1e-4


@pytest.mark.parametrize("name", MODELS)
def test_the_realised_loss_is_within_epsilon(name):
    """Over all databases of two or three people, and up to Delta_z changed records."""
    mechanism = MODELS[name]
    possible = records(mechanism)
    people = 3 if len(possible) <= 4 else 2
    laws = {
        data: mechanism.log_probabilities(np.array(data))
        for data in product(possible, repeat=people)
    }
    worst = 0.0
    for data, log_p in laws.items():
        for other, log_q in laws.items():
            changed = sum(a != b for a, b in zip(data, other, strict=True))
            if 0 < changed <= mechanism.delta_z:
                worst = max(worst, float(np.abs(log_p - log_q).max()))
    assert worst <= float(mechanism.epsilon) + 1e-9
    assert worst > 0.3 * float(mechanism.epsilon)


def test_one_person_more_than_allowed_breaks_it():
    """The loss is not small for another reason: twice the people, and it passes epsilon."""
    mechanism = KNormGradient("mean", epsilon="1", bounds=UNIT, box=[(-20, 20)], points=401, step=1)
    far = [mechanism.log_probabilities(np.full(4, value)) for value in (0.0, 1.0)]
    assert 1.5 < np.abs(far[0] - far[1]).max() <= 4


@pytest.mark.parametrize("norm", ["L1", "maximum"])
def test_ranges_of_linear_gradients_are_tight(norm):
    """With the maximum norm, sigma is the largest move over records on a fine grid."""
    bounds = np.array([[-4, 8], [2, 6], [-6, 4]])
    grid = grid_of(((Fraction(-2), Fraction(2)),) * 2, (9, 9))
    result = linear_gradients(np.array([[1, 2, 3]]), bounds, grid, norm)
    fine = [np.linspace(low, high, 2 * (high - low) + 1) for low, high in bounds]
    points = np.array(list(product(*fine)))
    for y, sigma in zip(grid.coordinates, result.sensitivities, strict=True):
        g = points[:, :2] * (points[:, :2] @ y - grid.denominator * points[:, 2])[:, None]
        moves = np.ptp(g, axis=0)
        worst = moves.sum() if norm == "L1" else moves.max()
        assert worst - 1e-9 <= sigma <= 1.02 * worst + 2


def test_logistic_probabilities_stay_within_their_bounds():
    """Data at the corners of the bounds: no contribution leaves the range that sigma is made of."""
    bounds = np.array([[-3, 2], [1, 1], [0, 1]])
    grid = grid_of(((Fraction(-40), Fraction(40)), (Fraction(-1), Fraction(1))), (11, 5))
    corners = np.array(list(product((-3, 2), (1,), (0, 1))))
    sums = [
        logistic_gradients(corner[None], bounds, Fraction(1), grid, "maximum") for corner in corners
    ]
    for result in sums:
        assert (result.norms <= result.sensitivities).all()


def test_sigma_holds_for_any_rounding_of_floats(monkeypatch):
    """A logistic function that is wrong on data alone: its values are clipped."""
    right = k_norm._logistic
    monkeypatch.setattr(k_norm, "_logistic", lambda t: right(t) + (np.ndim(t) == 2))
    bounds, grid = np.array([[1, 1], [0, 1]]), grid_of(((Fraction(-1), Fraction(1)),), (5,))
    result = logistic_gradients(np.array([[1, 0]]), bounds, Fraction(1), grid, "maximum")
    assert (result.norms < result.sensitivities).all()


def test_points_off_the_grid_have_no_density():
    mechanism = MODELS["mean of two, L1"]
    data = np.array([[0, -1], [1, 1], [1, 0]])
    every = mechanism.log_density(mechanism.grid, data)
    assert every == pytest.approx(mechanism.log_probabilities(data))
    assert np.exp(every).sum() == pytest.approx(1)
    assert mechanism.log_density([0.01, 0.0], data) == -math.inf
    assert mechanism.log_density([0.0, 2.0], data) == -math.inf
    assert mechanism.log_density([0.0, 1.0], data) == pytest.approx(every[8])


@pytest.mark.parametrize("model", ["mean", "linear", "logistic"])
def test_errors_fall_as_one_over_n(model):
    """Theorem 11: sixteen times the people, a sixteenth of the error."""
    rng = np.random.default_rng(8)
    errors = []
    for n in (250, 4000):
        x = rng.uniform(0, 1, n).round(3)
        half = Fraction(60, n)
        if model == "mean":
            data, target, bounds = x[:, None], x.mean(), UNIT
        elif model == "linear":
            data = np.column_stack((x, (0.4 * x).round(3)))
            target, bounds = 0.4, [(0, 1), (0, 1)]
        else:
            data = np.column_stack((x, rng.random(n) < 1 / (1 + np.exp(-x))))
            target, bounds = None, [(0, 1)]
            low, high = -5.0, 8.0
            for _ in range(60):
                middle = (low + high) / 2
                slope = float(x @ (1 / (1 + np.exp(-middle * x)) - data[:, 1]))
                low, high = (middle, high) if slope < 0 else (low, middle)
            target = low
        if model == "logistic":
            half *= 3
        centre = Fraction(round(target * 1000), 1000)
        mechanism = KNormGradient(
            model, epsilon="4", bounds=bounds, box=[(centre - half, centre + half)], points=601
        )
        draws = mechanism.sample(data, rng=Seeded(n), size=1500)
        errors.append(np.abs(draws - target).mean())
    assert errors[0] / errors[1] == pytest.approx(16, rel=0.15)


def test_the_mean_has_the_error_of_its_law():
    n = 400
    x = (np.arange(n) / n).round(3)
    mechanism = KNormGradient("mean", epsilon="1", bounds=UNIT, box=UNIT, points=20001)
    draws = mechanism.sample(x, rng=Seeded(4), size=3000)
    error = np.abs(draws - x.mean()) * n / 2  # exponential with mean 1
    assert error.mean() == pytest.approx(1, abs=4 / math.sqrt(3000))
    assert (error < 1).mean() == pytest.approx(1 - math.exp(-1), abs=4 * 0.5 / math.sqrt(3000))


def test_releases_go_through_the_door():
    mechanism = MODELS["mean of one"]
    data = np.array([0.0, 1.0, 0.5])
    with pytest.raises(InputError, match=r"drawn once, by measure\.draw_estimate"):
        mechanism.sample(data, rng=Secure())
    assert draw_points(mechanism, data, rng=Secure()).shape == (1, 1)
    assert mechanism.sample(data, rng=Seeded(1)).shape == (1,)
    again = [mechanism.sample(data, rng=Seeded(9), size=20).tolist() for _ in range(2)]
    assert again[0] == again[1]


def test_it_states_its_guarantee():
    theta = Theta(("nothing",), "independent", "all")
    assert MODELS["mean of one"].guarantee(theta, "one record").epsilon == 2


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"model": "median"}, "model: unknown model 'median'"),
        ({"norm": "L2"}, "norm: unknown norm 'L2'"),
        ({"epsilon": "0"}, "epsilon: 0 is not allowed"),
        ({"box": [(0, 1)] * 4}, "4 dimensions are not supported"),
        ({"box": [(1, 0)]}, "box: 1 to 0 is not allowed"),
        ({"bounds": [("0", "inf")]}, "'inf' is not a number"),
        ({"bounds": [(0, 1), (0, 1)]}, "bounds: got 2"),
        ({"bounds": [("0", "1/3")]}, "must be multiples of the step"),
        ({"bounds": [(1, 1)]}, "nothing is left to release"),
        ({"points": 1}, "2 or more"),
        ({"points": 300_000}, "more than 200,000 points"),
        ({"delta_z": 0}, "delta_z: 0 is not allowed"),
    ],
)
def test_bad_settings_are_named(inputs, message):
    with pytest.raises(InputError, match=message):
        KNormGradient(**{"model": "mean", "epsilon": 1, "bounds": UNIT, "box": UNIT} | inputs)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("mean of one", [0.0, 2.0], "1 of 2 people have a value outside"),
        ("mean of one", [0.0, math.nan], "missing or infinite"),
        ("mean of one", [[0.0, 1.0]], "shape"),
        ("mean of one", [], "shape"),
        ("logistic", [[1.0, 0.5]], "0 or 1"),
    ],
)
def test_bad_data_are_named(name, data, message):
    with pytest.raises(InputError, match=message):
        MODELS[name].sample(data, rng=Seeded(1))


def test_numbers_that_do_not_fit_are_refused():
    fine = KNormGradient(
        "linear",
        epsilon=1,
        bounds=[(0, 10**6), (0, 10**6)],
        box=[("0", "1/1000003")],
        points=1000,
    )
    with pytest.raises(InputError, match="choose a coarser step"):
        fine.sample([[1.0, 1.0]], rng=Seeded(1))


def test_a_column_that_is_always_zero_is_refused():
    none = KNormGradient("logistic", epsilon=1, bounds=[(0, 0)], box=[(-1, 1)], points=5)
    with pytest.raises(InputError, match="no record moves the gradient"):
        none.sample([[0.0, 1.0]], rng=Seeded(1))
