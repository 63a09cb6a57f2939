"""Runs of units, worked on by two threads in turn, and handed out in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from threadpoolctl import threadpool_limits

T = TypeVar("T")
_THREADS = 2
Run = tuple[int, int]


def ahead(function: Callable[[int, int], T], runs: Sequence[Run]) -> Iterator[T]:
    """Yield what a function makes of each run (start, stop), while it works on the next ones.

    Arithmetic and the reading of files leave Python free; more threads for one product cost more than
    they bring.
    """
    if len(runs) == 1:
        yield function(*runs[0])
        return
    waiting: deque[Future[T]] = deque()
    with threadpool_limits(1), ThreadPoolExecutor(_THREADS) as pool:
        for run in runs:
            waiting.append(pool.submit(function, *run))
            if len(waiting) >= _THREADS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
