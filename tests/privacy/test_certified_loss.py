"""Certified composition: never below the exact delta, close to it, and what it refuses."""

import itertools
import json
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from tests.conftest import GOLDEN

from countveil.errors import InputError
from countveil.noise.discrete_gaussian import DiscreteGaussian
from countveil.noise.discrete_laplace import DiscreteLaplace
from countveil.privacy import certified_loss
from countveil.privacy.certified_loss import (
    BITS,
    ONE,
    LossAtom,
    LossMasses,
    certified_curve,
    convolved,
    on_grid,
)

COMPOSED = json.loads((GOLDEN / "composed_losses.json").read_text())


def delta(kinds, epsilon, *, rows=1, resolution=Fraction(1, 10**9)):
    """Return the certified delta of (noise, how many) as a float."""
    losses = [([noise.loss_masses(k) for k in range(1, rows + 1)], count) for noise, count in kinds]
    ((_, bound),) = certified_curve(losses, Fraction(epsilon), resolution=resolution)
    return float(bound)


def enumerated(noises_and_shifts, epsilon):
    """Return delta by summing over all outcomes with 40 digits."""
    with mpmath.workdps(40):
        laws = []
        for noise, shift in noises_and_shifts:
            width = 12 if isinstance(noise, DiscreteGaussian) else 40
            reach = width * math.ceil(math.sqrt(noise.variance)) + shift
            weights = {k: mpmath.exp(-log_weight(noise, k)) for k in range(-reach, reach + 1)}
            total = mpmath.fsum(weights.values())
            laws.append(
                [
                    (weight / total, mpmath.exp(-log_weight(noise, k + shift)) / total)
                    for k, weight in weights.items()
                ]
            )
        size = mpmath.exp(mpmath.mpf(epsilon.numerator) / epsilon.denominator)
        gains = []
        for outcome in itertools.product(*laws):
            here, there = (mpmath.fprod(values) for values in zip(*outcome, strict=True))
            gains.append(max(here - size * there, 0))
        return float(mpmath.fsum(gains))


def log_weight(noise, k):
    if isinstance(noise, DiscreteGaussian):
        return mpmath.mpf(k * k) * noise.sigma2.denominator / (2 * noise.sigma2.numerator)
    return mpmath.mpf(abs(k)) * noise.scale.denominator / noise.scale.numerator


@pytest.mark.parametrize("epsilon", ["1/2", "7/3", "5"])
@pytest.mark.parametrize(
    "noises",
    [
        [DiscreteGaussian("3/2")],
        [DiscreteGaussian("3/2"), DiscreteGaussian("17/7")],
        [DiscreteGaussian("1/3"), DiscreteGaussian("1/3"), DiscreteGaussian("5/4")],
        [DiscreteLaplace("3/2"), DiscreteGaussian("2")],
    ],
)
def test_never_below_all_outcomes_summed_and_close(noises, epsilon):
    exact = enumerated([(noise, 1) for noise in noises], Fraction(epsilon))
    bound = delta([(noise, 1) for noise in noises], epsilon)
    assert exact * (1 - 1e-12) <= bound <= exact * (1 + 3e-3) + 1e-12


@pytest.mark.parametrize("steps", [256, 1024])
def test_fewer_steps_only_raise_it(steps, monkeypatch):
    kinds = [(DiscreteGaussian(x), 2) for x in ("31/7", "97/11", "53/3")]
    fine = delta(kinds, "3")
    monkeypatch.setattr(certified_loss, "_STEPS", steps)
    assert fine < delta(kinds, "3") < fine * 1.05


@pytest.mark.parametrize("name", COMPOSED)
def test_between_the_bounds_of_another_implementation(name):
    """Optimistic and pessimistic estimates of dp_accounting 0.4 at steps of 1e-5."""
    case = COMPOSED[name]
    kind = DiscreteGaussian if "queries" in case else DiscreteLaplace
    listed = case.get("queries") or case["scales"]
    kinds, rows = [(kind(str(item[0])), item[1]) for item in listed], listed[0][2]
    compared = 0
    for (epsilon, above), (_, below) in zip(case["pessimistic"], case["optimistic"], strict=True):
        if not 1e-12 < below < 0.3:  # that estimate drops 1e-15, and beyond .3 epsilon is tiny
            continue
        bound = delta(kinds, str(epsilon), rows=rows, resolution=Fraction(str(below)))
        assert below * (1 - 1e-9) <= bound <= above * (1 + 1e-9)
        compared += 1
    assert compared >= 2


@pytest.mark.parametrize("noise", [DiscreteGaussian("7/2"), DiscreteLaplace("4")])
def test_two_rows_of_a_person_fall_into_one_cell_or_two(noise):
    """The bound holds for both, and is that of one cell, where they lose most."""
    together = enumerated([(noise, 2)], Fraction(1, 4))
    apart = enumerated([(noise, 1), (noise, 1)], Fraction(1, 4))
    bound = delta([(noise, 1)], "1/4", rows=2)
    assert apart < together <= bound <= together * (1 + 1e-3)


def test_noise_for_which_rows_apart_lose_more_is_refused():
    """A made-up law whose loss for two rows is no larger than for one."""
    law = DiscreteGaussian("2").loss_masses(1)
    with pytest.raises(InputError, match="2 rows in one cell do not lose the most with this noise"):
        certified_curve([([law, law], 1)], Fraction(1), resolution=Fraction(1, 1000))


def test_the_probabilities_of_a_loss_are_rounded_up():
    for noise in (DiscreteGaussian("1/20"), DiscreteGaussian("40"), DiscreteLaplace("5")):
        for shift in (1, 3):
            law = noise.loss_masses(shift)
            whole = sum(atom.mass for atom in law.atoms) + law.infinite
            assert ONE <= whole <= ONE + 2_000
            mean = sum(atom.loss * atom.mass for atom in law.atoms) / ONE
            points, weights = noise.privacy_loss(shift)
            assert float(mean) == pytest.approx(float(points @ weights), rel=1e-12)
    assert DiscreteGaussian(10**9).loss_masses() is None
    assert DiscreteLaplace(10**5).loss_masses() is None


def test_a_split_keeps_both_masses():
    """The mass of a loss, and its mass under the neighbour, e^-loss of it, up to rounding."""
    loss = Fraction(10, 37)
    grid = on_grid(LossMasses((LossAtom(loss, ONE),), 0), Fraction(1, 8), 1)
    assert sum(grid.masses) == ONE
    there = sum(
        Fraction(mass, ONE) * Fraction(math.exp(-at / 8))
        for at, mass in enumerate(grid.masses, grid.start)
    )
    assert float(there) == pytest.approx(math.exp(-loss), rel=1e-12)


def test_a_product_of_long_integers_is_a_convolution():
    draw = np.random.default_rng(1)
    first, second = (
        certified_loss.GridLoss(
            start, [int(x) << (BITS - 70) for x in draw.integers(0, 2**40, n)], 5
        )
        for start, n in ((-3, 40), (7, 11))
    )
    both = convolved(first, second, 0)
    for at in range(50):
        exact = sum(first.masses[i] * second.masses[at - i] for i in range(40) if 0 <= at - i < 11)
        assert both.masses[at] == -(-exact >> BITS)
    assert (both.start, both.infinite) == (4, 10)


def test_a_query_that_may_lose_far_more_than_epsilon_is_refused():
    with pytest.raises(InputError, match="may lose far more than epsilon"):
        delta([(DiscreteGaussian("10000/7"), 1), (DiscreteGaussian("1/4"), 1)], "1/100")
