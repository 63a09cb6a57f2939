"""Statements that hold for every engine: counts equal brute force, bad records are named, workers do
what they are given, and one seed gives one release.
"""

import csv
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from countveil import Seeded, estimate, pipeline
from countveil.assess.risk_maps import internal_map, public_map
from countveil.demo.starter import write_start
from countveil.engines.engine import OPENERS, open_engine
from countveil.errors import CertificateError, InputError, PlanError, RecordsError
from countveil.measure.batch_sizes import BatchSizes
from countveil.plan.plans import Plan
from countveil.tree import messages
from tests.conftest import TINY_PEOPLE, TINY_PLAN, write_people
from tests.laws.squares import Squares

every_engine = pytest.mark.parametrize("engine", [*OPENERS, "plain"], indirect=True)
our_engines = pytest.mark.parametrize("engine", [*OPENERS], indirect=True)
only_local = pytest.mark.parametrize("engine", ["local"], indirect=True)


def dense(counts, level: str) -> np.ndarray:
    units = counts.geography.units(level)
    unit, cell, count = counts.entries(level, 0, units)
    out = np.zeros((units, counts.cells), np.int64)
    np.add.at(out, (unit, cell), count)
    return out


def brute_force(plan: Plan, people: list[tuple[str, ...]]) -> dict[str, np.ndarray]:
    """Count in plain Python, level by level."""
    with plan.crosswalk.open() as file:
        rows = list(csv.DictReader(file))
    out = {}
    for level in plan.levels:
        codes = sorted(
            {
                tuple(row[name] for name in plan.levels[: plan.levels.index(level) + 1])
                for row in rows
            }
        )
        index = {code[-1]: i for i, code in enumerate(codes)}
        upper = {row[plan.levels[-1]]: index[row[level]] for row in rows}
        table = np.zeros((len(index), *plan.schema.shape), np.int64)
        for (place, *values), n in Counter(people).items():
            where = tuple(
                a.categories.index(v) for a, v in zip(plan.schema.attributes, values, strict=True)
            )
            table[(upper[place], *where)] += n
        out[level] = table.reshape(len(index), -1)
    return out


@every_engine
def test_counts_equal_brute_force(engine, tiny):
    plan = Plan.load(tiny)
    counts = open_engine(engine).tabulate(plan)
    for level, expected in brute_force(plan, TINY_PEOPLE).items():
        assert (dense(counts, level) == expected).all()


@every_engine
def test_counts_of_a_larger_place_equal_brute_force(engine, tmp_path):
    folder = tmp_path / "start"
    write_start(folder, people=3000, seed=4)
    plan = Plan.load(folder / "plan.toml")
    counts = open_engine(engine).tabulate(plan)
    with (folder / "people.csv").open() as file:
        people = [tuple(row.values()) for row in csv.DictReader(file)]
    for level, expected in brute_force(plan, people).items():
        assert (dense(counts, level) == expected).all()
    for start, stop in ((0, 1), (3, 9), (40, 41)):
        unit, cell, count = counts.entries("block", start, stop)
        part = np.zeros((stop - start, counts.cells), np.int64)
        np.add.at(part, (unit, cell), count)
        assert (part == dense(counts, "block")[start:stop]).all()


def as_parquet(folder: Path) -> str:
    table = pa.csv.read_csv(folder / "people.csv")
    table = table.set_column(1, "AGE", table["AGE"].dictionary_encode())
    pq.write_table(table, folder / "people.parquet")
    return 'path = "people.parquet"'


def as_query(folder: Path) -> str:
    return "query = \"SELECT * FROM read_csv('people.csv', all_varchar = true)\""


def as_database(folder: Path) -> str:
    with duckdb.connect(str(folder / "people.duckdb")) as connection:
        connection.execute(
            f"CREATE TABLE p AS SELECT * FROM read_csv('{folder}/people.csv', all_varchar = true)"
        )
    return 'database = "people.duckdb"\nquery = "SELECT * FROM p;"'


def as_counts(folder: Path) -> str:
    lines = [",".join((*row, str(n))) for row, n in Counter(TINY_PEOPLE).items()]
    (folder / "table.csv").write_text("\n".join(["area,AGE,SEX,n", *lines, "A3,young,f,0"]) + "\n")
    return 'path = "table.csv"\ncounts = "n"'


def as_semicolons(folder: Path) -> str:
    text = (folder / "people.csv").read_text().replace(",", ";")
    (folder / "other.csv").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    return 'path = "other.csv"'


def as_renamed(folder: Path) -> str:
    text = (folder / "people.csv").read_text().replace("area,AGE,SEX", 'GEO ID,"a""ge",SEX', 1)
    (folder / "renamed.csv").write_text(text)
    return 'path = "renamed.csv"\ncolumns = { area = "GEO ID", AGE = \'a"ge\' }'


def as_folder(folder: Path) -> str:
    (folder / "all.parquet").mkdir()
    table = pa.csv.read_csv(folder / "people.csv")
    pq.write_table(table.slice(0, 3), folder / "all.parquet" / "part-0.parquet")
    pq.write_table(table.slice(3), folder / "all.parquet" / "part-1.parquet")
    return 'path = "all.parquet"'


