"""Liu and Zhao (paper 004): risk and error against epsilon, Figures 3, 4 and S1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from countveil.assess import homogeneity
from countveil.assess.homogeneity.average_risk import Measure
from countveil.assess.homogeneity.sensitive_table import Table
from countveil.base.randomness import Seeded
from countveil.noise.continuous import Gaussian, Laplace
from countveil.noise.law import Law
from countveil.papers import liu_zhao
from countveil.papers.curves import log_spaced, long_table
from countveil.papers.item import Content, ItemChart, Setting, Value
from countveil.papers.liu_zhao.example_tables import (
    NEEDS_ADULT,
    NEEDS_BANKRUPTCY,
    adult,
    bankruptcy,
    subset,
    subset_records,
)

_SEED = 4
_LIMITS = {"l": "local", "e": "expected"}
_WEIGHTS = {"uw": False, "w": True}
_UPPER = {"l.uw": 0.69, "l.w": 0.57, "e.uw": 0.75, "e.w": 0.63}
_LOWER = {"l.uw": 0.16, "l.w": 0.18, "e.uw": 0.16, "e.w": 0.17}


def figure_3(setting: Setting) -> Content:
    """Draw the risk against epsilon for three mechanisms, and its limits."""
    values = []
    for key, printed in _UPPER.items():
        ours = _limit(key, Laplace(1e4), "exact")
        label = f"subset, without noise: {_label(key)}"
        values.append(Value(f"drha.ff.upper.{key}", label, printed, ours, None, 0.006))
    for key, printed in _LOWER.items():
        nothing = Laplace(1e-9)
        both = {"bound": _limit(key, nothing, "corrected"), "exact": _limit(key, nothing, "exact")}
        label = f"subset, nothing but noise: {_label(key)}"
        values.append(Value(f"drha.ff.lower.{key}", label, printed, both, None, 0.006))
    least = _one(homogeneity.local_risk(bankruptcy(), mechanism=Laplace(1e-9)).value)
    values.append(
        Value(
            "drha.lower.homog.K2",
            "two labels, homogeneous, nothing but noise",
            0.25,
            least,
            None,
            0.001,
        )
    )
    values.append(
        Value(
            "drha.gap_pdp_dp",
            "pDP minus DP for epsilon < 1, at most",
            0.05,
            _widest_gap(),
            "The largest gap over epsilon < 1 and delta from 0.00003 to 0.1, on the bankruptcy data.",
            0.003,
        )
    )
    tables = {"bankruptcy": bankruptcy(), "bankruptcy subset": subset()}
    people = adult(setting.data)
    if people is not None:
        tables["Adult"] = people
    points = 15 if setting.quick else 41
    charts = [
        _curves(f"{title}, {name}", table, laws(points))
        for name, table in tables.items()
        for title, laws in _FAMILIES.items()
    ]
    note = "The charts show exact sums; the paper shows formulas that it calls upper bounds."
    return Content(tuple(values), tuple(charts), note, None if people is not None else NEEDS_ADULT)


def figure_4(setting: Setting) -> Content:
    """Draw how far noisy marginals are from exact ones."""
    table = subset_records(setting.data)
    if table is None:
        return Content(missing=NEEDS_BANKRUPTCY)
    draws = 5 if setting.quick else 50
    rows, values = [], []
    for epsilon in (0.1, 1.0, 10.0):
        distances = liu_zhao.distances(
            table, mechanism=Laplace(epsilon), draws=draws, rng=Seeded(_SEED)
        )
        for ways in (1, 2, 3):
            rows.append((f"{epsilon:g}", distances.mean(ways), f"{ways}-way"))
            label = f"distance of {ways}-way marginals, epsilon = {epsilon:g}"
            values.append(
                Value(f"004.figure4.{epsilon:g}.{ways}", label, None, distances.mean(ways))
            )
    columns = dict(
        zip(("epsilon", "distance", "marginals"), map(list, zip(*rows, strict=True)), strict=True)
    )
    chart = ItemChart(
        "total variation distance of marginals, Laplace noise",
        "bars",
        pa.table(columns),
        "epsilon",
        "distance",
        "marginals",
        "epsilon",
        "mean distance",
    )
    note = "Noise is added to all cells; noise on occupied ones alone, as in the paper, is not private."
    return Content(tuple(values), (chart,), note)


def figure_s1(setting: Setting) -> Content:
    """Draw the risk from an intruder who names the likeliest label, or who believes in shares."""
    people = adult(setting.data)
    table, name = (subset(), "bankruptcy subset") if people is None else (people, "Adult")
    at = log_spaced(0.01, 100, 9 if setting.quick else 17)
    rows = []
    for epsilon in at:
        noise = Laplace(float(epsilon))
        for way, risk in (
            ("hard: the likeliest label", liu_zhao.hard_thresholding(table, mechanism=noise)),
            ("soft: by shares", liu_zhao.soft_thresholding(table, mechanism=noise)),
            ("one label alone", homogeneity.local_risk(table, mechanism=noise)),
        ):
            rows.append((float(epsilon), _one(risk.value), way))
    values = tuple(
        Value(f"004.figureS1.{way}.{e:g}", f"{way}, epsilon = {e:g}, {name}", None, risk)
        for e, risk, way in rows
        if e in (rows[0][0], rows[-1][0])
    )
    chart = ItemChart(
        f"risk by what the intruder settles for, {name}",
        "lines",
        long_table("epsilon", "risk", "way", rows),
        "epsilon",
        "risk",
        "way",
        "epsilon",
        "risk",
        True,
    )
    note = f"Computed exactly, on the {name} data; the paper simulates it on the Adult data."
    return Content(values, (chart,), note, None if people is not None else NEEDS_ADULT)


def _limit(key: str, noise: Law, method: str) -> float:
    measure, weights = key.split(".")
    request = Measure(_LIMITS[measure], _WEIGHTS[weights], method)
    return _one(homogeneity.risk_of(subset(), mechanism=noise, measure=request).value)


def _label(key: str) -> str:
    measure, weights = key.split(".")
    return f"{_LIMITS[measure]} risk, {'weighted' if _WEIGHTS[weights] else 'unweighted'}"


def _widest_gap() -> float:
    """Return the largest amount by which the risk of pDP exceeds that of DP."""
    grid = [(e, d) for e in np.geomspace(1e-3, 0.999, 25) for d in (3e-5, 1e-3, 4e-3, 1e-2, 0.1)]
    columns = [
        homogeneity.curve(
            bankruptcy(),
            mechanisms=[Gaussian.calibrated(epsilon=float(e), delta=d, kind=kind) for e, d in grid],
            measures=["local"],
        )
        for kind in ("pDP", "DP")
    ]
    gaps = [
        columns[0][name].to_numpy() - columns[1][name].to_numpy()
        for name in ("local", "local_weighted")
    ]
    return float(np.max(gaps))


def _laplace(points: int) -> list[tuple[float, Law]]:
    return [(float(e), Laplace(float(e))) for e in log_spaced(1e-3, 100, points)]


def _gaussian_dp(points: int) -> list[tuple[float, Law]]:
    return [
        (float(e), Gaussian.calibrated(epsilon=float(e), delta=0.004, kind="DP"))
        for e in log_spaced(1e-3, 0.999, points)
    ]


def _gaussian_pdp(points: int) -> list[tuple[float, Law]]:
    return [
        (float(e), Gaussian.calibrated(epsilon=float(e), delta=0.004, kind="pDP"))
        for e in log_spaced(1e-3, 100, points)
    ]


_FAMILIES = {
    "Laplace": _laplace,
    "Gaussian, DP, delta = 0.004": _gaussian_dp,
    "Gaussian, pDP, delta = 0.004": _gaussian_pdp,
}


def _curves(title: str, table: Table, laws: Sequence[tuple[float, Law]]) -> ItemChart:
    risks = homogeneity.curve(
        table, mechanisms=[law for _, law in laws], measures=["local", "expected"]
    )
    rows = [
        (epsilon, float(risk), name.replace("_", ", "))
        for name in risks.column_names[1:]
        for (epsilon, _), risk in zip(laws, risks[name].to_pylist(), strict=True)
    ]
    series = long_table("epsilon", "risk", "measure", rows)
    return ItemChart(title, "lines", series, "epsilon", "risk", "measure", "epsilon", "risk", True)


def _one(value: object) -> float:
    return float(np.asarray(value, float))
