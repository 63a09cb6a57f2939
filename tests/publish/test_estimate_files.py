"""What is published: files that three readers open, that agree with each other, and read back."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import TINY_PLACES, TINY_PLAN

from countveil import measure, postprocess
from countveil.base.histograms import Histograms, roll_up, store
from countveil.base.randomness import Seeded
from countveil.demo.synthetic import write_population
from countveil.engines.engine import open_engine
from countveil.errors import VerificationError
from countveil.plan.plans import Plan
from countveil.postprocess.certificate import LevelCertificate
from countveil.postprocess.estimates import Estimates
from countveil.publish import Release, microdata, table_files
from countveil.publish.estimate_files import read_estimates, write_estimate_files

LEVELS = ("nation", "state", "county", "tract", "block_group", "block")
CENSUS = """
[release]
title = "Synthetic"
preset = "pl94-2020"
[records]
path = "people.parquet"
one_row_per_person = true
[geography]
path = "blocks.csv"
[postprocess]
microdata = true
tables = ["P1", "P2", "P3", "P4", "P5", "VOTINGAGE*HISPANIC", "TOTAL"]
"""
ONE_RACE = "NOT contains(CENRACE, '+')"
ADULT = "VOTINGAGE = '18 and over'"
OTHER = "HISPANIC = 'not Hispanic'"
# Lines of the official tables, said in SQL.
LINES = {
    "P1": {
        "P0010001": "TRUE",
        "P0010002": ONE_RACE,
        "P0010003": "CENRACE = 'white'",
        "P0010008": "CENRACE = 'other'",
        "P0010009": f"NOT {ONE_RACE}",
        "P0010010": "len(string_split(CENRACE, '+')) = 2",
        "P0010011": "CENRACE = 'white+black'",
        "P0010026": "len(string_split(CENRACE, '+')) = 3",
        "P0010047": "len(string_split(CENRACE, '+')) = 4",
        "P0010063": "len(string_split(CENRACE, '+')) = 5",
    },
    "P2": {
        "P0020001": "TRUE",
        "P0020002": "HISPANIC = 'Hispanic'",
        "P0020003": OTHER,
        "P0020005": f"{OTHER} AND CENRACE = 'white'",
        "P0020008": f"{OTHER} AND CENRACE = 'asian'",
        "P0020011": f"{OTHER} AND NOT {ONE_RACE}",
    },
    "P3": {"P0030001": ADULT, "P0030004": f"{ADULT} AND CENRACE = 'black'"},
    "P4": {
        "P0040001": ADULT,
        "P0040002": f"{ADULT} AND HISPANIC = 'Hispanic'",
        "P0040005": f"{ADULT} AND {OTHER} AND CENRACE = 'white'",
        "P0040012": f"{ADULT} AND {OTHER} AND len(string_split(CENRACE, '+')) = 2",
    },
    "P5": {
        "P0050001": "HHGQ <> 'household'",
        "P0050003": "HHGQ = 'correctional facilities for adults'",
        "P0050007": "HHGQ IN ('college housing', 'military quarters', 'other noninstitutional')",
        "P0050008": "HHGQ = 'college housing'",
    },
    "VOTINGAGE-HISPANIC": {"VOTINGAGE_HISPANIC_0003": f"{ADULT} AND {OTHER}"},
    "TOTAL": {"TOTAL_0001": "TRUE"},
}


@pytest.fixture(scope="module")
def census(tmp_path_factory) -> tuple[Estimates, Path, list[str]]:
    """A simulated release of a few thousand people: its estimates, its folder, what was written."""
    folder = tmp_path_factory.mktemp("census")
    write_population(folder, people=3_000, seed=5)
    (folder / "plan.toml").write_text(CENSUS)
    plan = Plan.load(folder / "plan.toml")
    counts = open_engine("local").tabulate(plan)
    measure.take(counts, plan, rng=Seeded(1), ledger=None, to=folder / "out")
    measurements = Release.read(folder / "out").measurements
    estimates = postprocess.top_down(measurements, plan)
    return estimates, folder / "out", write_estimate_files(estimates, folder / "out")


def small(folder: Path, entries: list[tuple[int, int, int]], more: str = "") -> Estimates:
    """Return estimates of the tiny plan from (area, cell, count)."""
    (folder / "places.csv").write_text(TINY_PLACES)
    section = more or '[postprocess]\nmethod = "top-down"\n'
    plan = Plan.parse(TINY_PLAN + section, folder=folder)
    geography = plan.geography()
    columns = tuple(np.array(entries, np.int64).reshape(-1, 3).T)
    areas = store([columns], geography.units("area"), folder)
    parents = geography.ancestors("area", "region")
    regions = store(roll_up(areas, parents, plan.schema.cells), geography.units("region"), folder)
    return Estimates(plan, geography, {"region": regions, "area": areas}, ())


def folder_with(estimates: Estimates, folder: Path) -> Path:
    write_estimate_files(estimates, folder)
    return folder


def same(one: Estimates, other: Estimates) -> bool:
    return list(one.levels) == list(other.levels) and all(
        np.array_equal(getattr(one.levels[level], name), getattr(other.levels[level], name))
        for level in one.levels
        for name in ("offsets", "cells", "counts")
    )


def text(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


ENTRIES = [(0, 0, 2), (0, 4, 1), (2, 5, 7), (4, 0, 1), (4, 1, 3)]


def test_what_is_named_is_what_is_there(census):
    _, folder, names = census
    assert names[:6] == [f"estimates/{level}.parquet" for level in LEVELS]
    assert names[-3:] == ["tables/codebook.csv", "tables/codebook.md", "microdata.parquet"]
    assert "tables/VOTINGAGE-HISPANIC.csv" in names
    there = {
        path.relative_to(folder).as_posix()
        for part in ("estimates", "tables")
        for path in (folder / part).rglob("*")
    }
    assert there | {"microdata.parquet"} == set(names)
    assert len(names) == len(set(names)) == 6 + 2 * 7 + 3


def test_estimates_open_in_pandas_polars_and_duckdb(census):
    estimates, folder, _ = census
    path = folder / "estimates" / "block.parquet"
    columns = ["geocode", "HHGQ", "VOTINGAGE", "HISPANIC", "CENRACE", "estimate", "determined"]
    people = int(estimates.levels["block"].counts.sum())
    pandas = pd.read_parquet(path)
    polars = pl.read_parquet(path)
    (answer,) = duckdb.sql(f"SELECT sum(estimate), min(estimate) FROM '{path}'").fetchall()
    assert list(pandas.columns) == polars.columns == columns
    assert pandas["estimate"].sum() == polars["estimate"].sum() == answer[0] == people
    assert answer[1] > 0
    assert str(pandas["estimate"].dtype) == "int32"
    codes = estimates.geography.geocodes("block").to_pylist()
    assert pandas["geocode"].map(codes.index).is_monotonic_increasing
    for item in estimates.plan.schema.attributes:
        assert tuple(pandas[item.name].cat.categories) == item.categories
    white = polars.filter((pl.col("CENRACE") == "white") & (pl.col("HHGQ") == "household"))
    assert (
        white["estimate"].sum()
        == pandas.query("CENRACE == 'white' and HHGQ == 'household'").estimate.sum()
    )
    kinds = duckdb.sql(f"DESCRIBE SELECT * FROM '{path}'").fetchall()
    assert [kind for _, kind, *_ in kinds] == ["VARCHAR"] * 5 + ["INTEGER", "BOOLEAN"]


@pytest.mark.parametrize("level", LEVELS)
def test_estimates_are_the_cells_that_are_not_zero(census, level):
    estimates, folder, _ = census
    table = estimates.table(level, "HHGQ*VOTINGAGE*HISPANIC*CENRACE")
    table = table.filter(pa.compute.greater(table["estimate"], 0))
    found = pq.read_table(folder / "estimates" / f"{level}.parquet")
    assert not any(field.nullable for field in found.schema)
    for name in table.column_names:
        assert found[name].to_pylist() == table[name].to_pylist()


def test_microdata_tabulate_to_the_estimates(census):
    _, folder, _ = census
    people = folder / "microdata.parquet"
    names = "HHGQ, VOTINGAGE, HISPANIC, CENRACE"
    assert pq.read_schema(people).names == [*LEVELS, *names.split(", ")]
    for level in LEVELS:
        published = folder / "estimates" / f"{level}.parquet"
        wrong = duckdb.sql(
            f"""SELECT count(*) FROM (
                  SELECT {level} AS geocode, {names}, count(*) AS people FROM '{people}' GROUP BY ALL
                ) FULL JOIN '{published}' USING (geocode, {names})
                WHERE people IS DISTINCT FROM estimate"""
        ).fetchall()
        assert wrong == [(0,)]
    assert len(pd.read_parquet(people)) == len(pl.read_parquet(people)) == 3_000


@pytest.mark.parametrize("name", LINES)
def test_tables_are_group_bys_of_the_microdata(census, name):
    estimates, folder, _ = census
    lines = LINES[name]
    sums = ", ".join(f"count(*) FILTER ({where}) AS {line}" for line, where in lines.items())
    expected = {}
    for level in LEVELS:
        for code in estimates.geography.geocodes(level).to_pylist():
            expected[level, code] = (0,) * len(lines)
        found = duckdb.sql(f"SELECT {level}, {sums} FROM '{folder}/microdata.parquet' GROUP BY 1")
        for code, *counts in found.fetchall():
            expected[level, code] = tuple(counts)
    columns = f"level, geocode, {', '.join(lines)}"
    rows = duckdb.sql(f"SELECT {columns} FROM '{folder}/tables/{name}.parquet'").fetchall()
    assert {row[:2]: row[2:] for row in rows} == expected
    assert [row[:2] for row in rows] == list(expected), "levels from the top, units in order"


@pytest.mark.parametrize("name", LINES)
def test_csv_and_parquet_hold_the_same(census, name):
    _, folder, _ = census
    rows = pq.read_table(folder / "tables" / f"{name}.parquet").to_pylist()
    found = text(folder / "tables" / f"{name}.csv")
    assert found == [{key: str(value) for key, value in row.items()} for row in rows]
    assert len(pl.read_parquet(folder / "tables" / f"{name}.parquet")) == len(rows)


def test_tables_are_consistent_within_themselves(census):
    _, folder, _ = census
    for table in ("P1", "P3"):
        p = pd.read_parquet(folder / "tables" / f"{table}.parquet").filter(like=table[0])
        p.columns = range(1, 72)
        assert (p[1] == p[2] + p[9]).all()
        assert (p[2] == p[list(range(3, 9))].sum(axis=1)).all()
        assert (p[9] == p[[10, 26, 47, 63, 70]].sum(axis=1)).all()
        for first, last in ((10, 25), (26, 46), (47, 62), (63, 69), (70, 71)):
            assert (p[first] == p[list(range(first + 1, last + 1))].sum(axis=1)).all()


def test_estimates_read_back_as_they_were(census):
    estimates, folder, _ = census
    certificate = (LevelCertificate("nation", 1, 0.0, 0.0, 0.0, 1, 1, 0),)
    back = read_estimates(folder, estimates.plan, estimates.geography, certificate)
    assert same(back, estimates)
    assert back.certificate == certificate
    assert back.consistency_gap() == 0
    assert back.table("county", "CENRACE").equals(estimates.table("county", "CENRACE"))


def test_small_batches_write_the_same(census, tmp_path, monkeypatch):
    estimates, folder, names = census
    whole = Histograms.batches
    monkeypatch.setattr(Histograms, "batches", lambda self, most=0: whole(self, 50))
    monkeypatch.setattr(table_files, "_VALUES", 1_000)
    monkeypatch.setattr(microdata, "GROUP", 70)
    assert write_estimate_files(estimates, tmp_path) == names
    assert pq.ParquetFile(tmp_path / "microdata.parquet").num_row_groups >= 3_000 / 70
    assert pq.ParquetFile(tmp_path / "estimates" / "block.parquet").num_row_groups > 5
    for name in names:
        if name.endswith("parquet"):
            one, other = pd.read_parquet(tmp_path / name), pd.read_parquet(folder / name)
            pd.testing.assert_frame_equal(one, other, check_categorical=False)
        else:
            assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()
    assert same(read_estimates(tmp_path, estimates.plan, estimates.geography, ()), estimates)


def test_row_groups_may_share_a_dictionary(census, tmp_path):
    """As they do where a writer cuts more rows than it likes, a million and some, into two groups."""
    estimates, folder, _ = census
    write_estimate_files(estimates, tmp_path)
    path = tmp_path / "estimates" / "block.parquet"
    options = {"read_dictionary": pq.read_schema(path).names[:-1]}
    pq.write_table(
        pq.read_table(folder / "estimates" / "block.parquet", **options), path, row_group_size=70
    )
    with pq.ParquetFile(path) as file:
        assert file.num_row_groups > 5
        last = file.read_row_group(file.num_row_groups - 1)["geocode"].chunk(0)
        assert last.dictionary[0].as_py() != last[0].as_py(), "it names units of groups before"
    assert same(read_estimates(tmp_path, estimates.plan, estimates.geography, ()), estimates)


def test_a_level_of_more_rows_than_a_writer_likes_has_row_groups_of_its_own(tmp_path, monkeypatch):
    """pyarrow cuts at 2**20 rows unless told; a batch that is longer must not be cut."""
    whole = pq.ParquetWriter.write_table
    monkeypatch.setattr(
        pq.ParquetWriter,
        "write_table",
        lambda self, table, row_group_size=2: whole(self, table, row_group_size),
    )
    estimates = small(tmp_path, ENTRIES)
    path = folder_with(estimates, tmp_path / "out") / "estimates" / "area.parquet"
    assert pq.ParquetFile(path).num_row_groups == 1
    assert len(pq.read_table(path)) > 2


def test_the_same_estimates_give_the_same_bytes(census, tmp_path):
    estimates, folder, names = census
    write_estimate_files(estimates, tmp_path)
    assert all((tmp_path / name).read_bytes() == (folder / name).read_bytes() for name in names)


def test_the_codebook_lists_every_column(census):
    _, folder, _ = census
    rows = text(folder / "tables" / "codebook.csv")
    for name in LINES:
        columns = pq.read_schema(folder / "tables" / f"{name}.parquet").names
        assert columns == ["level", "geocode"] + [r["variable"] for r in rows if r["file"] == name]
    assert len(rows) == 71 + 73 + 71 + 73 + 10 + 4 + 1
    white = next(row for row in rows if row["variable"] == "P0020005")
    assert white["label"] == "White alone"
    assert (white["universe"], white["indent"]) == ("Total population", "3")
    shown = (folder / "tables" / "codebook.md").read_text()
    assert all(f"| `{row['variable']}` |" in shown for row in rows)
    assert "## P5: Group Quarters Population by Major Group Quarters Type" in shown
    assert "protect each person" in shown
    assert "block (115)" in shown


@pytest.mark.parametrize("entries", [ENTRIES, [], [(4, 5, 1)], [(0, 0, 1)]])
def test_units_and_levels_may_be_empty(tmp_path, entries):
    more = '[postprocess]\nmethod = "top-down"\ntables = ["AGE"]\nmicrodata = true\n'
    estimates = small(tmp_path, entries, more)
    folder = folder_with(estimates, tmp_path / "out")
    assert same(read_estimates(folder, estimates.plan, estimates.geography, ()), estimates)
    people = sum(count for *_, count in entries)
    for frame in (
        pd.read_parquet(folder / "microdata.parquet"),
        pl.read_parquet(folder / "microdata.parquet"),
        duckdb.sql(f"SELECT * FROM '{folder}/microdata.parquet'"),
    ):
        assert len(frame) == people
    assert len(pl.read_parquet(folder / "estimates" / "area.parquet")) == len(entries)
    rows = text(folder / "tables" / "AGE.csv")
    assert [row["geocode"] for row in rows] == ["R1", "R2", "A1", "A2", "A3", "A4", "A5"]
    young = sum(count for _, cell, count in entries if cell < 3)
    assert sum(int(row["AGE_0001"]) for row in rows[:2]) == young


def test_people_left_out_of_a_recode_are_left_out_of_its_table(tmp_path):
    more = """[recodes.BINARY]