def as_view(folder: Path) -> str:
    from countveil.engines.spark.spark_session import open_session

    frame = open_session().createDataFrame(pa.csv.read_csv(folder / "people.csv"))
    frame.createOrReplaceTempView("everyone")
    return 'query = "SELECT area, AGE, SEX FROM everyone -- all of them"'


SOURCES = {
    "local": [as_parquet, as_query, as_database, as_counts, as_semicolons, as_renamed],
    "plain": [as_parquet, as_counts, as_semicolons, as_renamed],
    "spark": [as_parquet, as_folder, as_view, as_counts, as_semicolons, as_renamed],
}


@pytest.mark.parametrize(
    ("engine", "source"),
    [(engine, source) for engine, sources in SOURCES.items() for source in sources],
    indirect=["engine"],
)
def test_every_kind_of_source_gives_the_same_counts(engine, tiny, source):
    line = source(tiny.parent)
    tiny.write_text(TINY_PLAN.replace('path = "people.csv"', line))
    plan = Plan.load(tiny)
    counts = open_engine(engine).tabulate(plan)
    for level, expected in brute_force(plan, TINY_PEOPLE).items():
        assert (dense(counts, level) == expected).all()


@every_engine
def test_surplus_rows_of_a_person_are_dropped_regardless_of_others(engine, tiny):
    rows = [("p1", *row) for row in TINY_PEOPLE[:4]] + [
        ("p2", *TINY_PEOPLE[4]),
        ("p3", *TINY_PEOPLE[5]),
    ]
    text = TINY_PLAN.replace("one_row_per_person = true", 'person_id = "id"\nmax_rows = 2')
    tiny.write_text(text)

    def count(some):
        lines = ["id,area,AGE,SEX", *(",".join(row) for row in some)]
        (tiny.parent / "people.csv").write_text("\n".join(lines) + "\n")
        return open_engine(engine).tabulate(Plan.load(tiny))

    def tabulate(some):
        return dense(count(some), "area")

    dropped = count(rows)
    everyone = dense(dropped, "area")
    assert dropped.rows_dropped("area").tolist() == [1, 1, 0, 0, 0]
    assert dropped.rows_dropped("region").tolist() == [2, 0]
    assert everyone.sum() == 4, "two of p1's four rows, and one of each other"
    assert (tabulate(rows[::-1]) == everyone).all(), "the order of rows must not matter"
    without = tabulate([row for row in rows if row[0] != "p1"])
    alone = tabulate([row for row in rows if row[0] == "p1"])
    assert (without + alone == everyone).all(), "each person's rows are chosen by their own rows"
    with pytest.raises(RecordsError, match="row 2: column of records.person_id: blank"):
        tabulate([rows[0], ("", *TINY_PEOPLE[0])])


@every_engine
def test_missing_codes_go_to_the_declared_category(engine, tiny):
    tiny.write_text(
        TINY_PLAN.replace(
            "one_row_per_person = true", 'one_row_per_person = true\nmissing = { SEX = "x" }'
        )
    )
    write_people(tiny.parent / "people.csv", [("A1", "old", ""), ("A1", "old", "x")])
    counts = open_engine(engine).tabulate(Plan.load(tiny))
    assert dense(counts, "area")[0].tolist() == [0, 0, 0, 0, 0, 2]


@every_engine
@pytest.mark.parametrize(
    "name", ["people[1].csv", "people*.csv", "peop?e.csv", "AGE=old/people.csv"]
)
def test_a_path_names_one_file_and_nothing_in_it_is_a_value(engine, tiny, name):
    """DuckDB would expand patterns, and take AGE=old/ for a column."""
    people = tiny.parent / name
    people.parent.mkdir(exist_ok=True)
    write_people(people)
    write_people(tiny.parent / "people1.csv", TINY_PEOPLE * 5)
    tiny.write_text(TINY_PLAN.replace("people.csv", name))
    plan = Plan.load(tiny)
    counts = open_engine(engine).tabulate(plan)
    for level, expected in brute_force(plan, TINY_PEOPLE).items():
        assert (dense(counts, level) == expected).all()


