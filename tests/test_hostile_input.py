"""Plans, crosswalks, folders and releases that mean harm are refused with a message, or do none."""

from __future__ import annotations

import csv
import json
import os
import stat
from pathlib import Path

import duckdb
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from countveil import Release, Secure, Seeded, open_engine, pipeline
from countveil.base import parquet_size
from countveil.base.delimited import without_formulas
from countveil.cli import infer_command
from countveil.errors import FolderError, GeographyError, InputError, PlanError, VerificationError
from countveil.estimate.area_files import read_areas
from countveil.plan import one_table_plan
from countveil.plan.geography import read_crosswalk
from countveil.plan.plans import Plan
from tests.conftest import TINY_PEOPLE, TINY_PLACES, TINY_PLAN, restate, run, write_people

TABLES = '[postprocess]\nmethod = "top-down"\ntables = ["SEX"]\n'
CONSTRAINT = '[[constraints]]\nlevel = "area"\nquery = "SEX"\npath = "{}"\nreason = "known"\n'


@pytest.mark.parametrize("path", ["/etc/passwd", "../secret.csv", "a/../../secret.csv"])
def test_a_plan_cannot_publish_files_from_elsewhere(tiny, path):
    tiny.write_text(TINY_PLAN + CONSTRAINT.format(path))
    with pytest.raises(PlanError, match=r"constraints\.0\.path: .*outside the folder of the plan"):
        Plan.load(tiny)


@pytest.mark.parametrize("path", ["/places.csv", "../places.csv", "link.csv"])
def test_nor_a_crosswalk_or_previous_counts(tiny, tmp_path_factory, path):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "places.csv"
    elsewhere.write_text(TINY_PLACES)
    (tiny.parent / "link.csv").symlink_to(elsewhere)
    tiny.write_text(TINY_PLAN.replace("places.csv", path))
    with pytest.raises(PlanError, match=r"geography\.path: .*outside the folder of the plan"):
        Plan.load(tiny)
    beside = (
        TINY_PLAN.split("[budget]")[0]
        + '[budget]\nepsilon = "1"\n[[invariants]]\nlevel = "region"\nquery = "TOTAL"\n'
        f'reason = "known"\n[postprocess]\nmethod = "congenial"\n[congenial]\nprevious = "{path}"\n'
    )
    tiny.write_text(beside)
    with pytest.raises(PlanError, match=r"congenial\.previous: .*outside the folder of the plan"):
        Plan.load(tiny)


def test_nor_through_a_link(tiny, tmp_path_factory):
    secret = tmp_path_factory.mktemp("elsewhere") / "secret.csv"
    secret.write_text("area,SEX,at_most\nA1,f,3\n")
    (tiny.parent / "facts.csv").symlink_to(secret)
    tiny.write_text(TINY_PLAN + CONSTRAINT.format("facts.csv"))
    with pytest.raises(PlanError, match="move the file next to the plan"):
        Plan.load(tiny)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"region", "area"', '"../../region", "area"', "geography.levels.0"),
        ('AGE = ["young"', '"../AGE" = ["young"', "not allowed as a name"),
        ('AGE = ["young"', '"AGE; DROP TABLE x" = ["young"', "not allowed as a name"),
    ],
)
def test_names_that_would_be_paths_or_sql_are_no_names(tiny, old, new, message):
    tiny.write_text(TINY_PLAN.replace(old, new))
    with pytest.raises(PlanError, match=message):
        Plan.load(tiny)


@pytest.mark.parametrize("code", ["=1+1", "+1", "-1", "@SUM(A1)", "\tA1", "x" * 300])
@pytest.mark.parametrize("name", ["places.csv", "places.parquet"])
def test_codes_that_a_spreadsheet_would_run_are_refused(tmp_path, code, name):
    rows = {"region": ["R1", "R1", "R2"], "area": ["A1", code, "A3"]}
    if name.endswith("csv"):
        with (tmp_path / name).open("w", newline="") as file:
            csv.writer(file).writerows([rows, *zip(*rows.values(), strict=True)])
    else:
        pq.write_table(pa.table(rows), tmp_path / name)
    with pytest.raises(GeographyError, match="row 2: column 'area' has a code.*; start codes with"):
        read_crosswalk(tmp_path / name, ["region", "area"])
    (tmp_path / name).unlink()
    upper = {"region": ["R1", "R1", code], "area": ["A1", "A2", "A3"]}
    pq.write_table(pa.table(upper), tmp_path / "upper.parquet")
    with pytest.raises(GeographyError, match="row 3: column 'region' has a code"):
        read_crosswalk(tmp_path / "upper.parquet", ["region", "area"])


