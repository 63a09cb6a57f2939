"""Executors as workers: results in order, faults told, lost work done again, draws kept once."""

from __future__ import annotations

import os
import signal
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import wait_until

from countveil import Secure
from countveil.engines.spark import spark_workers
from countveil.engines.spark.spark_workers import SparkWorkers
from countveil.errors import FolderError, InputError
from countveil.measure import door
from countveil.measure.draw_tasks import DrawJob
from countveil.measure.parts import Parts
from countveil.plan.plans import Plan


@pytest.fixture(scope="module")
def workers(spark_session):
    return SparkWorkers(spark_session)


@dataclass(frozen=True)
class Doubling:
    def run(self, task: int) -> tuple[int, int]:
        return 2 * task, os.getpid()


def test_results_come_in_the_order_of_the_tasks_from_other_processes(workers, monkeypatch):
    monkeypatch.setattr(spark_workers, "_TASKS", 3)  # several waves
    results = list(workers.map(Doubling(), iter(range(20)), large=False))
    assert [value for value, _ in results] == [2 * task for task in range(20)]
    assert os.getpid() not in {process for _, process in results}
    monkeypatch.setattr(spark_workers, "_FIRST", 2)
    monkeypatch.setattr(spark_workers, "_RESULT_BYTES", 1)  # then results are large: one a wave
    assert [value for value, _ in workers.map(Doubling(), range(6), large=True)] == [
        *range(0, 12, 2)
    ]
    assert workers._most() == 1


@dataclass(frozen=True)
class Dying:
    """Ends its process when it first comes to a task: as the system does for want of memory."""

    mark: Path
    always: bool = False

    def run(self, task: int) -> int:
        if task == 2:
            try:
                self.mark.touch(exist_ok=False)
            except FileExistsError:
                if not self.always:
                    return task
            os.kill(os.getpid(), signal.SIGKILL)
        return task


def test_work_that_was_lost_is_done_again_and_counted(workers, tmp_path):
    before = workers.retries
    assert list(workers.map(Dying(tmp_path / "mark"), range(4), large=True)) == [0, 1, 2, 3]
    assert workers.retries == before + 1


def test_work_that_is_lost_every_time_is_reported(workers, tmp_path):
    with pytest.raises(BrokenExecutor, match="Spark lost its work"):
        list(workers.map(Dying(tmp_path / "mark", always=True), range(4), large=True))
    ((value, _),) = workers.map(Doubling(), [4], large=True)
    assert value == 8, "the executors are still there"


def test_attempts_at_one_part_on_several_executors_keep_one_draw(workers, tiny, tmp_path):
    from countveil import open_engine

    plan = Plan.load(tiny)
    counts = open_engine("local").tabulate(plan)
    (tmp_path / "parts").mkdir()
    job = DrawJob(plan, Secure(), Parts(tmp_path / "parts"))
    task = door._task(counts, "area", 0, 0, 5)
    list(workers.map(job, [task] * 6, large=True))
    (part,) = (tmp_path / "parts").iterdir()
    kept = part.read_bytes()
    list(workers.map(job, [task] * 2, large=True))
    assert part.read_bytes() == kept
    assert pq.read_table(pa.BufferReader(job.parts.read("area", 0))).num_rows == 10


@dataclass(frozen=True, slots=True)
class RacedParts(Parts):
    """Parts of which one is kept only once two copies of its task have drawn it."""

    marks: Path
    raced: int

    def keep(self, level: str, number: int, data: bytes) -> bool:
        if number == self.raced:
            (self.marks / sha256(data).hexdigest()).touch()
            wait_until(lambda: len(list(self.marks.iterdir())) > 1, "the other copy of the task")
        return super(RacedParts, self).keep(level, number, data)


