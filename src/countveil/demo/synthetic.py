"""Draw a seeded population with the skew and segregation of a real one, streamed to Parquet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass, fields
from functools import cache
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq
from numpy.random import Generator, SeedSequence, default_rng

from countveil.base.numerics import Array, FloatArray, IntArray
from countveil.errors import InputError

HHGQ = (
    "household",
    "correctional facilities for adults",
    "juvenile facilities",
    "nursing facilities",
    "other institutional",
    "college housing",
    "military quarters",
    "other noninstitutional",
)
VOTINGAGE = ("under 18", "18 and over")
HISPANIC = ("not Hispanic", "Hispanic")
RACES = ("white", "black", "aian", "asian", "nhpi", "other")
CENRACE = tuple("+".join(some) for size in range(1, 7) for some in combinations(RACES, size))

COLUMNS = ("block", "HHGQ", "VOTINGAGE", "HISPANIC", "CENRACE")
LABELS = (HHGQ, VOTINGAGE, HISPANIC, CENRACE)
LEVELS = ("nation", "state", "county", "tract", "block_group", "block")

# How a Census GEOID is built, from state to block: digits added, distance between neighbouring codes
# (tracts are numbered in hundreds), and how unevenly children are spread over parents (log scale).
DIGITS = (2, 3, 6, 1, 3)
STEPS = (1, 1, 100, 1, 1)
UNEVENNESS = (0.0, 0.6, 1.2, 0.3, 0.6)

# Shares by Hispanic origin (rows) and principal race (columns, as in RACES), before places are made to
# differ, which evens shares out: the result is close to 2020. A group is a cell, read row by row.
GROUP_SHARES = np.array(
    [[0.68, 0.1, 0.006, 0.05, 0.0015, 0.004], [0.04, 0.003, 0.004, 0.001, 0.0005, 0.11]]
).ravel()
GROUP_YOUTH = np.array([0.88, 1.1, 1.15, 0.95, 1.2, 1.2] + 6 * [1.3])  # share under 18, relative

# Of people of several races, those of exactly 2, 3, 4, 5, 6 (about as in 2010).
SEVERAL_RACES = (0.917, 0.075, 0.0068, 0.0011, 0.0001)

# For each kind of group quarters: share of all people, people in a typical facility, and (by HHGQ
# code, households left out) the share under 18.
QUARTERS_SHARE = np.array([0.0062, 0.0003, 0.0052, 0.0003, 0.0086, 0.001, 0.0042])
QUARTERS_SIZE = np.array([800, 25, 80, 30, 400, 300, 15])
QUARTERS_UNDER_18 = np.array([np.nan, 0.0, 0.9, 0.002, 0.1, 0.01, 0.002, 0.08])

ROW_GROUP_PEOPLE = 1 << 18  # many row groups per state, so that readers work in parallel
CROSSWALK_BLOCK_GROUPS = 4096


@dataclass(frozen=True, slots=True)
class PopulationShape:
    """The number of units of each level below the nation."""

    states: int
    counties: int
    tracts: int
    block_groups: int
    blocks: int

    def __post_init__(self) -> None:
        sizes = (1, *astuple(self))
        if any(below < above for above, below in pairwise(sizes)):
            raise InputError(
                f"{self} does not nest; give every level at least as many units as the level above it, "
                "and at least 1 state"
            )

    @staticmethod
    def for_people(people: int) -> PopulationShape:
        """Return a shape for `people`: 26 per block, branching like the US and at most as large."""
        if people < 1:
            raise InputError(f"people: {people} is not allowed; give at least 1")
        blocks = min(round(people / 26), NATION.blocks)
        # With fewer, a level would be the same as the level above it.
        least = (2, 4, 6, 9, 19) if people >= 500 else (1, 2, 3, 4, 8)
        sizes = [round(blocks * units / NATION.blocks) for units in astuple(NATION)]
        return PopulationShape(*map(max, sizes, least))

    @staticmethod
    def for_blocks(blocks: int) -> PopulationShape:
        """Return a shape with `blocks` blocks that branches like the US."""
        return PopulationShape.for_people(26 * blocks)


NATION = PopulationShape(
    states=51, counties=3143, tracts=84_414, block_groups=239_780, blocks=8_132_968
)


@dataclass(frozen=True, slots=True)
class Population:
    """The files and the size of a population."""

    records: Path
    crosswalk: Path
    people: int
    shape: PopulationShape


@dataclass(frozen=True, slots=True, eq=False)
class _Geography:
    """Codes of the units above blocks, and where the children of each unit start."""

    codes: tuple[pa.Array, ...] = (pa.array([""]),)  # a state's does not include the nation's
    starts: tuple[IntArray, ...] = ()

    def __post_init__(self) -> None:
        for starts in self.starts:
            starts.setflags(write=False)


@dataclass(frozen=True, slots=True, eq=False)
class _Tracts:
    """What is drawn for each tract before its people."""

    people: IntArray
    first_block: IntArray  # and, last, the number of blocks
    vacancy: FloatArray  # probability that a block has no household
    under_18: FloatArray  # share of people in households
    several_races: FloatArray  # share of people
    mix: FloatArray  # shares of the groups, one row for each tract
    state_mix: FloatArray
    quarters: IntArray  # tracts (in order), kinds and residents of all facilities, as three rows

    def __post_init__(self) -> None:
        for field in fields(self):
            getattr(self, field.name).setflags(write=False)


def write_population(
    folder: Path,
    *,
    people: int,
    seed: int,
    shape: PopulationShape | None = None,
    progress: Callable[[int], None] | None = None,
) -> Population:
    """Write a population as `people.parquet` and its crosswalk as `blocks.csv`.

    Parameters
    ----------
    folder
        Where to write; it is created if needed.
    people
        The number of people, at least 1.
    seed
        A whole number of at least 0: the same seed gives the same population.
    shape
        The number of units of each level; by default sized for `people`.
    progress
        Called with the number of people written so far.

    """
    if people < 1:
        raise InputError(f"people: {people} is not allowed; give at least 1")
    if seed < 0:
        raise InputError(f"seed: {seed} is not allowed; choose a whole number of at least 0")
    shape = shape or PopulationShape.for_people(people)
    crosswalk = write_crosswalk(folder, shape)
    geography = _geography(shape)
    tracts = _draw_tracts(people, geography, rng=default_rng(SeedSequence(seed, spawn_key=(0,))))
    run = np.cumsum(tracts.people) // ROW_GROUP_PEOPLE
    edges = [0, *(np.flatnonzero(np.diff(run)) + 1), len(run)]
    records, written = folder / "people.parquet", 0
    schema = pa.schema([(name, pa.dictionary(pa.int32(), pa.string())) for name in COLUMNS])
    # Without the Arrow schema every reader sees plain text; the pages keep their dictionaries.
    with pq.ParquetWriter(records, schema, compression="zstd", store_schema=False) as writer:
        for low, high in pairwise(edges):
            codes = _child_codes(geography, *geography.starts[3][[low, high]])
            drawn = (_draw_people(tracts, tract, seed) for tract in range(low, high))
            block, *answers = (np.concatenate(column) for column in zip(*drawn, strict=True))
            indices = (block - tracts.first_block[low], *answers)
            columns = [
                pa.DictionaryArray.from_arrays(index.astype(np.int32), texts)
                for index, texts in zip(indices, (codes, *LABELS), strict=True)
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
            written += len(block)
            if progress is not None:
                progress(written)
    return Population(records, crosswalk, people, shape)


def write_crosswalk(folder: Path, shape: PopulationShape) -> Path:
    """Write `blocks.csv`: every block of `shape`, with the units above it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "blocks.csv"
    geography = _geography(shape)
    schema = pa.schema([(level, pa.string()) for level in LEVELS])
    options = csv.WriteOptions(include_header=False, quoting_style="none")
    with path.open("wb") as file:
        file.write((",".join(LEVELS) + "\n").encode())
        with csv.CSVWriter(file, schema, write_options=options) as writer:
            for low in range(0, shape.block_groups, CROSSWALK_BLOCK_GROUPS):
                high = min(low + CROSSWALK_BLOCK_GROUPS, shape.block_groups)
                columns = [_child_codes(geography, low, high)]
                unit = _parents(geography.starts[4], low, high)
                for level in (4, 3, 2, 1):
                    columns.append(geography.codes[level].take(pa.array(unit)))
                    unit = np.searchsorted(geography.starts[level - 1], unit, side="right") - 1
                columns.append(pa.repeat("US", len(unit)))
                writer.write_table(pa.Table.from_arrays(columns[::-1], schema=schema))
    return path