@every_engine
def test_records_may_lie_elsewhere_and_be_linked(engine, tiny, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    write_people(elsewhere / "people.csv", TINY_PEOPLE[:3])
    (tiny.parent / "linked.csv").symlink_to(elsewhere / "people.csv")
    for path in ("linked.csv", str(elsewhere / "people.csv"), f"../{elsewhere.name}/people.csv"):
        if (tiny.parent / path).exists():
            tiny.write_text(TINY_PLAN.replace("people.csv", path))
            assert dense(open_engine(engine).tabulate(Plan.load(tiny)), "region").sum() == 3


@only_local
def test_file_names_in_a_query_are_relative_to_the_plan(engine, tiny, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    write_people(elsewhere / "people.csv", TINY_PEOPLE * 3)
    monkeypatch.chdir(elsewhere)
    query = "SELECT * FROM read_csv('people.csv', all_varchar = true) -- a comment at the end"
    tiny.write_text(TINY_PLAN.replace('path = "people.csv"', f'query = "{query}"'))
    counts = open_engine(engine).tabulate(Plan.load(tiny))
    assert dense(counts, "region").sum() == len(TINY_PEOPLE)
    assert Path.cwd() == elsewhere


@only_local
def test_tables_of_the_user_are_not_shadowed_by_ours(engine, tiny):
    with duckdb.connect(str(tiny.parent / "d.duckdb")) as connection:
        source = tiny.parent / "people.csv"
        for table in ("units", "tally", "grouped"):
            connection.execute(
                f"CREATE TABLE {table} AS SELECT *, area AS code FROM "
                f"read_csv('{source}', all_varchar = true)"
            )
    for table in ("units", "tally", "grouped"):
        line = f'database = "d.duckdb"\nquery = "SELECT * FROM {table}"'
        tiny.write_text(TINY_PLAN.replace('path = "people.csv"', line))
        assert dense(open_engine(engine).tabulate(Plan.load(tiny)), "region").sum() == len(
            TINY_PEOPLE
        )
    query = "SELECT *, 1 AS __countveil_row FROM read_csv('people.csv', all_varchar = true)"
    tiny.write_text(TINY_PLAN.replace('path = "people.csv"', f'query = "{query}"'))
    with pytest.raises(
        RecordsError, match="column names that begin with __countveil_ are reserved"
    ):
        open_engine(engine).tabulate(Plan.load(tiny))


@every_engine
def test_blank_and_nan_persons_are_refused_as_blank(engine, tiny):
    text = TINY_PLAN.replace("one_row_per_person = true", 'person_id = "id"\nmax_rows = 1')
    tiny.write_text(text.replace("people.csv", "people.parquet"))
    for ids in (["a", ""], [1.0, float("nan")], ["a", None]):
        rows = {"id": ids, "area": ["A1", "A1"], "AGE": ["old", "old"], "SEX": ["f", "m"]}
        pq.write_table(pa.table(rows), tiny.parent / "people.parquet")
        with pytest.raises(RecordsError, match="row 2: column of records.person_id: blank"):
            open_engine(engine).tabulate(Plan.load(tiny))


BLANKS = [" ", "\u00a0", "\t", "\u200b", " \ufeff\u3000", "\u2060", "\u2800", "\x00\x1f", "\u00ad"]
PLACEHOLDERS = [
    "NA",
    "n/a",
    "N.A.",
    "Null",
    "NONE",
    "unknown",
    "0",
    "000",
    "0.0",
    "-",
    "--",
    ".",
    "?",
]
PLACEHOLDERS += ["-1", "-9", "-99", "999999999", "\u00a0null ", "missing", "<NA>", "—"]
PLACEHOLDERS += ["00000000-0000-0000-0000-000000000000"]
PLACEHOLDERS += ["N\u200bA", "nu\u00adll", "9.99999999E8", "-9.9999999E7", "1e+16", "not known"]
PLACEHOLDERS += [
    "\\N",
    "''",
    '""',
    "(none)",
    "[null]",
    "<none>",
    "(unknown)",
    "#NULL!",
    "#N/A",
    "n_a",
]
PLACEHOLDERS += [
    "\uff2e\uff21",
    "\uff10",
    "\u22121",
    "\u2010",
    "\u20101",
    "\ufffd",
    "\u0301",
    "\u0660",
]
PLACEHOLDERS += [
    "None.",
    "not stated",
    "Not-Stated",
    "xxx",
    "XXXXXX",
    "-8",
    "-77",
    "-98",
    "{0000-0000}",
]
PLACEHOLDERS += [
    "N\\A",
    "\U0001d40d\U0001d400",
    "\u24dd\u24d0",
    "'NULL'",
    "[]",
    "\u2026",
    "-8.0",
    "0x00",
]
PLACEHOLDERS += ["ffffffff-ffff-ffff-ffff-ffffffffffff", "\u201cunknown\u201d", "Dont know", "0.e0"]
# What people write where they do not know a person, in several languages.
PLACEHOLDERS += [
    "n.d.",
    "N/K",
    "n.r.",
    "T.B.D.",
    "to be assigned",
    "invalid",
    "Not found",
    "missing id",
]
PLACEHOLDERS += [
    "ID missing",
    "no name",
    "No ID given",
    "patient number not recorded",
    "none recorded",
]
PLACEHOLDERS += [
    "Person is unknown",
    "unidentified patient",
    "do not know",
    "without name",
    "not on file",
]
PLACEHOLDERS += [
    "keine Angabe",
    "k.A.",
    "unbekannte",
    "UNG\u00dcLTIG",
    "ungu\u0308ltig",
    "ungultig",
]
PLACEHOLDERS += [
    "non renseign\u00e9",
    "sans nom",
    "sin datos",
    "N\u00c3O INFORMADO",
    "non disponibile",
]
PLACEHOLDERS += ["geen opgave", "n.v.t.", "\u043d\u0435\u0442 \u0434\u0430\u043d\u043d\u044b\u0445"]
PLACEHOLDERS += ["\u041d\u0415\u0418\u0417\u0412\u0415\u0421\u0422\u041d\u041e", "\u4e0d\u660e"]
BLANKS += ["\ufe0f", "\u180b", "\u2065", "\U000e0100", " \U00013439"]
PEOPLE_IDS = [
    "1",
    "10",
    "999",
    "Nandi",
    "Naomi",
    "nonesuch",
    "a-0",
    "0a",
    "007",
    "-12",
    "unknown soldier",
    "1e5",
    "9e99x",
    "9999",
    "-10",
    "99-9",
    "1-0",
    "x",
    "XX",
    "N",
    "n1",
    "Nann",
    "na\u0301",
    "\u00e9",
    "ffff",
    "deadbeef-0000-0000-0000-000000000000",
    "0x1",
    "#1",
    "ref",
    "no",
    "id",
    "name",
    "unknown 1",
    "missing-7",
    "person 3",
    "Noah",
    "Knott",
    "Kai",
    "Vida",
    "Lost Creek 4",
    "\uff11",
]


def write_ids(tiny: Path, ids: list[str], more: str = "") -> Plan:
    text = TINY_PLAN.replace("one_row_per_person = true", f'person_id = "id"\nmax_rows = 1{more}')
    tiny.write_text(text.replace("people.csv", "people.parquet"))
    rows = {
        "id": ids,
        "area": ["A1"] * len(ids),
        "AGE": ["old"] * len(ids),
        "SEX": ["f"] * len(ids),
    }
    pq.write_table(pa.table(rows), tiny.parent / "people.parquet")
    return Plan.load(tiny)


@every_engine
@pytest.mark.parametrize(
    ("nobody", "rule"),
    [(BLANKS, "blank; give"), (PLACEHOLDERS, "a placeholder, such as")],
)
def test_ids_that_are_blank_or_placeholders_name_no_person(engine, tiny, nobody, rule):
    for start in range(0, len(nobody), 5):  # as many as a message names
        some = nobody[start : start + 5]
        plan = write_ids(tiny, [*PEOPLE_IDS, *some])
        with pytest.raises(RecordsError) as caught:
            open_engine(engine).tabulate(plan)
        first = len(PEOPLE_IDS) + 1
        rows = ", ".join(str(first + number) for number in range(len(some)))
        plural = "s" if len(some) > 1 else ""
        assert f"row{plural} {rows}: column of records.person_id: {rule}" in str(caught.value)
        assert not any(repr(person) in str(caught.value) for person in some)
    with pytest.raises(RecordsError) as caught:
        open_engine(engine, show_values=True).tabulate(plan)
    assert all(repr(person) in str(caught.value) for person in some)
    counts = open_engine(engine).tabulate(write_ids(tiny, PEOPLE_IDS))
    assert dense(counts, "region").sum() == len(PEOPLE_IDS)


@every_engine
def test_a_plan_may_list_placeholders_as_real_ids(engine, tiny):
    more = '\nreal_ids = ["0", "NA"]'
    counts = open_engine(engine).tabulate(write_ids(tiny, ["0", "NA", "1"], more))
    assert dense(counts, "region").sum() == 3
    for other in ("na", "0 ", "00", "null"):
        with pytest.raises(RecordsError, match="row 2: column of records.person_id: a placeholder"):
            open_engine(engine).tabulate(write_ids(tiny, ["0", other], more))
    for listed in ("p1", " ", "nan"):
        with pytest.raises(
            PlanError, match="records.real_ids: .* cannot be listed; list only real ids"
        ):
            write_ids(tiny, ["1"], f"\nreal_ids = [{listed!r}]")


def test_placeholder_ids_stop_the_commands(tiny, command):
    write_ids(tiny, ["p1", "\u00a0"])
    before = {path.name for path in tiny.parent.iterdir()}
    for arguments in (("check", tiny), ("release", tiny, "--to", tiny.parent / "out", "--quiet")):
        ran = command(*arguments)
        assert ran.status == 2
        assert "row 2: column of records.person_id: blank" in " ".join(ran.err.split())
    assert {path.name for path in tiny.parent.iterdir()} == before


@our_engines
def test_any_spelling_of_not_a_number_is_a_blank_person(engine, tiny):
    text = TINY_PLAN.replace("one_row_per_person = true", 'person_id = "id"\nmax_rows = 1')
    tiny.write_text(text)
    people = tiny.parent / "people.csv"
    rows = "".join(f"{name},A1,old,f\n" for name in ("Nandi", "nan x", "-na", "-nan", " +NaN "))
    people.write_text("id,area,AGE,SEX\n" + rows)
    with pytest.raises(RecordsError, match="rows 4, 5: column of records.person_id: blank"):
        open_engine(engine).tabulate(Plan.load(tiny))


@every_engine
def test_codes_that_are_numbers_have_lost_their_zeros_and_are_refused(engine, tiny):
    tiny.write_text(TINY_PLAN.replace("people.csv", "people.parquet"))
    rows = {"area": [1, 2], "AGE": ["old", "old"], "SEX": ["f", "m"]}
    pq.write_table(pa.table(rows), tiny.parent / "people.parquet")
    with pytest.raises(RecordsError, match="column 'area' holds .*codes are text so that leading"):
        open_engine(engine).tabulate(Plan.load(tiny))


@every_engine
def test_a_plan_may_count_people_without_any_attribute(engine, tiny):
    text = TINY_PLAN.replace('AGE = ["young", "old"]\nSEX = ["f", "m", "x"]\n', "")
    tiny.write_text(text.replace('TOTAL = "1/4"\n"AGE*SEX" = "3/4"', 'TOTAL = "1"'))
    counts = open_engine(engine).tabulate(Plan.load(tiny))
    assert dense(counts, "region").ravel().tolist() == [4, 4]


SENTINEL = "Zz-secret-value"
BAD_RECORDS = [
    (
        [("A1", "old", "f"), ("A1", "old", SENTINEL)],
        "row 2: column SEX: not a declared category; choose from f, m, x",
    ),
    (
        [("A1", "old", ""), ("A1", "old", "f")],
        "row 1: column SEX: missing code; fill it in, or declare",
    ),
    (
        [("A1", "old", "f"), (SENTINEL, "old", "f")],
        "row 2: column area: unknown geocode",
    ),
    ([("", "old", "f")], "row 1: column area: blank; give each row the code of its area"),
    (
        [("A1", SENTINEL, "f")] * 9,
        "rows 1, 2, 3, 4, 5 and more: column AGE: not a declared category",
    ),
]


@every_engine
@pytest.mark.parametrize(("people", "message"), BAD_RECORDS)
def test_bad_records_are_named_by_row_and_rule_not_by_value(engine, tiny, people, message):
    write_people(tiny.parent / "people.csv", people)
    plan = Plan.load(tiny)
    with pytest.raises(RecordsError) as caught:
        open_engine(engine).tabulate(plan)
    assert message in str(caught.value)
    assert str(tiny.parent / "people.csv") in str(caught.value)
    assert SENTINEL not in str(caught.value)
    if any(SENTINEL in row for row in people):
        with pytest.raises(RecordsError, match=SENTINEL):
            open_engine(engine, show_values=True).tabulate(plan)


@every_engine
@pytest.mark.parametrize(
    ("counts", "message"),
    [
        (["3", "-1"], "row 2: column of counts: a negative count"),
        (["3", "1.5"], "row 2: column of counts: not a whole number"),
        (["", "2"], "row 1: column of counts: not a whole number"),
        (["many", "2"], "row 1: column of counts: not a whole number"),
        (["2000000000", "2"], "the largest count supported"),
    ],
)
def test_bad_counts_are_named(engine, tiny, counts, message):
    tiny.write_text(TINY_PLAN.replace('path = "people.csv"', 'path = "table.csv"\ncounts = "n"'))
    lines = ["area,AGE,SEX,n", *(f"A1,old,{sex},{n}" for sex, n in zip("fm", counts, strict=True))]
    (tiny.parent / "table.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(RecordsError) as caught:
        open_engine(engine).tabulate(Plan.load(tiny))
    assert message in str(caught.value)


WHOLE = {"3": 3, "3.0": 3, "5.": 5, "+3": 3, " 3 ": 3, "007": 7, "-0": 0, "\t12.000": 12}
NOT_WHOLE = [
    "1e3",
    "1_000",
    ".0",
    "3.5",
    "",
    " ",
    "0x10",
    "3L",
    "3d",
    "NaN",
    "inf",
    "true",
    "+",
    "３",
]
NOT_WHOLE += ["1,000", "3 0", "3.0.0", "9223372036854775808", "1.0e0", "--3"]


@our_engines
def test_counts_written_as_text_are_whole_numbers_by_one_rule(engine, tiny):
    tiny.write_text(TINY_PLAN.replace('path = "people.csv"', 'path = "table.csv"\ncounts = "n"'))
    table = tiny.parent / "table.csv"
    table.write_text("area,AGE,SEX,n\n" + "".join(f"A1,old,f,{text}\n" for text in WHOLE))
    counts = open_engine(engine).tabulate(Plan.load(tiny))
    assert dense(counts, "region").sum() == sum(WHOLE.values())
    for start in range(0, len(NOT_WHOLE), 5):  # as many as a message names
        lines = [f'A1,old,f,"{text}"\n' for text in ("1", *NOT_WHOLE[start : start + 5], "2")]
        table.write_text("area,AGE,SEX,n\n" + "".join(lines))
        with pytest.raises(
            RecordsError, match=r"rows 2, 3, 4, 5, 6: column of counts: not a whole"
        ):
            open_engine(engine).tabulate(Plan.load(tiny))


@our_engines
def test_counts_that_are_numbers_are_whole_numbers(engine, tiny):
    line = 'path = "table.parquet"\ncounts = "n"'
    tiny.write_text(TINY_PLAN.replace('path = "people.csv"', line))
    for values, total in (([2, 3], 5), ([2.0, 3.0], 5), ([2.5, 3.0], None), ([1e300, 1.0], None)):
        rows = {"area": ["A1", "A2"], "AGE": ["old", "old"], "SEX": ["f", "m"], "n": values}
        pq.write_table(pa.table(rows), tiny.parent / "table.parquet")
        if total is None:
            with pytest.raises(RecordsError, match="row 1: column of counts: not a whole number"):
                open_engine(engine).tabulate(Plan.load(tiny))
        else:
            counts = open_engine(engine).tabulate(Plan.load(tiny))
            assert dense(counts, "region").sum() == total


NOTED = "area,AGE,SEX,note\n"
# What a line could be taken for, how many people it tells of, and what Spark says of it.
LINES = [
    (
        NOTED + 'A1,old,f,"1\nA1,old,f,2"\nA2,old,m,z\n',
        2,
        "lines 2, 3: a line break in a quoted field",
    ),
    (
        (NOTED + 'A1,old,f,"one\nA1,old,f,two"\n').replace("\n", "\r\n"),
        1,
        "lines 2, 3: a line break in a quoted field",
    ),
    (NOTED + 'A1,old,f,"one\n\n""\nA1,old,f,"\n', 1, "lines 2, 5: a line break in a quoted field"),
    (NOTED + 'A1,old,f,"one\rA1,old,f,two"\n', 1, "line 2: a carriage return inside a line"),
    # A mark inside a field makes their number even, and yet the next field runs over.
    (
        'area,AGE,SEX,a,b,c\nA1,old,f,z"z,"one,x\nA1,old,f,q,c",two"\n',
        1,
        "lines 2, 3: a quotation mark in a field that is not quoted as a whole",
    ),
    (NOTED + 'A1,old,f,"a"b\n', None, "line 2: a quotation mark in a field that is not quoted"),
    (NOTED + "A1,old,f,z\n   \nA2,old,m,z\n\x1a\n", None, "lines 3, 5: only blanks"),
    (
        NOTED + "A1,old,f,z\nA2,old,m,Zz-secret-value" + ",9" * 30_000 + "\n",
        None,
        "line 3: more than 20,480 fields",
    ),
]


@our_engines
@pytest.mark.parametrize(("text", "people", "message"), LINES, ids=range(len(LINES)))
def test_no_record_is_counted_twice_for_what_its_text_holds(engine, tiny, text, people, message):
    """DuckDB reads line breaks within quotes; Spark would split there, and refuses the file."""
    (tiny.parent / "people.csv").write_bytes(text.encode())
    plan = Plan.load(tiny)
    if engine == "local" and people is not None:
        assert dense(open_engine(engine).tabulate(plan), "region").sum() == people
        return
    with pytest.raises(RecordsError) as caught:
        open_engine(engine).tabulate(plan)
    assert SENTINEL not in str(caught.value)
    if engine == "spark":
        assert message in str(caught.value)


@our_engines
def test_what_is_well_quoted_is_read(engine, tiny):
    fields = ["", '""', '"a,b"', '"say ""a"""', "plain", '"' + 'x""' * 50_000 + '"', "é" * 9]
    text = '\ufeff"area",AGE,"SEX",note\r\n' + "".join(f'A1,"old",f,{f}\r\n' for f in fields)
    (tiny.parent / "people.csv").write_text(text + "\r\n", newline="")
    counts = open_engine(engine).tabulate(Plan.load(tiny))
    assert dense(counts, "region").sum() == len(fields)


@our_engines
def test_names_that_several_columns_share_are_refused(engine, tiny):
    tiny.write_text(TINY_PLAN.replace("people.csv", "people.parquet"))
    columns = [["A1"], ["old"], ["f"], ["m"]]
    for last in ("SEX", "note"):
        names = ["area", "AGE", "SEX", last]
        if last == "note":
            columns, names = [*columns, ["x"]], [*names, "note"]
        pq.write_table(pa.table(columns, names=names), tiny.parent / "people.parquet")
        with pytest.raises(RecordsError, match="several columns have the same name; rename all"):
            open_engine(engine).tabulate(Plan.load(tiny))
    query = "SELECT 'A1' AS area, 'old' AS AGE, 'f' AS SEX, 1 AS note, 2 AS note"
    tiny.write_text(TINY_PLAN.replace('path = "people.csv"', f'query = "{query}"'))
    assert dense(open_engine(engine).tabulate(Plan.load(tiny)), "region").sum() == 1
    tiny.write_text(tiny.read_text().replace("2 AS note", "'m' AS SEX"))
    with pytest.raises(RecordsError, match="several columns have the same name; rename all"):
        open_engine(engine).tabulate(Plan.load(tiny))


@our_engines
@pytest.mark.parametrize("name", ["_metadata", "value"])
def test_no_name_of_a_column_is_taken_for_one_of_the_engines_own(engine, tiny, name):
    line = f"columns = {{ AGE = '{name}' }}"
    for file in ("people.csv", "people.parquet"):
        tiny.write_text(TINY_PLAN.replace('"people.csv"', f'"{file}"\n{line}'))
        (tiny.parent / "people.csv").write_text(f"area,{name},SEX\nA1,old,f\nA1,none,f\n")
        pq.write_table(pa.csv.read_csv(tiny.parent / "people.csv"), tiny.parent / "people.parquet")
        with pytest.raises(RecordsError, match="row 2: column AGE: not a declared category"):
            open_engine(engine).tabulate(Plan.load(tiny))


@every_engine
@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (b"", "people.csv", "the file is empty"),
        (b"area,AGE,SEX\n", "people.csv", "no rows"),
        (
            b"area,AGE\nA1,old\n",
            "people.csv",
            "no column 'SEX' for the attribute SEX; rename the column",
        ),
        (b"PAR1 but not really", "people.parquet", "cannot be read as Parquet"),
        (b"\xff\xfe\x00\x01" * 50, "people.parquet", "cannot be read as Parquet"),
        (
            b"area,AGE,SEX\nA1,old,f\nA1,old\nZz-secret-value,old,f,9,9\n",
            "people.csv",
            "cannot be read as CSV",
        ),
        (
            b"Zz-secret-value,old,f\nA1,old,f\n",
            "people.csv",
            "no column 'area' for the level area; rename",
        ),
        (
            b"area,AGE,AGE,SEX\nA1,old,old,f\n",
            "people.csv",
            "line 1 repeats or omits a column name",
        ),
        (
            b"id,ID,area,AGE,SEX\n1,2,A1,old,f\n",
            "people.csv",
            "line 1 repeats or omits a column name",
        ),
        (b"area,AGE,SEX," + b"x" * 200_000 + b"\n", "people.csv", "cannot be read as column names"),
        (b"\xff\xfearea,AGE,SEX\nA1,old,f\n", "people.csv", "line 1 is not UTF-8"),
        (b"area,AGE,SEX\nA1,\xff\xfe,f\n", "people.csv", "people.csv"),
    ],
)
def test_files_that_are_no_records(engine, tiny, content, name, message):
    (tiny.parent / name).write_bytes(content)
    tiny.write_text(TINY_PLAN.replace("people.csv", name))
    with pytest.raises(InputError) as caught:
        open_engine(engine).tabulate(Plan.load(tiny))
    assert message in str(caught.value)
    assert SENTINEL not in str(caught.value)


@only_local
def test_a_file_that_is_not_utf_8_is_told_as_such(engine, tiny):
    path = tiny.parent / "people.csv"
    path.write_bytes(path.read_bytes() + "A1,old,fë\n".encode("latin-1"))
    with pytest.raises(InputError, match="people.csv: is not UTF-8 text.*; save the file as UTF-8"):
        open_engine(engine).tabulate(Plan.load(tiny))
    (tiny.parent / "places.csv").write_bytes(b"region,area\nR1,A1\nR1,A\xe4\n")
    with pytest.raises(InputError, match="places.csv: is not UTF-8 text; save the file as UTF-8"):
        Plan.load(tiny).geography()
    (tiny.parent / "places.csv").write_bytes(b"")
    with pytest.raises(InputError, match="line 1 is empty; write the column names there"):
        Plan.load(tiny).geography()


@only_local
def test_a_query_sees_no_variable_of_the_program(engine, tiny, monkeypatch):
    people = pa.table({"area": ["A1"], "AGE": ["old"], "SEX": ["f"]})
    for module in ("local_engine", "duckdb_source", "query_gate"):
        monkeypatch.setattr(f"countveil.engines.local.{module}.people", people, raising=False)
    line = 'query = "SELECT * FROM people"'
    tiny.write_text(TINY_PLAN.replace('path = "people.csv"', line))
    with pytest.raises(InputError, match="people does not exist"):
        open_engine(engine).tabulate(Plan.load(tiny))


@only_local
def test_sources_that_are_not_there_or_not_a_select(engine, tiny):
    def refuse(line: str, message: str) -> None:
        tiny.write_text(TINY_PLAN.replace('path = "people.csv"', line))
        with pytest.raises(InputError) as caught:
            open_engine(engine).tabulate(Plan.load(tiny))
        assert message in str(caught.value)

    refuse('path = "none.csv"', "does not exist")
    refuse('path = "."', "is a folder")
    refuse('query = "DROP TABLE x"', "is not a single SELECT statement")
    refuse('query = "SELECT 1; SELECT 2"', "is not a single SELECT statement")
    refuse("query = \"COPY (SELECT 1) TO 'x.csv'\"", "is not a single SELECT statement")
    refuse('query = "SELECT * FROM nowhere"', "nowhere")
    refuse('query = "SELEKT"', "cannot be run")
    (tiny.parent / "bare.csv").write_text("A1,Zz-secret-value,f\nA1,old,f\n")
    for query in ("SELECT * FROM 'bare.csv'", "SELECT area FROM 'bare.csv'"):
        tiny.write_text(TINY_PLAN.replace('path = "people.csv"', f'query = "{query}"'))
        with pytest.raises(InputError) as caught:
            open_engine(engine).tabulate(Plan.load(tiny))
        assert SENTINEL not in str(caught.value), "without a header, column names are a record"
    refuse('database = "people.csv"\nquery = "SELECT 1"', "cannot be opened as a DuckDB database")
    refuse(
        'path = "people.csv"\ncolumns = { Q = "x" }',
        "records.columns.Q: no such level or attribute",
    )
    refuse(
        "query = \"SELECT 1 AS area, 'old' AS AGE, 'f' AS SEX\"",
        "codes are text so that leading zeros",
    )
    assert not (tiny.parent / "x.csv").exists()


def test_sources_that_spark_does_not_read(spark_session, tiny):
    def refuse(line: str, message: str) -> None:
        tiny.write_text(TINY_PLAN.replace('path = "people.csv"', line))
        with pytest.raises(InputError) as caught:
            open_engine("spark").tabulate(Plan.load(tiny))
        assert message in str(caught.value)
        assert SENTINEL not in str(caught.value)

    refuse('path = "none.csv"', "does not exist")
    refuse('path = "."', "is a folder")
    refuse('path = "hdfs://somewhere/people.csv"', "is not Parquet by its name")
    refuse('query = "DROP TABLE x"', "cannot be run")
    refuse('query = "SELECT 1; SELECT 2"', "cannot be run")
    refuse('query = "INSERT INTO x SELECT 1"', "cannot be run")
    refuse('query = "SELECT 1) x; DROP TABLE y --"', "cannot be run")
    refuse('query = "SELECT * FROM nowhere"', "nowhere")
    refuse('database = "people.csv"\nquery = "SELECT 1"', "which Spark cannot read")
    refuse(
        'path = "people.csv"\ncolumns = { Q = "x" }',
        "records.columns.Q: no such level or attribute",
    )
    refuse(
        "query = \"SELECT 1 AS area, 'old' AS AGE, 'f' AS SEX\"",
        "codes are text so that leading zeros",
    )
    refuse(
        f"query = \"SELECT 'A1' AS area, 'old' AS AGE, '{SENTINEL}' AS SEX\"",
        "some rows: column SEX: not a declared category",
    )
    refuse('query = "SELECT 1 AS __countveil_x"', "are reserved")
    for name in ("_people.csv", ".people.parquet", "a:b.csv"):
        (tiny.parent / name).write_text("area,AGE,SEX\nA1,old,f\n")
        refuse(f'path = "{name}"', "rename it")


@every_engine
def test_an_unreadable_file_is_refused(engine, tiny):
    if os.getuid() == 0:
        # Root reads everything; a loop of links is unreadable for everyone.
        path = tiny.parent / "loop.csv"
        path.symlink_to(path)
        tiny.write_text(TINY_PLAN.replace("people.csv", "loop.csv"))
        match = "does not exist"
    else:
        (tiny.parent / "people.csv").chmod(0)
        match = "make it readable"
    with pytest.raises(RecordsError, match=match):
        open_engine(engine).tabulate(Plan.load(tiny))


@every_engine
def test_a_plan_without_records_is_refused(engine, tiny):
    text = TINY_PLAN.replace('[records]\npath = "people.csv"\none_row_per_person = true\n', "")
    tiny.write_text(text)
    with pytest.raises(PlanError, match=r"\[records\] is missing; a release needs it"):
        open_engine(engine).tabulate(Plan.load(tiny))


@every_engine
def test_workers_do_tasks_in_order_and_raise_what_a_task_raised(engine, tmp_path):
    with open_engine(engine).workers(2) as workers:
        workers.reach(tmp_path)
        assert list(tmp_path.iterdir()) == []
        for large in (True, False):
            done = workers.map(Squares(), iter(range(9)), large=large)
            assert list(done) == [n**2 for n in range(9)]
        with pytest.raises(CertificateError, match="^negative$"):
            list(workers.map(Squares(), [1, -1, 2], large=True))
        assert list(workers.map(Squares(), [], large=True)) == []
        assert workers.retries == 0
        assert workers.peak_memory >= 0


@every_engine
def test_the_same_seed_gives_the_same_bytes_on_every_engine(engine, tmp_path):
    write_start(tmp_path / "start", people=400, seed=3)
    plan = Plan.load(tmp_path / "start" / "plan.toml")
    sizes = BatchSizes(values_to_draw=3000)  # several parts a level
    # The reference is made in this process alone.
    pipeline.release(plan, to=tmp_path / "reference", rng=Seeded(7), workers=1, sizes=sizes)
    sizes = replace(sizes, parts_to_share=1, units_to_share=2)
    out = tmp_path / "out"
    pipeline.release(plan, to=out, rng=Seeded(7), engine=engine, workers=2, sizes=sizes)
    expected, found = (
        {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*.parquet")}
        for out in (tmp_path / "reference", tmp_path / "out")
    )
    for folder in ("measurements/", "estimates/"):
        assert len([name for name in expected if name.startswith(folder)]) > 2
    assert found == expected
    assert not list((tmp_path / "out-internal" / "parts").iterdir())


@every_engine
def test_errors_replicates_and_risk_maps_are_the_same_on_every_engine(engine, tiny, monkeypatch):
    monkeypatch.setattr(messages, "_VALUES", 15)  # several runs of families
    text = TINY_PLAN.replace('"AGE*SEX" =', 'AGE = "1/4"\n"AGE*SEX" =').replace('"3/4"', '"1/2"')
    tiny.write_text(text + '[postprocess]\nmethod = "top-down"\nconfidence = 0.9\n')
    plan = Plan.load(tiny)
    small = BatchSizes(values_to_draw=15)  # several row groups
    release = pipeline.release(plan, to=tiny.parent / "out", rng=Seeded(7), workers=1, sizes=small)
    counts = open_engine("local").tabulate(plan)
    areas = {"east": ["A1", "A4"], "all": ["A1", "A2", "A3", "A4", "A5"]}

    def found(name: str, workers) -> list[pa.Table]:
        squares = estimate.least_squares(
            release.measurements, plan, workers=None if workers == 1 else workers
        )
        made = estimate.replicates(release, count=20, workers=workers, work=tiny.parent / name)
        public = public_map(release.measurements, release.geography, prior=0.1, workers=workers)
        inside = internal_map(release.measurements, counts, prior=0.1, workers=workers)
        return [
            *(squares.estimate(level, "AGE*SEX") for level in plan.levels),
            squares.areas(areas, "SEX").table(),
            *(made.interval(level, "AGE") for level in plan.levels),
            *(table for found in (public, inside) for table in (found.groups, found.worst)),
        ]

    expected = found("reference", 1)
    with open_engine(engine).workers(2) as workers:
        for one, other in zip(expected, found("replicates", workers), strict=True):
            assert one.equals(other)
    assert all(table.num_rows for table in expected)


def test_unknown_engines_list_the_known_ones():
    with pytest.raises(InputError, match="unknown engine 'cloud'; choose from local, spark"):
        open_engine("cloud")
