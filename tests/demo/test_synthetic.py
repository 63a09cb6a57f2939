"""The synthetic population is exact in size, repeatable, nested, skewed and segregated."""

from __future__ import annotations

import csv
import importlib.resources
import tomllib
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2_contingency

from countveil.demo import synthetic
from countveil.demo.synthetic import (
    CENRACE,
    HHGQ,
    HISPANIC,
    LEVELS,
    NATION,
    VOTINGAGE,
    Population,
    PopulationShape,
    write_crosswalk,
    write_population,
)
from countveil.errors import InputError

PEOPLE = 100_000
LABELS = {"HHGQ": HHGQ, "VOTINGAGE": VOTINGAGE, "HISPANIC": HISPANIC, "CENRACE": CENRACE}


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Population:
    return write_population(tmp_path_factory.mktemp("town"), people=PEOPLE, seed=7)


def column(population: Population, name: str) -> NDArray[Any]:
    table = pq.read_table(population.records, columns=[name])
    return np.asarray(table[name].to_pylist())


def crosswalk(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def block_sizes(population: Population) -> NDArray[np.int64]:
    counts = Counter(column(population, "block").tolist())
    return np.array([counts[row["block"]] for row in crosswalk(population.crosswalk)])


def test_labels_are_complete_and_ordered() -> None:
    assert (len(HHGQ), len(VOTINGAGE), len(HISPANIC), len(CENRACE)) == (8, 2, 2, 63)
    assert CENRACE[:7] == ("white", "black", "aian", "asian", "nhpi", "other", "white+black")
    assert CENRACE[-1] == "white+black+aian+asian+nhpi+other"
    assert len(set(CENRACE)) == 63


def test_labels_are_those_of_the_preset() -> None:
    preset = importlib.resources.files("countveil.plan.presets") / "pl94-2020.toml"
    attributes = tomllib.loads(preset.read_text(encoding="utf-8"))["attributes"]
    assert {name: tuple(texts) for name, texts in attributes.items()} == LABELS


@pytest.mark.parametrize("people", [1, 50, 499, 500, 5_000, PEOPLE, 40_000_000, 330_000_000])
def test_shape_is_nested_and_grows(people: int) -> None:
    shape = PopulationShape.for_people(people)
    sizes = (shape.states, shape.counties, shape.tracts, shape.block_groups, shape.blocks)
    assert all(above < below for above, below in pairwise(sizes))
    assert shape.states >= (2 if people >= 500 else 1)


def test_shape_of_known_populations() -> None:
    assert PopulationShape.for_people(650_000).blocks == 25_000
    assert PopulationShape.for_people(330_000_000) == NATION


def test_shape_that_does_not_nest_is_refused() -> None:
    with pytest.raises(InputError, match=r"counties=1.*at least as many units as the level above"):
        PopulationShape(states=2, counties=1, tracts=3, block_groups=4, blocks=5)
    with pytest.raises(InputError, match="at least 1 state"):
        PopulationShape(states=0, counties=1, tracts=3, block_groups=4, blocks=5)


@pytest.mark.parametrize("people", [1, 2, 50, 499, 500, 12_345])
def test_rows_are_exactly_the_people_asked_for(tmp_path: Path, people: int) -> None:
    population = write_population(tmp_path, people=people, seed=3)
    assert pq.read_metadata(population.records).num_rows == population.people == people
    assert len(crosswalk(population.crosswalk)) == population.shape.blocks


@pytest.mark.parametrize("people", [0, -4])
def test_no_people_is_refused(tmp_path: Path, people: int) -> None:
    with pytest.raises(InputError, match=f"people: {people} is not allowed; give at least 1"):
        write_population(tmp_path, people=people, seed=1, shape=PopulationShape(1, 1, 1, 1, 1))
    with pytest.raises(InputError, match=f"people: {people} is not allowed; give at least 1"):
        PopulationShape.for_people(people)
    assert list(tmp_path.iterdir()) == []


def test_negative_seed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="seed: -1 is not allowed; choose a whole number"):
        write_population(tmp_path, people=10, seed=-1)


def test_seed_decides_every_byte(tmp_path: Path) -> None:
    first, again, other = (
        write_population(tmp_path / name, people=5_000, seed=seed)
        for name, seed in (("first", 1), ("again", 1), ("other", 2))
    )
    assert first.records.read_bytes() == again.records.read_bytes()
    assert first.crosswalk.read_bytes() == again.crosswalk.read_bytes()
    assert first.crosswalk.read_bytes() == other.crosswalk.read_bytes()
    assert not pq.read_table(first.records).equals(pq.read_table(other.records))


def test_batching_changes_row_groups_but_no_row(
    tmp_path: Path, town: Population, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synthetic, "ROW_GROUP_PEOPLE", 9_000)
    monkeypatch.setattr(synthetic, "CROSSWALK_BLOCK_GROUPS", 5)
    seen: list[int] = []
    finer = write_population(tmp_path, people=PEOPLE, seed=7, progress=seen.append)
    assert pq.read_metadata(finer.records).num_row_groups == len(seen) > 5
    assert seen == sorted(seen)
    assert seen[-1] == PEOPLE
    assert pq.read_table(finer.records).equals(pq.read_table(town.records))
    assert finer.crosswalk.read_bytes() == town.crosswalk.read_bytes()


