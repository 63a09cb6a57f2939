"""The same rule on Spark: rows depend on one person's records, or the plan attests it."""

from __future__ import annotations

import json
import re
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from tests.conftest import TINY_PEOPLE, TINY_PLACES, TINY_PLAN

from countveil import open_engine
from countveil.engines.spark.spark_query import (
    AGGREGATES,
    GENERATORS,
    ROW_FUNCTIONS,
    WINDOWS,
    each,
    refuse_programs_in_views,
)
from countveil.errors import RecordsError
from countveil.plan.plans import Plan

ONE = "one_row_per_person = true"
ALONE = f"{ONE}\neach_person_alone = true"
PUBLIC = f'{ONE}\npublic_tables = ["codes", "twice"]'
COUNTS = f'{ONE}\ncounts = "n"'
BOUNDED = 'person_id = "id"\nmax_rows = 2'
DEPENDS = "can make a person's rows depend on other people's records"
SEVERAL = "can return several rows for one person, which contradicts one_row_per_person = true"


def plan_of(tiny, text: str, records: str = ONE) -> Plan:
    line = f"query = {json.dumps(text)}\n{records}"
    tiny.write_text(TINY_PLAN.replace(f'path = "people.csv"\n{ONE}', line))
    return Plan.load(tiny)


def total(plan: Plan) -> int:
    return int(open_engine("spark").tabulate(plan).entries("region", 0, 2)[2].sum())


def refusal(plan: Plan) -> str:
    with pytest.raises(RecordsError) as caught:
        open_engine("spark").tabulate(plan)
    return str(caught.value)


@pytest.fixture(scope="module")
def views(spark_session, tmp_path_factory):
    """Views of people, look-ups, counts and visits, which no test changes; returns the plan."""
    folder = tmp_path_factory.mktemp("views")
    (folder / "places.csv").write_text(TINY_PLACES)
    names = ("area", "AGE", "SEX")
    tables = {
        "people": dict(zip(names, map(list, zip(*TINY_PEOPLE, strict=True)), strict=True)),
        "codes": {"SEX": ["f", "m", "x"], "label": ["f", "m", "x"]},
        "twice": {"SEX": ["f", "m", "x", "x"], "label": ["f", "m", "x", "f"]},
        "counted": {"area": ["A1", "A2"], "AGE": ["old", "young"], "SEX": ["f", "m"], "n": [3, 4]},
        "wide": {"area": ["A1", "A2"], "SEX": ["f", "m"], "young": [3, 4], "old": [1, 2]},
        "visits": {
            "id": ["p1", "p1", "p1"],
            "area": ["A1"] * 3,
            "AGE": ["old"] * 3,
            "SEX": ["f"] * 3,
        },
    }
    for name, table in tables.items():
        spark_session.createDataFrame(pa.table(table)).createOrReplaceTempView(name)
    spark_session.sql("SELECT * FROM people LIMIT 5").createOrReplaceTempView("five")
    spark_session.sql("SELECT * FROM people").createOrReplaceTempView("everyone")
    pq.write_table(pa.table(tables["people"]), folder / "people.parquet")
    return folder / "plan.toml"


