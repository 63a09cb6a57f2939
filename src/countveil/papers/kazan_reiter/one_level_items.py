"""Kazan and Reiter (paper 002), what one level reveals: Tables 3 and 4, Figures 1 to 3."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from countveil import assess
from countveil.noise.discrete_gaussian import DiscreteGaussian
from countveil.papers.curves import evaluate_curves, log_spaced
from countveil.papers.item import Content, ItemChart, ReferenceLine, Setting, Value
from countveil.papers.kazan_reiter import census_2020
from countveil.papers.kazan_reiter.census_2020 import EVEN, PRIORS, intruder_with

_MASS = (
    "The printed column is the probability when the person is not there (X1 = 0); the header says "
    "X1 = 1, which is shown here."
)
_TABLE_3 = {
    1: (0.161, (0.525, 0.216, 0.109, 0.022), (1.05, 1.08, 1.09, 1.10)),
    2: (0.119, (0.574, 0.252, 0.130, 0.027), (1.15, 1.26, 1.30, 1.34)),
    3: (0.073, (0.622, 0.291, 0.154, 0.032), (1.24, 1.46, 1.54, 1.62)),
    4: (0.036, (0.667, 0.334, 0.182, 0.039), (1.33, 1.67, 1.82, 1.96)),
    5: (0.015, (0.710, 0.379, 0.213, 0.047), (1.42, 1.90, 2.13, 2.37)),
}
_TABLE_4 = {
    "1/2": (0.524, 1.05),
    "1/5": (0.225, 1.13),
    "1/10": (0.117, 1.17),
    "1/50": (0.024, 1.21),
}


def _neighbours_note() -> str:
    """Return which neighbours the paper's noise is for, and what the census's own would give."""
    correct = [
        assess.correct_decision(
            DiscreteGaussian.from_rho(census_2020.detail_rho(1), sensitivity2=squared),
            intruder=EVEN,
        ).value
        for squared in (1, 2)
    ]
    return (
        "The paper's noise, with variance 1/(2 rho), is that of add-remove neighbours. The 2020 census "
        "uses change-one neighbours: twice the variance, and at p = 1/2 a correct decision in "
        f"{correct[1]:.2%} of cases instead of {correct[0]:.2%}."
    )


def table_3(_: Setting) -> Content:
    """Compute posterior and risk after a few released counts."""
    noise = census_2020.detail_noise(1)
    values = []
    for released, (mass, posteriors, risks) in _TABLE_3.items():
        probability = math.exp(float(noise.log_pmf(np.array(released - 1))))
        values.append(
            Value(
                f"t3_mass_x{released}",
                f"P[X* = {released} | X = 1]",
                mass,
                probability,
                _MASS,
                0.0005,
            )
        )
        for prior, posterior, risk in zip(PRIORS, posteriors, risks, strict=True):
            after = assess.disclosure_risk(noise, observed=released, intruder=intruder_with(prior))
            ending = f"x{released}_p{_decimal(prior)}"
            case = f"X* = {released}, p = {prior}"
            values += [
                Value(
                    f"t3_post_{ending}",
                    f"posterior, {case}",
                    posterior,
                    _one(after.posterior),
                    None,
                    0.0005,
                ),
                Value(f"t3_risk_{ending}", f"risk, {case}", risk, _one(after.value), None, 0.005),
            ]
    return Content(tuple(values), note=_neighbours_note())


def table_4(_: Setting) -> Content:
    """Compute posterior and risk, averaged over the possible releases."""
    values = []
    for prior, (posterior, risk) in _TABLE_4.items():
        after = assess.marginal_risk(census_2020.detail_noise(1), intruder=intruder_with(prior))
        ending = f"p{_decimal(prior)}"
        values += [
            Value(
                f"t4_post_{ending}",
                f"posterior, p = {prior}",
                posterior,
                _one(after.posterior),
                None,
                0.0005,
            ),
            Value(f"t4_risk_{ending}", f"risk, p = {prior}", risk, _one(after.value), None, 0.005),
        ]
    return Content(tuple(values), note=_neighbours_note())


def figure_1(_: Setting) -> Content:
    """Draw posterior and risk against the released count."""
    released = np.arange(-10, 11)
    noise = census_2020.detail_noise(1)

    def of(measure: Callable[..., assess.Risk], prior: str) -> Callable[[float], float]:
        return lambda x: _one(measure(noise, observed=x, intruder=intruder_with(prior)).value)

    charts = tuple(
        ItemChart(
            title,
            "lines",
            evaluate_curves(
                "released", "y", "prior", released, {f"p = {p}": of(measure, p) for p in PRIORS}
            ),
            "released",
            "y",
            "prior",
            "released count",
            title,
        )
        for title, measure in (
            ("posterior probability", assess.posterior),
            ("disclosure risk", assess.disclosure_risk),
        )
    )
    return Content(charts=charts, note=_neighbours_note())


def figure_2(_: Setting) -> Content:
    """Draw marginal posterior and risk against rho."""

    def risk(rho: float, prior: str) -> assess.Risk:
        return assess.marginal_risk(_noise(rho), intruder=intruder_with(prior))

    values = [
        Value(
            f"fig2_R_rho{rho}_p{_decimal(prior)}",
            f"risk at rho = {rho}, p = {prior}",
            None,
            _one(risk(float(rho), prior).value),
        )
        for rho in ("0.25", "5.0")
        for prior in PRIORS
    ]

    def posterior(prior: str) -> Callable[[float], float]:
        return lambda rho: _one(risk(rho, prior).posterior)

    def ratio(prior: str) -> Callable[[float], float]:
        return lambda rho: _one(risk(rho, prior).value)

    charts = tuple(
        _against_rho(title, {f"p = {p}": of(p) for p in PRIORS}, log_y)
        for title, of, log_y in (
            ("marginal posterior probability", posterior, False),
            ("marginal disclosure risk", ratio, True),
        )
    )
    note = (
        "The text says that the risk is about one below rho = 0.25, and the posterior about one above "
        f"5. At p = 1/50 the risk at 0.25 is {_one(risk(0.25, '1/50').value):.2f}, and the posterior "
        f"at 5 is {_one(risk(5.0, '1/50').posterior):.3f}."
    )
    return Content(tuple(values), charts, note)


def figure_3(_: Setting) -> Content:
    """Draw how often the intruder decides correctly, against rho."""

    def correct(rho: float | Fraction, prior: str) -> float:
        return _one(assess.correct_decision(_noise(rho), intruder=intruder_with(prior)).value)

    census = census_2020.detail_rho(1)
    values = [
        Value("pc1_p.5", "correct decision, p = 1/2", 0.59, correct(census, "1/2"), None, 0.005),
        Value(
            "pc1_p.5b",
            "correct decision, p = 1/2 (section 4.3.3)",
            0.5889,
            correct(census, "1/2"),
            None,
            5e-5,
        ),
    ]
    for prior in PRIORS[1:]:
        values.append(
            Value(
                f"pc1_p{_decimal(prior)}",
                f"correct decision, p = {prior}",
                "<0.01",
                correct(census, prior),
            )
        )
    for rho, printed in (("0.5", 0.30), ("0.6", 0.28)):
        values.append(
            Value(
                f"pc1_{rho.lstrip('0')}_.2",
                f"correct decision at rho = {rho}, p = 1/5",
                printed,
                correct(Fraction(rho), "1/5"),
                None,
                0.005,
            )
        )

    def of(prior: str) -> Callable[[float], float]:
        return lambda rho: correct(rho, prior)

    chart = _against_rho(
        "probability of a correct decision", {f"p = {p}": of(p) for p in PRIORS}, False
    )
    return Content(tuple(values), (chart,), _neighbours_note())


def _noise(rho: float | Fraction) -> DiscreteGaussian:
    return DiscreteGaussian.from_rho(Fraction(rho))


def _against_rho(title: str, of: dict[str, Callable[[float], float]], log_y: bool) -> ItemChart:
    census = ReferenceLine("x", float(census_2020.detail_rho(1)), "census, rho = 0.099")
    table = evaluate_curves("rho", "y", "prior", log_spaced(0.01, 20, 60), of)
    return ItemChart(
        title, "lines", table, "rho", "y", "prior", "rho", title, True, log_y, (census,)
    )


def _decimal(prior: str) -> str:
    return f"{float(Fraction(prior)):g}"


def _one(value: object) -> float:
    """Return a measure of one released count as the number it is."""
    return float(np.asarray(value, float))
