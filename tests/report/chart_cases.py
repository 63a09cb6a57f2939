"""One result of every kind, and its chart: what tests of charts draw."""

from fractions import Fraction
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
from tests.conftest import TINY_PLACES, TINY_PLAN

from countveil import (
    DiscreteGaussian,
    Intruder,
    Laplace,
    Plan,
    Seeded,
    assess,
)
from countveil.assess import Level, homogeneity
from countveil.assess.choose.split_comparison import compare_splits
from countveil.assess.empirical_loss import kde
from countveil.assess.empirical_loss.residual_values import gathered
from countveil.assess.homogeneity.group_risk import homogeneity_by_size
from countveil.assess.intruder.ladder import risk_by_level
from countveil.assess.intruder.several_levels import hierarchy
from countveil.assess.risk_maps import RiskMap
from countveil.estimate import AreaEstimates
from countveil.estimate.errors_by_level import LevelError
from countveil.estimate.plan_error import expected_error
from countveil.estimate.release_error import Accuracy
from countveil.papers import liu_zhao
from countveil.report import charts

SEEN = list(range(-4, 7))
RHOS = ["0.01", "0.1", "0.5", "1", "2.56", "6"]
PRIORS = (0.5, 0.2, 0.02)
INTRUDERS = [Intruder(prior=prior) for prior in PRIORS]
NOISE = DiscreteGaussian.from_rho(Fraction("0.3"))
LAWS = [DiscreteGaussian.from_rho(Fraction(rho)) for rho in RHOS]
LEVELS = [Level(NOISE, siblings=3), Level(DiscreteGaussian.from_rho(Fraction(1, 2)))]
DRAWN = np.random.default_rng(1)
RESIDUALS = np.rint(DRAWN.laplace(0, 3, 3_000)).astype(int)
EXACT = DRAWN.poisson(20, 60)
EPSILONS = [0.1, 1.0, 10.0]


@cache
def split_comparison():
    targets = 'targets = ["area TOTAL within 5", "area AGE"]'
    text = TINY_PLAN.replace("[budget]\n", f"[budget]\n{targets}\n")
    with TemporaryDirectory() as folder:
        (Path(folder) / "places.csv").write_text(TINY_PLACES)
        return compare_splits(Plan.parse(text, folder=folder))


def marginal():
    return {w: [assess.marginal_risk(law, intruder=w) for law in LAWS] for w in INTRUDERS}


def decided():
    return {w: [assess.correct_decision(law, intruder=w) for law in LAWS] for w in INTRUDERS}


def disclosed():
    seen = np.array(SEEN)
    return {w: assess.disclosure_risk(NOISE, observed=seen, intruder=w) for w in INTRUDERS}


def believed():
    return {w: assess.posterior(NOISE, observed=np.array(SEEN), intruder=w) for w in INTRUDERS}


def two_levels():
    return {
        parent: [
            hierarchy.posterior(
                LEVELS, observed=(x, parent), intruder=INTRUDERS[1], sibling_sums=(8,)
            )
            for x in SEEN
        ]
        for parent in (6, 10, 14)
    }


def levels_known():
    return {
        w: [hierarchy.marginal_risk(LEVELS[:k], truth=(1, 9)[:k], intruder=w) for k in (1, 2)]
        for w in INTRUDERS
    }


def plan():
    return Plan.parse(TINY_PLAN)


def table_of_people():
    rng = np.random.default_rng(2)
    data = {"a": rng.integers(0, 12, 200).astype(str), "s": rng.choice(["x", "y", "z"], 200)}
    return homogeneity.Table.from_records(pa.table(data), identifiers=["a"], sensitive="s")


def homogeneity_curve():
    return homogeneity.curve(table_of_people(), mechanisms=[Laplace(1 / e) for e in EPSILONS])


def homogeneity_frontier():
    return liu_zhao.frontier(
        table_of_people(), mechanism=Laplace, epsilons=EPSILONS, draws=3, rng=Seeded(1)
    )