def _geography(shape: PopulationShape) -> _Geography:
    """Return the units of `shape`, spread unevenly; every call returns the same."""
    geography = _Geography()
    for level, (parents, children) in enumerate(pairwise((1, *astuple(shape)))):
        codes, starts = geography.codes, geography.starts
        if level:
            codes = (*codes, _child_codes(geography, 0, len(codes[-1])))
        rng = default_rng((parents, children))
        weight = rng.lognormal(sigma=UNEVENNESS[level], size=parents)
        # One child for each parent; the others follow the weights, rounded cumulatively.
        shared = np.rint(np.cumsum(weight) / weight.sum() * (children - parents)).astype(np.int64)
        geography = _Geography(codes, (*starts, np.append(0, np.arange(1, parents + 1) + shared)))
    return geography


def _parents(starts: IntArray, low: int, high: int) -> IntArray:
    """Return the parent of each child of units `low` … `high` - 1."""
    return np.repeat(np.arange(low, high), np.diff(starts[low : high + 1]))


def _child_codes(geography: _Geography, low: int, high: int) -> pa.Array:
    """Return the codes of the children of units `low` … `high` - 1 of the lowest level with codes."""
    level, starts = len(geography.codes) - 1, geography.starts[-1]
    parent = _parents(starts, low, high)
    number = (np.arange(starts[low], starts[high]) - starts[parent] + 1) * STEPS[level]
    # A parent with too many children for the usual digits widens the codes of the whole level.
    digits = max(DIGITS[level], len(str(np.diff(starts).max() * STEPS[level])))
    own = pc.utf8_lpad(pc.cast(pa.array(number), pa.string()), digits, "0")
    return pc.binary_join_element_wise(geography.codes[-1].take(pa.array(parent)), own, "")