def test_labels_in_the_codebook_are_text_to_a_spreadsheet(tiny):
    evil = "=cmd|' /C calc'!A0"
    text = TINY_PLAN.replace('"x"]', f'"{evil}"]') + TABLES
    tiny.write_text(text.replace('title = "Tiny"', 'title = "@Tiny"'))
    write_people(tiny.parent / "people.csv", [*TINY_PEOPLE[:3], ("A2", "old", evil)])
    pipeline.release(Plan.load(tiny), to=tiny.parent / "out", rng=Seeded(1))
    with (tiny.parent / "out" / "tables" / "codebook.csv").open(newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert f"'{evil}" in cells
    assert not [cell for cell in cells if cell[:1] in "=+-@\t\r" and cell]
    for path in (tiny.parent / "out" / "tables").glob("*.csv"):
        for row in csv.reader(path.read_text().splitlines()):
            assert not [cell for cell in row if cell[:1] in ("=", "+", "@")]
    Release.read(tiny.parent / "out").verify(simulation=True)


SPLIT = "x;=1+1;|=2\t=3"


def test_a_label_with_the_delimiter_of_other_spreadsheets_stays_text_in_one_cell(tiny):
    tiny.write_text(TINY_PLAN.replace('"x"]', json.dumps(SPLIT) + "]") + TABLES)
    write_people(tiny.parent / "people.csv", TINY_PEOPLE[:3])
    pipeline.release(Plan.load(tiny), to=tiny.parent / "out", rng=Seeded(1))
    path = tiny.parent / "out" / "tables" / "codebook.csv"
    label = "x;'=1+1;|'=2\t'=3"
    assert f'"{label}"\n' in path.read_text()
    for line in path.read_text().splitlines():
        # All text is quoted: a reader that takes ; for a delimiter as well keeps each in one cell.
        assert line.startswith('"')
        for delimiter in ";|\t":
            for cell in line.split(delimiter):
                assert cell[:1] not in "=+-@", "and one that takes it before quotes runs nothing"
    columns = ["table", "file", "title", "universe", "variable", "indent", "label"]
    for table in (
        pandas.read_csv(path),
        polars.read_csv(path).to_pandas(),
        duckdb.read_csv(str(path)).df(),
    ):
        assert list(table.columns) == columns
        assert table["indent"].dtype == "int64"
        assert label in list(table["label"])


def test_other_files_hold_no_formula_behind_a_delimiter_either(tmp_path):
    table = without_formulas(pa.table({"a;=b": ["a;=1", "a|@x", "a\t-1", "\t=1", "a; b", "-;-1"]}))
    assert table.column_names == ["a;'=b"]
    wanted = ["a;'=1", "a|'@x", "a\t'-1", "'\t'=1", "a; b", "'-;'-1"]
    assert table.column(0).to_pylist() == wanted
    (tmp_path / "places.csv").write_text("area\nA1\nA2;=1+1;\n")
    pq.write_table(pa.table({"area": ["A1", "A2;=1+1;"]}), tmp_path / "places.parquet")
    with pytest.raises(GeographyError, match="row 2: column 'area' has a code.* after ; or [|]"):
        read_crosswalk(tmp_path / "places.parquet", ["area"])


def test_public_facts_that_a_spreadsheet_would_run_are_refused_before_they_are_published(tiny):
    evil = "=1+1"
    facts = tiny.parent / "facts.csv"
    facts.write_text(f"area,SEX,at_most\nA1,f,3\nA1,{evil},3\n")
    tiny.write_text(TINY_PLAN.replace('"x"]', f'"{evil}"]') + CONSTRAINT.format("facts.csv"))
    people = [(area, age, evil if sex == "x" else sex) for area, age, sex in TINY_PEOPLE]
    write_people(tiny.parent / "people.csv", people)
    with pytest.raises(InputError, match="facts.csv: row 2: column 'SEX' begins with =.*published"):
        released(tiny)
    assert not (tiny.parent / "out").exists()
    assert not (tiny.parent / "l.sqlite").exists()


def test_texts_of_any_table_written_as_csv_are_no_formulas(tmp_path):
    texts = ["=1", "+1", "-1", "@x", "\tx", "\rx", "\nx", "＝1", "fine", "", None]
    columns = {"=name": texts, "coded": pa.array(texts).dictionary_encode(), "n": range(-5, 6)}
    table = without_formulas(pa.table({name: pa.array(value) for name, value in columns.items()}))
    assert table.column_names == ["'=name", "coded", "n"]
    for name in ("'=name", "coded"):
        assert table[name].to_pylist() == [*(f"'{text}" for text in texts[:8]), "fine", "", None]
    assert table["n"].to_pylist() == list(range(-5, 6))
    infer_command._write(tmp_path / "rates.csv", pa.table({"geocode": texts[:2]}))
    assert (tmp_path / "rates.csv").read_text() == '"geocode"\n"\'=1"\n"\'+1"\n'


def test_other_files_that_unpack_to_too_much_are_refused_unread(tiny, monkeypatch):
    table = {"area": ["A1"] * 9, "region": ["R1"] * 9, "count": [1] * 9}
    path = tiny.parent / "nine.parquet"
    pq.write_table(pa.table(table), path)
    monkeypatch.setattr(parquet_size, "MOST_ROWS", 8)
    places = Plan.load(tiny).geography()
    with pytest.raises(InputError, match="unpacks to 9 rows and .*, at most 8"):
        read_areas(path, places, level="region")
    with pytest.raises(InputError, match="unpacks to 9 rows and .*, at most 8"):
        one_table_plan._columns(path, "region", "count")


@pytest.mark.parametrize("engine", ["local", "plain", "spark"], indirect=True)
def test_sql_in_column_names_and_categories_is_text(engine, tiny):
    column = "a\"; DROP TABLE people; --`'\\"
    label = "x'); DROP TABLE people; --\\"
    renamed = {"area": "area", "AGE": column, "SEX": "SEX"}
    people = [(place, age, label if sex == "x" else sex) for place, age, sex in TINY_PEOPLE]
    columns = zip(*people, strict=True)
    table = {name: list(values) for name, values in zip(renamed.values(), columns, strict=True)}
    pq.write_table(pa.table(table), tiny.parent / "people.parquet")
    text = TINY_PLAN.replace('"x"]', json.dumps(label) + "]")
    line = f'path = "people.parquet"\ncolumns = {{ AGE = {json.dumps(column)} }}'
    tiny.write_text(text.replace('path = "people.csv"', line))
    counts = open_engine(engine).tabulate(Plan.load(tiny))
    unit, cell, count = counts.entries("area", 0, 5)
    found = {(int(u), int(c)): int(n) for u, c, n in zip(unit, cell, count, strict=True)}
    assert found == {(0, 0): 1, (0, 4): 2, (1, 5): 1, (3, 1): 1, (4, 2): 1, (4, 3): 2}


def test_a_crosswalk_that_unpacks_to_too_much_is_refused_unread(tmp_path, monkeypatch):
    rows = 3_000_000
    path = tmp_path / "bomb.parquet"
    same = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int8()), pa.array(["A1"]))
    pq.write_table(pa.table({"region": same, "area": same}), path, compression="zstd")
    assert path.stat().st_size < 20_000
    monkeypatch.setattr(parquet_size, "MOST_ROWS", rows - 1)
    with pytest.raises(GeographyError, match="unpacks to 3,000,000 rows"):
        read_crosswalk(path, ["region", "area"])
    long = pa.table({"region": ["R"], "area": ["A" * 50_000_000]})
    pq.write_table(long, path, compression="zstd", use_dictionary=False)
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(parquet_size, "MOST_BYTES", 40_000_000)
    with pytest.raises(
        GeographyError, match="column 'area' unpacks to 1 rows and 50,000,0.. bytes"
    ):
        read_crosswalk(path, ["region", "area"])


