"""Kill a release at random, copy it, restart it; check that nothing is lost or spent twice."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks import _faults_child
from benchmarks.fault_trial import HANG, Trial, need, refused, settle, small_disk
from countveil import pipeline
from countveil.demo.starter import write_start
from countveil.engines.workers import children_of
from countveil.measure.run import release_of

_MOST_KILLS = 4
_COPIED = 0.4  # share of killed runs to copy, until there is a copy


@dataclass
class Tally:
    """The faults of a series of runs."""

    runs: int = 0
    kills: int = 0
    before_charge: int = 0
    while_drawing: int = 0
    while_publishing: int = 0
    after_manifest: int = 0
    copies: int = 0


def prepare(folder: Path, people: int = 400) -> Path:
    """Write a small plan whose measurements come in a few dozen parts."""
    write_start(folder / "start", people=people, seed=3)
    return folder / "start" / "plan.toml"


def count_events(plan: Path) -> dict[str, int]:
    """Run once without a kill; return how many possible kill points preceded each event."""
    trial = Trial(plan, plan.parent / "count")
    done = _run(trial, 0)
    if done.status != 0:
        raise RuntimeError(done.said)
    trial.remove()
    return {event: int(place) for event, place in json.loads(done.said).items()}


def kill_until_done(
    plan: Path, name: str, events: dict[str, int], rng: random.Random, tally: Tally
) -> None:
    """Kill one release a few times at random points, let it finish, and check every promise.

    Some runs are copied after a kill; from then on, one of the two is continued at random.
    """
    runs = [Trial(plan, plan.parent / name)]
    tally.runs += 1
    for _ in range(rng.randint(1, _MOST_KILLS)):
        trial = rng.choice(runs)
        done = _run(trial, _place(events, rng))
        if done.status != -signal.SIGKILL:
            overtaken = len(runs) > 1 and refused(*done)
            need(overtaken or done.status == 0, f"status {done.status}: {done.said}")
            break
        tally.kills += 1
        trial.observe()
        _count(trial, tally)
        if len(runs) == 1:
            runs += copied(trial, rng, tally)
        trial.spoil()
    rng.shuffle(runs)
    settle(runs, _ends)
    for trial in runs:
        trial.remove()


def _place(events: dict[str, int], rng: random.Random) -> int:
    """Choose where to kill: anywhere, near the start, or within a stage, because some are short."""
    places = sorted(events.values())
    stage = rng.randrange(len(places) - 1)
    return rng.choice(
        [
            rng.randint(1, places[-1]),
            int(places[-1] ** rng.random()),
            rng.randint(places[stage], places[stage + 1]),
            rng.randint(places[stage], places[stage + 1]),
        ]
    )


def copied(trial: Trial, rng: random.Random, tally: Tally) -> list[Trial]:
    """Return a copy of a killed run, or None, at random.

    Before a run has an identity there is nothing to copy: two folders would be two releases.
    """
    if rng.random() > _COPIED or release_of(trial.out) is None:
        return []
    tally.copies += 1
    return [trial.copy()]


def _ends(trial: Trial) -> bool:
    done = _run(trial, 0)
    if refused(*done):
        return False
    need(done.status == 0, f"the last restart failed: {done.said}")
    pipeline.make_estimates(trial.out, workers=1)
    return True


def _count(trial: Trial, tally: Tally) -> None:
    """Record what a kill interrupted."""
    if (trial.out / "manifest.json").exists():
        tally.after_manifest += 1
    elif trial.published:
        tally.while_publishing += 1
    elif trial.charges():
        tally.while_drawing += 1
    else:
        tally.before_charge += 1


# The libraries load once, in the process from which all releases are forked.
_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload(["benchmarks._faults_child"])


class _Ended(NamedTuple):
    status: int
    said: str


def _run(trial: Trial, kill_at: int) -> _Ended:
    with tempfile.NamedTemporaryFile("r", dir=trial.plan.parent.parent) as said:
        words = (trial.plan, trial.out, trial.ledger, kill_at, Path(said.name))
        process = _FORKED.Process(target=_faults_child.main, args=words)
        process.start()
        process.join(timeout=HANG)
        need(process.exitcode is not None, "a release did not finish")
        return _Ended(process.exitcode or 0, said.read())


def kill_by_clock(plan: Path, name: str, rng: random.Random, tally: Tally) -> None:
    """Kill the command line itself, at a random time during its run."""
    trial = Trial(plan, plan.parent / name)
    process = subprocess.Popen(
        _release(trial), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(rng.uniform(0.05, 3.0))
    process.send_signal(rng.choice([signal.SIGKILL, signal.SIGTERM]))
    status = process.wait()
    tally.runs += 1
    tally.kills += status != 0
    charges = trial.charges()
    need(status in (0, 3, 130, -signal.SIGKILL, -signal.SIGTERM), f"status {status}")
    need(status != 3 or len(charges) == 1, "status 3 without a charge")
    done = (trial.out / "manifest.json").exists()
    need(status != 130 or not charges or done, "status 130 with a charge and no release")
    runs = [trial, *copied(trial, rng, tally)]
    rng.shuffle(runs)
    settle(runs, _is_released)
    for trial in runs:
        trial.remove()


def _release(trial: Trial) -> list[str]:
    command = [sys.executable, "-m", "countveil", "release", str(trial.plan), "--quiet"]
    return [*command, "--to", str(trial.out), "--ledger", str(trial.ledger)]


def _is_released(trial: Trial) -> bool:
    done = subprocess.run(_release(trial), check=False, capture_output=True, text=True)
    need(done.returncode == 0 or refused(done.returncode, done.stderr), done.stderr)
    return done.returncode == 0


def kill_a_worker(plan: Path, name: str, rng: random.Random, tally: Counter[str]) -> None:
    """Kill one process of the pool, as the system does when memory runs out."""
    trial = Trial(plan, plan.parent / name)
    process = trial.start()
    wanted = rng.choice([{"begun", "measuring"}, {"estimating"}])
    killed = False
    while process.poll() is None and not killed:
        pool = [child for child in children_of(process.pid) if _in_pool(child)]
        if pool and trial.state() in wanted:
            time.sleep(rng.uniform(0, 2.5) if "estimating" in wanted else rng.uniform(0, 0.3))
            state = trial.state()
            pool = [child for child in children_of(process.pid) if _in_pool(child)]
            for worker in rng.sample(pool, min(1, len(pool))):
                os.kill(worker, signal.SIGKILL)
                killed = True
    status = process.wait()
    need(status in (0, 3), f"status {status}: {trial.errors()}")
    if killed:
        tally[f"a worker while {state}{', and it continued' if status == 0 else ''}"] += 1
    trial.observe()
    runs, copies = [trial], Tally()
    if status == 3:
        runs += copied(trial, rng, copies)
        tally["a copy of one that lost a worker"] += copies.copies
    trial.spoil()
    rng.shuffle(runs)
    settle(runs, Trial.ends)
    for trial in runs:
        trial.remove()


def _in_pool(process: int) -> bool:
    """Whether a process is a worker, or the server that forks them."""
    try:
        return b"multiprocessing.forkserver" in Path(f"/proc/{process}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def fill_the_disk(plan: Path, name: str, rng: random.Random, tally: Counter[str]) -> None:
    """Release onto a disk that fills up on the way; then make room and resume."""
    if os.getuid() != 0:
        _limit_files(plan, name, rng, tally)
        return
    disk = plan.parent / "disk"
    with small_disk(disk, int(10 ** rng.uniform(4.3, 5.6))) as make_room:
        trial = Trial(plan, disk / name)
        status = trial.start().wait()
        _note_full(trial, status, tally)
        make_room()
        trial.finish()
        trial.remove()


def _limit_files(plan: Path, name: str, rng: random.Random, tally: Counter[str]) -> None:
    """Let no file grow past a limit, which the process sees as a full disk."""
    trial = Trial(plan, plan.parent / name)
    limit = int(10 ** rng.uniform(4.2, 4.8))

    def small_files_only() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    _note_full(trial, trial.start(small_files_only).wait(), tally)
    trial.finish()
    trial.remove()


def _note_full(trial: Trial, status: int, tally: Counter[str]) -> None:
    need(status in (0, 2, 3), f"status {status}: {trial.errors()}")
    need(status != 2 or not trial.charges(), f"status 2 after the charge: {trial.errors()}")
    tally[f"a full disk while {trial.state()}, status {status}"] += 1
    trial.observe()


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=120, help="releases killed at random points")
    parser.add_argument(
        "--clock-kills", type=int, default=30, help="releases killed at a random time"
    )
    parser.add_argument(
        "--worker-kills", type=int, default=30, help="releases that lose a pool process"
    )
    parser.add_argument(
        "--full-disks", type=int, default=30, help="releases onto disks that fill up"
    )
    parser.add_argument("--cluster", action="store_true", help="on a Spark cluster instead")
    parser.add_argument("--runs", type=int, default=30, help="releases on the cluster")
    parser.add_argument("--seed", type=int, default=None, help="repeat a series")


def run(options: argparse.Namespace) -> None:
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(4))
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        if options.cluster:
            from benchmarks.cluster_faults import run_on_cluster

            run_on_cluster(Path(folder), options.runs, rng, seed)
        else:
            _run_local(Path(folder), options, rng, seed)
    print(
        "every release finished and verified; each was charged once; every finished part kept its "
        "bytes; of a run and its copy, one was published and the other refused"
    )


def _run_local(folder: Path, options: argparse.Namespace, rng: random.Random, seed: int) -> None:
    tally, by_clock, others = Tally(), Tally(), Counter[str]()
    plan = prepare(folder)
    events = count_events(plan)
    print(f"faults: seed {seed}, {events['end']:,} kill points inside the door")
    for _ in range(options.kills):
        kill_until_done(plan, "out", events, rng, tally)
    print(
        f"{tally.runs} releases, {tally.kills} kills at random points: "
        f"{tally.before_charge} before the charge, "
        f"{tally.while_drawing} while drawing, {tally.while_publishing} while publishing, "
        f"{tally.after_manifest} after the manifest; {tally.copies} were copied",
        flush=True,
    )
    for _ in range(options.clock_kills):
        kill_by_clock(plan, "out", rng, by_clock)
    print(
        f"{by_clock.runs} releases, {by_clock.kills} killed at a random time (SIGKILL or SIGTERM); "
        f"{by_clock.copies} were copied",
        flush=True,
    )
    for _ in range(options.worker_kills):
        kill_a_worker(plan, "out", rng, others)
    for _ in range(options.full_disks):
        fill_the_disk(plan, "out", rng, others)
    for what, times in sorted(others.items()):
        print(f"{times:4d} x {what}")
    runs = tally.runs + by_clock.runs + options.worker_kills + options.full_disks
    print(f"{runs} releases in all")