def _draw_tracts(people: int, geography: _Geography, *, rng: Generator) -> _Tracts:
    """Draw sizes, mixes and facilities, from the nation down to the tracts."""
    states, counties, tracts = (len(codes) for codes in geography.codes[1:4])
    state = _parents(geography.starts[1], 0, states)
    county = _parents(geography.starts[2], 0, counties)
    rural = rng.random(tracts) < rng.beta(1.0, 2.0, size=counties)[county]
    state_mix = _dirichlet(np.tile(GROUP_SHARES, (states, 1)), 6.0, rng=rng)
    county_mix = _dirichlet(state_mix[state], 5.0, rng=rng)[county]
    county_mix[rural, 0] *= 3.0  # rural tracts have a larger white share than others
    young = rng.beta(176.0, 624.0, size=states)[state[county]]
    weight = rng.lognormal(sigma=0.35, size=tracts)
    size = rng.multinomial(people, weight / weight.sum())
    return _Tracts(
        people=size,
        first_block=geography.starts[4][geography.starts[3]],
        vacancy=np.where(rural, 0.4, 0.25),
        under_18=rng.beta(100 * young, 100 * (1 - young)),
        several_races=np.minimum(0.06 * rng.lognormal(sigma=0.4, size=tracts), 0.5),
        mix=_dirichlet(county_mix, 1.5, rng=rng),
        state_mix=state_mix[state[county]],
        quarters=_draw_quarters(people, size, rng=rng),
    )


def _draw_quarters(people: int, tract_people: IntArray, *, rng: Generator) -> IntArray:
    """Draw the facilities of the nation: tracts in order, kinds and residents, as three rows."""
    rows = []
    for kind, typical in enumerate(QUARTERS_SIZE, start=1):
        residents = rng.binomial(people, QUARTERS_SHARE[kind - 1])
        facilities = max(1, round(residents / typical))
        # A heavy tail concentrates colleges, bases and prisons in a few tracts.
        appeal = tract_people * rng.gamma(0.2, size=len(tract_people))
        where = rng.choice(len(tract_people), size=facilities, p=appeal / appeal.sum())
        weight = rng.lognormal(sigma=0.9, size=facilities)
        sizes = rng.multinomial(residents, weight / weight.sum())
        rows.append(np.stack([where, np.full(facilities, kind), sizes]))
    table = np.concatenate(rows, axis=1)
    return table[:, np.argsort(table[0], kind="stable")]


