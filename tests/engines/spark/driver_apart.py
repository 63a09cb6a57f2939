"""A driver that tests start in a process of its own, to see what it logs."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

from pyspark.errors import PySparkException

from countveil import open_engine
from countveil.engines.spark.spark_session import open_session
from countveil.errors import RecordsError
from countveil.plan.plans import Plan


def refused(plan: Path) -> str:
    """Return what is said of records that cannot be counted."""
    try:
        open_engine("spark").tabulate(Plan.load(plan))
    except RecordsError as error:
        return str(error)
    return "counted"


def main(folder: Path) -> None:
    """Read bad records quietly, then one aloud."""
    for name in ("cast.toml", "wide.toml"):
        print(refused(folder / name))
    session = open_session()
    session.sparkContext.setLogLevel("WARN")
    with suppress(PySparkException):
        session.sql(Plan.load(folder / "aloud.toml").records.query).collect()
        print("counted")
    session.sparkContext.setLogLevel("OFF")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
