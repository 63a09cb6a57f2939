"""Nothing unmeasured is published as data: tables are refused, or say so in every place."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from tests.conftest import TINY_PLAN, restate, run

from countveil.errors import PlanError
from countveil.plan.plans import Plan
from countveil.postprocess.unmeasured import (
    determined_cells,
    determined_lines,
    published_tables,
    refuse_unmeasured,
)

pytestmark = pytest.mark.usefixtures("short_rehearsal")
AGE_ONLY = TINY_PLAN.replace('"AGE*SEX" = "3/4"', 'AGE = "3/4"')
# Regions measure sex, areas do not.
AT_REGIONS = AGE_ONLY.replace(
    '[budget.queries."*"]\n',
    '[budget.queries.region]\nTOTAL = "1/4"\nSEX = "3/4"\n[budget.queries."*"]\n',
)


def post(tables: str, more: str = "") -> str:
    return f'[postprocess]\nmethod = "top-down"\ntables = [{tables}]\n{more}'


def tree(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*")}


@pytest.mark.parametrize("name", ["check", "release"])
def test_a_table_that_nothing_measures_is_refused_before_anything_is_written(name, tiny):
    tiny.write_text(AGE_ONLY + post('"AGE", "SEX"'))
    before = tree(tiny.parent)
    arguments = [tiny] if name == "check" else [tiny, "--to", tiny.parent / "out"]
    done = run(name, *arguments)
    assert done.status == 2
    said = " ".join(done.err.split())
    assert "postprocess.tables: SEX: nothing measured at level region or below determines" in said
    assert "(measured: TOTAL, AGE)" in said
    assert "give SEX a share in [budget.queries] at level region" in said
    assert 'set unmeasured = "label"' in said
    assert tree(tiny.parent) == before


def test_a_table_must_be_measured_at_every_level_that_is_published(tiny):
    plan = Plan.parse(AT_REGIONS + post('"SEX"'), folder=tiny.parent)
    found = determined_lines(plan, plan.tables[0])
    assert found["region"].all()
    assert not found["area"].any()
    with pytest.raises(PlanError, match="at level area or below"):
        refuse_unmeasured(plan)


def test_what_other_queries_determine_is_not_refused(tiny):
    for table in ("TOTAL", "AGE", "SEX", "AGE*SEX"):
        refuse_unmeasured(Plan.parse(TINY_PLAN + post(f'"{table}"'), folder=tiny.parent))
    refuse_unmeasured(Plan.parse(AGE_ONLY + post('"TOTAL", "AGE"'), folder=tiny.parent))


def test_structural_zeros_can_determine_a_table(tiny):
    zeros = """
[[structural_zeros]]
cells = { AGE = ["young"], SEX = ["m", "x"] }
reason = "a school for girls"
[[structural_zeros]]
cells = { AGE = ["old"], SEX = ["f", "x"] }
reason = "a club of men"
"""
    refuse_unmeasured(Plan.parse(AGE_ONLY + zeros + post('"SEX"'), folder=tiny.parent))


@pytest.mark.usefixtures("few_simulations")
def test_labelled_tables_say_so_in_columns_codebook_manifest_and_report(tiny):
    tiny.write_text(AT_REGIONS + post('"AGE", "SEX"', 'unmeasured = "label"\n'))
    out = tiny.parent / "out"
    assert run("release", tiny, "--to", out).status == 0
    for path in (out / "tables/SEX.parquet", out / "tables/SEX.csv"):
        frame = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
        assert list(frame.columns)[2:] == [f"SEX_000{n}_unmeasured" for n in (1, 2, 3)]
    assert "unmeasured" not in (out / "tables/AGE.csv").read_text()
    rows = list(csv.DictReader((out / "tables/codebook.csv").read_text().splitlines()))
    assert [row["label"] for row in rows if row["table"] == "SEX"] == [
        f"{label} (unmeasured at level area)" for label in "fmx"
    ]
    assert "unmeasured at level area" in (out / "tables/codebook.md").read_text()
    assert run("verify", out, "--ledger", tiny.parent / "ledger.sqlite").status == 0
    assert run("report", out).status == 0
    page = (out / "report.html").read_text()
    assert "SEX is not measured at level area" in page
    stated = json.loads((out / "manifest.json").read_text())
    assert stated["plan"]["postprocess"]["unmeasured"] == "label"


def test_estimates_mark_cells_that_no_query_determines(tiny):
    tiny.write_text(AGE_ONLY + post('"AGE"'))
    out = tiny.parent / "out"
    assert run("release", tiny, "--to", out).status == 0
    for level in ("region", "area"):
        rows = pq.read_table(out / f"estimates/{level}.parquet").to_pandas()
        assert not rows["determined"].any()
        assert rows[["standard_error", "lower", "upper"]].isna().all(axis=None)


@pytest.mark.parametrize("confidence", ["0", "0.9"])
def test_marks_do_not_depend_on_whether_errors_are_published(confidence, tiny):
    tiny.write_text(TINY_PLAN + post('"AGE"', f"confidence = {confidence}\n"))
    out = tiny.parent / "out"
    assert run("release", tiny, "--to", out).status == 0
    rows = pq.read_table(out / "estimates/area.parquet").to_pandas()
    assert rows["determined"].all()
    assert ("standard_error" in rows) == (confidence != "0")
    assert run("verify", out, "--ledger", tiny.parent / "ledger.sqlite").status == 0


def test_an_edited_mark_fails_verification(tiny):
    tiny.write_text(TINY_PLAN + post('"AGE"'))
    out = tiny.parent / "out"
    assert run("release", tiny, "--to", out).status == 0
    path = out / "estimates/area.parquet"
    table = pq.read_table(path)
    at = table.column_names.index("determined")
    table = table.set_column(at, table.schema.field(at), [[False] * table.num_rows])
    pq.write_table(table, path)
    restate(out, "estimates/area.parquet")
    done = run("verify", out, "--ledger", tiny.parent / "ledger.sqlite")
    assert done.status != 0
    assert "not determined" in done.err


def test_determined_cells_of_a_plan(tiny):
    plan = Plan.parse(AT_REGIONS, folder=tiny.parent)
    assert not determined_cells(plan, "region").any()
    plan = Plan.parse(TINY_PLAN, folder=tiny.parent)
    assert determined_cells(plan, "area").all()
    assert published_tables(plan) == plan.tables