def accuracy(rows=None):
    given = [
        ("area", "TOTAL", "0", 0.0),
        ("area", "TOTAL", "1-9", 2.25),
        ("region", "TOTAL", "10-99", 0.75),
    ]
    rows = [
        {
            "level": level,
            "query": query,
            "size_class": size,
            "mean_absolute_error": error,
            "bias": -0.5,
            "cells": 12,
        }
        for level, query, size, error in (given if rows is None else rows)
    ]
    schema = None if rows else pa.schema([("query", pa.string()), ("size_class", pa.string())])
    empty = pa.table({})
    return Accuracy("Tiny", pa.Table.from_pylist(rows, schema), empty, empty, empty, empty)


def places(audience="public", number=4):
    rows = [{"by": "all", "group": "all", "cells": 9, "mean_risk": 1.5, "largest_risk": 3.0}]
    rows += [
        {
            "by": "place",
            "group": f"R{i}",
            "cells": 5 + i,
            "mean_risk": 1.05 + i / 7,
            "largest_risk": 2 + i / 3,
        }
        for i in range(number)
    ]
    return RiskMap("area", 0.1, (1.5,), pa.Table.from_pylist(rows), pa.table({}), audience)


SHAPES = {
    "type": "FeatureCollection",
    "features": [
        {
            "type": "Feature",
            "properties": {"geocode": f"R{i}"},
            "geometry": {
                "type": "Polygon",
                "coordinates": [[[i, 0], [i, 1], [i + 1, 1], [i + 1, 0], [i, 0]]],
            },
        }
        for i in range(5)
    ],
}


def released():
    rng = np.random.default_rng(3)
    return {
        "projection": 20 + rng.integers(-9, 9, (3, 200)),
        "beside totals": 20 + rng.integers(-3, 3, (3, 200)),
    }


def level_errors():
    """Exact at the top, one error for all in the middle, some exact and some not told below."""
    return [
        LevelError("region", "TOTAL", 2, 2, 2, 0, None, None, None, 1.5),
        LevelError("town", "TOTAL", 4, 4, 0, 0, 2.5, 2.5, 2.5, None),
        LevelError("area", "TOTAL", 40, 40, 3, 2, 2.25, 3.125, 90.5, 111.0),
    ]


def area_estimates(areas=4, query="TOTAL", error=7.0):
    asked = SimpleNamespace(query=plan().schema.query(query))
    cells = asked.query.cells
    value = 100.0 + 37.5 * (np.arange(areas * cells).reshape(areas, cells) % 3)
    errors = np.full((areas, cells), error)
    names = tuple(f"district {number}" for number in range(areas))
    if areas > 2:
        errors[1], errors[2], value[2] = 0.0, np.inf, np.nan
    return AreaEstimates(names, asked, value, errors, (), 0.9)


def covered(**more):
    rows = {
        "level": ["county", "tract", "tract"],
        "size_class": ["10,000+", "100-999", "0"],
        "intervals": [400, 8_000, 50_000],
        "covered": [0.905, 0.8875, 0.9975],
        "standard_error": [0.0125, 0.0035, 0.0],
    }
    return pa.table(rows | more)


