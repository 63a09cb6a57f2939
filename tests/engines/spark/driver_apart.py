"""A driver that tests start in a process of its own, to see what it logs and how copies race."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from pyspark.errors import PySparkException

from countveil import Secure, open_engine
from countveil.engines.spark.spark_session import open_session
from countveil.errors import RecordsError
from countveil.measure import door
from countveil.measure.draw_tasks import DrawJob, DrawTask
from countveil.measure.parts import Parts
from countveil.plan.plans import Plan

PATIENCE = 600  # seconds: longer, and the other copy never comes


@dataclass(frozen=True, slots=True)
class RacedParts(Parts):
    """Parts of which one is kept only once two copies of its task have drawn it."""

    marks: Path
    raced: int

    def keep(self, level: str, number: int, data: bytes) -> bool:
        if number == self.raced:
            (self.marks / sha256(data).hexdigest()).touch()
            until = time.monotonic() + PATIENCE
            while len(list(self.marks.iterdir())) < 2:
                if time.monotonic() > until:
                    raise TimeoutError("the other copy of the task did not come")
                time.sleep(0.01)
        return super(RacedParts, self).keep(level, number, data)


@dataclass(frozen=True, eq=False, slots=True)
class Race:
    """A job whose tasks draw as at the door."""

    job: DrawJob

    def run(self, task: DrawTask) -> None:
        self.job.run(task)


def refused(plan: Path) -> str:
    """Return what is said of records that cannot be counted."""
    try:
        open_engine("spark").tabulate(Plan.load(plan))
    except RecordsError as error:
        return str(error)
    return "counted"


def main(folder: Path) -> None:
    """Read bad records quietly, then one aloud; then have two copies of a task race for a part."""
    for name in ("cast.toml", "wide.toml"):
        print(refused(folder / name))
    session = open_session()
    session.sparkContext.setLogLevel("WARN")
    with suppress(PySparkException):
        session.sql(Plan.load(folder / "aloud.toml").records.query).collect()
        print("counted")
    session.sparkContext.setLogLevel("OFF")
    plan = Plan.load(folder / "plan.toml")
    counts = open_engine("local").tabulate(plan)
    parts = RacedParts(folder / "parts", folder / "marks", 3)
    # Two copies of one task, as speculation would start them: neither ends before both have drawn.
    tasks = [door._task(counts, "area", number, 0, 5) for number in (3, 3, 0, 1, 2)]
    with open_engine("spark").workers() as workers:
        list(workers.map(Race(DrawJob(plan, Secure(), parts)), tasks, large=True))
        print(f"retries {workers.retries}")


if __name__ == "__main__":
    import driver_apart  # by its name, so that executors find what is sent to them

    driver_apart.main(Path(sys.argv[1]))