TOGETHER = {
    "limit": ("SELECT * FROM people ORDER BY area LIMIT 5", "LIMIT"),
    "limit in a view": ("SELECT * FROM five", "LIMIT"),
    "limit in WITH": ("WITH t AS (SELECT * FROM people LIMIT 5) SELECT * FROM t", "LIMIT"),
    "window": (
        "SELECT area, SEX, if(count(*) OVER () > 7, 'old', 'young') AS AGE FROM people",
        "WINDOW",
    ),
    "distinct": ("SELECT DISTINCT * FROM people", "DISTINCT"),
    "grouped": ("SELECT area, AGE, SEX FROM people GROUP BY ALL", "GROUP BY"),
    "having": ("SELECT area, AGE, SEX FROM people GROUP BY ALL HAVING count(*) > 1", "aggregate"),
    "everyone in one group": (
        "SELECT 'A1' AS area, 'old' AS AGE, 'f' AS SEX FROM people GROUP BY GROUPING SETS (())",
        "GROUP",
    ),
    "in": (
        "SELECT * FROM people WHERE area IN (SELECT area FROM people)",
        "a sub-query over records",
    ),
    "exists": (
        "SELECT * FROM people p WHERE EXISTS (SELECT 1 FROM everyone e WHERE e.area = p.area)",
        "a sub-query over records",
    ),
    "scalar": ("SELECT * FROM people WHERE area = (SELECT min(area) FROM people)", "a sub-query"),
    "with itself": (
        "SELECT a.* FROM people a JOIN everyone b ON a.area = b.area",
        "a join of records",
    ),
    "not declared": ("SELECT p.* FROM people p JOIN codes c ON p.SEX = c.SEX", "a join of records"),
    "union": ("SELECT * FROM people UNION SELECT 'A1', 'old', 'f'", "DISTINCT"),
    "except": ("SELECT * FROM people EXCEPT SELECT 'A1', 'old', 'f'", "EXCEPT"),
    "place": (
        "SELECT * FROM parquet.`{file}` WHERE _metadata.row_index < 5",
        "the column _metadata",
    ),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_rows_that_depend_on_other_people_are_refused(views, name):
    text, part = TOGETHER[name]
    text = text.format(file=views.parent / "people.parquet")
    said = refusal(plan_of(views, text))
    assert part in said
    assert DEPENDS in said


def test_spark_does_not_group_by_an_aggregate_in_order_by(views):
    text = "SELECT 'A1' AS area, 'old' AS AGE, 'f' AS SEX FROM people ORDER BY count(*)"
    assert "cannot be run" in refusal(plan_of(views, text))


GUESSED = {
    "JSON": "SELECT area, AGE, SEX FROM json.`{file}`",
    "JSON in a view": "SELECT * FROM guessed",
    "JSON in a view of a view": "SELECT * FROM guessed_again",
    "the bytes of a file": "SELECT 'A1' AS area, 'old' AS AGE, if(length(content) > 300, 'f', 'm') "
    "AS SEX FROM binaryFile.`{file}`",
}


@pytest.mark.parametrize("sources", ["json,orc,parquet,csv,text", ""])
@pytest.mark.parametrize("name", GUESSED)
def test_types_that_all_rows_of_a_file_decide_are_refused(views, spark_session, name, sources):
    """One row of other people decides whether a column is a number or text."""
    file = views.parent / "people.json"
    rows = [dict(zip(("area", "AGE", "SEX"), row, strict=True)) for row in TINY_PEOPLE]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = f"SELECT area, AGE, if(typeof(SEX) = 'string', SEX, 'x') AS SEX FROM json.`{file}`"
    key = "spark.sql.sources.useV1SourceList"
    before = spark_session.conf.get(key)
    spark_session.conf.set(key, sources)
    try:
        spark_session.sql(f"CREATE OR REPLACE TEMP VIEW guessed AS {text}")
        spark_session.sql("CREATE OR REPLACE TEMP VIEW guessed_again AS SELECT * FROM guessed")
        said = refusal(plan_of(views, GUESSED[name].format(file=file)))
        assert "the type of a column, guessed from the rows of a file" in said
        assert DEPENDS in said
    finally:
        spark_session.conf.set(key, before)
    spark_session.read.json(str(file)).createOrReplaceTempView("typed_by_a_program")
    assert total(plan_of(views, "SELECT * FROM typed_by_a_program")) == 8


def test_they_are_counted_where_the_plan_attests_it(views):
    assert total(plan_of(views, TOGETHER["limit"][0], ALONE)) == 5
    assert total(plan_of(views, TOGETHER["window"][0], ALONE)) == 8


FINE = {
    "columns": ("SELECT area, AGE, lower(upper(SEX)) AS SEX FROM people WHERE AGE = 'old'", ONE, 5),
    "a view of a view": ("SELECT * FROM everyone ORDER BY area", ONE, 8),
    "a file": ("SELECT * FROM parquet.`{file}`", ONE, 8),
    "rows that are the same for all": (
        "SELECT * FROM people UNION ALL SELECT 'A1', 'old', 'f'",
        ONE,
        9,
    ),
    "a look-up": ("SELECT p.* FROM people p JOIN codes c ON p.SEX = c.SEX", PUBLIC, 8),
    "using": ("SELECT area, AGE, label AS SEX FROM people LEFT JOIN codes USING (SEX)", PUBLIC, 8),
    "in a look-up": ("SELECT * FROM people WHERE SEX IN (SELECT SEX FROM twice)", PUBLIC, 8),
    "semi join": ("SELECT * FROM people LEFT SEMI JOIN twice USING (SEX)", PUBLIC, 8),
    "counted": (
        "SELECT area, AGE, SEX, count(*) AS n FROM people GROUP BY area, AGE, SEX",
        COUNTS,
        8,
    ),
    "added up": ("SELECT area, AGE, SEX, sum(n) AS n FROM counted GROUP BY ALL", COUNTS, 7),
    "a table of counts": ("SELECT area, AGE, SEX, CAST(n AS INT) AS n FROM counted", COUNTS, 7),
    "wide": (
        "SELECT * FROM wide UNPIVOT (n FOR AGE IN (young, old))",
        COUNTS,
        10,
    ),
    "visits twice": (
        "SELECT v.* FROM visits v JOIN VALUES ('f'), ('f') AS t(s) ON SEX = s",
        BOUNDED,
        2,
    ),
}


@pytest.mark.parametrize("name", FINE)
def test_row_by_row_needs_no_attestation(views, name):
    text, records, people = FINE[name]
    text = text.format(file=views.parent / "people.parquet")
    assert total(plan_of(views, text, records)) == people


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("SELECT * FROM people UNION ALL SELECT * FROM people", "UNION ALL of the same records"),
        ("SELECT p.* FROM people p JOIN twice c ON p.SEX = c.SEX", "a join to a public table"),
        ("SELECT p.* FROM people p LATERAL VIEW explode(array(1, 2)) AS x", "explode"),
        ("SELECT area, AGE, s AS SEX FROM wide UNPIVOT (s FOR AGE IN (young, old))", "UNPIVOT"),
        ("SELECT p.* FROM people p CROSS JOIN range(3)", "a join without a condition"),
        (
            "SELECT p.* FROM people p, codes c WHERE p.SEX = c.SEX",
            "a join whose condition is in WHERE (write JOIN ... ON)",
        ),
    ],
)
def test_one_row_per_person_is_refused_where_a_query_makes_several(views, text, part):
    said = refusal(plan_of(views, text, PUBLIC))
    assert part in said
    assert SEVERAL in said


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM counted WHERE n > 3",
        "SELECT * FROM (SELECT area, AGE, SEX, count(*) AS n FROM people GROUP BY ALL) WHERE n > 1",
        "SELECT area, SEX, n, if(n = 3, 'old', 'young') AS AGE FROM counted",
        "SELECT area, AGE, SEX, 2 * n AS n FROM counted",
        "SELECT area, AGE, SEX, max(n) AS n FROM counted GROUP BY ALL",
        "SELECT area, AGE, SEX, w AS n FROM counted CROSS JOIN VALUES (5) AS t(w)",
        "SELECT * FROM (SELECT * FROM wide WHERE old = 1) UNPIVOT (n FOR AGE IN (young, old))",
        "SELECT area, AGE, SEX, coalesce(try_cast(n AS TINYINT), 0) AS n FROM counted",
        "SELECT area, AGE, SEX, sum(try_cast(n AS TINYINT)) AS n FROM counted GROUP BY ALL",
        "SELECT * FROM (SELECT area, AGE, SEX, try_cast(n AS TINYINT) AS n FROM counted) "
        "WHERE n IS NOT NULL",
        "SELECT area, AGE, SEX, try_sum(n) AS n FROM counted GROUP BY ALL",
        "SELECT area, AGE, SEX, CAST(n AS DOUBLE) AS n FROM counted",
        "SELECT * FROM (SELECT area, SEX, young, young AS old FROM wide) "
        "UNPIVOT (n FOR AGE IN (young, old))",
        "SELECT * FROM (SELECT area, SEX, 1 AS young, 1 AS old FROM people) "
        "UNPIVOT (n FOR AGE IN (young, old))",
        "SELECT * FROM (SELECT area, SEX, young, 1 AS old FROM wide) "
        "UNPIVOT (n FOR AGE IN (young, old))",
        "SELECT area, AGE, SEX, x AS n FROM people, LATERAL (SELECT 5 AS x)",
        "SELECT area, AGE, SEX, x AS n FROM people LATERAL VIEW explode(array(5)) AS x",
    ],
)
def test_nothing_but_the_count_depends_on_a_count(views, text):
    assert DEPENDS in refusal(plan_of(views, text, COUNTS))


