"""Tasks through processes of this machine, in order; in this process where that is as fast."""

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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countveil.workers.memory import children_of, peak_of

if TYPE_CHECKING:
    from countveil.workers.protocol import Job


_job: Job | None = None


class Processes:
    """`number` processes that hold the same job; they are started when there is enough to do."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._job: Job | None = None
        self._executor: ProcessPoolExecutor | None = None

    @property
    def retries(self) -> int:
        """None: where a process is lost, the map ends."""
        return 0

    @property
    def peak_memory(self) -> int:
        """The most bytes that one of the processes has held."""
        return max(map(peak_of, children_of()), default=0) if self._executor is not None else 0

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def map(self, job: Job, tasks: Iterable[Any], *, large: bool) -> Iterator[Any]:
        """Yield the results in the order of the tasks; many of them go to the processes."""
        if self.number == 1 or not large:
            for task in tasks:
                yield job.run(task)
            return
        if job is not self._job:
            self._end()
            self._job = job
            # Processes are spawned: a fork would copy locks that threads of Arrow and DuckDB hold.
            self._executor = ProcessPoolExecutor(
                self.number,
                multiprocessing.get_context("spawn"),
                initializer=_begin,
                initargs=(job,),
            )
        waiting: deque[Future[Any]] = deque()
        try:
            for task in tasks:
                waiting.append(self._submit(task))
                if len(waiting) > 2 * self.number:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def rest(self) -> None:
        """End the processes; they are started again when there is enough to do."""
        self._end()

    def reach(self, path: Path) -> None:
        """Do nothing: processes of this machine see what this one sees."""

    def _end(self) -> None:
        """Kill the processes; what they have finished is safe, and nothing else is of use.

        Asked to end, they would wait for each other: one that the system killed while it held the lock
        of their queue keeps the others from ending, and us from going on.
        """
        if self._executor is not None:
            for process in list((self._executor._processes or {}).values()):
                process.kill()
            self._executor.shutdown(cancel_futures=True)
            self._executor = self._job = None

    def _submit(self, task: Any) -> Future[Any]:
        assert self._executor is not None
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
