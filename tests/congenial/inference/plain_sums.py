"""The posterior by plain loops over all tables and scipy's own laws: the truth for small cases."""

import math
from functools import cache
from itertools import product

import numpy as np
from scipy import stats

from countveil import congenial
from countveil.congenial import DirichletMultinomial, Wasserstein

TOTAL = 8


def loss_of(mechanism, apart):
    apart = np.asarray(apart, float).ravel()
    if mechanism.loss == "L1":
        return np.abs(apart).sum()
    square = (apart**2).sum()
    return np.sqrt(square) if mechanism.loss == "L2" else square


def releases(mechanism, places, total):
    """All congenial releases."""
    for cases in product(range(total + 1), repeat=places):
        if sum(cases) != total or any(
            sum(cases[i] for i in group.members) != group.total for group in mechanism.subtotals
        ):
            continue
        if not mechanism.deaths:
            yield np.array(cases)[:, None]
            continue
        for deaths in product(*(range(count + 1) for count in cases)):
            yield np.stack((cases, deaths), axis=1)


def weight(mechanism, release, table):
    """Base measure times exp(-rate·loss), written independently."""
    result = np.exp(-float(mechanism.rate) * loss_of(mechanism, release - table))
    if mechanism.prior is not None:
        a = [
            float(mechanism.prior.alpha * x + mechanism.prior.pseudo_count)
            for x in mechanism.prior.previous
        ]
        result *= math.prod(
            math.gamma(k + v) / (math.gamma(v) * math.factorial(k))
            for k, v in zip(release[:, 0].tolist(), a, strict=True)
        )
    return result


def density(mechanism, release, table):
    if mechanism.base == "naive":
        return weight(mechanism, release, table)  # the normalizer is the same for all tables
    return weight(mechanism, release, table) / normalizer(mechanism, table.shape, table.tobytes())


@cache
def normalizer(mechanism, shape, table):
    table = np.frombuffer(table, dtype=np.int64).reshape(shape)
    return sum(
        weight(mechanism, other, table) for other in releases(mechanism, shape[0], mechanism.total)
    )


def prior_and_laws(model, table, facts_total):
    """Yield the probability of a table and each parameter's law, for every shared mean and shape."""
    cases = table[:, 0]
    places = len(cases)
    if isinstance(model, congenial.GammaPoisson):
        a, b = (np.broadcast_to(v, places) for v in (model.shape, model.rate))
        e = np.broadcast_to(1.0 if model.exposure is None else model.exposure, places)
        probability = np.prod(
            [stats.nbinom(a[j], b[j] / (b[j] + e[j])).pmf(cases[j]) for j in range(places)]
        )
        yield (
            probability,
            [stats.gamma(a[j] + cases[j], scale=1 / (b[j] + e[j])) for j in range(places)],
        )
    elif isinstance(model, congenial.BetaBinomial):
        a, b, n = (np.broadcast_to(v, places) for v in (model.a, model.b, model.trials))
        probability = np.prod(
            [stats.betabinom(n[j], a[j], b[j]).pmf(cases[j]) for j in range(places)]
        )
        yield (
            probability,
            [stats.beta(a[j] + cases[j], b[j] + max(n[j] - cases[j], 0)) for j in range(places)],
        )
    elif isinstance(model, congenial.DirichletMultinomialShares):
        a = np.broadcast_to(model.alpha, places).astype(float)
        probability = stats.dirichlet_multinomial(a, int(cases.sum())).pmf(cases)
        whole = a.sum() + cases.sum()
        yield (
            probability,
            [stats.beta(a[j] + cases[j], whole - a[j] - cases[j]) for j in range(places)],
        )
    elif isinstance(model, congenial.SmallAreaRates):
        e = np.broadcast_to(model.exposure, places)
        for mean, shape in zip(model.means, model.shapes, strict=True):
            b = shape / mean
            probability = np.prod(
                [stats.nbinom(shape, b / (b + e[j])).pmf(cases[j]) for j in range(places)]
            )
            yield (
                probability / len(model.means),
                [stats.gamma(shape + cases[j], scale=1 / (b + e[j])) for j in range(places)],
            )
    else:
        a, b = (np.broadcast_to(v, places) for v in (model.a, model.b))
        dead = table[:, 1]
        for probability, laws in prior_and_laws(model.cases, table[:, :1], facts_total):
            deaths = np.prod(
                [stats.betabinom(cases[j], a[j], b[j]).pmf(dead[j]) for j in range(places)]
            )
            if not isinstance(model, congenial.CaseRates):
                laws = [
                    stats.beta(a[j] + dead[j], b[j] + cases[j] - dead[j]) for j in range(places)
                ]
            yield probability * deaths, laws


