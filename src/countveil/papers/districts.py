"""A synthetic state in place of Washington in 1940, whose records nobody may publish (paper 001)."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from countveil import synthetic
from countveil.numerics import Array, IntArray

_PEOPLE = 1_736_191  # of Washington in 1940
_SHAPE = synthetic.Shape(states=1, counties=39, tracts=800, block_groups=2_663, blocks=2_663)
_SEED = 1940
_RACES = 27  # with voting age and ethnicity 108 strata, as many as 1940's 2 × 6 × 9


@dataclass(frozen=True, slots=True, eq=False)
class Districts:
    """People of each district (rows) by voting age, ethnicity and race (columns), and its county."""

    strata: IntArray
    county: Array

    @property
    def totals(self) -> IntArray:
        """The people of each district."""
        return np.asarray(self.strata.sum(axis=1), np.int64)


@cache
def synthetic_state() -> Districts:
    """Draw the state and count it; districts where nobody lives are left out."""
    with tempfile.TemporaryDirectory() as folder:
        population = synthetic.write_population(
            Path(folder), people=_PEOPLE, seed=_SEED, shape=_SHAPE
        )
        people = pq.read_table(population.records)
    race = _with_rest(_text(people, "CENRACE"))
    kinds = pc.binary_join_element_wise(
        _text(people, "VOTINGAGE"), _text(people, "HISPANIC"), race, "|"
    )
    block, kind = _text(people, "block").dictionary_encode(), kinds.dictionary_encode()
    strata = np.zeros((len(block.dictionary), len(kind.dictionary)), np.int64)
    np.add.at(strata, (block.indices.to_numpy(), kind.indices.to_numpy()), 1)
    # A geographic code begins with state and county: five digits.
    county = np.array([code[:5] for code in block.dictionary.to_pylist()])
    return Districts(strata, county)


def _text(people: pa.Table, name: str) -> pa.Array:
    return people[name].combine_chunks().cast(pa.string())


def _with_rest(race: pa.Array) -> pa.Array:
    """Keep the most common races and combinations; the others are one."""
    counted = sorted(pc.value_counts(race).to_pylist(), key=lambda row: -row["counts"])
    common = pa.array([row["values"] for row in counted[: _RACES - 1]])
    return pc.if_else(pc.is_in(race, common), race, "another combination")