def test_a_cast_that_wraps_is_refused_on_a_count(views, spark_session):
    text = "SELECT area, AGE, SEX, CAST(n AS {}) AS n FROM (SELECT *, n AS m FROM counted)"
    spark_session.conf.set("spark.sql.ansi.enabled", "false")
    try:
        assert "a conversion that can change or lose a count" in refusal(
            plan_of(views, text.format("TINYINT"), COUNTS)
        )
    finally:
        spark_session.conf.unset("spark.sql.ansi.enabled")


def test_grouping_sets_are_named(views):
    text = "SELECT area, AGE, SEX, count(*) AS n FROM people GROUP BY {}"
    for groups in ("GROUPING SETS ((area, AGE, SEX), (area))", "CUBE (area, AGE, SEX)"):
        said = refusal(plan_of(views, text.format(groups), COUNTS))
        assert "GROUPING SETS" in said
        assert "UNPIVOT" not in said


@pytest.fixture(scope="module")
def same_file(views, spark_session):
    """One file under many names: a folder, a link, and two SQL views; returns the plan."""
    folder = views.parent / "of people"
    folder.mkdir()
    file = folder / "people.parquet"
    shutil.copy(views.parent / "people.parquet", file)
    (views.parent / "linked").symlink_to(folder)
    (views.parent / "hard.parquet").hardlink_to(file)
    for name in ("first", "second"):
        spark_session.sql(f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT * FROM parquet.`{file}`")
    people = spark_session.table("people")
    people.select("*").createOrReplaceTempView("again")
    return views


FOLDER = "parquet.`{folder}/of people`"
TWICE = {
    "a folder and its file": (FOLDER, "parquet.`{folder}/of people/people.parquet`"),
    "a link": (FOLDER, "parquet.`{folder}/linked`"),
    "a hard link": (FOLDER, "parquet.`{folder}/hard.parquet`"),
    "a pattern": (FOLDER, "parquet.`{folder}/{{linked,hard.parquet}}`"),
    "two views": ("first", "second"),
    "a view and its file": ("first", FOLDER),
    "two views of one table": ("people", "again"),
}


@pytest.mark.parametrize("name", TWICE)
def test_records_are_the_same_under_any_name(same_file, name):
    one, other = (part.format(folder=same_file.parent) for part in TWICE[name])
    said = refusal(plan_of(same_file, f"SELECT * FROM {one} UNION ALL SELECT * FROM {other}"))
    assert SEVERAL in said


@pytest.mark.parametrize("pattern", ["{linked,hard.parquet}", "of people{,/people.parquet}"])
def test_a_file_read_twice_by_one_source_gives_several_rows(same_file, pattern):
    said = refusal(plan_of(same_file, f"SELECT * FROM parquet.`{same_file.parent}/{pattern}`"))
    assert "a file that is read twice" in said
    assert SEVERAL in said


def test_different_files_and_views_are_different_records(same_file):
    people = pa.table({"area": ["A1"], "AGE": ["old"], "SEX": ["f"]})
    pq.write_table(people, same_file.parent / "more.parquet")
    more = f"parquet.`{same_file.parent}/more.parquet`"
    text = f"SELECT * FROM first UNION ALL SELECT * FROM {more}"
    assert total(plan_of(same_file, text)) == 9


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("name", ["codes.csv", "codes.parquet"])
def test_a_file_is_declared_public_by_its_path(views, name, absolute):
    file = views.parent / name
    if name.endswith("csv"):
        file.write_text("f,f\nm,m\nx,x\n")
        join = f"csv.`{file}` c ON p.SEX = c._c0"
    else:
        pq.write_table(pa.table({"SEX": ["f", "m", "x"]}), file)
        join = f"parquet.`{file}` c ON p.SEX = c.SEX"
    declared = f'{ONE}\npublic_tables = ["{file if absolute else name}"]'
    text = f"SELECT p.* FROM people p JOIN {join}"
    assert total(plan_of(views, text, declared)) == 8
    assert "a join of records" in refusal(plan_of(views, text))


def test_one_public_file_does_not_make_its_neighbours_public(views):
    people = views.parent / "people.parquet"
    pq.write_table(pq.read_table(people), views.parent / "codes.parquet")
    text = (
        f"SELECT p.* FROM people p LEFT SEMI JOIN "
        f"parquet.`{views.parent}/{{codes,people}}.parquet` c ON p.SEX = c.SEX"
    )
    for declared in (views.parent / "codes.parquet", f"file:{views.parent}/codes.parquet"):
        public = f'{ONE}\npublic_tables = ["{declared}"]'
        assert "a join of records" in refusal(plan_of(views, text, public))


@pytest.mark.parametrize("part", ["LIMIT 2", "TABLESAMPLE (2 ROWS)"])
def test_public_rows_are_the_same_in_every_run(views, part):
    text = f"SELECT * FROM people WHERE SEX IN (SELECT SEX FROM twice {part})"
    assert "LIMIT over a public table may return other rows" in refusal(
        plan_of(views, text, PUBLIC)
    )


def test_public_tables_are_not_the_records(views):
    said = refusal(plan_of(views, "SELECT * FROM codes LIMIT 5", PUBLIC))
    assert "reads only records.public_tables" in said


REFUSED = {
    "SELECT *, rand() AS x FROM people": "the function rand is not allowed",
    "SELECT *, uuid() AS id FROM people": "the function uuid is not allowed",
    "SELECT *, now() AS x FROM people": "the function now is not allowed",
    "SELECT *, current_date AS x FROM people": "current_date is not in the records",
    "SELECT *, unix_timestamp() AS x FROM people": "unix_timestamp without arguments reads the clock",
    "SELECT *, raise_error(AGE) AS x FROM people": "the function raise_error is not allowed",
    "SELECT *, twice_it(1) AS x FROM people": "the function twice_it is not allowed",
    "SELECT *, default.upper(AGE) AS x FROM people": "the function default.upper is not allowed",
    "SELECT * FROM people TABLESAMPLE (50 PERCENT)": "TABLESAMPLE returns other rows in each run",
    "SELECT p.* FROM people p JOIN (SELECT * FROM codes TABLESAMPLE (9 PERCENT)) USING (SEX)": (
        "TABLESAMPLE"
    ),
    "SELECT * FROM sampled": "TABLESAMPLE returns other rows in each run",
    "SELECT *, DATE 'today' AS x FROM people": "DATE 'today' reads the clock",
    'SELECT *, TIMESTAMP"now" AS x FROM people': "reads the clock",
    "SELECT *, TIMESTAMP_NTZ '\\u0074omorrow' AS x FROM people": "reads the clock",
    "SELECT *, TIMESTAMP '12:30' AS x FROM people": "reads the clock",
    "SELECT p.* FROM people p CROSS JOIN VALUES (DATE 'yesterday') AS t(d)": "reads the clock",
    "SELECT *, CAST(AGE AS TIMESTAMP) AS x FROM people": "uses today's date if there is none",
    "SELECT *, to_timestamp(AGE) AS x FROM people": "uses today's date if there is none",
    "SELECT * FROM dated": "DATE 'today' reads the clock",
    "SELECT * FROM timed": "the function now in a view is not allowed",
    "SELECT * FROM programmed": "the function pythonudf in a view is not allowed",
    "SELECT * FROM mapped": "the operator MapInArrow in a view is not allowed",
    "SELECT * FROM sql_keywords()": "the table function sql_keywords is not allowed",
}


@pytest.fixture(scope="module")
def unsteady(views, spark_session):
    """Views that change from run to run, and a function of the session; returns the plan."""
    spark_session.udf.register("twice_it", lambda x: 2 * x, "int")
    changing = {
        "sampled": "SELECT * FROM people TABLESAMPLE (50 PERCENT)",
        "dated": "SELECT * FROM people CROSS JOIN VALUES (DATE 'today') AS t(d)",
        "timed": "SELECT *, now() AS x FROM people",
        "programmed": "SELECT *, twice_it(1) AS x FROM people",
    }
    for name, view in changing.items():
        spark_session.sql(f"CREATE OR REPLACE TEMP VIEW {name} AS {view}")
    people = spark_session.table("people")
    people.mapInArrow(lambda rows: rows, people.schema).createOrReplaceTempView("mapped")
    return views


@pytest.mark.parametrize("text", REFUSED)
def test_functions_that_are_not_listed_are_refused_even_if_attested(unsteady, text):
    assert REFUSED[text] in refusal(plan_of(unsteady, text, ALONE))


def test_dates_that_are_written_out_are_fine(views):
    text = """
        SELECT area, AGE, SEX FROM people
        WHERE DATE '2020-01-01' < TIMESTAMP '2020-01-02 12:30:00' AND DATE 'epoch' < DATE "1999"
    """
    assert total(plan_of(views, text)) == 8


def test_what_listed_functions_become_is_listed(views, spark_session):
    """Spark's own examples of row functions pass the list of expressions."""
    registry = spark_session._jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
    texts = []
    for function in each(registry.listFunction()):
        if function.funcName() in ROW_FUNCTIONS:
            examples = registry.lookupFunction(function).get().getExamples()
            texts += re.findall(r"^\s*> (SELECT [^;]*);", examples, re.MULTILINE)[:1]
    checked = 0
    for text in texts:
        try:
            frame = spark_session.sql(text)
        except PySparkException:
            continue  # such as types that are not enabled
        try:
            refuse_programs_in_views(frame, "here")
        except RecordsError as error:
            assert (
                "reads the clock" in str(error)
                or "today's date" in str(error)
                or ("current_timestamp" in str(error))
            ), text
        checked += 1
    assert checked > 300


def test_every_function_outside_the_lists_is_refused(views, spark_session):
    registries = spark_session._jvm.org.apache.spark.sql.catalyst.analysis
    for registry, known, what in (
        (
            registries.FunctionRegistry,
            ROW_FUNCTIONS | AGGREGATES | WINDOWS | GENERATORS,
            "SELECT {}()",
        ),
        (registries.TableFunctionRegistry, GENERATORS, "SELECT * FROM {}()"),
    ):
        every, names = registry.builtin().listFunction().iterator(), set()
        while every.hasNext():
            names.add(every.next().funcName())
        assert known - {"range", "case"} & names
        for name in names - known:
            if name.isidentifier() and name not in ("and", "in", "like", "not", "or"):
                said = refusal(plan_of(views, what.format(f"`{name}`"), ALONE))
                assert "is not allowed" in said or "runs Java" in said