def test_records_are_text_kept_as_dictionaries(town: Population) -> None:
    schema = pq.read_schema(town.records)
    assert schema.names == ["block", *LABELS]
    assert {str(kind) for kind in schema.types} == {"string"}
    group = pq.read_metadata(town.records).row_group(0)
    for index in range(group.num_columns):
        assert group.column(index).has_dictionary_page
        assert group.column(index).compression == "ZSTD"


def test_every_block_of_a_person_is_in_the_crosswalk(town: Population) -> None:
    blocks = {row["block"] for row in crosswalk(town.crosswalk)}
    assert set(column(town, "block").tolist()) <= blocks


@pytest.mark.parametrize(
    "shape",
    [
        PopulationShape.for_people(50),
        PopulationShape.for_people(PEOPLE),
        PopulationShape(1, 1, 1, 12, 30_000),
    ],
)
def test_crosswalk_nests_and_counts(tmp_path: Path, shape: PopulationShape) -> None:
    rows = crosswalk(write_crosswalk(tmp_path, shape))
    assert tuple(rows[0]) == LEVELS
    assert {row["nation"] for row in rows} == {"US"}
    sizes = [len({row[level] for row in rows}) for level in LEVELS[1:]]
    assert PopulationShape(*sizes) == shape
    for above, below in pairwise(LEVELS[1:]):
        assert all(row[below].startswith(row[above]) for row in rows)
        assert len({(row[above], row[below]) for row in rows}) == len({row[below] for row in rows})
    for level in LEVELS:
        assert len({len(row[level]) for row in rows}) == 1


def test_codes_have_census_widths(town: Population) -> None:
    row = crosswalk(town.crosswalk)[0]
    assert [len(row[level]) for level in LEVELS] == [2, 2, 5, 11, 12, 15]
    assert row["block"] == "010010001001001"


def test_only_declared_labels_appear(town: Population) -> None:
    for name, texts in LABELS.items():
        assert set(column(town, name).tolist()) <= set(texts)
    assert set(column(town, "HHGQ").tolist()) == set(HHGQ)


def test_a_third_of_blocks_is_empty_and_few_are_large(town: Population) -> None:
    sizes = np.sort(block_sizes(town))[::-1]
    assert sizes.sum() == PEOPLE
    assert 0.25 < np.mean(sizes == 0) < 0.45
    assert sizes[: len(sizes) // 100].sum() > 0.05 * PEOPLE


def test_group_quarters_are_few_people_in_few_blocks(town: Population) -> None:
    kind, block = column(town, "HHGQ"), column(town, "block")
    quarters = kind != "household"
    assert 0.01 < quarters.mean() < 0.06
    assert len(np.unique(block[quarters])) < 0.05 * len(np.unique(block))
    assert Counter(block[quarters].tolist()).most_common(1)[0][1] > 200


def test_ages_fit_the_place(town: Population) -> None:
    kind, minor = column(town, "HHGQ"), column(town, "VOTINGAGE") == "under 18"
    assert 0.18 < minor.mean() < 0.27
    assert not minor[kind == "correctional facilities for adults"].any()
    assert minor[kind == "college housing"].mean() < 0.05
    assert minor[kind == "juvenile facilities"].mean() > 0.5


def test_many_races_are_rare_but_present(town: Population) -> None:
    races = np.char.count(column(town, "CENRACE"), "+") + 1
    shares = [np.mean(races == count) for count in range(1, 5)]
    assert 0.85 < shares[0] < 0.97
    assert shares[1] > 5 * shares[2] > 25 * shares[3] > 0


# Two states may happen to agree in one share of two; forty tracts, or a whole race mix, cannot.
@pytest.mark.parametrize(
    ("name", "digits"), [("CENRACE", 2), ("CENRACE", 11), ("HISPANIC", 11), ("VOTINGAGE", 11)]
)
def test_places_differ_more_than_at_random(town: Population, name: str, digits: int) -> None:
    place = np.array([code[:digits] for code in column(town, "block").tolist()])
    answer = column(town, name)
    # Rare answers are pooled, so that the chi-square law holds for the statistic.
    common = {text for text, count in Counter(answer.tolist()).items() if count > 2_000}
    _, row = np.unique(place, return_inverse=True)
    _, col = np.unique([text if text in common else "" for text in answer], return_inverse=True)
    shuffled = np.random.default_rng(1).permutation(row)
    tables = [np.zeros((row.max() + 1, col.max() + 1)) for _ in range(2)]
    for table, places in zip(tables, (row, shuffled), strict=True):
        np.add.at(table, (places, col), 1)
    assert chi2_contingency(tables[0]).pvalue < 1e-9
    assert chi2_contingency(tables[1]).pvalue > 1e-6


def test_hispanic_origin_depends_on_race(town: Population) -> None:
    race, hispanic = column(town, "CENRACE"), column(town, "HISPANIC") == "Hispanic"
    assert hispanic[race == "other"].mean() > 0.6 > 0.3 > hispanic[race == "black"].mean()