def _draw_people(tracts: _Tracts, tract: int, seed: int) -> tuple[Array, ...]:
    """Draw one tract: the block, HHGQ, VOTINGAGE, HISPANIC and CENRACE of each person."""
    # Keyed by tract, so that people do not depend on how tracts are batched.
    rng = default_rng(SeedSequence(seed, spawn_key=(1, tract)))
    people, blocks = tracts.people[tract], np.arange(*tracts.first_block[tract : tract + 2])
    here = slice(*np.searchsorted(tracts.quarters[0], (tract, tract + 1)))
    _, kinds, residents = tracts.quarters[:, here]
    # Facilities take at most three quarters of a tract, prisons first.
    residents = np.diff(np.minimum(np.cumsum(residents), people * 3 // 4), prepend=0)
    weight = rng.lognormal(sigma=1.1, size=len(blocks))
    vacant = rng.random(len(blocks)) < tracts.vacancy[tract]
    weight[vacant & (weight < weight.max())] = 0.0
    homes = rng.multinomial(people - residents.sum(), weight / weight.sum())

    # A place is the households of one block, or one facility.
    block = np.append(blocks, rng.choice(blocks, size=len(residents)))
    kind = np.append(np.zeros_like(blocks), kinds)
    size = np.append(homes, residents)
    order = np.argsort(block, kind="stable")
    order = order[size[order] > 0]
    block, kind, size = block[order], kind[order], size[order]
    at_home = kind == 0
    # People in facilities come from the whole state.
    around = np.where(at_home[:, None], tracts.mix[tract], tracts.state_mix[tract])
    mean = tracts.under_18[tract]
    varied = rng.beta(30 * mean, 30 * (1 - mean), size=len(size))
    young = np.where(at_home, varied, QUARTERS_UNDER_18[kind])

    place = np.repeat(np.arange(len(size)), size)
    group = _pick(_dirichlet(around, 1.0, rng=rng), place, rng=rng)
    hispanic = group >= len(RACES)
    race = group - len(RACES) * hispanic
    several = np.flatnonzero(rng.random(people) < tracts.several_races[tract])
    race[several] = _pick(_combination_weights(), race[several], rng=rng)
    youth = GROUP_YOUTH[group]
    youth[several] *= 1.4  # people who report several races are younger
    adult = rng.random(people) >= young[place] * youth
    return block[place], kind[place], adult, hispanic, race


@cache
def _combination_weights() -> FloatArray:
    """Return weights of CENRACE for people of several races, one row per principal race."""
    shares = np.sqrt(GROUP_SHARES.reshape(2, -1).sum(axis=0))
    weight = np.zeros((len(RACES), len(CENRACE)))
    for code, label in enumerate(CENRACE[len(RACES) :], start=len(RACES)):
        members = [RACES.index(race) for race in label.split("+")]
        weight[members, code] = shares[members].prod() / shares[members]
    for count, share in enumerate(SEVERAL_RACES, start=2):
        alike = [label.count("+") == count - 1 for label in CENRACE]
        weight[:, alike] *= share / weight[:, alike].sum(axis=1, keepdims=True)
    weight.setflags(write=False)  # the cache returns the same array every time
    return weight


def _dirichlet(around: FloatArray, alpha: float, *, rng: Generator) -> FloatArray:
    """Draw a mix near each row; a smaller alpha means more segregation.

    A scaled Dirichlet law, p_g = a_g x_g / Σ a_h x_h with x_g ~ Gamma(alpha): a plain one of the
    same spread would leave small groups out of whole states.
    """
    drawn: FloatArray = around * rng.standard_gamma(alpha, size=around.shape)
    drawn /= drawn.sum(axis=1, keepdims=True)
    return drawn


def _pick(weight: FloatArray, row: IntArray, *, rng: Generator) -> IntArray:
    """Draw a column for each entry of `row`, with the weights of that row."""
    # Row i of the cumulative shares climbs from i to i + 1, so one search serves all rows.
    cumulative = weight.cumsum(axis=1)
    ladder = cumulative / cumulative[:, -1:] + np.arange(len(weight))[:, None]
    step = np.searchsorted(ladder.ravel(), row + rng.random(len(row)), side="right")
    width = weight.shape[1]
    picked: IntArray = np.minimum(step - width * row, width - 1)  # the sum may round up to i + 1
    return picked
