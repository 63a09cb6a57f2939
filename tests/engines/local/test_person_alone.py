"""What one person can change: a query's rows depend on one person, or the plan attests it."""

from __future__ import annotations

import json
import re

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import TINY_PEOPLE, TINY_PLAN, write_people

from countveil import Release, Seeded, open_engine, pipeline
from countveil.errors import PlanError, RecordsError
from countveil.plan.plans import Plan
from countveil.report.decision_sheets import decision_sheet


def csv(files: str, columns: str = "area AGE SEX") -> str:
    """Return the SQL that reads CSV files with nothing left to guess."""
    types = ", ".join(f"'{name}': 'VARCHAR'" for name in columns.split())
    return f"read_csv({files}, auto_detect = false, header = true, columns = {{{types}}})"


P = csv("'people.csv'")
MORE = csv("'more.csv'")
BOTH = csv("['people.csv', 'more.csv']")
DOTTED = csv("'./people.csv'")
LINKED = csv("'linked.csv'")
SECOND = csv("'second.csv'")
PATTERN = csv("'people*.csv'")
TWICE = csv("['people.csv', './people.csv']")
CODES = "read_csv('codes.csv', all_varchar = true)"
TABLE = csv("'table.csv'", "area AGE SEX n")
WIDE = csv("'wide.csv'", "area SEX young old")
VISITS = csv("'visits.csv'", "id area AGE SEX")
ONE = "one_row_per_person = true"
ALONE = f"{ONE}\neach_person_alone = true"
PUBLIC = f'{ONE}\npublic_tables = ["codes.csv", "twice.csv"]'
COUNTS = f'{ONE}\ncounts = "n"'
BOUNDED = 'person_id = "id"\nmax_rows = 2'
DEPENDS = "can make a person's rows depend on other people's records"
SEVERAL = "can return several rows for one person, which contradicts one_row_per_person = true"


@pytest.fixture
def folder(tiny):
    """The tiny plan with more files next to it; returns the plan."""
    files = {
        "codes.csv": "SEX,label\nf,f\nm,m\nx,x\n",
        "twice.csv": "SEX,label\nf,f\nm,m\nx,x\nx,f\n",
        "table.csv": "area,AGE,SEX,n\nA1,old,f,3\nA2,young,m,4\n",
        "wide.csv": "area,SEX,young,old\nA1,f,3,1\nA2,m,4,2\n",
        "visits.csv": "id,area,AGE,SEX\np1,A1,old,f\np1,A2,old,f\np1,A3,old,f\np2,A1,old,m\n",
    }
    for name, text in files.items():
        (tiny.parent / name).write_text(text)
    (tiny.parent / "linked.csv").symlink_to("people.csv")
    (tiny.parent / "second.csv").hardlink_to(tiny.parent / "people.csv")
    return tiny


def plan_of(tiny, text: str, records: str = ONE) -> Plan:
    line = f"query = {json.dumps(text)}\n{records}"
    tiny.write_text(TINY_PLAN.replace(f'path = "people.csv"\n{ONE}', line))
    return Plan.load(tiny)


def total(plan: Plan) -> int:
    return int(open_engine("local").tabulate(plan).entries("region", 0, 2)[2].sum())


def refusal(plan: Plan) -> str:
    with pytest.raises(RecordsError) as caught:
        open_engine("local").tabulate(plan)
    return str(caught.value)


