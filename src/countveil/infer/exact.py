"""The exact posterior: a finite mixture, over the counts that may have been, of Gamma or Beta laws.

A parameter depends on the release only through the count of its place, so all that is summed for is the
law of each count. Where the normaliser of the mechanism is constant and its loss a sum over counts,
messages passed along the places give it for large tables; otherwise all tables are listed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from countveil.errors import InputError
from countveil.infer.conditional_tables import conditional_tables, normalized
from countveil.infer.evidence import Evidence
from countveil.infer.listing import listed_tables, log_densities
from countveil.infer.mixture import Mixture
from countveil.infer.result import Posterior
from countveil.numerics import FloatArray


@dataclass(frozen=True, eq=False, slots=True)
class CountLaws:
    """The chances of the shared parameters' points, and of every place's count at each point."""

    points: FloatArray
    laws: tuple[tuple[FloatArray, ...], ...]  # [point][place]: (cases[, deaths])
    log_evidence: float


def exact_posterior(evidence: Evidence) -> Posterior:
    """Return the mixtures."""
    found = count_laws(evidence)
    mixtures, counts = [], np.zeros(evidence.released.shape)
    for place in range(evidence.places):
        parts = []
        for point, weight in enumerate(found.points):
            if weight == 0:
                continue
            law = found.laws[point][place]
            at = np.nonzero(law)
            cases, deaths = at[0], at[-1]
            chances = weight * law[at]
            family, first, second = evidence.model.law(place, cases, deaths, point, evidence.facts)
            parts.append((first, second, chances))
            counts[place, 0] += float((chances * cases).sum())
            if evidence.deaths:
                counts[place, 1] += float((chances * deaths).sum())
        first, second, chances = (np.concatenate(column) for column in zip(*parts, strict=True))
        mixtures.append(Mixture(family, first, second, chances / chances.sum()))
    return Posterior(
        method="exact",
        parameter=evidence.model.parameter,
        exact=True,
        mean=np.array([mixture.mean for mixture in mixtures]),
        variance=np.array([mixture.variance for mixture in mixtures]),
        counts=counts if evidence.deaths else counts[:, 0],
        mixtures=tuple(mixtures),
        log_evidence=found.log_evidence,
        points=found.points,
    )


def count_laws(evidence: Evidence) -> CountLaws:
    """Return the law of every count given the release and the facts."""
    if evidence.mechanism.constant_normalizer and evidence.separable:
        return _by_messages(evidence)
    return _by_listing(evidence)


def _by_messages(evidence: Evidence) -> CountLaws:
    log_points = evidence.model.log_points
    logs, facts, laws = [], [], []
    for point in range(len(log_points)):
        joint = conditional_tables(evidence, point, noisy=True)
        logs.append(log_points[point] + joint.log_chance)
        facts.append(
            log_points[point] + conditional_tables(evidence, point, noisy=False).log_chance
        )
        laws.append(tuple(joint.marginals()))
    # The release's own probability: that of release and facts over that of the facts.
    log_evidence = float(np.logaddexp.reduce(logs) - np.logaddexp.reduce(facts))
    log_evidence -= evidence.mechanism.log_normalizer(np.zeros_like(evidence.released))
    return CountLaws(normalized(np.array(logs)), tuple(laws), log_evidence)


def _by_listing(evidence: Evidence) -> CountLaws:
    if evidence.facts.free:
        raise InputError(
            "public: tables without a public total are not finite in number, and this mechanism's loss "
            'is no sum over counts; give public={"total": …}'
        )
    tables = listed_tables(evidence)
    log_noise = log_densities(evidence, tables)
    log_points = evidence.model.log_points
    logs, facts, laws = [], [], []
    for point in range(len(log_points)):
        log_tables = [
            evidence.log_table(place, point, noisy=False) for place in range(evidence.places)
        ]
        log_prior = np.zeros(len(tables))
        for place, log_table in enumerate(log_tables):
            log_prior += log_table[tuple(tables[:, place, :].T)]
        joint = log_prior + log_noise
        top = float(joint.max())
        chances = np.exp(joint - top)
        logs.append(log_points[point] + top + math.log(float(chances.sum())))
        facts.append(log_points[point] + float(np.logaddexp.reduce(log_prior)))
        chances /= chances.sum()
        places = []
        for place, log_table in enumerate(log_tables):
            law = np.zeros(log_table.shape)
            np.add.at(law, tuple(tables[:, place, :].T), chances)
            places.append(law)
        laws.append(tuple(places))
    log_evidence = float(np.logaddexp.reduce(logs) - np.logaddexp.reduce(facts))
    return CountLaws(normalized(np.array(logs)), tuple(laws), log_evidence)
