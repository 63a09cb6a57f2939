"""A job and those who do it: the same functions of (job, task) on one machine and on a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from countveil.workers.processes import Processes


class Job(Protocol):
    """What the tasks share, and how one of them is done.

    Jobs and tasks are pickled, and a task may be done twice, at the same time or one after the other:
    what it leaves behind must not depend on that.
    """

    def run(self, task: Any) -> Any:
        """Do a task."""
        ...


class Workers(Protocol):
    """Whoever does tasks: processes of this machine, executors of a cluster."""

    @property
    def retries(self) -> int:
        """How many tasks were done again because whoever did them was lost."""
        ...

    @property
    def peak_memory(self) -> int:
        """The most bytes that one of them has held, as far as is known here."""
        ...

    def map(self, job: Job, tasks: Iterable[Any], *, large: bool) -> Iterator[Any]:
        """Yield the results in the order of the tasks.

        `large` says that there is enough to do to start processes for. What a task raises is raised
        here; where workers are lost for good, that is BrokenExecutor.
        """
        ...

    def rest(self) -> None:
        """Give back what is held for the next task: it may be long until there is one."""
        ...

    def reach(self, path: Path) -> None:
        """Raise where workers do not see a file that this process reads, or a folder it writes to."""
        ...


def beyond_here(workers: int | Workers) -> Workers | None:
    """Return workers that are not processes of this machine, for what threads do better than those."""
    return None if isinstance(workers, int | Processes) else workers


def hired(workers: int | Workers) -> AbstractContextManager[Workers]:
    """Return workers for a while: those given, or that many processes, which end with it."""
    return Processes(workers) if isinstance(workers, int) else nullcontext(workers)
