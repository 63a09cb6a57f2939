"""The intruder who sees a cell at every level above it (paper 002, section 3.2), exactly.

X_1 is the count of his target's unit, X_2 = X_1 + the siblings' counts that of its parent, and so on.
He knows X_1 but for his target; above it he knows only that counts are not negative, unless a prior
says more. He sees every level's noisy count, and the siblings'.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Literal

import numpy as np
from scipy.special import logsumexp

from countveil.assess import paper_sampler, simulated_decision, two_levels
from countveil.assess.chain import Evidence, Step, marginal, message
from countveil.assess.decision import EVEN, Losses, Ties, refuse_impossible, share_of_ties, sigmoid
from countveil.assess.intruder import Intruder
from countveil.assess.level import Level
from countveil.assess.one_level import correct_decision as decision_from_one_level
from countveil.assess.one_level import marginal_risk as risk_from_one_level
from countveil.assess.parent_prior import FLAT, Exactly, Flat
from countveil.assess.risk import Risk
from countveil.assess.summed_noise import Addition, SummedNoise
from countveil.errors import InputError
from countveil.mechanisms.discrete_gaussian import DiscreteGaussian
from countveil.numerics import FloatArray, IntArray
from countveil.randomness import BitSource

Method = Literal["exact", "paper-sampler"]

_DRAWS = 2_000


@dataclass(frozen=True, slots=True)
class Seen:
    """What is released: a count of each level, and of the siblings their sums or all values."""

    observed: tuple[int, ...]
    sums: tuple[int, ...] | None
    values: tuple[tuple[int, ...], ...] | None


def posterior(
    levels: Sequence[Level],
    *,
    observed: Sequence[int],
    intruder: Intruder,
    sibling_sums: Sequence[int] | None = None,
    sibling_values: Sequence[Sequence[int]] | None = None,
    siblings: Addition = "convolution",
    method: Method = "exact",
) -> Risk:
    """Return the probability he gives to his target being counted, after seeing all levels.

    He knows everyone else in the lowest unit; he sees the noisy count of each level, and, at each level
    but the highest, the siblings' noisy counts one by one or their sum, or nothing of them; the number
    is (25) of 002, summed over what is above.
    """
    seen = _checked(levels, observed, sibling_sums, sibling_values)
    _refuse_unknown_method(method)
    if method == "paper-sampler":
        _refuse_for_sampler(levels, intruder, seen)
        value = paper_sampler.joint(*_pair(levels), *_triple(seen), intruder).there
        return Risk("posterior, the paper's sampler", value, posterior=value)
    steps, _ = _steps(levels, seen, siblings)
    there, away = intruder.counts(there=True), intruder.counts(there=False)
    found = message(steps, np.concatenate([there, away]))
    fit = levels[0].noise.log_pmf(seen.observed[0] - np.concatenate([there, away]))
    log_evidence = (found.log_values + fit).reshape(2, -1)
    if intruder.certain:  # without cancellation
        e = np.asarray(seen.observed[0] - intruder.known - intruder.rows, float)
        with np.errstate(invalid="ignore"):  # neither is possible: refused below
            added = found.log_values[0] - found.log_values[1]
        odds = levels[0].noise.loss_at(e, intruder.rows) + added
    else:
        weights = [intruder.log_weights(there=there) for there in (True, False)]
        log_there, log_away = logsumexp(log_evidence + np.array(weights), axis=1)
        with np.errstate(invalid="ignore"):
            odds = log_there - log_away
    refuse_impossible(odds)
    value = float(sigmoid(np.asarray(intruder.log_odds + odds)))
    return Risk("posterior", value, posterior=value, error=2 * found.error)


def level_posterior(
    levels: Sequence[Level],
    *,
    at: int,
    observed: Sequence[int],
    intruder: Intruder,
    sibling_sums: Sequence[int] | None = None,
    sibling_values: Sequence[Sequence[int]] | None = None,
    siblings: Addition = "convolution",
    method: Method = "exact",
) -> tuple[IntArray, FloatArray]:
    """Return the counts that level `at` may have, 1 being the lowest, and his probability of each."""
    seen = _checked(levels, observed, sibling_sums, sibling_values)
    if not 1 <= at <= len(levels):
        raise InputError(f"at: {at} is not allowed; levels are numbered from 1 to {len(levels)}")
    _refuse_unknown_method(method)
    if method == "paper-sampler":
        _refuse_for_sampler(levels, intruder, seen)
        return paper_sampler.joint(*_pair(levels), *_triple(seen), intruder).counts(at)
    steps, ends = _steps(levels, seen, siblings)
    counts = np.concatenate([intruder.counts(there=False), intruder.counts(there=True)])
    odds = np.repeat([-intruder.log_odds, 0.0], len(intruder.others))
    log_start = odds + np.concatenate(
        [intruder.log_weights(there=there) for there in (False, True)]
    )
    log_start = log_start + levels[0].noise.log_pmf(seen.observed[0] - counts)
    where, weights = marginal(steps, counts, log_start, ends[at - 1])
    kept = weights > 0
    return where[kept].astype(np.int64), weights[kept]


def correct_decision(
    levels: Sequence[Level],
    *,
    truth: Sequence[int],
    intruder: Intruder,
    siblings: Addition = "convolution",
    ties: Ties = "split",
    losses: Losses = EVEN,
    method: Method = "exact",
    draws: int | None = None,
    rng: BitSource | None = None,
) -> Risk:
    """Return the probability that he decides rightly about his target, seeing all levels.

    `truth` has the true count of each level; his target is there if the first is `known` + `rows`. He
    says "there" where that has the smaller expected loss; `ties` says what he does at equal ones. One
    and two levels are summed exactly. For more, or with `draws`, the levels above are simulated with
    `rng` and the lowest is summed; the error is then a standard error.
    """
    present = _presence(levels, truth, intruder)
    _refuse_unknown_method(method)
    share_of_ties(ties)
    if method == "paper-sampler":
        _refuse_for_sampler(levels, intruder, None)
        return paper_sampler.correct_decision(*_pair(levels), truth, intruder, draws=draws)
    if len(levels) == 1:
        return decision_from_one_level(
            levels[0].noise, intruder=intruder, ties=ties, present=present, losses=losses
        )
    if len(levels) == 2 and draws is None and intruder.certain:
        return two_levels.correct_decision(*_pair(levels), truth, intruder, siblings, ties, losses)
    added = _simulated(levels, truth, intruder, siblings, draws, rng)
    return simulated_decision.correct_decision(levels, truth, intruder, ties, added - losses.bias)


def marginal_risk(
    levels: Sequence[Level],
    *,
    truth: Sequence[int],
    intruder: Intruder,
    siblings: Addition = "convolution",
    draws: int | None = None,
    rng: BitSource | None = None,
) -> Risk:
    """Return his expected posterior over his prior, given the true counts, seeing all levels.

    Two levels are summed exactly; more are simulated, as in `correct_decision`.
    """
    if not _presence(levels, truth, intruder):
        raise InputError("truth: the risk is that of a target who is there; add him to the first")
    if len(levels) == 1:
        return risk_from_one_level(levels[0].noise, intruder=intruder)
    if len(levels) == 2 and draws is None and intruder.certain:
        after = two_levels.expected_posterior(*_pair(levels), truth, intruder, siblings)
    else:
        added = _simulated(levels, truth, intruder, siblings, draws, rng)
        after = simulated_decision.expected_posterior(levels, truth, intruder, added)
    error = None if after.error is None else after.error / intruder.prior
    value = float(after.value)
    return Risk("marginal risk", value / intruder.prior, posterior=value, error=error)


def _simulated(
    levels: Sequence[Level],
    truth: Sequence[int],
    intruder: Intruder,
    siblings: Addition,
    draws: int | None,
    rng: BitSource | None,
) -> FloatArray:
    if rng is None:
        raise InputError(
            f"rng: {len(levels)} levels are simulated; pass rng=Seeded(1), and draws if {_DRAWS:,} are "
            f"too few"
        )

    def steps_of(above: Sequence[int], sums: Sequence[int]) -> Sequence[Step]:
        return _steps(levels, Seen((0, *above), tuple(sums), None), siblings)[0]

    return simulated_decision.log_odds_above(
        levels, truth, intruder, steps_of, _DRAWS if draws is None else draws, rng
    )


def interior_rho(levels: Sequence[Level]) -> Risk:
    """Return the rho that all levels together amount to, where no count is near zero.

    r_l = rho_l + 1/(1/r_{l+1} + d_l/rho_l), rho = 1/(2 sigma²) of each level's noise: at most
    rho_1 (1 + 1/d_1), whatever the levels above spend.
    """
    rates = []
    for level in levels:
        if not isinstance(level.noise, DiscreteGaussian):
            raise InputError(
                f"the interior limit is that of Gaussian noise, not {level.noise.name}"
            )
        rates.append(1 / (2 * level.noise.sigma2))
    total = rates[-1]
    for level, rate in zip(levels[-2::-1], rates[-2::-1], strict=True):
        total = rate + 1 / (1 / total + Fraction(level.siblings) / rate)
    return Risk("effective rho", float(total))


def _checked(
    levels: Sequence[Level],
    observed: Sequence[int],
    sums: Sequence[int] | None,
    values: Sequence[Sequence[int]] | None,
) -> Seen:
    if not levels or len(observed) != len(levels):
        raise InputError(
            f"observed: has {len(observed)} counts for {len(levels)} levels; give one each"
        )
    if sums is not None and values is not None:
        raise InputError("give sibling_sums or sibling_values, not both")
    given = values if sums is None else sums
    if given is not None and len(given) != len(levels) - 1:
        raise InputError(
            f"siblings: {len(given)} given for {len(levels)} levels; give one each but for the highest"
        )
    for level in levels[:-1] if values is not None else ():
        if not isinstance(level.prior, Flat | Exactly):
            raise InputError(
                "prior: beside siblings one by one it is flat or a known count; give sibling_prior"
            )
    for level, item in zip(levels, values or (), strict=False):
        if len(item) != level.siblings:
            raise InputError(
                f"sibling_values: {len(item)} values for a level of {level.siblings} siblings"
            )
    return Seen(
        _whole(observed),
        None if sums is None else _whole(sums),
        None if values is None else tuple(_whole(item) for item in values),
    )


def _whole(counts: Sequence[int]) -> tuple[int, ...]:
    """Return released counts; refuse what is not a whole number."""
    for count in counts:
        if not np.isfinite(count) or count != math.floor(count):
            raise InputError(
                f"observed: {count} is not allowed; a released count is a whole number"
            )
    return tuple(int(count) for count in counts)


def _steps(levels: Sequence[Level], seen: Seen, siblings: Addition) -> tuple[list[Step], list[int]]:
    """Return the steps up the chain, and the number of steps that lead to each level."""
    steps: list[Step] = []
    ends = [0]
    for number, (below, above) in enumerate(pairwise(levels)):
        fit = _evidence(above.noise.log_pmf, seen.observed[number + 1], above.noise.variance)
        if below.siblings == 0:
            steps.append(Step(None, fit, below.prior, alone=True))
        elif seen.values is not None:
            for place, value in enumerate(seen.values[number]):
                move = _evidence(below.noise.log_pmf, value, below.noise.variance)
                last = place == below.siblings - 1
                prior = below.prior if last else FLAT
                steps.append(Step(move, fit if last else None, prior, below.sibling_prior))
        else:
            move = None
            if seen.sums is not None:
                law = SummedNoise(below.noise, below.siblings, siblings)
                move = _evidence(law.log_pmf, seen.sums[number], law.variance)
            steps.append(Step(move, fit, below.prior))
        ends.append(len(steps))
    return steps, ends


def _evidence(
    log_pmf: Callable[[FloatArray], FloatArray], observed: int, variance: float
) -> Evidence:
    return Evidence(lambda x: log_pmf(observed - x), float(observed), variance)


def _presence(levels: Sequence[Level], truth: Sequence[int], intruder: Intruder) -> bool:
    """Return whether the truth has the target; refuse one that cannot be."""
    if len(truth) != len(levels):
        raise InputError(f"truth: has {len(truth)} counts for {len(levels)} levels; give one each")
    if any(a > b for a, b in pairwise(truth)):
        raise InputError("truth: counts must not fall from a level to the one above it")
    for level, (below, above) in zip(levels, pairwise(truth), strict=False):
        if level.siblings == 0 and below != above:
            raise InputError("truth: a unit without siblings has the count of its parent")
    there = [int(x) for x in intruder.counts(there=True)]
    away = [int(x) for x in intruder.counts(there=False)]
    if not intruder.certain:
        raise InputError(
            "others: decisions with several levels are for an intruder who knows all others, and of no "
            "public bound on the count"
        )
    if truth[0] not in there + away:
        raise InputError(
            f"truth: the lowest count is {truth[0]}; with {away[0]} known it is {away[0]} or {there[0]}"
        )
    return truth[0] in there


def _refuse_for_sampler(levels: Sequence[Level], intruder: Intruder, seen: Seen | None) -> None:
    plain = len(levels) == 2 and isinstance(levels[0].prior, Flat) and intruder.rows == 1
    if not plain or not intruder.certain or (seen is not None and seen.sums is None):
        raise InputError(
            "method: the paper's sampler is for two levels with a flat prior, a target of one row, and "
            'the sum of the siblings; use method="exact"'
        )


def _refuse_unknown_method(method: str) -> None:
    if method not in ("exact", "paper-sampler"):
        raise InputError(f'method: {method!r} is not known; choose "exact" or "paper-sampler"')


def _pair(levels: Sequence[Level]) -> tuple[Level, Level]:
    return levels[0], levels[1]


def _triple(seen: Seen) -> tuple[int, int, int]:
    assert seen.sums is not None
    return seen.observed[0], seen.observed[1], seen.sums[0]
