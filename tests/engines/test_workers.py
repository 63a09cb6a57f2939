"""Tasks through processes: results in order, faults told, and no second run of anyone's script."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass
from multiprocessing import forkserver
from pathlib import Path

import pytest
from tests.conftest import HANG, wait_until

from countveil.engines.workers import Processes, children_of
from countveil.errors import InputError


@dataclass(frozen=True)
class Doubling:
    def run(self, task: int) -> tuple[int, int]:
        if task == -1:
            raise InputError("no such task")
        if task == -2:
            os._exit(9)
        return 2 * task, os.getpid()


def test_results_come_in_the_order_of_the_tasks_from_other_processes():
    with Processes(2) as workers:
        results = list(workers.map(Doubling(), list(range(40)), large=True))
    assert [value for value, _ in results] == [2 * task for task in range(40)]
    assert os.getpid() not in {process for _, process in results}


def test_workers_that_rest_hold_no_process_and_come_back():
    job = Doubling()
    with Processes(2) as workers:
        first = {process for _, process in workers.map(job, list(range(8)), large=True)}
        workers.rest()
        assert not first & set(children_of())
        assert [value for value, _ in workers.map(job, [3, 4], large=True)] == [6, 8]


@pytest.mark.parametrize(("number", "large"), [(1, True), (2, False)])
def test_little_work_stays_in_this_process(number, large):
    with Processes(number) as workers:
        assert {process for _, process in workers.map(Doubling(), [1, 2, 3], large=large)} == {
            os.getpid()
        }


def test_an_error_in_a_task_is_raised_here():
    with pytest.raises(InputError, match="no such task"), Processes(2) as workers:
        list(workers.map(Doubling(), [1, 2, -1, 3], large=True))


def test_a_worker_that_dies_is_reported():
    with pytest.raises(BrokenExecutor), Processes(2) as workers:
        list(workers.map(Doubling(), [1, -2, 3, 4], large=True))


def test_a_lost_server_of_workers_is_replaced():
    expected = [2, 4, 6, 8]
    for _ in range(2):
        with Processes(2) as workers:
            results = workers.map(Doubling(), [1, 2, 3, 4], large=True)
            assert [value for value, _ in results] == expected
        server = next(pid for pid in children_of() if b"forkserver" in command_of(pid))
        os.kill(server, signal.SIGKILL)
        wait_until(lambda pid=server: has_ended(pid), "the end of the server")


def test_a_server_lost_while_a_worker_starts_counts_as_a_lost_worker(monkeypatch):
    def gone(_: object) -> None:
        raise EOFError

    monkeypatch.setattr(forkserver, "connect_to_new_process", gone)
    with pytest.raises(BrokenExecutor, match="server"), Processes(2) as workers:
        list(workers.map(Doubling(), [1, 2], large=True))


def command_of(process: int) -> bytes:
    return Path(f"/proc/{process}/cmdline").read_bytes()


def has_ended(process: int) -> bool:
    """Whether a process can be waited for: a zombie cannot while threads of it are still ending."""
    return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


SCRIPT = """
import sys
print("the script runs", flush=True)
sys.path.insert(0, {root!r})
from tests.engines.test_workers import Doubling
from countveil.engines.workers import Processes

with Processes(2) as workers:
    print([value for value, _ in workers.map(Doubling(), [1, 2, 3], large=True)])
"""


def test_a_script_without_a_main_guard_runs_once(tmp_path, request):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(root=str(request.config.rootpath)))
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, timeout=HANG
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the script runs\n[2, 4, 6]\n"


STUCK = """
import os, signal
from tests.engines.test_workers import Doubling
from countveil.engines.workers import Processes
with Processes(2) as workers:
    processes = {process for _, process in workers.map(Doubling(), list(range(8)), large=True)}
    for process in processes:
        os.kill(process, signal.SIGSTOP)
print("ended")
"""


def test_a_process_that_answers_no_more_does_not_keep_the_others_from_ending():
    """One that was killed while it held the lock of the queue once kept a release from ending."""
    done = subprocess.run(
        [sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=HANG, check=True
    )
    assert done.stdout == "ended\n"
