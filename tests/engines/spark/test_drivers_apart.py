"""A driver with settings of its own: no value of a record is in any log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import driver_apart
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import HANG, TINY_PLACES, TINY_PLAN

SECRET, ALOUD = "Zz-planted-value", "Zz-value-said-aloud"
SETTINGS = {
    "spark.eventLog.enabled": "false",  # who accepts that log has the values of failed tasks in it
    "spark.task.maxFailures": "1",
}


@pytest.fixture(scope="module")
def driver(cluster, tmp_path_factory):
    """Run the driver to its end; return its folder and what it said."""
    folder: Path = tmp_path_factory.mktemp("apart")
    (folder / "places.csv").write_text(TINY_PLACES)
    for name, value in (("cast", SECRET), ("aloud", ALOUD)):
        rows = pa.table({"area": ["A1", "A1"], "AGE": ["old", "old"], "SEX": ["1", value]})
        pq.write_table(rows, folder / f"{name}.parquet")
        query = f"SELECT area, AGE, CAST(SEX AS INT) AS SEX FROM parquet.`{folder}/{name}.parquet`"
        text = TINY_PLAN.replace('path = "people.csv"', f'query = "{query}"')
        (folder / f"{name}.toml").write_text(text)
    wide = f"A1,old,{SECRET}" + f",{SECRET}" * 30_000
    (folder / "wide.csv").write_text(f"area,AGE,SEX\nA1,old,f\n{wide}\n")
    (folder / "wide.toml").write_text(TINY_PLAN.replace("people.csv", "wide.csv"))
    given = [item for key, value in SETTINGS.items() for item in ("--conf", f"{key}={value}")]
    ran = subprocess.run(
        [sys.executable, driver_apart.__file__, str(folder)],
        env={**cluster.environment, "PYSPARK_SUBMIT_ARGS": " ".join([*given, "pyspark-shell"])},
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return SimpleNamespace(folder=folder, said=ran.stdout.splitlines(), logged=ran.stderr)


def test_values_of_records_are_in_no_log_unless_the_session_logs(driver, cluster):
    cast, wide = driver.said
    assert "Spark could not count the records; use --show-values to see Spark's message" in cast
    assert "line 3: more than 20,480 fields" in wide
    logs = [path for path in cluster.folder.rglob("*") if path.is_file()]
    assert SECRET not in driver.logged
    assert [path for path in logs if SECRET.encode() in path.read_bytes()] == []
    # A driver that logs would have told it, and so would executors that were given a way to.
    assert ALOUD in driver.logged
    stderr = [path.read_text() for path in logs if path.name == "stderr"]
    assert stderr
    assert not any(ALOUD in text or "ERROR" in text for text in stderr)