CHARTS = {
    "posterior": lambda: charts.posterior(SEEN, disclosed()),
    "risk by rho": lambda: charts.risk_by_rho(
        RHOS, marginal(), chosen="2.56", delta="1e-10", limit=5
    ),
    "risk by rho, plain": lambda: charts.risk_by_rho(RHOS, marginal()),
    "decision by rho": lambda: charts.decision_by_rho(RHOS, decided(), chosen="0.5", delta="1e-6"),
    "risk and error": lambda: charts.risk_and_error(
        RHOS, marginal(), [law.variance**0.5 for law in LAWS], chosen="1"
    ),
    "decision map": lambda: charts.decision_map(SEEN, believed()),
    "decision map, two levels": lambda: charts.decision_map_two_levels(SEEN, two_levels()),
    "levels known": lambda: charts.risk_by_levels_known(["block", "tract"], levels_known()),
    "risk by level": lambda: charts.risk_by_level(risk_by_level(plan())),
    "budget": lambda: charts.budget_allocation(plan()),
    "expected error": lambda: charts.expected_error(expected_error(plan())),
    "error by size": lambda: charts.error_by_size(accuracy()),
    "exact and released": lambda: charts.exact_and_released(
        EXACT, EXACT + RESIDUALS[:60], audience="internal"
    ),
    "residuals": lambda: charts.residuals(gathered(RESIDUALS)),
    "empirical loss": lambda: charts.loss_of_residuals(
        {"county": kde(RESIDUALS), "tract": kde(RESIDUALS[:1500])}, epsilon=1.0
    ),
    "homogeneity": lambda: charts.homogeneity_by_epsilon(EPSILONS, homogeneity_curve()),
    "frontier": lambda: charts.frontier(homogeneity_frontier()),
    "replicates": lambda: charts.replicates(
        ["A1", "A2", "A3"], released(), true=np.array([20, 21, 22]), audience="internal"
    ),
    "two splits": lambda: charts.two_splits(split_comparison()),
    "intruders": lambda: charts.two_hundred_intruders(
        INTRUDERS[1],
        assess.correct_decision(LAWS[3], intruder=INTRUDERS[1]),
        assess.correct_decision(LAWS[3], intruder=INTRUDERS[1], present=False),
    ),
    "risk map": lambda: charts.risk_map(places()),
    "risk map with shapes": lambda: charts.risk_map(places("internal"), shapes=SHAPES),
    "error by level": lambda: charts.error_by_level(level_errors()),
    "areas with intervals": lambda: charts.areas_with_intervals(area_estimates()),
    "a cell of areas": lambda: charts.areas_with_intervals(
        area_estimates(2, "AGE*SEX"), cell=("old", "x")
    ),
    "coverage": lambda: charts.coverage(covered(), confidence=0.9, audience="public"),
    # The awkward ones: a single point, one level, one place, zeros, very long names.
    "one released value": lambda: charts.posterior(
        [3], {INTRUDERS[0]: assess.disclosure_risk(NOISE, observed=3, intruder=INTRUDERS[0])}
    ),
    "one rho": lambda: charts.risk_by_rho(
        ["1"], {INTRUDERS[0]: [marginal()[INTRUDERS[0]][3]]}, chosen=1, delta="1e-10"
    ),
    "one level": lambda: charts.risk_by_levels_known(
        ["block"], {w: items[:1] for w, items in levels_known().items()}
    ),
    "one decision": lambda: charts.decision_map(
        [9], {INTRUDERS[0]: assess.posterior(NOISE, observed=9, intruder=INTRUDERS[0])}
    ),
    "one place": lambda: charts.risk_map(places(number=1)),
    "one release": lambda: charts.replicates(["A1"], {"x": np.array([[0]])}, audience="public"),
    "no error": lambda: charts.error_by_size(accuracy([("area", "TOTAL", "0", 0.0)])),
    "long names": lambda: charts.loss_of_residuals(
        {"a level with a name that is longer than any chart is wide " * 3: kde(RESIDUALS)}
    ),
    "uniform groups": lambda: charts.uniform_groups(homogeneity_by_size(plan())),
    "one epsilon": lambda: charts.homogeneity_by_epsilon([1.0], homogeneity_curve().slice(1, 1)),
    "one level with an error": lambda: charts.error_by_level(level_errors()[1:2]),
    "one exact area": lambda: charts.areas_with_intervals(area_estimates(1, error=0.0)),
    "many areas": lambda: charts.areas_with_intervals(area_estimates(120), most=30),
    "one internal coverage": lambda: charts.coverage(
        covered().slice(0, 1), confidence=0.95, audience="internal"
    ),
}
INTERNAL = {
    *("error by size", "exact and released", "residuals", "empirical loss", "homogeneity"),
    *("frontier", "replicates", "risk map with shapes", "no error", "long names", "one epsilon"),
    "one internal coverage",
}


@cache
def drawn(name):
    """Return a chart, made once."""
    return CHARTS[name]()


@cache
def svg_of(name):
    """Return a chart as SVG, drawn once."""
    return drawn(name).svg()
