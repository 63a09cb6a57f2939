"""A query selects records: what would run a program is refused before anything runs."""

from __future__ import annotations

import json

import pytest
from tests.conftest import TINY_PLAN

from countveil import open_engine
from countveil.errors import RecordsError
from countveil.plan.plans import Plan

ROW = "SELECT 'A1' AS area, 'old' AS AGE, 'f' AS SEX"
# {mark} is a file that the command, or Java, would make if it were run.
COMMAND = "TRANSFORM(area, AGE, SEX) USING 'touch {mark}; cat' AS (area, AGE, SEX)"
JAVA = "'java.nio.file.Files', 'exists', '{mark}'"
SHELL = "runs a shell command"
PROGRAMS = {
    "transform": (f"SELECT {COMMAND} FROM ({ROW})", SHELL),
    "map": (
        f"FROM ({ROW}) MAP area, AGE, SEX USING 'touch {{mark}}; cat' AS area, AGE, SEX",
        SHELL,
    ),
    "reduce": (f"FROM ({ROW}) REDUCE area, AGE, SEX USING 'touch {{mark}}' AS a, AGE, SEX", SHELL),
    "odd case": (f"sElEcT /* a */ tRaNsFoRm(area) uSiNg 'touch {{mark}}' FROM ({ROW})", SHELL),
    "in a table expression": (f"WITH t AS (SELECT {COMMAND} FROM ({ROW})) SELECT * FROM t", SHELL),
    "in one of those": (
        f"WITH t AS (WITH u AS (SELECT {COMMAND} FROM ({ROW})) SELECT * FROM u) SELECT * FROM t",
        SHELL,
    ),
    "in a union": (f"{ROW} UNION ALL SELECT {COMMAND} FROM ({ROW})", SHELL),
    "in a condition": (f"{ROW} WHERE 1 IN (SELECT {COMMAND} FROM ({ROW}))", SHELL),
    "in a value": (f"SELECT (SELECT {COMMAND} FROM ({ROW})) AS area", SHELL),
    "out of brackets": (f"{ROW}) UNION ALL SELECT * FROM (SELECT {COMMAND} FROM ({ROW})", SHELL),
    "reflect": (f"SELECT reflect({JAVA}) AS area", "the function reflect runs Java"),
    "java_method": (f"SELECT Java_Method({JAVA}) AS area", "the function java_method runs Java"),
    "try_reflect": (f"SELECT try_reflect({JAVA}) AS area", "the function try_reflect runs Java"),
    "in backticks": (f"SELECT `REFLECT`/* */ ({JAVA}) AS area", "the function reflect runs Java"),
    "by its full name": (
        f"SELECT system.builtin.reflect({JAVA})",
        "the function reflect runs Java",
    ),
    "in a filter": (f"{ROW} WHERE reflect({JAVA}) = 'x'", "the function reflect runs Java"),
    "in an expression": (
        f"SELECT concat(upper(reflect({JAVA})), 'x') AS area",
        "the function reflect runs Java",
    ),
    "in a lateral view": (
        f"SELECT * FROM ({ROW}) LATERAL VIEW explode(array(reflect({JAVA}))) AS x",
        "the function reflect runs Java",
    ),
    "in a lateral join": (
        f"SELECT * FROM ({ROW}), LATERAL (SELECT reflect({JAVA}))",
        "the function reflect runs Java",
    ),
    "in a lambda": (
        f"SELECT transform(array(1), x -> reflect({JAVA})) AS area",
        "the function reflect runs Java",
    ),
    "in a window": (
        f"SELECT count(*) OVER (ORDER BY reflect({JAVA})) FROM ({ROW})",
        "the function reflect runs Java",
    ),
    "in values": (f"VALUES (reflect({JAVA}))", "the function reflect runs Java"),
    "after a pipe": (f"{ROW} |> WHERE reflect({JAVA}) = 'x'", "the function reflect runs Java"),
    "by a name that is put together": (
        f"SELECT IDENTIFIER('ref' || 'lect')({JAVA}) AS area",
        "IDENTIFIER(…) refers to something that is known only when it runs",
    ),
    "a table so named": (
        f"SELECT * FROM IDENTIFIER('peo' || reflect({JAVA}))",
        "runs",
    ),
}
OTHERS = [
    "EXPLAIN SELECT 1",
    "SHOW TABLES",
    "SET x = 1",
    "CREATE TABLE t AS SELECT 1",
    "CACHE TABLE x",
]
OTHERS += [
    "FROM x INSERT INTO y SELECT 1",
    "EXECUTE IMMEDIATE 'SELECT 1'",
    "CALL f()",
    "ADD JAR '/x.jar'",
]


def query(tiny, text: str) -> Plan:
    tiny.write_text(TINY_PLAN.replace('path = "people.csv"', f"query = {json.dumps(text)}"))
    return Plan.load(tiny)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_query_that_would_run_a_program_is_refused_and_runs_none(spark_session, tiny, name):
    text, message = PROGRAMS[name]
    mark = tiny.parent / "mark"
    with pytest.raises(RecordsError) as caught:
        open_engine("spark").tabulate(query(tiny, text.format(mark=mark)))
    assert message in str(caught.value)
    assert "records.query" in str(caught.value)
    assert not mark.exists()


@pytest.mark.parametrize("text", OTHERS)
def test_a_statement_that_is_no_query_is_refused(spark_session, tiny, text):
    with pytest.raises(RecordsError, match="cannot be run|no SELECT"):
        open_engine("spark").tabulate(query(tiny, text))


def test_such_a_command_would_run_where_it_is_not_refused(spark_session, tiny, monkeypatch):
    """What the tests above rest on: the same query makes the file when nobody looks at it."""
    for name in ("refuse_programs", "refuse_programs_in_views"):
        monkeypatch.setattr(f"countveil.engines.spark.spark_source.{name}", lambda *given: None)
    mark = tiny.parent / "mark"
    text, _ = PROGRAMS["transform"]
    open_engine("spark").tabulate(query(tiny, text.format(mark=mark)))
    assert mark.exists()


def test_a_query_may_use_what_only_selects(spark_session, tiny):
    text = """
        WITH some AS (
            SELECT /*+ REPARTITION(2) */ area, AGE, upper('f') AS reflect
            FROM VALUES ('A1', 'old'), ('A2', 'young') AS people(area, AGE)
        )
        SELECT area, AGE, lower(reflect) AS SEX FROM some
        LATERAL VIEW explode(array(1, 2)) AS twice
        WHERE AGE IN (SELECT concat('old')) AND EXISTS (SELECT 1) AND 'reflect' <> 'java_method(1)';
    """
    counts = open_engine("spark").tabulate(query(tiny, text))
    assert counts.entries("area", 0, 5)[2].tolist() == [2]
