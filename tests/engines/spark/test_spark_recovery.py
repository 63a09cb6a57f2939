"""A worker, an executor and a driver are killed, each at another stage; `benchmarks faults --cluster`
does it dozens of times. By its name it comes late: by then kernels are compiled that executors would
all compile.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from benchmarks.fault_trial import Trial, kill_tree
from benchmarks.faults import prepare
from tests.conftest import standing_still, wait_until

from countveil import Secure, pipeline
from countveil.measure.batch_sizes import BatchSizes
from countveil.plan.plans import Plan

SMALL = BatchSizes(values_to_draw=4000, values_to_solve=4000)


def release_while(trial: Trial, stage: str, strike) -> None:
    """Release in this process, whose session is on the cluster, and strike at a stage's first step."""
    struck: list[str] = []

    def step(at: str, level: str, done: int, units: int) -> None:
        if at == stage and not struck:
            struck.append(at)
            trial.observe()
            strike()

    pipeline.release(
        Plan.load(trial.plan),
        to=trial.out,
        rng=Secure(),
        ledger=trial.ledger,
        engine="spark",
        progress=step,
        sizes=SMALL,
    )
    assert struck
    trial.check()


def spilled(folder: Path) -> set[Path]:
    """Return the folders that executors have for spilled blocks."""
    return set((folder / "spill").glob("spark-*/executor-*"))


def trial_in(folder: Path) -> Trial:
    plan = prepare(folder, people=200)
    return Trial(plan, plan.parent / "out", "spark")


def test_an_executor_lost_while_measuring_is_replaced(spark_session, cluster, tmp_path):
    def strike() -> None:
        os.kill(cluster.executors()[0], signal.SIGKILL)

    release_while(trial_in(tmp_path), "measuring", strike)


def test_a_worker_lost_while_post_processing_is_done_without(spark_session, cluster, tmp_path):
    release_while(trial_in(tmp_path), "estimating", lambda: cluster.kill("worker0"))
    cluster.replace_lost()


def test_a_driver_lost_while_measuring_is_started_again(spark_session, cluster, tmp_path):
    """The session of this process takes up what a driver of its own began; its spill is deleted."""
    sizes = BatchSizes(
        values_to_draw=1500, values_to_solve=1500
    )  # those of the driver that is killed
    trial = trial_in(tmp_path)
    before = spilled(cluster.folder)
    arguments = [trial.plan, "--to", trial.out, "--ledger", trial.ledger, "--quiet"]
    arguments += ["--engine", "spark"]
    with standing_still(
        "measuring", "benchmarks._release_child", *arguments, env=cluster.environment
    ) as process:
        made = spilled(cluster.folder) - before
        assert made, "executors keep their blocks there"
        kill_tree(process)
    trial.observe()
    trial.spoil()
    assert len(trial.charges()) == 1
    assert trial.state() == "measuring"
    pipeline.release(
        Plan.load(trial.plan),
        to=trial.out,
        rng=Secure(),
        ledger=trial.ledger,
        engine="spark",
        sizes=sizes,
    )
    trial.check()
    wait_until(lambda: not spilled(cluster.folder) & made, "blocks of a lost driver are deleted")
