"""What papers 002 and 000 take from the 2020 census: Table 1's budget, and noise of variance 1/(2 rho).

The papers allocate rho = 2.56, which is the census's (542/339)² = 2.5562, rounded. The noise is that of
add-remove neighbours, as in the papers; the census itself uses change-one neighbours.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import NamedTuple

from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.intruder.several_levels.hierarchy_level import Level
from countveil.noise.discrete_gaussian import DiscreteGaussian
from countveil.plan.plans import Plan, require_counts

PRIORS = ("1/2", "1/5", "1/10", "1/50")
SIBLINGS = 27
EVEN = Intruder(prior=0.5)
# The papers' names of the plan's levels, the nation first.
COLUMNS = ("US", "State", "County", "Tract", "OBG", "Block")
DETAIL = "HHGQ*VOTINGAGE*HISPANIC*CENRACE"


@cache
def table_1_plan() -> Plan:
    """Return the plan of Table 1: the 2020 redistricting preset with the papers' rho and neighbours."""
    parsed = Plan.parse(
        'invariants = []\n[release]\ntitle = "Table 1 of paper 002"\npreset = "pl94-2020"\n'
        'neighbors = "add-remove"\n[budget]\nrho = "2.56"\n'
    )
    return require_counts(parsed, "Table 1")


def level_of(column: str) -> str:
    """Return the plan's name of a column of Table 1."""
    return table_1_plan().levels[COLUMNS.index(column)]


def rho_of(column: str, query: str | None = None) -> Fraction:
    """Return the rho of a level, or of one of its queries."""
    allocations = table_1_plan().at(level_of(column))
    return sum(
        (item.cost.rho for item in allocations if query is None or item.query.name == query),
        Fraction(0),
    )


@cache
def detail_rho(level: int) -> Fraction:
    """Return the rho of the detailed table at a level, 1 being the block: rho_1, rho_2 and so on."""
    return rho_of(COLUMNS[-level], DETAIL)


@cache
def detail_noise(level: int) -> DiscreteGaussian:
    """Return the noise of the detailed table at a level, 1 being the block."""
    return DiscreteGaussian.from_rho(detail_rho(level))


class BlockLevels(NamedTuple):
    """A block and the block group above it."""

    block: Level
    block_group: Level


@cache
def block_levels() -> BlockLevels:
    """Return block and block group as in section 4.3: 27 other blocks."""
    return BlockLevels(Level(detail_noise(1), siblings=SIBLINGS), Level(detail_noise(2)))


def intruder_with(prior: str) -> Intruder:
    """Return the intruder with a prior, written as in the papers."""
    return Intruder(prior=float(Fraction(prior)))
