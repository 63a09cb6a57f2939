"""A query in [records] only reads: what would write, change or look elsewhere is refused unrun."""

from __future__ import annotations

import json
import re
from pathlib import Path

import duckdb
import pytest
from tests.conftest import TINY_PEOPLE, TINY_PLAN

from countveil import open_engine
from countveil.engines.local.allowed_functions import (
    AGGREGATES,
    ROW_FUNCTIONS,
    TABLE_FUNCTIONS,
    WINDOWS,
)
from countveil.engines.local.parsed_query import parse
from countveil.engines.local.query_gate import refuse_all_but_reading
from countveil.engines.local.query_names import Catalog
from countveil.errors import RecordsError
from countveil.plan.plans import Plan

PEOPLE = (
    "read_csv('people.csv', auto_detect = false, header = true, columns = "
    "{'area': 'VARCHAR', 'AGE': 'VARCHAR', 'SEX': 'VARCHAR'})"
)
ATTESTED = "\neach_person_alone = true"  # no attestation lets a query do more than read


def query(tiny, text: str, more: str = "", database: str = "") -> Plan:
    line = f"{database}query = {json.dumps(text)}"
    plan = TINY_PLAN.replace('path = "people.csv"', line)
    tiny.write_text(plan.replace("one_row_per_person = true", f"one_row_per_person = true{more}"))
    return Plan.load(tiny)


def refusal(plan: Plan) -> str:
    with pytest.raises(RecordsError) as caught:
        open_engine("local").tabulate(plan)
    return str(caught.value)


