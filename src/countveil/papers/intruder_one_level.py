"""Kazan and Reiter (paper 002), what one level tells: Tables 3 and 4, Figures 1 to 3."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from countveil import DiscreteGaussian, assess
from countveil.papers import census_2020
from countveil.papers.census_2020 import EVEN, PRIORS, believes
from countveil.papers.curves import evaluated, spaced
from countveil.papers.item import Content, Entry, Picture, Rule, Setting, Value

PAPER = "002"
_MASS = (
    "The printed column is the probability when nobody is there (X1 = 0); the header says X1 = 1, "
    "which is shown here."
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


def neighbours() -> str:
    """Say whose noise the paper uses, and what the census's own would give."""
    right = [
        assess.correct_decision(
            DiscreteGaussian.from_rho(census_2020.detail(1), sensitivity2=moved), intruder=EVEN
        ).value
        for moved in (1, 2)
    ]
    return (
        "The paper's noise, variance 1/(2 rho), is that of add-remove neighbours. The 2020 census uses "
        f"change-one neighbours: twice the variance, and at p = 1/2 a correct decision in "
        f"{right[1]:.2%} instead of {right[0]:.2%}."
    )


def table_3(_: Setting) -> Content:
    """Compute posterior and risk after a few released counts."""
    noise = census_2020.noise(1)
    values = []
    for released, (mass, posteriors, risks) in _TABLE_3.items():
        chance = math.exp(float(noise.log_pmf(np.array(released - 1))))
        values.append(
            Value(
                f"t3_mass_x{released}", f"P[X* = {released} | X = 1]", mass, chance, _MASS, 0.0005
            )
        )
        for prior, posterior, risk in zip(PRIORS, posteriors, risks, strict=True):
            found = assess.disclosure_risk(noise, observed=released, intruder=believes(prior))
            ending = f"x{released}_p{_decimal(prior)}"
            seen = f"X* = {released}, p = {prior}"
            values += [
                Value(
                    f"t3_post_{ending}",
                    f"posterior, {seen}",
                    posterior,
                    _one(found.posterior),
                    None,
                    0.0005,
                ),
                Value(f"t3_risk_{ending}", f"risk, {seen}", risk, _one(found.value), None, 0.005),
            ]
    return Content(tuple(values), note=neighbours())


def table_4(_: Setting) -> Content:
    """Compute posterior and risk on average over what may be released."""
    values = []
    for prior, (posterior, risk) in _TABLE_4.items():
        found = assess.marginal_risk(census_2020.noise(1), intruder=believes(prior))
        ending = f"p{_decimal(prior)}"
        values += [
            Value(
                f"t4_post_{ending}",
                f"posterior, p = {prior}",
                posterior,
                _one(found.posterior),
                None,
                0.0005,
            ),
            Value(f"t4_risk_{ending}", f"risk, p = {prior}", risk, _one(found.value), None, 0.005),
        ]
    return Content(tuple(values), note=neighbours())


def figure_1(_: Setting) -> Content:
    """Draw posterior and risk against the released count."""
    released = np.arange(-10, 11)
    noise = census_2020.noise(1)

    def of(measure: Callable[..., assess.Risk], prior: str) -> Callable[[float], float]:
        return lambda x: _one(measure(noise, observed=x, intruder=believes(prior)).value)

    pictures = tuple(
        Picture(
            title,
            "lines",
            evaluated(
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
    return Content(pictures=pictures, note=neighbours())


def figure_2(_: Setting) -> Content:
    """Draw marginal posterior and risk against rho."""

    def risk(rho: float, prior: str) -> assess.Risk:
        return assess.marginal_risk(_noise(rho), intruder=believes(prior))

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

    def after(prior: str) -> Callable[[float], float]:
        return lambda rho: _one(risk(rho, prior).posterior)

    def ratio(prior: str) -> Callable[[float], float]:
        return lambda rho: _one(risk(rho, prior).value)

    pictures = tuple(
        _against_rho(title, {f"p = {p}": of(p) for p in PRIORS}, log_y)
        for title, of, log_y in (
            ("marginal posterior probability", after, False),
            ("marginal disclosure risk", ratio, True),
        )
    )
    note = (
        "The text says that below rho = 0.25 the risk is about one, and above 5 the posterior about "
        f"one. At p = 1/50 the risk at 0.25 is {_one(risk(0.25, '1/50').value):.2f}, and the posterior "
        f"at 5 is {_one(risk(5.0, '1/50').posterior):.3f}."
    )
    return Content(tuple(values), pictures, note)


def figure_3(_: Setting) -> Content:
    """Draw how often the intruder decides rightly, against rho."""

    def right(rho: float | Fraction, prior: str) -> float:
        return _one(assess.correct_decision(_noise(rho), intruder=believes(prior)).value)

    census = census_2020.detail(1)
    values = [
        Value("pc1_p.5", "correct decision, p = 1/2", 0.59, right(census, "1/2"), None, 0.005),
        Value(
            "pc1_p.5b",
            "correct decision, p = 1/2 (section 4.3.3)",
            0.5889,
            right(census, "1/2"),
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
                right(census, prior),
            )
        )
    for rho, printed in (("0.5", 0.30), ("0.6", 0.28)):
        values.append(
            Value(
                f"pc1_{rho.lstrip('0')}_.2",
                f"correct decision at rho = {rho}, p = 1/5",
                printed,
                right(Fraction(rho), "1/5"),
                None,
                0.005,
            )
        )

    def of(prior: str) -> Callable[[float], float]:
        return lambda rho: right(rho, prior)

    picture = _against_rho(
        "probability of a correct decision", {f"p = {p}": of(p) for p in PRIORS}, False
    )
    return Content(tuple(values), (picture,), neighbours())


def _noise(rho: float | Fraction) -> DiscreteGaussian:
    return DiscreteGaussian.from_rho(Fraction(rho))


def _against_rho(title: str, of: dict[str, Callable[[float], float]], log_y: bool) -> Picture:
    census = Rule("x", float(census_2020.detail(1)), "census, rho = 0.099")
    table = evaluated("rho", "y", "prior", spaced(0.01, 20, 60), of)
    return Picture(title, "lines", table, "rho", "y", "prior", "rho", title, True, log_y, (census,))


def _decimal(prior: str) -> str:
    return f"{float(Fraction(prior)):g}"


def _one(value: object) -> float:
    """Return a measure of one released count as the number it is."""
    return float(np.asarray(value, float))


ENTRIES = (
    Entry(PAPER, "Table 3", "What a released count tells", table_3),
    Entry(PAPER, "Table 4", "Risk on average", table_4),
    Entry(PAPER, "Figure 1", "Posterior and risk against the released count", figure_1),
    Entry(PAPER, "Figure 2", "Marginal posterior and risk against rho", figure_2),
    Entry(PAPER, "Figure 3", "Correct decisions against rho", figure_3),
)
