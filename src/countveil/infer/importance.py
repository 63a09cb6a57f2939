"""Algorithm 2 of paper 003, corrected: draws are weighed by the density of the release.

Parameters are drawn from g, tables from the model given them and the public facts, and a draw weighs
f(y | x)·π(θ | Z)/g(θ). Without a proposal g is π(θ | Z) itself.
"""

from __future__ import annotations

import math

import numpy as np

from countveil.errors import InputError
from countveil.infer.beta_binomial import BetaBinomial
from countveil.infer.conditional_tables import normalized
from countveil.infer.evidence import Evidence
from countveil.infer.gamma_poisson import GammaPoisson
from countveil.infer.model import Model, Single
from countveil.infer.rejection import Proposals
from countveil.infer.result import Posterior
from countveil.infer.shares import DirichletMultinomialShares
from countveil.numerics import FloatArray, IntArray

_MOST_PRODUCTS = 20_000_000_000


def importance_posterior(
    evidence: Evidence, *, draws: int, seed: int, proposal: Model | None = None
) -> Posterior:
    """Return weighted draws and what they are worth."""
    rng = np.random.default_rng(seed)
    proposals = Proposals(evidence)
    if proposal is None:
        tables, points = proposals.draw(draws, rng)
        parameters = evidence.model.draw(tables, points, rng)
        log_ratios = np.zeros(draws)
    else:
        tables, parameters, log_ratios = _from_proposal(evidence, proposal, draws, rng)
    weights = normalized(log_ratios + proposals.log_densities(tables))
    mean = (weights[:, None] * parameters).sum(axis=0)
    counts = (weights[:, None, None] * tables).sum(axis=0)
    return Posterior(
        method="importance",
        parameter=evidence.model.parameter,
        exact=False,
        mean=mean,
        variance=(weights[:, None] * (parameters - mean) ** 2).sum(axis=0),
        counts=counts if evidence.deaths else counts[:, 0],
        draws=parameters[None],
        weights=weights,
        effective_sample_size=float(1 / (weights**2).sum()),
    )


def _from_proposal(
    evidence: Evidence, proposal: Model, draws: int, rng: np.random.Generator
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Draw parameters from g and tables given them; return log π(θ | Z)/g(θ) up to a constant."""
    model = evidence.model
    kinds = (GammaPoisson, BetaBinomial, DirichletMultinomialShares)
    if not isinstance(model, kinds) or type(proposal) is not type(model):
        raise InputError(
            "proposal: it is a GammaPoisson, BetaBinomial or DirichletMultinomialShares with other "
            "numbers than the model, which is of the same kind"
        )
    proposal.check(evidence.facts, deaths=False)
    if evidence.facts.free:
        raise InputError(
            'proposal: tables are drawn beside a public total; give public={"total": …}'
        )
    parameters = proposal.prior_draw(draws, evidence.places, rng)
    log_ratios = model.log_prior(parameters) - proposal.log_prior(parameters)
    tables = np.zeros((draws, evidence.places, 1), dtype=np.int64)
    for group in evidence.facts.groups:
        members = list(group.members)
        drawn, log_chance = _draw_given(evidence, model, members, group.total, parameters, rng)
        tables[:, members, 0] = drawn
        log_ratios = log_ratios + log_chance  # π(θ | Z) is the prior times P(Z | θ)
    return tables, parameters, log_ratios


def _draw_given(
    evidence: Evidence,
    model: Single,
    members: list[int],
    total: int,
    parameters: FloatArray,
    rng: np.random.Generator,
) -> tuple[IntArray, FloatArray]:
    """Draw one table for each row of parameters given its sum, and return log P(sum | parameters)."""
    draws = len(parameters)
    if draws * len(members) * (total + 1) ** 2 > _MOST_PRODUCTS:
        raise InputError(
            f"draws: {draws:,} draws of {len(members)} places with total {total:,} are too many for a "
            f'proposal; take fewer, or use method="augmented"'
        )
    laws, before = [], [np.zeros((draws, total + 1))]
    before[0][:, 0] = 1.0
    log_scale = np.zeros(draws)
    for place in members:
        top = evidence.most(place)
        counts = np.arange((total if top is None else min(top, total)) + 1)
        logs = model.log_given(place, counts, parameters[:, place])
        peak = logs.max(axis=1, keepdims=True)
        law = np.exp(logs - peak)
        message = np.zeros((draws, total + 1))
        for count in counts:
            message[:, count:] += law[:, [count]] * before[-1][:, : total + 1 - count]
        scale = message.max(axis=1, keepdims=True)
        log_scale += (peak + np.log(scale))[:, 0]
        laws.append(law)
        before.append(message / scale)
    drawn = np.zeros((draws, len(members)), dtype=np.int64)
    left, rows = np.full(draws, total), np.arange(draws)[:, None]
    for index in range(len(members) - 1, -1, -1):
        law = laws[index]
        rest = left[:, None] - np.arange(law.shape[1])
        chances = np.where(rest >= 0, law * before[index][rows, np.maximum(rest, 0)], 0.0)
        sums = np.cumsum(chances, axis=1)
        levels = rng.random(draws)[:, None] * sums[:, -1:]
        drawn[:, index] = (sums <= levels).sum(axis=1)
        left = left - drawn[:, index]
    with np.errstate(divide="ignore"):
        log_chance = np.log(before[-1][:, total]) + log_scale
    return drawn, np.where(np.isfinite(log_chance), log_chance, -math.inf)
