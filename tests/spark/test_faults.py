"""A worker, an executor and a driver are killed, each at another stage; `benchmarks faults --cluster`
does it dozens of times.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

from benchmarks.fault_trial import Trial, kill_tree, wait_for
from benchmarks.faults import prepare

from countveil import Secure, pipeline
from countveil.measure import boundary
from countveil.postprocess import descent
from countveil.schema.plan import Plan


def small_pieces(monkeypatch, values: int = 4000) -> None:
    monkeypatch.setattr(boundary, "_VALUES", values)
    monkeypatch.setattr(descent, "_VALUES", values)


def release_while(trial: Trial, states: set[str], strike) -> None:
    """Release in this process, whose session is on the cluster, and strike once at a stage."""
    struck: list[str] = []

    def watch() -> None:
        while not struck:
            if trial.state() in states:
                trial.observe()
                strike()
                struck.append(trial.state())
            time.sleep(0.02)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        pipeline.release(
            Plan.load(trial.plan), to=trial.out, rng=Secure(), ledger=trial.ledger, engine="spark"
        )
    finally:
        missed = not struck
        struck.append("ended")
    watcher.join()
    assert not missed, "the release ended before it could be struck"
    trial.check()


def spilled(folder: Path) -> set[Path]:
    """Return the folders that executors have for spilled blocks."""
    return set((folder / "spill").glob("spark-*/executor-*"))


def trial_in(folder: Path) -> Trial:
    plan = prepare(folder, people=200)
    return Trial(plan, plan.parent / "out", "spark")


def test_an_executor_lost_while_measuring_is_replaced(
    spark_session, cluster, tmp_path, monkeypatch
):
    small_pieces(monkeypatch)

    def strike() -> None:
        os.kill(cluster.executors()[0], signal.SIGKILL)

    release_while(trial_in(tmp_path), {"begun", "measuring"}, strike)


def test_a_worker_lost_while_post_processing_is_done_without(
    spark_session, cluster, tmp_path, monkeypatch
):
    small_pieces(monkeypatch)
    release_while(trial_in(tmp_path), {"measured", "estimating"}, lambda: cluster.kill("worker0"))
    cluster.mend()


def test_a_driver_lost_while_counting_or_measuring_is_started_again(
    spark_session, cluster, tmp_path, monkeypatch
):
    """The session of this process takes up what a driver of its own began; its spill is deleted."""
    small_pieces(monkeypatch, 1500)  # those of the driver that is killed
    trial = trial_in(tmp_path)
    before = spilled(cluster.folder)
    trial.environment = cluster.environment
    process = trial.start()
    assert wait_for(trial, process, {"begun", "measuring"})
    made = spilled(cluster.folder) - before
    assert made, "executors keep their blocks there"
    kill_tree(process)
    trial.observe()
    trial.spoil()
    assert len(trial.charges()) <= 1
    assert trial.state() in ("begun", "measuring", "publishing")
    pipeline.release(
        Plan.load(trial.plan), to=trial.out, rng=Secure(), ledger=trial.ledger, engine="spark"
    )
    trial.check()
    until = time.monotonic() + 20
    while spilled(cluster.folder) & made and time.monotonic() < until:
        time.sleep(0.1)
    assert not spilled(cluster.folder) & made
