"""Kill workers, executors and drivers of a real cluster, copy runs, fill its disk; check promises."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

from benchmarks import cluster as clusters
from benchmarks.cluster import Cluster
from benchmarks.fault_trial import HANG, Trial, kill_tree, need, settle, small_disk, wait_for
from benchmarks.faults import Tally, copied, prepare

VICTIMS = ("worker", "executor", "driver")
STAGES = {
    "tabulation": {"counting"},
    "measurement": {"begun", "measuring"},
    "post-processing": {"measured", "estimating"},
}


def run_on_cluster(folder: Path, runs: int, rng: random.Random, seed: int) -> None:
    """Disturb releases one after the other; every tenth meets a full disk, if run as root."""
    print(f"faults: seed {seed}, {runs} releases on a cluster of one master and two workers")
    plan, tally = prepare(folder, people=300), Counter[str]()
    with clusters.running(folder / "cluster") as cluster:
        calm = _calm(plan, cluster)
        print(f"a release without a fault takes {calm:.0f} s", flush=True)
        for number in range(runs):
            started = time.monotonic()
            if number % 10 == 9 and os.getuid() == 0:
                what = fill_the_disk(plan, cluster, rng)
            else:
                # Every pair of victim and stage in turn; the moment is random.
                victim = VICTIMS[number % 3]
                stage = list(STAGES)[number // 3 % 3]
                what = strike(plan, cluster, victim, stage, rng, calm)
            tally[what] += 1
            took = time.monotonic() - started
            calm = min(calm, took)  # other work on the machine must not delay kills past the end
            print(f"  {number + 1}: {what}, {took:.0f} s", flush=True)
    for what, times in sorted(tally.items()):
        print(f"{times:4d} x {what}")


def strike(
    plan: Path, cluster: Cluster, victim: str, stage: str, rng: random.Random, calm: float
) -> str:
    """Kill something during a stage, let the release finish or resume it, and check it."""
    trial = Trial(plan, plan.parent / "out", "spark", cluster.environment)
    process = trial.start()
    # Counting takes most of the time of a small release, after the driver has started.
    if stage == "tabulation":
        time.sleep(rng.uniform(0.2, 0.6) * calm)
    came = wait_for(trial, process, STAGES[stage])
    time.sleep(rng.uniform(0, 0.05) * calm)
    state = trial.state() if came and process.poll() is None else "its end"
    _kill(victim, cluster, process, rng)
    trial.observe()
    status = process.wait(timeout=HANG)
    cluster.replace_lost()
    killed = -signal.SIGKILL
    need(status in ((0, 3, killed) if victim == "driver" else (0, 2, 3)), trial.errors())
    need(status != 2 or not trial.charges(), f"status 2 after the charge: {trial.errors()}")
    trial.observe()
    if status == 0:
        how = "it continued without help"
        trial.check()
        trial.remove()
    else:
        copies = Tally()
        runs = [trial, *copied(trial, rng, copies)]
        how = "resumed, copied" if copies.copies else "resumed"
        trial.spoil()
        rng.shuffle(runs)
        settle(runs, Trial.ends)
        for each in runs:
            each.remove()
    article = "an" if victim == "executor" else "a"
    return f"{article} {victim} killed while {state}: {how}"


def _kill(
    victim: str, cluster: Cluster, process: subprocess.Popen[bytes], rng: random.Random
) -> None:
    if victim == "driver":
        kill_tree(process)
    elif victim == "worker":
        cluster.kill(rng.choice([name for name in cluster.processes if name != "master"]))
    else:
        for executor in rng.sample(cluster.executors(), min(1, len(cluster.executors()))):
            os.kill(executor, signal.SIGKILL)


def fill_the_disk(plan: Path, cluster: Cluster, rng: random.Random) -> str:
    """Release onto a disk that fills up on the way, for the driver and the executors."""
    disk = plan.parent / "disk"
    with small_disk(disk, int(10 ** rng.uniform(4.3, 5.4))) as make_room:
        trial = Trial(plan, disk / "out", "spark", cluster.environment)
        status = trial.start().wait(timeout=HANG)
        need(status in (0, 2, 3), f"status {status}: {trial.errors()}")
        need(status != 2 or not trial.charges(), f"status 2 after the charge: {trial.errors()}")
        state = trial.state()
        trial.observe()
        make_room()
        trial.finish()
        trial.remove()
    return f"a full disk while {state}: {'it was large enough' if status == 0 else 'resumed'}"


def _calm(plan: Path, cluster: Cluster) -> float:
    """Release once without a fault; return the seconds it took."""
    trial = Trial(plan, plan.parent / "out", "spark", cluster.environment)
    started = time.monotonic()
    trial.finish(attempts=1)
    trial.remove()
    return time.monotonic() - started
