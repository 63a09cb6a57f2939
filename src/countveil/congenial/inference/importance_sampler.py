"""Algorithm 2 of paper 003, corrected: draws weighted by the density of the release.

Parameters are drawn from g, and tables from the model given them and the public facts. A draw has the
weight f(y | x)·π(θ | Z)/g(θ). Without a proposal, g is π(θ | Z) itself.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from countveil.base.numerics import FloatArray, IntArray
from countveil.congenial.inference.count_models import (
    BetaBinomial,
    DirichletMultinomialShares,
    GammaPoisson,
    Model,
    ProposalModel,
)
from countveil.congenial.inference.posterior_problem import PosteriorProblem
from countveil.congenial.inference.posterior_result import Posterior
from countveil.congenial.inference.rejection_sampler import TablePrior
from countveil.congenial.inference.tables_given_sums import weights_from_logs
from countveil.errors import InputError

_MOST_PRODUCTS = 20_000_000_000


def importance_posterior(
    problem: PosteriorProblem, *, draws: int, seed: int, proposal: Model | None = None
) -> Posterior:
    """Return weighted draws and their effective sample size."""
    rng = np.random.default_rng(seed)
    prior = TablePrior(problem)
    if proposal is None:
        tables, points = prior.draw(draws, rng)
        parameters = problem.model.draw(tables, points, rng)
        log_ratios = np.zeros(draws)
    else:
        tables, parameters, log_ratios = _from_proposal(problem, proposal, draws, rng)
    weights = weights_from_logs(log_ratios + prior.log_densities(tables))
    mean = (weights[:, None] * parameters).sum(axis=0)
    counts = (weights[:, None, None] * tables).sum(axis=0)
    return Posterior(
        method="importance",
        parameter=problem.model.parameter,
        exact=False,
        mean=mean,
        variance=(weights[:, None] * (parameters - mean) ** 2).sum(axis=0),
        counts=counts if problem.deaths else counts[:, 0],
        draws=parameters[None],
        weights=weights,
        effective_sample_size=float(1 / (weights**2).sum()),
    )


class _ProposalDraws(NamedTuple):
    tables: IntArray
    parameters: FloatArray
    log_ratios: FloatArray  # log π(θ | Z)/g(θ), up to a constant


def _from_proposal(
    problem: PosteriorProblem, proposal: Model, draws: int, rng: np.random.Generator
) -> _ProposalDraws:
    """Draw parameters from g, and tables given them."""
    model = problem.model
    kinds = (GammaPoisson, BetaBinomial, DirichletMultinomialShares)
    if not isinstance(model, kinds) or type(proposal) is not type(model):
        raise InputError(
            "proposal: give a GammaPoisson, BetaBinomial or DirichletMultinomialShares of the same "
            "kind as the model, with other numbers"
        )
    proposal.check(problem.facts, deaths=False)
    if problem.facts.free:
        raise InputError('proposal: a proposal needs a public total; give public={"total": …}')
    parameters = proposal.prior_draw(draws, problem.places, rng)
    log_ratios = model.log_prior(parameters) - proposal.log_prior(parameters)
    tables = np.zeros((draws, problem.places, 1), dtype=np.int64)
    for group in problem.facts.groups:
        members = list(group.members)
        of_group = _draw_given(problem, model, members, group.total, parameters, rng)
        tables[:, members, 0] = of_group.counts
        # π(θ | Z) is the prior times P(Z | θ).
        log_ratios = log_ratios + of_group.log_probabilities
    return _ProposalDraws(tables, parameters, log_ratios)


class _GroupDraws(NamedTuple):
    counts: IntArray  # (draws, members)
    log_probabilities: FloatArray  # log P(sum | parameters) of each draw


def _draw_given(
    problem: PosteriorProblem,
    model: ProposalModel,
    members: list[int],
    total: int,
    parameters: FloatArray,
    rng: np.random.Generator,
) -> _GroupDraws:
    """Draw one table for each row of parameters, given its sum."""
    draws = len(parameters)
    if draws * len(members) * (total + 1) ** 2 > _MOST_PRODUCTS:
        raise InputError(
            f"draws: {draws:,} draws of {len(members)} places with total {total:,} are too many for a "
            f'proposal; draw fewer, or use method="augmented"'
        )
    laws, before = [], [np.zeros((draws, total + 1))]
    before[0][:, 0] = 1.0
    log_scale = np.zeros(draws)
    for place in members:
        top = problem.most(place)
        values = np.arange((total if top is None else min(top, total)) + 1)
        logs = model.log_given(place, values, parameters[:, place])
        peak = logs.max(axis=1, keepdims=True)
        law = np.exp(logs - peak)
        message = np.zeros((draws, total + 1))
        for value in values:
            message[:, value:] += law[:, [value]] * before[-1][:, : total + 1 - value]
        scale = message.max(axis=1, keepdims=True)
        log_scale += (peak + np.log(scale))[:, 0]
        laws.append(law)
        before.append(message / scale)
    counts = np.zeros((draws, len(members)), dtype=np.int64)
    left, rows = np.full(draws, total), np.arange(draws)[:, None]
    for index in range(len(members) - 1, -1, -1):
        law = laws[index]
        rest = left[:, None] - np.arange(law.shape[1])
        weights = np.where(rest >= 0, law * before[index][rows, np.maximum(rest, 0)], 0.0)
        sums = np.cumsum(weights, axis=1)
        levels = rng.random(draws)[:, None] * sums[:, -1:]
        counts[:, index] = (sums <= levels).sum(axis=1)
        left = left - counts[:, index]
    with np.errstate(divide="ignore"):
        log_probability = np.log(before[-1][:, total]) + log_scale
    finite = np.where(np.isfinite(log_probability), log_probability, -math.inf)
    return _GroupDraws(counts, finite)
