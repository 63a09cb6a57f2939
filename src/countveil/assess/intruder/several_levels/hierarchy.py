"""The intruder who sees a cell at every level above it (paper 002, section 3.2), exactly.

X_1 is the count of the target's unit, X_2 = X_1 + the siblings' counts that of its parent, and so on.
The intruder knows X_1 except for their target; above it they know only that counts are not negative,
unless a prior says more. They see every level's noisy count, and the siblings'.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
from scipy.special import logsumexp

from countveil.assess.intruder.decision import (
    EVEN,
    Losses,
    Ties,
    refuse_impossible,
    share_of_ties,
    sigmoid,
)
from countveil.assess.intruder.one_level import correct_decision as decision_from_one_level
from countveil.assess.intruder.one_level import marginal_risk as risk_from_one_level
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.intruder.several_levels import many_levels, paper_sampler, two_levels
from countveil.assess.intruder.several_levels.count_chain import (
    CountLikelihood,
    CountPosterior,
    LevelStep,
    marginal,
    message,
)
from countveil.assess.intruder.several_levels.hierarchy_level import FLAT, Exactly, Flat, Level
from countveil.assess.risk import Risk
from countveil.base.numerics import FloatArray
from countveil.base.randomness import BitSource
from countveil.errors import InputError
from countveil.noise.law import Law
from countveil.noise.summed_noise import Addition, SummedNoise
from countveil.plan.attributes import choices

Method = Literal["exact", "paper-sampler"]


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
    """Return the intruder's probability that their target is counted, after seeing all levels.

    They know everyone else in the lowest unit. They see the noisy count of each level and, at each
    level except the highest, the siblings' noisy counts one by one, their sum, or nothing about them.
    The number is (25) of 002, summed over all counts above.

    Parameters
    ----------
    levels : sequence of Level
        The levels, lowest first.
    observed : sequence of int
        The released count of each level.
    intruder : Intruder
        What they believe and know before the release.
    sibling_sums : sequence of int, optional
        The sum of the siblings' released counts, for each level except the highest.
    sibling_values : sequence of sequences of int, optional
        The siblings' released counts one by one, instead of their sums.
    siblings : {"convolution", "gaussian"}
        How the noise of a sum is computed: exactly, or as the papers approximate it.
    method : {"exact", "paper-sampler"}
        "paper-sampler" is the limit of the sampler behind the paper's figures.

    Returns
    -------
    Risk
        "posterior", with a bound on its error.
    """
    release = _checked(levels, observed, sibling_sums, sibling_values)
    _refuse_unknown_method(method)
    if method == "paper-sampler":
        _refuse_for_sampler(levels, intruder, release)
        value = paper_sampler.joint(*_pair(levels), *_triple(release), intruder).there
        return Risk(
            "posterior, the paper's sampler",
            value,
            posterior=value,
            intruder=intruder,
            noise=_noises(levels),
        )
    steps, _ = _steps(levels, release, siblings)
    there, away = intruder.counts(there=True), intruder.counts(there=False)
    above = message(steps, np.concatenate([there, away]))
    fit = levels[0].noise.log_pmf(release.observed[0] - np.concatenate([there, away]))
    log_evidence = (above.log_values + fit).reshape(2, -1)
    if intruder.certain:  # without cancellation
        e = np.asarray(release.observed[0] - intruder.known - intruder.rows, float)
        with np.errstate(invalid="ignore"):  # neither is possible: refused below
            added = above.log_values[0] - above.log_values[1]
        odds = levels[0].noise.loss_at(e, intruder.rows) + added
    else:
        weights = [intruder.log_weights(there=there) for there in (True, False)]
        log_there, log_away = logsumexp(log_evidence + np.array(weights), axis=1)
        with np.errstate(invalid="ignore"):
            odds = log_there - log_away
    refuse_impossible(odds)
    value = float(sigmoid(np.asarray(intruder.log_odds + odds)))
    return Risk(
        "posterior",
        value,
        posterior=value,
        error_bound=2 * above.error_bound,
        intruder=intruder,
        noise=_noises(levels),
    )


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
) -> CountPosterior:
    """Return the intruder's probability of each count that one level may have.

    They know and see the same as in `posterior`.

    Parameters
    ----------
    levels, observed, intruder, sibling_sums, sibling_values, siblings, method
        As for `posterior`.
    at : int
        The number of the level, 1 being the lowest.

    Returns
    -------
    CountPosterior
        `counts` and `probabilities`, without counts that are impossible.
    """
    release = _checked(levels, observed, sibling_sums, sibling_values)
    if not 1 <= at <= len(levels):
        raise InputError(f"at: {at} is not allowed; levels are numbered from 1 to {len(levels)}")
    _refuse_unknown_method(method)
    if method == "paper-sampler":
        _refuse_for_sampler(levels, intruder, release)
        return paper_sampler.joint(*_pair(levels), *_triple(release), intruder).counts(at)
    steps, ends = _steps(levels, release, siblings)
    counts = np.concatenate([intruder.counts(there=False), intruder.counts(there=True)])
    odds = np.repeat([-intruder.log_odds, 0.0], len(intruder.others))
    log_start = odds + np.concatenate(
        [intruder.log_weights(there=there) for there in (False, True)]
    )
    log_start = log_start + levels[0].noise.log_pmf(release.observed[0] - counts)
    where, weights = marginal(steps, counts, log_start, ends[at - 1])
    possible = weights > 0
    return CountPosterior(where[possible], weights[possible])


def correct_decision(
    levels: Sequence[Level],
    *,
    truth: Sequence[int],
    intruder: Intruder,
    present: bool | None = None,
    siblings: Addition = "convolution",
    ties: Ties = "split",
    losses: Losses = EVEN,
    method: Method = "exact",
    draws: int | None = None,
    rng: BitSource | None = None,
) -> Risk:
    """Return the probability that the intruder guesses correctly, seeing all levels.

    They know everyone else in the lowest unit. They see the noisy count of each level and the sums of
    the siblings' noisy counts, and say "there" where that has the smaller expected loss.

    Parameters
    ----------
    levels : sequence of Level
        The levels, lowest first.
    truth : sequence of int
        The true count of each level; the target is there if the first is `known` + `rows`.
    intruder : Intruder
        What they believe and know before the release.
    present : bool, optional
        Whether the target is counted; needed if they are unsure about others, so that the true count
        does not say it.
    siblings : {"convolution", "gaussian"}
        How the noise of a sum is computed.
    ties : {"split", "yes", "no"}
        What they say when both answers have the same expected loss.
    losses : Losses
        What wrong answers cost them.
    method : {"exact", "paper-sampler"}
        "paper-sampler" is the limit of the sampler behind the paper's figures.
    draws : int, optional
        Simulate the levels above with this many draws, also where they could be summed.
    rng : BitSource, optional
        The randomness of the simulation, needed where it is not summed.

    Returns
    -------
    Risk
        "correct decision", a probability. One and two levels are summed exactly for someone who knows
        everyone else, with an error bound where the sum is thinned. Other cases are exact if the noise
        above the lowest level can take few values, again with a bound; the rest is simulated, with a
        standard error.
    """
    present = _presence(levels, truth, intruder, present)
    _refuse_unknown_method(method)
    share_of_ties(ties)
    if method == "paper-sampler":
        _refuse_for_sampler(levels, intruder, None)
        return paper_sampler.correct_decision(*_pair(levels), truth, intruder, draws=draws)
    if len(levels) == 1 and intruder.certain:
        return decision_from_one_level(
            levels[0].noise, intruder=intruder, ties=ties, present=present, losses=losses
        )
    if len(levels) == 2 and draws is None and intruder.certain:
        return two_levels.correct_decision(*_pair(levels), truth, intruder, siblings, ties, losses)
    above = _above(levels, truth, intruder, siblings, draws, rng)
    return many_levels.correct_decision(levels, truth, present, intruder, ties, losses.bias, above)


def marginal_risk(
    levels: Sequence[Level],
    *,
    truth: Sequence[int],
    intruder: Intruder,
    present: bool | None = None,
    siblings: Addition = "convolution",
    draws: int | None = None,
    rng: BitSource | None = None,
) -> Risk:
    """Return the intruder's expected posterior over their prior, given the true counts.

    They know and see the same as in `correct_decision`, and their target is there. With public bounds
    on the count, the prior is the one that these leave.

    Parameters
    ----------
    levels, truth, intruder, present, siblings, draws, rng
        As for `correct_decision`.

    Returns
    -------
    Risk
        "marginal risk", exact or simulated as `correct_decision` is.
    """
    if not _presence(levels, truth, intruder, present):
        raise InputError(
            "truth: the target is not counted, and this risk is for one who is; add them to the "
            "first count"
        )
    if len(levels) == 1 and intruder.certain:
        return risk_from_one_level(levels[0].noise, intruder=intruder)
    if len(levels) == 2 and draws is None and intruder.certain:
        after = two_levels.expected_posterior(*_pair(levels), truth, intruder, siblings)
    else:
        above = _above(levels, truth, intruder, siblings, draws, rng)
        after = many_levels.expected_posterior(levels, truth, True, intruder, above)
    return _over_prior(after, intruder)


def before_release(
    levels: Sequence[Level],
    *,
    truth: Sequence[int],
    intruders: Sequence[Intruder],
    siblings: Addition = "convolution",
    simulated: int = many_levels.DRAWS,
    rng: BitSource | None = None,
) -> list[tuple[Risk, Risk]]:
    """Return `marginal_risk` and `correct_decision` of intruders who differ in their priors alone.

    What may be released above the lowest level is listed or drawn once for all of them.

    Parameters
    ----------
    levels, truth, siblings, rng
        As for `correct_decision`; the target is there.
    simulated : int
        How many releases are drawn, if they are too many to be listed.
    intruders : sequence of Intruder
        What they believe and know before the release.

    Returns
    -------
    list of (Risk, Risk)
        For each intruder, the expected posterior over the prior, and how often they guess correctly.
    """
    if len(levels) <= 2 and intruders[0].certain:
        return [
            (
                marginal_risk(levels, truth=truth, intruder=who, siblings=siblings),
                correct_decision(levels, truth=truth, intruder=who, siblings=siblings),
            )
            for who in intruders
        ]
    for who in intruders:
        _presence(levels, truth, who, True)
    above = _above(levels, truth, intruders[0], siblings, None, rng, simulated)
    return [
        (
            _over_prior(many_levels.expected_posterior(levels, truth, True, who, above), who),
            many_levels.correct_decision(levels, truth, True, who, "split", EVEN.bias, above),
        )
        for who in intruders
    ]


def interior_rho(levels: Sequence[Level]) -> Risk:
    """Return the rho of one count that reveals as much as all levels, where no count is near zero.

    The intruder knows everyone else in the lowest unit and sees every level's noisy count, and the
    siblings'. r_l = rho_l + 1/(1/r_{l+1} + d_l/rho_l), rho = 1/(2 sigma²) of each level's noise. It is
    at most rho_1 (1 + 1/d_1), however much the levels above spend.

    Parameters
    ----------
    levels : sequence of Level
        The levels, lowest first, all with discrete Gaussian noise.

    Returns
    -------
    Risk
        "effective rho".
    """
    rates = []
    for level in levels:
        variance = level.noise.gaussian_variance
        if variance is None:
            raise InputError(
                f"levels: the interior limit needs discrete Gaussian noise at every level, and one "
                f"has {level.noise.name}"
            )
        rates.append(1 / (2 * variance))
    total = rates[-1]
    for level, rate in zip(levels[-2::-1], rates[-2::-1], strict=True):
        total = rate + 1 / (1 / total + level.siblings / rate)
    return Risk("effective rho", total, noise=_noises(levels))


def _over_prior(after: Risk, intruder: Intruder) -> Risk:
    value, prior = float(after.value), intruder.informed_prior

    def over_prior(error: float | None) -> float | None:
        return None if error is None else error / prior

    return replace(
        after,
        measure="marginal risk",
        value=value / prior,
        posterior=value,
        error_bound=over_prior(after.error_bound),
        standard_error=over_prior(after.standard_error),
    )


@dataclass(frozen=True, slots=True)
class _HierarchyRelease:
    """What is released: a count of each level, and of the siblings their sums or all values."""

    observed: tuple[int, ...]
    sums: tuple[int, ...] | None
    values: tuple[tuple[int, ...], ...] | None


def _noises(levels: Sequence[Level]) -> tuple[Law, ...]:
    return tuple(level.noise for level in levels)


def _above(
    levels: Sequence[Level],
    truth: Sequence[int],
    intruder: Intruder,
    siblings: Addition,
    draws: int | None,
    rng: BitSource | None,
    simulated: int = many_levels.DRAWS,
) -> many_levels.Above:
    """Return what the levels above may add to what the intruder believes."""

    def steps_of(above: Sequence[int], sums: Sequence[int]) -> Sequence[LevelStep]:
        return _steps(levels, _HierarchyRelease((0, *above), tuple(sums), None), siblings)[0]

    return many_levels.released_above(levels, truth, intruder, steps_of, draws, rng, simulated)


def _steps(
    levels: Sequence[Level], release: _HierarchyRelease, siblings: Addition
) -> tuple[list[LevelStep], list[int]]:
    """Return the steps up the chain, and the number of steps that lead to each level."""
    steps: list[LevelStep] = []
    ends = [0]
    for number, (below, above) in enumerate(pairwise(levels)):
        fit = _likelihood(above.noise.log_pmf, release.observed[number + 1], above.noise.variance)
        if below.siblings == 0:
            steps.append(LevelStep(None, fit, below.prior, alone=True))
        elif release.values is not None:
            for place, value in enumerate(release.values[number]):
                move = _likelihood(below.noise.log_pmf, value, below.noise.variance)
                last = place == below.siblings - 1
                prior = below.prior if last else FLAT
                steps.append(LevelStep(move, fit if last else None, prior, below.sibling_prior))
        else:
            move = None
            if release.sums is not None:
                law = SummedNoise(below.noise, below.siblings, siblings)
                move = _likelihood(law.log_pmf, release.sums[number], law.variance)
            steps.append(LevelStep(move, fit, below.prior))
        ends.append(len(steps))
    return steps, ends


def _likelihood(
    log_pmf: Callable[[FloatArray], FloatArray], observed: int, variance: float
) -> CountLikelihood:
    return CountLikelihood(lambda x: log_pmf(observed - x), float(observed), variance)


def _checked(
    levels: Sequence[Level],
    observed: Sequence[int],
    sums: Sequence[int] | None,
    values: Sequence[Sequence[int]] | None,
) -> _HierarchyRelease:
    if not levels or len(observed) != len(levels):
        raise InputError(
            f"observed: got {len(observed)} counts for {len(levels)} levels; give one for each level"
        )
    if sums is not None and values is not None:
        raise InputError("sibling_sums, sibling_values: got both; give only one of them")
    siblings = values if sums is None else sums
    if siblings is not None and len(siblings) != len(levels) - 1:
        raise InputError(
            f"sibling_sums, sibling_values: got {len(siblings)} for {len(levels)} levels; give "
            f"one for each level except the highest"
        )
    for level in levels[:-1] if values is not None else ():
        if not isinstance(level.prior, Flat | Exactly):
            raise InputError(
                f"prior: {level.prior!r} is not allowed where siblings are seen one by one; use "
                f"Flat or Exactly, and sibling_prior for what is believed about each sibling"
            )
    for level, item in zip(levels, values or (), strict=False):
        if len(item) != level.siblings:
            raise InputError(
                f"sibling_values: got {len(item)} values for a level with {level.siblings} "
                f"siblings; give one each"
            )
    return _HierarchyRelease(
        _whole(observed),
        None if sums is None else _whole(sums),
        None if values is None else tuple(_whole(item) for item in values),
    )


def _whole(counts: Sequence[int]) -> tuple[int, ...]:
    """Return released counts; refuse anything but whole numbers."""
    for count in counts:
        if not np.isfinite(count) or count != math.floor(count):
            raise InputError(
                f"observed: {count} is not allowed; a released count is a whole number"
            )
    return tuple(int(count) for count in counts)


def _presence(
    levels: Sequence[Level], truth: Sequence[int], intruder: Intruder, present: bool | None
) -> bool:
    """Return whether the truth includes the target; refuse an impossible one."""
    if len(truth) != len(levels):
        raise InputError(f"truth: got {len(truth)} counts for {len(levels)} levels; give one each")
    if any(a > b for a, b in pairwise(truth)):
        raise InputError(
            "truth: a count is larger than the one above it; a parent includes its children"
        )
    for level, (below, above) in zip(levels, pairwise(truth), strict=False):
        if level.siblings == 0 and below != above:
            raise InputError("truth: a unit without siblings has the count of its parent")
    possible = {
        there: intruder.counts(there=there)[np.isfinite(intruder.log_weights(there=there))]
        for there in (True, False)
    }
    fits = [there for there, counts in possible.items() if truth[0] in counts]
    if present is not None and present in fits:
        return present
    if present is not None or not fits:
        every = sorted({int(count) for counts in possible.values() for count in counts})
        argument = "" if present is None else f", present={present}"
        raise InputError(
            f"truth: the lowest count is {truth[0]}{argument}; what they know allows "
            f"{choices(map(str, every))}"
        )
    if len(fits) > 1:
        raise InputError(
            f"present: missing; a count of {truth[0]} is possible with the target and without; say "
            f"which, present=True or present=False"
        )
    return fits[0]


def _refuse_for_sampler(
    levels: Sequence[Level], intruder: Intruder, release: _HierarchyRelease | None
) -> None:
    plain = len(levels) == 2 and isinstance(levels[0].prior, Flat) and intruder.rows == 1
    if not plain or not intruder.certain or (release is not None and release.sums is None):
        raise InputError(
            "method: the paper's sampler is for two levels with a flat prior, a target of one row, and "
            'the sum of the siblings; use method="exact"'
        )


def _refuse_unknown_method(method: str) -> None:
    if method not in ("exact", "paper-sampler"):
        raise InputError(f'method: unknown method {method!r}; choose "exact" or "paper-sampler"')


def _pair(levels: Sequence[Level]) -> tuple[Level, Level]:
    return levels[0], levels[1]


def _triple(release: _HierarchyRelease) -> tuple[int, int, int]:
    assert release.sums is not None
    return release.observed[0], release.observed[1], release.sums[0]
