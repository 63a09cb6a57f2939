"""Replicates of a release: the whole of it drawn again, with what was released taken for the truth.

How far replicates fall from the release tells how far the release fell from the counts: approximate
Monte Carlo, or the parametric bootstrap. It reads what is published alone and costs nothing.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from countveil import storage
from countveil.errors import InputError
from countveil.infer.remeasured import Remeasured
from countveil.infer.spread import Held, Replicates
from countveil.infer.two_pass import least_squares
from countveil.measure import manifest
from countveil.postprocess.descent import Job, descend, refuse_other_measurements
from countveil.postprocess.estimates import Estimates
from countveil.randomness import Seeded
from countveil.release import Release
from countveil.schema.plan import Plan
from countveil.workers import Workers, beyond_here, hired

LEAST = 20
_DONE, _IDENTITY, _ATTEMPT = "done", "replicates.json", ".attempt-"


def replicates(
    release: Release,
    plan: Plan | None = None,
    *,
    count: int = 200,
    seed: int = 1,
    workers: int | Workers | None = None,
    work: str | Path | None = None,
    progress: Callable[[int, int], None] = lambda done, count: None,
) -> Replicates:
    """Release the estimates again, `count` times, by the plan's own noise and post-processing.

    `work` is a folder that keeps finished replicates, so that more can be added and a stopped run goes
    on; without it they lie in a temporary folder that lives as long as the result. `plan` may be
    another that measures the same: its post-processing is replicated then. `workers` are a number of
    processes, or those of an engine.
    """
    for name, number in (("count", count), ("seed", seed)):
        if isinstance(number, bool) or not isinstance(number, int):
            raise InputError(f"{name}: {number!r} is not a whole number")
    if count < LEAST:
        raise InputError(
            f"count: {count} is not allowed; an interval needs {LEAST} replicates or more"
        )
    plan = release.plan if plan is None else plan
    refuse_other_measurements(release.folder, plan, release.plan)
    if plan.method != "top-down":
        raise InputError(
            f"{release.folder}: method {plan.method!r} makes no estimates to replicate; use "
            f"infer.least_squares for intervals from measurements"
        )
    held = Held() if work is None else None
    folder = Path(str(work)) if held is None else held.folder
    job = _Again(
        release.folder.resolve(), release.manifest["release"], plan, folder.absolute(), seed
    )
    estimates = release.estimates
    _begin(folder, {"release": release.manifest["release"], "plan": plan.digest, "seed": seed})
    if workers is None or isinstance(workers, int):
        workers = min(workers or len(os.sched_getaffinity(0)), count)
    with hired(workers) as team:
        team.reach(job.release / manifest.NAME)
        team.reach(folder)
        for done, _ in enumerate(team.map(job, range(count), large=True)):
            progress(done + 1, count)
    unbiased = least_squares(
        release.measurements, plan, geography=estimates.geography, workers=beyond_here(workers)
    )
    return Replicates(estimates, unbiased, plan, folder, count, held)


@dataclass(frozen=True, slots=True)
class _Again:
    """Make one replicate after another; each is finished once its mark is there."""

    release: Path
    identity: str
    plan: Plan
    folder: Path
    seed: int

    def run(self, number: int) -> None:
        place = self.folder / f"{number:04d}"
        if (place / _DONE).exists():
            return
        estimates, released = _read(self.release, self.identity)
        rng = Seeded(self.seed * 1_000_003 + number)
        # Another worker may try the same replicate: each has a folder of its own until it is done.
        with tempfile.TemporaryDirectory(prefix=_ATTEMPT, dir=self.folder) as attempt:
            mine = Path(attempt) / "replicate"
            storage.make_folder(mine, 0o700)
            job = Job(Remeasured(released.measurements, estimates, rng), self.plan, mine, rng)
            descend(job, estimates.geography)
            storage.write_bytes(mine / _DONE, b"")
            try:
                mine.rename(place)
            except OSError:
                if not (place / _DONE).exists():  # else the other was first, and made the same
                    raise


def _begin(folder: Path, identity: dict[str, Any]) -> None:
    """Take up replicates of the same release, or begin where nothing is."""
    storage.make_folder(folder, 0o700)
    path = folder / _IDENTITY
    if not path.exists() and not any(folder.iterdir()):
        storage.write_json(path, identity)
    elif not path.exists() or _found(path) != identity:
        raise InputError(
            f"{folder}: holds something else than replicates of this; name another folder"
        )
    half = (place for place in folder.glob("[0-9]*") if not (place / _DONE).exists())
    for left in (*folder.glob(f"{_ATTEMPT}*"), *half):
        shutil.rmtree(left)


def _found(path: Path) -> Any:
    try:
        return storage.read_json(path)
    except ValueError:  # half written, or not ours
        return None


@lru_cache(maxsize=1)
def _read(folder: Path, identity: str) -> tuple[Estimates, Release]:
    """Return a release and its estimates, read once in a process for all its replicates."""
    release = Release.read(folder)
    return release.estimates, release