of = "SEX"
omit = ["x"]
groups = { f = ["f"], m = ["m"] }
[postprocess]
method = "top-down"
tables = ["AGE*BINARY"]
"""
    folder = folder_with(small(tmp_path, ENTRIES, more), tmp_path / "out")
    rows = text(folder / "tables" / "AGE-BINARY.csv")
    assert [list(row.values())[1:] for row in rows[2:]] == [
        ["A1", "2", "0", "0", "1"],
        ["A2", "0", "0", "0", "0"],
        ["A3", "0", "0", "0", "0"],
        ["A4", "0", "0", "0", "0"],
        ["A5", "1", "3", "0", "0"],
    ]
    assert "Those in a category of AGE\\*BINARY" in (folder / "tables" / "codebook.md").read_text()


def test_levels_below_the_lowest_measured_are_not_published(tmp_path):
    plan = TINY_PLAN.replace('region = "1/2"\narea = "1/2"', 'region = "1"\narea = "0"')
    (tmp_path / "places.csv").write_text(TINY_PLACES)
    plan = Plan.parse(
        plan + '[postprocess]\nmethod = "top-down"\nmicrodata = true\n', folder=tmp_path
    )
    both = small(tmp_path, ENTRIES)
    upper = replace(both, plan=plan, levels={"region": both.levels["region"]})
    assert write_estimate_files(upper, tmp_path / "out") == [
        "estimates/region.parquet",
        "microdata.parquet",
    ]
    assert same(read_estimates(tmp_path / "out", plan, both.geography, ()), upper)
    assert pq.read_schema(tmp_path / "out" / "microdata.parquet").names == ["region", "AGE", "SEX"]


def test_a_plan_may_count_people_and_nothing_else(tmp_path):
    bare = TINY_PLAN.replace('AGE = ["young", "old"]\nSEX = ["f", "m", "x"]\n', "")
    bare = bare.replace('TOTAL = "1/4"\n"AGE*SEX" = "3/4"', 'TOTAL = "1"')
    section = '[postprocess]\nmethod = "top-down"\nmicrodata = true\ntables = ["TOTAL"]\n'
    estimates = small(tmp_path, [(0, 0, 2), (3, 0, 5)])
    plan = Plan.parse(bare + section, folder=tmp_path)
    estimates = replace(estimates, plan=plan)
    folder = folder_with(estimates, tmp_path / "out")
    assert same(read_estimates(folder, plan, estimates.geography, ()), estimates)
    assert [row["TOTAL_0001"] for row in text(folder / "tables" / "TOTAL.csv")] == list("2520050")
    people = pq.read_table(folder / "microdata.parquet").to_pylist()
    assert people == 2 * [{"region": "R1", "area": "A1"}] + 5 * [{"region": "R2", "area": "A4"}]


def test_publishing_again_leaves_nothing_of_before(tmp_path):
    more = '[postprocess]\nmethod = "top-down"\ntables = ["AGE"]\nmicrodata = true\n'
    folder = folder_with(small(tmp_path, ENTRIES, more), tmp_path / "out")
    (folder / "manifest.json").write_text("{}")
    for name in ("", "estimates/", "tables/"):
        (folder / f"{name}.countveil-temporary-1-x").write_text("left by a killed run")
    names = write_estimate_files(small(tmp_path, ENTRIES), folder)
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert there == {"manifest.json", *names}
    assert names == ["estimates/region.parquet", "estimates/area.parquet"]


def test_a_file_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    more = '[postprocess]\nmethod = "top-down"\ntables = ["AGE"]\n'
    monkeypatch.setattr(table_files, "rows_of", stopped)
    with pytest.raises(KeyboardInterrupt):
        write_estimate_files(small(tmp_path, ENTRIES, more), tmp_path / "out")
    assert list((tmp_path / "out" / "tables").iterdir()) == []


def test_names_of_files_are_apart(tmp_path):
    plan = TINY_PLAN.replace("AGE", "codebook").replace("SEX", "Codebook")
    more = '[postprocess]\ntables = ["codebook", "Codebook", "codebook*Codebook", "TOTAL"]\n'
    stems = table_files.file_stems(Plan.parse(plan + more).tables)
    assert stems == ["codebook-2", "Codebook-3", "codebook-Codebook", "TOTAL"]


def test_labels_do_not_break_the_codebook(tmp_path):
    more = '[postprocess]\nmethod = "top-down"\ntables = ["AGE"]\n'
    estimates = small(tmp_path, ENTRIES, more)
    (table,) = estimates.plan.tables
    first, second = table.variables
    odd = replace(table, variables=(replace(first, label='a|b\n"c", <d>'), second))
    folder = folder_with(
        replace(estimates, plan=replace(estimates.plan, tables=(odd,))), tmp_path / "o"
    )
    assert text(folder / "tables" / "codebook.csv")[0]["label"] == 'a|b\n"c", <d>'
    assert '| `AGE_0001` | a\\|b "c", \\<d\\> |' in (folder / "tables" / "codebook.md").read_text()


def changed(column: str, values: Callable[[list], list]) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        where = table.column_names.index(column)
        field = table.schema.field(column)
        array = pa.array(values(table[column].to_pylist()))
        array = array.dictionary_encode() if pa.types.is_dictionary(field.type) else array
        return table.set_column(where, field, array.cast(field.type))

    return change


ORDER = "rows are not sorted by unit and cell, each once and above 0; restore"
OTHER_COLUMNS = r"its columns are not those of the plan, which are geocode, AGE, SEX \(text in dict"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            changed("AGE", lambda v: ["ancient", *v[1:]]),
            "AGE has 'ancient', but its cat.* young, old",
        ),
        (changed("geocode", lambda v: ["A9", *v[1:]]), "A9 is not an area of the crosswalk"),
        (changed("geocode", lambda v: ["A5", *v[1:]]), ORDER),
        (changed("SEX", lambda v: ["m", "m", *v[2:]]), None),
        (changed("estimate", lambda v: [0, *v[1:]]), ORDER),
        (changed("estimate", lambda v: [-1, *v[1:]]), ORDER),
        (lambda table: pa.concat_tables([table.slice(0, 1), table]), ORDER),
        (lambda table: table.drop_columns(["SEX"]), OTHER_COLUMNS),
        (lambda table: table.rename_columns({"SEX": "AGE", "AGE": "SEX"}), OTHER_COLUMNS),
        (lambda table: table.select(["geocode", "SEX", "AGE", "estimate"]), OTHER_COLUMNS),
        (
            lambda table: table.set_column(3, "estimate", table["estimate"].cast(pa.int64())),
            OTHER_COLUMNS,
        ),
        (lambda table: pa.table(table.columns, names=table.column_names), OTHER_COLUMNS),
    ],
)
def test_files_that_are_not_the_plans_are_refused(tmp_path, change, message):
    estimates = small(tmp_path, ENTRIES)
    path = folder_with(estimates, tmp_path / "out") / "estimates" / "area.parquet"
    pq.write_table(change(pq.read_table(path)), path)
    if message is None:
        back = read_estimates(tmp_path / "out", estimates.plan, estimates.geography, ())
        assert back.consistency_gap() == 2
        return
    with pytest.raises(VerificationError, match=message) as caught:
        read_estimates(tmp_path / "out", estimates.plan, estimates.geography, ())
    assert str(path) in str(caught.value)


def test_rows_out_of_order_across_row_groups_are_refused(tmp_path):
    estimates = small(tmp_path, ENTRIES)
    path = folder_with(estimates, tmp_path / "out") / "estimates" / "area.parquet"
    table = pq.read_table(path)
    rows = table.to_pylist()

    def write(some: list[dict]) -> None:
        with pq.ParquetWriter(path, table.schema) as writer:
            for row in some:
                writer.write_table(pa.Table.from_pylist([row], table.schema))

    write(rows)
    back = read_estimates(tmp_path / "out", estimates.plan, estimates.geography, ())
    assert same(back, estimates)
    write([rows[1], rows[0]])
    with pytest.raises(VerificationError, match=ORDER):
        read_estimates(tmp_path / "out", estimates.plan, estimates.geography, ())
    write([rows[-1], rows[0]])
    with pytest.raises(VerificationError, match="A1 is not an area of the crosswalk, or is out of"):
        read_estimates(tmp_path / "out", estimates.plan, estimates.geography, ())


def test_files_that_cannot_be_read_are_refused(tmp_path):
    estimates = small(tmp_path, ENTRIES)
    path = folder_with(estimates, tmp_path / "out") / "estimates" / "area.parquet"
    for spoil in (lambda: path.write_bytes(b"no Parquet"), path.unlink):
        spoil()
        with pytest.raises(
            VerificationError, match=r"area.parquet: cannot be read \(.*; restore the original file"
        ):
            read_estimates(tmp_path / "out", estimates.plan, estimates.geography, ())
