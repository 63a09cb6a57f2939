"""Kazan and Reiter (paper 002), the budget and the people: Tables 1 and 2, and numbers in the text."""

from __future__ import annotations

import tempfile
from fractions import Fraction
from pathlib import Path

from countveil.assess.choose import budget_for_risk
from countveil.engines.engine import open_engine
from countveil.noise.discrete_gaussian import DiscreteGaussian
from countveil.noise.discrete_laplace import DiscreteLaplace
from countveil.papers.item import Content, Setting, Value
from countveil.papers.kazan_reiter import census_2020
from countveil.plan.plans import Plan
from countveil.privacy.costs import ZCDP

_DISTRICT_28_21 = (
    ("of voting age", "white", 34),
    ("not of voting age", "white", 10),
    ("of voting age", "black", 1),
)


def table_1(_: Setting) -> Content:
    """Price every level and query of the 2020 redistricting files."""
    plan = census_2020.table_1_plan()
    shares = plan.document["budget"]["levels"]
    values = []
    for column in census_2020.COLUMNS:
        level = census_2020.level_of(column)
        rho = census_2020.rho_of(column)
        of_level = rho / (Fraction(shares[level]) * plan.cost.rho)
        values.append(
            Value(f"t1_colsum_{column}", f"{column}, all shares", "(implied 1)", float(of_level))
        )
        values.append(
            Value(
                f"rho_level_{column}",
                f"{column}, rho ({shares[level]} of 2.56)",
                0.103 if column == "Block" else None,
                float(rho),
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
            census_2020.table_1_plan().schema.cells,
            tolerance=0,
        ),
    )
    return Content(
        values, note="The rows of the printed table, tabulated under the preset census-1940."
    )


def text(_: Setting) -> Content:
    """Compute the numbers in the text."""
    implied = (
        (
            "implied_total",
            "implied epsilon of rho = 2.56",
            2.26,
            census_2020.table_1_plan().cost.rho,
        ),
        ("implied_block", "implied epsilon of the block level", 0.45, census_2020.rho_of("Block")),
    )
    half = DiscreteGaussian.from_rho("0.5")
    rho_1, rho_2 = (float(census_2020.detail_rho(level)) for level in (1, 2))
    seventeen = (
        "Theorem 3 gives 17.1583 at rho = 2.56. 17.14 belongs to the rho before rounding, "
        f"(542/339)² = 2.556226: {ZCDP(Fraction(542, 339) ** 2).epsilon('1e-10'):.4f}."
    )
    # An intruder with even odds ends with a probability of at most 3/4.
    ln_3 = float(budget_for_risk.epsilon_for_profile(lambda p: 1.5, priors=[0.5]))
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
            "off by 3 or more, discrete Gaussian, rho = 1/2",
            0.0091,
            _tail(half),
            None,
            5e-5,
        ),
        Value(
            "tail_geo",
            "off by 3 or more, geometric, epsilon = 1",
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