ATTACKS = {
    "a profile over a file": (
        "SELECT p.* FROM {people} p LEFT JOIN (SELECT * FROM enable_profiling("
        "save_location = '{folder}/victim.txt', format = 'json')) ON true",
        "the table function enable_profiling is not allowed; choose from generate_series",
    ),
    "a log that counts": (
        "SELECT p.* FROM {people} p JOIN (SELECT * FROM enable_logging(level = 'trace', storage = "
        "'file', storage_config = {{'path': '{folder}/logs'}})) ON p.AGE = 'old'",
        "the table function enable_logging is not allowed",
    ),
    "by its full name": (
        "SELECT p.* FROM {people} p, system.main.enable_profiling('json')",
        "the table function enable_profiling is not allowed",
    ),
    "in a sub-query": (
        "SELECT * FROM {people} WHERE 1 IN (SELECT 1 FROM enable_profiling('json'))",
        "the table function enable_profiling is not allowed",
    ),
    "in a common table expression": (
        "WITH x AS (FROM enable_profiling('json')) FROM {people}",
        "the table function enable_profiling is not allowed",
    ),
    "in an ORDER BY": (
        "SELECT * FROM {people} ORDER BY (SELECT 1 FROM checkpoint())",
        "the table function checkpoint is not allowed",
    ),
    "SQL as text": ("FROM query('FROM x')", "the table function query is not allowed"),
    "an insertion": (
        "WITH x AS (INSERT INTO y SELECT 1 RETURNING 1) FROM {people}",
        "contains something other than a plain SELECT (insert query)",
    ),
    "a description": (
        "FROM (DESCRIBE FROM {people})",
        "contains something other than a plain SELECT (show)",
    ),
    "a copy": ("COPY (FROM {people}) TO '{folder}/x.csv'", "is not a single SELECT statement"),
    "a setting": ("SET threads = 1", "is not a single SELECT statement"),
    "two statements": ("FROM {people}; SET threads = 1", "is not a single SELECT statement"),
    "a log line": (
        "SELECT *, write_log(AGE) AS x FROM {people}",
        "the function write_log is not allowed: it is unknown, has side effects, or changes from run",
    ),
    "a pause": ("SELECT * FROM {people} WHERE sleep_ms(1) IS NULL", "the function sleep_ms is not"),
    "a sequence": ("SELECT *, nextval('s') AS x FROM {people}", "the function nextval is not"),
    "chance": ("SELECT * FROM {people} WHERE random() < 0.5", "the function random is not allowed"),
    "a new id": ("SELECT *, uuid() AS id FROM {people}", "the function uuid is not allowed"),
    "the clock": ("SELECT *, now() AS x FROM {people}", "the function now is not allowed"),
    "the day": (
        "SELECT *, current_date AS x FROM {people}",
        "current_date is not in the records and changes from run to run",
    ),
    "an age today": (
        "SELECT *, age(DATE '2000-01-01') AS x FROM {people}",
        "the function age is not allowed",
    ),
    "a setting's value": (
        "SELECT *, current_setting('threads') AS x FROM {people}",
        "the function current_setting is not allowed",
    ),
    "an error on request": (
        "SELECT *, CASE WHEN AGE = 'old' THEN error(SEX) END AS x FROM {people}",
        "the function error is not allowed",
    ),
    "a variable": ("SELECT *, getvariable('x') AS x FROM {people}", "the function getvariable is"),
    "a file that is computed": (
        "FROM read_csv(concat('people', '.csv'), all_varchar = true)",
        "read_csv must have constant file names and options",
    ),
    "a file elsewhere": (
        "FROM read_csv('https://example.org/x.csv', all_varchar = true)",
        "read_csv can read local paths only; copy the file to this machine",
    ),
    "a table elsewhere": (
        "FROM 'https://example.org/x.csv'",
        "a query can read local paths only",
    ),
    "rejected lines as tables": (
        "FROM read_csv('people.csv', all_varchar = true, store_rejects = true)",
        "the option store_rejects makes read_csv write tables; remove it",
    ),
    "another kind of file": (
        "FROM 'people.xlsx'",
        "is neither a table nor a file with the suffix of CSV",
    ),
    "DuckDB's own tables": (
        "FROM {people}, information_schema.tables",
        "tables is a system table of DuckDB, which holds no records",
    ),
    "a parameter": (
        "SELECT *, $1 AS x FROM {people}",
        "contains an expression that is not computed",
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_query_that_does_more_than_read_is_refused(tiny, name):
    text, message = ATTACKS[name]
    victim = tiny.parent / "victim.txt"
    victim.write_text("precious")
    plan = query(tiny, text.format(people=PEOPLE, folder=tiny.parent), ATTESTED)
    before = {path.name for path in tiny.parent.iterdir()}
    said = refusal(plan)
    assert message in said
    assert "records.query" in said
    assert victim.read_text() == "precious"
    assert {path.name for path in tiny.parent.iterdir()} == before, "nothing is written"


def test_it_is_refused_by_every_command(tiny, command):
    text, message = ATTACKS["a profile over a file"]
    query(tiny, text.format(people=PEOPLE, folder=tiny.parent), ATTESTED)
    before = {path.name for path in tiny.parent.iterdir()}
    for ran in (
        command("check", tiny),
        command("release", tiny, "--to", tiny.parent / "out", "--quiet"),
    ):
        assert ran.status == 2
        assert message in re.sub(r"\s+", " ", ran.err)
        assert "records.query" in ran.err
    assert {path.name for path in tiny.parent.iterdir()} == before, "nothing is written"


def names(kinds: str) -> list[str]:
    with duckdb.connect() as connection:
        found = connection.execute(
            f"SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type IN ({kinds})"
        ).fetchall()
    return sorted(name for (name,) in found)


def test_every_table_and_pragma_function_outside_the_list_is_refused(tiny):
    """So that a new version of DuckDB adds nothing to what a query can do."""
    every = names("'table', 'table_macro', 'pragma'")
    assert {"enable_profiling", "enable_logging", "query", "read_csv"} <= set(every)
    with duckdb.connect() as connection:
        catalog = Catalog.of(connection, tiny.parent, "query")
    for name in set(every) - TABLE_FUNCTIONS:
        for text in (f'FROM "{name}"()', f"SELECT 1 FROM x, main.\"{name}\"('x', y = 1)"):
            with pytest.raises(RecordsError, match=f"the table function {name} is not allowed"):
                refuse_all_but_reading(parse(text, "query")[1], catalog, "query")
        for text in (f'CALL "{name}"()', f"PRAGMA {name}", f"PRAGMA {name}('x')"):
            with pytest.raises((RecordsError, duckdb.ParserException)):
                parse(text, "query")
    for name in catalog.system:
        tree = parse(f"FROM {name}", "query")[1]
        with pytest.raises(RecordsError, match="a system table of DuckDB"):
            refuse_all_but_reading(tree, catalog, "query")
    for name in every[::20]:  # without brackets, names of functions are names of tables
        if name not in ("glob", "show"):  # words that cannot stand there
            said = refusal(query(tiny, f"FROM {name}", ATTESTED))
            assert "does not exist" in said or "a system table of DuckDB" in said


def test_every_other_function_outside_the_lists_is_refused(tiny):
    every = names("'scalar', 'macro', 'aggregate', 'window'")
    outside = [name for name in every if name.lower() not in ROW_FUNCTIONS | AGGREGATES]
    assert {"random", "getvariable", "write_log", "row_number"} <= set(outside)
    with duckdb.connect() as connection:
        catalog = Catalog.of(connection, tiny.parent, "query")
    for name in outside:
        tree = parse(f'SELECT "{name}"(AGE) AS x FROM t', "query")[1]
        with pytest.raises(RecordsError, match=f"the function {re.escape(name.lower())} is not"):
            refuse_all_but_reading(tree, catalog, "query")


def test_the_database_that_parses_is_opened_once(monkeypatch):
    first = parse("FROM t", "query")
    monkeypatch.setattr(duckdb, "connect", None)
    assert parse("FROM t", "query") == first


def test_no_function_of_the_lists_changes_from_call_to_call():
    with duckdb.connect() as connection:
        found = connection.execute(
            "SELECT DISTINCT lower(function_name) FROM duckdb_functions() "
            "WHERE stability <> 'CONSISTENT' OR has_side_effects"
        ).fetchall()
    changing = {name for (name,) in found}
    assert "random" in changing
    assert not changing & (ROW_FUNCTIONS | AGGREGATES | WINDOWS)
    assert not ROW_FUNCTIONS & set(names("'aggregate', 'window'"))


def test_settings_are_locked_before_a_query_is_looked_at(tiny, monkeypatch):
    """Should a name be missing from the lists, DuckDB itself still refuses to change."""
    from countveil.engines.local import query_gate

    monkeypatch.setattr(query_gate, "refuse_all_but_reading", lambda *given: True)
    victim = tiny.parent / "victim.txt"
    victim.write_text("precious")
    text, _ = ATTACKS["a profile over a file"]
    refusal(query(tiny, text.format(people=PEOPLE, folder=tiny.parent), ATTESTED))
    assert victim.read_text() == "precious"
    text, _ = ATTACKS["a log that counts"]
    refusal(query(tiny, text.format(people=PEOPLE, folder=tiny.parent), ATTESTED))
    assert not (tiny.parent / "logs").exists()


def database(tiny, *statements: str) -> str:
    with duckdb.connect(str(tiny.parent / "d.duckdb")) as connection:
        rows = f"read_csv('{tiny.parent}/people.csv', all_varchar = true)"
        connection.execute(f"CREATE TABLE p AS FROM {rows}")
        for statement in statements:
            connection.execute(statement)
    return 'database = "d.duckdb"\n'


def test_views_and_macros_of_a_database_are_looked_into(tiny):
    line = database(
        tiny,
        "CREATE VIEW fine AS SELECT * FROM p WHERE AGE <> ''",
        "CREATE VIEW again AS SELECT * FROM fine",
        "CREATE VIEW evil AS SELECT p.* FROM p, (FROM enable_profiling('json'))",
        "CREATE VIEW deeper AS FROM evil",
        "CREATE MACRO louder(x) AS 'f'",
        "CREATE MACRO read_all(x) AS TABLE SELECT 1 AS x",
    )
    for view in ("fine", "again", 'main."again"'):
        counts = open_engine("local").tabulate(query(tiny, f"FROM {view}", database=line))
        assert counts.entries("area", 0, 5)[2].sum() == len(TINY_PEOPLE)
    for view in ("evil", "deeper", "fine WHERE AGE IN (SELECT AGE FROM deeper)"):
        said = refusal(query(tiny, f"FROM {view}", ATTESTED, line))
        assert "the table function enable_profiling is not allowed" in said
    said = refusal(query(tiny, "SELECT area, AGE, louder(SEX) AS SEX FROM p", ATTESTED, line))
    assert "the function louder is a macro of the database; write out what it does" in said
    said = refusal(query(tiny, "FROM read_all('x')", ATTESTED, line))
    assert "the table function read_all is a macro of the database" in said


@pytest.mark.parametrize(
    "macro",
    [
        "duckdb_views() AS TABLE SELECT 'z' AS view_name, '' AS sql, true AS internal "
        "FROM enable_logging('QueryLog', storage = 'file', storage_path = '{folder}/logs')",
        "duckdb_tables() AS TABLE SELECT 'z' AS table_name, '' AS sql, true AS internal "
        "FROM enable_profiling(save_location = '{folder}/profile.txt')",
        "regexp_full_match(a, b) AS false",
        "enum_code(x) AS 1",
        "main.enum_code(x) AS 1",
    ],
)
def test_no_macro_of_a_database_runs_in_place_of_our_functions(tiny, macro):
    line = database(tiny, f"CREATE MACRO {macro.format(folder=tiny.parent)}")
    plan = query(tiny, "FROM p", ATTESTED, line)
    before = {path.name for path in tiny.parent.iterdir()}
    assert "which would replace DuckDB's function of that name" in refusal(plan)
    assert {path.name for path in tiny.parent.iterdir()} == before, "nothing is written"


def test_tables_of_the_same_name_in_several_schemas_are_refused(tiny):
    """What is judged must be what is read."""
    line = database(
        tiny,
        "CREATE SCHEMA a",
        "CREATE TABLE a.people AS FROM p",
        "CREATE VIEW people AS SELECT 1 AS x",
    )
    said = refusal(query(tiny, "FROM a.people LIMIT 5", "", line))
    assert "several schemas of the database have a table or view people" in said


@pytest.mark.parametrize("name", ["memory", "temp", "d'q", "a b"])
def test_a_database_may_have_any_name(tiny, name):
    database(tiny)
    (tiny.parent / "d.duckdb").rename(tiny.parent / f"{name}.duckdb")
    plan = query(tiny, "FROM p", database=f'database = "{name}.duckdb"\n')
    assert open_engine("local").tabulate(plan).entries("area", 0, 5)[2].sum() == 8


def test_a_query_of_a_database_reaches_no_file(tiny):
    """A query that names no file cannot open one, whatever its tables are made of."""
    line = database(tiny)
    plan = query(tiny, "FROM p", database=line)
    assert open_engine("local").tabulate(plan).entries("area", 0, 5)[2].sum() == 8
    said = refusal(query(tiny, 'FROM main."people.csv"', ATTESTED, line))
    assert "the table main.people.csv does not exist; choose from p, or put" in said


def parquet(folder: Path, *names: str) -> None:
    """Write the records of the folder to Parquet files."""
    with duckdb.connect() as connection:
        for name in names:
            connection.execute(
                f"COPY (FROM read_csv('{folder}/people.csv', all_varchar = true)) "
                f"TO '{folder}/{name}' (FORMAT parquet)"
            )


SEVERAL_PARTS = [
    "people.csv",
    "people.parquet",
    'PEOPLE."parquet"',
    '"./people".parquet',
    '"peop*".parquet',
    'main."people.parquet"',
    "memory.main.people",
    "temp.people",
    "people.parquet.gz",
    "people.json",
    "people.db",
    "a.b.c.d.parquet",
    '"https://example.org/people".parquet',
    '"~/people".parquet',
]


@pytest.mark.parametrize("name", SEVERAL_PARTS)
def test_a_name_of_several_parts_is_never_a_file(tiny, name):
    """DuckDB would join the parts of FROM people.parquet and read the file of that name."""
    parquet(tiny.parent, "people.parquet")
    plain = name.replace('"', "")
    for text, more in (
        (f"FROM {name}", ""),
        (f"SELECT * FROM {name} AS p WHERE AGE IN (FROM {name})", ATTESTED),
    ):
        said = refusal(query(tiny, text, more))
        assert f"the table {plain} does not exist; put the name of a file in quotes" in said


def test_no_one_is_counted_twice_by_two_spellings_of_a_file(tiny):
    parquet(tiny.parent, "people.parquet")
    for statements in (
        [],
        ["CREATE TABLE parquet AS FROM p", "CREATE TABLE people AS FROM p"],
        ["CREATE SCHEMA people", "CREATE TABLE people.p2 AS FROM p"],
        ["CREATE SCHEMA a", 'CREATE TABLE a."people.parquet" AS FROM p'],
    ):
        line = database(tiny, *statements)
        for twice in ("people.parquet", "'./people.parquet'"):
            said = refusal(query(tiny, f"FROM {twice} UNION ALL FROM 'people.parquet'", "", line))
            assert "does not exist" in said or "UNION ALL of the same records" in said
        (tiny.parent / "d.duckdb").unlink()


def test_a_common_table_expression_hides_no_file_outside_its_scope(tiny):
    remote = "https://example.org/people.csv"
    text = f'FROM (WITH "{remote}" AS (SELECT 1) FROM {PEOPLE}) UNION ALL FROM "{remote}"'
    assert "a query can read local paths only" in refusal(query(tiny, text, ATTESTED))
    # DuckDB compares names letter by letter, apart from A to Z.
    parquet(tiny.parent, "people.parquet")
    (tiny.parent / "é.parquet").hardlink_to(tiny.parent / "people.parquet")
    empty = "SELECT 'A1' AS area, 'old' AS AGE, 'f' AS SEX"
    text = f'WITH "É.parquet" AS ({empty}) FROM "é.parquet" UNION ALL FROM \'people.parquet\''
    assert "UNION ALL of the same records" in refusal(query(tiny, text))
    line = database(tiny, 'CREATE TABLE "É.parquet" AS FROM p')
    text = "FROM 'é.parquet' UNION ALL FROM 'people.parquet'"
    assert "UNION ALL of the same records" in refusal(query(tiny, text, "", line))


def test_a_table_has_its_exact_name(tiny):
    line = database(
        tiny,
        "CREATE SCHEMA a",
        "CREATE TABLE a.q AS FROM p",
        "CREATE VIEW a.v AS FROM q WHERE AGE <> ''",
        "CREATE VIEW a.w AS WITH q AS (FROM d.a.v) FROM q",
        "CREATE SCHEMA a.b",
        "CREATE TABLE a.b.r AS FROM p",
        'CREATE TABLE "x.parquet" AS FROM p',
        'CREATE TABLE "É" AS FROM p',
    )
    for name in (
        *("p", "P", "main.p", "d.p", "D.main.P", "a.q", "d.a.q", "a.v", "a.w", "a.b.r", "d.a.b.r"),
        *("'x.parquet'", 'main."x.parquet"', '"É"'),
    ):
        for text in (f"FROM {name}", f"SELECT area, AGE, SEX, 1 AS n FROM {name}"):
            more = '\ncounts = "n"' if " n " in text else ""
            counts = open_engine("local").tabulate(query(tiny, text, more, line))
            assert counts.entries("area", 0, 5)[2].sum() == len(TINY_PEOPLE), name
    for name in ("q", "a.p", "d.q", "e.p", "d.a.b.p", "x.parquet", '"é"', "main.main.p", "d.d.p"):
        said = refusal(query(tiny, f"FROM {name}", "", line))
        assert f"the table {name.strip(chr(34))} does not exist; choose from p, q, r, v, w," in said


GENERATED = {
    "random()": "the function random is not allowed",
    "CAST(random() < 0.5 AS VARCHAR)": "the function random is not allowed",
    "write_log('seen ' || AGE)": "the function write_log is not allowed",
    "now()": "the function now is not allowed",
    "current_setting('threads')": "the function current_setting is not allowed",
    "getvariable('x')": "the function getvariable is not allowed",
    "nextval('numbers')": "the function nextval is not allowed",
    "louder(AGE)": "the function louder is a macro of the database",
}


@pytest.mark.parametrize("expression", GENERATED)
def test_generated_columns_are_looked_into(tiny, expression):
    line = database(
        tiny,
        "CREATE SEQUENCE numbers",
        "CREATE MACRO louder(x) AS upper(x)",
        f"CREATE TABLE g (area VARCHAR, AGE VARCHAR, SEX VARCHAR, made AS ({expression}))",
        "INSERT INTO g (area, AGE, SEX) FROM p",
        "CREATE VIEW v AS FROM g",
        "CREATE VIEW w AS FROM v",
    )
    for name in ("g", "w", "(SELECT area, AGE, SEX FROM v)"):
        said = refusal(query(tiny, f"SELECT * FROM {name}", ATTESTED, line))
        assert f"the generated column made of g: {GENERATED[expression]}" in said
    counts = open_engine("local").tabulate(query(tiny, "FROM p", "", line))
    assert counts.entries("area", 0, 5)[2].sum() == len(TINY_PEOPLE), "no query reads that table"


def test_generated_columns_that_are_computed_from_their_row_are_read(tiny):
    line = database(
        tiny,
        'CREATE TABLE g (area VARCHAR, old BOOL, SEX VARCHAR, n INT DEFAULT (random()), "A_G" AS '
        "(CASE WHEN old THEN 'old' ELSE 'young' END), AGE AS (lower(a_g)))",
        "INSERT INTO g (area, old, SEX) SELECT area, AGE = 'old', SEX FROM p",
    )
    for more in ("", ATTESTED):
        counts = open_engine("local").tabulate(query(tiny, "FROM g", more, line))
        assert counts.entries("area", 0, 5)[2].sum() == len(TINY_PEOPLE)


def test_a_generated_column_is_no_second_count(tiny):
    line = database(
        tiny,
        "CREATE TABLE g (area VARCHAR, AGE VARCHAR, SEX VARCHAR, n INT, m AS (n + 1), k AS (m))",
        "INSERT INTO g (area, AGE, SEX, n) SELECT *, 2 FROM p",
        "CREATE VIEW v AS FROM g",
    )
    counts = '\ncounts = "n"'
    for table in ("g", "v"):
        for column in ("m", "k"):
            age = f"CASE WHEN {column} > 5 THEN 'old' ELSE 'young' END AS AGE"
            said = refusal(query(tiny, f"SELECT area, {age}, SEX, n FROM {table}", counts, line))
            assert "the generated column m, which may contain a count," in said


def test_a_query_without_end_is_a_message(tiny):
    for text in ("(" * 4000 + "SELECT 1" + ")" * 4000, "SELECT " + "-1 + " * 5000 + "1 AS area"):
        said = refusal(query(tiny, text))
        assert "records.query" in said


def test_a_null_character_in_a_query_is_a_message(tiny):
    for text in ("FROM 'peo\0ple.parquet'", "FROM read_csv('\0people.csv', all_varchar = true)"):
        assert "contains a null character; remove it" in refusal(query(tiny, text))


def test_a_query_may_use_what_only_reads(tiny):
    text = f"""
        WITH part AS (
            SELECT upper(area) AS area, AGE, coalesce(nullif(SEX, ''), 'x') AS SEX, ['a', 'b'] AS l
            FROM {PEOPLE} AS p WHERE AGE IN ('old', 'young') AND length(SEX) BETWEEN 0 AND 1
        )
        SELECT area, CASE WHEN AGE = 'old' THEN 'old' ELSE 'young' END AS AGE, lower(SEX) AS SEX,
               TRY_CAST(AGE AS INT) AS i, {{'a': 1}} AS s,
               list_transform(l, lambda x: x || '!')[1] AS mark
        FROM part ORDER BY area -- the end
    """
    counts = open_engine("local").tabulate(query(tiny, text))
    assert counts.entries("area", 0, 5)[2].sum() == len(TINY_PEOPLE)
