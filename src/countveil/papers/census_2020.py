"""What papers 002 and 000 take from the 2020 census: Table 1's budget, and noise of variance 1/(2 rho).

The papers share out rho = 2.56, which is the census's (542/339)² = 2.5562, rounded. The noise is that
of add-remove neighbours, as in the papers; the census itself uses change-one ones.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

from countveil import DiscreteGaussian, Intruder, Plan
from countveil.assess import Level

PRIORS = ("1/2", "1/5", "1/10", "1/50")
SIBLINGS = 27
EVEN = Intruder(prior=0.5)
# The papers' names of the plan's levels, the nation first.
COLUMNS = ("US", "State", "County", "Tract", "OBG", "Block")


@cache
def plan() -> Plan:
    """Return the plan of Table 1: the 2020 redistricting preset with the papers' rho and neighbours."""
    return Plan.parse(
        'invariants = []\n[release]\ntitle = "Table 1 of paper 002"\npreset = "pl94-2020"\n'
        'neighbors = "add-remove"\n[budget]\nrho = "2.56"\n'
    )


def level_of(column: str) -> str:
    """Return the plan's name of a column of Table 1."""
    return plan().levels[COLUMNS.index(column)]


def rho(column: str, query: str | None = None) -> Fraction:
    """Return what a level spends, or one of its queries."""
    charged = plan().at(level_of(column))
    return sum(
        (item.cost.rho for item in charged if query is None or item.query.name == query),
        Fraction(0),
    )


@cache
def detail(level: int) -> Fraction:
    """Return what the detailed table spends at a level, 1 being the block: rho_1, rho_2 and so on."""
    return rho(COLUMNS[-level], DETAIL)


DETAIL = "HHGQ*VOTINGAGE*HISPANIC*CENRACE"


@cache
def noise(level: int) -> DiscreteGaussian:
    """Return the noise of the detailed table at a level, 1 being the block."""
    return DiscreteGaussian.from_rho(detail(level))


@cache
def two_levels() -> tuple[Level, Level]:
    """Return block and block group as section 4.3 has them: 27 other blocks."""
    return Level(noise(1), siblings=SIBLINGS), Level(noise(2))


def believes(prior: str) -> Intruder:
    """Return the intruder with a prior, written as the papers do."""
    return Intruder(prior=float(Fraction(prior)))
