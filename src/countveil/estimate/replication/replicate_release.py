"""Replicates of a release: all of it drawn again, as if the released counts were the truth.

The distance of replicates from the release shows the distance of the release from the counts:
approximate Monte Carlo, or the parametric bootstrap. It uses only what is published and spends nothing.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from countveil.base import storage
from countveil.base.numerics import IntArray
from countveil.base.randomness import BitSource, Seeded
from countveil.engines.workers import Workers, beyond_here, hired
from countveil.errors import InputError
from countveil.estimate.replication.replicate_errors import Replicates, TemporaryFolder
from countveil.estimate.unbiased import least_squares
from countveil.measure import manifest
from countveil.measure.measurements import Measurements
from countveil.noise.law import Mechanism
from countveil.plan.plans import Plan
from countveil.postprocess.estimates import Estimates
from countveil.postprocess.topdown import DescentJob, descend, refuse_other_measurements
from countveil.publish.release_folder import Release

LEAST = 20  # replicates
_DONE, _IDENTITY, _ATTEMPT = "done", "replicates.json", ".attempt-"


def replicates(
    release: Release,
    plan: Plan | None = None,
    *,
    count: int = 200,
    seed: int = 1,
    workers: int | Workers | None = None,
    work: str | Path | None = None,
    progress: Callable[[int, int], None] = lambda finished, count: None,
) -> Replicates:
    """Release the estimates again, `count` times, with the plan's own noise and post-processing.

    Parameters
    ----------
    release : Release
        A release with estimates.
    plan : Plan, optional
        Another plan that measures the same, to replicate its post-processing instead.
    count : int
        The number of replicates, at least 20.
    seed : int
        The seed of their noise.
    workers : int or Workers, optional
        The number of processes, by default one per processor, or the workers of an engine.
    work : path, optional
        A folder that keeps finished replicates, so that an interrupted run resumes and more can be
        added. By default a temporary folder that lives as long as the result.
    progress : callable
        Called with the number of finished replicates and `count`.

    Returns
    -------
    Replicates
        Bias, error and intervals of the released counts.

    Examples
    --------
    >>> replicates(release, count=200).interval("county", "TOTAL")  # doctest: +SKIP

    """
    for name, number in (("count", count), ("seed", seed)):
        if isinstance(number, bool) or not isinstance(number, int):
            raise InputError(f"{name}: {number!r} is not a whole number")
    if count < LEAST:
        raise InputError(f"count: {count} is too few; an interval needs {LEAST} replicates or more")
    plan = release.plan if plan is None else plan
    refuse_other_measurements(release.folder, plan, release.plan)
    if plan.method != "top-down":
        raise InputError(
            f"{release.folder}: method {plan.method!r} makes no estimates to replicate; use "
            f"estimate.least_squares for intervals from measurements"
        )
    temporary = TemporaryFolder() if work is None else None
    folder = Path(str(work)) if temporary is None else temporary.folder
    job = _ReplicateJob(
        release.folder.resolve(), release.manifest["release"], plan, folder.absolute(), seed
    )
    estimates = release.estimates
    _begin(folder, {"release": release.manifest["release"], "plan": plan.digest, "seed": seed})
    if workers is None or isinstance(workers, int):
        workers = min(workers or len(os.sched_getaffinity(0)), count)
    with hired(workers) as team:
        team.reach(job.release / manifest.NAME)
        team.reach(folder)
        for number, _ in enumerate(team.map(job, range(count), large=True)):
            progress(number + 1, count)
    unbiased = least_squares(
        release.measurements, plan, geography=estimates.geography, workers=beyond_here(workers)
    )
    return Replicates(estimates, unbiased, plan, folder, count, temporary)


@dataclass(frozen=True, slots=True)
class _ReplicateJob:
    """Makes one replicate after another; each is finished once its folder has a mark."""

    release: Path
    identity: str
    plan: Plan
    folder: Path
    seed: int

    def run(self, number: int) -> None:
        """Make one replicate, unless it is finished."""
        target = self.folder / f"{number:04d}"
        if (target / _DONE).exists():
            return
        estimates, release = _read(self.release, self.identity)
        rng = Seeded(self.seed * 1_000_003 + number)
        # Another worker may try the same replicate: each works in a folder of its own.
        with tempfile.TemporaryDirectory(prefix=_ATTEMPT, dir=self.folder) as attempt:
            mine = Path(attempt) / "replicate"
            storage.make_folder(mine, 0o700)
            measured = Remeasured(release.measurements, estimates, rng)
            descend(DescentJob(measured, self.plan, mine, rng), estimates.geography)
            storage.write_bytes(mine / _DONE, b"")
            try:
                mine.rename(target)
            except OSError:
                if not (target / _DONE).exists():  # else the other was first, with the same result
                    raise


@dataclass(frozen=True, eq=False, slots=True)
class Remeasured:
    """Noisy values of released estimates, as if those were the truth; the same values every time.

    Nothing is kept in memory. Public counts are as published, and the estimates agree with them.
    """

    released: Measurements
    estimates: Estimates
    rng: BitSource

    @property
    def plan(self) -> Plan:
        """What is measured."""
        return self.released.plan

    @property
    def mechanisms(self) -> dict[tuple[str, str], Mechanism]:
        """The noise of each level and query."""
        return self.released.mechanisms

    def units(self, level: str, start: int, stop: int) -> NDArray[np.int32]:
        """Return the values of units start … stop - 1, all queries of the level side by side."""
        codes = self.estimates.geography.geocodes(level, start, stop).to_pylist()
        unit, cell, count = self.estimates.levels[level].entries(start, stop)
        parts = []
        for item in self.plan.at(level):
            query, law = item.query, self.mechanisms[level, item.query.name]
            source = self.rng.for_units(level, codes, query.name)
            values = law.sample((stop - start) * query.cells, rng=source)
            where = query.cells_at(cell)
            counted = where >= 0
            key = unit[counted] * query.cells + where[counted]
            values = values + np.bincount(key, count[counted], len(values)).astype(np.int64)
            parts.append(values.reshape(-1, query.cells).astype(np.int32))
        return np.concatenate(parts, axis=1)

    def invariant(self, level: str, query: str) -> IntArray:
        """Return the exact counts of a public query, for all units of a level."""
        return self.released.invariant(level, query)


def _begin(folder: Path, identity: dict[str, object]) -> None:
    """Keep replicates of the same release, or begin in an empty folder."""
    storage.make_folder(folder, 0o700)
    path = folder / _IDENTITY
    if not path.exists() and not any(folder.iterdir()):
        storage.write_json(path, identity)
    elif not path.exists() or _identity(path) != identity:
        raise InputError(
            f"{folder}: contains something other than replicates of this release; name another folder"
        )
    unfinished = (item for item in folder.glob("[0-9]*") if not (item / _DONE).exists())
    for remains in (*folder.glob(f"{_ATTEMPT}*"), *unfinished):
        shutil.rmtree(remains)


def _identity(path: Path) -> object:
    try:
        return storage.read_json(path)
    except ValueError:  # truncated, or not ours
        return None


class _OpenRelease(NamedTuple):
    """A release, and its estimates."""

    estimates: Estimates
    release: Release


@lru_cache(maxsize=1)
def _read(folder: Path, identity: str) -> _OpenRelease:
    """Return a release and its estimates, read once per process for all its replicates."""
    release = Release.read(folder)
    return _OpenRelease(release.estimates, release)
