"""Tasks through processes, results in order; in this process where that is as fast."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import types
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol


class Job(Protocol):
    """What the tasks share, and how one of them is done."""

    def run(self, task: Any) -> Any:
        """Do a task."""
        ...


_job: Job | None = None


class Pool:
    """`workers` processes that hold the same job; they are started when there is enough to do."""

    def __init__(self, job: Job, workers: int) -> None:
        self.job, self.workers = job, workers
        self._executor: ProcessPoolExecutor | None = None

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=error[0] is None, cancel_futures=True)

    def map(self, tasks: Iterable[Any], *, large: bool) -> Iterator[Any]:
        """Yield the results in the order of the tasks; many of them go to the processes."""
        if self.workers == 1 or not large:
            for task in tasks:
                yield self.job.run(task)
            return
        waiting: deque[Future[Any]] = deque()
        for task in tasks:
            waiting.append(self._submit(task))
            if len(waiting) > 2 * self.workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _submit(self, task: Any) -> Future[Any]:
        if self._executor is None:
            # Processes are spawned: a fork would copy locks that threads of Arrow and DuckDB hold.
            self._executor = ProcessPoolExecutor(
                self.workers,
                multiprocessing.get_context("spawn"),
                initializer=_begin,
                initargs=(self.job,),
            )
        with _without_main(), _one_thread_each():  # any of the first calls may start a process
            return self._executor.submit(_run, task)


def _begin(job: Job) -> None:
    """Set up a worker: it leaves Ctrl-C to its parent, and ends when that ends."""
    global _job
    _job = job
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _run(task: Any) -> Any:
    assert _job is not None
    return _job.run(task)


@contextmanager
def _without_main() -> Iterator[None]:
    """Hide the calling script from workers: they need this package, not to run it again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Let each worker do its linear algebra in one thread; there is a worker per core."""
    names = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
