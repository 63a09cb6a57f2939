"""The exact posterior: a finite mixture of Gamma or Beta laws, over the counts that are possible.

A parameter depends on the release only through the count of its place, so only the law of each count
has to be summed. If the mechanism's normalizer is constant and its loss is a sum over counts, messages
along the places give that law for large tables; otherwise all tables are listed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from countveil.base.numerics import FloatArray
from countveil.congenial.inference.mixture import Mixture
from countveil.congenial.inference.posterior_problem import PosteriorProblem
from countveil.congenial.inference.posterior_result import Posterior
from countveil.congenial.inference.table_listing import list_tables, log_densities
from countveil.congenial.inference.tables_given_sums import ConditionalTables, weights_from_logs
from countveil.errors import InputError


@dataclass(frozen=True, eq=False, slots=True)
class CountLaws:
    """The probability of each point of the shared parameters, and of each place's counts there."""

    points: FloatArray
    laws: tuple[tuple[FloatArray, ...], ...]  # [point][place]: (cases[, deaths])
    log_evidence: float


def exact_posterior(problem: PosteriorProblem) -> Posterior:
    """Return the posterior as mixtures, one per place."""
    of_counts = count_laws(problem)
    mixtures, counts = [], np.zeros(problem.released.shape)
    for place in range(problem.places):
        parts = []
        for point, weight in enumerate(of_counts.points):
            if weight == 0:
                continue
            law = of_counts.laws[point][place]
            at = np.nonzero(law)
            cases, deaths = at[0], at[-1]
            weights = weight * law[at]
            family, first, second = problem.model.law(place, cases, deaths, point, problem.facts)
            parts.append((first, second, weights))
            counts[place, 0] += float((weights * cases).sum())
            if problem.deaths:
                counts[place, 1] += float((weights * deaths).sum())
        first, second, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
        mixtures.append(Mixture(family, first, second, weights / weights.sum()))
    return Posterior(
        method="exact",
        parameter=problem.model.parameter,
        exact=True,
        mean=np.array([mixture.mean for mixture in mixtures]),
        variance=np.array([mixture.variance for mixture in mixtures]),
        counts=counts if problem.deaths else counts[:, 0],
        mixtures=tuple(mixtures),
        log_evidence=of_counts.log_evidence,
        points=of_counts.points,
    )


def count_laws(problem: PosteriorProblem) -> CountLaws:
    """Return the law of every count given the release and the facts."""
    if problem.mechanism.constant_normalizer and problem.separable:
        return _by_messages(problem)
    return _by_listing(problem)


def _by_messages(problem: PosteriorProblem) -> CountLaws:
    log_points = problem.model.log_points
    logs, log_facts, laws = [], [], []
    for point in range(len(log_points)):
        joint = ConditionalTables.of(problem, point, noisy=True)
        facts_alone = ConditionalTables.of(problem, point, noisy=False)
        logs.append(log_points[point] + joint.log_probability)
        log_facts.append(log_points[point] + facts_alone.log_probability)
        laws.append(tuple(joint.marginals()))
    # The probability of the release is that of release and facts over that of the facts.
    log_evidence = float(np.logaddexp.reduce(logs) - np.logaddexp.reduce(log_facts))
    log_evidence -= problem.mechanism.log_normalizer(np.zeros_like(problem.released))
    return CountLaws(weights_from_logs(np.array(logs)), tuple(laws), log_evidence)


def _by_listing(problem: PosteriorProblem) -> CountLaws:
    if problem.facts.free:
        raise InputError(
            "public: without a public total there are infinitely many tables, and this mechanism's "
            'loss is not a sum over counts; give public={"total": …}'
        )
    tables = list_tables(problem)
    log_noise = log_densities(problem, tables)
    log_points = problem.model.log_points
    logs, log_facts, laws = [], [], []
    for point in range(len(log_points)):
        log_tables = [
            problem.log_table(place, point, noisy=False) for place in range(problem.places)
        ]
        log_prior = np.zeros(len(tables))
        for place, log_table in enumerate(log_tables):
            log_prior += log_table[tuple(tables[:, place, :].T)]
        joint = log_prior + log_noise
        top = float(joint.max())
        weights = np.exp(joint - top)
        logs.append(log_points[point] + top + math.log(float(weights.sum())))
        log_facts.append(log_points[point] + float(np.logaddexp.reduce(log_prior)))
        weights /= weights.sum()
        places = []
        for place, log_table in enumerate(log_tables):
            law = np.zeros(log_table.shape)
            np.add.at(law, tuple(tables[:, place, :].T), weights)
            places.append(law)
        laws.append(tuple(places))
    log_evidence = float(np.logaddexp.reduce(logs) - np.logaddexp.reduce(log_facts))
    return CountLaws(weights_from_logs(np.array(logs)), tuple(laws), log_evidence)
