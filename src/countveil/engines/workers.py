"""Workers that do the tasks of a job: processes of this machine, or the executors of a cluster."""

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
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, nullcontext
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any, Protocol


def peak_of(process: int | None = None) -> int:
    """Return the peak memory of a process in bytes, 0 if it has ended."""
    path = Path("/proc") / str(os.getpid() if process is None else process) / "status"
    try:
        lines = path.read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def children_of(process: int | None = None) -> list[int]:
    """Return all descendants of a process."""
    descendants: list[int] = []
    try:
        for task in (
            Path("/proc") / str(os.getpid() if process is None else process) / "task"
        ).iterdir():
            for child in (task / "children").read_text().split():
                descendants += [int(child), *children_of(int(child))]
    except (FileNotFoundError, ProcessLookupError):
        pass  # it ended in the meantime
    return descendants


class Job(Protocol):
    """What the tasks share, and how one of them is done, on one machine and on a cluster alike.

    Jobs and tasks are pickled. A task may be done twice, at the same time or in sequence, and its
    effects must not depend on that.
    """

    def run(self, task: Any) -> Any:
        """Do a task and return its result."""
        ...


class Workers(Protocol):
    """Processes of this machine, or executors of a cluster."""

    @property
    def retries(self) -> int:
        """How many tasks were repeated because their worker was lost."""
        ...

    @property
    def peak_memory(self) -> int:
        """The peak memory of one worker in bytes, as far as is known here."""
        ...

    def map(self, job: Job, tasks: Iterable[Any], *, large: bool) -> Iterator[Any]:
        """Yield the results in the order of the tasks.

        `large` says that there is enough work to be worth starting processes. What a task raises is
        raised here; BrokenExecutor means that workers were lost for good.
        """
        ...

    def rest(self) -> None:
        """Release resources kept for the next task, which may take a while to arrive."""
        ...

    def reach(self, path: Path) -> None:
        """Raise an error if workers cannot see a file to read or a folder to write to."""
        ...


def beyond_here(workers: int | Workers) -> Workers | None:
    """Return workers outside this machine, or None: for work that threads do better than processes."""
    return None if isinstance(workers, int | Processes) else workers


def hired(workers: int | Workers) -> AbstractContextManager[Workers]:
    """Return a context with the given workers, or with that many processes, which end with it."""
    return Processes(workers) if isinstance(workers, int) else nullcontext(workers)


_job: Job | None = None


class Processes:
    """`number` processes of this machine with the same job, started when there is enough to do."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._job: Job | None = None
        self._executor: ProcessPoolExecutor | None = None

    @property
    def retries(self) -> int:
        """Always 0: if a process is lost, the map ends."""
        return 0

    @property
    def peak_memory(self) -> int:
        """The peak memory of one process in bytes."""
        return max(map(peak_of, children_of()), default=0) if self._executor is not None else 0

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def map(self, job: Job, tasks: Iterable[Any], *, large: bool) -> Iterator[Any]:
        """Yield the results in the order of the tasks; small jobs are done in this process."""
        if self.number == 1 or not large:
            for task in tasks:
                yield job.run(task)
            return
        if job is not self._job:
            self._end()
            self._job = job
            self._executor = ProcessPoolExecutor(
                self.number,
                _context(),
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
        """End the processes; they are restarted when there is enough to do."""
        self._end()

    def reach(self, path: Path) -> None:
        """Do nothing: processes of this machine see the same files."""

    def _end(self) -> None:
        """Kill the processes; finished results are safe, and unfinished ones are of no use.

        Asked to end, they would wait for each other: if the system killed one while it held the lock of
        their queue, the others could not end, and neither could we continue.
        """
        if self._executor is not None:
            for process in list((self._executor._processes or {}).values()):
                process.kill()
            self._executor.shutdown(cancel_futures=True)
            self._executor = self._job = None

    def _submit(self, task: Any) -> Future[Any]:
        assert self._executor is not None
        with _without_main(), _one_thread_each():  # any of the first calls may start a process
            try:
                return self._executor.submit(_run, task)
            except (EOFError, ConnectionError) as error:
                raise BrokenProcessPool("the server that starts workers was lost") from error


def _context() -> BaseContext:
    """Return how processes start: as forks of a server that has loaded what we have, and no records.

    A fork of this process would copy locks that threads of Arrow and DuckDB hold. The server has no
    such threads, and its forks start at once; a new interpreter takes a second to load everything.
    """
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    package = __name__.partition(".")[0]
    ours = [name for name in sys.modules if name.partition(".")[0] == package]
    context.set_forkserver_preload(sorted(name for name in ours if "__main__" not in name))
    return context


def _begin(job: Job) -> None:
    """Set up a worker: it ignores Ctrl-C, and ends when its parent ends."""
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
    """Hide the calling script from workers: they need this package and must not rerun the script."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Let each worker use one thread for linear algebra, as there is one worker per core."""
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
