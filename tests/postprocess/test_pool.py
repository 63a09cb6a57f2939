"""Tasks through processes: results in order, faults told, and no second run of anyone's script."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass

import pytest

from countveil.errors import InputError
from countveil.postprocess.pool import Pool


@dataclass(frozen=True)
class Doubling:
    def run(self, task: int) -> tuple[int, int]:
        if task == -1:
            raise InputError("no such task")
        if task == -2:
            os._exit(9)
        return 2 * task, os.getpid()


def test_results_come_in_the_order_of_the_tasks_from_other_processes():
    with Pool(Doubling(), 2) as pool:
        results = list(pool.map(list(range(40)), large=True))
    assert [value for value, _ in results] == [2 * task for task in range(40)]
    assert os.getpid() not in {process for _, process in results}


@pytest.mark.parametrize(("workers", "large"), [(1, True), (2, False)])
def test_little_work_stays_in_this_process(workers, large):
    with Pool(Doubling(), workers) as pool:
        assert {process for _, process in pool.map([1, 2, 3], large=large)} == {os.getpid()}


def test_an_error_in_a_task_is_raised_here():
    with pytest.raises(InputError, match="no such task"), Pool(Doubling(), 2) as pool:
        list(pool.map([1, 2, -1, 3], large=True))


def test_a_worker_that_dies_is_told():
    with pytest.raises(BrokenExecutor), Pool(Doubling(), 2) as pool:
        list(pool.map([1, -2, 3, 4], large=True))


SCRIPT = """
import sys
print("the script runs", flush=True)
sys.path.insert(0, {root!r})
from tests.postprocess.test_pool import Doubling
from countveil.postprocess.pool import Pool

with Pool(Doubling(), 2) as pool:
    print([value for value, _ in pool.map([1, 2, 3], large=True)])
"""


def test_a_script_without_a_main_guard_runs_once(tmp_path, request):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(root=str(request.config.rootpath)))
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the script runs\n[2, 4, 6]\n"