def test_of_two_copies_of_a_task_that_race_one_draw_is_kept(workers, tiny, tmp_path):
    """Two copies, as speculation would start them: neither ends before both have drawn."""
    from countveil import open_engine

    plan = Plan.load(tiny)
    counts = open_engine("local").tabulate(plan)
    parts, marks = tmp_path / "parts", tmp_path / "marks"
    parts.mkdir()
    marks.mkdir()
    job = DrawJob(plan, Secure(), RacedParts(parts, marks, 3))
    tasks = [door._task(counts, "area", number, 0, 5) for number in (3, 3, 0, 1, 2)]
    list(workers.map(job, tasks, large=True))
    drawn = {path.name for path in marks.iterdir()}
    assert len(drawn) == 2, "each copy drew its own noise before either was kept"
    assert sha256(Parts(parts).read("area", 3)).hexdigest() in drawn
    names = sorted(path.name for path in parts.iterdir())
    assert names == [f"area.{number:06d}.parquet" for number in range(4)]


def test_executors_draw_noise_of_their_own(workers, tiny, tmp_path):
    """Jobs are pickled copies: what they draw must not be what another copy drew."""
    from countveil import open_engine

    plan = Plan.load(tiny)
    counts = open_engine("local").tabulate(plan)
    job = DrawJob(plan, Secure(), Parts(tmp_path))
    list(
        workers.map(
            job, [door._task(counts, "area", number, 0, 5) for number in range(8)], large=True
        )
    )
    drawn = {job.parts.read("area", number) for number in range(8)}
    assert len(drawn) == 8


def test_a_folder_that_is_shared_is_reached_and_left_clean(workers, tmp_path):
    left = tmp_path / ".countveil-temporary-probe-1"
    left.mkdir()
    os.utime(left, (0, 0))  # by a driver that was killed long ago
    workers.reach(tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "manifest.json").write_text("{}")
    workers.reach(tmp_path / "manifest.json")
    with pytest.raises(FolderError, match="none.json: cannot be read"):
        workers.reach(tmp_path / "none.json")
    assert len(list(tmp_path.iterdir())) == 1


class Elsewhere(spark_workers._Probe):
    """Looks where the driver wrote nothing, as an executor with a disk of its own does."""

    def run(self, task: int) -> str | None:
        return spark_workers._Probe(Path("/nowhere"), self.mark, self.version, False).run(task)


class Unlinked(spark_workers._Probe):
    """Has a disk that does not take what draws are kept by, as one of another user."""

    def run(self, task: int) -> str | None:
        link = os.link
        os.link = refused
        try:
            return super().run(task)
        finally:
            os.link = link


def refused(*paths: object) -> None:
    raise PermissionError(13, "Permission denied")


class Lost(spark_workers._Probe):
    """Sees what the driver sees, and writes to a copy of it."""

    def run(self, task: int) -> str | None:
        self.writes = False
        return super().run(task)


def test_a_folder_that_executors_do_not_see_is_refused(workers, tmp_path, monkeypatch):
    unseen = spark_workers._Probe(tmp_path / "nowhere", "mark", "0", False)
    (other,) = workers.map(unseen, [0], large=True)
    assert "has countveil" in other
    for probe, told in (
        (Elsewhere, "does not see what the driver sees there; use a file system"),
        (Unlinked, "cannot write and link files there .Permission denied"),
        (Lost, "the driver does not see what executors write there"),
    ):
        monkeypatch.setattr(spark_workers, "_Probe", probe)
        with pytest.raises(FolderError, match=told):
            SparkWorkers(workers._session).reach(tmp_path)
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(FolderError, match="cannot be read"):
        workers.reach(tmp_path / "gone")


@dataclass(frozen=True)
class Unknown:
    def __reduce__(self):
        return __import__, ("no_module_of_this_name",)

    def run(self, task: int) -> None: ...


def test_executors_without_the_package_are_refused_before_any_charge(
    workers, tmp_path, monkeypatch
):
    monkeypatch.setattr(spark_workers, "_Probe", lambda *arguments: Unknown())
    with pytest.raises(InputError, match="cannot run countveil .*no_module_of_this_name"):
        SparkWorkers(workers._session).reach(tmp_path)
