"""Kill a release at random points, restart it, check that nothing was lost or spent twice."""

from __future__ import annotations

import argparse
import io
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from countveil import Release, pipeline
from countveil.measure.run import internal_of
from countveil.schema.plan import Plan
from countveil.starter import write_start
from countveil.storage import sha256

_MOST_KILLS = 4


@dataclass
class Tally:
    """What a series of runs went through."""

    runs: int = 0
    kills: int = 0
    before_charge: int = 0
    while_drawing: int = 0
    while_publishing: int = 0
    after_manifest: int = 0


def prepare(folder: Path, people: int = 400) -> Path:
    """Write a small plan whose measurements come in a few dozen parts."""
    write_start(folder / "start", people=people, seed=3)
    return folder / "start" / "plan.toml"


def count_events(plan: Path) -> int:
    """Run once without a kill; return how many places there were to kill it at."""
    out = plan.parent / "count"
    done = _run(plan, out, 0)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    _remove(plan, out)
    return int(done.stdout.split()[-1])


def kill_until_done(plan: Path, name: str, events: int, rng: random.Random, tally: Tally) -> None:
    """Kill one release a few times at random points, let it finish, and check every promise."""
    out = plan.parent / name
    kept: dict[str, bytes] = {}
    published: dict[str, str] = {}
    tally.runs += 1
    for _ in range(rng.randint(1, _MOST_KILLS)):
        # Half of them spread over the run, half crowded towards its start: the charge is early.
        point = rng.choice([rng.randint(1, events), int(events ** rng.random())])
        done = _run(plan, out, point)
        if done.returncode != -signal.SIGKILL:
            _need(done.returncode == 0, f"status {done.returncode}: {done.stderr}")
            break
        tally.kills += 1
        _inspect(plan, out, kept, published, tally)
    done = _run(plan, out, 0)
    _need(done.returncode == 0, f"the last restart failed: {done.stderr}")
    ledger = plan.parent / f"{name}.sqlite"
    pipeline.estimate(out, workers=1)
    Release.read(out).verify(ledger)
    charges = Plan.load(plan).ledger(ledger).charges()
    _need(len(charges) == 1, f"{len(charges)} charges")
    for path, digest in published.items():
        _need(sha256(out / path) == digest, f"{path} changed after it was renamed")
    _same_draws(out, kept)
    _remove(plan, out)


def _inspect(
    plan: Path, out: Path, kept: dict[str, bytes], published: dict[str, str], tally: Tally
) -> None:
    """Check what a kill left: no draw without a charge, no finished part gone or changed."""
    charges = Plan.load(plan).ledger(plan.parent / f"{out.name}.sqlite").charges()
    _need(len(charges) <= 1, "charged twice")
    parts = {p.name: p for p in (internal_of(out) / "parts").glob("*.parquet") if p.name[0] != "."}
    files = {p.relative_to(out).as_posix(): p for p in out.rglob("*.parquet") if p.name[0] != "."}
    finished = (out / "manifest.json").exists()
    _need(bool(charges) or not (parts or files), "noise was drawn before the charge")
    for name, data in kept.items():
        _need(finished or (name in parts and parts[name].read_bytes() == data), f"{name} was lost")
    kept.update({name: path.read_bytes() for name, path in parts.items()})
    for name, path in files.items():
        _need(published.get(name, sha256(path)) == sha256(path), f"{name} changed")
        published[name] = sha256(path)
    if finished:
        tally.after_manifest += 1
    elif files:
        tally.while_publishing += 1
    elif charges:
        tally.while_drawing += 1
    else:
        tally.before_charge += 1


def _same_draws(out: Path, kept: dict[str, bytes]) -> None:
    """Check that the release holds the very draws that were once finished."""
    for level in {name.split(".")[0] for name in kept}:
        final = pq.ParquetFile(out / "measurements" / f"{level}.parquet")
        for name, data in kept.items():
            if name.split(".")[0] == level:
                group = final.read_row_group(int(name.split(".")[1]))
                _need(
                    group.equals(pq.read_table(io.BytesIO(data[:-32]))), f"{name} was drawn again"
                )


def _run(plan: Path, out: Path, kill_at: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks._faults_child", str(plan), str(out), str(kill_at)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def _remove(plan: Path, out: Path) -> None:
    shutil.rmtree(out)
    shutil.rmtree(internal_of(out))
    (plan.parent / f"{out.name}.sqlite").unlink()


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(what)


def kill_by_clock(plan: Path, name: str, rng: random.Random, tally: Tally) -> None:
    """Kill the command line itself, at a random time of its run."""
    out, ledger = plan.parent / name, plan.parent / f"{name}.sqlite"
    command = [sys.executable, "-m", "countveil", "release", str(plan), "--to", str(out)]
    command += ["--ledger", str(ledger), "--quiet"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(rng.uniform(0.05, 3.0))
    process.send_signal(rng.choice([signal.SIGKILL, signal.SIGTERM]))
    status = process.wait()
    tally.runs += 1
    tally.kills += status != 0
    charges = Plan.load(plan).ledger(ledger).charges()
    _need(status in (0, 3, 130, -signal.SIGKILL, -signal.SIGTERM), f"status {status}")
    _need(status != 3 or len(charges) == 1, "status 3 without a charge")
    done = (out / "manifest.json").exists()
    _need(status != 130 or not charges or done, "status 130 with a charge and no release")
    subprocess.run(command, check=True, capture_output=True)
    Release.read(out).verify(ledger)
    _need(len(Plan.load(plan).ledger(ledger).charges()) == 1, "charged twice")
    _remove(plan, out)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=200, help="faults: kills at random points")
    parser.add_argument("--clock-kills", type=int, default=30, help="faults: kills by the clock")
    parser.add_argument("--seed", type=int, default=None, help="faults: repeat a series")


def run(options: argparse.Namespace) -> None:
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(4))
    rng = random.Random(seed)
    tally, by_clock = Tally(), Tally()
    with tempfile.TemporaryDirectory() as folder:
        plan = prepare(Path(folder))
        events = count_events(plan)
        print(f"faults: seed {seed}, {events:,} places to be killed at inside the door")
        while tally.kills < options.kills:
            kill_until_done(plan, "out", events, rng, tally)
        while by_clock.runs < options.clock_kills:
            kill_by_clock(plan, "out", rng, by_clock)
    print(
        f"{tally.runs} releases, {tally.kills} kills at random points: "
        f"{tally.before_charge} before the charge, "
        f"{tally.while_drawing} while drawing, {tally.while_publishing} while publishing, "
        f"{tally.after_manifest} after the manifest"
    )
    print(f"{by_clock.runs} releases, {by_clock.kills} killed by the clock (SIGKILL or SIGTERM)")
    print(
        "every release finished and verified; each was charged once; every finished part kept its bytes"
    )
