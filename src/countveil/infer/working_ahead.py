"""Runs of units, worked on by two threads in turn or by an engine's workers; results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits

from countveil.workers import Job, Workers

T = TypeVar("T")
_THREADS = 2
Run = tuple[int, int]


def ahead(function: Callable[[int, int], T], runs: Sequence[Run]) -> Iterator[T]:
    """Yield what a function makes of each run (start, stop), while it works on the next ones.

    Arithmetic and the reading of files leave Python free; more threads for one product cost more than
    they bring.
    """
    if len(runs) == 1:
        with threadpool_limits(1):
            found = function(*runs[0])
        yield found
        return
    waiting: deque[Future[T]] = deque()
    with threadpool_limits(1), ThreadPoolExecutor(_THREADS) as pool:
        for run in runs:
            waiting.append(pool.submit(function, *run))
            if len(waiting) >= _THREADS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def each(
    job: Job, task: Callable[[int, int], Any], runs: Sequence[Run], workers: Workers | None
) -> Iterator[Any]:
    """Yield what a job makes of each run's task: by workers, or by threads if there are none."""
    if workers is None:
        return ahead(lambda start, stop: job.run(task(start, stop)), runs)
    return workers.map(job, (task(*run) for run in runs), large=len(runs) > 1)