def posterior(model, released, mechanism, tables):
    """Return mean and variance of every parameter, and the means of the counts."""
    released = np.asarray(released).reshape(len(released), -1)
    weights, means, squares, counts = [], [], [], []
    for table in tables:
        noise = density(mechanism, released, table)
        for probability, laws in prior_and_laws(model, table, mechanism.total):
            weights.append(noise * probability)
            means.append([law.mean() for law in laws])
            squares.append([law.var() + law.mean() ** 2 for law in laws])
            counts.append(table)
    weights = np.array(weights) / np.sum(weights)
    mean = weights @ np.array(means)
    return mean, weights @ np.array(squares) - mean**2, np.tensordot(weights, np.array(counts), 1)


def all_tables(places, total, *, deaths=False, upper=None, subtotals=()):
    """All tables of counts that agree with the facts."""
    for cases in product(range(total + 1), repeat=places):
        if sum(cases) != total or (
            upper is not None and any(c > u for c, u in zip(cases, upper, strict=True))
        ):
            continue
        if any(sum(cases[i] for i in members) != value for members, value in subtotals):
            continue
        if not deaths:
            yield np.array(cases)[:, None]
            continue
        for dead in product(*(range(count + 1) for count in cases)):
            yield np.stack((cases, dead), axis=1)


MODELS = {
    "rates": congenial.GammaPoisson(shape=[1.5, 2.0, 0.7], rate=0.3, exposure=[1.0, 2.0, 0.5]),
    "binomial": congenial.BetaBinomial(a=1.2, b=[2.0, 3.0, 4.0], trials=[5, 30, 14]),
    "shares": congenial.DirichletMultinomialShares(alpha=[0.6, 2.0, 1.0]),
    "small areas": congenial.SmallAreaRates(exposure=[1.0, 2.0, 0.5], mean=3.0, steps=2),
}
CASES = congenial.CaseRates(a=1.0, b=3.0, cases=congenial.GammaPoisson(shape=1.5, rate=0.5))
DEATHS = congenial.DeathRates(a=1.0, b=3.0, cases=congenial.GammaPoisson(shape=1.5, rate=0.5))


def mechanisms(*, deaths=False, total=TOTAL, places=3):
    previous = [4, 1, 7][:places]
    prior = DirichletMultinomial(previous, alpha="1/2", pseudo_count="1/2")
    common = {"total": total, "deaths": deaths}
    return {
        "L1 naive": Wasserstein(loss="L1", epsilon="1", base="naive", **common),
        "L2 naive": Wasserstein(loss="L2", epsilon="1", base="naive", **common),
        "L1 congenial": Wasserstein(loss="L1", epsilon="1", **common),
        "L2 congenial": Wasserstein(loss="L2", epsilon="1", **common),
        "squared L2 congenial": Wasserstein(loss="squared L2", epsilon="3", **common),
        "L1 prior": Wasserstein(loss="L1", epsilon="1", prior=prior, **common),
        "squared L2 prior": Wasserstein(loss="squared L2", epsilon="3", prior=prior, **common),
    }
