"""A part is drawn once: whoever links it first, and however many try."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import stat
from concurrent.futures import BrokenExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import HANG, TINY_PLAN, parts_of

from countveil import Release, Secure, Seeded, measure, open_engine
from countveil.base import storage
from countveil.errors import FolderError, Interrupted
from countveil.measure import door, draw_tasks
from countveil.measure.batch_sizes import BatchSizes
from countveil.measure.draw_tasks import DrawJob
from countveil.measure.parts import Parts
from countveil.plan.plans import Plan


def keep_many(folder: Path, mark: int, barrier, results) -> None:
    won = []
    for number in range(40):
        barrier.wait()
        if Parts(folder).keep("area", number, bytes([mark]) * 5000):
            won.append(number)
    results.put((mark, won))


def test_of_several_processes_one_keeps_each_part_and_the_others_know_it(tmp_path):
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(3), context.Queue()
    processes = [
        context.Process(target=keep_many, args=(tmp_path, mark, barrier, results))
        for mark in range(3)
    ]
    for process in processes:
        process.start()
    won = dict(results.get(timeout=HANG) for _ in processes)
    for process in processes:
        process.join()
    assert sorted(number for numbers in won.values() for number in numbers) == list(range(40))
    for mark, numbers in won.items():
        for number in numbers:
            assert Parts(tmp_path).read("area", number) == bytes([mark]) * 5000
    assert len(list(tmp_path.iterdir())) == 40, "losers and temporary files are gone"


def test_a_kept_part_is_not_replaced_and_is_private(tmp_path):
    parts = Parts(tmp_path)
    assert parts.read("area", 0) is None
    assert parts.keep("area", 0, b"first")
    assert not parts.keep("area", 0, b"second")
    assert parts.read("area", 0) == b"first"
    (path,) = tmp_path.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_any_changed_byte_is_refused(tmp_path):
    parts = Parts(tmp_path)
    parts.keep("area", 0, b"first")
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(FolderError, match="changed since it was drawn"):
            parts.read("area", 0)
    path.write_bytes(b"")
    with pytest.raises(FolderError, match="changed since it was drawn"):
        parts.read("area", 0)


def test_a_link_whose_answer_was_lost_is_ours(tmp_path, monkeypatch):
    """A network file system may link, lose the answer, try again and find its own file."""
    real = os.link

    def retried(source, target):
        real(source, target)
        real(source, target)

    monkeypatch.setattr(os, "link", retried)
    assert storage.write_new(tmp_path / "x", b"ours")
    monkeypatch.undo()
    assert not storage.write_new(tmp_path / "x", b"theirs")
    assert (tmp_path / "x").read_bytes() == b"ours"


def job_and_task(path: Path, folder: Path, rng) -> tuple[DrawJob, draw_tasks.DrawTask]:
    plan = Plan.load(path)
    counts = open_engine("local").tabulate(plan)
    folder.mkdir(exist_ok=True)
    return DrawJob(plan, rng, Parts(folder)), door._task(counts, "area", 0, 0, 5)


def test_copies_of_a_job_draw_different_noise_and_one_of_them_counts(tiny, tmp_path, monkeypatch):
    job, task = job_and_task(tiny, tmp_path / "parts", Secure())
    copies = [pickle.loads(pickle.dumps(job)) for _ in range(2)]
    drawn = [draw_tasks.draw_measurements(copy.plan, task, copy.rng) for copy in copies]
    assert not drawn[0].equals(drawn[1]), "a copy must never repeat bits"
    copies[0].run(task)
    kept = job.parts.read("area", 0)

    def never(*arguments):
        raise AssertionError("drawn again")

    monkeypatch.setattr(draw_tasks, "draw_measurements", never)
    copies[1].run(task)
    assert job.parts.read("area", 0) == kept


def test_an_attempt_that_ends_after_another_leaves_that_one(tiny, tmp_path, monkeypatch):
    """Speculative execution: both draw, the slower finds the part kept when it is done."""
    job, task = job_and_task(tiny, tmp_path / "parts", Secure())
    real, tables = draw_tasks.draw_measurements, []

    def overtaken(plan, task, rng):
        table = real(plan, task, rng)
        tables.append(table)
        if len(tables) == 1:
            job.run(task)  # it begins later and ends earlier
        return table

    monkeypatch.setattr(draw_tasks, "draw_measurements", overtaken)
    job.run(task)
    kept = pq.read_table(pa.BufferReader(job.parts.read("area", 0)))
    assert len(tables) == 2
    assert not tables[0].equals(tables[1])
    assert len(list((tmp_path / "parts").iterdir())) == 1
    assert kept.equals(tables[1])


def test_a_task_says_nothing_of_its_counts(tiny, tmp_path):
    _, task = job_and_task(tiny, tmp_path / "parts", Secure())
    assert repr(task) == "<confidential: part 0 of level area>"


def test_processes_measure_what_one_process_measures(tiny):
    sizes = BatchSizes(values_to_draw=14, parts_to_share=1)
    plan = Plan.load(tiny)
    counts = open_engine("local").tabulate(plan)
    results = [
        measure.take(
            counts,
            plan,
            rng=Seeded(7),
            ledger=None,
            to=tiny.parent / f"out{n}",
            workers=n,
            sizes=sizes,
        )
        for n in (1, 2)
    ]
    for level in plan.levels:
        for query in ("TOTAL", "AGE*SEX"):
            one, two = (result.read(level, query).values for result in results)
            assert (one == two).all()


class Dying:
    """Workers that are lost after a few tasks."""

    retries = peak_memory = 0

    def __init__(self, lives: int) -> None:
        self.lives = lives

    def map(self, job, tasks, *, large):
        for task in tasks:
            if self.lives == 0:
                raise BrokenExecutor("a worker was killed")
            self.lives -= 1
            yield job.run(task)

    def reach(self, path: Path) -> None:
        assert path.is_dir()

    def rest(self) -> None: ...


class Elsewhere(Dying):
    """Workers that do not see the folder."""

    def reach(self, path: Path) -> None:
        raise FolderError(f"{path}: the executor does not see it")


def test_workers_that_do_not_see_the_folder_are_refused_before_the_charge(tiny):
    plan, out = Plan.load(tiny), tiny.parent / "out"
    counts = open_engine("local").tabulate(plan)
    before = sorted(tiny.parent.iterdir())
    with pytest.raises(FolderError, match="does not see it"):
        measure.take(
            counts,
            plan,
            rng=Secure(),
            ledger=tiny.parent / "l.sqlite",
            to=out,
            workers=Elsewhere(9),
        )
    assert sorted(tiny.parent.iterdir()) == before


def test_a_task_that_is_late_finds_nowhere_to_write(tiny, monkeypatch):
    """Of a run that ended, and of one that was set aside for another: its draws stay out."""
    tiny.write_text(TINY_PLAN + '[ledger]\ntotal = "4"\n')
    plan, out, ledger = Plan.load(tiny), tiny.parent / "out", tiny.parent / "ledger.sqlite"
    counts = open_engine("local").tabulate(plan)
    seen = []

    class Late(Dying):
        def map(self, job, tasks, *, large):
            for task in tasks:
                seen.append((pickle.dumps(job), pickle.dumps(task)))
                yield from super().map(job, [task], large=large)

    def take(lives, **options):
        workers = Late(lives)
        return measure.take(
            counts, plan, rng=Secure(), ledger=ledger, to=out, workers=workers, **options
        )

    with pytest.raises(Interrupted):
        take(0)
    take(99, restart=measure.Restart(charge_again=True))
    for packed in seen:
        job, task = map(pickle.loads, packed)
        with pytest.raises(FileNotFoundError):
            job.run(task)
    assert list((tiny.parent / "out-internal" / "parts").iterdir()) == []
    Release.read(out).verify(ledger)


def test_lost_workers_leave_a_run_that_resumes(tiny):
    sizes = BatchSizes(values_to_draw=14)
    plan, out = Plan.load(tiny), tiny.parent / "out"
    counts = open_engine("local").tabulate(plan)
    ledger = tiny.parent / "ledger.sqlite"

    def take(workers):
        return measure.take(
            counts, plan, rng=Secure(), ledger=ledger, to=out, workers=workers, sizes=sizes
        )

    with pytest.raises(
        Interrupted, match="a worker was killed.*run the same command again to resume"
    ):
        take(Dying(2))
    parts = {p.name: p.read_bytes() for p in parts_of(tiny.parent / "out").iterdir()}
    assert len(parts) == 2
    with pytest.raises(Interrupted):
        take(Dying(0))
    for name, data in parts.items():
        assert (parts_of(tiny.parent / "out") / name).read_bytes() == data
    take(Dying(9))
    Release.read(out).verify(ledger)
    assert len(plan.ledger(ledger).charges()) == 1
