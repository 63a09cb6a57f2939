"""Kazan and Reiter (paper 002), what one level tells: Tables 1 to 4, Figures 1 to 3, and the text."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np

from countveil import ZCDP, DiscreteGaussian, DiscreteLaplace, Plan, assess, open_engine
from countveil.assess import choose
from countveil.papers import census_2020
from countveil.papers.census_2020 import EVEN, PRIORS, believes
from countveil.papers.curves import evaluated, spaced
from countveil.papers.item import Content, Entry, Picture, Rule, Setting, Value

PAPER = "002"
_MASS = (
    "The printed column is the probability when nobody is there (X1 = 0); the header says X1 = 1, "
    "which is shown here."
)
_DISTRICT_28_21 = (
    ("of voting age", "white", 34),
    ("not of voting age", "white", 10),
    ("of voting age", "black", 1),
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


def table_1(_: Setting) -> Content:
    """Price every level and query of the 2020 redistricting files."""
    plan = census_2020.plan()
    shares = plan.document["budget"]["levels"]
    values = []
    for column in census_2020.COLUMNS:
        level = census_2020.level_of(column)
        spent = census_2020.rho(column)
        of_level = spent / (Fraction(shares[level]) * plan.cost.rho)
        values.append(
            Value(f"t1_colsum_{column}", f"{column}, all shares", "(implied 1)", float(of_level))
        )
        values.append(
            Value(
                f"rho_level_{column}",
                f"{column}, rho ({shares[level]} of 2.56)",
                0.103 if column == "Block" else None,
                float(spent),
                tolerance=0.0005,
            )
        )
        for item in plan.at(level):
            name = item.query.name
            printed = 0.099 if (column, name) == ("Block", census_2020.DETAIL) else None
            values.append(
                Value(
                    f"rho_{column}_{name}",
                    f"{column}, {name}: rho",
                    printed,
                    float(item.cost.rho),
                    tolerance=0.0005,
                )
            )
    return Content(
        tuple(values), note="Shares are the table's; rho is the exact share of 2.56, rounded."
    )


def table_2(_: Setting) -> Content:
    """Count the 45 people of enumeration district 28-21, as the table lists them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [
            f"28-21,household,{age},not Hispanic,{race}\n" * people
            for age, race, people in _DISTRICT_28_21
        ]
        header = "district,HHGQ,VOTINGAGE,HISPANIC,CENRACE\n"
        (folder / "people.csv").write_text(header + "".join(rows))
        (folder / "places.csv").write_text("nation,state,county,district\nUS,NC,Dare,28-21\n")
        plan = Plan.parse(
            '[release]\ntitle = "District 28-21"\npreset = "census-1940"\n'
            '[geography]\npath = "places.csv"\n'
            '[records]\npath = "people.csv"\none_row_per_person = true\n',
            folder=folder,
        )
        _units, _cells, numbers = open_engine("local").tabulate(plan).entries("district", 0, 1)
    counts = sorted((int(number) for number in numbers), reverse=True)
    values = (
        Value("ed2821", "people of the district", 45, sum(counts), tolerance=0),
        Value(
            "ed2821_counts",
            "people by row",
            (34.0, 10.0, 1.0),
            tuple(map(float, counts)),
            tolerance=0,
        ),
        Value("cells_1940", "cells of the 1940 query", 864, plan.schema.cells, tolerance=0),
        Value(
            "cells_2020",
            "cells of the 2020 query",
            2016,
            census_2020.plan().schema.cells,
            tolerance=0,
        ),
    )
    return Content(
        values, note="The rows of the printed table, tabulated under the preset census-1940."
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


def text(_: Setting) -> Content:
    """Compute the numbers that stand in the text."""
    implied = (
        ("implied_total", "implied epsilon of rho = 2.56", 2.26, census_2020.plan().cost.rho),
        ("implied_block", "implied epsilon of the block level", 0.45, census_2020.rho("Block")),
    )
    half = DiscreteGaussian.from_rho("0.5")
    rho_1, rho_2 = (float(census_2020.detail(level)) for level in (1, 2))
    seventeen = (
        "Theorem 3 gives 17.1583 at rho = 2.56. 17.14 belongs to the rho before rounding, "
        f"(542/339)² = 2.556226: {ZCDP(Fraction(542, 339) ** 2).epsilon('1e-10'):.4f}."
    )
    # An even intruder comes to believe it with probability 3/4 at most.
    ln_3 = float(choose.epsilon_for_profile(lambda p: 1.5, priors=[0.5]))
    values = (
        Value(
            "eps_2.56",
            "epsilon of rho = 2.56, delta = 1e-10",
            17.14,
            ZCDP("2.56").epsilon("1e-10"),
            seventeen,
            0.005,
        ),
        Value(
            "eps_0.5",
            "epsilon of rho = 0.5, delta = 1e-10",
            6.839,
            ZCDP("0.5").epsilon("1e-10"),
            None,
            0.0005,
        ),
        *(
            Value(key, label, printed, ZCDP(rho).implied_epsilon, None, 0.005)
            for key, label, printed, rho in implied
        ),
        Value("ln3", "Dwork's limit, ln 3", 1.10, ln_3, None, 0.005),
        Value(
            "tail_dg",
            "3 or more off, discrete Gaussian, rho = 1/2",
            0.0091,
            _tail(half),
            None,
            5e-5,
        ),
        Value(
            "tail_geo",
            "3 or more off, geometric, epsilon = 1",
            0.0728,
            _tail(DiscreteLaplace(epsilon="1")),
            None,
            5e-5,
        ),
        Value("rho1", "rho_1, detailed table of a block", 0.099, rho_1, None, 0.0005),
        Value("rho2_a", "rho_2, of a block group", 0.246, rho_2, None, 0.0005),
        Value(
            "rho2_b",
            "rho_2, of a block group (sections 4.3.1 to 4.3.3)",
            0.247,
            rho_2,
            "0.24648 rounds to 0.246, which the paper prints elsewhere.",
            0.0005,
        ),
    )
    return Content(values)


def _tail(noise: DiscreteGaussian | DiscreteLaplace) -> float:
    return 2 * float(noise.survival(2))


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
    Entry(PAPER, "Table 1", "How rho is shared out in 2020", table_1),
    Entry(PAPER, "Table 2", "Enumeration district 28-21", table_2),
    Entry(PAPER, "Table 3", "What a released count tells", table_3),
    Entry(PAPER, "Table 4", "Risk on average", table_4),
    Entry(PAPER, "Figure 1", "Posterior and risk against the released count", figure_1),
    Entry(PAPER, "Figure 2", "Marginal posterior and risk against rho", figure_2),
    Entry(PAPER, "Figure 3", "Correct decisions against rho", figure_3),
    Entry(PAPER, "Text", "Numbers in the text", text),
)
