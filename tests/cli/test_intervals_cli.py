"""`countveil intervals` as a stranger uses it: levels, areas, files, replicates, bad input."""

import csv
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import TINY_PLACES, TINY_PLAN, run, write_people

from countveil import Plan, Release, Seeded, estimate, pipeline
from countveil.estimate import interval_tables
from countveil.estimate.area_files import read_areas
from countveil.estimate.interval_tables import intervals_of
from countveil.estimate.replication import replicate_errors

PLAN = """
[release]
title = "Blocks"
unit = "person"
neighbors = "change-one"
[records]
path = "people.csv"
one_row_per_person = true
[geography]
path = "blocks.csv"
levels = ["state", "county", "block"]
[attributes]
AGE = ["-64", "+65"]
SEX = ["f", "m"]
[budget]
rho = "2"
[budget.levels]
state = "1/5"
county = "2/5"
block = "2/5"
[budget.queries."*"]
TOTAL = "1/2"
"AGE*SEX" = "1/2"
[budget.queries.state]
"AGE*SEX" = "1"
[[invariants]]
level = "state"
query = "TOTAL"
reason = "public already"
[postprocess]
method = "top-down"
confidence = 0.8
"""
BLOCKS = [("01", f"0100{county}", f"0100{county}{block}") for county in "123" for block in "1234"]
FORMULA = '=HYPERLINK("x";"y")'
DISTRICTS = {"north": range(5), FORMULA: range(3, 12), "all [bold]": range(12)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("blocks")
    rows = [("state", "county", "block"), *BLOCKS]
    (place / "blocks.csv").write_text("".join(",".join(row) + "\n" for row in rows))
    rng = np.random.default_rng(5)
    people = [("block", "AGE", "SEX")]
    for _, _, block in BLOCKS:
        people += [(block, rng.choice(["-64", "+65"]), rng.choice(["f", "m"]))] * rng.integers(0, 9)
    (place / "people.csv").write_text("".join(",".join(row) + "\n" for row in people))
    (place / "plan.toml").write_text(PLAN)
    pipeline.release(Plan.load(place / "plan.toml"), to=place / "out", rng=Seeded(2))
    with (place / "districts.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [
                ("area", "block"),
                *((n, BLOCKS[i][2]) for n, units in DISTRICTS.items() for i in units),
            ]
        )
    return place


@pytest.fixture
def ask(folder):
    """Run the command in the folder of the release; return status, output, errors."""

    def call(*arguments, out="out"):
        ran = run("intervals", out, *arguments, cwd=folder)
        return ran.status, ran.out, ran.err

    return call


def estimates(folder, confidence=0.8, out="out"):
    release = Release.read(folder / out)
    return estimate.least_squares(release.measurements, release.plan, confidence=confidence)