TOGETHER = {
    "limit": (f"SELECT * FROM {P} ORDER BY area LIMIT 5", "LIMIT"),
    "offset": (f"FROM {P} OFFSET 2", "LIMIT"),
    "percent": (f"FROM {P} LIMIT 50%", "LIMIT"),
    "limit below": (f"SELECT * FROM (FROM {P} LIMIT 5) WHERE AGE = 'old'", "LIMIT"),
    "limit in WITH": (f"WITH t AS (FROM {P} LIMIT 5) FROM t", "LIMIT"),
    "window": (
        f"SELECT area, SEX, CASE WHEN count(*) OVER () > 7 THEN 'old' ELSE 'young' END AS AGE FROM {P}",
        "the window function count",
    ),
    "qualify": (
        f"FROM {P} QUALIFY row_number() OVER (ORDER BY area) < 3",
        "the window function row_number",
    ),
    "sample": (f"FROM {P} USING SAMPLE 3 ROWS (reservoir, 1)", "SAMPLE"),
    "table sample": (f"FROM {P} TABLESAMPLE 50%", "SAMPLE"),
    "distinct": (f"SELECT DISTINCT * FROM {P}", "DISTINCT"),
    "distinct on": (f"SELECT DISTINCT ON (area) * FROM {P}", "DISTINCT"),
    "grouped": (f"SELECT area, AGE, SEX FROM {P} GROUP BY ALL", "GROUP BY"),
    "having": (f"SELECT area, AGE, SEX FROM {P} GROUP BY ALL HAVING count(*) > 1", "HAVING"),
    "aggregate": (f"SELECT min(area) AS area, 'old' AS AGE, 'f' AS SEX FROM {P}", "an aggregate"),
    "an aggregate in ORDER BY": (
        "SELECT 'A1' AS area, 'old' AS AGE, 'f' AS SEX FROM 'people.parquet' ORDER BY count(*)",
        "an aggregate can make",
    ),
    "an aggregate deep in ORDER BY": (
        f"SELECT 'A1' AS area, 'old' AS AGE, 'f' AS SEX FROM {P} ORDER BY 1 + list(AGE)[1]::INT DESC",
        "an aggregate can make",
    ),
    "an outer aggregate in ORDER BY": (
        f"SELECT 'A1' AS area, 'old' AS AGE, 'f' AS SEX FROM {P} p ORDER BY (SELECT count(p.AGE))",
        "an aggregate can make",
    ),
    "an aggregate in ORDER BY below": (
        f"SELECT * FROM (SELECT 'A1' AS area, 'old' AS AGE, 'f' AS SEX FROM {P} ORDER BY max(AGE))",
        "an aggregate can make",
    ),
    "an aggregate in ORDER BY of a UNION": (
        f"SELECT * FROM {P} UNION ALL SELECT * FROM {MORE} ORDER BY max(AGE)",
        "an aggregate in ORDER BY can make",
    ),
    "everyone in one group": (
        f"SELECT 'A1' AS area, 'old' AS AGE, 'f' AS SEX FROM {P} GROUP BY ()",
        "GROUP BY can make",
    ),
    "in": (f"FROM {P} WHERE area IN (SELECT area FROM {P} WHERE AGE = 'old')", "a sub-query over"),
    "exists": (
        f"FROM {P} AS p WHERE EXISTS (FROM {P} AS q WHERE q.area = p.area AND q.AGE = 'old')",
        "a sub-query over records",
    ),
    "scalar": (f"FROM {P} WHERE area = (SELECT area FROM {P} LIMIT 1)", "a sub-query over records"),
    "an outer aggregate": (f"FROM {P} AS p WHERE (SELECT count(p.AGE)) > 7", "an aggregate in a"),
    "with itself": (f"SELECT a.* FROM {P} a JOIN {P} b USING (area)", "a join of records with"),
    "not declared": (f"SELECT p.* FROM {P} p JOIN {CODES} USING (SEX)", "a join of records with"),
    "positional": (f"FROM {P} POSITIONAL JOIN (SELECT 1)", "POSITIONAL JOIN"),
    "asof": (f"FROM {P} p ASOF JOIN (SELECT 'f' AS s) c ON p.SEX >= c.s", "ASOF JOIN"),
    "union": (f"FROM {P} UNION SELECT 'A1', 'old', 'f'", "UNION without ALL"),
    "except": (f"FROM {P} EXCEPT SELECT 'A1', 'old', 'f'", "EXCEPT"),
    "intersect": (f"FROM {P} INTERSECT SELECT 'A1', 'old', 'f'", "INTERSECT"),
    "recursive": (f"WITH RECURSIVE r AS (FROM {P} UNION FROM r) FROM r", "a recursive query"),
    "pivot": (f"FROM {P} PIVOT (count(*) FOR SEX IN ('f', 'm'))", "PIVOT"),
    "a function of records": (f"FROM unnest((SELECT list(p) FROM {P} p))", "a sub-query over"),
    "types guessed": ("FROM 'people.csv'", "the layout of 'people.csv', guessed from its rows"),
    "a text file with the name of another": (
        "FROM 'people.parquet.csv'",
        "the layout of 'people.parquet.csv', guessed from its rows (read_csv",
    ),
    "a text file in a folder": (
        "FROM 'people.parquet/people.ndjson'",
        "the layout of 'people.parquet/people.ndjson', guessed from its rows (read_json",
    ),
    "types guessed again": (
        "FROM read_csv('people.csv')",
        "the layout of 'people.csv', guessed from",
    ),
    "dates guessed": (
        "FROM read_csv('people.csv', columns = {'area': 'VARCHAR', 'AGE': 'DATE', 'SEX': 'VARCHAR'})",
        "the layout of 'people.csv', guessed from",
    ),
    "folders guessed": ("FROM 'years/*/people.parquet'", "guessed from the names of folders"),
    "lines left out": (
        f"FROM {P[:-1]}, ignore_errors = true)",
        "the option ignore_errors of read_csv",
    ),
    "lines skipped": (
        f"FROM {P.replace('header = true', 'skip = 3')}",
        "the option skip of read_csv",
    ),
    "rows numbered": (
        "FROM read_parquet('people.parquet', file_row_number = true) WHERE file_row_number < 5",
        "file_row_number",
    ),
    "rows by their place": (
        "FROM read_parquet('people.parquet') WHERE file_row_number < 5",
        "the column file_row_number, the position of a row,",
    ),
    "qualify alone": (f"FROM {P} QUALIFY AGE = 'old'", "QUALIFY"),
    "a collation": (
        f"SELECT p.* FROM {P} p JOIN (VALUES ('f'), ('F')) v(s) ON p.SEX COLLATE nocase = v.s",
        "COLLATE",
    ),
    "a collation below": (
        f"SELECT p.* FROM (SELECT area, AGE, SEX COLLATE NOCASE AS SEX FROM {P}) p "
        "JOIN (VALUES ('f'), ('F')) v(s) ON p.SEX = v.s",
        "COLLATE",
    ),
    "a window in UNPIVOT": (
        f"UNPIVOT (SELECT area, SEX, AGE AS g FROM {P}) ON (CASE WHEN count(g) OVER () > 3 THEN 'old' "
        "ELSE 'young' END) AS z INTO NAME t VALUE AGE",
        "the window function count",
    ),
    "an expression in UNPIVOT": (
        f"UNPIVOT (SELECT area, SEX, AGE AS g FROM {P}) ON (upper(g)) AS z INTO NAME t VALUE AGE",
        "UNPIVOT of something other than columns",
    ),
    "dates read by others": (
        "FROM read_csv('people.csv', all_varchar = true, types = {'AGE': 'DATE'})",
        "the layout of 'people.csv', guessed from its rows",
    ),
    "lines that others end": (
        "FROM read_csv('people.csv', all_varchar = true, header = false, "
        "names = ['area', 'AGE', 'SEX'])",
        "the layout of 'people.csv', guessed from its rows",
    ),
    "rows by a joined place": (
        "SELECT p.* FROM 'people.parquet' p SEMI JOIN range(5) r(file_row_number) "
        "USING (file_row_number)",
        "the column file_row_number",
    ),
    "a random look-up": (
        f"FROM {P} SEMI JOIN (FROM (VALUES ('f'), ('m')) v(SEX) USING SAMPLE 1 ROWS) USING (SEX)",
        "SAMPLE",
    ),
    "columns by a pattern": (f"SELECT COLUMNS('.*') FROM {P}", "COLUMNS(…)"),
    "a natural join": (
        f"FROM {P} NATURAL JOIN (VALUES ('f')) v(SEX)",
        "NATURAL JOIN, whose columns are not stated (write USING)",
    ),
    "ordinality": (f"FROM {P} WITH ORDINALITY WHERE ordinality < 5", "WITH ORDINALITY"),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_rows_that_depend_on_other_people_are_refused(folder, name):
    text, part = TOGETHER[name]
    said = refusal(plan_of(folder, text))
    assert part in said
    assert DEPENDS in said
    assert "records.public_tables, or attest each_person_alone = true" in said


@pytest.mark.parametrize("name", ["limit", "window", "distinct", "with itself", "types guessed"])
def test_they_are_counted_where_the_plan_attests_it(folder, name):
    assert total(plan_of(folder, TOGETHER[name][0], ALONE)) > 0


@pytest.mark.parametrize("name", ["limit", "window"])
def test_the_commands_refuse_and_attest_alike(folder, command, name):
    """With add-remove neighbours these have a true rho of 2 and more where 1 is claimed."""
    out = folder.parent / "out"
    release = ("release", folder, "--to", out, "--ledger", folder.parent / "l.sqlite", "--quiet")
    plan_of(folder, TOGETHER[name][0])
    folder.write_text(folder.read_text().replace("change-one", "add-remove"))
    before = {path.name for path in folder.parent.iterdir()}
    for arguments in (("check", folder), release):
        ran = command(*arguments)
        assert ran.status == 2
        assert DEPENDS in re.sub(r"\s+", " ", ran.err)
    assert {path.name for path in folder.parent.iterdir()} == before
    folder.write_text(folder.read_text().replace(ONE, ALONE))
    assert command("check", folder).status == 0
    assert command(*release).status == 0
    assert command("verify", out).status == 0
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["each_person_alone"] == "attested"
    assert manifest["plan"]["records"]["each_person_alone"] is True
    assert "query" not in manifest["plan"]["records"]
    assert "attests that no person's rows depend" in re.sub(
        r"\s+", " ", command("price", folder).out
    )


def test_page_one_says_what_is_attested(folder):
    text = f"SELECT p.* FROM {VISITS} p JOIN {CODES} USING (SEX) LIMIT 3"
    records = (
        f'{BOUNDED}\neach_person_alone = true\npublic_tables = ["codes.csv"]\nreal_ids = ["0"]'
    )
    release = pipeline.release(
        plan_of(folder, text, records), to=folder.parent / "out", rng=Seeded(1)
    )
    shown = dict(decision_sheet(release).parameters)
    assert shown["Attested"].startswith("that no person's rows depend on other people's records")
    assert shown["Treated as public"] == "codes.csv"
    assert shown["Treated as real person ids"] == "0"
    plain = pipeline.release(plan_of(folder, f"FROM {P}"), to=folder.parent / "o", rng=Seeded(1))
    assert not {"Attested", "Treated as public"} & set(dict(decision_sheet(plain).parameters))
    assert "each_person_alone" not in Release.read(folder.parent / "o").manifest


FINE = {
    "columns": (f"SELECT area, AGE, upper(lower(SEX)) AS x, SEX FROM {P}", ONE, 8),
    "a condition": (f"FROM {P} WHERE AGE = 'old' ORDER BY area", ONE, 5),
    "parquet": ("FROM 'people.parquet'", ONE, 8),
    "stated types": (
        "FROM read_csv('people.csv', auto_detect = false, header = true, columns = "
        "{'area': 'VARCHAR', 'AGE': 'VARCHAR', 'SEX': 'VARCHAR'})",
        ONE,
        8,
    ),
    "text": ("FROM read_csv('people.csv', all_varchar = true) WHERE AGE = 'old'", ONE, 5),
    "text with a comment": (
        "WITH t AS (FROM read_csv('people.csv', header = true, all_varchar = true)) -- all\nFROM t",
        ONE,
        8,
    ),
    "groups in the order of their counts": (
        f"SELECT area, AGE, SEX, count(*) AS n FROM {P} GROUP BY ALL ORDER BY count(*)",
        COUNTS,
        8,
    ),
    "several files": (f"FROM {P} UNION ALL BY NAME FROM {MORE}", ONE, 9),
    "a list of files": (f"FROM {BOTH}", ONE, 9),
    "rows that are the same for all": (f"FROM {P} UNION ALL SELECT 'A1', 'old', 'f'", ONE, 9),
    "a look-up": (f"SELECT area, AGE, label AS SEX FROM {P} JOIN {CODES} USING (SEX)", PUBLIC, 8),
    "a look-up by name": (
        "SELECT p.* FROM {0} p LEFT JOIN 'codes.csv' c ON p.SEX = c.SEX",
        PUBLIC,
        8,
    ),
    "a look-up on the left": (
        "SELECT p.* FROM 'codes.csv' c JOIN {0} p ON p.SEX = c.SEX",
        PUBLIC,
        8,
    ),
    "a look-up by another path": (
        "SELECT p.* FROM {0} p JOIN './codes.csv' c ON p.SEX = c.SEX",
        PUBLIC,
        8,
    ),
    "a computed look-up": (
        "SELECT p.* FROM {0} p JOIN (SELECT SEX, max(label) AS label FROM 'twice.csv' GROUP BY SEX "
        "ORDER BY SEX LIMIT 2) c ON p.SEX = c.SEX",
        PUBLIC,
        6,
    ),
    "written out": ("SELECT p.* FROM {0} p JOIN (VALUES ('f'), ('m')) v(s) ON p.SEX = v.s", ONE, 6),
    "in a look-up": ("FROM {0} WHERE SEX IN (SELECT SEX FROM 'twice.csv')", PUBLIC, 8),
    "semi join": ("FROM {0} SEMI JOIN 'twice.csv' USING (SEX)", PUBLIC, 8),
    "counted": (f"SELECT area, AGE, SEX, count(*) AS n FROM {P} GROUP BY ALL", COUNTS, 8),
    "counted and passed on": (
        f"WITH g AS (SELECT area, AGE, SEX, count(*) AS m FROM {P} GROUP BY area, AGE, SEX) "
        "SELECT area, AGE, SEX, CAST(m AS INTEGER) AS n FROM g",
        COUNTS,
        8,
    ),
    "added up": (
        f"SELECT area, AGE, SEX, sum(CAST(n AS BIGINT)) AS n FROM {TABLE} GROUP BY 1, 2, 3",
        COUNTS,
        7,
    ),
    "a table of counts": (
        f"SELECT * REPLACE (n::INT AS n) FROM {TABLE} WHERE AGE = 'old'",
        COUNTS,
        3,
    ),
    "counts and a look-up": (
        f"SELECT area, AGE, label AS SEX, n FROM {TABLE} t JOIN {CODES} c USING (SEX)",
        f'{COUNTS}\npublic_tables = ["codes.csv"]',
        7,
    ),
    "wide": (f"UNPIVOT {WIDE} ON young, old INTO NAME AGE VALUE n", COUNTS, 10),
    "wide, all but": (
        f"UNPIVOT (FROM {WIDE} WHERE area = 'A1') ON COLUMNS(* EXCLUDE (area, SEX)) "
        "INTO NAME AGE VALUE n",
        COUNTS,
        4,
    ),
    "one each": (f"SELECT *, 1 AS n FROM {P}", COUNTS, 8),
    "visits": (f"FROM {VISITS}", BOUNDED, 3),
    "visits unpivoted": (
        f"UNPIVOT (SELECT id, area, 'old' AS AGE, SEX AS a, SEX AS b FROM {VISITS}) ON a, b "
        "INTO NAME turn VALUE SEX",
        BOUNDED,
        4,
    ),
    "visits matched twice": (
        f"SELECT v.* FROM {VISITS} v JOIN (VALUES ('f'), ('f'), ('m')) t(s) ON v.SEX = t.s",
        BOUNDED,
        3,
    ),
    "nothing confidential": ("SELECT 'A1' AS area, 'old' AS AGE, 'f' AS SEX LIMIT 1", ONE, 1),
}


@pytest.mark.parametrize("name", FINE)
def test_row_by_row_needs_no_attestation(folder, name):
    text, records, people = FINE[name]
    pq.write_table(pa.csv.read_csv(folder.parent / "people.csv"), folder.parent / "people.parquet")
    write_people(folder.parent / "more.csv", TINY_PEOPLE[:1])
    assert total(plan_of(folder, text.replace("{0}", P), records)) == people


ROWS = {
    "twice in a union": (f"FROM {P} UNION ALL FROM {P}", "UNION ALL of the same records"),
    "by another path": (
        f"FROM {P} UNION ALL FROM {DOTTED}",
        "UNION ALL of the same records",
    ),
    "by a pattern": (
        f"FROM {P} UNION ALL FROM {PATTERN}",
        "UNION ALL of the same records",
    ),
    "twice in a list": (
        f"FROM {TWICE}",
        "reading a file twice",
    ),
    "unpivot": (
        f"UNPIVOT (SELECT area, AGE, SEX AS a, SEX AS b FROM {P}) ON a, b INTO NAME t VALUE SEX",
        "UNPIVOT",
    ),
    "unnest": (f"SELECT area, AGE, unnest([SEX, 'f']) AS SEX FROM {P}", "unnest"),
    "unnest in REPLACE": (
        f"SELECT * REPLACE (unnest([SEX, 'f', 'm']) AS SEX) FROM {P}",
        "unnest",
    ),
    "unnest in ORDER BY": (f"FROM {P} ORDER BY unnest(range(100))", "unnest"),
    "by a link": (f"FROM {P} UNION ALL FROM {LINKED}", "UNION ALL of the same records"),
    "by a second name": (f"FROM {P} UNION ALL FROM {SECOND}", "UNION ALL of the same records"),
    "a condition in WHERE": (
        "SELECT p.* FROM {0} p, 'codes.csv' c WHERE p.SEX = c.SEX",
        "a join without ON or USING (a condition in WHERE does not count)",
    ),
    "unnest in FROM": (
        f"SELECT p.* FROM {P} p, unnest([p.SEX, 'f'])",
        "a join without ON or USING",
    ),
    "numbers": (f"SELECT p.* FROM {P} p, range(3)", "a join without ON or USING"),
    "keys that repeat": (
        "SELECT p.* FROM {0} p JOIN 'twice.csv' c ON p.SEX = c.SEX",
        "a join to a public table that may match several of its rows",
    ),
    "keys that become equal": (
        "SELECT p.* FROM {0} p JOIN (VALUES ('1'), ('01')) v(s) ON length(p.SEX) = v.s",
        "a join to a public table that may match several of its rows",
    ),
    "no key": ("SELECT p.* FROM {0} p JOIN 'codes.csv' c ON p.SEX > c.SEX", "a join to a public"),
}


@pytest.mark.parametrize("name", ROWS)
def test_one_row_per_person_is_refused_where_a_query_makes_several(folder, name):
    text, part = ROWS[name]
    said = refusal(plan_of(folder, text.replace("{0}", P), PUBLIC))
    assert part in said
    assert SEVERAL in said
    assert total(plan_of(folder, text.replace("{0}", P), f"{PUBLIC}\neach_person_alone = true")) > 0


AMOUNTS = {
    "a condition": f"FROM {TABLE} WHERE n::INT > 3",
    "a condition on what was counted": (
        f"FROM (SELECT area, AGE, SEX, count(*) AS n FROM {P} GROUP BY ALL) WHERE n > 1"
    ),
    "a category": f"SELECT area, SEX, n, if(n = '3', 'old', 'young') AS AGE FROM {TABLE}",
    "under another name": (
        f"SELECT area, SEX, m AS n, if(m = '3', 'old', 'young') AS AGE "
        f"FROM (SELECT * EXCLUDE (n), n AS m FROM {TABLE})"
    ),
    "in a whole row": f"SELECT * FROM {TABLE} t WHERE t::VARCHAR LIKE '%3%'",
    "twice as many": f"SELECT * REPLACE (2 * n::INT AS n) FROM {TABLE}",
    "seven each": f"SELECT *, 7 AS n FROM {P}",
    "one for all": f"SELECT 'A1' AS area, 'old' AS AGE, 'f' AS SEX, 1 AS n FROM {P} ORDER BY count(*)",
    "the largest": f"SELECT area, AGE, SEX, max(n::INT) AS n FROM {TABLE} GROUP BY ALL",
    "two counts": (
        f"SELECT area, count(*)::VARCHAR AS AGE, 'f' AS SEX, count(*) AS n FROM {P} GROUP BY 1"
    ),
    "subtotals": f"SELECT area, AGE, SEX, count(*) AS n FROM {P} GROUP BY CUBE (area, AGE, SEX)",
    "distinct": f"SELECT area, AGE, SEX, count(DISTINCT area) AS n FROM {P} GROUP BY ALL",
    "from elsewhere": f"SELECT area, AGE, SEX, w AS n FROM {TABLE}, (SELECT 5 AS w)",
    "lateral": f"SELECT t.* FROM {TABLE} t, (SELECT t.n > '3' AS big) b WHERE big",
    "before unpivot": (
        f"UNPIVOT (FROM {WIDE} WHERE old = '1') ON COLUMNS(* EXCLUDE (area, SEX)) "
        "INTO NAME AGE VALUE n"
    ),
    "out of a struct": f"SELECT area, AGE, SEX, s.n AS n FROM (SELECT *, {{'n': 700}} AS s FROM {P})",
    "all of a struct": f"SELECT area, AGE, SEX, s.* FROM (SELECT *, {{'n': 700}} AS s FROM {P})",
    "by a name made up": f'SELECT area, AGE, SEX, "(7 * 100)" AS n FROM (SELECT *, 7 * 100 FROM {P})',
    "by the second of two names": (
        f"SELECT area, AGE, SEX, n_1 AS n FROM (SELECT *, 700 AS n FROM {TABLE})"
    ),
    "by a pattern": f"SELECT area, AGE, SEX, COLUMNS('nn') AS n FROM (SELECT *, 700 AS nn FROM {P})",
    "a condition on a struct": (
        f"SELECT area, AGE, SEX, s.k AS n FROM (SELECT area, AGE, SEX, {{'k': n}} AS s FROM {TABLE}) "
        "WHERE s::VARCHAR LIKE '%3%'"
    ),
    "lost when large": (
        "SELECT area, AGE, SEX, coalesce(TRY_CAST(n AS TINYINT), 0) AS n "
        f"FROM (SELECT area, AGE, SEX, count(*) AS n FROM {P} GROUP BY ALL)"
    ),
    "added up, lost when large": (
        f"SELECT area, AGE, SEX, sum(TRY_CAST(n AS TINYINT)) AS n FROM {TABLE} GROUP BY ALL"
    ),
    "by its number": f"SELECT area, AGE, SEX, n FROM {TABLE} WHERE #4 = '3'",
    "in a row without a name": (
        f"FROM (SELECT area, AGE, SEX, count(*) AS n FROM {P} GROUP BY ALL) "
        "WHERE unnamed_subquery::VARCHAR LIKE '%2%'"
    ),
    "in a row of a file": "FROM 'table.parquet' WHERE \"table\"::VARCHAR LIKE '%3%'",
    "a natural condition": f"FROM {TABLE} NATURAL SEMI JOIN (VALUES ('3'), ('9')) v(n)",
    "a hundred each": f"UNPIVOT {WIDE} ON (young::INT * 100) AS young INTO NAME AGE VALUE n",
    "a hundred each, all columns": (
        f"UNPIVOT {WIDE} ON COLUMNS(* EXCLUDE (area, SEX))::INT * 100 INTO NAME AGE VALUE n"
    ),
    "everyone twice": (
        f"UNPIVOT (SELECT area, SEX, young, young AS old FROM {WIDE}) ON young, old "
        "INTO NAME AGE VALUE n"
    ),
    "one each in two columns": (
        f"UNPIVOT (SELECT area, SEX, 1 AS young, 1 AS old FROM {P}) ON young, old "
        "INTO NAME AGE VALUE n"
    ),
    "unnamed": f"SELECT area, AGE, SEX, n, 1 + 1 FROM {TABLE}",
    "other places in a union": f"SELECT area, AGE, SEX, n FROM {TABLE} UNION ALL FROM {TABLE}",
}


def test_text_is_read_without_a_guess(folder):
    """DuckDB's own guess drops every row above one with a comma too many; ours refuses that row."""
    people = folder.parent / "people.csv"
    text = "FROM read_csv('people.csv', all_varchar = true)"
    assert total(plan_of(folder, text)) == 8
    people.write_text(people.read_text() + "A3,old,x,a,b\n")
    assert "no column 'area'" in refusal(plan_of(folder, text, ALONE))
    assert "cannot be run at line 10" in refusal(plan_of(folder, text))
    people.write_text("")
    assert "people.csv: line 1 is empty" in refusal(plan_of(folder, text))
    people.unlink()
    assert "people.csv: No such file" in refusal(plan_of(folder, text))


MANY_COUNTS = {
    "unnest": (
        f"SELECT area, AGE, unnest(['f', 'm', 'x']) AS SEX, count(*) AS n FROM {P} GROUP BY area, AGE"
    ),
    "unnest in ORDER BY": (
        f"SELECT area, AGE, SEX, count(*) AS n FROM {P} GROUP BY ALL ORDER BY unnest([1, 2])"
    ),
}


@pytest.mark.parametrize("name", MANY_COUNTS)
def test_no_one_is_counted_several_times(folder, name):
    assert SEVERAL in refusal(plan_of(folder, MANY_COUNTS[name], COUNTS))


def test_a_column_of_counts_is_not_an_attribute(folder):
    """One more person would move everyone of a cell to another category."""
    for records in ('path = "table.csv"', f"query = {json.dumps(f'FROM {TABLE}')}"):
        for columns in ('AGE = "n"', 'area = "n"'):
            text = f"{records}\n{COUNTS}\ncolumns = {{ {columns} }}"
            folder.write_text(TINY_PLAN.replace(f'path = "people.csv"\n{ONE}', text))
            with pytest.raises(PlanError, match="records.counts: .* is the column of counts"):
                open_engine("local").tabulate(Plan.load(folder))


@pytest.mark.parametrize("name", AMOUNTS)
def test_nothing_but_the_count_depends_on_a_count(folder, name):
    table = pa.csv.read_csv(folder.parent / "table.csv")
    pq.write_table(table, folder.parent / "table.parquet")
    assert DEPENDS in refusal(plan_of(folder, AMOUNTS[name], COUNTS))


def test_views_hide_nothing(folder):
    with duckdb.connect(str(folder.parent / "d.duckdb")) as connection:
        connection.execute(
            f"CREATE TABLE p AS FROM read_csv('{folder.parent}/people.csv', all_varchar = true);"
            "CREATE VIEW five AS FROM p LIMIT 5; CREATE VIEW v AS FROM five;"
            "CREATE VIEW fine AS FROM p; CREATE TABLE codes AS SELECT 'f' AS SEX"
        )
    base = f'{ONE}\ndatabase = "d.duckdb"'
    assert DEPENDS in refusal(plan_of(folder, "FROM v", base))
    assert DEPENDS in refusal(plan_of(folder, "FROM p WHERE rowid < 5", base))
    assert SEVERAL in refusal(plan_of(folder, "FROM p UNION ALL FROM fine", base))
    assert DEPENDS in refusal(plan_of(folder, "FROM p SEMI JOIN codes USING (SEX)", base))
    public = f'{base}\npublic_tables = ["codes"]'
    assert total(plan_of(folder, "FROM fine SEMI JOIN codes USING (SEX)", public)) == 3
    assert DEPENDS in refusal(plan_of(folder, "WITH codes AS (FROM p) FROM codes LIMIT 1", public))


def test_public_tables_are_not_the_records(folder):
    said = refusal(
        plan_of(folder, "FROM 'people.csv' LIMIT 5", f'{ONE}\npublic_tables = ["people.csv"]')
    )
    assert "reads only records.public_tables; list look-up tables there" in said


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ("each_person_alone = true", "records.each_person_alone: needs records.query"),
        ('public_tables = ["x.csv"]', "records.public_tables: needs records.query"),
        ('real_ids = ["0"]', "records.real_ids: needs records.person_id"),
    ],
)
def test_keys_that_would_do_nothing_are_refused(tiny, records, message):
    tiny.write_text(TINY_PLAN.replace(ONE, f"{ONE}\n{records}"))
    with pytest.raises(PlanError, match=re.escape(message)):
        Plan.load(tiny)


QUERIES = [
    (f"SELECT area, AGE, label AS SEX FROM {P} JOIN {CODES} USING (SEX) WHERE AGE = 'old'", PUBLIC),
    (f"SELECT area, AGE, SEX, count(*) AS n FROM {P} GROUP BY ALL", COUNTS),
    (f"SELECT area, if(SEX = 'f', 'old', AGE) AS AGE, SEX FROM {P} ORDER BY AGE", ONE),
]


@pytest.mark.parametrize(("text", "records"), QUERIES)
def test_adding_a_person_adds_that_persons_rows_and_changes_no_others(folder, text, records):
    def counts(people):
        write_people(folder.parent / "people.csv", people)
        found = open_engine("local").tabulate(plan_of(folder, text, records))
        table = np.zeros((5, 6), int)
        unit, cell, n = found.entries("area", 0, 5)
        table[unit, cell] = n
        return table

    everyone = counts(TINY_PEOPLE)
    for number in range(len(TINY_PEOPLE)):
        rest = [person for other, person in enumerate(TINY_PEOPLE) if other != number]
        change = everyone - counts(rest)
        assert change.min() >= 0
        assert change.sum() <= 1
