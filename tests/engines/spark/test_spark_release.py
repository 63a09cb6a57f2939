"""A plan released by Spark: the same measurements, the same estimates, and nothing said of counts."""

from __future__ import annotations

import os
import stat

import pyarrow.csv
import pytest
from tests.conftest import TINY_PLAN

from countveil import Release, Secure, open_engine, pipeline
from countveil.engines.spark import SparkEngine
from countveil.errors import RecordsError
from countveil.plan.plans import Plan


def test_a_frame_is_counted_in_place_of_the_plans_records(spark_session, tiny):
    frame = spark_session.createDataFrame(pyarrow.csv.read_csv(tiny.parent / "people.csv"))
    plan, expected = Plan.load(tiny), open_engine("local").tabulate(Plan.load(tiny))
    (tiny.parent / "people.csv").unlink()
    counts = SparkEngine(records=frame).tabulate(plan)
    assert counts.keyed_hash(b"key") == expected.keyed_hash(b"key")


def test_no_count_and_no_value_is_in_event_logs_executor_logs_or_names(
    spark_session, cluster, tiny
):
    planted, secret = 7_654_321, "Zz-planted-value"
    folder = tiny.parent
    (folder / "bad.csv").write_text(f"area,AGE,SEX\nA1,old,{secret}\nA1,{secret}\n")
    tiny.write_text(TINY_PLAN.replace("people.csv", "bad.csv"))
    with pytest.raises(RecordsError):
        open_engine("spark").tabulate(Plan.load(tiny))
    tiny.write_text(TINY_PLAN.replace('path = "people.csv"', 'path = "t.csv"\ncounts = "n"'))
    (folder / "t.csv").write_text(f"area,AGE,SEX,n\nA1,old,f,{planted}\nA2,old,f,1\n")
    plan = Plan.load(tiny)
    pipeline.release(
        plan, to=folder / "out", rng=Secure(), ledger=folder / "ledger.sqlite", engine="spark"
    )
    Release.read(folder / "out").verify(folder / "ledger.sqlite")
    texts = [path for path in cluster.folder.rglob("*") if path.is_file()]
    events = [path for path in texts if "events" in path.parts]
    assert any(b"DrawJob" in path.read_bytes() for path in events), "the log is of this run"
    assert any(path.name == "stderr" and path.stat().st_size > 0 for path in texts)
    for path in texts:
        data = path.read_bytes()
        assert str(planted).encode() not in data, path
        assert secret.encode() not in data, path


def test_what_spark_spills_is_for_its_owner_only(spark_session, cluster):
    spill = cluster.folder / "spill"
    spark_session.range(0, 100_000, 1, 4).repartition(3).collect()
    held = list(spill.iterdir())
    assert held, "executors keep their blocks there"
    assert {stat.S_IMODE(path.stat().st_mode) for path in held} == {0o700}
    assert {path.stat().st_uid for path in held} == {os.getuid()}