def strict(text):
    """Read JSON as other programs do: without NaN and Infinity."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def numbers(rows, *names):
    return [[row[name] for row in rows] for name in names]


COLUMNS = ("value", "standard_error", "lower", "upper")


def test_every_unit_of_a_level_has_the_librarys_interval(folder):
    ran = run(
        *("intervals", folder / "out", "--level", "block", "--query", "AGE*SEX"),
        *("--query", "TOTAL", "--confidence", "0.95", "--json"),
    )
    assert ran.status == 0, ran.err
    document = strict(ran.out)
    assert (document["level"], document["confidence"], document["rows"]) == ("block", 0.95, 60)
    assert document["release"] == Release.read(folder / "out").manifest["release"]
    for query in ("AGE*SEX", "TOTAL"):
        table = estimates(folder).estimate("block", query, confidence=0.95)
        rows = [row for row in document["intervals"] if row["query"] == query]
        assert numbers(rows, *COLUMNS) == [table[name].to_pylist() for name in COLUMNS]
        assert [row["geocode"] for row in rows] == table["geocode"].to_pylist()
    assert document["intervals"][1]["SEX"] == "m"
    assert document["intervals"][-1]["SEX"] is None
    assert "100%" in ran.err  # the bar; no word of it among the numbers
    quiet = run("intervals", folder / "out", "--level", "state", "--quiet")
    assert (quiet.status, quiet.err) == (0, "")
    assert "exact" in quiet.out


def test_areas_are_written_as_csv_that_reads_back_as_it_was(ask, folder, tmp_path):
    to = tmp_path / "districts-age.csv"
    given = ("--areas", "districts.csv", "--query", "AGE", "--query", "TOTAL", "--to", to)
    status, out, err = ask(*given, "--quiet")
    assert (status, out, err) == (0, f"{to}: 9 rows\n", "")
    table = pd.read_csv(to, dtype={"area": str, "AGE": str}, keep_default_na=False)
    assert list(table.columns) == ["area", "units", "query", "AGE", *COLUMNS]
    assert table["area"].tolist() == [
        *("north", "north", f"'{FORMULA}", f"'{FORMULA}", "all [bold]", "all [bold]"),
        *("north", f"'{FORMULA}", "all [bold]"),
    ]
    assert table["AGE"].tolist() == ["'-64", "'+65"] * 3 + [""] * 3
    assert table["units"].tolist() == [5, 5, 9, 9, 12, 12, 5, 9, 12]
    codes = {name: [BLOCKS[i][2] for i in units] for name, units in DISTRICTS.items()}
    gls = estimates(folder)
    for query, rows in (("AGE", slice(0, 6)), ("TOTAL", slice(6, 9))):
        found = gls.areas(codes, query)
        for name in COLUMNS:
            expected = getattr(found, name).ravel()
            assert table[name].to_numpy()[rows] == pytest.approx(expected, rel=1e-12)
    assert table["standard_error"].tolist()[-1] == 0  # all blocks are the state, which is public


def test_no_text_of_a_csv_begins_as_a_formula(ask, tmp_path):
    ask("--level", "block", "--query", "AGE*SEX", "--to", tmp_path / "b.csv", "-q")
    ask("--areas", "districts.csv", "--query", "AGE", "--to", tmp_path / "a.csv", "-q")
    for name in ("a.csv", "b.csv"):
        with (tmp_path / name).open(newline="") as file:
            for row in csv.DictReader(file):
                for cell in (value for key, value in row.items() if key not in COLUMNS):
                    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    codes = pd.read_csv(tmp_path / "b.csv", dtype={"geocode": str})["geocode"]
    assert codes.tolist() == [block for _, _, block in BLOCKS for _ in range(4)]
    assert codes[0] == "010011"


def test_parquet_keeps_texts_as_they_are_and_says_what_it_is(ask, folder, tmp_path):
    to = tmp_path / "d.parquet"
    status, out, _ = ask("--areas", "districts.csv", "--query", "AGE", "--to", to, "--json")
    assert status == 0
    document = strict(out)
    assert document["written"] == str(to)
    assert document["rows"] == 6
    assert "intervals" not in document
    table = pq.read_table(to)
    assert table["area"].to_pylist()[2] == FORMULA
    assert table["AGE"].to_pylist()[:2] == ["-64", "+65"]
    about = json.loads(table.schema.metadata[b"countveil"])
    assert about == {
        "release": Release.read(folder / "out").manifest["release"],
        "level": "block",
        "of": "areas",
        "method": "least-squares",
        "confidence": 0.8,
        "queries": ["AGE"],
    }
    assert pq.read_schema(to).field("units").type == pa.int64()


def test_the_terminal_shows_some_rows_and_says_how_many_more(ask, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    status, out, _ = ask("--level", "block", "--query", "AGE*SEX", "--query", "TOTAL")
    assert status == 0
    assert "… and 28 more; --to FILE.csv or FILE.parquet writes all" in out
    assert out.count("0100") == 20 + 12
    assert "80% from" in out
    status, out, _ = ask("--areas", "districts.csv", "--confidence", "0.925")
    assert "all [bold]" in out
    assert "92.5% from" in out
    assert "more;" not in out


def test_replicates_are_the_librarys_and_are_kept_for_the_next_time(ask, folder, tmp_path):
    work = tmp_path / "work"
    given = ("--method", "replicates", "--count", "25", "--seed", "3", "--workers", "1")
    status, out, err = ask("--level", "county", "--query", "AGE", *given, "--work", work, "--json")
    assert status == 0, err
    made = estimate.replicates(Release.read(folder / "out"), count=25, seed=3, workers=1)
    table = made.interval("county", "AGE", confidence=0.8)
    names = ("estimate", "bias", "standard_error", "lower", "upper")
    rows = strict(out)["intervals"]
    assert list(rows[0]) == ["geocode", "query", "AGE", *names]
    assert numbers(rows, *names) == [table[name].to_pylist() for name in names]
    marks = {path: path.stat().st_mtime_ns for path in work.glob("*/done")}
    assert len(marks) == 25
    again = ("--areas", "districts.csv", *given, "--work", work, "--to", tmp_path / "r.parquet")
    status, out, err = ask(*again)
    assert status == 0, err
    assert {path: path.stat().st_mtime_ns for path in work.glob("*/done")} == marks
    written = pq.read_table(tmp_path / "r.parquet")
    assert written["units"].to_pylist() == [5, 9, 12]
    for number, units in enumerate(DISTRICTS.values()):
        one = made.area([BLOCKS[i][2] for i in units], "TOTAL", confidence=0.8)
        row = written.slice(number, 1).to_pylist()[0]
        assert [row[name] for name in names] == [one[name][0].as_py() for name in names]
    other = ("--method", "replicates", "--count", "25", "--seed", "4", "--level", "state")
    status, _, err = ask(*other, "--work", work)
    assert status == 2
    assert "contains something other than replicates of this release" in err
    status, out, _ = ask("--level", "state", *given, "--work", work)
    assert "from 25 replicates of the release" in " ".join(out.split())


def test_areas_taken_some_at_a_time_are_the_same(folder, monkeypatch):
    areas = read_areas(folder / "districts.csv", Release.read(folder / "out").geography)
    made = estimate.replicates(Release.read(folder / "out"), count=20, workers=1)
    for found in (estimates(folder), made):
        whole = pa.concat_tables(intervals_of(found, areas, "AGE*SEX", confidence=0.8))
        with monkeypatch.context() as patch:
            patch.setattr(interval_tables, "_AREAS", 1)
            patch.setattr(replicate_errors, "_VALUES", 20 * 4 * 2)
            parts = list(intervals_of(found, areas, "AGE*SEX", confidence=0.8))
        assert len(parts) == (1 if found is made else 3)
        several = pa.concat_tables(parts)
        assert several["area"].to_pylist() == whole["area"].to_pylist()
        for name in ("standard_error", "lower", "upper"):
            assert several[name].to_pylist() == pytest.approx(whole[name].to_pylist(), rel=1e-12)


def test_what_is_not_determined_is_null(ask, folder, tmp_path):
    plan = PLAN.replace(
        "[budget.queries.state]", '[budget.queries.block]\nTOTAL = "1"\n[budget.queries.state]'
    )
    (folder / "little.toml").write_text(plan)
    pipeline.release(Plan.load(folder / "little.toml"), to=folder / "little", rng=Seeded(2))
    (folder / "mixed.csv").write_text(
        "area,block\nwhole,010011\nwhole,010012\nwhole,010013\nwhole,010014\npart,010021\n"
    )
    status, out, _ = ask("--areas", "mixed.csv", "--query", "AGE", "--json", out="little")
    assert status == 0
    whole, _, part, _ = strict(out)["intervals"]
    assert whole["standard_error"] > 0  # all blocks of a county are the county
    assert [part[name] for name in COLUMNS] == [None] * 4
    ask("--areas", "mixed.csv", "--query", "AGE", "--to", tmp_path / "m.csv", out="little")
    assert (tmp_path / "m.csv").read_text().splitlines()[3].endswith(",,,,")
    _, shown, _ = ask("--areas", "mixed.csv", "--query", "AGE", out="little")
    assert "not determined" in shown
    status, _, err = ask("--level", "block", "--query", "AGE", out="little")
    assert status == 2
    assert "query 'AGE': is not determined at level block" in err


def test_a_level_that_is_called_area_takes_its_units_from_geocode(tiny, ask):
    place = tiny.parent
    pipeline.release(Plan.load(tiny), to=place / "out", rng=Seeded(1))
    (place / "d.csv").write_text("area,geocode\nnorth,A1\nnorth,A4\n")
    (place / "r.csv").write_text("area,geocode\nwhole,R1\nwhole,R2\n")
    status, out, err = ask("--areas", place / "d.csv", "--json", out=place / "out")
    assert status == 0, err
    expected = estimates(place).area(["A1", "A4"], "TOTAL")
    assert strict(out)["intervals"][0]["value"] == expected.value[0]
    status, out, err = ask("--areas", place / "r.csv", "--level", "region", out=place / "out")
    assert status == 0, err


def test_measurements_without_estimates_have_intervals_but_no_replicates(tiny, ask):
    tiny.write_text(TINY_PLAN + '[postprocess]\nmethod = "none"\nconfidence = 0\n')
    out = tiny.parent / "out"
    pipeline.release(Plan.load(tiny), to=out, rng=Seeded(1))
    status, shown, _ = ask("--level", "region", out=out)
    assert status == 0
    assert "90% from" in shown
    status, _, err = ask("--level", "region", "--method", "replicates", out=out)
    assert status == 2
    assert "makes no estimates to replicate" in err


def state_of(folder):
    return {
        path: (path.stat().st_mtime_ns, path.stat().st_size)
        for path in folder.rglob("*")
        if path.is_file()
    }


AREAS = {
    "upper.csv": "Area,block\nn,010011\n",
    "level.csv": "area,BLOCK\nn,010011\n",
    "blank.csv": "area, block\nn,010011\n",
    "none.csv": "",
    "header.csv": "area,block\n",
    "names.csv": "district,block\nn,010011\n",
    "units.csv": "area,zip\nn,010011\n",
    "twice.csv": "area,block\nn,010011\ns,010011\nn,010012\nn,010011\n",
    "zeros.csv": "area,block\nn,010011\nn,10012\n",
    "unknown.csv": "area,block\nn,010011\nn,019999\n",
    "empty.csv": "area,block\nn,010011\n,010012\n",
    "nothing.csv": "area,block\nn,010011\nn,\n",
    "fields.csv": "area,block\nn,010011\nn,010012,3\n",
    "tab.csv": 'area,block\n"a\tb",010011\n',
    "line.csv": 'area,block\n"a\x1b[2J",010011\n',
    "turned.csv": "area,block\na\u202eb,010011\n",
    "spaced.csv": "area,block\nn,010011\nn ,010012\n",
    "both.csv": "area,county,block\nn,01001,010011\n",
    "latin.csv": "area,block\nMärz,010011\n".encode("latin-1"),
    "sheet.xlsx": b"PK\x03\x04\xff\xfe",
    "broken.parquet": b"PAR1",
}
CODES = "use codes such as '010011'"
REFUSED = {
    "upper.csv": "no column 'area' with the name of the area of each row; its columns are Area, block; "
    "case and blanks matter: rename 'Area' to 'area'",
    "level.csv": "no column of units; it needs 'state' or 'county' or 'block' or 'geocode', with "
    "their codes as text, and has area, BLOCK; case and blanks matter: rename 'BLOCK' to 'block'",
    "blank.csv": "rename ' block' to 'block'",
    "none.csv": "is empty; it needs a header, and a row for each area and unit in it",
    "header.csv": "has no rows; it needs a row for each area and unit in it",
    "names.csv": "no column 'area' with the name of the area of each row; its columns are district, b",
    "units.csv": "no column of units; it needs 'state' or 'county' or 'block' or 'geocode'",
    "twice.csv": "rows 1, 4: block 010011 is listed twice in area 'n'; list each unit once per area",
    "zeros.csv": "row 2: no block '10012' in the release; did you mean '010012'? Keep leading zeros",
    "unknown.csv": f"row 2: no block '019999' in the release; {CODES}",
    "empty.csv": "row 2: column 'area' is empty; every row needs an area and a unit",
    "nothing.csv": "row 2: column 'block' is empty; every row needs an area and a unit",
    "fields.csv": "row 2: 3 fields, and the header has 2; each row needs as many",
    "tab.csv": "row 1: the name of area 'a\\tb' has a line break or another control character",
    "line.csv": "row 1: the name of area 'a\\x1b[2J' has a line break or another control character",
    "turned.csv": "row 1: the name of area 'a\\u202eb' has a line break or another control character",
    "spaced.csv": "row 2: the name of area 'n ' begins or ends with a blank; remove it",
    "both.csv": "the units could be in column county or block; choose one with --level",
    "latin.csv": "cannot be read as a CSV file",
    "sheet.xlsx": "line 1 is not UTF-8 text; save the file as UTF-8",
    "broken.parquet": "cannot be read as a Parquet file",
    "missing.csv": "no such file; areas must be in a CSV or Parquet file",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_of_areas_that_does_not_fit_is_refused(ask, folder, tmp_path, name):
    if name in AREAS:
        text = AREAS[name]
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    before = state_of(folder)
    status, out, err = ask("--areas", tmp_path / name, "--to", tmp_path / "to.csv", "-q")
    assert (status, out) == (2, "")
    assert REFUSED[name] in err
    assert err.startswith(f"error: {tmp_path / name}: ")
    assert not (tmp_path / "to.csv").exists()
    assert state_of(folder) == before


def test_codes_that_are_numbers_are_refused(ask, tmp_path):
    pq.write_table(pa.table({"area": ["n"], "block": [10011]}), tmp_path / "n.parquet")
    status, _, err = ask("--areas", tmp_path / "n.parquet")
    assert status == 2
    assert "column 'block' has type int64; store it as text" in err
    codes = pa.array(["010011", "010012"]).dictionary_encode()
    pq.write_table(pa.table({"area": ["n", "n"], "block": codes}), tmp_path / "t.parquet")
    assert ask("--areas", tmp_path / "t.parquet")[0] == 0
    pq.write_table(pa.table({"area": ["n", None], "block": codes}), tmp_path / "null.parquet")
    assert "row 2: column 'area' is empty" in ask("--areas", tmp_path / "null.parquet")[2]


BAD = {
    ("--level", "blok"): "unknown level 'blok'; choose from state, county, block",
    (): "are missing; add --level, one of state, county, block, or --areas with a file of areas",
    ("--level", "block", "--query", "RACE"): "unknown attribute or recode 'RACE'; choose from TOTAL",
    ("--level", "block", "--query", "AGE", "--query", "X"): "unknown attribute or recode 'X'",
    ("--level", "block", "--confidence", "90"): "90.0 is not allowed; it must be between 0 and 1",
    ("--level", "block", "--confidence", "0"): "0.0 is not allowed; it must be between 0 and 1",
    ("--level", "block", "--method", "gls"): "choose from least-squares, replicates",
    ("--level", "block", "--to", "x.xlsx"): "name a .csv or .parquet file",
    ("--level", "block", "--to", "x"): "name a .csv or .parquet file",
    ("--level", "block", "--to", "out/x.csv"): "is inside the release out, which may only hold",
    ("--level", "block", "--to", "out/estimates/block.parquet"): "is inside the release out",
    ("--level", "block", "--to", "nowhere/x.csv"): "its folder does not exist",
    ("--areas", "districts.csv", "--to", "districts.csv"): "is the file of areas; name another",
    ("--areas", "districts.csv", "--level", "county"): "it needs 'county' or 'geocode'",
    ("--areas", "districts.csv", "--level", "blok"): "unknown level 'blok'",
    ("--level", "block", "--count", "50"): "count: only for --method replicates",
    ("--level", "block", "--seed", "5"): "seed: only for --method replicates",
    ("--level", "block", "--workers", "1"): "workers: only for --method replicates",
    ("--level", "block", "--work", "w"): "work: only for --method replicates",
    ("--level", "block", "--method", "replicates", "--count", "5"): "needs 20 replicates or more",
    ("--level", "block", "--method", "replicates", "--count", "0"): "needs 20 replicates or more",
    ("--level", "block", "--method", "replicates", "--confidence", "2"): "between 0 and 1",
    ("--level", "block", "--method", "replicates", "--work", "out/w"): "is inside the release out",
}  # fmt: skip


@pytest.mark.parametrize("given", BAD, ids=lambda given: " ".join(given) or "nothing")
def test_what_cannot_be_asked_is_refused_and_nothing_is_written(ask, folder, given):
    before = state_of(folder)
    status, out, err = ask(*given, "-q")
    assert (status, out) == (2, "")
    assert BAD[given] in err
    assert state_of(folder) == before


def test_a_folder_that_is_no_release_and_a_table_beside_totals_are_refused(ask, tmp_path):
    status, _, err = ask("--level", "state", out=tmp_path)
    assert status == 2
    assert "not a finished release" in err
    (tmp_path / "places.csv").write_text(TINY_PLACES)
    write_people(tmp_path / "people.csv")
    (tmp_path / "plan.toml").write_text(
        TINY_PLAN.split("[budget]")[0]
        + '[budget]\nepsilon = "1"\n[[invariants]]\nlevel = "region"\nquery = "TOTAL"\n'
        'reason = "known"\n[postprocess]\nmethod = "congenial"\n'
    )
    pipeline.release(Plan.load(tmp_path / "plan.toml"), to=tmp_path / "one", rng=Seeded(1))
    status, _, err = ask("--level", "region", out=tmp_path / "one")
    assert status == 2
    assert "`countveil infer` for estimates" in err


def test_a_failure_on_the_way_leaves_no_file(ask, monkeypatch, tmp_path):
    whole = interval_tables.with_query_column

    def breaks(table, query, attributes):
        if query == "TOTAL":
            raise OSError(28, "No space left on device", "the disk")
        return whole(table, query, attributes)

    monkeypatch.setattr(interval_tables, "with_query_column", breaks)
    to = tmp_path / "x.csv"
    status, _, err = ask("--level", "block", "--query", "AGE", "--query", "TOTAL", "--to", to)
    assert status == 2
    assert "No space left" in err
    assert list(tmp_path.iterdir()) == []


def test_an_attribute_named_as_a_column_is_refused(tiny, ask):
    tiny.write_text(TINY_PLAN.replace("AGE", "bias"))
    people = tiny.parent / "people.csv"
    people.write_text(people.read_text().replace("AGE", "bias"))
    pipeline.release(Plan.load(tiny), to=tiny.parent / "out", rng=Seeded(1))
    status, _, err = ask("--level", "region", "--query", "bias", out=tiny.parent / "out")
    assert status == 2
    assert "the result already has a column named bias" in err
    assert ask("--level", "region", "--query", "SEX", out=tiny.parent / "out")[0] == 0


def test_too_many_rows_for_one_document_are_refused(ask, monkeypatch):
    from countveil.cli import intervals_command

    monkeypatch.setattr(intervals_command, "_MOST_PRINTED", 5)
    status, _, err = ask("--level", "block", "--json")
    assert status == 2
    assert json.loads(err)["message"].endswith("write them to a file with --to")
    monkeypatch.setattr(interval_tables, "_MOST_ROWS", 5)
    given = ("--level", "block", "--method", "replicates", "--count", "20", "--workers", "1", "-q")
    status, _, err = ask(*given)
    assert status == 2
    assert "12 rows at level block, and 5 is the limit" in err


def test_a_file_called_manifest_elsewhere_is_no_release(ask, tmp_path):
    (tmp_path / "manifest.json").write_text('{"name": "a web page"}')
    assert ask("--level", "state", "--to", tmp_path / "x.csv", "-q")[0] == 0


@pytest.mark.parametrize("method", ["least-squares", "replicates"])
def test_a_damaged_release_is_refused(ask, folder, tmp_path, method):
    import shutil

    changed = tmp_path / "changed"
    shutil.copytree(folder / "out", changed)
    name = "measurements/block.parquet" if method == "least-squares" else "estimates/block.parquet"
    path = changed / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    given = ("--level", "block", "--method", method, "--to", tmp_path / "x.csv")
    status, _, err = ask(*given, out=changed)
    assert status not in (0, 70)
    assert name in err
    assert not (tmp_path / "x.csv").exists()


@pytest.mark.parametrize("confidence", ["0", "1", "0.9999999999999999", "1e-17", "nan"])
def test_a_confidence_that_is_none_is_refused(ask, confidence):
    status, _, err = ask("--level", "state", "--confidence", confidence)
    assert status == 2
    assert "is not allowed; it must be between 0 and 1" in err