def released(tiny: Path, rng=None) -> Path:
    pipeline.release(
        Plan.load(tiny),
        to=tiny.parent / "out",
        rng=rng or Secure(),
        ledger=tiny.parent / "l.sqlite",
    )
    return tiny.parent / "out"


@pytest.mark.parametrize("kind", ["measurements", "estimates"])
def test_a_release_that_unpacks_to_too_much_is_refused(tiny, kind):
    tiny.write_text(TINY_PLAN + '[postprocess]\nmethod = "top-down"\n')
    out = released(tiny)
    name = f"{kind}/area.parquet"
    table = pq.read_table(out / name)
    if kind == "measurements":
        longer = [[0] * 4_000_000, *table["values"].to_pylist()[1:]]
        field = table.schema.field("values")
        table = table.set_column(2, field, pa.array(longer, field.type))
        pq.write_table(table, out / name, compression="zstd")
    else:
        pq.write_table(pa.concat_tables([table] * 300_000).combine_chunks(), out / name)
    restate(out, name)
    with pytest.raises(VerificationError, match=f"{name} unpacks to more values than its plan has"):
        Release.read(out).verify()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../l.sqlite", "is listed in the manifest, but missing"),
        ("/etc/hostname", "is listed in the manifest, but missing"),
        ("measurements/../manifest.json", "is not the name of a file in a release"),
    ],
)
def test_a_manifest_cannot_list_files_elsewhere(tiny, name, message):
    out = released(tiny)
    path = out / "manifest.json"
    document = json.loads(path.read_text())
    document["files"][name] = {"sha256": "0" * 64, "bytes": 1}
    path.write_text(json.dumps(document))
    with pytest.raises(VerificationError, match=message):
        Release.read(out).package(tiny.parent / "out.zip")
    assert not (tiny.parent / "out.zip").exists()


def test_links_in_the_output_are_refused_before_anything_is_written(tiny, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    out, internal = tiny.parent / "out", tiny.parent / "out-internal"
    internal.symlink_to(elsewhere)
    with pytest.raises(FolderError, match="out-internal: is a symbolic link"):
        released(tiny)
    internal.unlink()
    out.mkdir()
    (out / "measurements").symlink_to(elsewhere)
    with pytest.raises(FolderError, match="measurements: is a symbolic link.*remove it"):
        released(tiny)
    assert not (tiny.parent / "l.sqlite").exists()
    (out / "measurements").unlink()
    released(tiny)
    (out / "estimates").symlink_to(elsewhere)
    tiny.write_text(TINY_PLAN + '[postprocess]\nmethod = "top-down"\n')
    with pytest.raises(FolderError, match="estimates: is a symbolic link"):
        pipeline.make_estimates(out, Plan.load(tiny))
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("to", ["/", "//", "/.."])
def test_the_root_of_the_file_system_takes_no_release(tiny, to):
    ran = run("release", tiny, "--to", to)
    assert ran.status == 2
    assert f"error: {Path(to)}: is the root of the file system" in ran.err
    assert run("status", to).status == 2
    assert not (tiny.parent / "ledger.sqlite").exists()


def test_ledger_and_internal_folder_are_unreadable_for_others(tiny):
    before = os.umask(0)
    try:
        released(tiny)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tiny.parent / "l.sqlite").stat().st_mode) == 0o600
    internal = tiny.parent / "out-internal"
    assert stat.S_IMODE(internal.stat().st_mode) == 0o700


def test_a_folder_that_a_careless_umask_left_open_is_closed(tiny):
    out = released(tiny)
    (tiny.parent / "out-internal").chmod(0o755)
    released(tiny)
    assert stat.S_IMODE((tiny.parent / "out-internal").stat().st_mode) == 0o700
    assert (tiny.parent / "places.csv").read_text() == TINY_PLACES
    assert out.is_dir()
